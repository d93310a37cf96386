//! What operators are told of replayed jobs that end in a delay topic.

use tidegate_domain::inbox::{Answer, ItemId, Outcome};
use tidegate_domain::{Round, UnixMillis};

use super::{DelaySettings, DelayStage, Then, job_header};
use crate::journal::{ErrorEntry, OutcomeEntry};
use crate::record::Record;
use crate::reports::Journal;
use crate::stage::Desk;

impl DelayStage {
    pub(super) fn hear_journal(&mut self, desk: &mut Desk) {
        self.reports.turn(desk);
        for (slot, journal) in self.reports.changes() {
            let Some(partition) = self.partitions.get_mut(&slot) else { continue };
            partition.journal_refuses = journal == Journal::Refuses;
            partition.trouble_over(slot, desk);
        }
    }
}

impl DelaySettings {
    /// What operators are told of a replayed job that ended here: else they would wait for its outcome.
    pub(super) fn outcome(&self, record: &Record, then: &Then, at: UnixMillis) -> Option<OutcomeEntry> {
        let Then::Dead(dead) = then else { return None };
        let header = job_header(record).ok().filter(|header| header.round > Round(0))?;
        let outcome = Outcome { round: header.round, answer: Answer::FailedAgain };
        let entry = OutcomeEntry::new(ItemId::of_job(&header), outcome, at, self.names.retry_group());
        Some(OutcomeEntry { error: Some(ErrorEntry::of(&dead.failure)), ..entry })
    }
}
