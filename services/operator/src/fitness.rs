//! Whether the topics that an inbox reads are as it needs them.

use std::collections::BTreeMap;

use tidegate_domain::Topic;
use tidegate_kafka::topics::TopicState;

use crate::error::OperatorError;

/// How many partitions the dead-letter topic has.
///
/// # Errors
/// [`OperatorError::Unfit`]: it or the journal can't be seen, or the journal has more than one partition.
pub(crate) fn dead_letters(
    topics: &BTreeMap<String, TopicState>,
    dlq: &Topic,
    journal: &Topic,
) -> Result<u32, OperatorError> {
    let partitions = |topic: &Topic| {
        let found = topics.get(topic.as_str()).map(|found| found.partitions);
        found.ok_or_else(|| OperatorError::Unfit(missing(topic)))
    };
    let dead_letters = partitions(dlq)?;
    match partitions(journal)? {
        1 => Ok(dead_letters),
        many => Err(OperatorError::Unfit(format!(
            "{journal} has {many} partitions and must have one: `tidegate topics check` says what to do"
        ))),
    }
}

fn missing(topic: &Topic) -> String {
    format!(
        "there is no topic {topic}, or this user may not see it: `tidegate topics apply` creates it, and people who look at dead \
         letters need the right Read on it"
    )
}

#[cfg(test)]
mod tests {
    use tidegate_bootstrap::ExitCode;

    use super::*;

    #[test]
    fn topics_that_are_missing_or_wrong_are_a_mistake_that_trying_again_does_not_mend() {
        let (dlq, journal) = (Topic::new("orders.dlq"), Topic::new("orders.dlq-journal"));
        let look = |there: &[(&str, u32)]| {
            let state = |partitions| TopicState { partitions, replication: 1, led: true };
            let topics = there.iter().map(|(name, partitions)| ((*name).to_owned(), state(*partitions)));
            dead_letters(&topics.collect(), &dlq, &journal)
        };
        for (there, told) in [
            (&[][..], "there is no topic orders.dlq,"),
            (&[("orders.dlq", 3)], "there is no topic orders.dlq-journal,"),
            (&[("orders.dlq", 3), ("orders.dlq-journal", 2)], "orders.dlq-journal has 2 partitions"),
        ] {
            let error = look(there).expect_err("it is refused");
            assert_eq!(error.exit_code(), ExitCode::Usage, "{error}");
            assert!(error.to_string().starts_with(told), "{error}");
        }
        assert_eq!(look(&[("orders.dlq", 3), ("orders.dlq-journal", 1)]).expect("they fit"), 3);
    }
}
