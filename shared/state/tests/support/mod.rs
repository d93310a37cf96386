//! What the tests of the store share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_domain::mark::{Phase, Step};
use tidegate_domain::{
    CommitPosition, Hop, IdempotencyKey, JobHash, Mark, Partition, PayloadHash, Round, Topic, UnixMillis,
};
use tidegate_pipeline::changelog::{LocalCopy, LocalReady, MarkTable, Opener, OpenerId, Stretch};
use tidegate_pipeline::ports::{MarkEntry, MarkStoreError, Ticket};
use tidegate_pipeline::{Inbox, TopicPartition, Wake};
use tidegate_state::{Marks, MemoryBudgets, OpenError, Parents, Provenance, Settings, TopicIdentity};

pub const HOUR: i64 = 3_600_000;
/// A plausible time of the broker.
pub const NOW: i64 = 1_764_400_000_000;

pub fn topic() -> Topic {
    Topic::new("tidegate.default.jobs")
}

pub fn partition(n: i32) -> TopicPartition {
    TopicPartition { topic: topic(), partition: Partition(n) }
}

/// A key like those of production: uniform bits.
pub fn key(n: u64) -> IdempotencyKey {
    IdempotencyKey::derive("test", &[tidegate_domain::FieldValue::Int(n as i64)], None).unwrap()
}

pub fn step(round: u32, hop: u32, phase: Phase) -> Step {
    Step {
        round: Round(round),
        hop: Hop(hop),
        phase,
        n: 0,
        job: JobHash(7),
        payload: PayloadHash(9),
        written_at: UnixMillis(NOW),
    }
}

pub fn done() -> Mark {
    Mark::done(step(0, 0, Phase::Started))
}

pub fn entry(n: u64) -> MarkEntry {
    MarkEntry { key: key(n), mark: done() }
}

pub fn settings(dir: &Path) -> Settings {
    let identity = TopicIdentity {
        id: "topic-id-1".to_owned(),
        partitions: 8,
        changelog: Some("changelog-id-1".to_owned()),
    };
    Settings {
        dir: dir.to_owned(),
        parents: Parents::Made,
        retention: Duration::from_secs(24 * 3600),
        provenance: Provenance {
            cluster_id: "cluster-1".to_owned(),
            topics: BTreeMap::from([(topic(), identity)]),
        },
        memory: MemoryBudgets {
            block_cache: 16 << 20,
            write_buffers: 16 << 20,
            filter_per_partition: 8 << 20,
        },
    }
}

pub fn open(dir: &Path) -> Marks {
    Marks::open_dir(settings(dir)).unwrap()
}

pub fn open_error(settings: Settings) -> OpenError {
    Marks::open_dir(settings).map(drop).unwrap_err()
}

/// Hears answers, one after the other.
pub struct Ear {
    pub inbox: Arc<Inbox<LocalReady>>,
    wake: Wake,
    heard: std::cell::RefCell<std::collections::VecDeque<LocalReady>>,
}

impl Ear {
    pub fn new() -> Self {
        let wake = Wake::default();
        Self { inbox: Inbox::new(wake.clone()), wake, heard: Default::default() }
    }

    pub fn next(&self) -> LocalReady {
        loop {
            if let Some(answer) = self.heard.borrow_mut().pop_front() {
                return answer;
            }
            let mut answers = Vec::new();
            self.inbox.take(&mut answers);
            self.heard.borrow_mut().extend(answers);
            if self.heard.borrow().is_empty() {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let minute = Duration::from_secs(60);
                let woken = runtime.block_on(async { tokio::time::timeout(minute, self.wake.woken()).await });
                woken.expect("an answer within a minute");
            }
        }
    }

    pub fn nothing_more(&self) -> bool {
        let mut answers = Vec::new();
        self.inbox.take(&mut answers);
        answers.is_empty() && self.heard.borrow().is_empty()
    }
}

pub fn open_partition(marks: &Marks, at: &TopicPartition) -> LocalCopy {
    try_open(marks, at).unwrap()
}

pub fn try_open(marks: &Marks, at: &TopicPartition) -> Result<LocalCopy, MarkStoreError> {
    let ear = Ear::new();
    marks.open(at, Ticket(1), &ear.inbox);
    let (ticket, answer) = ear.next();
    assert_eq!(ticket, Ticket(1));
    assert!(ear.nothing_more(), "one answer for each call");
    answer
}

pub fn opener(n: u8) -> Opener {
    Opener { id: OpenerId([n; 16]), window: 100 + u32::from(n), closed: false, suspects: u32::from(n) }
}

pub fn copy(position: i64, opener: Option<Opener>) -> LocalCopy {
    LocalCopy { position: Some(CommitPosition(position)), opener, last: None }
}

/// Applies marks, where the position does not matter.
pub fn append(marks: &Marks, at: &TopicPartition, entries: &[MarkEntry], time: i64) {
    try_append(marks, at, entries, time).unwrap();
}

pub fn try_append(
    marks: &Marks,
    at: &TopicPartition,
    entries: &[MarkEntry],
    time: i64,
) -> Result<(), MarkStoreError> {
    apply(marks, at, entries, time, copy(1, None))
}

pub fn apply(
    marks: &Marks,
    at: &TopicPartition,
    entries: &[MarkEntry],
    time: i64,
    to: LocalCopy,
) -> Result<(), MarkStoreError> {
    let LocalCopy { position, opener, last } = to;
    let position = position.unwrap();
    marks.apply(at, &Stretch { entries, append_time: UnixMillis(time), position, opener, last })
}

/// Lets the partition's time pass: appends nothing, again and again, as a broker whose time passes would stamp it.
pub fn pass(marks: &Marks, at: &TopicPartition, from: i64, to: i64) {
    let mut time = from;
    while time < to {
        time = to.min(time + 3 * HOUR);
        append(marks, at, &[], time);
    }
}

pub fn look_up(marks: &Marks, at: &TopicPartition, keys: &[IdempotencyKey]) -> Vec<Mark> {
    let mut found = Vec::new();
    marks.look_up(at, keys, &mut found).unwrap();
    assert_eq!(found.len(), keys.len());
    found
}

pub fn is_done(marks: &Marks, at: &TopicPartition, n: u64) -> bool {
    look_up(marks, at, &[key(n)])[0] == done()
}

/// The directories beside `dir` that were set aside.
pub fn set_aside(dir: &Path) -> Vec<PathBuf> {
    let name = format!("{}.set-aside-", dir.file_name().unwrap().to_str().unwrap());
    let beside = std::fs::read_dir(dir.parent().unwrap()).unwrap();
    let mut found: Vec<_> = beside
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&name))
        .collect();
    found.sort();
    found
}

/// Files of the database whose names end so.
pub fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir.join("db"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(suffix))
        .collect();
    found.sort();
    found
}

/// Asks again until the answer is yes; fails after five minutes.
pub fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ask() {
        assert!(start.elapsed() < Duration::from_secs(300), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
