//! Topics in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_domain::{CommitPosition, Offset, Partition, Topic};
use tokio::time::Instant;

use super::clock::FakeClock;
use super::faults::{Fate, Faults, Port};
use crate::changelog::{OpenerId, format};
use crate::inbox::Wake;
use crate::ports::{Acknowledged, Clock, Fetched, RecordSource, SourceError};
use crate::record::{OutboundRecord, Record, RecordBuilder, TopicPartition};

#[derive(Debug, Default)]
struct PartitionLog {
    records: Vec<Record>,
    end: i64,
    readers: Vec<(u64, Wake)>,
    /// What its readers meet next, instead of records.
    errors: VecDeque<SourceError>,
    /// Where its reader goes on, out of order.
    seek: Option<i64>,
}

#[derive(Debug, Default)]
struct State {
    topics: BTreeMap<String, Vec<PartitionLog>>,
    readers: u64,
}

/// Topics with partitions; records are stamped with the broker's clock.
#[derive(Debug)]
pub struct FakeLog {
    state: Mutex<State>,
    clock: FakeClock,
    watchers: Mutex<BTreeMap<String, Watcher>>,
    nobodies: AtomicU64,
}

type Watch = dyn Fn(Partition, &Record) + Send;

/// Sees each record of a topic at the moment that it is appended.
pub struct Watcher(Box<Watch>);

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

impl FakeLog {
    /// No topics yet; its clock begins at `begin`.
    pub fn new(begin: Instant) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            clock: FakeClock::new(begin, 0),
            watchers: Mutex::default(),
            nobodies: AtomicU64::new(0),
        })
    }

    /// Shows each record that is appended to a topic to `watcher`.
    pub fn watch(&self, topic: &Topic, watcher: impl Fn(Partition, &Record) + Send + 'static) {
        self.watchers.lock().insert(topic.to_string(), Watcher(Box::new(watcher)));
    }

    /// Makes a topic, unless there is one.
    pub fn create(&self, topic: &Topic, partitions: usize) {
        let mut state = self.state.lock();
        let logs = state.topics.entry(topic.to_string()).or_default();
        logs.resize_with(partitions.max(logs.len()), PartitionLog::default);
    }

    /// Appends a record; `None`: there is no such topic or partition.
    pub fn append(&self, record: &OutboundRecord<'_>) -> Option<Acknowledged> {
        let mut state = self.state.lock();
        let logs = state.topics.get_mut(record.topic.as_str())?;
        let by_key =
            record.key.unwrap_or_default().iter().map(|&byte| usize::from(byte)).sum::<usize>() % logs.len();
        let partition = record
            .partition
            .map_or(by_key, |Partition(number)| usize::try_from(number).unwrap_or(usize::MAX));
        let log = logs.get_mut(partition)?;
        let offset = Offset(log.end);
        let append_time = self.clock.wall();
        let mut builder = RecordBuilder::new(offset, Some(append_time), record.key, record.value, 256);
        for (name, value) in record.headers {
            builder.header(name, *value);
        }
        let appended = builder.build();
        log.records.push(appended.clone());
        log.end += 1;
        log.readers.iter().for_each(|(_, wake)| wake.wake());
        drop(state);
        if let Some(watcher) = self.watchers.lock().get(record.topic.as_str()) {
            (watcher.0)(Partition(i32::try_from(partition).unwrap_or(0)), &appended);
        }
        Some(Acknowledged { offset, append_time })
    }

    /// Leaves a gap, as compaction and transaction markers do.
    pub fn skip_offsets(&self, at: &TopicPartition, count: i64) {
        self.with(at, |log| {
            log.end += count;
            log.readers.iter().for_each(|(_, wake)| wake.wake());
        });
    }

    /// The partition loses its end, as after an unclean election: the next record gets the offset `end`.
    pub fn truncate(&self, at: &TopicPartition, end: CommitPosition) {
        self.with(at, |log| {
            log.records.retain(|record| record.offset().0 < end.0);
            log.end = end.0;
        });
    }

    /// Appends an entry to a changelog that says nothing of any key, so that there is something to restore. Each is by another process,
    /// so that no two are equal.
    pub fn append_marks_of_nobody(&self, at: &TopicPartition) {
        let mut value = Vec::new();
        let nobody = u128::MAX - u128::from(self.nobodies.fetch_add(1, Ordering::Relaxed));
        format::write_marks(OpenerId(nobody.to_be_bytes()), &[], &mut value);
        let partition = Some(at.partition);
        let appended = self.append(&OutboundRecord {
            topic: &at.topic,
            partition,
            key: None,
            value: Some(&value),
            headers: &[],
        });
        debug_assert!(appended.is_some(), "the changelog has that partition");
    }

    /// The next fetch from the partition meets this error.
    pub fn fail_fetch(&self, at: &TopicPartition, error: SourceError) {
        self.with(at, |log| log.errors.push_back(error));
    }

    /// The partition's reader goes on at `offset`, in whatever direction.
    pub fn seek(&self, at: &TopicPartition, offset: Offset) {
        self.with(at, |log| log.seek = Some(offset.0));
    }

    /// Where the partition ends.
    pub fn end(&self, at: &TopicPartition) -> CommitPosition {
        CommitPosition(self.with(at, |log| log.end).unwrap_or(0))
    }

    /// All records of a topic, by partition.
    pub fn records(&self, topic: &Topic) -> Vec<(Partition, Record)> {
        let state = self.state.lock();
        let logs = state.topics.get(topic.as_str()).into_iter().flatten().enumerate();
        let of = |(number, log): (usize, &PartitionLog)| {
            let partition = Partition(i32::try_from(number).unwrap_or(0));
            log.records.iter().map(|record| (partition, record.clone())).collect::<Vec<_>>()
        };
        logs.flat_map(of).collect()
    }

    /// The records of a topic that were not `seen` yet; `seen` counts those of each partition.
    pub fn new_records(
        &self,
        topic: &Topic,
        seen: &mut BTreeMap<TopicPartition, usize>,
    ) -> Vec<(Partition, Record)> {
        let state = self.state.lock();
        let mut new = Vec::new();
        for (number, log) in state.topics.get(topic.as_str()).into_iter().flatten().enumerate() {
            let partition = Partition(i32::try_from(number).unwrap_or(0));
            let seen = seen.entry(TopicPartition { topic: topic.clone(), partition }).or_default();
            new.extend(log.records.iter().skip(*seen).map(|record| (partition, record.clone())));
            *seen = log.records.len();
        }
        new
    }

    /// The records of a partition within these positions.
    pub fn between(&self, at: &TopicPartition, from: CommitPosition, to: CommitPosition) -> Vec<Record> {
        let of = |log: &mut PartitionLog| {
            let first = log.records.partition_point(|record| record.offset().0 < from.0);
            log.records[first..].iter().take_while(|record| record.offset().0 < to.0).cloned().collect()
        };
        self.with(at, of).unwrap_or_default()
    }

    /// The partitions of a topic.
    pub fn partitions(&self, topic: &Topic) -> Vec<TopicPartition> {
        let count = self.state.lock().topics.get(topic.as_str()).map_or(0, Vec::len);
        (0..count)
            .map(|number| TopicPartition {
                topic: topic.clone(),
                partition: Partition(i32::try_from(number).unwrap_or(0)),
            })
            .collect()
    }

    /// Reads a partition from `position`; the reader's shard is woken when there is more.
    pub fn reader(
        self: &Arc<Self>,
        at: &TopicPartition,
        position: CommitPosition,
        wake: Wake,
        faults: Faults,
    ) -> FakeSource {
        let mut state = self.state.lock();
        state.readers += 1;
        let id = state.readers;
        drop(state);
        self.with(at, |log| log.readers.push((id, wake)));
        FakeSource { log: self.clone(), at: at.clone(), position: position.0, id, faults }
    }

    fn with<T>(&self, at: &TopicPartition, change: impl FnOnce(&mut PartitionLog) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let logs = state.topics.get_mut(at.topic.as_str())?;
        logs.get_mut(usize::try_from(at.partition.0).ok()?).map(change)
    }
}

/// Reads one partition of a [`FakeLog`].
#[derive(Debug)]
pub struct FakeSource {
    log: Arc<FakeLog>,
    at: TopicPartition,
    position: i64,
    id: u64,
    faults: Faults,
}

impl RecordSource for FakeSource {
    fn fetch(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        into: &mut Vec<Record>,
    ) -> Result<Fetched, SourceError> {
        if !matches!(self.faults.fate(&Port::Fetch(self.at.topic.to_string())), Fate::Succeeds(_)) {
            return Err(SourceError::Unavailable("drawn".to_owned()));
        }
        let position = &mut self.position;
        let read = |log: &mut PartitionLog| {
            if let Some(error) = log.errors.pop_front() {
                return Err(error);
            }
            if let Some(seek) = log.seek.take() {
                *position = seek;
            }
            let first = log.records.partition_point(|record| record.offset().0 < *position);
            let mut bytes = 0;
            let (known, available) = (into.len(), log.records.len() - first);
            for record in log.records.iter().skip(first).take(max_records) {
                if bytes >= max_bytes {
                    break;
                }
                bytes += record.size();
                *position = record.offset().0 + 1;
                into.push(record.clone());
            }
            Ok(if into.len() - known < available { Fetched::Some } else { Fetched::All })
        };
        let at = self.at.clone();
        self.log
            .with(&at, read)
            .unwrap_or_else(|| Err(SourceError::Unavailable("no such partition".to_owned())))
    }

    fn end_offset(&self) -> Option<CommitPosition> {
        Some(self.log.end(&self.at))
    }
}

impl Drop for FakeSource {
    fn drop(&mut self) {
        let id = self.id;
        self.log.with(&self.at, |log| log.readers.retain(|(reader, _)| *reader != id));
    }
}
