//! The decisions of tidegate, and nothing else.
//!
//! Pure: no I/O, clock, randomness, Kafka, logging or metrics. `now` and random draws are arguments, so that every
//! rule can be tested against a naive model, and enumerated.
//!
//! Reading order: [`position`] (what Kafka counts), [`watermark`] (what may be committed), [`job`] (the envelope that
//! travels in the `job` header), [`key`] (when two events are the same job), [`mark`] (run it, or is it done already?),
//! [`failure`] and [`ladder`] (what failed; again when?), [`flood`] (does anything work at all?), [`routing`] (which jobs is this
//! event?), [`due_queue`] (what is due next?), [`inbox`] (what operators ordered, and what came of it).
#![deny(missing_docs)]

pub mod due_queue;
pub mod failure;
pub mod flood;
pub mod inbox;
pub mod job;
pub mod key;
pub mod ladder;
pub mod mark;
pub mod position;
pub mod routing;
pub mod watermark;

pub use failure::{Failure, FailureKind, Outcome};
pub use job::{Attempt, Hop, JobHash, JobHeader, PayloadHash, Round};
pub use key::{FieldValue, IdempotencyKey, Lane};
pub use ladder::Ladder;
pub use mark::{Mark, Verdict};
pub use position::{AssignmentEpoch, CommitPosition, Offset, Partition, Topic, UnixMillis};
pub use watermark::PartitionWatermark;
