//! The committed positions of a group.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_domain::CommitPosition;
use tokio::time::Instant;

use super::faults::{Fate, Faults, Port};
use super::node::Life;
use crate::ports::{CommitError, OffsetCommitter};
use crate::record::TopicPartition;

/// One commit that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// When.
    pub at: Instant,
    /// Which partition.
    pub partition: TopicPartition,
    /// The next place to read.
    pub position: CommitPosition,
}

#[derive(Debug, Default)]
struct State {
    committed: BTreeMap<TopicPartition, CommitPosition>,
    history: Vec<Commit>,
    owners: BTreeMap<TopicPartition, u64>,
}

/// Looks at a commit that arrives: the partition, where it stood, and where it stands now.
pub type Watch = Box<dyn Fn(&TopicPartition, CommitPosition, CommitPosition) + Send + Sync>;

/// What a group committed, and who owns its partitions. Outlives processes.
#[derive(Default)]
pub struct GroupOffsets(Mutex<State>, Mutex<Option<Watch>>);

impl std::fmt::Debug for GroupOffsets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GroupOffsets").field(&self.0.lock().committed).finish()
    }
}

impl GroupOffsets {
    /// Where the next owner goes on; the beginning where nothing was committed.
    pub fn position(&self, partition: &TopicPartition) -> CommitPosition {
        self.0.lock().committed.get(partition).copied().unwrap_or(CommitPosition(0))
    }

    /// Every commit that arrived.
    pub fn history(&self) -> Vec<Commit> {
        self.0.lock().history.clone()
    }

    /// The partition is this node's now: other nodes' commits are refused.
    pub fn own(&self, partition: &TopicPartition, node: u64) {
        self.0.lock().owners.insert(partition.clone(), node);
    }

    /// Every commit that arrives is shown to `watch`.
    pub fn watch(&self, watch: Watch) {
        *self.1.lock() = Some(watch);
    }

    pub(super) fn commit(&self, node: u64, positions: &[(TopicPartition, CommitPosition)]) {
        let mut state = self.0.lock();
        for (partition, position) in positions {
            if state.owners.get(partition) != Some(&node) {
                continue;
            }
            let before = state.committed.insert(partition.clone(), *position).unwrap_or(CommitPosition(0));
            if let Some(watch) = &*self.1.lock() {
                watch(partition, before, *position);
            }
            state.history.push(Commit {
                at: Instant::now(),
                partition: partition.clone(),
                position: *position,
            });
        }
    }
}

/// The committer of one node.
#[derive(Debug)]
pub struct FakeCommitter {
    pub(super) offsets: Arc<GroupOffsets>,
    pub(super) faults: Faults,
    pub(super) life: Life,
    pub(super) refused: std::sync::atomic::AtomicU64,
}

impl OffsetCommitter for FakeCommitter {
    fn commit(&self, positions: &[(TopicPartition, CommitPosition)]) -> Result<(), CommitError> {
        match self.faults.fate(&Port::Commit) {
            Fate::Full | Fate::Refused | Fate::TooLarge => Err(CommitError("refused".to_owned())),
            // A commit that was started and lost: nobody hears of it.
            Fate::Fails(_) => Ok(()),
            // A commit that was started and refused.
            Fate::FailsTooLarge(_) => {
                self.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            Fate::Succeeds(_) | Fate::LosesAnswer(_) => {
                self.offsets.commit(self.life.id(), positions);
                Ok(())
            }
        }
    }

    fn refused(&self) -> u64 {
        self.refused.load(std::sync::atomic::Ordering::Relaxed)
    }
}
