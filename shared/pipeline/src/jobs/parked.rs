//! Jobs of parked classes: they stay in the window and in their lanes, until their class is probed or heals, or the window needs
//! their place.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_domain::flood::{Finding, Generation, Runs};
use tidegate_domain::{Outcome, ladder::Wait};
use tokio::time::Instant;

use super::guard::{Admission, Next};
use super::in_hand::State;
use super::job::{ClassId, Ordering};
use super::stage::JobStage;
use crate::keyed::Key;
use crate::shard::ShardSettings;
use crate::stage::{Desk, Slot};

/// What a partition has taken in until now, or had before it took in a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taken {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// How much of a partition's window parked records may hold, those read after them included: the commit position waits for the
/// oldest one, so they all stand in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedShare {
    /// In records.
    pub records: u64,
    /// In bytes.
    pub bytes: u64,
}

impl ParkedShare {
    /// Half of the windows of such a shard; one record at least.
    pub fn half_of(shard: &ShardSettings) -> Self {
        Self { records: (shard.window_records as u64 / 2).max(1), bytes: shard.window_bytes as u64 / 2 }
    }

    /// Whether the record at `place` and all that was taken in after it are more than that.
    fn is_exceeded(self, place: Taken, now: Taken) -> bool {
        let records = now.records - place.records;
        // A single record may be larger than half a window.
        records > self.records || (records > 1 && now.bytes - place.bytes > self.bytes)
    }
}

/// The parked jobs of one partition, each at the head of its lane.
#[derive(Debug, Default)]
pub(super) struct Parked(BTreeMap<ClassId, BTreeMap<Taken, Key>>);

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.0.values().flat_map(BTreeMap::values).copied()
    }

    /// Takes out all of them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Key> + use<> {
        std::mem::take(&mut self.0).into_values().flat_map(BTreeMap::into_values)
    }

    fn insert(&mut self, class: ClassId, place: Taken, key: Key) {
        self.0.entry(class).or_default().insert(place, key);
    }

    fn oldest(&self, class: ClassId) -> Option<Taken> {
        self.0.get(&class)?.keys().next().copied()
    }

    fn count(&self, class: ClassId) -> usize {
        self.0.get(&class).map_or(0, BTreeMap::len)
    }

    fn take_nth(&mut self, class: ClassId, n: usize) -> Option<Key> {
        let place = *self.0.get(&class)?.keys().nth(n)?;
        self.take(class, place)
    }

    fn take(&mut self, class: ClassId, place: Taken) -> Option<Key> {
        let of_class = self.0.get_mut(&class)?;
        let key = of_class.remove(&place);
        if of_class.is_empty() {
            self.0.remove(&class);
        }
        key
    }

    fn take_class(&mut self, class: ClassId) -> BTreeMap<Taken, Key> {
        self.0.remove(&class).unwrap_or_default()
    }
}

/// Runs of a class that its guard was not told of yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    generation: Generation,
    runs: Runs,
}

/// How often runs that ended well are told to the guards: a flood is seen so much later at most.
const TELL: std::time::Duration = std::time::Duration::from_millis(100);

impl JobStage {
    /// Starts the job, or parks it with its class.
    pub(super) fn start_or_park(&mut self, key: Key, desk: &mut Desk) {
        match self.class(self.jobs[key].job.class).guard.admit(desk.now) {
            None => self.park(key),
            admission => {
                self.jobs[key].admission = admission;
                self.start(key, desk);
            }
        }
    }

    /// It stays where it is, unsettled, and holds its lane.
    fn park(&mut self, key: Key) {
        let in_hand = &mut self.jobs[key];
        in_hand.state = State::Parked;
        let (slot, class, place) = (in_hand.slot, in_hand.job.class, in_hand.place);
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.parked.insert(class, place, key);
        }
        self.class(class).metrics.parked.increment(1.0);
    }

    /// The job is no longer parked: it was taken out of its partition's.
    fn unparked(&mut self, key: Key) {
        let in_hand = &mut self.jobs[key];
        in_hand.state = State::Queued;
        let class = in_hand.job.class;
        self.class(class).metrics.parked.decrement(1.0);
    }

    /// What the end of a run says of its class.
    pub(super) fn weigh(&mut self, key: Key, outcome: &Outcome, now: Instant) {
        let in_hand = &mut self.jobs[key];
        let class = in_hand.job.class;
        match in_hand.admission.take() {
            Some(Admission::Probe(probe)) => probe.found(Finding::of(outcome), now),
            Some(Admission::Counted(generation)) => self.count(class, generation, Runs::of(outcome), now),
            None => {}
        }
    }

    fn count(&mut self, class: ClassId, generation: Generation, runs: Runs, now: Instant) {
        let tally = &mut self.tallies[class.0];
        if tally.generation < generation {
            *tally = Tally { generation, runs: Runs::default() };
        }
        if tally.generation == generation {
            tally.runs.add(runs);
        }
        if runs.failed > 0 {
            self.tell(class, now);
        }
    }

    fn tell(&mut self, class: ClassId, now: Instant) {
        let Tally { generation, runs } = &mut self.tallies[class.0];
        let (generation, runs) = (*generation, std::mem::take(runs));
        if runs.count() > 0 {
            self.class(class).guard.note(generation, runs, now);
        }
    }

    /// Tells the guards of what was only counted here so far, from time to time.
    pub(super) fn tell_guards(&mut self, now: Instant) {
        if now >= self.tell_again_at {
            self.tell_again_at = now + TELL;
            (0..self.tallies.len()).for_each(|class| self.tell(ClassId(class), now));
        }
    }

    /// Lets parked jobs go on: all of a class that healed, one of a class that may be probed, and those whose place the window
    /// needs. True when any may be handed out.
    pub(super) fn see_to_parked(&mut self, desk: &mut Desk) -> bool {
        let classes: BTreeSet<ClassId> =
            self.partitions.values().flat_map(|p| p.parked.0.keys().copied()).collect();
        let mut went_on = false;
        for class in classes {
            match self.class(class).guard.outlook() {
                None => {
                    self.release_class(class);
                    went_on = true;
                }
                Some(Next::ProbeAt(at)) if at > desk.now => desk.wake_at(at),
                // When no place is free, the next one that is wakes us.
                Some(Next::ProbeAt(_)) if self.running < self.settings.concurrency => {
                    went_on |= self.offer_probe(class);
                }
                Some(Next::ProbeAt(_) | Next::AfterTheProbe) => {}
            }
        }
        self.make_room(desk);
        went_on
    }

    /// Whether any job is parked here.
    pub(super) fn has_parked(&self) -> bool {
        self.partitions.values().any(|partition| !partition.parked.is_empty())
    }

    /// Before everything that came later: the commit position waits for them.
    fn release_class(&mut self, class: ClassId) {
        let slots: Vec<Slot> = self.partitions.keys().copied().collect();
        for slot in slots {
            let Some(partition) = self.partitions.get_mut(&slot) else { continue };
            let released = partition.parked.take_class(class);
            released.values().rev().for_each(|&key| partition.ready.push_front(key));
            released.into_values().for_each(|key| self.unparked(key));
        }
    }

    /// Makes one parked job the next to be handed out. It becomes the probe if no other shard is faster. Any of them, not the
    /// oldest: jobs that fail by themselves may stand together, and would be tried one after the other.
    fn offer_probe(&mut self, class: ClassId) -> bool {
        let ours = || self.partitions.values().filter(|partition| partition.goes_on());
        let count: usize = ours().map(|partition| partition.parked.count(class)).sum();
        let mut drawn = (self.ports.clock.draw() * count as f64) as usize;
        for partition in self.partitions.values_mut().filter(|partition| partition.goes_on()) {
            if let Some(key) = partition.parked.take_nth(class, drawn) {
                partition.ready.push_front(key);
                self.unparked(key);
                return true;
            }
            drawn -= partition.parked.count(class);
        }
        false
    }

    /// The oldest climb to the longest delay topic, as long as they hold more than their share. Where order is kept nothing may
    /// overtake them, so they stay.
    fn make_room(&mut self, desk: &mut Desk) {
        let slots: Vec<Slot> = self.partitions.keys().copied().collect();
        for slot in slots {
            while let Some(key) = self.take_one_that_climbs(slot) {
                self.unparked(key);
                desk.refresh(&*self.ports.clock);
                let wait = self.longest_wait(key, desk);
                self.schedule(key, wait, None, desk);
            }
        }
    }

    fn take_one_that_climbs(&mut self, slot: Slot) -> Option<Key> {
        let classes = &self.settings.classes;
        let partition = self.partitions.get_mut(&slot).filter(|partition| partition.goes_on())?;
        let may_climb = partition.parked.0.keys().filter(|class| classes[class.0].ordering == Ordering::None);
        let oldest = may_climb.filter_map(|&class| Some((partition.parked.oldest(class)?, class))).min();
        let (place, class) = oldest?;
        let must = self.settings.parked.is_exceeded(place, partition.taken);
        if must { partition.parked.take(class, place) } else { None }
    }

    fn longest_wait(&self, key: Key, desk: &Desk) -> Wait {
        let in_hand = &self.jobs[key];
        let class = self.class(in_hand.job.class);
        class.metrics.climbed.increment(1);
        class.ladder.longest(in_hand.attempt, desk.wall, self.ports.clock.draw())
    }
}
