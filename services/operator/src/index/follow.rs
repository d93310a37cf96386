//! Bringing the index up to date: letters first, then the journal, then words.

use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tidegate_domain::{CommitPosition, Partition, Topic};
use tidegate_kafka::{LogReader, ReadError};
use tidegate_pipeline::{Record, TopicPartition};

use super::connect::{Provenance, Writing};
use super::writer::{Log, Writer};
use crate::error::OperatorError;
use crate::letter::Letter;

/// How long a batch may gather before it is committed: those who read see nothing of it until then.
const BATCH: Duration = Duration::from_millis(1000);
/// How many records a batch has at most.
const BATCH_RECORDS: usize = 100_000;
/// How many letters are made findable before it is looked whether there are new ones.
const WORDS: i64 = 50_000;
/// How many batches of records may be read ahead of what is applied. One has a thousand records at most.
const AHEAD: usize = 8;

/// How far the index is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records that were applied since it began.
    pub done: u64,
    /// Records that are to be applied, as far as is known.
    pub left: u64,
}

/// Brings an index up to date.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) writing: Writing,
    logs: LogReader,
    dlq: Topic,
    partitions: Vec<Partition>,
    journal: Topic,
    pub(crate) provenance: Provenance,
}

/// A stretch of a log that is to be read.
struct Stretch {
    log: TopicPartition,
    from: i64,
    until: i64,
}

impl Follower {
    pub(crate) fn new(
        writing: Writing,
        logs: LogReader,
        (dlq, partitions): (Topic, u32),
        journal: Topic,
        provenance: Provenance,
    ) -> Self {
        let partitions = (0..i32::try_from(partitions).unwrap_or(i32::MAX)).map(Partition).collect();
        Self { writing, logs, dlq, partitions, journal, provenance }
    }

    /// Applies everything that letters and journal hold now. `each` is told now and then, and may break it off.
    pub(crate) fn catch_up(
        &mut self,
        each: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, OperatorError> {
        let letters = self.stretches_of_letters()?;
        // What is gone from the topic is gone from here, also where nothing new came.
        self.writing.writer.commit(Log::Dlq, &[])?;
        let journal = self.stretch_of_journal()?;
        let left =
            |stretches: &[Stretch]| stretches.iter().map(|s| (s.until - s.from).unsigned_abs()).sum::<u64>();
        let mut progress = Progress { done: 0, left: left(&letters) + left(journal.as_slice()) };
        self.writing.writer.expect(left(&letters))?;
        for stretch in &letters {
            let dlq = stretch.log.topic.clone();
            let partition = stretch.log.partition;
            let mut apply = |writer: &mut Writer, record: &Record| {
                writer.letter(&Letter::read(dlq.as_str(), partition, record))
            };
            if self.apply(Log::Dlq, stretch, &mut progress, &mut apply, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if let Some(stretch) = &journal {
            let mut apply = |writer: &mut Writer, record: &Record| writer.entry(record);
            if self.apply(Log::Journal, stretch, &mut progress, &mut apply, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Applies what the journal holds now, and nothing else.
    pub(crate) fn catch_up_with_journal(&mut self) -> Result<(), OperatorError> {
        if let Some(stretch) = self.stretch_of_journal()? {
            let mut apply = |writer: &mut Writer, record: &Record| writer.entry(record);
            let mut each = |_: Progress| ControlFlow::Continue(());
            self.apply(Log::Journal, &stretch, &mut Progress::default(), &mut apply, &mut each)
                .map(|_: ControlFlow<()>| ())?;
        }
        Ok(())
    }

    /// Makes some more letters findable; whether there are more.
    pub(crate) fn add_words(&mut self) -> Result<bool, OperatorError> {
        let wordless = self.writing.writer.wordless()?;
        let Some(&(partition, from, until)) = wordless.first() else { return Ok(false) };
        let log = TopicPartition { topic: self.dlq.clone(), partition };
        let (first, _) = self.logs.bounds(&log)?;
        let from = from.max(first.0).min(until);
        let stretch = Stretch { log, from, until: until.min(from + WORDS) };
        let mut words = String::new();
        let dlq = self.dlq.clone();
        let mut apply = |writer: &mut Writer, record: &Record| {
            writer.words(&Letter::read(dlq.as_str(), partition, record), &mut words)
        };
        let mut each = |_: Progress| ControlFlow::Continue(());
        self.apply(Log::Search, &stretch, &mut Progress::default(), &mut apply, &mut each)
            .map(|_: ControlFlow<()>| ())?;
        Ok(true)
    }

    fn stretches_of_letters(&mut self) -> Result<Vec<Stretch>, OperatorError> {
        let mut stretches = Vec::new();
        for partition in self.partitions.clone() {
            let log = TopicPartition { topic: self.dlq.clone(), partition };
            let (first, end) = self.logs.bounds(&log)?;
            let writer = &mut self.writing.writer;
            writer.prune(partition, first.0)?;
            let from = writer.position(Log::Dlq, partition)?.unwrap_or(0).max(first.0);
            refuse_shorter(&log, from, end)?;
            if from < end.0 {
                stretches.push(Stretch { log, from, until: end.0 });
            }
        }
        Ok(stretches)
    }

    fn stretch_of_journal(&mut self) -> Result<Option<Stretch>, OperatorError> {
        let topic = self.journal.clone();
        let log = TopicPartition { topic, partition: Partition(0) };
        let (first, end) = self.logs.bounds(&log)?;
        let from = self.writing.writer.position(Log::Journal, log.partition)?.unwrap_or(0).max(first.0);
        refuse_shorter(&log, from, end)?;
        Ok((from < end.0).then_some(Stretch { log, from, until: end.0 }))
    }

    fn apply(
        &mut self,
        name: Log,
        stretch: &Stretch,
        progress: &mut Progress,
        apply: &mut dyn FnMut(&mut Writer, &Record) -> rusqlite::Result<()>,
        each: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, OperatorError> {
        let Stretch { log, from, until } = stretch;
        let mut batch = Batch {
            writer: &mut self.writing.writer,
            log: (name, log.partition),
            began: Instant::now(),
            gathered: 0,
            progress,
        };
        let (logs, bounds) = (&self.logs, (CommitPosition(*from), CommitPosition(*until)));
        // What is applied was read by another thread: both take about as long.
        let (read, outcome) = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel::<Vec<Record>>(AHEAD);
            let reading =
                scope.spawn(move || {
                    logs.read(log, bounds.0, bounds.1, &mut |records| match sender
                        .send(std::mem::take(records))
                    {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(_) => ControlFlow::Break(()),
                    })
                });
            let outcome = receiver.iter().try_for_each(|records| match batch.add(&records, apply, each) {
                Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                ended => ControlFlow::Break(ended),
            });
            drop(receiver);
            let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (read, outcome.break_value().unwrap_or(Ok(ControlFlow::Continue(()))))
        });
        if matches!((&read, &outcome), (Ok(()), Ok(ControlFlow::Continue(())))) {
            batch.end(*until)?;
            return Ok(each(*progress));
        }
        match (read, outcome) {
            (Ok(()), Ok(broken)) => Ok(broken),
            (Err(error), _) => {
                self.writing.writer.roll_back()?;
                Err(error.into())
            }
            (_, Err(error)) => {
                self.writing.writer.roll_back()?;
                Err(error.into())
            }
        }
    }
}

/// Records that are applied and not committed yet.
struct Batch<'a> {
    writer: &'a mut Writer,
    log: (Log, Partition),
    began: Instant,
    gathered: usize,
    progress: &'a mut Progress,
}

impl Batch<'_> {
    /// Applies records, and commits when there are enough of them.
    fn add(
        &mut self,
        records: &[Record],
        apply: &mut dyn FnMut(&mut Writer, &Record) -> rusqlite::Result<()>,
        each: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> rusqlite::Result<ControlFlow<()>> {
        records.iter().try_for_each(|record| apply(self.writer, record))?;
        self.gathered += records.len();
        match records.last() {
            Some(last) if self.began.elapsed() >= BATCH || self.gathered >= BATCH_RECORDS => {
                self.end(last.offset().next().0)?;
                Ok(each(*self.progress))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Commits: everything below `next` is applied.
    fn end(&mut self, next: i64) -> rusqlite::Result<()> {
        let (log, partition) = self.log;
        self.writer.commit(log, &[(partition, next)])?;
        self.progress.advance(self.gathered);
        (self.began, self.gathered) = (Instant::now(), 0);
        Ok(())
    }
}

impl Progress {
    fn advance(&mut self, records: usize) {
        let records = records as u64;
        self.done += records;
        self.left = self.left.saturating_sub(records);
    }
}

/// A log that ends before what was read of it is another log.
fn refuse_shorter(log: &TopicPartition, from: i64, end: CommitPosition) -> Result<(), OperatorError> {
    if from > end.0 { Err(ReadError::MadeAnew(log.clone()).into()) } else { Ok(()) }
}

impl Writer {
    /// Takes back what was applied since the last commit.
    pub(crate) fn roll_back(&mut self) -> rusqlite::Result<()> {
        if self.is_under_way() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        self.reload()
    }
}
