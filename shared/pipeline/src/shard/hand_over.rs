//! Partitions that come, and those that are given back or lost.

use tidegate_domain::{CommitPosition, PartitionWatermark};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::assignment::Assignment;
use super::{Drained, Shard};
use crate::events::PartitionGauges;
use crate::ports::RecordSource;
use crate::record::TopicPartition;
use crate::stage::{Slot, Stage};

/// Partitions that are given back when nothing of them runs any more.
pub(super) struct Revocation {
    pub(super) slots: Vec<Slot>,
    pub(super) deadline: Instant,
    /// How many records were not settled when it came.
    pub(super) unsettled: usize,
    pub(super) reply: oneshot::Sender<Drained>,
}

impl<S: Stage> Shard<S> {
    pub(super) fn assign(&mut self, slot: Slot, partition: TopicPartition, source: Box<dyn RecordSource>) {
        self.stage.assigned(slot, &partition, &mut self.desk);
        let gauges = PartitionGauges::of(&partition);
        let assignment = Assignment {
            partition,
            source,
            watermark: PartitionWatermark::default(),
            window_bytes: 0,
            committed: None,
            readable: true,
            draining: false,
            moved: false,
            assigned_at: self.desk.now,
            stands_since: (self.desk.now, None),
            out_of_range: false,
            head: (None, self.desk.now),
            gauges,
            stage_trouble: None,
            source_trouble: None,
            failed_at: None,
            stalled: None,
        };
        self.assignments.insert(slot, assignment);
    }

    pub(super) fn slots_of(&self, partitions: &[TopicPartition]) -> Vec<Slot> {
        let ours = |(_, a): &(&Slot, &Assignment)| partitions.contains(&a.partition);
        self.assignments.iter().filter(ours).map(|(&slot, _)| slot).collect()
    }

    pub(super) fn revoke(
        &mut self,
        partitions: &[TopicPartition],
        deadline: Instant,
        reply: oneshot::Sender<Drained>,
    ) {
        let slots = self.slots_of(partitions);
        for &slot in &slots {
            self.stage.drain(slot, &mut self.desk);
            if let Some(assignment) = self.assignments.get_mut(&slot) {
                assignment.draining = true;
            }
        }
        let unsettled = self.unsettled(&slots);
        self.revocations.push(Revocation { slots, deadline, unsettled, reply });
    }

    pub(super) fn unsettled(&self, slots: &[Slot]) -> usize {
        slots.iter().filter_map(|slot| self.assignments.get(slot)).map(|a| a.watermark.unsettled()).sum()
    }

    pub(super) fn lose(&mut self, partitions: &[TopicPartition], reply: oneshot::Sender<()>) {
        for slot in self.slots_of(partitions) {
            self.stage.lose(slot, &mut self.desk);
            self.forget(slot);
        }
        if reply.send(()).is_err() {
            debug!("nobody waits for lost partitions to be released");
        }
    }

    pub(super) fn release(&mut self, slot: Slot) -> Option<(TopicPartition, CommitPosition)> {
        self.stage.release(slot, &mut self.desk);
        self.forget(slot)
    }

    pub(super) fn forget(&mut self, slot: Slot) -> Option<(TopicPartition, CommitPosition)> {
        let assignment = self.assignments.remove(&slot)?;
        assignment.gauges.clear();
        self.troubles.remove(&assignment.partition);
        self.observer.troubles(&self.troubles);
        let position = assignment.watermark.commit_position()?;
        Some((assignment.partition, position))
    }

    pub(super) fn finish_revocations(&mut self) {
        let now = self.desk.now;
        let mut open = Vec::new();
        for revocation in std::mem::take(&mut self.revocations) {
            let idle = revocation.slots.iter().all(|&slot| self.stage.is_idle(slot));
            if !idle && now < revocation.deadline {
                open.push(revocation);
                continue;
            }
            if !idle {
                warn!(
                    "the drain deadline passed; jobs that still ran are cancelled and will run again elsewhere"
                );
            }
            let left = self.unsettled(&revocation.slots);
            let settled = revocation.unsettled.saturating_sub(left);
            let positions = revocation.slots.iter().filter_map(|&slot| self.release(slot)).collect();
            if revocation.reply.send(Drained { positions, settled, left }).is_err() {
                warn!(
                    "nobody waits for revoked partitions; their records are delivered again to the next owner"
                );
            }
        }
        self.revocations = open;
    }
}
