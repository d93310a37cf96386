//! The stage of retry: copies wait in memory, which all partitions of the process share, until they are due, and go on to their job topic.
//!
//! Due time and target come from the record itself, the delay from its topic's name, so that a changed ladder strands nothing. A
//! record whose wait is longer than its topic carries goes on to another delay topic.

mod heap;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::due_queue::DueQueue;
use tidegate_domain::job::{JOB_HEADER, JobHeaderError};
use tidegate_domain::ladder::Hold;
use tidegate_domain::{Failure, Hop, JobHeader, Ladder, Topic, UnixMillis};
use tokio::time::Instant;

use crate::dead_letter::{DeadLetter, Dying, SmallestForm, source_headers};
use crate::events;
use crate::inbox::{Inbox, Wake};
use crate::keyed::{Key, Keyed};
use crate::names::Names;
use crate::ports::{Delivery, PublishError, RETRY_PAUSE, RecordPublisher};
use crate::record::{OutboundRecord, Record, TopicPartition};
use crate::reports::Reports;
use crate::stage::{Desk, Slot, Stage};

use heap::Share;
pub use heap::SharedHeap;

/// What a held record does when its time has come.
#[derive(Clone, Debug)]
enum Then {
    /// To its job topic; it was due then.
    Run(UnixMillis),
    /// To the delay topic of this rung.
    Hop(Duration),
    /// To the DLQ: it is no job, or too large.
    Dead(DeadLetter),
}

#[derive(Debug)]
struct Held {
    slot: Slot,
    record: Record,
    then: Then,
    failed_before: bool,
}

#[derive(Debug)]
struct DelayPartition {
    at: TopicPartition,
    delay: Option<Duration>,
    queue: DueQueue<Key>,
    /// Of the memory for records, from when they come until they are settled.
    share: Share,
    /// Popped when due and not acknowledged.
    on_their_way: usize,
    publish_failures: usize,
    /// An outcome of a replayed record was refused by the journal, and not taken since.
    journal_refuses: bool,
    draining: bool,
}

/// Bounds and names of the stage.
#[derive(Clone, Debug)]
pub struct DelaySettings {
    /// The pipeline's names.
    pub names: Names,
    /// Its delays and jitter.
    pub ladder: Ladder,
    /// Where records wait; the same for all stages of a process.
    pub heap: SharedHeap,
}

/// The stage of retry.
pub struct DelayStage {
    settings: DelaySettings,
    publisher: Arc<dyn RecordPublisher>,
    partitions: BTreeMap<Slot, DelayPartition>,
    held: Keyed<Held>,
    reports: Reports,
    deliveries: Arc<Inbox<Delivery>>,
    acknowledged: Vec<Delivery>,
    /// Waits are measured from here on the monotonic clock: a jump of the wall clock moves no wait that has begun.
    started: Instant,
    lateness: metrics::Histogram,
    waiting: metrics::Gauge,
    to_jobs: metrics::Counter,
    to_delay: metrics::Counter,
}

impl std::fmt::Debug for DelayStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DelayStage").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

/// How far the clocks of brokers, workers and this process may lie apart.
const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// How many records of one partition are published before the others have their turn.
const BURST: usize = 1000;
/// How many records of one partition may be on their way.
const ON_THEIR_WAY: usize = 20_000;

impl DelayStage {
    /// A stage of the shard that `wake` wakes.
    pub fn new(settings: DelaySettings, publisher: Arc<dyn RecordPublisher>, wake: &Wake) -> Self {
        Self {
            reports: Reports::new(publisher.clone(), settings.names.dlq_journal(), wake),
            settings,
            publisher,
            partitions: BTreeMap::new(),
            held: Keyed::default(),
            deliveries: Inbox::new(wake.clone()),
            acknowledged: Vec::new(),
            started: Instant::now(),
            lateness: metrics::histogram!(events::RETRY_LATENESS),
            waiting: metrics::gauge!(events::RETRY_WAITING),
            to_jobs: metrics::counter!(events::RETRY_RECORDS, "to" => "jobs"),
            to_delay: metrics::counter!(events::RETRY_RECORDS, "to" => "delay"),
        }
    }

    /// The monotonic clock in the due queue's unit.
    fn steady(&self, now: Instant) -> UnixMillis {
        UnixMillis(i64::try_from(now.duration_since(self.started).as_millis()).unwrap_or(i64::MAX))
    }

    fn hold(&mut self, slot: Slot, record: Record, desk: &Desk) {
        let steady = self.steady(desk.now);
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        let (until, then) = match self.settings.plan(partition, &record, desk.wall) {
            Ok(Hold::ThenRun(due)) => (due, Then::Run(due)),
            Ok(Hold::ThenHop { until, rung }) => (until, Then::Hop(rung)),
            Err(error) => {
                let failure = Failure::malformed("job-header", error.to_string());
                (desk.wall, Then::Dead(DeadLetter::new(failure)))
            }
        };
        // One more millisecond: both clocks were cut to whole ones, and early is not allowed.
        let wait = until.since(desk.wall) + Duration::from_millis(u64::from(until > desk.wall));
        // No wait in a topic is longer than this; one that seems to be is our clock's fault, which was set back.
        let wait = match partition.delay {
            Some(delay) => wait.min(self.settings.ladder.longest_hold(delay).saturating_add(CLOCK_SLACK)),
            None => wait,
        };
        partition.share.hold(record.size());
        let key = self.held.insert(Held { slot, record, then, failed_before: false });
        partition.queue.push(steady.after(wait), key);
    }

    fn release_due(&mut self, slot: Slot, desk: &mut Desk) {
        let steady = self.steady(desk.now);
        for _ in 0..BURST {
            let Some(partition) = self.partitions.get_mut(&slot) else { return };
            if partition.draining || partition.on_their_way >= ON_THEIR_WAY {
                return;
            }
            let Some((_, key)) = partition.queue.pop_due(steady) else {
                if let Some(due) = partition.queue.next_due() {
                    desk.wake_after(due.since(steady));
                }
                return;
            };
            partition.on_their_way += 1;
            if !self.publish(key, desk) {
                return;
            }
        }
        desk.again();
    }

    /// Hands the record over; false when its partition must wait.
    fn publish(&mut self, key: Key, desk: &mut Desk) -> bool {
        loop {
            let held = &self.held[key];
            let result = match &held.then {
                Then::Run(_) => self.publish_job(key, held),
                Then::Hop(rung) => self.publish_hop(key, held, *rung),
                Then::Dead(dead) => self.publish_dead(key, held, dead, desk.wall),
            };
            match result {
                Ok(()) => return true,
                Err(PublishError::TooLarge(reason)) => {
                    if let Err(smallest) = self.shrink(key, &reason) {
                        self.again_later(key, &smallest.into(), desk);
                        return false;
                    }
                }
                Err(error) => {
                    self.again_later(key, &error, desk);
                    return false;
                }
            }
        }
    }

    fn publish_job(&self, key: Key, held: &Held) -> Result<(), PublishError> {
        let record = &held.record;
        let header = job_header(record).map_err(|e| PublishError::Fatal(e.to_string()))?;
        let headers: Vec<_> = record.headers().collect();
        self.send(key, held, &self.settings.names.jobs(header.tier), &headers)
    }

    fn publish_hop(&self, key: Key, held: &Held, rung: Duration) -> Result<(), PublishError> {
        let record = &held.record;
        let header = job_header(record).map_err(|e| PublishError::Fatal(e.to_string()))?;
        let text = JobHeader { hop: Hop(header.hop.0 + 1), ..header.clone() }.to_text();
        let mut headers = source_headers(record, false);
        headers.push((JOB_HEADER.as_bytes(), Some(text.as_bytes())));
        self.send(key, held, &self.settings.names.delay(header.tier, rung), &headers)
    }

    fn send(
        &self,
        key: Key,
        held: &Held,
        topic: &Topic,
        headers: &[crate::record::OutboundHeader<'_>],
    ) -> Result<(), PublishError> {
        let partition = self.partitions.get(&held.slot).map(|partition| partition.at.partition);
        let (record_key, value) = (held.record.key(), held.record.value());
        let outbound = OutboundRecord { topic, partition, key: record_key, value, headers };
        self.publisher.publish(&outbound, key.ticket(), &self.deliveries)
    }

    fn publish_dead(
        &self,
        key: Key,
        held: &Held,
        dead: &DeadLetter,
        now: UnixMillis,
    ) -> Result<(), PublishError> {
        let Some(partition) = self.partitions.get(&held.slot) else { return Ok(()) };
        let job = job_header(&held.record).ok();
        let dying =
            Dying { record: &held.record, partition: &partition.at, job: job.as_ref(), returned: None };
        let dlq = self.settings.names.dlq();
        dead.publish((&*self.publisher, &dlq), &dying, now, key.ticket(), &self.deliveries)
    }

    /// The next smaller form of what goes on.
    fn shrink(&mut self, key: Key, reason: &str) -> Result<(), SmallestForm> {
        match &mut self.held[key].then {
            Then::Dead(dead) => dead.shrink(),
            then => {
                let message = format!("too large to go on: {reason}");
                *then = Then::Dead(DeadLetter::new(Failure::permanent("too-large", message)));
                Ok(())
            }
        }
    }

    fn again_later(&mut self, key: Key, error: &PublishError, desk: &mut Desk) {
        let steady = self.steady(desk.now);
        let held = &mut self.held[key];
        let Some(partition) = self.partitions.get_mut(&held.slot) else { return };
        partition.on_their_way -= 1;
        let pause = if *error == PublishError::Full {
            FULL_PAUSE
        } else {
            events::publish_error();
            if !std::mem::replace(&mut held.failed_before, true) {
                partition.publish_failures += 1;
            }
            desk.trouble(held.slot, error.to_string());
            RETRY_PAUSE
        };
        partition.queue.push(steady.after(pause), key);
        desk.wake_after(pause);
    }

    fn hear_publisher(&mut self, desk: &mut Desk) {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        for (ticket, result) in acknowledged.drain(..) {
            let key = Key::of(ticket);
            if self.held.get(key).is_none() {
                events::fenced();
                continue;
            }
            match result {
                Ok(_) => self.handed_on(key, desk),
                Err(PublishError::TooLarge(reason)) => match self.shrink(key, &reason) {
                    Ok(()) => {
                        // A partition that must wait has put the record back into its queue.
                        let _goes_on = self.publish(key, desk);
                    }
                    Err(smallest) => self.again_later(key, &smallest.into(), desk),
                },
                Err(error) => self.again_later(key, &error, desk),
            }
        }
        self.acknowledged = acknowledged;
    }

    fn handed_on(&mut self, key: Key, desk: &mut Desk) {
        let Some(Held { slot, record, then, failed_before }) = self.held.remove(key) else { return };
        match self.settings.outcome(&record, &then, desk.wall) {
            Some(outcome) => {
                let settles = Some((record.offset(), record.size()));
                self.reports.report(slot, settles, outcome, desk);
            }
            None => desk.settle(slot, record.offset(), record.size()),
        }
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        partition.on_their_way -= 1;
        partition.share.free(record.size());
        if failed_before {
            partition.publish_failures -= 1;
            partition.trouble_over(slot, desk);
        }
        match then {
            Then::Run(due) => {
                self.to_jobs.increment(1);
                self.lateness.record(desk.wall.since(due).as_secs_f64());
            }
            Then::Hop(_) => self.to_delay.increment(1),
            Then::Dead(dead) => {
                let job = job_header(&record).ok();
                dead.note(&Dying {
                    record: &record,
                    partition: &partition.at,
                    job: job.as_ref(),
                    returned: None,
                });
            }
        }
    }
}

impl DelayPartition {
    /// What held the partition up is over, if nothing else does.
    fn trouble_over(&self, slot: Slot, desk: &mut Desk) {
        if self.publish_failures == 0 && !self.journal_refuses {
            desk.trouble_over(slot);
        }
    }
}

impl DelaySettings {
    fn plan(
        &self,
        partition: &DelayPartition,
        record: &Record,
        now: UnixMillis,
    ) -> Result<Hold, JobHeaderError> {
        let due = job_header(record)?.due;
        let appended = record.timestamp().unwrap_or(now);
        Ok(match partition.delay {
            Some(delay) => self.ladder.hold(delay, appended, due),
            None => Hold::ThenRun(due),
        })
    }
}

fn job_header(record: &Record) -> Result<JobHeader<'_>, JobHeaderError> {
    JobHeader::parse(record.header(JOB_HEADER).unwrap_or_default())
}

/// How long a record waits when the producer's queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);

impl Stage for DelayStage {
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, _desk: &mut Desk) {
        let delay = self.settings.names.delay_of(partition.topic.as_str());
        let partition = DelayPartition {
            at: partition.clone(),
            delay,
            queue: DueQueue::default(),
            share: Share::of(&self.settings.heap),
            on_their_way: 0,
            publish_failures: 0,
            journal_refuses: false,
            draining: false,
        };
        self.partitions.insert(slot, partition);
    }

    fn wants(&self, slot: Slot) -> bool {
        self.room_bytes(slot) > 0
    }

    fn room_bytes(&self, slot: Slot) -> usize {
        self.partitions.get(&slot).filter(|p| !p.draining).map_or(0, |p| p.share.room())
    }

    fn holds_on_purpose(&self) -> bool {
        true
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        for record in records.drain(..) {
            self.hold(slot, record, desk);
        }
    }

    fn turn(&mut self, desk: &mut Desk) {
        self.hear_publisher(desk);
        self.hear_journal(desk);
        let slots: Vec<Slot> = self.partitions.keys().copied().collect();
        for slot in slots {
            self.release_due(slot, desk);
        }
        self.waiting.set(self.settings.heap.records() as f64);
    }

    fn drain(&mut self, slot: Slot, _desk: &mut Desk) {
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.draining = true;
        }
    }

    fn is_idle(&self, slot: Slot) -> bool {
        let is_idle = |partition: &DelayPartition| partition.on_their_way == 0;
        self.partitions.get(&slot).is_none_or(is_idle) && self.reports.is_idle(slot)
    }

    fn release(&mut self, slot: Slot, _desk: &mut Desk) {
        self.reports.release(slot);
        self.partitions.remove(&slot);
        self.held.retain(|held| held.slot != slot);
    }
}
