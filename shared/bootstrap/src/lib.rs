//! What every tidegate process needs before and around its work: configuration, logs, metrics, health, shutdown.
//!
//! Reading order: [`config`], then [`telemetry`], [`observe`] and [`shutdown`] in the order a process starts them.
//! Nothing here knows Kafka.

pub mod config;
mod exit_code;
pub mod health;
pub mod observe;
pub mod shutdown;
pub mod telemetry;

pub use config::{Config, ConfigError};
pub use exit_code::ExitCode;
pub use health::Health;
pub use observe::ObserveServer;
pub use shutdown::Shutdown;
