//! One assigned partition of a shard: where it is read from, and how far it is.

use std::time::Duration;

use tidegate_domain::{CommitPosition, PartitionWatermark};
use tokio::time::Instant;

use crate::events::PartitionGauges;
use crate::ports::RecordSource;
use crate::record::{Record, TopicPartition};

pub(super) struct Assignment {
    pub(super) partition: TopicPartition,
    pub(super) source: Box<dyn RecordSource>,
    pub(super) watermark: PartitionWatermark,
    /// Bytes of delivered records that are not settled.
    pub(super) window_bytes: usize,
    pub(super) committed: Option<CommitPosition>,
    /// The source may have more at hand.
    pub(super) readable: bool,
    pub(super) draining: bool,
    /// Anything was delivered or settled since the last look.
    pub(super) moved: bool,
    pub(super) assigned_at: Instant,
    /// When it moved last, and where the partition ended then.
    pub(super) stands_since: (Instant, Option<CommitPosition>),
    /// The source lost its place: offsets may begin anew.
    pub(super) out_of_range: bool,
    /// The commit position as last seen, and since when it has been that.
    pub(super) head: (Option<CommitPosition>, Instant),
    pub(super) gauges: PartitionGauges,
    pub(super) stage_trouble: Option<String>,
    pub(super) source_trouble: Option<String>,
    /// When the source last failed.
    pub(super) failed_at: Option<Instant>,
    pub(super) stalled: Option<String>,
}

/// How long a fault of a source is told when nothing else is heard of it.
const SOURCE_FAULT_HOLDS: Duration = Duration::from_secs(10);

impl Assignment {
    /// The source can be read again. An empty answer proves it only after a while: a fault is told once, and the answers that
    /// follow are empty too.
    pub(super) fn read_on(&mut self, batch: &[Record], now: Instant) {
        let long_ago = self.failed_at.is_none_or(|at| now.duration_since(at) > SOURCE_FAULT_HOLDS);
        if !batch.is_empty() || long_ago {
            (self.source_trouble, self.failed_at) = (None, None);
        }
    }
}
