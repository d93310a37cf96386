//! Taking a partition over: its copy, `Opened`, and what the copy misses.

use tidegate_domain::CommitPosition;
use tracing::warn;

use super::{Asked, Task, What};
use crate::changelog::format;
use crate::changelog::ledger::{Asker, Ledger, Stage};
use crate::changelog::opener::Opener;
use crate::changelog::ports::{CatchUp, LastRecord, LocalCopy, Stretch};
use crate::keyed::Key;
use crate::ports::{Acknowledged, MarkStoreError, Readiness, Ticket};
use crate::record::TopicPartition;

impl Task {
    pub(super) fn open(&mut self, partition: TopicPartition, asker: Asker) {
        let Some(topic) = self.settings.topics.get(&partition.topic) else {
            let error = format!("there is no changelog for {}", partition.topic);
            return asker.answer(Err(MarkStoreError::Read(error)));
        };
        let log = TopicPartition { topic: topic.clone(), partition: partition.partition };
        // From here on, that it was let go of before is no news.
        self.unclosed.remove(&partition);
        self.lives += 1;
        let life = self.lives;
        let ledger = match self.partitions.remove(&partition) {
            Some(before) => before.reopened(life, asker),
            None => Ledger::new(life, log, asker),
        };
        self.partitions.insert(partition.clone(), ledger);
        let ticket = self.ask(&partition, life, What::Copy);
        self.ports.table.open(&partition, ticket, &self.copies);
    }

    pub(super) fn copy_opened(&mut self, ticket: Ticket, answer: Result<LocalCopy, MarkStoreError>) {
        let Some(Asked { partition, life, .. }) = self.asked.remove(Key::of(ticket)) else { return };
        let Some(ledger) = self.ledger(&partition, life) else { return };
        let copy = match answer {
            Ok(copy) => copy,
            Err(error) => return ledger.break_off(&error),
        };
        ledger.copy = copy;
        match ledger.known.filter(|_| ledger.announced) {
            // The log was read to here before, by this process. An opening that failed before that begins anew: others may have
            // appended since the copy was written.
            Some(known) => {
                ledger.stage = Stage::RestoringAgain;
                self.catch_up(&partition, known);
            }
            None => self.announce(&partition, life),
        }
    }

    fn announce(&mut self, partition: &TopicPartition, life: u64) {
        let Some(ledger) = self.ledger(partition, life) else { return };
        ledger.stage = Stage::Announcing;
        self.bytes.clear();
        format::write_opened(self.settings.opener, self.settings.window, &mut self.bytes);
        let published = self.publish(partition, life, What::Opened);
        let Some(ledger) = self.ledger(partition, life) else { return };
        match published {
            Ok(()) => ledger.may_be_announced = true,
            Err((_, error)) => ledger.break_off(&error),
        }
    }

    pub(super) fn announced(&mut self, partition: &TopicPartition, life: u64, at: Acknowledged) {
        let Some(ledger) = self.ledger(partition, life) else { return };
        ledger.announced = true;
        ledger.stage = Stage::Restoring(at);
        // Also where the copy goes as far as that: whether it is one of this log is seen there only.
        self.catch_up(partition, CommitPosition(at.offset.0));
    }

    /// Everything below `Opened` is in the copy.
    fn restored(&mut self, partition: &TopicPartition, copy: LocalCopy) {
        let settings = &self.settings;
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        ledger.copy = copy;
        if let Stage::Restoring(at) = ledger.stage {
            let opener = Some(Opener::opened(copy.opener, settings.opener, settings.window));
            let position = CommitPosition(at.offset.0 + 1);
            self.bytes.clear();
            format::write_opened(settings.opener, settings.window, &mut self.bytes);
            let last = Some(LastRecord::of(at.offset, &self.bytes));
            let stretch = Stretch { entries: &[], append_time: at.append_time, position, opener, last };
            if let Err(error) = self.ports.table.apply(partition, &stretch) {
                return ledger.break_off(&error);
            }
            ledger.copy = LocalCopy { position: Some(position), opener, last };
        }
        ledger.stage = Stage::Open;
        let suspects = ledger.copy.opener.map_or(0, |opener| opener.suspects);
        if let Some(asker) = ledger.opening.take() {
            asker.answer(Ok(Readiness { suspects }));
        }
        self.go_on(partition);
    }

    pub(super) fn catch_up(&mut self, partition: &TopicPartition, until: CommitPosition) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        ledger.reading = true;
        let (log, copy, life) = (ledger.log.clone(), ledger.copy, ledger.life);
        let request = CatchUp { partition: partition.clone(), log, copy, until };
        let ticket = self.ask(partition, life, What::CatchUp);
        self.ports.reader.catch_up(request, ticket, &self.caught_up);
    }

    pub(super) fn caught_up(&mut self, ticket: Ticket, answer: Result<LocalCopy, MarkStoreError>) {
        let Some(Asked { partition, life, .. }) = self.asked.remove(Key::of(ticket)) else { return };
        let Some(ledger) = self.ledger(&partition, life) else { return };
        ledger.reading = false;
        match answer {
            Ok(copy) if ledger.stage == Stage::Open => {
                ledger.copy = copy;
                self.go_on(&partition);
            }
            Ok(copy) => self.restored(&partition, copy),
            Err(error) if ledger.stage != Stage::Open || matches!(error, MarkStoreError::NotOpen(_)) => {
                // Up to where it was known before, the log may not go any more: announced anew, it is read up to where it goes now.
                ledger.announced &= ledger.stage != Stage::RestoringAgain;
                ledger.break_off(&error);
            }
            // What waits is appended again, and what could not be read is tried again then.
            Err(error) => {
                warn!(%partition, %error, "the changelog can't be read now");
                ledger.answer_all(&error);
            }
        }
    }
}
