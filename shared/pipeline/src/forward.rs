//! The stage of ingest: each event becomes jobs, is ignored by a rule, or is dead-lettered with its bytes.
//!
//! A partition is forwarded in order. A publish that fails stops it: when nothing of it is on its way any more, everything that is
//! not settled is forwarded anew from the lowest offset. Copies that had arrived then arrive twice, which marks absorb; that
//! one overtakes another they could not.

mod told;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{Failure, FailureKind, Partition, Topic, UnixMillis};
use tokio::time::Instant;

use crate::dead_letter::{DeadLetter, Dying, Returned, SmallestForm, source_headers};
use crate::events;
use crate::inbox::{Inbox, Wake};
use crate::keyed::{Key, Keyed};
use crate::names::Names;
use crate::ports::{Delivery, PublishError, RETRY_PAUSE, RecordPublisher, SILENCE};
use crate::record::{OutboundRecord, Record, TopicPartition};
use crate::reports::Reports;
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
    /// The jobs that were appended, and for these reasons not every class that it matches has one: a dead letter for each.
    JobsAndDead(Vec<Failure>),
    /// It can't be decided yet, and will be in a moment: the router wakes the shard then.
    Soon,
    /// It can't be decided now, and why: its partition is held up.
    Later(String),
}

#[derive(Debug)]
enum Outgoing {
    Job(PlannedJob),
    Dead(DeadLetter),
}

/// How far one copy of an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Unsent,
    OnItsWay,
    Acknowledged,
}

/// The copies of one event; most have one.
type Copies = SmallVec<[(Outgoing, Stand); 1]>;

/// What a decided event becomes; `None` is nothing.
fn copies(routed: Routed, planned: &mut Vec<PlannedJob>) -> Option<Copies> {
    let dead = |failure| (Outgoing::Dead(DeadLetter::new(failure)), Stand::Unsent);
    let jobs = planned.drain(..).map(|job| (Outgoing::Job(job), Stand::Unsent));
    match routed {
        Routed::Ignored | Routed::Soon | Routed::Later(_) => None,
        Routed::Dead(failure) => Some(smallvec![dead(failure)]),
        Routed::JobsAndDead(failures) => Some(jobs.chain(failures.into_iter().map(dead)).collect()),
        Routed::Jobs if jobs.len() == 0 => {
            let message = "its routes made no job of the event";
            Some(smallvec![dead(Failure::new(FailureKind::Unroutable, "no-job", message))])
        }
        Routed::Jobs => Some(jobs.collect()),
    }
}

#[derive(Debug)]
struct Forwarded {
    slot: Slot,
    record: Record,
    /// What it becomes; handed over in order.
    copies: Copies,
    /// Where it came from, if an operator sent it again.
    returned: Option<Box<Returned>>,
}

/// What an acknowledgement belongs to.
#[derive(Debug)]
struct OnItsWay {
    slot: Slot,
    event: Key,
    copy: usize,
}

/// Why a partition makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldUp {
    /// The router can't decide now.
    Undecided,
    /// A copy was not published.
    Unpublished,
}

#[derive(Debug)]
struct Source {
    at: TopicPartition,
    /// Its records are dead letters that operators sent again.
    is_reingest: bool,
    /// Fetched and not routed.
    waiting: VecDeque<Record>,
    /// Routed and not settled, in offset order; settled ones leave lazily.
    forwarded: VecDeque<Key>,
    /// Those of `forwarded` that are not handed over whole.
    unfinished: VecDeque<Key>,
    on_their_way: usize,
    /// When something was last acknowledged, or handed over while nothing was on its way.
    heard: Instant,
    /// A publish failed: forward anew when nothing is on its way.
    rewind: bool,
    held_until: Option<Instant>,
    held_up: Option<HeldUp>,
    /// An outcome of a replayed record was refused by the journal, and not taken since.
    journal_refuses: bool,
    draining: bool,
}

/// The stage of ingest.
pub struct ForwardStage<R> {
    router: R,
    publisher: Arc<dyn RecordPublisher>,
    names: Names,
    sources: BTreeMap<Slot, Source>,
    in_hand: Keyed<Forwarded>,
    on_their_way: Keyed<OnItsWay>,
    reports: Reports,
    deliveries: Arc<Inbox<Delivery>>,
    acknowledged: Vec<Delivery>,
    /// The jobs of the event that is being routed; empty between two.
    planned: Vec<PlannedJob>,
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
            reports: Reports::new(publisher.clone(), names.dlq_journal(), wake),
            publisher,
            names,
            sources: BTreeMap::new(),
            in_hand: Keyed::default(),
            on_their_way: Keyed::default(),
            deliveries: Inbox::new(wake.clone()),
            acknowledged: Vec::new(),
            planned: Vec::new(),
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
            if let Some(key) = source.unfinished.pop_front() {
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
        self.planned.clear();
        let routed = self.router.route(&source.at, &record, desk.wall, &mut self.planned);
        if routed == Routed::Soon {
            source.waiting.push_front(record);
            desk.wake_after(RETRY_PAUSE);
            return false;
        }
        if let Routed::Later(reason) = routed {
            source.waiting.push_front(record);
            source.held_until = Some(desk.now + RETRY_PAUSE);
            source.held_up = Some(HeldUp::Undecided);
            desk.trouble(slot, reason);
            desk.wake_after(RETRY_PAUSE);
            return false;
        }
        source.goes_on_from(HeldUp::Undecided, slot, desk);
        let returned = source.returned(&record);
        let Some(copies) = copies(routed, &mut self.planned) else {
            let ignored = Some("it is ignored by a rule".to_owned());
            self.settle(slot, &record, returned.as_deref(), (ignored, None), desk);
            return true;
        };
        let key = self.in_hand.insert(Forwarded { slot, record, copies, returned });
        source.forwarded.push_back(key);
        self.send(key, desk)
    }

    /// Hands over what the record becomes, in order; false when the partition must wait.
    fn send(&mut self, key: Key, desk: &mut Desk) -> bool {
        while let Some(forwarded) = self.in_hand.get(key) {
            let slot = forwarded.slot;
            let Some(copy) = forwarded.copies.iter().position(|(_, stand)| *stand == Stand::Unsent) else {
                return true;
            };
            let ticket = self.on_their_way.insert(OnItsWay { slot, event: key, copy });
            let result = self.publish(ticket, forwarded, &forwarded.copies[copy].0, desk.wall);
            if result.is_err() {
                self.on_their_way.remove(ticket);
            }
            let Some(source) = self.sources.get_mut(&slot) else { return false };
            match result {
                Ok(()) => {
                    if source.on_their_way == 0 {
                        source.heard = desk.now;
                    }
                    source.on_their_way += 1;
                    self.in_hand[key].copies[copy].1 = Stand::OnItsWay;
                }
                Err(PublishError::Full) => {
                    source.unfinished.push_front(key);
                    desk.wake_after(FULL_PAUSE);
                    return false;
                }
                Err(PublishError::TooLarge(reason)) => {
                    if let Err(smallest) = self.shrink(key, copy, &reason) {
                        self.failed(slot, &smallest.into(), desk);
                        return false;
                    }
                }
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
        ticket: Key,
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
                self.publisher.publish(&outbound, ticket.ticket(), &self.deliveries)
            }
            Outgoing::Dead(dead) => {
                let Some(source) = self.sources.get(&forwarded.slot) else { return Ok(()) };
                let returned = forwarded.returned.as_deref();
                let dying = Dying { record, partition: &source.at, job: None, returned };
                let dlq = self.names.dlq();
                dead.publish((&*self.publisher, &dlq), &dying, now, ticket.ticket(), &self.deliveries)
            }
        }
    }

    /// The copy in the next smaller form.
    fn shrink(&mut self, key: Key, copy: usize, reason: &str) -> Result<(), SmallestForm> {
        let (outgoing, stand) = &mut self.in_hand[key].copies[copy];
        *stand = Stand::Unsent;
        match outgoing {
            Outgoing::Job(_) => {
                let message = format!("the event is too large for its job topic: {reason}");
                *outgoing = Outgoing::Dead(DeadLetter::new(Failure::permanent("too-large", message)));
                Ok(())
            }
            Outgoing::Dead(dead) => dead.shrink(),
        }
    }

    fn failed(&mut self, slot: Slot, error: &PublishError, desk: &mut Desk) {
        events::publish_error();
        let Some(source) = self.sources.get_mut(&slot) else { return };
        source.rewind = true;
        source.held_up = Some(HeldUp::Unpublished);
        source.held_until = Some(desk.now + RETRY_PAUSE);
        desk.trouble(slot, error.to_string());
        desk.wake_after(RETRY_PAUSE);
    }

    fn hear_publisher(&mut self, desk: &mut Desk) {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        for (ticket, result) in acknowledged.drain(..) {
            let Some(OnItsWay { slot, event, copy }) = self.on_their_way.remove(Key::of(ticket)) else {
                events::fenced();
                continue;
            };
            let Some(source) = self.sources.get_mut(&slot) else { continue };
            source.on_their_way -= 1;
            source.heard = desk.now;
            match result {
                Ok(_) => self.acknowledge(event, copy, desk),
                Err(PublishError::TooLarge(reason)) => self.send_smaller(slot, event, copy, &reason, desk),
                Err(error) => self.failed(slot, &error, desk),
            }
        }
        self.acknowledged = acknowledged;
    }

    fn send_smaller(&mut self, slot: Slot, event: Key, copy: usize, reason: &str, desk: &mut Desk) {
        match self.shrink(event, copy, reason) {
            Err(smallest) => self.failed(slot, &smallest.into(), desk),
            Ok(()) => {
                if let Some(source) = self.sources.get_mut(&slot) {
                    source.unfinished.push_back(event);
                }
            }
        }
    }

    fn acknowledge(&mut self, event: Key, copy: usize, desk: &mut Desk) {
        let forwarded = &mut self.in_hand[event];
        forwarded.copies[copy].1 = Stand::Acknowledged;
        if forwarded.copies.iter().any(|(_, stand)| *stand != Stand::Acknowledged) {
            return;
        }
        let Some(forwarded) = self.in_hand.remove(event) else { return };
        let (slot, record, returned) = (forwarded.slot, &forwarded.record, forwarded.returned.as_deref());
        let dead = forwarded.copies.iter().find_map(|(outgoing, _)| match outgoing {
            Outgoing::Dead(dead) => Some(&dead.failure),
            Outgoing::Job(_) => None,
        });
        self.settle(slot, record, returned, (None, dead), desk);
        let Some(source) = self.sources.get_mut(&slot) else { return };
        for (outgoing, _) in &forwarded.copies {
            if let Outgoing::Dead(dead) = outgoing {
                dead.note(&Dying { record, partition: &source.at, job: None, returned });
            }
        }
        while source.forwarded.front().is_some_and(|&first| self.in_hand.get(first).is_none()) {
            source.forwarded.pop_front();
        }
        if !source.rewind {
            source.goes_on_from(HeldUp::Unpublished, slot, desk);
        }
    }

    /// A publisher in order lets nothing expire, so it is here that silence is told.
    fn tell_silence(&mut self, slot: Slot, desk: &mut Desk) {
        let Some(source) = self.sources.get_mut(&slot) else { return };
        if source.on_their_way == 0 || source.held_up.is_some() {
            return;
        }
        let at = source.heard + SILENCE;
        if at > desk.now {
            return desk.wake_at(at);
        }
        source.held_up = Some(HeldUp::Unpublished);
        desk.trouble(
            slot,
            format!("nothing is acknowledged since {SILENCE:?}: a topic can't be written now"),
        );
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
        source.unfinished.clear();
        for key in source.forwarded.drain(..).rev() {
            if let Some(forwarded) = self.in_hand.remove(key) {
                source.waiting.push_front(forwarded.record);
            }
        }
    }
}

impl Source {
    /// What held the partition up is over, if it was this.
    fn goes_on_from(&mut self, reason: HeldUp, slot: Slot, desk: &mut Desk) {
        if self.held_up == Some(reason) {
            self.held_up = None;
            self.trouble_over(slot, desk);
        }
    }

    fn trouble_over(&self, slot: Slot, desk: &mut Desk) {
        if self.held_up.is_none() && !self.journal_refuses {
            desk.trouble_over(slot);
        }
    }
}

impl<R: EventRouter> Stage for ForwardStage<R> {
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, desk: &mut Desk) {
        let source = Source {
            at: partition.clone(),
            is_reingest: partition.topic == self.names.reingest(),
            waiting: VecDeque::new(),
            forwarded: VecDeque::new(),
            unfinished: VecDeque::new(),
            on_their_way: 0,
            heard: desk.now,
            rewind: false,
            held_until: None,
            held_up: None,
            journal_refuses: false,
            draining: false,
        };
        self.sources.insert(slot, source);
    }

    fn wants(&self, slot: Slot) -> bool {
        self.sources
            .get(&slot)
            .is_some_and(|s| s.waiting.len() < WAITING && !s.rewind && s.held_until.is_none())
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        if let Some(source) = self.sources.get_mut(&slot) {
            source.waiting.extend(records.drain(..));
        }
        self.forward(slot, desk);
    }

    fn turn(&mut self, desk: &mut Desk) {
        self.hear_publisher(desk);
        self.hear_journal(desk);
        let slots: Vec<Slot> = self.sources.keys().copied().collect();
        for slot in slots {
            self.rewind(slot, desk);
            self.forward(slot, desk);
            self.tell_silence(slot, desk);
        }
    }

    fn drain(&mut self, slot: Slot, _desk: &mut Desk) {
        if let Some(source) = self.sources.get_mut(&slot) {
            source.draining = true;
            source.waiting.clear();
        }
    }

    fn is_idle(&self, slot: Slot) -> bool {
        let is_idle = |source: &Source| source.on_their_way == 0;
        self.sources.get(&slot).is_none_or(is_idle) && self.reports.is_idle(slot)
    }

    fn release(&mut self, slot: Slot, _desk: &mut Desk) {
        self.reports.release(slot);
        self.sources.remove(&slot);
        self.in_hand.retain(|forwarded| forwarded.slot != slot);
        self.on_their_way.retain(|copy| copy.slot != slot);
    }
}

/// How long a partition waits when the producer's queue is full.
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
