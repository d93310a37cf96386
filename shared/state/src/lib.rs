//! The local copy of a worker's marks: RocksDB, a column family per job partition. The truth is a changelog in Kafka; whatever is lost
//! here is read from there again.
//!
//! What holds here:
//! - A stretch of the changelog is applied as a whole or not at all, and with it how far the copy goes. What is found after a crash is a
//!   prefix of the changelog, with exactly its position. The last seconds to minutes may be missing: RocksDB's own log is off.
//! - A position never claims more than is there, not even in the middle of a restore.
//! - Once the database was opened anew, a partition answers nothing until it is opened again.
//! - Writes are blind: the database joins marks, in any order. Nothing reads before it writes.
//! - A mark is remembered for `retention` after its append, by its partition's time. That follows the changelog's append times, and no
//!   single wrong clock makes it forget.
//! - State that is foreign or corrupt is set aside, with a warning, and never trusted or deleted.
//! - A key that was applied is never answered with "nothing" by the in-memory filter alone.
//!
//! Reading order: `entry` (what is stored), `expiry`, `filter`, `database` (RocksDB), `provenance` and `home` (whose
//! directory it is), `store` (all of it together), `background` (what takes long), `restore` and `runs` (filling a copy), `marks` (the
//! port).

mod background;
mod database;
mod entry;
mod error;
pub mod events;
mod expiry;
mod filter;
mod home;
mod marks;
mod options;
mod partition;
mod provenance;
mod restore;
mod runs;
mod settings;
mod store;

pub use error::OpenError;
pub use marks::Marks;
pub use provenance::{Provenance, TopicIdentity};
pub use restore::Restoring;
pub use settings::{MemoryBudgets, Parents, Settings};
pub use store::PartitionSize;
