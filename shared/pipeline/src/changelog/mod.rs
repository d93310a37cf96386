//! The truth about marks: a changelog topic, partitioned like the jobs, with a local copy that answers look-ups.
//!
//! [`Changelog`] is the [`MarkStore`](crate::ports::MarkStore) of a worker. Each append goes: changelog acknowledged, then local copy, then answered (and
//! so settled). Taking a partition over goes: append `Opened`, read up to it what the local copy misses, then answer. From then on
//! each own append must land where the last one ended; what lies between is a deposed owner's, and is read and joined before
//! anything is answered. Design section 3; docs/adr/0001 for the marks themselves.
//!
//! Invariants:
//! - The local copy's position is the end of the prefix of the changelog that is applied to it, whole.
//! - Nothing is answered before everything below it in the changelog is applied.
//! - Before a copy is read on, its last record is compared with the one that the changelog holds in that place: another one, and the
//!   copy is made anew.
//! - An entry of a deposed owner is joined like any other; it settles nothing here.
//!
//! Reading order: [`opener`] (who has a partition open), [`mod@format`] (the records), [`ports`], `ledger` (one partition), `task` (all).

pub mod format;
mod ledger;
pub mod opener;
pub mod ports;
mod task;

pub use opener::{Opener, OpenerId};
pub use ports::{
    CatchUp, CaughtUp, ChangelogReader, LastRecord, LocalCopy, LocalReady, LogEnd, MarkTable, Stretch,
};
pub use task::{Changelog, ChangelogPorts, ChangelogSettings};
