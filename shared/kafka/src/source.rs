//! The records of one assigned partition.

use std::time::Duration;

use rdkafka::consumer::{Consumer, ConsumerContext};
use rdkafka::topic_partition_list::Offset;
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
}

impl<C: ConsumerContext> PartitionSource<C> {
    pub(crate) fn new(queue: PartitionQueue<C>, partition: TopicPartition) -> Self {
        Self { queue, partition }
    }

    /// Never silently on with the newest: what is left is read from its beginning, and the caller raises the alarm.
    fn read_from_beginning(&self) -> Result<(), SourceError> {
        let (topic, partition) = (self.partition.topic.as_str(), self.partition.partition.0);
        self.queue
            .consumer()
            .seek(topic, partition, Offset::Beginning, Duration::ZERO)
            .map_err(|error| SourceError::Fatal(format!("{} can't be read from its beginning: {error}", self.partition)))
    }
}

impl<C: ConsumerContext> RecordSource for PartitionSource<C> {
    fn fetch(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        into: &mut Vec<Record>,
    ) -> Result<Fetched, SourceError> {
        let (mut left, mut bytes) = (max_records, 0);
        while left > 0 {
            let (known, call) = (into.len(), left.min(CALL));
            let (taken, failed) = self.queue.take(call, into);
            if let Some(failed) = failed {
                let error = source_error(failed.code, failed.message);
                if matches!(error, SourceError::OutOfRange(_)) {
                    self.read_from_beginning()?;
                }
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
