//! What librdkafka's errors mean for the ports.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tidegate_pipeline::ports::{PublishError, SourceError};

pub(crate) fn publish_error(code: Code) -> PublishError {
    match code {
        Code::QueueFull => PublishError::Full,
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => PublishError::TooLarge(code.to_string()),
        Code::Fatal | Code::ClusterAuthorizationFailed => PublishError::Fatal(code.to_string()),
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
