//! The worker's stage: its state, and the turn that lets everything go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidegate_domain::{Mark, Offset};
use tokio::time::Instant;

use super::caution::Loners;
use super::deposed::Deposed;
use super::in_hand::{Finished, InHand, State};
use super::job::{Class, ClassId, Job};
use super::parked::{Taken, Tally};
use super::parked_told::Words;
use super::partition::Partition;
use super::settings::{JobSettings, Ports};
use super::solitude::Seat;
use crate::inbox::{Inbox, Wake};
use crate::keyed::{Key, Keyed};
use crate::log_limit::LogLimit;
use crate::ports::{Delivery, MarksReady};
use crate::record::{Record, TopicPartition};
use crate::reports::Reports;
use crate::stage::{Desk, Slot, Stage};

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
    /// Replayed jobs that wait for their class, and what was said of each.
    pub(super) words: Words,
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
    /// What a turn took from the inboxes; empty between turns, for their memory.
    pub(super) answers: Vec<MarksReady>,
    pub(super) acknowledged: Vec<Delivery>,
    pub(super) outcomes: Vec<Finished>,
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
            words: Words::default(),
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
        self.words.expect(job.round);
        let key = self.put_in_hand(slot, place, job, State::Queued);
        if let Some(partition) = self.partitions.get_mut(&slot)
            && let Some(ready) = partition.lanes.enter(lane, key)
        {
            partition.ready.push_back(ready);
        }
    }

    pub(super) fn ready_again(&mut self, key: Key) {
        let Some(in_hand) = self.jobs.get_mut(key) else { return };
        in_hand.state = State::Queued;
        let slot = in_hand.slot;
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.ready.push_front(key);
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

/// What a record holds of its partition's window.
pub(super) fn share(job: &Job) -> (Offset, usize) {
    (job.record.offset(), job.record.size())
}

impl Stage for JobStage {
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, desk: &mut Desk) {
        self.settings.cut_off.assigned(desk.now);
        self.settings.first.assigned(partition);
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
            self.tell_of_parked(desk);
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
