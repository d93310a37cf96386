//! The worker: runs the jobs of one or more tiers.
//!
//! Configure a handler (`http`, `log`), or write your own in Rust and run it by a binary of yours:
//!
//! ```no_run
//! use tidegate_worker::{Handler, Job, JobError, Worker};
//!
//! #[derive(serde::Deserialize)]
//! struct Payment {
//!     payment_id: String,
//!     amount_cents: i64,
//! }
//!
//! struct Charge;
//!
//! impl Handler for Charge {
//!     async fn run(&self, job: &Job) -> Result<(), JobError> {
//!         let payment: Payment = job.decode().await?;
//!         if payment.amount_cents < 0 {
//!             return Err(JobError::permanent("negative-amount", format!("payment {}", payment.payment_id)));
//!         }
//!         // Pass `job.key()` on, so that the other end can tell a repeat.
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     Worker::new().handler("charge", Charge).main()
//! }
//! ```
//!
//! The loop itself is [`tidegate_pipeline::jobs`].
#![deny(missing_docs)]

mod handler;
mod http;
mod job;
mod log;
mod main_of;
mod restore;
mod run;
mod schemas;
mod trace;

pub use handler::{Handler, JobError};
pub use job::Job;
pub use main_of::{Options, Worker};
pub use run::{run, tiers};
