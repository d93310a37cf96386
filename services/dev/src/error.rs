//! Why dev mode ends with another code than 0.

use tidegate_bootstrap::telemetry::TelemetryError;
use tidegate_bootstrap::{ConfigError, ExitCode};
use tidegate_kafka::ConnectError;
use tidegate_kafka::embedded::EmbeddedError;
use tidegate_kafka::topics::TopicError;
use tidegate_service::ServiceError;

/// Why dev mode ends with another code than 0.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration has nothing to run.
    #[error(
        "{file} has no {what}, so there is nothing to run: `tidegate init` writes a file that has all that is needed"
    )]
    Nothing {
        /// The file.
        file: String,
        /// What it lacks.
        what: &'static str,
    },
    /// Logs or metrics could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The embedded broker does not work.
    #[error(transparent)]
    Broker(#[from] EmbeddedError),
    /// The embedded broker does not answer.
    #[error(transparent)]
    Connect(ConnectError),
    /// The embedded broker can't be read.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// One of the services ended.
    #[error("{service} has ended: {source}")]
    Service {
        /// Which.
        service: String,
        /// Why.
        #[source]
        source: ServiceError,
    },
    /// A service ended without an error while nobody had asked it to.
    #[error("{0} has ended by itself: that is a bug in tidegate")]
    Ended(String),
    /// Not ready in time.
    #[error("not ready within {} s: {reasons}; is the machine overloaded?", within.as_secs())]
    NotReady {
        /// How long it was waited for.
        within: std::time::Duration,
        /// What is not ready, and why.
        reasons: String,
    },
    /// Something on this machine: a port, a folder, the terminal, a thread.
    #[error("this machine refuses: {0}")]
    Local(#[from] std::io::Error),
    /// The live view can't be shown.
    #[error("the terminal can't be drawn on: {0}; --plain prints lines instead")]
    Draw(#[source] std::io::Error),
    /// What is to be told can't be written.
    #[error("standard output can't be written to: {0}; nothing more could be told, so this has ended")]
    Output(#[source] std::io::Error),
    /// Whoever read what is told has gone (`| head`).
    #[error("nobody reads standard output any more")]
    Unread,
    /// No folder can be made.
    #[error("no folder can be made in {}: {reason}; set TMPDIR to a folder in which this user may write", within.display())]
    Folder {
        /// Where temporary folders are made.
        within: std::path::PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// The demo's producer could not publish.
    #[error("the demo's producer can't publish: {0}")]
    Publish(String),
    /// Records were dropped before they were read, so no sum can be right.
    #[error(
        "records are gone unread: {what}. A partition of the embedded broker holds 5 MiB, and what was not read by then is lost; \
         publish less or more slowly, or use a real Kafka"
    )]
    Overrun {
        /// Where.
        what: String,
    },
    /// The worker process of `--kill-worker` does not do what it should.
    #[error("the worker process {0}")]
    Worker(String),
    /// Not all events came to an end in time.
    #[error("not every event came to its end within {} s of the last one: {left}", within.as_secs())]
    Unfinished {
        /// How long it was waited for.
        within: std::time::Duration,
        /// What is missing.
        left: String,
    },
    /// The figures contradict each other.
    #[error("the sum does not add up: {0}; that is a bug in tidegate")]
    WrongSum(String),
}

impl DevError {
    /// The exit code of a process that ends with this.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Nothing { .. } => ExitCode::Usage,
            Self::Service { source, .. } => source.exit_code(),
            _ => ExitCode::Failed,
        }
    }
}
