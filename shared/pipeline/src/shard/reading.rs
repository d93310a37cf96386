//! Fetching: as much as there is room for, of each partition in turn.

use tracing::{error, warn};

use super::Shard;
use super::assignment::Assignment;
use crate::ports::{Fetched, SourceError};
use crate::stage::{Slot, Stage};

impl<S: Stage> Shard<S> {
    pub(super) fn fetch(&mut self) {
        let slots: Vec<Slot> = self.assignments.keys().copied().collect();
        for slot in slots {
            self.fetch_one(slot);
        }
    }

    /// How many records and bytes may be fetched now, where anything may.
    pub(super) fn room(&self, slot: Slot, assignment: &Assignment) -> Option<(usize, usize)> {
        let records = self.settings.window_records.saturating_sub(assignment.watermark.held());
        let bytes = self.settings.window_bytes.saturating_sub(assignment.window_bytes);
        let open =
            assignment.readable && !assignment.draining && records > 0 && bytes > 0 && self.stage.wants(slot);
        open.then(|| {
            (records.min(self.settings.fetch_records), bytes.min(self.stage.room_bytes(slot).max(1)))
        })
    }

    pub(super) fn fetch_one(&mut self, slot: Slot) {
        let Some((records, bytes)) = self.assignments.get(&slot).and_then(|a| self.room(slot, a)) else {
            return;
        };
        let Some(assignment) = self.assignments.get_mut(&slot) else { return };
        match assignment.source.fetch(records, bytes, &mut self.batch) {
            Ok(fetched) => {
                assignment.readable = fetched == Fetched::Some && !self.batch.is_empty();
                assignment.read_on(&self.batch, self.desk.now);
            }
            Err(error) => self.source_failed(slot, &error),
        }
        self.deliver(slot);
    }

    /// Hands the fetched batch to the stage.
    pub(super) fn deliver(&mut self, slot: Slot) {
        let Some(assignment) = self.assignments.get_mut(&slot) else { return };
        let Assignment { partition, watermark, window_bytes, out_of_range, moved, .. } = assignment;
        *moved |= !self.batch.is_empty();
        let mut began_anew = false;
        self.batch.retain(|record| match watermark.deliver(record.offset()) {
            Ok(()) => {
                *window_bytes += record.size();
                true
            }
            Err(error) => {
                // The client hands out each offset once; a record that comes again is covered by its first delivery, unless
                // the topic was made anew.
                warn!(%partition, %error, "a record was delivered again within one assignment");
                began_anew |= *out_of_range;
                false
            }
        });
        if began_anew {
            self.observer.fatal(&format!(
                "the offsets of {partition} began anew: its records can't be told from those before"
            ));
        }
        if !self.batch.is_empty() {
            self.stage.accept(slot, &mut self.batch, &mut self.desk);
            self.batch.clear();
        }
    }

    pub(super) fn source_failed(&mut self, slot: Slot, error: &SourceError) {
        let Some(assignment) = self.assignments.get_mut(&slot) else { return };
        // The next wake or tick asks again.
        assignment.readable = false;
        let partition = &assignment.partition;
        let trouble = error.to_string();
        assignment.failed_at = Some(self.desk.now);
        let known = assignment.source_trouble.as_ref() == Some(&trouble);
        match error {
            SourceError::Unavailable(_) if known => {}
            SourceError::Unavailable(_) => warn!(%partition, %error, "reading is held up"),
            SourceError::OutOfRange(_) => {
                assignment.out_of_range = true;
                error!(%partition, %error, "records of this partition may be gone unread");
                crate::events::offset_out_of_range(partition);
            }
            SourceError::Fatal(reason) => self.observer.fatal(reason),
        }
        assignment.source_trouble = Some(trouble);
    }
}
