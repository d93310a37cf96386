//! Asking the embedded broker, which lives as long as this process does.

use std::time::Duration;

use tidegate_kafka::ConnectError;
use tidegate_kafka::topics::TopicError;
use tidegate_service::ServiceError;

use crate::error::DevError;
use crate::view::write_error;

/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether it says that the broker has not answered.
pub(crate) trait Unanswered {
    /// Whether the same question may be answered when it is asked again.
    fn is_unanswered(&self) -> bool;
}

impl Unanswered for TopicError {
    fn is_unanswered(&self) -> bool {
        // All topics are there, and a machine that is busy enough keeps the broker from sending what they hold.
        matches!(
            self,
            Self::Connect(ConnectError::Unreachable { .. }) | Self::Request(_) | Self::Unreadable(..)
        )
    }
}

impl Unanswered for ServiceError {
    fn is_unanswered(&self) -> bool {
        match self {
            Self::Connect(ConnectError::Unreachable { .. }) => true,
            Self::Topics(error) => error.is_unanswered(),
            _ => false,
        }
    }
}

/// Asks until there is an answer, off the runtime, and says so: no answer means that the machine is busy, since the broker is alive in here.
/// Whoever has waited for long enough ends the run.
pub(crate) async fn patiently<T: Send + 'static, E: Unanswered + std::fmt::Display + Send + 'static>(
    ask: impl Fn() -> Result<T, E> + Clone + Send + 'static,
) -> Result<Result<T, E>, DevError> {
    loop {
        let asked = tokio::task::spawn_blocking(ask.clone()).await;
        match asked.map_err(|error| DevError::Local(std::io::Error::other(error)))? {
            Err(error) if error.is_unanswered() => {
                write_error(&format!("note: {error}; the broker is in this process, so it is asked again"));
                tokio::time::sleep(PAUSE).await;
            }
            answer => return Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_slow_to_answer_is_asked_again_and_a_refusal_is_an_answer() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        let answer = patiently(move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(ServiceError::Connect(ConnectError::Unreachable {
                bootstrap: "127.0.0.1:1".to_owned(),
                reason: "timed out".to_owned(),
            })),
            1 => Err(ServiceError::Topics(TopicError::Unreadable(
                "t".to_owned(),
                "it sends nothing".to_owned(),
            ))),
            2 => Err(ServiceError::Configuration("no".to_owned())),
            more => Ok(more),
        });
        assert!(matches!(answer.await.unwrap(), Err(ServiceError::Configuration(_))));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}
