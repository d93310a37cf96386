//! What librdkafka's errors mean for the ports.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tidegate_pipeline::ports::{PublishError, SourceError};

pub(crate) fn publish_error(code: Code) -> PublishError {
    match code {
        Code::QueueFull => PublishError::Full,
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => PublishError::TooLarge(code.to_string()),
        Code::Fatal | Code::ClusterAuthorizationFailed => PublishError::Fatal(code.to_string()),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => {
            let unknown = "no broker knows it, or not this partition of it; `tidegate topics apply` creates what is missing";
            PublishError::Unavailable(unknown.to_owned())
        }
        _ => PublishError::Unavailable(code.to_string()),
    }
}

pub(crate) fn publish_failure(error: &KafkaError) -> PublishError {
    match error.rdkafka_error_code() {
        Some(code) => publish_error(code),
        None => PublishError::Unavailable(error.to_string()),
    }
}

pub(crate) fn source_error(code: Code, message: String) -> SourceError {
    match code {
        Code::AutoOffsetReset | Code::OffsetOutOfRange => SourceError::OutOfRange(message),
        Code::Fatal => SourceError::Fatal(message),
        _ => SourceError::Unavailable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_gone_is_told_with_what_makes_it_anew_and_is_waited_for() {
        for code in [Code::UnknownTopic, Code::UnknownTopicOrPartition, Code::UnknownPartition] {
            let error = publish_error(code);
            assert!(
                matches!(&error, PublishError::Unavailable(why) if why.contains("`tidegate topics apply`")),
                "{error}"
            );
        }
    }
}
