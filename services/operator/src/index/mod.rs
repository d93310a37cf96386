//! The index: a local cache of the dead-letter topic and the journal, which may be deleted at any time.
//!
//! One process writes it, holding the lock of its folder; any number read it meanwhile. It notes up to where it has read, and whose
//! records they are: with another cluster, or a topic that was made anew, it is built from the beginning.

mod causes;
mod connect;
mod families;
mod folded;
mod follow;
mod journal;
mod lives;
mod local;
mod lookups;
mod merge;
mod prune;
mod run_counts;
mod run_state;
mod words;
mod writer;

pub(crate) use causes::{ALL, QUARTER_MS};
pub(crate) use connect::{Home, Provenance};
pub(crate) use folded::read as read_folded;
pub(crate) use follow::Follower;
pub use follow::Progress;
pub use local::LocalIndex;
pub(crate) use writer::ID_BITS;
