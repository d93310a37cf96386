//! Marks in memory: what is durable outlives the node that wrote it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_domain::{IdempotencyKey, Mark};
use tokio::time::Instant;

use super::faults::{Fate, Faults, Port};
use super::parcels::Parcels;
use crate::inbox::Inbox;
use crate::ports::{MarkEntry, MarkStore, MarkStoreError, MarksReady, Readiness, Ticket};
use crate::record::TopicPartition;

#[derive(Debug, Default)]
struct Remembered {
    mark: Mark,
    done_since: Option<Instant>,
    /// With what was appended and lost.
    ever: Mark,
}

/// The durable marks of all partitions.
#[derive(Debug, Default)]
pub struct MarkTable(
    Mutex<BTreeMap<TopicPartition, HashMap<IdempotencyKey, Remembered>>>,
    Mutex<BTreeMap<(TopicPartition, u64), Instant>>,
);

impl MarkTable {
    /// What is remembered of a key.
    pub fn get(&self, partition: &TopicPartition, key: &IdempotencyKey) -> Mark {
        self.read(partition, key, |known| known.mark)
    }

    /// What was ever remembered of a key, lost or not.
    pub fn ever(&self, partition: &TopicPartition, key: &IdempotencyKey) -> Mark {
        self.read(partition, key, |known| known.ever)
    }

    fn read(
        &self,
        partition: &TopicPartition,
        key: &IdempotencyKey,
        read: impl Fn(&Remembered) -> Mark,
    ) -> Mark {
        self.0.lock().get(partition).and_then(|marks| marks.get(key)).map(read).unwrap_or_default()
    }

    /// Since when a key is done, and nothing lost that.
    pub fn done_since(&self, partition: &TopicPartition, key: &IdempotencyKey) -> Option<Instant> {
        self.0.lock().get(partition)?.get(key)?.done_since
    }

    /// A node opens the partition: from then on it must know what was remembered before.
    pub(super) fn opened(&self, partition: &TopicPartition, node: u128) {
        let node = u64::try_from(node).unwrap_or(u64::MAX);
        self.1.lock().insert((partition.clone(), node), Instant::now());
    }

    /// When a node opened the partition last.
    pub fn opened_at(&self, partition: &TopicPartition, node: u64) -> Option<Instant> {
        self.1.lock().get(&(partition.clone(), node)).copied()
    }

    /// The partition's changelog lost its end: this is what it still says.
    pub(super) fn keep(&self, partition: &TopicPartition, kept: &HashMap<IdempotencyKey, Mark>) {
        let mut table = self.0.lock();
        for (key, known) in table.get_mut(partition).into_iter().flatten() {
            known.mark = kept.get(key).copied().unwrap_or_default();
            known.done_since = known.done_since.filter(|_| known.mark.done.is_some());
        }
    }

    /// Joins marks in, as an owner does whose append is durable.
    pub fn join(&self, partition: &TopicPartition, entries: &[MarkEntry]) {
        let mut table = self.0.lock();
        let marks = table.entry(partition.clone()).or_default();
        for entry in entries {
            let known = marks.entry(entry.key).or_default();
            known.mark = known.mark.join(entry.mark);
            known.ever = known.ever.join(entry.mark);
            if known.mark.done.is_some() {
                known.done_since.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// The mark store of one node.
#[derive(Debug)]
pub struct FakeMarks {
    table: Arc<MarkTable>,
    faults: Faults,
    open: Arc<Mutex<BTreeSet<TopicPartition>>>,
    pub(super) parcels: Parcels,
    looked_up: Mutex<usize>,
    appended: Mutex<Vec<usize>>,
}

impl FakeMarks {
    /// A store over `table` whose every call asks `faults`.
    pub fn new(table: Arc<MarkTable>, faults: Faults) -> Self {
        Self {
            table,
            faults,
            open: Arc::default(),
            parcels: Parcels::default(),
            looked_up: Mutex::default(),
            appended: Mutex::default(),
        }
    }

    /// How many keys were looked up.
    pub fn looked_up(&self) -> usize {
        *self.looked_up.lock()
    }

    /// Of each append: how many entries.
    pub fn appends(&self) -> Vec<usize> {
        self.appended.lock().clone()
    }

    /// Whether the partition is open.
    pub fn is_open(&self, partition: &TopicPartition) -> bool {
        self.open.lock().contains(partition)
    }
}

impl MarkStore for FakeMarks {
    fn open(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<MarksReady>>) {
        let (inbox, open, at) = (inbox.clone(), self.open.clone(), partition.clone());
        let (opens, wait) = self.faults.fate(&Port::Open).answer();
        self.parcels.send(&format!("open {partition}"), wait, move || {
            let answer = if opens {
                open.lock().insert(at);
                Ok(Readiness::default())
            } else {
                Err(MarkStoreError::Read("drawn".to_owned()))
            };
            inbox.push((ticket, answer));
        });
    }

    fn look_up(
        &self,
        partition: &TopicPartition,
        keys: &[IdempotencyKey],
        found: &mut Vec<Mark>,
    ) -> Result<(), MarkStoreError> {
        if !self.is_open(partition) {
            return Err(MarkStoreError::NotOpen(partition.clone()));
        }
        *self.looked_up.lock() += keys.len();
        found.extend(keys.iter().map(|key| self.table.get(partition, key)));
        match self.faults.fate(&Port::LookUp) {
            Fate::Succeeds(_) => Ok(()),
            // What was found so far must not be used.
            _ => Err(MarkStoreError::Read("drawn".to_owned())),
        }
    }

    fn append(
        &self,
        partition: &TopicPartition,
        entries: &[MarkEntry],
        ticket: Ticket,
        inbox: &Arc<Inbox<MarksReady>>,
    ) {
        self.appended.lock().push(entries.len());
        let (table, at, entries, inbox) =
            (self.table.clone(), partition.clone(), entries.to_vec(), inbox.clone());
        let (arrives, fails, wait) = match self.faults.fate(&Port::Append) {
            Fate::Succeeds(wait) => (true, false, wait),
            Fate::LosesAnswer(wait) => (true, true, wait),
            Fate::Fails(wait) | Fate::FailsTooLarge(wait) => (false, true, wait),
            Fate::Full | Fate::Refused | Fate::TooLarge => (false, true, std::time::Duration::ZERO),
        };
        self.parcels.send(&format!("append {partition}"), wait, move || {
            if arrives {
                table.join(&at, &entries);
            }
            let answer =
                if fails { Err(MarkStoreError::Write("drawn".to_owned())) } else { Ok(Readiness::default()) };
            inbox.push((ticket, answer));
        });
    }

    fn close(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<MarksReady>>) {
        self.open.lock().remove(partition);
        inbox.push((ticket, Ok(Readiness::default())));
    }
}
