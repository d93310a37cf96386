//! Records of several partitions, in the order of their times.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use tidegate_domain::Partition;
use tidegate_pipeline::Record;

/// A partition whose records come piece by piece.
pub(super) struct Source {
    partition: Partition,
    pieces: Receiver<Vec<Record>>,
    piece: std::vec::IntoIter<Record>,
}

impl Source {
    pub(super) fn new(partition: Partition, pieces: Receiver<Vec<Record>>) -> Self {
        Self { partition, pieces, piece: Vec::new().into_iter() }
    }

    /// When the next record was appended; none at the end. Waits for it.
    fn next(&mut self) -> Option<i64> {
        while self.piece.as_slice().is_empty() {
            self.piece = self.pieces.recv().ok()?.into_iter();
        }
        self.piece.as_slice().first().map(time)
    }

    /// How many of the records at hand were appended before `until`, without a later one before them.
    fn before(&self, until: i64) -> usize {
        let records = self.piece.as_slice();
        records.iter().position(|record| time(record) > until).unwrap_or(records.len())
    }
}

fn time(record: &Record) -> i64 {
    record.timestamp().map_or(i64::MIN, |at| at.0)
}

/// What is done with records of a partition.
type Apply<'a, E> = &'a mut dyn FnMut(Partition, &[Record]) -> Result<ControlFlow<()>, E>;

/// Hands the records of all sources to `apply`, some of a partition at a time: each partition's in their order, and those of all in
/// the order of their times, as far as each partition is. Ends when all have ended, when `apply` breaks, or when a source has `failed`.
pub(super) fn merge<E>(
    mut sources: Vec<Source>,
    failed: &AtomicBool,
    apply: Apply<'_, E>,
) -> Result<ControlFlow<()>, E> {
    while !failed.load(Ordering::Relaxed) {
        let (mut first, mut until): (Option<(i64, &mut Source)>, i64) = (None, i64::MAX);
        for source in &mut sources {
            let Some(time) = source.next() else { continue };
            match &first {
                Some((earliest, _)) if *earliest <= time => until = until.min(time),
                Some((earliest, _)) => {
                    until = until.min(*earliest);
                    first = Some((time, source));
                }
                None => first = Some((time, source)),
            }
        }
        let Some((_, source)) = first else { break };
        let count = source.before(until);
        if apply(source.partition, &source.piece.as_slice()[..count])?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        source.piece.by_ref().take(count).for_each(drop);
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::mpsc::sync_channel;

    use proptest::prelude::*;
    use tidegate_domain::{Offset, UnixMillis};
    use tidegate_pipeline::record::RecordBuilder;

    use super::*;

    fn source(partition: i32, pieces: &[Vec<i64>]) -> Source {
        let (sender, receiver) = sync_channel(pieces.len());
        let mut offset = 0;
        for piece in pieces {
            let record = |time: &i64| {
                offset += 1;
                RecordBuilder::new(Offset(offset), Some(UnixMillis(*time)), None, None, 0).build()
            };
            sender.send(piece.iter().map(record).collect()).unwrap();
        }
        Source::new(Partition(partition), receiver)
    }

    fn merged(sources: &[Vec<Vec<i64>>]) -> Vec<(i32, i64, i64)> {
        let (mut all, failed) = (Vec::new(), AtomicBool::new(false));
        let sources = (0..).zip(sources).map(|(partition, pieces)| source(partition, pieces)).collect();
        let ended = merge::<Infallible>(sources, &failed, &mut |partition, records| {
            assert!(!records.is_empty(), "it would never end");
            all.extend(records.iter().map(|record| (time(record), record.offset().0, partition.0)));
            Ok(ControlFlow::Continue(()))
        });
        assert_eq!(ended, Ok(ControlFlow::Continue(())));
        all.into_iter().map(|(time, offset, partition)| (partition, offset, time)).collect()
    }

    proptest! {
        #[test]
        fn every_record_comes_once_each_partitions_in_order_and_all_by_time_where_each_partition_is(
            mut sources in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(0..50_i64, 0..5), 0..5), 0..4),
            is_by_time in any::<bool>(),
        ) {
            if is_by_time {
                for pieces in &mut sources {
                    let mut times: Vec<i64> = pieces.iter().flatten().copied().collect();
                    times.sort_unstable_by(|a, b| b.cmp(a));
                    pieces.iter_mut().flatten().for_each(|time| *time = times.pop().unwrap());
                }
            }
            let all = merged(&sources);
            for (partition, pieces) in (0..).zip(&sources) {
                let of_it: Vec<i64> = all.iter().filter(|(of, ..)| *of == partition).map(|(_, offset, _)| *offset).collect();
                prop_assert_eq!(of_it, (1..=pieces.iter().flatten().count() as i64).collect::<Vec<_>>());
            }
            if is_by_time {
                prop_assert!(all.is_sorted_by_key(|(.., time)| *time), "{:?}", all);
            }
        }
    }
}
