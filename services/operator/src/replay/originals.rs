//! The records themselves: the index holds none, so they are read from the dead-letter topic when they are needed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tidegate_domain::{CommitPosition, Partition};
use tidegate_kafka::ReadError;
use tidegate_pipeline::{Record, TopicPartition};

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::letter::Letter;
use crate::reference::ItemRef;

/// Records this close to each other are read in one stretch: beginning another one costs as much as reading so many.
const GAP: i64 = 2000;

/// A dead letter's record.
#[derive(Clone, Debug)]
pub struct Original {
    /// Its partition in the dead-letter topic.
    pub partition: Partition,
    /// The record.
    pub record: Record,
}

impl Inbox {
    /// The record at a place of the dead-letter topic; none where it is gone, or was never there.
    pub fn original(&self, partition: i32, offset: i64) -> Result<Option<Original>, OperatorError> {
        let mut found = None;
        self.originals(&[(partition, offset)], &mut |original| {
            found = Some(original);
            Ok(())
        })?;
        Ok(found)
    }

    /// The newest record of an item that still exists and has its value; none where there is none any more.
    pub fn original_of(&self, item: ItemRef) -> Result<Option<Original>, OperatorError> {
        let letters = self.view(|view| view.letters_of(item))?.unwrap_or_default();
        for letter in letters.iter().filter(|letter| is_whole(letter.stub.as_deref(), letter.value_bytes)) {
            if let Some(original) = self.original(letter.partition, letter.offset)? {
                return Ok(Some(original));
            }
        }
        Ok(None)
    }

    /// Which item the record at a place of the dead-letter topic is a letter of.
    pub fn item_at(&self, partition: i32, offset: i64) -> Result<Option<ItemRef>, OperatorError> {
        let original = self.original(partition, offset)?;
        let dlq = self.shared.names.dlq();
        let item =
            |original: &Original| Letter::read(dlq.as_str(), original.partition, &original.record).item();
        Ok(original.as_ref().map(item))
    }

    /// Hands each record that still exists at these places to `each`, in the order of the topic.
    pub(crate) fn originals(
        &self,
        places: &[(i32, i64)],
        each: &mut dyn FnMut(Original) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut by_partition: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
        for (partition, offset) in places {
            by_partition.entry(*partition).or_default().push(*offset);
        }
        for (partition, mut offsets) in by_partition {
            offsets.sort_unstable();
            offsets.dedup();
            let log = TopicPartition { topic: self.shared.names.dlq(), partition: Partition(partition) };
            let (first, end) = match self.shared.logs.bounds(&log) {
                Err(ReadError::Missing(_)) => continue,
                bounds => bounds?,
            };
            offsets.retain(|offset| (first.0..end.0).contains(offset));
            for stretch in offsets.chunk_by(|a, b| b - a <= GAP) {
                self.stretch(&log, stretch, each)?;
            }
        }
        Ok(())
    }

    fn stretch(
        &self,
        log: &TopicPartition,
        offsets: &[i64],
        each: &mut dyn FnMut(Original) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Ok(()) };
        let (from, until) = (CommitPosition(*first), CommitPosition(last + 1));
        let mut failed = None;
        self.shared.logs.read(log, from, until, &mut |records| {
            for record in records.drain(..) {
                if offsets.binary_search(&record.offset().0).is_ok()
                    && let Err(error) = each(Original { partition: log.partition, record })
                {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// Whether a letter has the value that its event had. A stub without the source's headers does; one without the value does not.
pub(crate) fn is_whole(stub: Option<&str>, value_bytes: Option<u64>) -> bool {
    stub.is_none() || value_bytes.is_some()
}
