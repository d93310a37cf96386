//! Why a demonstration does not work.

use std::io;
use std::net::SocketAddr;

use tidegate_bootstrap::ExitCode;
use tidegate_codec::{EncodeError, RegistryError, SchemaError};
use tidegate_kafka::ConnectError;
use tidegate_kafka::topics::TopicError;
use tidegate_service::ServiceError;
use tidegate_service::deliveries::Undelivered;

/// Why a demonstration does not work.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The cluster can't be asked or changed.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// No client can be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The configuration lacks the registry.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The registry does not take a schema.
    #[error(
        "the schema of {topic} can't be registered: {reason}; check registry.url and that the registry runs"
    )]
    Registry {
        /// The topic.
        topic: &'static str,
        /// Why.
        #[source]
        reason: RegistryError,
    },
    /// An event of the demonstration does not fit its schema.
    #[error("the demo's own events do not fit their schema; report this as a bug of tidegate")]
    Encode(#[from] EncodeError),
    /// A schema of the demonstration can't be read.
    #[error("the demo's own schema can't be used; report this as a bug of tidegate")]
    Schema(#[from] SchemaError),
    /// An event did not get into its topic.
    #[error("an event was not published; are the topics there? `tidegate demo sources` makes them")]
    Undelivered(#[from] Undelivered),
    /// The endpoint can't listen.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

impl DemoError {
    /// The exit code of a command that ends with this.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Service(error) => error.exit_code(),
            Self::Topics(TopicError::Connect(error)) | Self::Connect(error)
                if error.is_misconfiguration() =>
            {
                ExitCode::Usage
            }
            Self::Listen { .. } => ExitCode::Usage,
            _ => ExitCode::Failed,
        }
    }
}
