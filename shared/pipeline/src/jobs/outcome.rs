//! What operators are told of a record whose round is above 0, and when: its outcome, after all that makes it true is acknowledged,
//! and before the record is settled.

use tidegate_domain::inbox::{Answer, ItemId, Outcome};
use tidegate_domain::mark::Skip;
use tidegate_domain::{Failure, Offset, Round, UnixMillis};

use super::stage::{JobStage, share};
use crate::journal::{ErrorEntry, OutcomeEntry, ParkedEntry};
use crate::keyed::Key;
use crate::reports::Journal;
use crate::stage::Desk;

/// An outcome that is not true before its batch of marks is acknowledged.
#[derive(Debug)]
pub(super) struct Owed {
    /// What its record holds of the window.
    pub(super) share: (Offset, usize),
    pub(super) entry: Box<OutcomeEntry>,
}

/// What is told of a record, besides which one it is.
#[derive(Debug)]
pub(super) struct Told<'a> {
    pub(super) answer: Answer,
    pub(super) error: Option<&'a Failure>,
    pub(super) detail: Option<&'static str>,
    pub(super) parked: Option<ParkedEntry>,
}

impl Told<'_> {
    /// This answer, and nothing more.
    pub(super) fn just(answer: Answer) -> Self {
        Self { answer, error: None, detail: None, parked: None }
    }

    /// What a skip says; none: its key is done with another payload.
    pub(super) fn skipped(skip: Option<Skip>) -> Self {
        let just = Self::just;
        match skip {
            Some(Skip::Resolved) => just(Answer::Resolved),
            Some(Skip::AlreadyDone) => just(Answer::AlreadyDone),
            Some(Skip::Superseded) => just(Answer::Superseded),
            Some(Skip::Coalesced) => just(Answer::Coalesced),
            Some(Skip::AlreadyDead) => {
                let detail = Some("a copy of this round, or of a later one, is in the dead-letter topic");
                Self { detail, ..just(Answer::FailedAgain) }
            }
            None => {
                let detail = Some("its key is done with another payload, and its class skips such jobs");
                Self { detail, ..just(Answer::AlreadyDone) }
            }
        }
    }
}

impl JobStage {
    /// The outcome of a job, where operators wait for one: where its record has a round. What this gives settles the record.
    pub(super) fn owed(&self, key: Key, told: &Told<'_>, at: UnixMillis) -> Option<Owed> {
        let in_hand = &self.jobs[key];
        if in_hand.job.round == Round(0) {
            return None;
        }
        // It was read before, so it is there; a record without one has no round.
        let header = in_hand.job.header().ok()?;
        let outcome = Outcome { round: in_hand.round, answer: told.answer };
        let worker = self.settings.names.worker_group(header.tier);
        let entry = OutcomeEntry {
            detail: told.detail.map(str::to_owned),
            error: told.error.map(ErrorEntry::of),
            parked: told.parked.clone(),
            ..OutcomeEntry::new(ItemId::of_job(&header), outcome, at, worker)
        };
        Some(Owed { share: share(&in_hand.job), entry: Box::new(entry) })
    }

    /// Tells of a job that stays in hand.
    pub(super) fn tell_meanwhile(&mut self, key: Key, told: &Told<'_>, desk: &mut Desk) {
        if let Some(owed) = self.owed(key, told, desk.wall) {
            self.reports.report(self.jobs[key].slot, None, *owed.entry, desk);
        }
    }

    pub(super) fn hear_journal(&mut self, desk: &mut Desk) -> bool {
        let heard = self.reports.turn(desk);
        for (slot, journal) in self.reports.changes() {
            let Some(partition) = self.partitions.get_mut(&slot) else { continue };
            partition.journal_refuses = journal == Journal::Refuses;
            partition.trouble_over(slot, desk);
        }
        heard
    }
}
