//! What a service does with the records of its partitions.

use std::time::Duration;

use tidegate_domain::{AssignmentEpoch, Offset, UnixMillis};
use tokio::time::Instant;

use crate::ports::Clock;
use crate::record::{Record, TopicPartition};

/// Names one assignment of one partition within its shard. Never used twice, so whatever carries an old one is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub AssignmentEpoch);

/// A stage: it takes records, and says when each is settled. Called from the shard's thread only; no method may block.
pub trait Stage {
    /// A partition was assigned. Records follow.
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, desk: &mut Desk);

    /// Whether the stage wants records of this partition now; the shard's window bounds them besides.
    fn wants(&self, slot: Slot) -> bool;

    /// How many bytes of records it takes now, where it wants any; not many more are fetched.
    fn room_bytes(&self, _slot: Slot) -> usize {
        usize::MAX
    }

    /// Takes records of one partition, in offset order; leaves `records` empty.
    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk);

    /// Goes on with everything that has become possible.
    fn turn(&mut self, desk: &mut Desk);

    /// Whether records stay here because they are not due: then their age is no sign of trouble.
    fn holds_on_purpose(&self) -> bool {
        false
    }

    /// Whether all that this partition could go on with waits on purpose: when its window is full of it, that it stands still is no
    /// sign of trouble.
    fn explains_standstill(&self, _slot: Slot) -> bool {
        false
    }

    /// Starts nothing new for this partition. What runs may end.
    fn drain(&mut self, slot: Slot, desk: &mut Desk);

    /// Whether nothing of this partition runs or is on its way.
    fn is_idle(&self, slot: Slot) -> bool;

    /// Forgets the partition: what still runs is cancelled, what is on its way changes nothing when it arrives.
    fn release(&mut self, slot: Slot, desk: &mut Desk);

    /// Forgets the partition, which is another's already.
    fn lose(&mut self, slot: Slot, desk: &mut Desk) {
        self.release(slot, desk);
    }
}

/// What a stage and its shard share during a call.
#[derive(Debug)]
pub struct Desk {
    /// The monotonic clock: for waits.
    pub now: Instant,
    /// The wall clock: for times that are written in records.
    pub wall: UnixMillis,
    pub(crate) settled: Vec<Settled>,
    pub(crate) wake_at: Option<Instant>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) again: bool,
    pub(crate) commit: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) slot: Slot,
    pub(crate) offset: Offset,
    pub(crate) bytes: usize,
}

/// Why a partition makes no progress; shown by `/readyz` until it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which partition.
    pub slot: Slot,
    /// For a person; `None`: it is over.
    pub reason: Option<String>,
}

impl Desk {
    /// A desk at this time.
    pub fn new(now: Instant, wall: UnixMillis) -> Self {
        Self {
            now,
            wall,
            settled: Vec::new(),
            wake_at: None,
            troubles: Vec::new(),
            again: false,
            commit: false,
        }
    }

    /// Reads the clocks again: a wait that begins now must not begin when the round did.
    pub fn refresh(&mut self, clock: &dyn Clock) {
        (self.now, self.wall) = (Instant::now(), clock.wall());
    }

    /// This record needs nothing more; `bytes` of the window are free again.
    pub fn settle(&mut self, slot: Slot, offset: Offset, bytes: usize) {
        self.settled.push(Settled { slot, offset, bytes });
    }

    /// Calls [`Stage::turn`] at this time at the latest.
    pub fn wake_at(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Calls [`Stage::turn`] after this wait at the latest.
    pub fn wake_after(&mut self, wait: Duration) {
        self.wake_at(self.now + wait);
    }

    /// Calls [`Stage::turn`] again without waiting.
    pub fn again(&mut self) {
        self.again = true;
    }

    /// Commits what is settled in this round, without waiting for its tick.
    pub fn commit_now(&mut self) {
        self.commit = true;
    }

    /// The partition can't go on, and why.
    pub fn trouble(&mut self, slot: Slot, reason: impl Into<String>) {
        self.troubles.push(Trouble { slot, reason: Some(reason.into()) });
    }

    /// The partition goes on.
    pub fn trouble_over(&mut self, slot: Slot) {
        self.troubles.push(Trouble { slot, reason: None });
    }
}
