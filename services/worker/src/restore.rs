//! Reading a changelog into the local copy: what a partition's new owner waits for. In the background, a few partitions at a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;
use tidegate_domain::{CommitPosition, UnixMillis};
use tidegate_kafka::log_reader::LogReader;
use tidegate_pipeline::changelog::format::{self, Entry, FormatError};
use tidegate_pipeline::changelog::{CatchUp, CaughtUp, ChangelogReader, LogEnd, Opener};
use tidegate_pipeline::inbox::Inbox;
use tidegate_pipeline::ports::{MarkStoreError, Ticket};
use tidegate_pipeline::{Record, TopicPartition, events};
use tidegate_state::{Marks, Restoring};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::{error, info, warn};

/// How many partitions are restored at once: each takes a processor, and memory for sorting.
const AT_ONCE: usize = 2;
/// How often a restore that takes long says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Reads changelogs into the copies of one tier.
#[derive(Clone)]
pub(crate) struct Restorer {
    reader: LogReader,
    marks: Arc<Marks>,
    runtime: Handle,
    turns: Arc<Semaphore>,
    /// The ids of changelogs whose name another one had before: copies are of these by now, where they were made anew.
    later_logs: Arc<Mutex<BTreeMap<TopicPartition, String>>>,
}

impl Restorer {
    pub(crate) fn new(reader: LogReader, marks: Arc<Marks>, runtime: Handle) -> Self {
        let (turns, later_logs) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::default());
        Self { reader, marks, runtime, turns, later_logs }
    }

    fn restore(&self, request: &CatchUp) -> Result<Option<Opener>, MarkStoreError> {
        let id = self.reader.id(&request.log).map_err(unreadable)?;
        let (first, _) = self.reader.bounds(&request.log).map_err(unreadable)?;
        let is_there = |position: &CommitPosition| (first..=request.until).contains(position);
        let reachable =
            request.copy.position.filter(|_| self.has_copy_of(&request.partition, &id)).filter(is_there);
        if let (Some(position), None) = (request.copy.position, reachable) {
            warn!(
                partition = %request.partition, %position, %first, until = %request.until,
                "the changelog does not reach back to the local copy, or is another one: the copy is made anew"
            );
        }
        let restoring = self.marks.restore(&request.partition, reachable.is_none())?;
        let from = reachable.unwrap_or(first);
        let opener = request.copy.opener.filter(|_| reachable.is_some());
        let mut run = Run::new(request, from, opener, restoring);
        self.reader
            .read(&request.log, from, request.until, &mut |records| run.take(records))
            .map_err(unreadable)?;
        let opener = run.finish()?;
        if !self.has_copy_of(&request.partition, &id) {
            self.later_logs.lock().insert(request.partition.clone(), id);
        }
        Ok(opener)
    }

    /// Whether the partition's copy is one of the changelog with this id: to another one its position says nothing.
    fn has_copy_of(&self, partition: &TopicPartition, id: &str) -> bool {
        match self.later_logs.lock().get(partition) {
            Some(later) => later == id,
            None => self.marks.changelog_of(&partition.topic) == Some(id),
        }
    }
}

impl ChangelogReader for Restorer {
    fn catch_up(&self, request: CatchUp, ticket: Ticket, inbox: &Arc<Inbox<CaughtUp>>) {
        let (this, inbox) = (self.clone(), inbox.clone());
        self.runtime.spawn(async move {
            let _turn = this.turns.clone().acquire_owned().await;
            let restored = tokio::task::spawn_blocking(move || this.restore(&request)).await;
            let panicked = |error| MarkStoreError::Read(format!("restoring ended in the middle: {error}"));
            inbox.push((ticket, restored.map_err(panicked).flatten()));
        });
    }

    fn end(&self, log: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LogEnd>>) {
        let (reader, log, inbox) = (self.reader.clone(), log.clone(), inbox.clone());
        self.runtime.spawn_blocking(move || {
            let end = reader.bounds(&log).map(|(_, end)| end);
            inbox.push((ticket, end.map_err(unreadable)));
        });
    }
}

fn unreadable(error: impl std::fmt::Display) -> MarkStoreError {
    MarkStoreError::Read(error.to_string())
}

/// One restore under way.
struct Run<'a> {
    request: &'a CatchUp,
    opener: Option<Opener>,
    restoring: Restoring,
    failed: Option<MarkStoreError>,
    position: CommitPosition,
    marks: u64,
    began: Instant,
    told: Instant,
    restored: Counter,
    left: Gauge,
}

impl<'a> Run<'a> {
    fn new(request: &'a CatchUp, from: CommitPosition, opener: Option<Opener>, restoring: Restoring) -> Self {
        let (topic, partition) = (request.log.topic.to_string(), request.log.partition.to_string());
        let now = Instant::now();
        Self {
            request,
            opener,
            restoring,
            failed: None,
            position: from,
            marks: 0,
            began: now,
            told: now,
            restored: counter!(events::RESTORED_MARKS, "topic" => topic.clone()),
            left: gauge!(events::RESTORE_LEFT, "topic" => topic, "partition" => partition),
        }
    }

    fn take(&mut self, records: &mut Vec<Record>) -> ControlFlow<()> {
        for record in records.drain(..) {
            if let Err(error) = self.take_one(&record) {
                self.failed = Some(error);
                return ControlFlow::Break(());
            }
            self.position = CommitPosition(record.offset().0 + 1);
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

    fn take_one(&mut self, record: &Record) -> Result<(), MarkStoreError> {
        match format::read(record.value().unwrap_or_default()) {
            Ok((_, Entry::Marks(entries))) => {
                self.marks += entries.len() as u64;
                self.restored.increment(entries.len() as u64);
                self.restoring.push(&entries, record.timestamp().unwrap_or(UnixMillis(0)))?;
            }
            Ok((id, Entry::Opened { window })) => {
                self.opener = Some(Opener::opened(self.opener, id, window));
            }
            Ok((id, Entry::Closed)) => self.opener = Opener::closed(self.opener, id),
            // It holds no mark of ours, so none is lost; that someone writes there needs a person.
            Err(error @ FormatError::Foreign) => {
                error!(log = %self.request.log, offset = %record.offset(), %error, "passed over");
            }
            Err(error) => {
                let (log, offset) = (&self.request.log, record.offset());
                return Err(MarkStoreError::Read(format!("{log} at offset {offset}: {error}")));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Option<Opener>, MarkStoreError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.restoring.finish(self.request.until, self.opener)?;
        self.left.set(0.0);
        let took = self.began.elapsed();
        gauge!(events::RESTORE_SECONDS, "topic" => self.request.log.topic.to_string(),
            "partition" => self.request.log.partition.to_string())
        .set(took.as_secs_f64());
        if self.marks > 0 {
            info!(partition = %self.request.partition, marks = self.marks, ?took, "restored marks from the changelog");
        }
        Ok(self.opener)
    }
}
