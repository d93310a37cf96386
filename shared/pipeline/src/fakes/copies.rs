//! Local copies of marks on a machine's disk, and their reader: what a [`Changelog`](crate::changelog::Changelog) works with.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark};

use super::dice::Dice;
use super::faults::{Fate, Faults, Port};
use super::log::FakeLog;
use super::node::Life;
use super::parcels::Parcels;
use crate::changelog::format::{self, Entry};
use crate::changelog::{
    CatchUp, CaughtUp, ChangelogReader, LastRecord, LocalCopy, LocalReady, LogEnd, MarkTable, Opener, Stretch,
};
use crate::inbox::Inbox;
use crate::ports::{MarkEntry, MarkStoreError, Ticket};
use crate::record::TopicPartition;

#[derive(Clone, Debug, Default)]
struct Copy {
    local: LocalCopy,
    marks: HashMap<IdempotencyKey, Mark>,
}

impl Copy {
    fn join(&mut self, entries: &[MarkEntry]) {
        for entry in entries {
            let known = self.marks.entry(entry.key).or_default();
            *known = known.join(entry.mark);
        }
    }
}

#[derive(Debug)]
struct State {
    /// As the process sees them.
    copies: BTreeMap<TopicPartition, Copy>,
    /// As they would be found after its death.
    flushed: BTreeMap<TopicPartition, Copy>,
    dice: Dice,
}

/// One machine's disk. What a process wrote last is lost with it, unless it was flushed.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    /// An empty one.
    pub fn new(dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(State { copies: BTreeMap::new(), flushed: BTreeMap::new(), dice })))
    }

    /// The process died: what it had not flushed is gone.
    pub fn lose_unflushed(&self) {
        let mut state = self.0.lock();
        state.copies = state.flushed.clone();
    }

    /// The disk is another one.
    pub fn lose_all(&self) {
        let mut state = self.0.lock();
        state.copies.clear();
        state.flushed.clear();
    }

    /// What the copy says of a key.
    pub fn get(&self, at: &TopicPartition, key: &IdempotencyKey) -> Mark {
        let state = self.0.lock();
        state.copies.get(at).and_then(|copy| copy.marks.get(key)).copied().unwrap_or_default()
    }

    /// How far the copy goes.
    pub fn position(&self, at: &TopicPartition) -> Option<CommitPosition> {
        self.0.lock().copies.get(at)?.local.position
    }
}

/// The copies of one process.
#[derive(Debug)]
pub struct FakeTable {
    /// Where they lie.
    pub disk: Disk,
    faults: Faults,
    life: Life,
    /// Each with the number of its opening: what was begun in an earlier one changes nothing.
    open: Arc<Mutex<BTreeMap<TopicPartition, u64>>>,
    openings: Arc<AtomicU64>,
    pub(super) parcels: Parcels,
}

impl FakeTable {
    /// The copies on a disk, for one process.
    pub fn new(disk: Disk, faults: Faults, life: Life) -> Self {
        Self {
            disk,
            faults,
            life,
            open: Arc::default(),
            openings: Arc::default(),
            parcels: Parcels::default(),
        }
    }

    fn opening(&self, at: &TopicPartition) -> Option<u64> {
        self.open.lock().get(at).copied()
    }

    fn is_open(&self, at: &TopicPartition) -> bool {
        self.opening(at).is_some()
    }

    /// The copy is lost while it is open, as when its directory is set aside.
    pub fn set_aside(&self, at: &TopicPartition) {
        self.open.lock().remove(at);
        let mut state = self.disk.0.lock();
        state.copies.remove(at);
        state.flushed.remove(at);
    }
}

impl MarkTable for FakeTable {
    fn open(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LocalReady>>) {
        let (inbox, open, at, disk) =
            (inbox.clone(), self.open.clone(), partition.clone(), self.disk.clone());
        let (opens, wait) = self.faults.fate(&Port::Open).answer();
        let opening = self.openings.fetch_add(1, Ordering::Relaxed);
        self.parcels.send(&format!("open {partition}"), wait, move || {
            let answer = if opens {
                let local = disk.0.lock().copies.get(&at).map(|copy| copy.local).unwrap_or_default();
                open.lock().entry(at).or_insert(opening);
                Ok(local)
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
        found.extend(keys.iter().map(|key| self.disk.get(partition, key)));
        match self.faults.fate(&Port::LookUp) {
            Fate::Succeeds(_) => Ok(()),
            _ => Err(MarkStoreError::Read("drawn".to_owned())),
        }
    }

    fn apply(&self, partition: &TopicPartition, stretch: &Stretch<'_>) -> Result<(), MarkStoreError> {
        let fate = self.faults.fate(&Port::Append);
        if matches!(fate, Fate::TooLarge | Fate::FailsTooLarge(_)) {
            self.set_aside(partition);
        }
        if !self.is_open(partition) {
            return Err(MarkStoreError::NotOpen(partition.clone()));
        }
        if !matches!(fate, Fate::Succeeds(_) | Fate::LosesAnswer(_)) {
            return Err(MarkStoreError::Write("drawn".to_owned()));
        }
        let mut state = self.disk.0.lock();
        let copy = state.copies.entry(partition.clone()).or_default();
        let &Stretch { entries, position, opener, last, .. } = stretch;
        copy.join(entries);
        copy.local = LocalCopy { position: Some(position), opener, last };
        if state.dice.chance(10) {
            state.flushed = state.copies.clone();
        }
        if matches!(fate, Fate::LosesAnswer(_)) {
            return Err(MarkStoreError::Write("drawn".to_owned()));
        }
        Ok(())
    }

    fn close(&self, partition: &TopicPartition) {
        self.open.lock().remove(partition);
    }
}

/// Reads a [`FakeLog`] into the copies of one process.
#[derive(Debug)]
pub struct FakeReader {
    /// What it reads.
    pub log: Arc<FakeLog>,
    /// What it fills.
    pub table: Arc<FakeTable>,
    /// Whose calls go wrong.
    pub faults: Faults,
}

impl ChangelogReader for FakeReader {
    fn catch_up(&self, request: CatchUp, ticket: Ticket, inbox: &Arc<Inbox<CaughtUp>>) {
        let (log, table, inbox) = (self.log.clone(), self.table.clone(), inbox.clone());
        let (works, wait) = self.faults.fate(&Port::Fetch(request.log.topic.to_string())).answer();
        let opening = table.opening(&request.partition);
        self.table.parcels.send(&format!("read {}", request.log), wait, move || {
            let answer = if !works {
                Err(MarkStoreError::Read("drawn".to_owned()))
            } else if opening.is_none() || table.opening(&request.partition) != opening {
                Err(MarkStoreError::NotOpen(request.partition.clone()))
            } else if table.life.is_over() {
                return;
            } else if log.end(&request.log) < request.until {
                Err(MarkStoreError::Read(format!("it ends before {}", request.until)))
            } else {
                Ok(read(&log, &request, &mut table.disk.0.lock()))
            };
            inbox.push((ticket, answer));
        });
    }

    fn end(&self, log: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LogEnd>>) {
        let (end, inbox) = (self.log.end(log), inbox.clone());
        let (works, wait) = self.faults.fate(&Port::Fetch(log.topic.to_string())).answer();
        let answer = if works { Ok(end) } else { Err(MarkStoreError::Read("drawn".to_owned())) };
        self.table.parcels.send(&format!("end of {log}"), wait, move || inbox.push((ticket, answer)));
    }
}

fn read(log: &FakeLog, request: &CatchUp, state: &mut State) -> LocalCopy {
    let copy = state.copies.entry(request.partition.clone()).or_default();
    let found = request.copy;
    if !is_of(log, request) {
        *copy = Copy::default();
    }
    let mut reached = if copy.local.position.is_some() { found } else { LocalCopy::default() };
    let from = reached.position.unwrap_or(CommitPosition(0));
    for record in log.between(&request.log, from, request.until) {
        let value = record.value().unwrap_or_default();
        match format::read(value) {
            Ok((_, Entry::Marks(entries))) => copy.join(&entries),
            Ok((id, Entry::Opened { window })) => {
                reached.opener = Some(Opener::opened(reached.opener, id, window));
            }
            Ok((id, Entry::Closed)) => reached.opener = Opener::closed(reached.opener, id),
            Err(error) => unreachable!("what was written is read: {error}"),
        }
        reached.last = Some(LastRecord::of(record.offset(), value));
    }
    reached.position = Some(request.until);
    copy.local = reached;
    reached
}

/// Whether the copy is one of this log, as far as it goes.
fn is_of(log: &FakeLog, request: &CatchUp) -> bool {
    let Some(position) = request.copy.position.filter(|position| *position <= request.until) else {
        return false;
    };
    request.copy.last.is_none_or(|last| {
        let there = log.between(&request.log, CommitPosition(last.offset.0), position);
        there
            .first()
            .is_some_and(|record| LastRecord::of(record.offset(), record.value().unwrap_or_default()) == last)
    })
}
