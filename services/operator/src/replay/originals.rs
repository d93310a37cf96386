//! The records themselves: the index holds none, so they are read from the dead-letter topic when they are needed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tidegate_domain::{CommitPosition, Partition};
use tidegate_kafka::ReadError;
use tidegate_pipeline::{Record, TopicPartition};

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::letter::Letter;
use crate::reference::ItemRef;

/// Records this close to each other are read in one stretch: beginning another one costs as much as reading so many.
const GAP: i64 = 2000;

/// How soon a broker that just started knows its partitions.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// A dead letter's record.
#[derive(Clone, Debug)]
pub struct Original {
    /// Its partition in the dead-letter topic.
    pub partition: Partition,
    /// The record.
    pub record: Record,
}

/// What it means that a broker knows no such partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Somebody named a partition that does not exist.
    Expected,
    /// It was read from that partition before, so the broker just started, and does not know it yet: to ask again helps. Nothing is gone.
    Unexpected,
}

impl Inbox {
    /// The record at a place of the dead-letter topic; none where it is gone, or was never there.
    pub fn original(&self, partition: i32, offset: i64) -> Result<Option<Original>, OperatorError> {
        self.original_at(partition, offset, Absent::Expected)
    }

    fn original_at(
        &self,
        partition: i32,
        offset: i64,
        absent: Absent,
    ) -> Result<Option<Original>, OperatorError> {
        let mut found = None;
        self.originals_where(&[(partition, offset)], absent, &mut |original| {
            found = Some(original);
            Ok(())
        })?;
        Ok(found)
    }

    /// The newest record of an item that still exists and has its value; none where there is none any more.
    pub fn original_of(&self, item: ItemRef) -> Result<Option<Original>, OperatorError> {
        let letters = self.view(|view| view.letters_of(item))?.unwrap_or_default();
        for letter in letters.iter().filter(|letter| is_whole(letter.stub.as_deref(), letter.value_bytes)) {
            if let Some(original) = self.original_at(letter.partition, letter.offset, Absent::Unexpected)? {
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
        self.originals_where(places, Absent::Expected, each)
    }

    /// As [`Inbox::originals`], and says what it means that a partition does not exist.
    pub(super) fn originals_where(
        &self,
        places: &[(i32, i64)],
        absent: Absent,
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
            let bounds = bounds(absent, KNOWN_WITHIN, || self.shared.logs.bounds(&log))?;
            let Some((first, end)) = bounds else { continue };
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

/// What a partition holds, by whoever can be asked; none where there is no such partition, and that may be.
fn bounds(
    absent: Absent,
    within: Duration,
    mut ask: impl FnMut() -> Result<(CommitPosition, CommitPosition), ReadError>,
) -> Result<Option<(CommitPosition, CommitPosition)>, ReadError> {
    let began = Instant::now();
    loop {
        match (ask(), absent) {
            (Err(ReadError::Missing(_)), Absent::Expected) => return Ok(None),
            (Err(ReadError::Missing(_)), Absent::Unexpected) if began.elapsed() < within => {
                std::thread::sleep(PAUSE);
            }
            (bounds, _) => return bounds.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_domain::Topic;

    use super::*;

    #[test]
    fn a_broker_that_does_not_know_a_partition_yet_makes_no_record_gone() {
        let log = TopicPartition { topic: Topic::new("p.dlq"), partition: Partition(1) };
        let held = (CommitPosition(3), CommitPosition(9));
        let answers = |mut unknown: u32| {
            let log = log.clone();
            move || match unknown {
                0 => Ok(held),
                _ => {
                    unknown -= 1;
                    Err(ReadError::Missing(log.clone()))
                }
            }
        };
        let (soon, never) = (Duration::from_secs(60), Duration::ZERO);
        assert_eq!(bounds(Absent::Unexpected, soon, answers(2)).unwrap(), Some(held));
        let error = bounds(Absent::Unexpected, never, answers(9)).unwrap_err();
        assert!(matches!(error, ReadError::Missing(_)), "it is an error, and tried again: {error}");
        assert_eq!(bounds(Absent::Expected, never, answers(9)).unwrap(), None, "an operator named it");
    }
}
