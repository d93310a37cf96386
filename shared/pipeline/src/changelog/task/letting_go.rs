//! What happens without an append: looking where an idle log ends, and saying that a partition was let go of.

use tidegate_domain::CommitPosition;
use tracing::debug;

use super::{Asked, Task, What};
use crate::changelog::format;
use crate::changelog::ledger::Asker;
use crate::events;
use crate::keyed::Key;
use crate::ports::{MarkStoreError, Readiness, Ticket};
use crate::record::TopicPartition;

impl Task {
    pub(super) fn check_ends(&mut self) {
        let idle: Vec<_> = self
            .partitions
            .iter_mut()
            .filter(|(_, ledger)| ledger.is_idle())
            .map(|(partition, ledger)| {
                ledger.checking = true;
                (partition.clone(), ledger.life, ledger.log.clone(), ledger.applied())
            })
            .collect();
        for (partition, life, log, applied) in idle {
            let ticket = self.ask(&partition, life, What::End(applied));
            self.ports.reader.end(&log, ticket, &self.ends);
        }
    }

    pub(super) fn end_known(&mut self, ticket: Ticket, answer: Result<CommitPosition, MarkStoreError>) {
        let Some(Asked { partition, life, what: What::End(applied) }) = self.asked.remove(Key::of(ticket))
        else {
            return;
        };
        let Some(ledger) = self.ledger(&partition, life) else { return };
        ledger.checking = false;
        match answer {
            // Appends that are on their way show by themselves what lies before them.
            Ok(_) if !ledger.is_idle() => {}
            Ok(end) if end > ledger.applied() => {
                events::foreign_marks(&partition);
                self.catch_up(&partition, end);
            }
            // What was appended since it was asked for may lie beyond it.
            Ok(end) if end < applied => self.went_back(&partition),
            Ok(_) => {}
            Err(error) => debug!(%partition, %error, "the end of the changelog is not known now"),
        }
    }

    pub(super) fn close(&mut self, partition: &TopicPartition, asker: Asker) {
        let ledger = self.partitions.remove(partition);
        self.ports.table.close(partition);
        let Some(mut ledger) = ledger else { return asker.answer(Ok(Readiness::default())) };
        ledger.break_off(&MarkStoreError::NotOpen(partition.clone()));
        // Also where it is not known to be there: whoever finds it would take this process for dead.
        if !ledger.may_be_announced {
            return asker.answer(Ok(Readiness::default()));
        }
        self.say_closed(partition, Some(asker));
    }

    fn say_closed(&mut self, partition: &TopicPartition, asker: Option<Asker>) {
        self.bytes.clear();
        format::write_closed(self.settings.opener, &mut self.bytes);
        if let Err((What::Closed(asker), error)) = self.publish(partition, 0, What::Closed(asker)) {
            self.closed(partition.clone(), Err(error), asker);
        }
    }

    /// Whoever asked does not wait for brokers that are away. But once they are back, this process must not pass for dead.
    pub(super) fn closed(
        &mut self,
        partition: TopicPartition,
        answer: Result<Readiness, MarkStoreError>,
        asker: Option<Asker>,
    ) {
        if answer.is_err() && !self.partitions.contains_key(&partition) {
            self.unclosed.insert(partition);
        }
        if let Some(asker) = asker {
            asker.answer(answer);
        }
    }

    pub(super) fn close_again(&mut self) {
        for partition in std::mem::take(&mut self.unclosed) {
            self.say_closed(&partition, None);
        }
    }
}
