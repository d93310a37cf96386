//! Outcomes of replayed records on their way to the operators' journal, and the records that are settled when they are there.
//!
//! A record whose round is above 0 is settled only when its outcome is acknowledged. The outcome is published after all that
//! makes it true: a crash in between delivers the record again, and the verdict over it gives the outcome again. While the
//! journal can't be written nothing with a round settles, and everything else goes on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Offset, Partition, Topic};
use tokio::time::Instant;

use crate::events;
use crate::inbox::{Inbox, Wake};
use crate::journal::{Entry, OutcomeEntry};
use crate::keyed::{Key, Keyed};
use crate::ports::{Delivery, PublishError, RETRY_PAUSE, RecordPublisher, SILENCE};
use crate::record::OutboundRecord;
use crate::stage::{Desk, Slot};

/// What a record holds of its partition's window.
type Share = (Offset, usize);

#[derive(Debug)]
struct Report {
    slot: Slot,
    /// What its acknowledgement settles; nothing, where the record stays in hand.
    settles: Option<Share>,
    entry: OutcomeEntry,
    failed_before: bool,
}

/// What a partition waits for.
#[derive(Clone, Copy, Debug)]
struct Standing {
    pending: usize,
    /// Those of them that settle a record.
    settling: usize,
    refused: usize,
    /// When something was last answered, or handed over while nothing was on its way.
    heard: Instant,
    /// Nothing was answered for long, and that is told.
    silent: bool,
}

/// Outcomes that are not acknowledged.
pub(crate) struct Reports {
    publisher: Arc<dyn RecordPublisher>,
    journal: Topic,
    reports: Keyed<Report>,
    standings: BTreeMap<Slot, Standing>,
    timers: BinaryHeap<Reverse<(Instant, Key)>>,
    deliveries: Arc<Inbox<Delivery>>,
    acknowledged: Vec<Delivery>,
    /// Partitions whose first outcome was refused, or whose last refused one was acknowledged.
    changes: Vec<(Slot, Journal)>,
}

/// Whether the journal takes the outcomes of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    Refuses,
    Takes,
}

impl Reports {
    /// Publishes to the journal, and wakes the shard with what comes of it.
    pub(crate) fn new(publisher: Arc<dyn RecordPublisher>, journal: Topic, wake: &Wake) -> Self {
        Self {
            publisher,
            journal,
            reports: Keyed::default(),
            standings: BTreeMap::new(),
            timers: BinaryHeap::new(),
            deliveries: Inbox::new(wake.clone()),
            acknowledged: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Publishes an outcome until it is acknowledged; that settles the record.
    pub(crate) fn report(
        &mut self,
        slot: Slot,
        settles: Option<Share>,
        entry: OutcomeEntry,
        desk: &mut Desk,
    ) {
        let new = Standing { pending: 0, settling: 0, refused: 0, heard: desk.now, silent: false };
        let standing = self.standings.entry(slot).or_insert(new);
        standing.pending += 1;
        standing.settling += usize::from(settles.is_some());
        let key = self.reports.insert(Report { slot, settles, entry, failed_before: false });
        self.publish(key, desk);
    }

    /// Goes on with what was answered and what is to be tried again; true when anything was.
    pub(crate) fn turn(&mut self, desk: &mut Desk) -> bool {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        let mut went_on = !acknowledged.is_empty();
        for (ticket, result) in acknowledged.drain(..) {
            let key = Key::of(ticket);
            match (self.reports.get(key).is_some(), result) {
                (false, _) => events::fenced(),
                (true, Ok(_)) => self.acknowledged(key, desk),
                (true, Err(error)) => self.refused(key, error, desk),
            }
        }
        self.acknowledged = acknowledged;
        while let Some(&Reverse((at, key))) = self.timers.peek() {
            if at > desk.now {
                desk.wake_at(at);
                break;
            }
            self.timers.pop();
            went_on = true;
            self.publish(key, desk);
        }
        self.tell_silence(desk);
        went_on
    }

    /// A publisher may go on trying for ever without a word.
    fn tell_silence(&mut self, desk: &mut Desk) {
        for (&slot, standing) in &mut self.standings {
            if standing.silent || standing.refused > 0 {
                continue;
            }
            let at = standing.heard + SILENCE;
            if at > desk.now {
                desk.wake_at(at);
                continue;
            }
            standing.silent = true;
            self.changes.push((slot, Journal::Refuses));
            let reason = format!(
                "outcomes of replays can't be written to `{}`: none was acknowledged for {SILENCE:?}",
                self.journal
            );
            desk.trouble(slot, reason);
        }
    }

    /// How the journal stands to partitions, where that changed.
    pub(crate) fn changes(&mut self) -> Vec<(Slot, Journal)> {
        std::mem::take(&mut self.changes)
    }

    /// Whether no outcome of the partition that settles a record is on its way. No one waits for the others when the partition is
    /// handed over: their jobs go with it, and its next owner tells how they end.
    pub(crate) fn is_idle(&self, slot: Slot) -> bool {
        self.standings.get(&slot).is_none_or(|standing| standing.settling == 0)
    }

    /// Forgets the partition: its records are delivered again, and their outcomes told by its next owner.
    pub(crate) fn release(&mut self, slot: Slot) {
        if self.standings.remove(&slot).is_some() {
            self.reports.retain(|report| report.slot != slot);
        }
    }

    fn publish(&mut self, key: Key, desk: &mut Desk) {
        let Some(report) = self.reports.get(key) else { return };
        let (id, value) = (report.entry.id.to_string(), Entry::Outcome(report.entry.clone()).write());
        let record = OutboundRecord {
            topic: &self.journal,
            partition: Some(Partition(0)),
            key: Some(id.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        if let Err(error) = self.publisher.publish(&record, key.ticket(), &self.deliveries) {
            self.refused(key, error, desk);
        }
    }

    fn acknowledged(&mut self, key: Key, desk: &mut Desk) {
        let Some(Report { slot, settles, failed_before, .. }) = self.reports.remove(key) else { return };
        if let Some((offset, bytes)) = settles {
            desk.settle(slot, offset, bytes);
        }
        let Some(standing) = self.standings.get_mut(&slot) else { return };
        standing.pending -= 1;
        standing.settling -= usize::from(settles.is_some());
        standing.heard = desk.now;
        standing.refused -= usize::from(failed_before);
        let was_silent = std::mem::take(&mut standing.silent);
        if (failed_before || was_silent) && standing.refused == 0 {
            self.changes.push((slot, Journal::Takes));
        }
        if standing.pending == 0 {
            self.standings.remove(&slot);
        }
    }

    fn refused(&mut self, key: Key, error: PublishError, desk: &mut Desk) {
        let Some(report) = self.reports.get_mut(key) else { return };
        let pause = match error {
            PublishError::Full => FULL_PAUSE,
            // What failed stands in the dead letter too.
            PublishError::TooLarge(_) if report.entry.error.take().is_some() => Duration::ZERO,
            error => {
                events::publish_error();
                let reason = format!("outcomes of replays can't be written to `{}`: {error}", self.journal);
                desk.trouble(report.slot, reason);
                if let Some(standing) = self.standings.get_mut(&report.slot)
                    && !std::mem::replace(&mut report.failed_before, true)
                {
                    standing.refused += 1;
                    (standing.heard, standing.silent) = (desk.now, false);
                    self.changes.push((report.slot, Journal::Refuses));
                }
                RETRY_PAUSE
            }
        };
        desk.wake_after(pause);
        self.timers.push(Reverse((desk.now + pause, key)));
    }
}

/// How long an outcome waits when the producer's queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);
