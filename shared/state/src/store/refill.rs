//! What a restore does to a store: one at a time for each partition, and nothing once the partition was opened anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use tidegate_domain::{CommitPosition, UnixMillis};
use tidegate_pipeline::changelog::{LastRecord, Opener};
use tidegate_pipeline::ports::{MarkEntry, MarkStoreError};
use tidegate_pipeline::record::TopicPartition;
use tracing::debug;

use super::{Access, Slot, Store};
use crate::database::{Database, Progress};
use crate::entry::{self, Row};
use crate::error::Fault;
use crate::filter::KeyFilter;
use crate::home;
use crate::partition::OpenPartition;

/// How many files may wait to be compacted: sixteen million marks.
const FILES: u32 = 32;

/// The right to restore a partition, until another restore of it begins or it is opened anew.
pub(crate) struct Refill {
    store: Arc<Store>,
    at: TopicPartition,
    partition: Arc<OpenPartition>,
    number: u64,
    /// Files that were taken over.
    files: AtomicU32,
}

impl Refill {
    /// Begins to restore an open partition; from scratch, what is there is removed first.
    pub(crate) fn begin(
        store: &Arc<Store>,
        at: &TopicPartition,
        from_scratch: bool,
    ) -> Result<Self, MarkStoreError> {
        let partition = store.partition(at)?;
        let latest = store.shared(&partition.family).restore;
        let mut latest = latest.lock();
        *latest += 1;
        let refill = Self {
            store: Arc::clone(store),
            at: at.clone(),
            partition,
            number: *latest,
            files: AtomicU32::new(0),
        };
        if from_scratch {
            refill.empty()?;
        }
        Ok(refill)
    }

    fn empty(&self) -> Result<(), MarkStoreError> {
        let (store, partition) = (&self.store, &self.partition);
        partition.emptied.store(true, Ordering::Release);
        self.with_database(|database| {
            database.empty_family(&partition.family, &store.tuning, partition.time.clone())
        })?;
        partition.time.forget();
        let budget = store.settings.memory.filter_per_partition;
        *partition.filter.lock() = KeyFilter::new(budget, store.tuning.retention, 0);
        Ok(())
    }

    fn with_database<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, Fault>,
    ) -> Result<T, MarkStoreError> {
        self.store.with_partition(&self.at, &self.partition, Access::Write, work)
    }

    /// Changes what is stored, if this is still the restore that may.
    fn write<T>(&self, work: impl FnOnce(&Database, &str) -> Result<T, Fault>) -> Result<T, MarkStoreError> {
        let latest = self.store.shared(&self.partition.family).restore;
        let latest = latest.lock();
        let is_open = matches!(
            self.store.slots.read().get(&self.at),
            Some(Slot::Open(open)) if Arc::ptr_eq(open, &self.partition)
        );
        if *latest != self.number || !is_open {
            return Err(MarkStoreError::NotOpen(self.at.clone()));
        }
        self.with_database(|database| work(database, &self.partition.family))
    }

    /// Takes note of keys that will be stored, so that no look-up is denied them, and gives the partition's time.
    pub(crate) fn note(&self, entries: &[MarkEntry], append_time: UnixMillis) -> UnixMillis {
        let now = self.partition.time.advance(entry::storable(append_time), Instant::now());
        let mut filter = self.partition.filter.lock();
        for entry in entries {
            filter.insert(&entry.key, now);
        }
        now
    }

    /// Whether what was appended `at` is forgotten already.
    pub(crate) fn is_over(&self, at: UnixMillis) -> bool {
        self.store.tuning.retention.is_over(at, self.partition.time.now())
    }

    pub(crate) fn join(&self, rows: &[Row]) -> Result<(), MarkStoreError> {
        self.write(|database, family| database.join(family, rows))
    }

    pub(crate) fn ingest(&self, file: &Path) -> Result<(), MarkStoreError> {
        let taken_before = self.files.fetch_add(1, Ordering::Relaxed);
        self.write(|database, family| {
            // Compacting what comes at once would take the processor from what is to be ready soon.
            if taken_before == 0 {
                database.compact_by_itself(family, false)?;
            }
            // But a look-up must not search too many files at the end.
            if taken_before == FILES {
                database.compact_by_itself(family, true)?;
            }
            database.ingest(family, file)
        })
    }

    /// Stores how far the copy goes. On the disk, where files were taken over: they need not be read again after a crash.
    pub(crate) fn conclude(
        &self,
        position: CommitPosition,
        opener: Option<Opener>,
        last: Option<LastRecord>,
    ) -> Result<(), MarkStoreError> {
        let progress = Progress { now: self.partition.time.now(), position, opener, last };
        self.write(|database, family| {
            database.conclude(family, &progress)?;
            if self.files.load(Ordering::Relaxed) > 0 { database.flush_family(family) } else { Ok(()) }
        })?;
        self.partition.emptied.store(false, Ordering::Release);
        self.store.measure(&self.at, &self.partition);
        Ok(())
    }

    /// A path for a file of this restore, which nobody else uses.
    pub(crate) fn file(&self, run: u64) -> PathBuf {
        let name = format!("{}.{}.{run}.sst", self.partition.family, self.number);
        home::restores(&self.store.settings.dir).join(name)
    }

    pub(crate) fn options(&self) -> rocksdb::Options {
        self.store.tuning.family(self.partition.time.clone())
    }
}

impl Drop for Refill {
    fn drop(&mut self) {
        if self.files.load(Ordering::Relaxed) == 0 {
            return;
        }
        let compacting =
            self.with_database(|database| database.compact_by_itself(&self.partition.family, true));
        if let Err(error) = compacting {
            // A database that is opened anew compacts by itself.
            debug!(%error, "files of a restore stay as they are for now");
        }
    }
}
