//! One assigned partition of the worker: its lanes, what is ready, and the marks on their way.

use std::collections::VecDeque;

use tidegate_domain::{IdempotencyKey, Mark, Offset, UnixMillis};
use tokio::time::Instant;

use super::lanes::Lanes;
use super::overlay::Overlay;
use crate::keyed::Key;
use crate::ports::{MarkEntry, Ticket};
use crate::record::TopicPartition;

/// Marks that are appended together, and the records that their acknowledgement settles.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<MarkEntry>,
    pub(super) settles: Vec<(Offset, usize)>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.settles.is_empty()
    }
}

/// A batch that was handed to the store.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) ticket: Ticket,
    pub(super) batch: Batch,
    /// Set when the store refused it: when it is tried again.
    pub(super) again_at: Option<Instant>,
}

/// Whether the partition's marks can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    Opening(Ticket),
    OpenAgainAt(Instant),
    Open,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) at: TopicPartition,
    pub(super) marks: Marks,
    pub(super) lanes: Lanes<Key>,
    pub(super) ready: VecDeque<Key>,
    pub(super) overlay: Overlay,
    pub(super) pending: Batch,
    pub(super) append: Option<Append>,
    /// Handlers that run.
    pub(super) running: usize,
    /// Copies on their way to a delay topic or the DLQ, those that wait to be tried again included.
    pub(super) publishing: usize,
    /// Copies that could not be published: until one of them is, nothing is handed out.
    pub(super) publish_failures: usize,
    pub(super) draining: bool,
    /// The newest record's timestamp: the broker's clock, by which marks expire.
    pub(super) append_time: UnixMillis,
}

impl Partition {
    pub(super) fn new(at: TopicPartition, ticket: Ticket) -> Self {
        Self {
            at,
            marks: Marks::Opening(ticket),
            lanes: Lanes::default(),
            ready: VecDeque::new(),
            overlay: Overlay::default(),
            pending: Batch::default(),
            append: None,
            running: 0,
            publishing: 0,
            publish_failures: 0,
            draining: false,
            append_time: UnixMillis(0),
        }
    }

    /// Whether jobs may be handed out.
    pub(super) fn goes_on(&self) -> bool {
        self.marks == Marks::Open && !self.draining && self.publish_failures == 0 && !self.append_failed()
    }

    pub(super) fn append_failed(&self) -> bool {
        self.append.as_ref().is_some_and(|append| append.again_at.is_some())
    }

    /// Notes a mark, and what its acknowledgement settles.
    pub(super) fn mark(&mut self, entry: MarkEntry, known: Mark, settles: Option<(Offset, usize)>) {
        self.overlay.lay(&entry, known);
        self.pending.entries.push(entry);
        self.pending.settles.extend(settles);
    }

    /// Whether a mark of `key` is on its way: what is concluded from it must not be settled before it is acknowledged.
    pub(super) fn settles_with_batch(&self, key: &IdempotencyKey) -> bool {
        self.overlay.get(key).is_some()
    }

    /// The next batch, when none is on its way.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        if self.append.is_some() || self.pending.is_empty() {
            return None;
        }
        Some(std::mem::take(&mut self.pending))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.publishing == 0 && self.pending.is_empty() && self.append.is_none()
    }
}
