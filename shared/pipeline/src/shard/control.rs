//! How a shard is told what to do, and what it tells.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_domain::CommitPosition;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::ports::RecordSource;
use crate::record::TopicPartition;
use crate::stage::Slot;

/// What the event thread tells a shard.
pub enum Control {
    /// A partition is ours.
    Assigned {
        /// This assignment's name.
        slot: Slot,
        /// Which one.
        partition: TopicPartition,
        /// Its records.
        source: Box<dyn RecordSource>,
    },
    /// Partitions are to be given back: what runs may end until the deadline.
    Revoke {
        /// Which ones.
        partitions: Vec<TopicPartition>,
        /// After this, what still runs is cancelled.
        deadline: Instant,
        /// Told when the sources are dropped.
        reply: oneshot::Sender<Drained>,
    },
    /// Partitions were taken away: another process may own them already. Nothing is committed.
    Lost {
        /// Which ones.
        partitions: Vec<TopicPartition>,
        /// Told when the sources are dropped.
        reply: oneshot::Sender<()>,
    },
    /// The loop ends; every partition was given back before.
    Stop,
}

/// How it ended with partitions that are given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The positions to commit.
    pub positions: Vec<(TopicPartition, CommitPosition)>,
    /// How many records were settled since the shard was told.
    pub settled: usize,
    /// How many records were not, those that nobody had begun included: they are delivered again, to the next owner.
    pub left: usize,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Assigned { slot, partition, .. } => write!(f, "Assigned({slot:?}, {partition})"),
            Self::Revoke { partitions, .. } => write!(f, "Revoke({partitions:?})"),
            Self::Lost { partitions, .. } => write!(f, "Lost({partitions:?})"),
            Self::Stop => f.write_str("Stop"),
        }
    }
}

/// Bounds and rhythm of a shard.
#[derive(Clone, Copy, Debug)]
pub struct ShardSettings {
    /// How many delivered records of a partition may wait for the commit position.
    pub window_records: usize,
    /// How many bytes of unsettled records of a partition are kept.
    pub window_bytes: usize,
    /// How often positions are committed that have moved.
    pub commit_interval: Duration,
    /// How often all positions are committed, also those that have not moved: a commit may have failed after it was started, and
    /// a group that commits nothing loses its positions.
    pub recommit_interval: Duration,
    /// How many records one fetch takes at most, so that no partition starves another.
    pub fetch_records: usize,
    /// How long an assigned partition with records to read may stand still before it counts as stuck.
    pub stall_after: Duration,
}

impl Default for ShardSettings {
    fn default() -> Self {
        Self {
            window_records: 10_000,
            window_bytes: 64 << 20,
            commit_interval: Duration::from_millis(200),
            recommit_interval: Duration::from_secs(60),
            fetch_records: 1000,
            stall_after: Duration::from_secs(30),
        }
    }
}

/// Hears what a shard can't decide by itself.
pub trait ShardObserver: Send {
    /// Why the shard is not ready, per partition; empty when it is.
    fn troubles(&mut self, troubles: &BTreeMap<TopicPartition, String>);

    /// The process must end: its client is broken for good.
    fn fatal(&mut self, reason: &str);

    /// The loop went round: at least once a commit interval, unless something blocks its thread.
    fn alive(&mut self) {}
}
