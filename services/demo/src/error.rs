//! Why a demonstration does not work.

use std::io;
use std::net::SocketAddr;

use tidegate_bootstrap::ExitCode;
use tidegate_codec::{EncodeError, RegistryError, SchemaError};
use tidegate_kafka::ConnectError;
use tidegate_kafka::topics::TopicError;
use tidegate_pipeline::ports::PublishError;
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
    /// There is nowhere to publish to.
    #[error("there is no topic {}: `tidegate demo sources` creates what is missing", topics.join(", "))]
    NoTopics {
        /// The topics that are missing.
        topics: Vec<&'static str>,
    },
    /// An event did not get into its topic.
    #[error("event {number} was not published: {reason}")]
    Undelivered {
        /// Its number.
        number: u64,
        /// Why.
        reason: PublishError,
    },
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

impl From<Undelivered> for DemoError {
    fn from(Undelivered { number, reason }: Undelivered) -> Self {
        Self::Undelivered { number, reason }
    }
}

impl DemoError {
    /// The exit code of a command that ends with this.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Service(error) => error.exit_code(),
            Self::Topics(error) if error.is_misconfiguration() => ExitCode::Usage,
            Self::Connect(error) if error.is_misconfiguration() => ExitCode::Usage,
            Self::Listen { .. } | Self::NoTopics { .. } => ExitCode::Usage,
            _ => ExitCode::Failed,
        }
    }
}
