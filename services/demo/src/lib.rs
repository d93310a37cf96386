//! What a demonstration needs besides tidegate: services that publish events, and an endpoint that has its troubles.
//!
//! [`classes`] are the three kinds of jobs, which dev mode and the tests play too, [`events`] what is published of them and in which
//! order, [`sources`] makes the topics and publishes, [`endpoint`] runs the jobs. What an event meets is decided by its number alone,
//! so two runs of the same events end with the same sums.
#![deny(missing_docs)]

pub mod classes;
pub mod endpoint;
mod error;
pub mod events;
pub mod sources;

pub use error::DemoError;
