//! What a store is opened with.

use std::path::PathBuf;
use std::time::Duration;

use crate::provenance::Provenance;

/// What a store is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The directory, made when it is missing. One process at a time uses it.
    pub dir: PathBuf,
    /// Whether the directories above it are made too.
    pub parents: Parents,
    /// How long a mark is remembered after its append, by its partition's time. It follows the broker's clock, but not when that jumps
    /// by more than an eighth of this.
    pub retention: Duration,
    /// Whose marks these are: a directory that holds others' is set aside.
    pub provenance: Provenance,
    /// How much memory is used.
    pub memory: MemoryBudgets,
}

/// What is done about the directories above a store's own when they are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parents {
    /// They are made.
    Made,
    /// The store is not opened: whoever made them may have removed them for good.
    Required,
}

/// How much memory a store uses, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudgets {
    /// Blocks, indices and filters of files, and the write buffers, which are charged to it.
    pub block_cache: usize,
    /// Marks that are not in a file yet, over all partitions. They are read from the changelog again after a crash.
    pub write_buffers: usize,
    /// The in-memory filter of each open partition. About 1.75 bytes a key; past it the partition has no filter, and every
    /// look-up asks the database.
    pub filter_per_partition: usize,
}

impl Default for MemoryBudgets {
    fn default() -> Self {
        Self { block_cache: 128 << 20, write_buffers: 64 << 20, filter_per_partition: 64 << 20 }
    }
}
