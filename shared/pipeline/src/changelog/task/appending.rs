//! Appending: what is acknowledged is applied in the log's order, others' marks between it first, and then answered.

use tidegate_domain::CommitPosition;
use tracing::{debug, info, warn};

use super::{Task, What};
use crate::changelog::format;
use crate::changelog::ledger::{Acked, Asker, Next, Sent, Stage};
use crate::changelog::ports::{LastRecord, LocalCopy, Stretch, fingerprint};
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
        let sent = Sent { floor, fingerprint: fingerprint(&self.bytes), entries, asker };
        if let Err((what, error)) = self.publish(&partition, life, What::Marks(sent)) {
            if let Some(ledger) = self.ledger(&partition, life) {
                ledger.on_their_way -= 1;
            }
            if let What::Marks(sent) = what {
                sent.asker.answer(Err(error));
            }
        }
    }

    pub(super) fn marks_delivered(
        &mut self,
        (partition, life): (&TopicPartition, u64),
        answer: Result<Acknowledged, MarkStoreError>,
        sent: Sent,
    ) {
        // Also in one that was opened again since: answered is what is in its copy.
        let ours = self.partitions.get_mut(partition).filter(|ledger| ledger.appended_in(life));
        let Some(ledger) = ours else {
            debug!(%partition, known = answer.is_ok(), "marks of an owner that is deposed");
            return sent.asker.answer(answer.map(|_| Readiness::default()));
        };
        ledger.on_their_way -= 1;
        match answer {
            Ok(at) => {
                ledger.acked.push_back(Acked { at, sent });
                self.go_on(partition);
            }
            Err(error) => sent.asker.answer(Err(error)),
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
                Next::Applied => self.apply_again(partition, acked),
                Next::ReadUpTo(_) | Next::WentBack => {
                    let error = MarkStoreError::NotOpen(partition.clone());
                    acked.sent.asker.answer(Err(error));
                    self.went_back(partition);
                }
            }
        }
    }

    fn apply(&mut self, partition: &TopicPartition, acked: Acked) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        let Acked { at: Acknowledged { offset, append_time }, sent } = acked;
        let Sent { fingerprint, entries, asker, .. } = sent;
        let position = CommitPosition(offset.0 + 1);
        let (opener, last) = (ledger.copy.opener, Some(LastRecord { offset, fingerprint }));
        let stretch = Stretch { entries: &entries, append_time, position, opener, last };
        match self.ports.table.apply(partition, &stretch) {
            Ok(()) => {
                ledger.copy = LocalCopy { position: Some(position), opener, last };
                asker.answer(Ok(Readiness::default()));
            }
            Err(error) => {
                asker.answer(Err(error.clone()));
                match error {
                    MarkStoreError::NotOpen(_) => ledger.break_off(&error),
                    // It is appended again; what lies between is read then.
                    _ => ledger.answer_all(&error),
                }
            }
        }
    }

    /// It was read with others' entries, as far as the offsets say. Where the log lost its end meanwhile, what was read in its place was
    /// another's: joined in once more, it is in the copy for certain.
    fn apply_again(&mut self, partition: &TopicPartition, acked: Acked) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        let Acked { at: Acknowledged { append_time, .. }, sent: Sent { entries, asker, .. } } = acked;
        let LocalCopy { opener, last, .. } = ledger.copy;
        let stretch = Stretch { entries: &entries, append_time, position: ledger.applied(), opener, last };
        let applied = self.ports.table.apply(partition, &stretch);
        if let Err(error @ MarkStoreError::NotOpen(_)) = &applied {
            ledger.break_off(error);
        }
        asker.answer(applied.map(|()| Readiness::default()));
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
