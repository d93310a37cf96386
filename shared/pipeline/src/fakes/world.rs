//! What outlives the processes of one test, and how they are started.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::inbox::REPLAY_HEADER;
use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{
    Attempt, CommitPosition, Hop, IdempotencyKey, JobHeader, Ladder, Mark, Offset, Partition, Round, Topic,
};
use tokio::time::Instant;

use super::clock::FakeClock;
use super::copies::{Disk, FakeReader, FakeTable};
use super::dice::Dice;
use super::events::{EVENT_ID, Event, FnRouter, job_header, partition_of};
use super::faults::Faults;
use super::handlers::{Runs, Script, ScriptedHandler};
use super::log::FakeLog;
use super::marks::{FakeMarks, MarkTable};
use super::node::{Life, Node, Parts};
use super::offsets::GroupOffsets;
use super::publisher::FakePublisher;
use crate::changelog::format::{self, Entry};
use crate::changelog::{Changelog, ChangelogPorts, ChangelogSettings, OpenerId};
use crate::dead_letter::source_headers;
use crate::delay::{DelaySettings, DelayStage, SharedHeap};
use crate::events::ClassMetrics;
use crate::forward::ForwardStage;
use crate::inbox::Wake;
use crate::jobs::{
    Class, Conflicts, CutOff, FirstPartitions, Guard, JobSettings, JobStage, Ordering as LaneOrder,
    ParkedShare, Ports, Solitude,
};
use crate::journal::{self, OutcomeEntry};
use crate::names::Names;
use crate::ports::{Handler, MarkEntry, MarkStore};
use crate::record::{OutboundRecord, Record, TopicPartition};
use crate::shard::ShardSettings;
use crate::stage::Stage;

/// How often workers of a world ask where an idle changelog ends.
pub const IDLE_CHECK: Duration = Duration::from_secs(3);
/// The tier of a world's jobs.
pub const TIER: &str = "default";

/// Topics, positions, marks and runs of one test. Needs a current-thread runtime with paused time.
#[derive(Debug)]
pub struct World {
    began: Instant,
    /// The pipeline's names.
    pub names: Names,
    /// The topics.
    pub log: Arc<FakeLog>,
    /// The durable marks.
    pub marks: Arc<MarkTable>,
    /// Every run of a handler.
    pub runs: Arc<Runs>,
    /// The bounds of shards that are started from now on.
    pub shard: ShardSettings,
    /// The retries of the world's classes, and of its retry nodes.
    pub ladder: Ladder,
    partitions: u32,
    groups: Mutex<BTreeMap<String, Arc<GroupOffsets>>>,
    dice: Mutex<Dice>,
    epochs: Arc<AtomicU64>,
    ids: AtomicU64,
}

impl World {
    /// A world with a source topic, a job topic, the delay topics of its ladder and a DLQ; the first three of so many partitions.
    pub fn new(seed: u64, partitions: u32) -> Self {
        let seconds = |n: &[u64]| n.iter().map(|&n| Duration::from_secs(n)).collect::<Vec<_>>();
        let ladder = Ladder::new(&seconds(&[1, 4, 16]), &seconds(&[60, 600]), 0.2);
        let began = Instant::now();
        let world = Self {
            began,
            names: Names::new("tg"),
            log: FakeLog::new(began),
            marks: Arc::default(),
            runs: Arc::default(),
            shard: ShardSettings::default(),
            ladder: ladder.unwrap_or_else(|error| unreachable!("a ladder of the form: {error}")),
            partitions,
            groups: Mutex::default(),
            dice: Mutex::new(Dice::new(seed)),
            epochs: Arc::default(),
            ids: AtomicU64::new(1),
        };
        let count = usize::try_from(partitions).unwrap_or(1);
        for topic in [world.source(), world.names.jobs(TIER), world.names.marks(TIER)] {
            world.log.create(&topic, count);
        }
        world.follow_the_changelog();
        for &delay in world.ladder.delays() {
            world.log.create(&world.names.delay(TIER, delay), count);
        }
        for topic in [world.names.dlq(), world.names.dlq_journal(), world.names.reingest()] {
            world.log.create(&topic, 1);
        }
        world
    }

    /// What is appended to the changelog is remembered at that moment: what any owner knows, it knows later.
    fn follow_the_changelog(&self) {
        let (marks, jobs) = (self.marks.clone(), self.names.jobs(TIER));
        self.log.watch(&self.names.marks(TIER), move |partition, record| {
            let at = TopicPartition { topic: jobs.clone(), partition };
            match format::read(record.value().unwrap_or_default()) {
                Ok((_, Entry::Marks(entries))) => marks.join(&at, &entries),
                Ok((OpenerId(id), Entry::Opened { .. })) => marks.opened(&at, u128::from_be_bytes(id)),
                Ok((_, Entry::Closed)) | Err(_) => {}
            }
        });
    }

    /// The changelog of a job partition loses its last records, as after an unclean election: what they said is not known any more.
    pub fn lose_end_of_changelog(&self, number: i32, records: i64) {
        let log = TopicPartition { topic: self.names.marks(TIER), partition: Partition(number) };
        let end = CommitPosition((self.log.end(&log).0 - records).max(0));
        self.log.truncate(&log, end);
        let mut kept: HashMap<IdempotencyKey, Mark> = HashMap::new();
        for record in self.log.between(&log, CommitPosition(0), end) {
            if let Ok((_, Entry::Marks(entries))) = format::read(record.value().unwrap_or_default()) {
                for MarkEntry { key, mark } in entries {
                    let known = kept.entry(key).or_default();
                    *known = known.join(mark);
                }
            }
        }
        self.marks.keep(&self.jobs_partition(number), &kept);
    }

    /// The source topic.
    pub fn source(&self) -> Topic {
        Topic::new("shop.orders")
    }

    /// A partition of the source topic.
    pub fn source_partition(&self, number: i32) -> TopicPartition {
        partition_of(&self.source(), number)
    }

    /// A partition of the job topic.
    pub fn jobs_partition(&self, number: i32) -> TopicPartition {
        partition_of(&self.names.jobs(TIER), number)
    }

    /// How many partitions the job topic has.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// The positions of a group.
    pub fn group(&self, name: &str) -> Arc<GroupOffsets> {
        self.groups.lock().entry(name.to_owned()).or_default().clone()
    }

    /// A class of this world: three attempts, a limit of ten seconds, no order, no flood guard.
    pub fn class(&self, name: &str) -> Class {
        Class {
            name: name.to_owned(),
            tier: TIER.to_owned(),
            ladder: self.ladder.clone(),
            max_attempts: 3,
            max_age: None,
            time_limit: Duration::from_secs(10),
            ordering: LaneOrder::None,
            on_conflict: Conflicts::Skip,
            guard: Guard::default(),
            metrics: ClassMetrics::of(name, TIER),
        }
    }

    /// Publishes an event to a partition of the source topic; returns its id.
    pub fn emit(&self, partition: i32, event: &Event<'_>) -> u64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (topic, value, text) = (self.source(), event.value(), id.to_string());
        let headers = [(EVENT_ID.as_bytes(), Some(text.as_bytes()))];
        let record = OutboundRecord {
            topic: &topic,
            partition: Some(Partition(partition)),
            key: Some(event.key.as_bytes()),
            value: Some(&value),
            headers: &headers,
        };
        let appended = self.log.append(&record);
        debug_assert!(appended.is_some(), "the source has that partition");
        id
    }

    /// Publishes an event's job to the job topic, as ingest would; returns the event's id.
    pub fn emit_job(&self, event: &Event<'_>) -> u64 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let source = self.source_partition(0);
        let now = super::clock::BEGIN;
        let header = event.header(TIER, &source, (Offset(i64::try_from(id).unwrap_or(0)), Some(now)), now);
        let (text, header, value) = (id.to_string(), header.to_text(), event.value());
        let headers = [(EVENT_ID.as_bytes(), Some(text.as_bytes())), (b"job", Some(header.as_bytes()))];
        let topic = self.names.jobs(TIER);
        let partition = Some(event.lane().partition(self.partitions));
        let record = OutboundRecord {
            topic: &topic,
            partition,
            key: Some(event.key.as_bytes()),
            value: Some(&value),
            headers: &headers,
        };
        let appended = self.log.append(&record);
        debug_assert!(appended.is_some(), "the job topic has that partition");
        id
    }

    /// Publishes a dead letter to its job topic again, as an operator's replay.
    pub fn replay(&self, dead: &Record, round: u32, force: Force) {
        let Some(header) = job_header(dead) else { return };
        let partition = Some(header.lane.partition(self.partitions));
        let topic = self.names.jobs(header.tier);
        let forced = force == Force::AlsoIfDone;
        let header = JobHeader { round: Round(round), hop: Hop(0), attempt: Attempt(1), forced, ..header };
        let text = header.to_text();
        let mut headers = source_headers(dead, false);
        headers.push((JOB_HEADER.as_bytes(), Some(text.as_bytes())));
        let (key, value) = (dead.key(), dead.value());
        let record = OutboundRecord { topic: &topic, partition, key, value, headers: &headers };
        let appended = self.log.append(&record);
        debug_assert!(appended.is_some(), "the job topic has that partition");
    }

    /// Publishes a dead letter of ingest to it again, as an operator's replay.
    pub fn reingest(&self, dead: &Record, replay: Option<&str>) {
        let topic = self.names.reingest();
        let mut headers: Vec<_> = dead.headers().collect();
        headers.extend(replay.map(|text| (REPLAY_HEADER.as_bytes(), Some(text.as_bytes()))));
        let (key, value) = (dead.key(), dead.value());
        let partition = Some(Partition(0));
        let record = OutboundRecord { topic: &topic, partition, key, value, headers: &headers };
        let appended = self.log.append(&record);
        debug_assert!(appended.is_some(), "the topic has that partition");
    }

    /// The outcomes in the journal, in order.
    pub fn outcomes(&self) -> Vec<OutcomeEntry> {
        let journal = self.records(&self.names.dlq_journal());
        let outcome = |record: &Record| match journal::Entry::read(record.value()) {
            Ok(journal::Entry::Outcome(outcome)) => Some(outcome),
            _ => None,
        };
        journal.iter().filter_map(outcome).collect()
    }

    /// The parts of a new process.
    pub fn parts(&self) -> Parts {
        let (seed, faults) = {
            let mut dice = self.dice.lock();
            (dice.roll(), Faults::new(dice.fork()))
        };
        let life = Life::begin(self.epochs.fetch_add(1, Ordering::Relaxed));
        Parts {
            clock: Arc::new(FakeClock::new(self.began, seed)),
            publisher: Arc::new(FakePublisher::new(self.log.clone(), faults.clone())),
            marks: Arc::new(FakeMarks::new(self.marks.clone(), faults.clone())),
            table: None,
            faults,
            life,
            first: FirstPartitions::default(),
            wake: Wake::default(),
        }
    }

    /// Starts a process of any stage.
    pub fn start<S: Stage + Send + 'static>(&self, group: &str, parts: Parts, stage: S) -> Node {
        Node::start(parts, self.shard, stage, (self.log.clone(), self.group(group), self.epochs.clone()))
    }

    /// A disk for a machine.
    pub fn disk(&self) -> Disk {
        Disk::new(self.dice.lock().fork())
    }

    /// Starts a worker of these classes, whose marks are in the changelog, with a copy on this disk.
    pub fn worker_with_changelog(
        &self,
        disk: &Disk,
        classes: Vec<Class>,
        concurrency: usize,
        script: Script,
    ) -> Node {
        let mut parts = self.parts();
        let table = Arc::new(FakeTable::new(disk.clone(), parts.faults.clone(), parts.life.clone()));
        let reader = FakeReader { log: self.log.clone(), table: table.clone(), faults: parts.faults.clone() };
        let ports = ChangelogPorts {
            publisher: parts.publisher.clone(),
            table: table.clone(),
            reader: Arc::new(reader),
        };
        let settings = ChangelogSettings {
            opener: OpenerId(u128::from(parts.life.id()).to_be_bytes()),
            window: u32::try_from(self.shard.window_records).unwrap_or(u32::MAX),
            topics: [(self.names.jobs(TIER), self.names.marks(TIER))].into_iter().collect(),
            idle_check: IDLE_CHECK,
        };
        let (changelog, task) = Changelog::new(ports, settings);
        parts.table = Some((table, Arc::new(tokio::spawn(task))));
        self.worker_over(parts, Arc::new(changelog), classes, concurrency, script)
    }

    /// Starts a worker of these classes; one script decides for all of them. Its marks are durable by themselves.
    pub fn worker(&self, classes: Vec<Class>, concurrency: usize, script: Script) -> Node {
        let parts = self.parts();
        let marks = parts.marks.clone();
        self.worker_over(parts, marks, classes, concurrency, script)
    }

    fn worker_over(
        &self,
        parts: Parts,
        marks: Arc<dyn MarkStore>,
        classes: Vec<Class>,
        concurrency: usize,
        script: Script,
    ) -> Node {
        let (runs, clock, life) = (self.runs.clone(), parts.clock.clone(), parts.life.clone());
        let table = parts.table.as_ref().map(|(table, _)| table.clone());
        let handler: Arc<dyn Handler> = Arc::new(ScriptedHandler { runs, clock, life, script, table });
        let ports = Ports {
            publisher: parts.publisher.clone(),
            marks,
            handlers: vec![handler; classes.len()],
            clock: parts.clock.clone(),
            runtime: tokio::runtime::Handle::current(),
        };
        let settings = JobSettings {
            names: self.names.clone(),
            belief: self.ladder.belief(),
            parked: ParkedShare::half_of(&self.shard),
            classes: classes.into(),
            concurrency,
            solitude: Solitude::default(),
            marks_together: 1000,
            cut_off: CutOff::default(),
            first: parts.first.clone(),
        };
        let stage = JobStage::new(ports, settings, &parts.wake);
        self.start(&self.names.worker_group(TIER), parts, stage)
    }

    /// Starts an ingest.
    pub fn ingest(&self, router: FnRouter) -> Node {
        let parts = self.parts();
        let stage = ForwardStage::new(router, parts.publisher.clone(), self.names.clone(), &parts.wake);
        self.start(&self.names.ingest_group(), parts, stage)
    }

    /// Starts a retry whose partitions hold so many bytes together.
    pub fn retry(&self, heap_bytes: usize) -> Node {
        self.retry_shard(&SharedHeap::new(heap_bytes))
    }

    /// One shard of a process that has more of them.
    pub fn retry_shard(&self, heap: &SharedHeap) -> Node {
        let parts = self.parts();
        let (names, ladder, heap) = (self.names.clone(), self.ladder.clone(), heap.clone());
        let settings = DelaySettings { names, ladder, heap };
        let stage = DelayStage::new(settings, parts.publisher.clone(), &parts.wake);
        self.start(&self.names.retry_group(), parts, stage)
    }

    /// All records of the delay topics, shortest delay first.
    pub fn delayed(&self) -> Vec<Record> {
        let topics = self.ladder.delays().iter().map(|&delay| self.names.delay(TIER, delay));
        topics.flat_map(|topic| self.records(&topic)).collect()
    }

    /// All records of a topic.
    pub fn records(&self, topic: &Topic) -> Vec<Record> {
        self.log.records(topic).into_iter().map(|(_, record)| record).collect()
    }

    /// All records of the DLQ.
    pub fn dead(&self) -> Vec<Record> {
        self.records(&self.names.dlq())
    }
}

/// Whether a replay runs although its key is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// It is skipped then.
    No,
    /// It runs.
    AlsoIfDone,
}

/// Waits until `holds`, a millisecond at a time; false when it does not within `limit`.
pub async fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    true
}
