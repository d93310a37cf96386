//! Bringing the index up to date: letters first, then the journal, then words.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tidegate_domain::{CommitPosition, Partition, Topic};
use tidegate_kafka::{LogReader, ReadError};
use tidegate_pipeline::{Record, TopicPartition};

use super::connect::{Provenance, Writing};
use super::merge::{Source, merge};
use super::prune::Left;
use super::writer::{Log, Writer};
use crate::error::OperatorError;
use crate::letter::Letter;

/// How long a batch may gather before it is committed: those who read see nothing of it until then.
const BATCH: Duration = Duration::from_millis(1000);
/// How many records a batch has at most.
const BATCH_RECORDS: usize = 100_000;
/// How many letters are made findable before it is looked whether there are new ones.
const WORDS: i64 = 50_000;
/// After how many records it is looked how long a batch gathers.
const LOOK: usize = 500;
/// How many pieces of a partition may be read ahead of what is applied. One has a thousand records at most.
const AHEAD: usize = 2;
/// So many partitions are read at a time: each has a client of its own, whose queue takes memory.
const SIDE_BY_SIDE: usize = 8;

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

/// What is done with each record of a partition.
type Apply<'a> = &'a mut dyn FnMut(&mut Writer, Partition, &Record) -> rusqlite::Result<()>;

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
        let dlq = self.dlq.clone();
        let mut letter = |writer: &mut Writer, partition, record: &Record| {
            writer.letter(&Letter::read(dlq.as_str(), partition, record))
        };
        for stretches in letters.chunks(SIDE_BY_SIDE) {
            if self.apply(Log::Dlq, stretches, &mut progress, &mut letter, each)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let mut entry = |writer: &mut Writer, _, record: &Record| writer.entry(record);
        match journal {
            Some(stretch) => self.apply(Log::Journal, &[stretch], &mut progress, &mut entry, each),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    /// Applies what the journal holds now, and nothing else.
    pub(crate) fn catch_up_with_journal(&mut self) -> Result<(), OperatorError> {
        if let Some(stretch) = self.stretch_of_journal()? {
            let mut apply = |writer: &mut Writer, _, record: &Record| writer.entry(record);
            let mut each = |_: Progress| ControlFlow::Continue(());
            self.apply(Log::Journal, &[stretch], &mut Progress::default(), &mut apply, &mut each)
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
        let mut apply = |writer: &mut Writer, _, record: &Record| {
            writer.words(&Letter::read(dlq.as_str(), partition, record), &mut words)
        };
        let mut each = |_: Progress| ControlFlow::Continue(());
        self.apply(Log::Search, &[stretch], &mut Progress::default(), &mut apply, &mut each)
            .map(|_: ControlFlow<()>| ())?;
        Ok(true)
    }

    fn stretches_of_letters(&mut self) -> Result<Vec<Stretch>, OperatorError> {
        let mut bounds = Vec::new();
        for partition in &self.partitions {
            let log = TopicPartition { topic: self.dlq.clone(), partition: *partition };
            let held = self.logs.bounds(&log)?;
            bounds.push((log, held));
        }
        for (log, (first, _)) in &bounds {
            if self.writing.writer.prune(log.partition, first.0)? == Left::OtherGroups {
                self.writing.begin_anew(&self.provenance)?;
            }
        }
        let mut stretches = Vec::new();
        for (log, (first, end)) in bounds {
            let position = self.writing.writer.position(Log::Dlq, log.partition)?;
            let from = position.unwrap_or(0).max(first.0);
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

    /// Applies stretches of a log in the order of their records' times: items lie in that order, so that what is written is close to what
    /// was written before.
    fn apply(
        &mut self,
        name: Log,
        stretches: &[Stretch],
        progress: &mut Progress,
        apply: Apply<'_>,
        each: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, OperatorError> {
        let from = |stretch: &Stretch| (stretch.log.partition, stretch.from);
        let mut batch = Batch {
            writer: &mut self.writing.writer,
            log: name,
            next: stretches.iter().map(from).collect(),
            began: Instant::now(),
            gathered: 0,
            progress,
        };
        let (logs, failed) = (&self.logs, AtomicBool::new(false));
        // What is applied is read by other threads: both take about as long.
        let (read, outcome) = std::thread::scope(|scope| {
            let (mut readers, mut sources) = (Vec::new(), Vec::new());
            for stretch in stretches {
                let (sender, receiver) = mpsc::sync_channel(AHEAD);
                sources.push(Source::new(stretch.log.partition, receiver));
                let failed = &failed;
                readers.push(scope.spawn(move || {
                    let read = stretch.read(logs, &sender);
                    failed.fetch_or(read.is_err(), Ordering::Relaxed);
                    read
                }));
            }
            let mut merged = |partition, records: &[Record]| batch.add(partition, records, apply, each);
            let outcome = merge(sources, &failed, &mut merged);
            let join = |reader: std::thread::ScopedJoinHandle<'_, Result<(), ReadError>>| {
                reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            // All of them are waited for, also where one failed.
            let read: Vec<_> = readers.into_iter().map(join).collect();
            (read.into_iter().collect::<Result<(), ReadError>>(), outcome)
        });
        match (read.map_err(OperatorError::from), outcome.map_err(OperatorError::from)) {
            (Ok(()), Ok(ControlFlow::Continue(()))) => {
                batch.next = stretches.iter().map(|stretch| (stretch.log.partition, stretch.until)).collect();
                batch.end()?;
                Ok(each(*progress))
            }
            (Ok(()), Ok(broken)) => Ok(broken),
            (Err(error), _) | (_, Err(error)) => {
                self.writing.writer.roll_back()?;
                Err(error)
            }
        }
    }
}

impl Stretch {
    fn read(&self, logs: &LogReader, sender: &mpsc::SyncSender<Vec<Record>>) -> Result<(), ReadError> {
        let (from, until) = (CommitPosition(self.from), CommitPosition(self.until));
        logs.read(&self.log, from, until, &mut |records| match sender.send(std::mem::take(records)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        })
    }
}

/// Records that are applied and not committed yet.
struct Batch<'a> {
    writer: &'a mut Writer,
    log: Log,
    /// Up to where each partition is applied.
    next: Vec<(Partition, i64)>,
    began: Instant,
    gathered: usize,
    progress: &'a mut Progress,
}

impl Batch<'_> {
    /// Applies records of one partition, and commits when there are enough of them.
    fn add(
        &mut self,
        partition: Partition,
        records: &[Record],
        apply: Apply<'_>,
        each: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> rusqlite::Result<ControlFlow<()>> {
        for record in records {
            apply(self.writer, partition, record)?;
        }
        let before = self.gathered / LOOK;
        self.gathered += records.len();
        if let (Some(last), Some(next)) =
            (records.last(), self.next.iter_mut().find(|(known, _)| *known == partition))
        {
            next.1 = last.offset().next().0;
        }
        // A look at the clock costs as much as a part of a record, and a piece may have one.
        if self.gathered >= BATCH_RECORDS || (self.gathered / LOOK > before && self.began.elapsed() >= BATCH)
        {
            self.end()?;
            return Ok(each(*self.progress));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Commits.
    fn end(&mut self) -> rusqlite::Result<()> {
        self.writer.commit(self.log, &self.next)?;
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
