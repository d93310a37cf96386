//! What operators are told of the dead letters that they send to ingest again.

use tidegate_domain::Failure;
use tidegate_domain::inbox::{Answer, Outcome, REPLAY_HEADER};
use tracing::warn;

use super::ForwardStage;
use super::source::Source;
use crate::dead_letter::Returned;
use crate::journal::{ErrorEntry, OutcomeEntry};
use crate::record::Record;
use crate::reports::Journal;
use crate::stage::{Desk, Slot};

impl<R> ForwardStage<R> {
    /// All that the record becomes is acknowledged: it is settled, or what operators wait for is told, which settles it.
    pub(super) fn settle(
        &mut self,
        slot: Slot,
        record: &Record,
        returned: Option<&Returned>,
        (detail, dead): (Option<String>, Option<&Failure>),
        desk: &mut Desk,
    ) {
        let share = (record.offset(), record.size());
        let Some((item, round)) = returned.and_then(|r| Some((r.item.clone(), r.round?))) else {
            return desk.settle(slot, share.0, share.1);
        };
        let answer = if dead.is_some() { Answer::FailedAgain } else { Answer::Resolved };
        let outcome = Outcome { round, answer };
        let entry = OutcomeEntry {
            detail,
            error: dead.map(ErrorEntry::of),
            ..OutcomeEntry::new(item, outcome, desk.wall, self.names.ingest_group())
        };
        self.reports.report(slot, Some(share), entry, desk);
    }

    pub(super) fn hear_journal(&mut self, desk: &mut Desk) {
        self.reports.turn(desk);
        for (slot, journal) in self.reports.changes() {
            let Some(source) = self.sources.get_mut(&slot) else { continue };
            source.journal_refuses = journal == Journal::Refuses;
            source.trouble_over(slot, desk);
        }
    }
}

impl Source {
    /// Where the record came from, if an operator sent it again.
    pub(super) fn returned(&self, record: &Record) -> Option<Box<Returned>> {
        let returned = self.is_reingest.then(|| Returned::read(record)).flatten()?;
        if returned.round.is_none() && record.header(REPLAY_HEADER).is_some() {
            let (partition, offset) = (&self.at, record.offset());
            warn!(%partition, %offset, "its replay header can't be read, so no outcome of it can be told");
        }
        Some(Box::new(returned))
    }
}
