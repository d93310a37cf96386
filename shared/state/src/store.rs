//! All of a store together: its directory, its database, its open partitions. Every call that the port makes ends here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use tidegate_domain::{IdempotencyKey, Mark, Topic, UnixMillis};
use tidegate_pipeline::changelog::{LocalCopy, Stretch};
use tidegate_pipeline::ports::MarkStoreError;
use tidegate_pipeline::record::TopicPartition;

use crate::background::Trouble;
use crate::database::{Batch, Database, Progress};
use crate::entry::{self, Stored};
use crate::error::OpenError;
use crate::events::StoreMetrics;
use crate::expiry::{BrokerTime, Retention};
use crate::filter::KeyFilter;
use crate::home::Home;
use crate::options::Tuning;
use crate::partition::{OpenPartition, family_of};
use crate::settings::Settings;

mod access;
mod heal;
mod refill;

use access::Access;

pub(crate) use refill::Refill;

/// Keys that are read at once when a filter is built, so that a database that must be closed is not held for long.
const SCAN: usize = 50_000;
/// What must be free before a database that could not be written is opened again, so that it is not opened in vain.
const ROOM: usize = 4 << 20;
const OPENING_AGAIN: &str = "the local state is being opened again after a fault; try again";

/// What a column family has for itself, however often the database is opened again.
#[derive(Clone)]
pub(crate) struct Family {
    pub(crate) time: BrokerTime,
    /// The number of the latest restore. Locked while one changes what is stored: an older one then changes nothing.
    pub(crate) restore: Arc<Mutex<u64>>,
}

enum Slot {
    /// Being made ready, by the opening of this number.
    Opening(u64),
    Open(Arc<OpenPartition>),
}

/// What is left to do about a fault.
#[derive(Debug)]
pub(crate) enum Treatment {
    Done,
    /// Try to open the database again, later.
    Open,
    /// Try to set the directory aside, later.
    SetAside(String),
}

/// How much a partition's marks take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSize {
    /// Keys, as RocksDB estimates them.
    pub keys: u64,
    /// Bytes on disk and in write buffers.
    pub bytes: u64,
    /// Bytes of the in-memory filter; none where there is none, or the partition is not open.
    pub filter_bytes: usize,
}

pub(crate) struct Store {
    settings: Settings,
    tuning: Tuning,
    home: Mutex<Home>,
    /// Or why there is none. Who finds it locked for writing does not wait: a shard must go on.
    database: RwLock<Result<Database, String>>,
    databases: AtomicU64,
    /// What lasts over databases, by column family.
    families: Mutex<HashMap<String, Family>>,
    slots: RwLock<HashMap<TopicPartition, Slot>>,
    openings: AtomicU64,
    troubles: Sender<Trouble>,
    ailing: AtomicBool,
    closing: AtomicBool,
    metrics: StoreMetrics,
}

impl Store {
    pub(crate) fn open(settings: Settings, troubles: Sender<Trouble>) -> Result<Self, OpenError> {
        let home = Home::take(&settings.dir, settings.parents, &settings.provenance)?;
        let store = Self {
            tuning: Tuning::new(&settings.memory, Retention(settings.retention)),
            settings,
            home: Mutex::new(home),
            database: RwLock::new(Err("it was not opened yet".to_owned())),
            databases: AtomicU64::new(0),
            families: Mutex::default(),
            slots: RwLock::default(),
            openings: AtomicU64::new(0),
            troubles,
            ailing: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            metrics: StoreMetrics::new(),
        };
        let database = store.open_database()?;
        *store.database.write() = Ok(database);
        Ok(store)
    }

    /// Takes note that `at` is to be opened, and gives the opening's number; `None` when it is open already.
    pub(crate) fn begin_opening(&self, at: &TopicPartition) -> Option<u64> {
        let opening = self.openings.fetch_add(1, Ordering::Relaxed);
        match self.slots.write().entry(at.clone()) {
            Entry::Occupied(slot) if matches!(slot.get(), Slot::Open(_)) => return None,
            Entry::Occupied(mut slot) => *slot.get_mut() = Slot::Opening(opening),
            Entry::Vacant(slot) => _ = slot.insert(Slot::Opening(opening)),
        }
        Some(opening)
    }

    /// Makes a partition ready, and says how far its copy goes. Takes as long as it takes to read its keys.
    pub(crate) fn finish_opening(
        &self,
        at: &TopicPartition,
        opening: u64,
    ) -> Result<LocalCopy, MarkStoreError> {
        let prepared = self.prepare(at);
        let mut slots = self.slots.write();
        match slots.get(at) {
            Some(Slot::Opening(latest)) if *latest == opening => {}
            // Closed meanwhile, or opened again: only the latest opening counts.
            _ => return Err(MarkStoreError::NotOpen(at.clone())),
        }
        match prepared {
            Ok((partition, copy)) => {
                slots.insert(at.clone(), Slot::Open(Arc::new(partition)));
                Ok(copy)
            }
            Err(error) => {
                slots.remove(at);
                Err(error)
            }
        }
    }

    fn prepare(&self, at: &TopicPartition) -> Result<(OpenPartition, LocalCopy), MarkStoreError> {
        if !self.settings.provenance.topics.contains_key(&at.topic) {
            let reason = format!("topic {} has no identity in the store's settings: add it", at.topic);
            return Err(MarkStoreError::Read(reason));
        }
        let family = family_of(at);
        let time = self.time_of(&family);
        let number = self.with_database(at, Access::Write, |database| {
            database.ensure_family(&family, &self.tuning, time.clone())?;
            Ok(database.number)
        })?;
        let (newest, copy, (keys, _)) = self.with_database(at, Access::Read, |database| {
            let database = database.numbered(number)?;
            Ok((database.newest(&family)?, database.copy(&family)?, database.size(&family)?))
        })?;
        if let Some(newest) = newest {
            time.resume(newest, Instant::now());
        }
        let expected = usize::try_from(keys).unwrap_or(usize::MAX);
        let mut partition = OpenPartition::new(at, number, time, KeyFilter::new(0, self.tuning.retention, 0));
        partition.filter = Mutex::new(self.build_filter(at, &partition, expected)?);
        self.measure(at, &partition);
        Ok((partition, copy))
    }

    fn build_filter(
        &self,
        at: &TopicPartition,
        partition: &OpenPartition,
        expected: usize,
    ) -> Result<KeyFilter, MarkStoreError> {
        let (retention, newest) = (self.tuning.retention, partition.time.now());
        let mut filter = KeyFilter::new(self.settings.memory.filter_per_partition, retention, expected);
        let mut after = None;
        while !filter.overflowed() && !self.closing.load(Ordering::Relaxed) {
            let show = |key: &IdempotencyKey, at| {
                if !retention.is_over(at, newest) {
                    filter.insert_found(key, at);
                }
            };
            after = self.with_partition(at, partition, Access::Read, |database| {
                database.scan(&partition.family, after, SCAN, show)
            })?;
            if after.is_none() {
                break;
            }
        }
        Ok(filter)
    }

    pub(crate) fn close(&self, at: &TopicPartition) {
        if let Some(Slot::Open(partition)) = self.slots.write().remove(at) {
            partition.metrics.clear();
        }
    }

    /// Appends what is remembered of each key to `found`, in order.
    pub(crate) fn look_up(
        &self,
        at: &TopicPartition,
        keys: &[IdempotencyKey],
        found: &mut Vec<Mark>,
    ) -> Result<(), MarkStoreError> {
        let partition = self.whole_partition(at)?;
        self.metrics.lookups.increment(keys.len() as u64);
        let maybe = partition.maybe(keys);
        let mut stored = Vec::new();
        if !maybe.is_empty() {
            let sorted: Vec<&IdempotencyKey> = maybe.iter().map(|&place| &keys[place]).collect();
            stored = self.with_partition(at, &partition, Access::Read, |database| {
                database.get_sorted(&partition.family, &sorted)
            })?;
        }
        let first = found.len();
        found.resize(first + keys.len(), Mark::default());
        let newest = partition.time.now();
        let mut hits = 0;
        for (place, stored) in maybe.iter().zip(&stored) {
            let Some(Stored { mark, at }) = stored else { continue };
            hits += 1;
            if !self.tuning.retention.is_over(*at, newest) {
                found[first + place] = *mark;
            }
        }
        self.metrics.hits.increment(hits);
        self.metrics.false_positives.increment(maybe.len() as u64 - hits);
        Ok(())
    }

    /// Joins a stretch of the changelog into what is stored, all or nothing.
    pub(crate) fn apply(&self, at: &TopicPartition, stretch: &Stretch<'_>) -> Result<(), MarkStoreError> {
        let partition = self.whole_partition(at)?;
        let &Stretch { entries, append_time, position, opener, last } = stretch;
        let now = partition.time.advance(entry::storable(append_time), Instant::now());
        {
            // Before the write, so that no look-up is denied what is written already. Should the write fail, a key too many
            // in the filter costs a look-up.
            let mut filter = partition.filter.lock();
            for entry in entries {
                filter.insert(&entry.key, now);
            }
        }
        let batch = Batch { entries, progress: Progress { now, position, opener, last } };
        self.with_partition(at, &partition, Access::Write, |database| {
            database.apply(&partition.family, &batch)
        })?;
        self.metrics.appended.increment(entries.len() as u64);
        if partition.measure_now() {
            self.measure(at, &partition);
        }
        Ok(())
    }

    pub(crate) fn changelog_of(&self, topic: &Topic) -> Option<&str> {
        self.settings.provenance.topics.get(topic)?.changelog.as_deref()
    }

    /// How far the copy of an open partition goes.
    pub(crate) fn copy(&self, at: &TopicPartition) -> Result<LocalCopy, MarkStoreError> {
        let partition = self.partition(at)?;
        self.with_partition(at, &partition, Access::Read, |database| database.copy(&partition.family))
    }

    pub(crate) fn inspect(
        &self,
        at: &TopicPartition,
        key: &IdempotencyKey,
    ) -> Result<Option<(Mark, UnixMillis)>, MarkStoreError> {
        let family = family_of(at);
        let stored = self.with_database(at, Access::Read, |database| {
            if database.has_family(&family) { database.get(&family, key) } else { Ok(None) }
        })?;
        Ok(stored.map(|Stored { mark, at }| (mark, at)))
    }

    pub(crate) fn size(&self, at: &TopicPartition) -> Result<PartitionSize, MarkStoreError> {
        let family = family_of(at);
        let (keys, bytes) = self.with_database(at, Access::Read, |database| {
            if database.has_family(&family) { database.size(&family) } else { Ok((0, 0)) }
        })?;
        let filter_bytes = self.partition(at).map_or(0, |partition| partition.filter.lock().bytes());
        Ok(PartitionSize { keys, bytes, filter_bytes })
    }

    pub(crate) fn compact(&self, at: &TopicPartition) -> Result<(), MarkStoreError> {
        let partition = self.partition(at)?;
        self.with_partition(at, &partition, Access::Write, |database| database.compact(&partition.family))
    }

    fn partition(&self, at: &TopicPartition) -> Result<Arc<OpenPartition>, MarkStoreError> {
        match self.slots.read().get(at) {
            Some(Slot::Open(partition)) => Ok(Arc::clone(partition)),
            _ => Err(MarkStoreError::NotOpen(at.clone())),
        }
    }

    /// An open partition that holds all that its position claims.
    fn whole_partition(&self, at: &TopicPartition) -> Result<Arc<OpenPartition>, MarkStoreError> {
        let partition = self.partition(at)?;
        if partition.emptied.load(Ordering::Acquire) {
            return Err(MarkStoreError::NotOpen(at.clone()));
        }
        Ok(partition)
    }

    fn shared(&self, family: &str) -> Family {
        let fresh = || Family { time: BrokerTime::new(self.tuning.retention), restore: Arc::default() };
        self.families.lock().entry(family.to_owned()).or_insert_with(fresh).clone()
    }

    /// The time by which a column family's marks expire.
    fn time_of(&self, family: &str) -> BrokerTime {
        self.shared(family).time
    }

    fn measure(&self, at: &TopicPartition, partition: &OpenPartition) {
        partition.metrics.filter_bytes.set(partition.filter.lock().bytes() as f64);
        let size =
            self.with_partition(at, partition, Access::Read, |database| database.size(&partition.family));
        if let Ok((keys, bytes)) = size {
            partition.metrics.keys.set(keys as f64);
            partition.metrics.bytes.set(bytes as f64);
        }
    }
}
