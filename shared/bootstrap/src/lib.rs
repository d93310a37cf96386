//! What every tidegate process needs before and around its work: configuration, logs, metrics, health, shutdown.
//!
//! Reading order: [`config`], then [`telemetry`], [`observe`] and [`shutdown`] in the order a process starts them.
//! [`init`] writes a first configuration, [`probe`] asks a running process how it is, [`counted`] words a number. Nothing here knows Kafka.

pub mod config;
mod counted;
mod exit_code;
pub mod health;
pub mod init;
pub mod observe;
pub mod probe;
pub mod shutdown;
pub mod telemetry;

pub use config::{Config, ConfigError};
pub use counted::counted;
pub use exit_code::ExitCode;
pub use health::Health;
pub use observe::ObserveServer;
pub use shutdown::Shutdown;
