//! An index that is filled by hand, without Kafka.

use std::path::Path;

use tidegate_domain::Partition;
use tidegate_pipeline::Record;

use super::connect::{Home, Provenance, Writing};
use super::prune::Left;
use super::writer::Log;
use crate::error::OperatorError;
use crate::letter::Letter;

/// An index that is filled with records at hand, to measure and to test what is done with them. An [`crate::Inbox`] of the same folder
/// reads it.
#[derive(Debug)]
pub struct LocalIndex {
    writing: Writing,
    dlq: String,
    words: String,
}

impl LocalIndex {
    /// The index in `dir`, of letters from the topic `dlq`; empty, unless it was filled before.
    ///
    /// # Errors
    /// As an inbox's; also when another process has it.
    pub fn open(dir: &Path, dlq: &str) -> Result<Self, OperatorError> {
        let writing = Home::at(dir)?.writing(&provenance(dlq))?.ok_or(OperatorError::Stalled)?;
        Ok(Self { writing, dlq: dlq.to_owned(), words: String::new() })
    }

    /// Applies letters of one partition, in one batch.
    pub fn letters(&mut self, partition: Partition, records: &[Record]) -> Result<(), OperatorError> {
        let writer = &mut self.writing.writer;
        writer.expect(records.len() as u64)?;
        for record in records {
            writer.letter(&Letter::read(&self.dlq, partition, record))?;
        }
        Ok(writer.commit(Log::Dlq, &next(partition, records))?)
    }

    /// Makes letters that were applied findable by words and keys, in one batch; each once.
    pub fn words(&mut self, partition: Partition, records: &[Record]) -> Result<(), OperatorError> {
        let writer = &mut self.writing.writer;
        for record in records {
            writer.words(&Letter::read(&self.dlq, partition, record), &mut self.words)?;
        }
        Ok(writer.commit(Log::Search, &next(partition, records))?)
    }

    /// Applies records of the journal, in one batch.
    pub fn journal(&mut self, records: &[Record]) -> Result<(), OperatorError> {
        let writer = &mut self.writing.writer;
        for record in records {
            writer.entry(record)?;
        }
        Ok(writer.commit(Log::Journal, &next(Partition(0), records))?)
    }

    /// Takes out the letters of a partition below this offset; whether those that are left must be indexed from the beginning, since they
    /// make other groups. Then the index is empty.
    pub fn prune(&mut self, partition: Partition, first: i64) -> Result<bool, OperatorError> {
        let left = self.writing.writer.prune(partition, first)?;
        if left == Left::OtherGroups {
            self.writing.begin_anew(&provenance(&self.dlq))?;
        }
        self.writing.writer.commit(Log::Dlq, &[])?;
        Ok(left == Left::OtherGroups)
    }
}

fn provenance(dlq: &str) -> Provenance {
    Provenance { cluster: "none".to_owned(), topics: vec![(dlq.to_owned(), "by hand".to_owned())] }
}

fn next(partition: Partition, records: &[Record]) -> Vec<(Partition, i64)> {
    records.last().map(|record| (partition, record.offset().next().0)).into_iter().collect()
}
