//! The worker's stage: its state, and the turn that lets everything go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidegate_domain::mark::{Phase, Starts, Step};
use tidegate_domain::{Attempt, Hop, Mark, Offset, Outcome, Round, UnixMillis};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::caution::Loners;
use super::cut_off::CutOff;
use super::deposed::Deposed;
use super::follow_up::FollowUp;
use super::guard::Admission;
use super::job::{Class, ClassId, Job};
use super::outcome::Owed;
use super::parked::{ParkedShare, Taken, Tally};
use super::partition::{Append, Batch, Closing, Marks, Partition, Refused};
use super::solitude::{Seat, Solitude};
use crate::events;
use crate::inbox::{Inbox, Wake};
use crate::keyed::{Key, Keyed};
use crate::log_limit::LogLimit;
use crate::names::Names;
use crate::ports::{
    Clock, Delivery, Handler, MarkStore, MarkStoreError, MarksReady, RETRY_PAUSE, Readiness, RecordPublisher,
};
use crate::record::{Record, TopicPartition};
use crate::reports::Reports;
use crate::stage::{Desk, Slot, Stage};

/// What the stage works with.
#[derive(Clone)]
pub struct Ports {
    /// Publishes copies to delay topics and the DLQ.
    pub publisher: Arc<dyn RecordPublisher>,
    /// Remembers marks.
    pub marks: Arc<dyn MarkStore>,
    /// One for each class, in the order of the classes.
    pub handlers: Vec<Arc<dyn Handler>>,
    /// Clock and dice.
    pub clock: Arc<dyn Clock>,
    /// Where handlers go on that must wait.
    pub runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("handlers", &self.handlers.len()).finish_non_exhaustive()
    }
}

/// Bounds and names of the stage.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// The pipeline's names.
    pub names: Names,
    /// Every class whose jobs may come.
    pub classes: Arc<[Class]>,
    /// How many handlers of this shard run at the same time.
    pub concurrency: usize,
    /// How long a step that promises a later copy is believed.
    pub belief: Duration,
    /// How many marks are appended together at most: they must fit into one record, at 62 bytes each.
    pub marks_together: usize,
    /// How much of a partition's window jobs of parked classes may hold.
    pub parked: ParkedShare,
    /// Shared by all shards of the process: how a job runs alone in it.
    pub solitude: Solitude,
    /// Shared by all shards of the process: whether it was cut off.
    pub cut_off: CutOff,
}

/// A job in hand.
#[derive(Debug)]
pub(super) struct InHand {
    pub(super) slot: Slot,
    pub(super) job: Arc<Job>,
    /// The round, hop and attempt that it runs as: the verdict may change the round, in-place retries the attempt.
    pub(super) round: Round,
    pub(super) hop: Hop,
    pub(super) attempt: Attempt,
    /// From when on it waits for its run: an in-place retry's back-off is no wait.
    pub(super) due: UnixMillis,
    /// What was known of the key when it was handed out.
    pub(super) known: Mark,
    /// What its partition had taken in before it.
    pub(super) place: Taken,
    /// What it runs as, while it does.
    pub(super) admission: Option<Admission>,
    /// It is marked as started: care was taken.
    pub(super) careful: bool,
    /// It ends its process, or an equal one did.
    pub(super) kills: bool,
    pub(super) state: State,
}

impl InHand {
    /// What the step says that this very run comes after, if it is `Started`.
    pub(super) fn starts(&self) -> Option<Starts> {
        self.own_step(Phase::Started).map(|step| Starts::of(step.n))
    }

    /// How often it was tried in place already.
    pub(super) fn tried(&self) -> u32 {
        let started = self.starts().map_or(0, |starts| starts.tried);
        self.own_step(Phase::Tried).map_or(started, |step| step.n)
    }

    /// The known step of this job, if it is of this round, hop and phase.
    pub(super) fn own_step(&self, phase: Phase) -> Option<Step> {
        self.known.step.filter(|step| {
            step.phase == phase
                && step.job == self.job.hash
                && (step.round, step.hop) == (self.round, self.hop)
        })
    }
}

#[derive(Debug)]
pub(super) enum State {
    /// In its lane, or at its head.
    Queued,
    /// At the head of its lane, until its class is probed or heals.
    Parked,
    /// The handler runs on the runtime.
    Running(AbortHandle),
    /// Its `Started` is on its way: it runs when that is acknowledged.
    BeingMarked,
    /// It runs when nothing else does.
    WaitingToBeAlone,
    /// The handler runs again in place when the timer says so.
    WaitingInPlace,
    /// A copy is on its way, or waits to be published again.
    FollowingUp(FollowUp),
}

/// What a handler answered, and how long it took.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) key: Key,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

/// The worker's stage.
pub struct JobStage {
    pub(super) ports: Ports,
    pub(super) settings: JobSettings,
    class_ids: FxHashMap<String, ClassId>,
    pub(super) jobs: Keyed<InHand>,
    pub(super) partitions: BTreeMap<Slot, Partition>,
    pub(super) running: usize,
    /// By class.
    pub(super) tallies: Vec<Tally>,
    pub(super) tell_again_at: Instant,
    /// Failures of a class that are told.
    pub(super) told_failures: LogLimit<ClassId>,
    /// The partition that had its turn last, when not all could be handed out.
    pub(super) last_served: Option<Slot>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, Key)>>,
    pub(super) deliveries: Arc<Inbox<Delivery>>,
    pub(super) marks_ready: Arc<Inbox<MarksReady>>,
    pub(super) solitude: Seat,
    pub(super) loners: Loners,
    /// Jobs whose `Started` is on its way.
    pub(super) being_marked: usize,
    pub(super) deposed: Deposed,
    pub(super) reports: Reports,
    pub(super) finished: Arc<Inbox<Finished>>,
    answers: Vec<MarksReady>,
    acknowledged: Vec<Delivery>,
    outcomes: Vec<Finished>,
}

impl std::fmt::Debug for JobStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobStage")
            .field("jobs", &self.jobs.len())
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl JobStage {
    /// A stage of the shard that `wake` wakes.
    pub fn new(ports: Ports, settings: JobSettings, wake: &Wake) -> Self {
        settings.classes.iter().for_each(|class| class.guard.tell(wake));
        let reports = Reports::new(ports.publisher.clone(), settings.names.dlq_journal(), wake);
        let ids = settings.classes.iter().enumerate().map(|(id, class)| (class.name.clone(), ClassId(id)));
        Self {
            class_ids: ids.collect(),
            tallies: vec![Tally::default(); settings.classes.len()],
            tell_again_at: Instant::now(),
            solitude: settings.solitude.seat(wake),
            loners: Loners::default(),
            being_marked: 0,
            deposed: Deposed::default(),
            reports,
            ports,
            settings,
            jobs: Keyed::default(),
            partitions: BTreeMap::new(),
            running: 0,
            told_failures: LogLimit::new(),
            last_served: None,
            timers: BinaryHeap::new(),
            deliveries: Inbox::new(wake.clone()),
            marks_ready: Inbox::new(wake.clone()),
            finished: Inbox::new(wake.clone()),
            answers: Vec::new(),
            acknowledged: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    pub(super) fn class(&self, id: ClassId) -> &Class {
        &self.settings.classes[id.0]
    }

    /// The job left: its lane goes on.
    pub(super) fn leave(&mut self, key: Key) {
        let Some(in_hand) = self.jobs.remove(key) else { return };
        let Some(partition) = self.partitions.get_mut(&in_hand.slot) else { return };
        if let Some(next) = partition.lanes.leave(in_hand.job.lane) {
            partition.ready.push_back(next);
        }
    }

    fn take_in(&mut self, slot: Slot, record: Record, desk: &mut Desk) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        let place = partition.taken;
        partition.taken.records += 1;
        partition.taken.bytes += record.size() as u64;
        match Job::read(record, &partition.at, |name| self.class_ids.get(name).copied()) {
            Ok(job) => self.queue(slot, place, job),
            Err((record, error)) => self.refuse(slot, record, &error, desk),
        }
    }

    pub(super) fn put_in_hand(&mut self, slot: Slot, place: Taken, job: Job, state: State) -> Key {
        let (round, hop, attempt, due) = (job.round, job.hop, job.attempt, job.due);
        let (job, known) = (Arc::new(job), Mark::default());
        let admission = None;
        let (careful, kills) = (false, false);
        self.jobs.insert(InHand {
            slot,
            job,
            round,
            hop,
            attempt,
            due,
            known,
            place,
            admission,
            careful,
            kills,
            state,
        })
    }

    fn queue(&mut self, slot: Slot, place: Taken, job: Job) {
        let lane = job.lane;
        let key = self.put_in_hand(slot, place, job, State::Queued);
        if let Some(partition) = self.partitions.get_mut(&slot)
            && let Some(ready) = partition.lanes.enter(lane, key)
        {
            partition.ready.push_back(ready);
        }
    }

    fn hear_store(&mut self, desk: &mut Desk) -> bool {
        let mut answers = std::mem::take(&mut self.answers);
        self.marks_ready.take(&mut answers);
        let heard = !answers.is_empty();
        for (ticket, answer) in answers.drain(..) {
            let asker = self.partitions.iter_mut().find(|(_, p)| {
                p.marks == Marks::Opening(ticket)
                    || p.closing == Closing::OnItsWay(ticket)
                    || p.append.as_ref().is_some_and(|a| a.ticket == ticket)
            });
            let Some((&slot, partition)) = asker else {
                if !self.told_owner(ticket, answer.is_ok(), desk) {
                    events::fenced();
                }
                continue;
            };
            match answer {
                _ if partition.closing == Closing::OnItsWay(ticket) => partition.closing = Closing::Known,
                // It was let go of before it was open.
                Err(_) if partition.closing != Closing::NotYet => {}
                Ok(Readiness { suspects }) if partition.marks == Marks::Opening(ticket) => {
                    partition.marks = Marks::Open;
                    partition.suspect(suspects, &self.settings.cut_off, desk.now);
                    partition.trouble_over(slot, desk);
                }
                Ok(_) => {
                    let starts = Self::appended(slot, partition, &mut self.reports, desk);
                    self.may_start(&starts, desk);
                }
                Err(error) => {
                    events::mark_error();
                    if matches!(error, MarkStoreError::NotOpen(_)) {
                        partition.open_again(desk);
                    }
                    // What is let go of before it was ready is no trouble.
                    if partition.closing == Closing::NotYet {
                        desk.trouble(slot, error.to_string());
                    }
                    let again_at = desk.now + RETRY_PAUSE;
                    match &mut partition.append {
                        Some(append) if append.ticket == ticket => {
                            (append.again_at, append.refused) = (Some(again_at), Refused::Before);
                        }
                        _ => partition.marks = Marks::OpenAgainAt(again_at),
                    }
                }
            }
        }
        self.answers = answers;
        heard
    }

    /// A batch is durable: what it settles is settled. Gives the jobs that waited for it.
    fn appended(slot: Slot, partition: &mut Partition, reports: &mut Reports, desk: &mut Desk) -> Vec<Key> {
        let Some(Append { mut batch, .. }) = partition.append.take() else { return Vec::new() };
        for entry in &batch.entries {
            partition.overlay.acknowledged(entry);
        }
        partition.trouble_over(slot, desk);
        let starts = std::mem::take(&mut batch.starts);
        settle_all(slot, batch, reports, desk);
        starts
    }

    fn hear_handlers(&mut self, desk: &mut Desk) -> bool {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.finished.take(&mut outcomes);
        let heard = !outcomes.is_empty();
        for Finished { key, outcome, took } in outcomes.drain(..) {
            let Some(InHand { state: State::Running(_), slot, .. }) = self.jobs.get_mut(key) else {
                events::fenced();
                continue;
            };
            let slot = *slot;
            self.running -= 1;
            match self.partitions.get_mut(&slot) {
                Some(partition) => {
                    partition.running -= 1;
                    self.conclude(key, outcome, took, desk);
                }
                None => self.ended_deposed(key, &outcome, desk),
            }
        }
        self.outcomes = outcomes;
        heard
    }

    fn hear_publisher(&mut self, desk: &mut Desk) -> bool {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        let heard = !acknowledged.is_empty();
        for (ticket, result) in acknowledged.drain(..) {
            let key = Key::of(ticket);
            match self.jobs.get_mut(key) {
                Some(InHand { state: State::FollowingUp(_), .. }) => {
                    self.delivered(key, result.map(drop), desk)
                }
                _ => events::fenced(),
            }
        }
        self.acknowledged = acknowledged;
        heard
    }

    fn ring_timers(&mut self, desk: &mut Desk) -> bool {
        let mut rang = false;
        while let Some(&Reverse((at, key))) = self.timers.peek() {
            if at > desk.now {
                desk.wake_at(at);
                break;
            }
            self.timers.pop();
            rang = true;
            match self.jobs.get_mut(key).map(|in_hand| &in_hand.state) {
                Some(State::WaitingInPlace) => self.ready_again(key),
                Some(State::FollowingUp(_)) => self.publish_follow_up(key, desk),
                _ => {}
            }
        }
        rang
    }

    pub(super) fn ready_again(&mut self, key: Key) {
        let Some(in_hand) = self.jobs.get_mut(key) else { return };
        in_hand.state = State::Queued;
        let slot = in_hand.slot;
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.ready.push_front(key);
        }
    }

    fn write_marks(&mut self, desk: &mut Desk) {
        self.tell_owners(desk);
        let slots: Vec<Slot> = self.partitions.keys().copied().collect();
        for slot in slots {
            self.reopen(slot, desk);
            self.close_drained(slot);
            let Some(partition) = self.partitions.get_mut(&slot) else { continue };
            let Some((batch, refused)) = partition.next_append(desk) else { continue };
            if batch.entries.is_empty() {
                settle_all(slot, batch, &mut self.reports, desk);
                continue;
            }
            let ticket = self.jobs.free_ticket();
            self.ports.marks.append(&partition.at, &batch.entries, ticket, &self.marks_ready);
            partition.append = Some(Append { ticket, batch, since: desk.now, again_at: None, refused });
        }
    }

    /// Nothing of the partition is left to do: that it is let go of must be known before it is another's.
    fn close_drained(&mut self, slot: Slot) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        if partition.draining && partition.closing == Closing::NotYet && partition.has_nothing_to_do() {
            let ticket = self.jobs.free_ticket();
            partition.closing = Closing::OnItsWay(ticket);
            self.ports.marks.close(&partition.at, ticket, &self.marks_ready);
        }
    }

    fn reopen(&mut self, slot: Slot, desk: &mut Desk) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        if let Marks::OpenAgainAt(at) = partition.marks {
            if at > desk.now {
                desk.wake_at(at);
            } else {
                let ticket = self.jobs.free_ticket();
                partition.marks = Marks::Opening(ticket);
                self.ports.marks.open(&partition.at, ticket, &self.marks_ready);
            }
        }
    }

    pub(super) fn stop_job(&mut self, key: Key) {
        let Some(in_hand) = self.jobs.remove(key) else { return };
        match in_hand.state {
            State::Running(task) => {
                task.abort();
                self.running -= 1;
                self.class(in_hand.job.class).metrics.in_flight.decrement(1.0);
            }
            State::Parked => self.class(in_hand.job.class).metrics.parked.decrement(1.0),
            State::BeingMarked => self.being_marked -= 1,
            State::Queued | State::WaitingToBeAlone | State::WaitingInPlace | State::FollowingUp(_) => {}
        }
    }
}

/// The batch is durable: what it settles is settled, and outcomes that it makes true are told.
fn settle_all(slot: Slot, batch: Batch, reports: &mut Reports, desk: &mut Desk) {
    for (offset, bytes) in batch.settles {
        desk.settle(slot, offset, bytes);
    }
    for Owed { share, entry } in batch.owed {
        reports.report(slot, Some(share), *entry, desk);
    }
}

/// What a record holds of its partition's window.
pub(super) fn share(job: &Job) -> (Offset, usize) {
    (job.record.offset(), job.record.size())
}

impl Stage for JobStage {
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, desk: &mut Desk) {
        self.settings.cut_off.assigned(desk.now);
        let ticket = self.jobs.free_ticket();
        self.partitions.insert(slot, Partition::new(partition.clone(), ticket, self.settings.marks_together));
        self.ports.marks.open(partition, ticket, &self.marks_ready);
    }

    fn wants(&self, slot: Slot) -> bool {
        self.partitions.get(&slot).is_some_and(Partition::goes_on)
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        for record in records.drain(..) {
            self.take_in(slot, record, desk);
        }
    }

    fn turn(&mut self, desk: &mut Desk) {
        loop {
            let mut went_on = self.hear_store(desk);
            went_on |= self.hear_handlers(desk);
            went_on |= self.hear_publisher(desk);
            went_on |= self.hear_journal(desk);
            went_on |= self.ring_timers(desk);
            went_on |= self.see_to_loners(desk) && self.hand_out(desk);
            went_on |= self.has_parked() && self.see_to_parked(desk);
            self.write_marks(desk);
            if !went_on {
                return self.tell_guards(desk.now);
            }
        }
    }

    fn explains_standstill(&self, slot: Slot) -> bool {
        self.partitions.get(&slot).is_some_and(Partition::is_parked)
    }

    fn drain(&mut self, slot: Slot, _desk: &mut Desk) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        partition.draining = true;
        let mut unstarted: Vec<Key> = partition.ready.drain(..).collect();
        unstarted.extend(partition.lanes.take_followers());
        unstarted.extend(partition.parked.take_all());
        let waits = |state: &State| {
            matches!(state, State::WaitingInPlace | State::BeingMarked | State::WaitingToBeAlone)
        };
        let waiting = |(_, h): &(Key, &InHand)| h.slot == slot && waits(&h.state);
        unstarted.extend(self.jobs.iter().filter(waiting).map(|(key, _)| key));
        for key in unstarted {
            self.stop_job(key);
        }
    }

    fn is_idle(&self, slot: Slot) -> bool {
        self.partitions.get(&slot).is_none_or(Partition::is_idle) && self.reports.is_idle(slot)
    }

    fn release(&mut self, slot: Slot, desk: &mut Desk) {
        let theirs = |(key, in_hand): (Key, &InHand)| (in_hand.slot == slot).then_some(key);
        let keys: Vec<Key> = self.jobs.iter().filter_map(theirs).collect();
        for key in keys {
            self.stop_job(key);
        }
        self.reports.release(slot);
        if let Some(partition) = self.partitions.remove(&slot) {
            self.let_go(&partition, desk);
        }
    }

    fn lose(&mut self, slot: Slot, desk: &mut Desk) {
        self.settings.cut_off.lost();
        self.reports.release(slot);
        self.depose(slot, desk);
    }
}
