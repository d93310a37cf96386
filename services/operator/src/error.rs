//! What can go wrong on the operators' side.

use std::path::PathBuf;

use tidegate_bootstrap::ExitCode;
use tidegate_kafka::topics::TopicError;
use tidegate_kafka::{ConnectError, ReadError};
use tidegate_service::ServiceError;

/// Why the inbox does not answer, or does not act. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The local index can't be read or written.
    #[error("the index can't be used: {0}; it is a cache, so its folder may be deleted: it is built anew")]
    Index(#[from] rusqlite::Error),
    /// The folder of the index can't be used.
    #[error("{path} can't be used for the index: {reason}; name another folder with `--index`")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        reason: std::io::Error,
    },
    /// A log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The cluster can't be asked.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// Kafka can't be reached, or refuses the client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The configuration lacks something.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Another process was to bring the index up to date, and does not.
    #[error(
        "another process holds the index and does not bring it up to date: end that one, or name another folder with `--index`"
    )]
    Stalled,
    /// The pipeline's topics are not there, or are not as they must be.
    #[error("{0}")]
    Unfit(String),
    /// What was asked for can't be.
    #[error("{0}")]
    Request(String),
    /// There is nothing of the name that was asked for.
    #[error("{0}")]
    Nothing(String),
    /// It could be, but did not work now.
    #[error("{0}")]
    Failed(String),
}

impl OperatorError {
    /// The exit code of a process that ends with this.
    pub fn exit_code(&self) -> ExitCode {
        let misconfigured = match self {
            Self::Service(error) => return error.exit_code(),
            Self::Nothing(_) => return ExitCode::NotOk,
            Self::Connect(error) | Self::Topics(TopicError::Connect(error)) => error.is_misconfiguration(),
            Self::Read(ReadError::Connect(error)) => error.is_misconfiguration(),
            Self::Request(_) | Self::Folder { .. } | Self::Unfit(_) => true,
            Self::Index(_) | Self::Read(_) | Self::Topics(_) | Self::Stalled | Self::Failed(_) => false,
        };
        if misconfigured { ExitCode::Usage } else { ExitCode::Failed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_a_no_and_what_can_not_be_is_a_mistake() {
        let text = String::new;
        assert_eq!(OperatorError::Nothing(text()).exit_code(), ExitCode::NotOk);
        assert_eq!(OperatorError::Request(text()).exit_code(), ExitCode::Usage);
        assert_eq!(OperatorError::Unfit(text()).exit_code(), ExitCode::Usage);
        assert_eq!(OperatorError::Failed(text()).exit_code(), ExitCode::Failed);
    }
}
