//! One partition that ingest forwards: what waits, what is on its way, and what holds it up.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::keyed::Key;
use crate::record::{Record, TopicPartition};
use crate::stage::{Desk, Slot};

/// Why a partition makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldUp {
    /// The router can't decide now.
    Undecided,
    /// A copy was not published.
    Unpublished,
}

/// One assigned partition.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) at: TopicPartition,
    /// Its records are dead letters that operators sent again.
    pub(super) is_reingest: bool,
    /// Fetched and not routed.
    pub(super) waiting: VecDeque<Record>,
    /// Routed and not settled, in offset order; settled ones leave lazily.
    pub(super) forwarded: VecDeque<Key>,
    /// Those of `forwarded` that are not handed over whole.
    pub(super) unfinished: VecDeque<Key>,
    pub(super) on_their_way: usize,
    /// When something was last acknowledged, or handed over while nothing was on its way.
    pub(super) heard: Instant,
    /// A publish failed: forward anew when nothing is on its way.
    pub(super) rewind: bool,
    pub(super) held_until: Option<Instant>,
    pub(super) held_up: Option<HeldUp>,
    /// An outcome of a replayed record was refused by the journal, and not taken since.
    pub(super) journal_refuses: bool,
    pub(super) draining: bool,
}

impl Source {
    pub(super) fn new(at: TopicPartition, is_reingest: bool, now: Instant) -> Self {
        Self {
            at,
            is_reingest,
            waiting: VecDeque::new(),
            forwarded: VecDeque::new(),
            unfinished: VecDeque::new(),
            on_their_way: 0,
            heard: now,
            rewind: false,
            held_until: None,
            held_up: None,
            journal_refuses: false,
            draining: false,
        }
    }

    /// What held the partition up is over, if it was this.
    pub(super) fn goes_on_from(&mut self, reason: HeldUp, slot: Slot, desk: &mut Desk) {
        if self.held_up == Some(reason) {
            self.held_up = None;
            self.trouble_over(slot, desk);
        }
    }

    pub(super) fn trouble_over(&self, slot: Slot, desk: &mut Desk) {
        if self.held_up.is_none() && !self.journal_refuses {
            desk.trouble_over(slot);
        }
    }
}
