//! What the services share: from a validated configuration to running shards.
//!
//! [`wiring`] turns settings into what the adapters take, [`plan`] says which topics there must be, [`drift`] keeps instances of
//! one pipeline from running with different configurations, [`check`] compares the cluster with the plan, [`group`] runs shards
//! as a member of a consumer group, [`registry`] refuses a wrong address of the schema registry, and [`process`] is the frame of a
//! service's process. [`deliveries`] is for commands that publish.
#![deny(missing_docs)]

pub mod check;
pub mod deliveries;
pub mod drift;
pub mod group;
pub mod plan;
pub mod process;
pub mod registry;
pub mod wiring;

mod error;

pub use error::ServiceError;
pub use process::Process;
