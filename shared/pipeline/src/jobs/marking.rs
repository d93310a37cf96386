//! What goes to the store of marks: batches of them, that a partition is let go of, and that it is opened again.

use super::outcome::Owed;
use super::partition::{Append, Batch, Closing, Marks};
use super::stage::JobStage;
use crate::reports::Reports;
use crate::stage::{Desk, Slot};

impl JobStage {
    pub(super) fn write_marks(&mut self, desk: &mut Desk) {
        self.tell_owners(desk);
        let slots: Vec<Slot> = self.partitions.keys().copied().collect();
        for slot in slots {
            self.reopen(slot, desk);
            self.close_drained(slot);
            let Some(partition) = self.partitions.get_mut(&slot) else { continue };
            let Some((batch, refused)) = partition.next_append(desk) else { continue };
            if batch.entries.is_empty() {
                settle_all(slot, batch, &mut self.reports, desk);
                continue;
            }
            let ticket = self.jobs.free_ticket();
            self.ports.marks.append(&partition.at, &batch.entries, ticket, &self.marks_ready);
            partition.append = Some(Append { ticket, batch, since: desk.now, again_at: None, refused });
        }
    }

    /// Nothing of the partition is left to do: that it is let go of must be known before it is another's.
    fn close_drained(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        if partition.draining && partition.closing == Closing::NotYet && partition.has_nothing_to_do() {
            let ticket = self.jobs.free_ticket();
            partition.closing = Closing::OnItsWay(ticket);
            self.ports.marks.close(&partition.at, ticket, &self.marks_ready);
        }
    }

    fn reopen(&mut self, slot: Slot, desk: &mut Desk) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        if let Marks::OpenAgainAt(at) = partition.marks {
            if at > desk.now {
                desk.wake_at(at);
            } else {
                let ticket = self.jobs.free_ticket();
                partition.marks = Marks::Opening(ticket);
                self.ports.marks.open(&partition.at, ticket, &self.marks_ready);
            }
        }
    }
}

/// The batch is durable: what it settles is settled, and outcomes that it makes true are told.
pub(super) fn settle_all(slot: Slot, batch: Batch, reports: &mut Reports, desk: &mut Desk) {
    for (offset, bytes) in batch.settles {
        desk.settle(slot, offset, bytes);
    }
    for Owed { share, entry } in batch.owed {
        reports.report(slot, Some(share), *entry, desk);
    }
}
