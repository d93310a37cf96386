//! Restoring a partition from its changelog: marks come in the log's order, by the million, and are joined in.
//!
//! Few are written like any others. Many are gathered to *runs*: a second thread sorts a run, joins equal keys, writes a file and lets
//! the database take it over, while the next run is gathered. The database joins what the files say of one key, in any order.

use std::sync::Arc;

use tidegate_domain::{CommitPosition, UnixMillis};
use tidegate_pipeline::changelog::{LastRecord, Opener};
use tidegate_pipeline::ports::{MarkEntry, MarkStoreError};

use crate::entry::{Row, Stored};
use crate::runs::{Run, RunWriter};
use crate::store::Refill;

/// Below this, a file is not worth its price.
const FEW: usize = 50_000;
const BATCH: usize = 5_000;

/// A partition's copy that is being restored. Takes up to 100 MB of memory, and keeps the store's directory in use.
///
/// Dropped without [`finish`](Self::finish), it leaves what was there: the old position, and some marks more; or, from scratch, no
/// position, which means no copy. Dropping it waits until a file that is being written is written.
#[must_use = "what is not finished was not restored"]
pub struct Restoring {
    refill: Arc<Refill>,
    run: Run,
    writer: Option<RunWriter>,
    count: u64,
}

impl Restoring {
    pub(crate) fn new(refill: Refill) -> Self {
        Self { refill: Arc::new(refill), run: Run::new(), writer: None, count: 0 }
    }

    /// Joins the marks of one record of the changelog in. Blocks while as many as fit in memory wait for the disk.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); an error may come some pushes later than its cause.
    pub fn push(&mut self, entries: &[MarkEntry], append_time: UnixMillis) -> Result<(), MarkStoreError> {
        let at = self.refill.note(entries, append_time);
        for &MarkEntry { key, mark } in entries {
            self.run.push(Row { key, stored: Stored { mark, at } });
            if self.run.is_full() {
                self.write_run()?;
            }
        }
        Ok(())
    }

    fn write_run(&mut self) -> Result<(), MarkStoreError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(RunWriter::start(&self.refill)?),
        };
        self.run = writer.write(std::mem::replace(&mut self.run, Run::new()))?;
        Ok(())
    }

    /// Takes the copy for complete up to `position`, where `opener` had opened the partition last and `last` is the last record, and gives the number of marks that were stored: expired ones are not, and
    /// several of one key may count as one.
    ///
    /// # Errors
    /// [`MarkStoreError::NotOpen`]: the partition was closed, opened anew or restored by another meanwhile.
    /// [`MarkStoreError::Write`]: the disk is full, or fails. What is found then is as if this was dropped.
    pub fn finish(
        mut self,
        position: CommitPosition,
        opener: Option<Opener>,
        last: Option<LastRecord>,
    ) -> Result<u64, MarkStoreError> {
        if self.writer.is_none() && self.run.len < FEW {
            self.write_few()?;
        } else if self.run.len > 0 {
            self.write_run()?;
        }
        if let Some(writer) = self.writer.take() {
            self.count += writer.finish()?;
        }
        self.refill.conclude(position, opener, last)?;
        Ok(self.count)
    }

    fn write_few(&mut self) -> Result<(), MarkStoreError> {
        let refill = &self.refill;
        let rows: Vec<Row> = self.run.rows().filter(|row| !refill.is_over(row.stored.at)).copied().collect();
        for rows in rows.chunks(BATCH) {
            refill.join(rows)?;
        }
        self.count += rows.len() as u64;
        Ok(())
    }
}

impl std::fmt::Debug for Restoring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Restoring").finish_non_exhaustive()
    }
}
