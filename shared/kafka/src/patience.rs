//! Asking again, while the cluster heals.

use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tracing::warn;

use crate::topics::TopicError;

/// The target of log lines that say what is waited for: all that a command without a log tells of them.
pub const WAITING: &str = "tidegate_kafka::waiting";

/// For how long: a broker that died is noticed by the others after its session, 9 s by default (`broker.session.timeout.ms`), and
/// then controller and leaders move.
const HEALS_WITHIN: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Says whether a question that failed is asked again.
pub(crate) struct Patience {
    until: Instant,
}

impl Patience {
    pub(crate) fn begin() -> Self {
        Self { until: Instant::now() + HEALS_WITHIN }
    }

    /// How long to wait before the question is asked again; none: the error is the answer.
    pub(crate) fn bears(&self, error: &TopicError) -> Option<Duration> {
        let again = may_heal(error) && Instant::now() < self.until;
        if again {
            warn!(target: WAITING, "a broker may be away, and is asked again: {error}");
        }
        again.then_some(ASK_AGAIN_AFTER)
    }
}

/// Asks until there is an answer that counts, and does this before it asks again. Blocks.
pub(crate) fn patiently<T>(
    mut ask: impl FnMut() -> Result<T, TopicError>,
    mut before_again: impl FnMut(),
) -> Result<T, TopicError> {
    let patience = Patience::begin();
    loop {
        let answer = ask();
        match answer.as_ref().err().and_then(|error| patience.bears(error)) {
            Some(wait) => {
                before_again();
                std::thread::sleep(wait);
            }
            None => return answer,
        }
    }
}

/// Whether it says that a broker is away or that a role moves, and not that something is refused or wrong.
fn may_heal(error: &TopicError) -> bool {
    let TopicError::Request(error) = error else { return false };
    // The crate's own `rdkafka_error_code` knows nothing of answers to an admin.
    let code = match error {
        KafkaError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    };
    matches!(
        code,
        Some(
            Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::BrokerTransportFailure
                // A broker left the cluster while it was asked.
                | Code::DestroyBroker
                | Code::BrokerNotAvailable
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::NotController
                | Code::NetworkException
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_is_away_is_asked_again_and_a_refusal_is_an_answer() {
        let mut heals = [Code::OperationTimedOut, Code::DestroyBroker].into_iter();
        let (mut asked, mut named) = (0, 0);
        let ask = || {
            asked += 1;
            match heals.next() {
                Some(code) => Err(TopicError::Request(KafkaError::AdminOp(code))),
                None => Ok(()),
            }
        };
        patiently(ask, || named += 1).expect("the third answer counts");
        assert_eq!((asked, named), (3, 2), "brokers are named before each further question");
        let mut asked = 0;
        let ask = || {
            asked += 1;
            Err(TopicError::Request(KafkaError::AdminOp(Code::ClusterAuthorizationFailed)))
        };
        let refused = patiently::<()>(ask, || panic!("there is no further question"));
        assert_eq!((asked, refused.is_err()), (1, true));
    }
}
