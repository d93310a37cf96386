//! Appending: what is acknowledged is applied in the log's order, others' marks between it first, and then answered.

use tidegate_domain::CommitPosition;
use tracing::{debug, info, warn};

use super::{Task, What};
use crate::changelog::format;
use crate::changelog::ledger::{Acked, Asker, Next, Stage};
use crate::changelog::ports::{LocalCopy, Stretch};
use crate::events;
use crate::ports::{Acknowledged, MarkEntry, MarkStoreError, Readiness};
use crate::record::TopicPartition;

impl Task {
    pub(super) fn append(&mut self, partition: TopicPartition, entries: Vec<MarkEntry>, asker: Asker) {
        let (life, floor) = match self.partitions.get_mut(&partition) {
            Some(ledger) if ledger.stage == Stage::Open => {
                ledger.on_their_way += 1;
                (ledger.life, ledger.applied())
            }
            Some(_) => return asker.answer(Err(MarkStoreError::NotOpen(partition))),
            // Not ours any more: the owner shall know it all the same.
            None => (0, CommitPosition(0)),
        };
        self.bytes.clear();
        format::write_marks(self.settings.opener, &entries, &mut self.bytes);
        if let Err((what, error)) = self.publish(&partition, life, What::Marks(floor, entries, asker)) {
            if let Some(ledger) = self.ledger(&partition, life) {
                ledger.on_their_way -= 1;
            }
            if let What::Marks(_, _, asker) = what {
                asker.answer(Err(error));
            }
        }
    }

    pub(super) fn marks_delivered(
        &mut self,
        (partition, life): (&TopicPartition, u64),
        answer: Result<(Acknowledged, CommitPosition, Vec<MarkEntry>), MarkStoreError>,
        asker: Asker,
    ) {
        // Also in one that was opened again since: answered is what is in its copy.
        let ours = self.partitions.get_mut(partition).filter(|ledger| ledger.appended_in(life));
        let Some(ledger) = ours else {
            debug!(%partition, known = answer.is_ok(), "marks of an owner that is deposed");
            return asker.answer(answer.map(|_| Readiness::default()));
        };
        ledger.on_their_way -= 1;
        match answer {
            Ok((at, floor, entries)) => {
                ledger.acked.push_back(Acked { at, floor, entries, asker });
                self.go_on(partition);
            }
            Err(error) => asker.answer(Err(error)),
        }
    }

    /// Applies what is acknowledged, in the log's order.
    pub(super) fn go_on(&mut self, partition: &TopicPartition) {
        while let Some(ledger) = self.partitions.get_mut(partition)
            && let Some(next) = ledger.next()
        {
            if let Next::ReadUpTo(until) = next {
                events::foreign_marks(partition);
                info!(%partition, "another process appended to the changelog: reading it before anything else is settled");
                return self.catch_up(partition, until);
            }
            let Some(acked) = ledger.acked.pop_front() else { return };
            match next {
                Next::Apply => self.apply(partition, acked),
                Next::Applied => acked.asker.answer(Ok(Readiness::default())),
                Next::ReadUpTo(_) | Next::WentBack => {
                    let error = MarkStoreError::NotOpen(partition.clone());
                    acked.asker.answer(Err(error));
                    self.went_back(partition);
                }
            }
        }
    }

    fn apply(&mut self, partition: &TopicPartition, acked: Acked) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        let position = CommitPosition(acked.at.offset.0 + 1);
        let opener = ledger.copy.opener;
        let stretch =
            Stretch { entries: &acked.entries, append_time: acked.at.append_time, position, opener };
        match self.ports.table.apply(partition, &stretch) {
            Ok(()) => {
                ledger.copy.position = Some(position);
                acked.asker.answer(Ok(Readiness::default()));
            }
            Err(error) => {
                acked.asker.answer(Err(error.clone()));
                match error {
                    MarkStoreError::NotOpen(_) => ledger.break_off(&error),
                    // It is appended again; what lies between is read then.
                    _ => ledger.answer_all(&error),
                }
            }
        }
    }

    /// The log is another one than the one that was read: it was made anew, or lost its end.
    pub(super) fn went_back(&mut self, partition: &TopicPartition) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        warn!(%partition, log = %ledger.log, "the changelog went back: the partition's marks are restored from what it holds now");
        ledger.announced = false;
        ledger.copy = LocalCopy::default();
        ledger.break_off(&MarkStoreError::NotOpen(partition.clone()));
        // So that look-ups say so, too.
        self.ports.table.close(partition);
    }
}
