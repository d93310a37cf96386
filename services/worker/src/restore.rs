//! Reading a changelog into the local copy: what a partition's new owner waits for. In the background, a few partitions at a time.

mod reading;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_domain::CommitPosition;
use tidegate_kafka::log_reader::LogReader;
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::{CatchUp, CaughtUp, ChangelogReader, LocalCopy, LogEnd};
use tidegate_pipeline::inbox::Inbox;
use tidegate_pipeline::ports::{MarkStoreError, Ticket};
use tidegate_state::Marks;
use tokio::runtime::Handle;
use tracing::warn;

use reading::{Broken, Reading};
use turns::{Extent, Turns};

/// Reads changelogs into the copies of one tier.
#[derive(Clone)]
pub(crate) struct Restorer {
    reader: LogReader,
    marks: Arc<Marks>,
    runtime: Handle,
    turns: Arc<Turns>,
    /// The ids of changelogs whose name another one had before: copies are of these by now, where they were made anew.
    later_logs: Arc<Mutex<BTreeMap<TopicPartition, String>>>,
}

impl Restorer {
    pub(crate) fn new(reader: LogReader, marks: Arc<Marks>, runtime: Handle) -> Self {
        let (turns, later_logs) = (Arc::new(Turns::new()), Arc::default());
        Self { reader, marks, runtime, turns, later_logs }
    }

    /// How much is to be read is seen in a turn for little: most copies miss little, and what does not is asked about once more.
    async fn in_turn(&self, request: &Arc<CatchUp>) -> Result<LocalCopy, MarkStoreError> {
        for extent in [Extent::Small, Extent::Large] {
            let _turn = self.turns.wait(extent).await;
            let (this, request) = (self.clone(), request.clone());
            let restored = tokio::task::spawn_blocking(move || this.restore(&request, extent)).await;
            let panicked = |error| MarkStoreError::Read(format!("restoring ended in the middle: {error}"));
            if let Some(copy) = restored.map_err(panicked).flatten()? {
                return Ok(copy);
            }
        }
        Err(MarkStoreError::Read("the changelog grew while it was read: it is tried again".to_owned()))
    }

    /// Reads what the copy misses; none: that is more than there is a turn for.
    fn restore(&self, request: &CatchUp, most: Extent) -> Result<Option<LocalCopy>, MarkStoreError> {
        let id = self.reader.id(&request.log).map_err(unreadable)?;
        let (first, _) = self.reader.bounds(&request.log).map_err(unreadable)?;
        let is_there = |position: &CommitPosition| (first..=request.until).contains(position);
        let has_copy = self.has_copy_of(&request.partition, &id);
        if has_copy && request.copy.position.filter(is_there).is_some() {
            match self.read(request, request.copy, first, most) {
                Err(Broken::Contradicted) => {}
                Err(Broken::Failed(error)) => return Err(error),
                Ok(reached) => return Ok(reached),
            }
        }
        match self.read(request, LocalCopy::default(), first, most) {
            Err(Broken::Failed(error)) => Err(error),
            // There is no copy that could be contradicted.
            Err(Broken::Contradicted) | Ok(None) => Ok(None),
            Ok(reached) if has_copy => Ok(reached),
            Ok(reached) => {
                self.later_logs.lock().insert(request.partition.clone(), id);
                Ok(reached)
            }
        }
    }

    fn read(
        &self,
        request: &CatchUp,
        copy: LocalCopy,
        first: CommitPosition,
        most: Extent,
    ) -> Result<Option<LocalCopy>, Broken> {
        let from = copy.position.unwrap_or(first);
        if most == Extent::Small && Extent::of(request.until.0 - from.0) == Extent::Large {
            return Ok(None);
        }
        if let (Some(position), None) = (request.copy.position, copy.position) {
            warn!(
                partition = %request.partition, %position, %first, until = %request.until,
                "the changelog does not reach back to the local copy, lost its end since, or is another one: the copy is made anew"
            );
        }
        let restoring = self.marks.restore(&request.partition, copy.position.is_none())?;
        let mut reading = Reading::new(request, copy, first, restoring);
        let from = reading.from();
        self.reader
            .read(&request.log, from, request.until, &mut |records| reading.take(records))
            .map_err(unreadable)?;
        reading.finish().map(Some)
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
        let (this, inbox, request) = (self.clone(), inbox.clone(), Arc::new(request));
        self.runtime.spawn(async move {
            let restored = this.in_turn(&request).await;
            inbox.push((ticket, restored));
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
