//! The consume loop over ports: how records become settled, without knowing Kafka, RocksDB or HTTP.
//!
//! One [`shard::Shard`] runs on one thread and owns the state of its partitions by value. It fetches records, delivers them to
//! a [`stage::Stage`] (what a service does with records), and commits what the stage settled. There are three stages:
//! [`forward`] (ingest: events become jobs), [`jobs`] (worker: jobs are run) and [`delay`] (retry: copies wait until due).
//!
//! Invariants:
//! - A position is committed only when every delivered offset below it is settled.
//! - A record is settled only when what follows from it is acknowledged: its mark, or its copy in another topic.
//! - A result of an older assignment epoch changes nothing.
//! - A partition without room is not polled; nothing else slows it down.
//!
//! Reading order: [`record`], [`ports`], [`shard`], [`stage`], [`jobs`], [`forward`], [`delay`], [`journal`].
#![deny(missing_docs)]

pub mod changelog;
pub mod dead_letter;
pub mod delay;
pub mod events;
#[cfg(feature = "fakes")]
pub mod fakes;
pub mod forward;
pub mod inbox;
pub mod jobs;
pub mod journal;
pub mod keyed;
pub mod log_limit;
pub mod names;
pub mod ports;
pub mod record;
mod reports;
pub mod shard;
pub mod stage;

pub use inbox::{Inbox, Wake};
pub use log_limit::LogLimit;
pub use names::Names;
pub use record::{Headers, OutboundRecord, Record, RecordBuilder, TopicPartition};
