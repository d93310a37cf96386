//! The worker's memory of idempotency keys: marks in RocksDB, a column family per job partition.
//!
//! What holds here:
//! - An append is applied as a whole or not at all, and survives the death of the process once it is answered. It does not
//!   wait for the disk: a power cut may take the last seconds.
//! - Writes are blind: the database joins marks, in any order. Nothing reads before it writes.
//! - A mark is remembered for `retention` after its append, by the broker's time. No clock of this machine is asked.
//! - State that is foreign or corrupt is set aside, with a warning, and never trusted or deleted.
//! - A key that was appended is never answered with "nothing" by the in-memory filter alone.
//!
//! Reading order: `entry` (what is stored), `expiry`, `filter`, `database` (RocksDB), `provenance` and `home` (whose
//! directory it is), `store` (all of it together), `background` (what takes long), `marks` (the port).

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
pub use settings::{MemoryBudgets, Settings};
pub use store::PartitionSize;
