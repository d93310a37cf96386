//! The stage of ingest: each event becomes jobs, is ignored by a rule, or is dead-lettered with its bytes.
//!
//! A partition is forwarded in order. A publish that fails stops it: when nothing of it is on its way any more, everything that is
//! not settled is forwarded anew from the lowest offset. Copies that had arrived then arrive twice, which marks absorb; that
//! one overtakes another they could not.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{Failure, Partition, Topic, UnixMillis};
use tokio::time::Instant;
use tracing::warn;

use crate::dead_letter::{DeadLetter, Dying, source_headers};
use crate::events;
use crate::inbox::{Inbox, Wake};
use crate::keyed::{Key, Keyed};
use crate::names::Names;
use crate::ports::{Delivery, PublishError, RETRY_PAUSE, RecordPublisher};
use crate::record::{OutboundRecord, Record, TopicPartition};
use crate::stage::{Desk, Slot, Stage};

/// Decides what an event is.
pub trait EventRouter {
    /// Appends the jobs that `record` is.
    fn route(
        &mut self,
        partition: &TopicPartition,
        record: &Record,
        now: UnixMillis,
        jobs: &mut Vec<PlannedJob>,
    ) -> Routed;
}

/// A job to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedJob {
    /// The tier's job topic.
    pub topic: Topic,
    /// The lane's partition.
    pub partition: Partition,
    /// The text of the `job` header.
    pub header: String,
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    /// The jobs that were appended.
    Jobs,
    /// Nothing, on purpose.
    Ignored,
    /// It can't be a job, ever.
    Dead(Failure),
    /// It can't be decided now: its partition waits. The router wakes the shard when it may go on.
    Later(String),
}

#[derive(Debug)]
enum Outgoing {
    Job(PlannedJob),
    Dead(DeadLetter),
}

#[derive(Debug)]
struct Forwarded {
    slot: Slot,
    record: Record,
    outgoing: Vec<Outgoing>,
    /// How many were handed to the publisher; they are published in order.
    sent: usize,
    acknowledged: usize,
}

#[derive(Debug)]
struct Source {
    at: TopicPartition,
    /// Fetched and not routed.
    waiting: VecDeque<Record>,
    /// Routed and not settled, in offset order; settled ones leave lazily.
    forwarded: VecDeque<Key>,
    /// The last of `forwarded`, when not all of it is handed over.
    unfinished: Option<Key>,
    on_their_way: usize,
    /// A publish failed: forward anew when nothing is on its way.
    rewind: bool,
    held_until: Option<Instant>,
    troubled: bool,
    draining: bool,
}

/// The stage of ingest.
pub struct ForwardStage<R> {
    router: R,
    publisher: Arc<dyn RecordPublisher>,
    names: Names,
    sources: BTreeMap<Slot, Source>,
    in_hand: Keyed<Forwarded>,
    deliveries: Arc<Inbox<Delivery>>,
    acknowledged: Vec<Delivery>,
}

impl<R> std::fmt::Debug for ForwardStage<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardStage").field("in_hand", &self.in_hand.len()).finish_non_exhaustive()
    }
}

/// How many fetched records wait for their turn, before no more are fetched.
const WAITING: usize = 2000;

impl<R: EventRouter> ForwardStage<R> {
    /// A stage of the shard that `wake` wakes.
    pub fn new(router: R, publisher: Arc<dyn RecordPublisher>, names: Names, wake: &Wake) -> Self {
        Self {
            router,
            publisher,
            names,
            sources: BTreeMap::new(),
            in_hand: Keyed::default(),
            deliveries: Inbox::new(wake.clone()),
            acknowledged: Vec::new(),
        }
    }

    fn forward(&mut self, slot: Slot, desk: &mut Desk) {
        loop {
            let Some(source) = self.sources.get_mut(&slot) else { return };
            if let Some(at) = source.held_until {
                if at > desk.now {
                    return desk.wake_at(at);
                }
                source.held_until = None;
            }
            if source.rewind {
                return;
            }
            if let Some(key) = source.unfinished.take() {
                if !self.send(key, desk) {
                    return;
                }
                continue;
            }
            if source.draining {
                return;
            }
            let Some(record) = source.waiting.pop_front() else { return };
            if !self.route(slot, record, desk) {
                return;
            }
        }
    }

    /// Decides what the record is; false when its partition must wait.
    fn route(&mut self, slot: Slot, record: Record, desk: &mut Desk) -> bool {
        let Some(source) = self.sources.get_mut(&slot) else { return false };
        let mut jobs = Vec::new();
        let outgoing = match self.router.route(&source.at, &record, desk.wall, &mut jobs) {
            Routed::Jobs => jobs.into_iter().map(Outgoing::Job).collect(),
            Routed::Dead(failure) => vec![Outgoing::Dead(DeadLetter::new(failure))],
            Routed::Ignored => {
                desk.settle(slot, record.offset(), record.size());
                return true;
            }
            Routed::Later(reason) => {
                source.waiting.push_front(record);
                source.held_until = Some(desk.now + RETRY_PAUSE);
                source.troubled = true;
                desk.trouble(slot, reason);
                desk.wake_after(RETRY_PAUSE);
                return false;
            }
        };
        if source.troubled && source.on_their_way == 0 {
            source.troubled = false;
            desk.trouble_over(slot);
        }
        let key = self.in_hand.insert(Forwarded { slot, record, outgoing, sent: 0, acknowledged: 0 });
        source.forwarded.push_back(key);
        self.send(key, desk)
    }

    /// Hands over what the record becomes, in order; false when the partition must wait.
    fn send(&mut self, key: Key, desk: &mut Desk) -> bool {
        while let Some(forwarded) = self.in_hand.get(key) {
            let slot = forwarded.slot;
            let Some(outgoing) = forwarded.outgoing.get(forwarded.sent) else { return true };
            let result = self.publish(key, forwarded, outgoing, desk.wall);
            let Some(source) = self.sources.get_mut(&slot) else { return false };
            match result {
                Ok(()) => {
                    source.on_their_way += 1;
                    self.in_hand[key].sent += 1;
                }
                Err(PublishError::Full) => {
                    source.unfinished = Some(key);
                    desk.wake_after(FULL_PAUSE);
                    return false;
                }
                Err(PublishError::TooLarge(reason)) => self.shrink(key, self.in_hand[key].sent, &reason),
                Err(error) => {
                    self.failed(slot, &error, desk);
                    return false;
                }
            }
        }
        true
    }

    fn publish(
        &self,
        key: Key,
        forwarded: &Forwarded,
        outgoing: &Outgoing,
        now: UnixMillis,
    ) -> Result<(), PublishError> {
        let record = &forwarded.record;
        match outgoing {
            Outgoing::Job(job) => {
                let mut headers = source_headers(record, true);
                headers.push((JOB_HEADER.as_bytes(), Some(job.header.as_bytes())));
                let outbound = OutboundRecord {
                    topic: &job.topic,
                    partition: Some(job.partition),
                    key: record.key(),
                    value: record.value(),
                    headers: &headers,
                };
                self.publisher.publish(&outbound, key.ticket(), &self.deliveries)
            }
            Outgoing::Dead(dead) => {
                let Some(source) = self.sources.get(&forwarded.slot) else { return Ok(()) };
                let dying = Dying { record, partition: &source.at, job: None };
                let dlq = self.names.dlq();
                dead.publish((&*self.publisher, &dlq), &dying, now, key.ticket(), &self.deliveries)
            }
        }
    }

    fn shrink(&mut self, key: Key, place: usize, reason: &str) {
        let outgoing = &mut self.in_hand[key].outgoing[place];
        *outgoing = Outgoing::Dead(match outgoing {
            Outgoing::Job(_) => {
                let message = format!("the event is too large for its job topic: {reason}");
                DeadLetter::new(Failure::permanent("too-large", message))
            }
            Outgoing::Dead(dead) => dead.clone().smaller(),
        });
    }

    fn failed(&mut self, slot: Slot, error: &PublishError, desk: &mut Desk) {
        events::publish_error();
        let Some(source) = self.sources.get_mut(&slot) else { return };
        source.rewind = true;
        source.troubled = true;
        source.held_until = Some(desk.now + RETRY_PAUSE);
        desk.trouble(slot, error.to_string());
        desk.wake_after(RETRY_PAUSE);
    }

    fn hear_publisher(&mut self, desk: &mut Desk) {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        for (ticket, result) in acknowledged.drain(..) {
            let key = Key::of(ticket);
            let Some(slot) = self.in_hand.get(key).map(|forwarded| forwarded.slot) else {
                events::fenced();
                continue;
            };
            let Some(source) = self.sources.get_mut(&slot) else { continue };
            source.on_their_way -= 1;
            match result {
                Ok(()) => self.acknowledge(key, desk),
                Err(PublishError::TooLarge(reason)) => self.resend_smaller(key, &reason, desk),
                Err(error) => self.failed(slot, &error, desk),
            }
        }
        self.acknowledged = acknowledged;
    }

    /// Which copy was refused is not told: with more than one, all are sent anew, and marks absorb what arrives twice.
    fn resend_smaller(&mut self, key: Key, reason: &str, desk: &mut Desk) {
        let forwarded = &mut self.in_hand[key];
        for place in 0..forwarded.outgoing.len() {
            self.shrink(key, place, reason);
        }
        let forwarded = &mut self.in_hand[key];
        // One copy with the whole event is enough in the DLQ.
        forwarded.outgoing.truncate(1);
        (forwarded.sent, forwarded.acknowledged) = (0, 0);
        let slot = forwarded.slot;
        if !self.send(key, desk) {
            warn!(?slot, "the smaller copy waits");
        }
    }

    fn acknowledge(&mut self, key: Key, desk: &mut Desk) {
        let forwarded = &mut self.in_hand[key];
        forwarded.acknowledged += 1;
        if forwarded.acknowledged < forwarded.outgoing.len() {
            return;
        }
        let Some(forwarded) = self.in_hand.remove(key) else { return };
        let (slot, record) = (forwarded.slot, &forwarded.record);
        desk.settle(slot, record.offset(), record.size());
        let Some(source) = self.sources.get_mut(&slot) else { return };
        for outgoing in &forwarded.outgoing {
            if let Outgoing::Dead(dead) = outgoing {
                dead.note(&Dying { record, partition: &source.at, job: None });
            }
        }
        while source.forwarded.front().is_some_and(|&first| self.in_hand.get(first).is_none()) {
            source.forwarded.pop_front();
        }
        if source.troubled && !source.rewind {
            source.troubled = false;
            desk.trouble_over(slot);
        }
    }

    /// Forwards anew everything that is not settled, when nothing of the partition is on its way.
    fn rewind(&mut self, slot: Slot, desk: &mut Desk) {
        let Some(source) = self.sources.get_mut(&slot) else { return };
        if !source.rewind || source.on_their_way > 0 {
            return;
        }
        if let Some(at) = source.held_until.filter(|&at| at > desk.now) {
            return desk.wake_at(at);
        }
        source.rewind = false;
        source.unfinished = None;
        for key in source.forwarded.drain(..).rev() {
            if let Some(forwarded) = self.in_hand.remove(key) {
                source.waiting.push_front(forwarded.record);
            }
        }
    }
}

impl<R: EventRouter> Stage for ForwardStage<R> {
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, _desk: &mut Desk) {
        let source = Source {
            at: partition.clone(),
            waiting: VecDeque::new(),
            forwarded: VecDeque::new(),
            unfinished: None,
            on_their_way: 0,
            rewind: false,
            held_until: None,
            troubled: false,
            draining: false,
        };
        self.sources.insert(slot, source);
    }

    fn wants(&self, slot: Slot) -> bool {
        self.sources.get(&slot).is_some_and(|s| s.waiting.len() < WAITING && !s.rewind && s.held_until.is_none())
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        if let Some(source) = self.sources.get_mut(&slot) {
            source.waiting.extend(records.drain(..));
        }
        self.forward(slot, desk);
    }

    fn turn(&mut self, desk: &mut Desk) {
        self.hear_publisher(desk);
        let slots: Vec<Slot> = self.sources.keys().copied().collect();
        for slot in slots {
            self.rewind(slot, desk);
            self.forward(slot, desk);
        }
    }

    fn drain(&mut self, slot: Slot, _desk: &mut Desk) {
        if let Some(source) = self.sources.get_mut(&slot) {
            source.draining = true;
            source.waiting.clear();
        }
    }

    fn is_idle(&self, slot: Slot) -> bool {
        self.sources.get(&slot).is_none_or(|source| source.on_their_way == 0)
    }

    fn release(&mut self, slot: Slot) {
        self.sources.remove(&slot);
        let theirs: Vec<Key> = self.in_hand.iter().filter(|(_, f)| f.slot == slot).map(|(key, _)| key).collect();
        for key in theirs {
            self.in_hand.remove(key);
        }
    }
}

/// How long a partition waits when the producer's queue is full.
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
