//! The store as the pipeline sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use tidegate_domain::{IdempotencyKey, Mark, Topic, UnixMillis};
use tidegate_pipeline::Inbox;
use tidegate_pipeline::changelog::{LocalReady, MarkTable, Stretch};
use tidegate_pipeline::ports::{MarkStoreError, Ticket};
use tidegate_pipeline::record::TopicPartition;

use crate::background::{self, FLUSH_EVERY, Opening};
use crate::error::OpenError;
use crate::restore::Restoring;
use crate::settings::Settings;
use crate::store::{PartitionSize, Refill, Store};

/// The local copies of marks on this machine's disk. Dropping it flushes and closes the database, and waits for what runs in the
/// background.
pub struct Marks {
    store: Arc<Store>,
    /// `None` only while it is dropped.
    openings: Option<Sender<Opening>>,
    threads: Vec<JoinHandle<()>>,
}

impl Marks {
    /// Opens the store of a directory. What is there and foreign or corrupt is set aside beside it, with a warning, and the
    /// store is empty then. Blocks for some milliseconds.
    pub fn open_dir(settings: Settings) -> Result<Self, OpenError> {
        let dir = settings.dir.clone();
        let (troubles, heard) = mpsc::channel();
        let (openings, asked) = mpsc::channel();
        let store = Arc::new(Store::open(settings, troubles)?);
        let threads = background::start(&store, asked, heard, FLUSH_EVERY).map_err(|error| {
            store.stop();
            OpenError::of_io(&dir, &error)
        })?;
        Ok(Self { store, openings: Some(openings), threads })
    }

    /// Begins to restore an open partition from its changelog. From scratch, what is there is removed first, and the partition answers
    /// no look-up until it is restored; else marks are added to what is there. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`MarkStoreError::NotOpen`]: the partition must be opened first. [`MarkStoreError::Write`]: it could not be emptied.
    pub fn restore(&self, at: &TopicPartition, from_scratch: bool) -> Result<Restoring, MarkStoreError> {
        Ok(Restoring::new(Refill::begin(&self.store, at, from_scratch)?))
    }

    /// The id of the changelog that a topic's copies are of, as the settings say: whoever fills them asks whether he reads that one.
    pub fn changelog_of(&self, topic: &Topic) -> Option<&str> {
        self.store.changelog_of(topic)
    }

    /// Writes to files what is in memory only, of all partitions. It happens by itself: every few minutes, when there is much of it,
    /// and when this is dropped.
    ///
    /// # Errors
    /// [`MarkStoreError::Write`]: the disk is full, or fails.
    pub fn flush(&self) -> Result<(), MarkStoreError> {
        self.store.flush()
    }

    /// What is stored of one key, and the partition's time at its last append; expired or not, and whether or not the partition is open.
    pub fn inspect(
        &self,
        partition: &TopicPartition,
        key: &IdempotencyKey,
    ) -> Result<Option<(Mark, UnixMillis)>, MarkStoreError> {
        self.store.inspect(partition, key)
    }

    /// How much a partition's marks take.
    pub fn size(&self, partition: &TopicPartition) -> Result<PartitionSize, MarkStoreError> {
        self.store.size(partition)
    }

    /// Rewrites a partition's files, so that what is expired leaves the disk now. It happens by itself, later.
    pub fn compact(&self, partition: &TopicPartition) -> Result<(), MarkStoreError> {
        self.store.compact(partition)
    }
}

impl MarkTable for Marks {
    fn open(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LocalReady>>) {
        let Some(number) = self.store.begin_opening(partition) else {
            inbox.push((ticket, self.store.copy(partition)));
            return;
        };
        let opening = Opening { at: partition.clone(), number, ticket, inbox: Arc::clone(inbox) };
        if self.openings.as_ref().is_none_or(|openings| openings.send(opening).is_err()) {
            inbox.push((ticket, Err(MarkStoreError::NotOpen(partition.clone()))));
        }
    }

    fn look_up(
        &self,
        partition: &TopicPartition,
        keys: &[IdempotencyKey],
        found: &mut Vec<Mark>,
    ) -> Result<(), MarkStoreError> {
        self.store.look_up(partition, keys, found)
    }

    fn apply(&self, partition: &TopicPartition, stretch: &Stretch<'_>) -> Result<(), MarkStoreError> {
        self.store.apply(partition, stretch)
    }

    fn close(&self, partition: &TopicPartition) {
        self.store.close(partition);
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.openings = None;
        self.store.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store of marks panicked");
            }
        }
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").finish_non_exhaustive()
    }
}
