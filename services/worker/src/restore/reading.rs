//! One reading of a changelog into a copy.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, counter, gauge};
use tidegate_domain::{CommitPosition, UnixMillis};
use tidegate_pipeline::changelog::format::{self, Entry, FormatError};
use tidegate_pipeline::changelog::{CatchUp, LastRecord, LocalCopy, Opener};
use tidegate_pipeline::ports::MarkStoreError;
use tidegate_pipeline::{Record, events};
use tidegate_state::Restoring;
use tracing::{error, info};

/// How often a restore that takes long says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Why a reading ended before its end.
#[derive(Debug)]
pub(super) enum Broken {
    /// The changelog holds another record than the last one that the copy has: the copy is of another past.
    Contradicted,
    /// It can't be read or written now.
    Failed(MarkStoreError),
}

impl From<MarkStoreError> for Broken {
    fn from(error: MarkStoreError) -> Self {
        Self::Failed(error)
    }
}

/// One reading under way.
pub(super) struct Reading<'a> {
    request: &'a CatchUp,
    /// What the copy is when what was read so far is in it.
    reached: LocalCopy,
    /// The last record that the copy has, until it is found to be the changelog's.
    expected: Option<LastRecord>,
    restoring: Restoring,
    broken: Option<Broken>,
    position: CommitPosition,
    marks: u64,
    began: Instant,
    told: Instant,
    restored: Counter,
    left: Gauge,
}

impl<'a> Reading<'a> {
    /// Reads on from what the copy is, or from `first` where there is none.
    pub(super) fn new(
        request: &'a CatchUp,
        copy: LocalCopy,
        first: CommitPosition,
        restoring: Restoring,
    ) -> Self {
        let (topic, partition) = (request.log.topic.to_string(), request.log.partition.to_string());
        let now = Instant::now();
        let position = copy.position.unwrap_or(first);
        Self {
            request,
            reached: copy,
            expected: copy.last.filter(|last| last.offset.0 >= first.0),
            restoring,
            broken: None,
            position,
            marks: 0,
            began: now,
            told: now,
            restored: counter!(events::RESTORED_MARKS, "topic" => topic.clone()),
            left: gauge!(events::RESTORE_LEFT, "topic" => topic, "partition" => partition),
        }
    }

    /// Where the first record is that has to be read: the last one of the copy, which is compared.
    pub(super) fn from(&self) -> CommitPosition {
        self.expected.map_or(self.position, |last| CommitPosition(last.offset.0))
    }

    /// Takes the next records.
    pub(super) fn take(&mut self, records: &mut Vec<Record>) -> ControlFlow<()> {
        for record in records.drain(..) {
            if let Err(broken) = self.take_one(&record) {
                self.broken = Some(broken);
                return ControlFlow::Break(());
            }
        }
        let left = self.request.until.0 - self.position.0;
        self.left.set(left as f64);
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            let (marks, took) = (self.marks, self.began.elapsed());
            info!(partition = %self.request.partition, marks, records_left = left, ?took, "restoring marks from the changelog");
        }
        ControlFlow::Continue(())
    }

    fn take_one(&mut self, record: &Record) -> Result<(), Broken> {
        let value = record.value().unwrap_or_default();
        if let Some(expected) = self.expected.take()
            && LastRecord::of(record.offset(), value) != expected
        {
            return Err(Broken::Contradicted);
        }
        if record.offset().0 < self.position.0 {
            return Ok(());
        }
        match format::read(value) {
            Ok((_, Entry::Marks(entries))) => {
                self.marks += entries.len() as u64;
                self.restored.increment(entries.len() as u64);
                self.restoring.push(&entries, record.timestamp().unwrap_or(UnixMillis(0)))?;
            }
            Ok((id, Entry::Opened { window })) => {
                self.reached.opener = Some(Opener::opened(self.reached.opener, id, window));
            }
            Ok((id, Entry::Closed)) => self.reached.opener = Opener::closed(self.reached.opener, id),
            // It holds no mark of ours, so none is lost; that someone writes there needs a person.
            Err(error @ FormatError::Foreign) => {
                error!(log = %self.request.log, offset = %record.offset(), %error, "passed over");
            }
            Err(error) => {
                let (log, offset) = (&self.request.log, record.offset());
                return Err(MarkStoreError::Read(format!("{log} at offset {offset}: {error}")).into());
            }
        }
        self.reached.last = Some(LastRecord::of(record.offset(), value));
        self.position = CommitPosition(record.offset().0 + 1);
        Ok(())
    }

    /// All was read: what the copy is now.
    pub(super) fn finish(self) -> Result<LocalCopy, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if self.expected.is_some() {
            return Err(Broken::Contradicted);
        }
        let until = self.request.until;
        let reached = LocalCopy { position: Some(until), ..self.reached };
        self.restoring.finish(until, reached.opener, reached.last)?;
        self.left.set(0.0);
        let took = self.began.elapsed();
        gauge!(events::RESTORE_SECONDS, "topic" => self.request.log.topic.to_string(),
            "partition" => self.request.log.partition.to_string())
        .set(took.as_secs_f64());
        if self.marks > 0 {
            info!(partition = %self.request.partition, marks = self.marks, ?took, "restored marks from the changelog");
        }
        Ok(reached)
    }
}

#[cfg(test)]
mod tests;
