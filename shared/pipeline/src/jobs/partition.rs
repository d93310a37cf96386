//! One assigned partition of the worker: its lanes, what is ready, and the marks on their way.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_domain::mark::Phase;
use tidegate_domain::{IdempotencyKey, Mark, Offset};
use tokio::time::Instant;
use tracing::info;

use super::cut_off::CutOff;
use super::lanes::Lanes;
use super::outcome::Owed;
use super::overlay::Overlay;
use super::parked::{Parked, Taken};
use crate::keyed::Key;
use crate::ports::{MarkEntry, Ticket};
use crate::record::TopicPartition;
use crate::stage::{Desk, Slot};

/// Marks that are appended together, and the records that their acknowledgement settles.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) entries: Vec<MarkEntry>,
    pub(super) settles: Vec<(Offset, usize)>,
    /// Outcomes of replayed records that are true when the marks are acknowledged. Theirs settles the records.
    pub(super) owed: Vec<Owed>,
    /// Jobs that may be started when the marks are acknowledged.
    pub(super) starts: Vec<Key>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.settles.is_empty() && self.owed.is_empty()
    }
}

/// A batch that was handed to the store.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) ticket: Ticket,
    pub(super) batch: Batch,
    /// When it was handed over.
    pub(super) since: Instant,
    /// Set when the store refused it: when it is tried again.
    pub(super) again_at: Option<Instant>,
    pub(super) refused: Refused,
}

/// Whether the store refused a batch, and has not taken it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    No,
    Before,
}

/// Whether the partition's marks can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    Opening(Ticket),
    OpenAgainAt(Instant),
    Open,
}

/// Whether it is known that the partition was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    NotYet,
    OnItsWay(Ticket),
    /// Or it can't be made known.
    Known,
}

/// How many marks are written without waiting for more.
const FULL_BATCH: usize = 256;
/// How many marks may be on their way before nothing more is handed out.
const AHEAD: usize = 8192;
/// How long they may be, before the same.
const LATE: Duration = Duration::from_secs(2);
/// How long marks wait for more of them.
const GATHER: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) at: TopicPartition,
    pub(super) marks: Marks,
    pub(super) lanes: Lanes<Key>,
    pub(super) ready: VecDeque<Key>,
    pub(super) parked: Parked,
    pub(super) taken: Taken,
    pub(super) overlay: Overlay,
    /// Batches that take no more, and come before `pending`.
    full: VecDeque<Batch>,
    /// How many marks one batch has at most.
    most: usize,
    pub(super) pending: Batch,
    /// Since when `pending` waits for more.
    gathering_since: Option<Instant>,
    pub(super) append: Option<Append>,
    /// Set when the store could not be asked: when it is asked again.
    pub(super) look_up_again_at: Option<Instant>,
    /// Handlers that run.
    pub(super) running: usize,
    /// Copies on their way to a delay topic or the DLQ, those that wait to be tried again included.
    pub(super) publishing: usize,
    /// Copies that could not be handed over or were not acknowledged: until they are, nothing is handed out.
    pub(super) publish_failures: usize,
    /// An outcome of a replayed record was refused by the journal, and not taken since.
    pub(super) journal_refuses: bool,
    pub(super) draining: bool,
    pub(super) closing: Closing,
    /// The owner before us died.
    pub(super) after_death: bool,
    /// How many of the records to come it may have had in hand.
    pub(super) suspects: u32,
}

impl Partition {
    pub(super) fn new(at: TopicPartition, ticket: Ticket, most: usize) -> Self {
        Self {
            at,
            marks: Marks::Opening(ticket),
            lanes: Lanes::default(),
            ready: VecDeque::new(),
            parked: Parked::default(),
            taken: Taken::default(),
            overlay: Overlay::default(),
            full: VecDeque::new(),
            most,
            pending: Batch::default(),
            gathering_since: None,
            append: None,
            look_up_again_at: None,
            running: 0,
            publishing: 0,
            publish_failures: 0,
            journal_refuses: false,
            draining: false,
            closing: Closing::NotYet,
            after_death: false,
            suspects: 0,
        }
    }

    /// How many records the owner before us had in hand when it died, as far as its changelog knows.
    pub(super) fn suspect(&mut self, suspects: u32, cut_off: &CutOff, now: Instant) {
        let partition = &self.at;
        if suspects > 0 && cut_off.casts_doubt(now) {
            info!(%partition, "the owner before this one did not say that it let go, but this process was cut off as well: nothing is suspect");
        } else if suspects > 0 {
            info!(%partition, suspects, "the owner before this one died with records in hand: they run with care");
            self.suspects = self.suspects.max(suspects);
            self.after_death = true;
        }
    }

    /// Whether jobs may be handed out.
    pub(super) fn goes_on(&self) -> bool {
        self.is_healthy() && !self.draining
    }

    /// Whether nothing holds it up.
    pub(super) fn is_healthy(&self) -> bool {
        self.marks == Marks::Open
            && self.publish_failures == 0
            && self.look_up_again_at.is_none()
            && !self.append_failed()
    }

    /// What held the partition up is over, if nothing else does.
    pub(super) fn trouble_over(&self, slot: Slot, desk: &mut Desk) {
        if self.is_healthy() && !self.journal_refuses {
            desk.trouble_over(slot);
        }
    }

    pub(super) fn append_failed(&self) -> bool {
        self.append.as_ref().is_some_and(|append| append.refused == Refused::Before)
    }

    /// Asks the store again, when it is time to.
    pub(super) fn may_look_up_again(&mut self, desk: &mut Desk) {
        match self.look_up_again_at {
            Some(at) if at > desk.now => desk.wake_at(at),
            Some(_) => self.look_up_again_at = None,
            None => {}
        }
    }

    /// Notes a mark.
    pub(super) fn mark(&mut self, entry: MarkEntry, known: Mark) {
        self.overlay.lay(&entry, known);
        if self.pending.entries.len() >= self.most {
            self.full.push_back(std::mem::take(&mut self.pending));
        }
        self.pending.entries.push(entry);
    }

    /// The acknowledgement of all marks so far settles this record, or makes the outcome true whose own does.
    pub(super) fn settle_with_batch(&mut self, share: (Offset, usize), owed: Option<Owed>) {
        match owed {
            None => self.pending.settles.push(share),
            Some(owed) => self.pending.owed.push(owed),
        }
    }

    /// Whether a mark of `key` is on its way: what is concluded from it must not be settled before it is acknowledged.
    pub(super) fn settles_with_batch(&self, key: &IdempotencyKey) -> bool {
        self.overlay.get(key).is_some()
    }

    /// What is to be appended now: the batch that was refused, when its time has come, or the next one, when none is on its way.
    pub(super) fn next_append(&mut self, desk: &mut Desk) -> Option<(Batch, Refused)> {
        match &self.append {
            None => self.next_batch(desk).map(|batch| (batch, Refused::No)),
            Some(Append { again_at: None, .. }) => None,
            Some(Append { again_at: Some(at), .. }) if *at > desk.now => {
                desk.wake_at(*at);
                None
            }
            Some(_) => self.append.take().map(|append| (append.batch, Refused::Before)),
        }
    }

    fn next_batch(&mut self, desk: &mut Desk) -> Option<Batch> {
        if !self.full.is_empty() {
            return self.full.pop_front();
        }
        if self.pending.is_empty() || self.gathers(desk) {
            return None;
        }
        self.gathering_since = None;
        Some(std::mem::take(&mut self.pending))
    }

    /// Whether a few marks wait a moment for more: a write costs the store about as much as a hundred marks. Only the settling
    /// of their own records waits for them; lanes go on by the overlay.
    fn gathers(&mut self, desk: &mut Desk) -> bool {
        if self.draining || self.pending.entries.is_empty() || self.pending.entries.len() >= FULL_BATCH {
            return false;
        }
        let until = *self.gathering_since.get_or_insert(desk.now) + GATHER;
        if until > desk.now {
            desk.wake_at(until);
        }
        until > desk.now
    }

    /// Whether all that it could go on with is parked, or follows what is.
    pub(super) fn is_parked(&self) -> bool {
        !self.parked.is_empty() && self.ready.is_empty() && self.running == 0 && self.publishing == 0
    }

    /// Whether so much, or for so long, is not acknowledged that nothing more may be run: should this process end, or lose the
    /// partition, all of that runs again.
    pub(super) fn runs_ahead(&self, now: Instant) -> bool {
        let on_their_way = self.append.as_ref().map_or(0, |append| append.batch.entries.len());
        let full: usize = self.full.iter().map(|batch| batch.entries.len()).sum();
        self.pending.entries.len() + full + on_their_way > AHEAD || self.late_at().is_some_and(|at| at <= now)
    }

    /// From when on what is on its way is for too long.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.append.as_ref().map(|append| append.since + LATE)
    }

    /// What is known of its jobs and is not acknowledged. That a job is about to be run is not: it is not, here.
    pub(super) fn unacknowledged(&self) -> Vec<MarkEntry> {
        let on_their_way = self.append.iter().flat_map(|append| &append.batch.entries);
        let is_started = |entry: &MarkEntry| {
            entry.mark.done.is_none() && entry.mark.step.is_some_and(|step| step.phase == Phase::Started)
        };
        let full = self.full.iter().flat_map(|batch| &batch.entries);
        on_their_way
            .chain(full)
            .chain(&self.pending.entries)
            .filter(|entry| !is_started(entry))
            .copied()
            .collect()
    }

    /// Its copy of the marks is gone, or was never there.
    pub(super) fn open_again(&mut self, desk: &mut Desk) {
        if self.marks == Marks::Open {
            self.marks = Marks::OpenAgainAt(desk.now);
            desk.again();
        }
    }

    pub(super) fn has_nothing_to_do(&self) -> bool {
        let all_is_written = self.full.is_empty() && self.pending.is_empty() && self.append.is_none();
        self.running == 0 && self.publishing == 0 && all_is_written
    }

    /// Whether it may be another's.
    pub(super) fn is_idle(&self) -> bool {
        self.has_nothing_to_do() && self.closing == Closing::Known
    }
}
