//! The worker's stage: verdict, run, publish what follows, mark, settle.
//!
//! The life of one record here: [`JobStage`] parses it and queues it in its lane; the head of a lane becomes ready; ready jobs get
//! their verdicts in batches (one look-up for all of them, the marks on their way laid over it); those to be run are polled once
//! at once, and go on on the runtime if they must wait; the outcome becomes a mark, after the acknowledged copy where there is
//! one; the mark is appended with others; its acknowledgement settles the record.
//!
//! A lane goes on when its job's mark is in the overlay; an offset is settled when the mark is acknowledged.
//!
//! A class that fails altogether is parked: its jobs stay where they are, one at a time is run as a probe, and the window gets
//! rid of those that hold more than their share of it.
//!
//! Reading order: `job`, `in_hand`, `stage` (the turn), `answers` (what it hears), `verdicts`, `run`, `follow_up`, `outcome` (what
//! operators are told of replays), `partition` (lanes, overlay, batches), `marking`, `caution` and `solitude` (jobs that may kill), `guard`
//! and `parked`.

mod answers;
mod caution;
mod cut_off;
mod deposed;
mod first;
mod follow_up;
mod guard;
mod in_hand;
mod job;
mod lanes;
mod marking;
mod outcome;
mod overlay;
mod parked;
mod parked_told;
mod partition;
mod run;
mod settings;
mod solitude;
mod stage;
mod verdicts;

pub use cut_off::CutOff;
pub use first::FirstPartitions;
pub use guard::Guard;
pub use job::{Class, ClassId, Conflicts, Job, Ordering};
pub use parked::ParkedShare;
pub use settings::{JobSettings, Ports};
pub use solitude::Solitude;
pub use stage::JobStage;
