//! The records of one assigned partition.

use rdkafka::consumer::ConsumerContext;
use tidegate_domain::CommitPosition;
use tidegate_pipeline::ports::{Fetched, RecordSource, SourceError};
use tidegate_pipeline::{Record, TopicPartition};

use crate::classify::source_error;
use crate::native::PartitionQueue;

/// How many records one call takes from the queue.
const CALL: usize = 256;

pub(crate) struct PartitionSource<C: ConsumerContext> {
    queue: PartitionQueue<C>,
    partition: TopicPartition,
    lost_its_place: bool,
}

impl<C: ConsumerContext> PartitionSource<C> {
    pub(crate) fn new(queue: PartitionQueue<C>, partition: TopicPartition) -> Self {
        Self { queue, partition, lost_its_place: false }
    }
}

impl<C: ConsumerContext> RecordSource for PartitionSource<C> {
    fn fetch(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        into: &mut Vec<Record>,
    ) -> Result<Fetched, SourceError> {
        if self.lost_its_place {
            // librdkafka fetches no more from such a partition, and refuses to seek in it: it must be assigned anew, which then
            // begins with the oldest record.
            let partition = &self.partition;
            return Err(SourceError::Fatal(format!(
                "{partition} moved away under its reader and must be assigned anew"
            )));
        }
        let (mut left, mut bytes) = (max_records, 0);
        while left > 0 {
            let (known, call) = (into.len(), left.min(CALL));
            let (taken, failed) = self.queue.take(call, into);
            if let Some(failed) = failed {
                let error = source_error(failed.code, failed.message);
                self.lost_its_place = matches!(error, SourceError::OutOfRange(_));
                return Err(error);
            }
            if taken < call {
                return Ok(Fetched::All);
            }
            left -= taken;
            bytes += into[known..].iter().map(Record::size).sum::<usize>();
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(Fetched::Some)
    }

    fn end_offset(&self) -> Option<CommitPosition> {
        self.queue.high_watermark()
    }
}
