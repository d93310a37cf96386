//! Why a service does not start, or ends.

use tidegate_bootstrap::observe::ObserveError;
use tidegate_bootstrap::shutdown::SignalError;
use tidegate_bootstrap::telemetry::TelemetryError;
use tidegate_codec::{RegistryFault, Weight};
use tidegate_kafka::ConnectError;
use tidegate_kafka::topics::TopicError;

use crate::check::Finding;

/// Why a service does not start, or ends. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Logs or metrics could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Signals can't be heard.
    #[error(transparent)]
    Signals(#[from] SignalError),
    /// The address of metrics and health is not to be had.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Kafka can't be reached, or refuses the client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The cluster could not be asked.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// Topics are missing or differ from the configuration.
    #[error("the cluster does not fit the configuration:\n{}", lines(.0))]
    Unfit(Vec<Finding>),
    /// Another instance of this pipeline runs with another configuration.
    #[error("this configuration differs from the pipeline's:\n{}", lines(.0))]
    Drift(Vec<crate::drift::Difference>),
    /// There is no schema registry to work with.
    #[error(transparent)]
    Registry(#[from] RegistryFault),
    /// The configuration lacks something that this service needs.
    #[error("{0}")]
    Configuration(String),
    /// Something local can't be used: a folder, a certificate.
    #[error("{0}")]
    Local(String),
    /// A client broke for good, or a thread ended.
    #[error("{0}; started again, it goes on where it stopped")]
    Fatal(String),
    /// What ran did not end in time.
    #[error("shutting down took longer than consume.shutdown_deadline; what was not settled runs again")]
    ShutdownDeadline,
}

fn lines<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(|item| format!("  - {item}")).collect::<Vec<_>>().join("\n")
}

impl ServiceError {
    /// The exit code of a process that ends with this.
    pub fn exit_code(&self) -> tidegate_bootstrap::ExitCode {
        use tidegate_bootstrap::ExitCode;
        match self {
            Self::Registry(fault) if fault.weight() == Weight::Passes => ExitCode::Failed,
            Self::Configuration(_)
            | Self::Registry(_)
            | Self::Drift(_)
            | Self::Unfit(_)
            | Self::Observe(_) => ExitCode::Usage,
            Self::Connect(error) if error.is_misconfiguration() => ExitCode::Usage,
            Self::Topics(error) if error.is_misconfiguration() => ExitCode::Usage,
            _ => ExitCode::Failed,
        }
    }
}
