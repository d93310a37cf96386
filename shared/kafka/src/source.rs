//! The records of one assigned partition.

use rdkafka::consumer::ConsumerContext;
use tidegate_domain::CommitPosition;
use tidegate_pipeline::ports::{Fetched, RecordSource, SourceError};
use tidegate_pipeline::{Record, TopicPartition};

use crate::classify::source_error;
use crate::native::PartitionQueue;

/// How many records one call takes from the queue at most.
const CALL: usize = 256;
/// How large records are taken to be before the first came.
const FIRST_SIZE: usize = 1024;

pub(crate) struct PartitionSource<C: ConsumerContext> {
    queue: PartitionQueue<C>,
    partition: TopicPartition,
    lost_its_place: bool,
    /// How large the last records were, on average: a queue gives by number, and bounds are in bytes.
    size: usize,
}

impl<C: ConsumerContext> PartitionSource<C> {
    pub(crate) fn new(queue: PartitionQueue<C>, partition: TopicPartition) -> Self {
        Self { queue, partition, lost_its_place: false, size: FIRST_SIZE }
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
            let (known, call) = (into.len(), records_of(max_bytes - bytes, self.size).min(left));
            let (taken, failed) = self.queue.take(call, into);
            if let Some(failed) = failed {
                let error = source_error(failed.code, failed.message);
                self.lost_its_place = matches!(error, SourceError::OutOfRange(_));
                return Err(error);
            }
            let came = into[known..].iter().map(Record::size).sum::<usize>();
            self.size = came.checked_div(taken).unwrap_or(self.size);
            if taken < call {
                return Ok(Fetched::All);
            }
            left -= taken;
            bytes += came;
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

/// How many records of this size are to be taken where there is room for so many bytes: at least one.
fn records_of(room: usize, size: usize) -> usize {
    room.div_ceil(size.max(1)).clamp(1, CALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_about_what_there_is_room_for_and_at_least_one_record() {
        for (room, size, records) in
            [(0, 1000, 1), (1, 1000, 1), (1001, 1000, 2), (usize::MAX, 1, CALL), (5000, 0, CALL), (10, 5, 2)]
        {
            assert_eq!(records_of(room, size), records, "{room} bytes, {size} each");
        }
    }
}
