//! The index: a local cache of the dead-letter topic and the journal, which may be deleted at any time.
//!
//! One process writes it, holding the lock of its folder; any number read it meanwhile. It notes up to where it has read, and whose
//! records they are: with another cluster, or a topic that was made anew, it is built from the beginning.

mod causes;
mod connect;
mod writer;

pub(crate) use causes::{ALL, QUARTER_MS};
pub(crate) use connect::{Home, Provenance, Writing};
pub(crate) use writer::{ID_BITS, Log, Writer};
