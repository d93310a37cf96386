//! How fast a run of replays may go on: a few first, and more only after those did not fail.
//!
//! A ramp knows its items by their place in the order in which they are published. It is a function of its limits and of what
//! became of its items, both of which the journal holds: whoever goes on with a run after a crash makes the ramp anew from the
//! accepted items of the run, in order, tells it the outcomes, and publishes what it asks for. What was published and has no
//! outcome, or one that says to wait until a time that is long over, is published again; workers run it once. A run that an
//! operator resumes after a stop begins anew, with its first step, with the items that have no end at that place of the journal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use super::fold::{Answer, End};
use crate::position::UnixMillis;

/// How a ramp climbs, and what stops it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RampLimits {
    /// How many items the first step has; at least 1.
    pub first: u32,
    /// By how much each step is larger than the one before; at least 1.
    pub factor: u32,
    /// How many items a step has at most, however often it was multiplied.
    pub cap: u32,
    /// From which share of a step's items on, that failed again, the ramp stops, within 0 and 1. A step without a failure never
    /// stops it, so 0 stops at the first one.
    pub failures: f64,
    /// How long an outcome may take, from the publication or from the time that the last outcome says it waits until, and how long
    /// nothing may be heard at all: as long as outcomes come, the others wait their turn.
    pub timeout: Duration,
}

impl RampLimits {
    /// 1, 5, 25, 125, … to at most 10,000; stops when a tenth of a step fails, or when outcomes that are due do not come for
    /// two minutes.
    pub const CANARY: Self =
        Self { first: 1, factor: 5, cap: 10_000, failures: 0.1, timeout: Duration::from_secs(120) };

    /// All in one step.
    pub const ALL_AT_ONCE: Self = Self { first: u32::MAX, factor: 1, cap: u32::MAX, ..Self::CANARY };

    fn step_after(&self, size: usize) -> usize {
        let factor = self.factor.max(1) as usize;
        size.saturating_mul(factor).min(self.cap.max(1) as usize)
    }

    fn first_step(&self) -> usize {
        self.first.clamp(1, self.cap.max(1)) as usize
    }

    /// Whether so many failures of so many items are too many.
    fn stops_at(&self, failed: usize, of: usize) -> bool {
        failed > 0 && failed as f64 >= self.failures * of as f64
    }
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// These places may be published, in order, and each be told by [`Ramp::published`]. Those that are not to be published any
    /// more are left out by whoever publishes; see [`Ramp::is_unpublished`]. Asked again, the ramp names what is left of them.
    Publish(Range<usize>),
    /// Outcomes are to come; the next one that is missed is missed at this time.
    Wait(UnixMillis),
    /// An operator paused it.
    Paused,
    /// It stopped by itself, for good.
    Stopped(Stop),
    /// Every item has its end.
    Finished,
}

/// Why a ramp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Too many of a step failed again.
    #[error("{} of step {step} that ended failed again: look at why before you go on", these_of(*failed, *ended))]
    TooManyFailures {
        /// Which step, from 1.
        step: u32,
        /// How many of it failed.
        failed: usize,
        /// How many of it ended.
        ended: usize,
    },
    /// An outcome did not come.
    #[error(
        "{missing} {} of step {step} did not come in time{}: see whether workers run and can write the journal, then resume the run",
        if *missing == 1 { "outcome" } else { "outcomes" },
        after_a_wait(*missing, *waited)
    )]
    MissingOutcomes {
        /// Which step, from 1.
        step: u32,
        /// The first place whose outcome is missing.
        place: usize,
        /// How many of the step have none.
        missing: usize,
        /// Of how many of those a worker said last that they wait, until a time that is over.
        waited: usize,
    },
}

fn these_of(failed: usize, ended: usize) -> String {
    if ended == 1 { "the only replay".to_owned() } else { format!("{failed} of the {ended} replays") }
}

/// What a worker said last of what is missing.
fn after_a_wait(missing: usize, waited: usize) -> String {
    match (missing, waited) {
        (_, 0) => String::new(),
        (1, _) => ", and what its worker said last, that it waits, is no longer so".to_owned(),
        (missing, waited) if missing == waited => {
            ", and what their workers said last, that they wait, is no longer so".to_owned()
        }
        (_, waited) => {
            format!(", and what workers said last of {waited} of them, to wait, is no longer so")
        }
    }
}

/// Where one item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Unpublished,
    /// Published; its next outcome is missed at this time.
    Out(UnixMillis),
    /// A worker said last that it waits; its next outcome is missed at this time.
    Waits(UnixMillis),
    /// It was seen behind records that workers get through; its next outcome is missed at this time.
    Queued(UnixMillis),
    Ended(End),
}

impl Place {
    /// When its next outcome is missed.
    fn missed_at(self) -> Option<UnixMillis> {
        match self {
            Self::Out(at) | Self::Waits(at) | Self::Queued(at) => Some(at),
            Self::Unpublished | Self::Ended(_) => None,
        }
    }
}

/// How replays ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// How many did not fail.
    pub passed: usize,
    /// How many were dead-lettered again.
    pub failed: usize,
    /// How many were given up.
    pub withdrawn: usize,
}

impl Ends {
    fn count(&mut self, end: End) {
        match end {
            End::Passed => self.passed += 1,
            End::Failed => self.failed += 1,
            End::Withdrawn => self.withdrawn += 1,
        }
    }

    /// Those that say whether replays go well.
    fn judged(self) -> usize {
        self.passed + self.failed
    }
}

/// The ramp of one run.
#[derive(Clone, Debug)]
pub struct Ramp {
    limits: RampLimits,
    places: Vec<Place>,
    /// The step under way: its number from 1, its places, and how many of those may no longer be published.
    step: u32,
    begin: usize,
    end: usize,
    next: usize,
    step_ends: Ends,
    /// Of all.
    ends: Ends,
    outstanding: usize,
    /// How many of those wait, as was said of them last, and how many were seen behind others.
    waiting: usize,
    queued: usize,
    /// Times at which an outcome is missed; those that are not their place's own any more are passed over.
    deadlines: BinaryHeap<Reverse<(UnixMillis, usize)>>,
    /// When something was heard of last, or the ramp went on after a pause.
    heard_at: Option<UnixMillis>,
    paused: bool,
    stopped: Option<Stop>,
}

impl Ramp {
    /// A ramp over so many items.
    pub fn new(limits: RampLimits, items: usize) -> Self {
        Self {
            places: vec![Place::Unpublished; items],
            step: 1,
            begin: 0,
            end: limits.first_step().min(items),
            next: 0,
            step_ends: Ends::default(),
            ends: Ends::default(),
            outstanding: 0,
            waiting: 0,
            queued: 0,
            deadlines: BinaryHeap::new(),
            heard_at: None,
            paused: false,
            stopped: None,
            limits,
        }
    }

    /// What is to be done now. Goes on to the next step when the outcomes of this one are in, and stops when they are too bad or
    /// too late.
    pub fn next(&mut self, now: UnixMillis) -> Move {
        loop {
            if let Some(stop) = self.stopped {
                return Move::Stopped(stop);
            }
            if self.is_bad() {
                let (step, failed, ended) = (self.step, self.step_ends.failed, self.step_ends.judged());
                self.stopped = Some(Stop::TooManyFailures { step, failed, ended });
                continue;
            }
            if self.is_in() {
                if self.end == self.places.len() {
                    return Move::Finished;
                }
                self.climb();
                continue;
            }
            if self.paused {
                return Move::Paused;
            }
            let missed_at = self.missed_at();
            if missed_at.is_some_and(|missed| missed <= now) {
                self.stopped = Some(self.missing(now));
                continue;
            }
            while self.next < self.end && self.places[self.next] != Place::Unpublished {
                self.next += 1;
            }
            return match missed_at {
                Some(missed) if self.next == self.end => Move::Wait(missed),
                _ => Move::Publish(self.next..self.end),
            };
        }
    }

    /// The item at this place was handed to Kafka.
    pub fn published(&mut self, place: usize, now: UnixMillis) {
        if self.is_unpublished(place) {
            self.expect(place, Place::Out(now.after(self.limits.timeout)));
        }
    }

    /// An outcome of the item at this place, of its replay's round or a later one.
    pub fn heard(&mut self, place: usize, answer: Answer, now: UnixMillis) {
        if let Some(end) = answer.end() {
            return self.ended(place, end, now);
        }
        self.heard_at = self.heard_at.max(Some(now));
        // It is with a worker, whoever published it.
        self.published(place, now);
        match answer {
            Answer::WaitingUntil(due) => self.wait_longer(place, due.max(now), Place::Waits),
            _ => self.wait_longer(place, now, Place::Out),
        }
    }

    /// An outcome of the item at this place that was there before this ramp was made. A wait that was missed by then tells no more where
    /// the item is: it is published again, as if nothing had been heard of it.
    pub fn known(&mut self, place: usize, answer: Answer, now: UnixMillis) {
        match answer {
            Answer::WaitingUntil(due) if due.after(self.limits.timeout) <= now => {}
            answer => self.heard(place, answer, now),
        }
    }

    /// It was seen now that the record of this place, which was published, stands behind others that workers get through: nobody can have
    /// said anything of it. It is not missed before a timeout more.
    pub fn seen_queued(&mut self, place: usize, now: UnixMillis) {
        self.wait_longer(place, now, Place::Queued);
    }

    /// It was seen now that the replay at this place ended so. The first end counts.
    pub fn ended(&mut self, place: usize, end: End, now: UnixMillis) {
        if !self.places.get(place).is_some_and(|known| !matches!(known, Place::Ended(_))) {
            return;
        }
        self.stands(place, Place::Ended(end));
        self.heard_at = self.heard_at.max(Some(now));
        self.ends.count(end);
        if (self.begin..self.end).contains(&place) {
            self.step_ends.count(end);
        }
    }

    /// Whether the replay at this place was neither published, as far as this ramp was told, nor has it ended.
    pub fn is_unpublished(&self, place: usize) -> bool {
        matches!(self.places.get(place), Some(Place::Unpublished))
    }

    /// When the next outcome is missed; none: nothing is to come, it is paused, or it has stopped.
    pub fn misses_at(&mut self) -> Option<UnixMillis> {
        if self.paused || self.stopped.is_some() { None } else { self.missed_at() }
    }

    /// The places of the step under way whose outcomes are missed at this time, if nothing comes. Who knows more of them should say so before it asks for the next
    /// move: else the ramp stops.
    pub fn late(&mut self, now: UnixMillis) -> Vec<usize> {
        if self.misses_at().is_none_or(|missed| missed > now) {
            return Vec::new();
        }
        (self.begin..self.end).filter(|&place| self.is_late(place, now)).collect()
    }

    /// Publishes nothing more until it may go on. Outcomes still count, and none is missed meanwhile.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Goes on after a pause: what is missing has its time anew.
    pub fn go_on(&mut self, now: UnixMillis) {
        if std::mem::take(&mut self.paused) {
            self.heard_at = self.heard_at.max(Some(now));
        }
    }

    /// Which step is under way, from 1, and how many items it has.
    pub fn step(&self) -> (u32, usize) {
        (self.step, self.end - self.begin)
    }

    /// How all items ended that did.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// How many are published and have no end.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// How many of those wait, by the last word of a worker: the ramp waits with them.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many of those were seen last behind others that workers get through: the ramp waits with them too.
    pub fn queued(&self) -> usize {
        self.queued
    }

    fn climb(&mut self) {
        let size = self.limits.step_after(self.end - self.begin);
        (self.begin, self.next) = (self.end, self.end);
        self.end = self.begin.saturating_add(size).min(self.places.len());
        self.step = self.step.saturating_add(1);
        self.step_ends = Ends::default();
        for place in self.begin..self.end {
            if let Place::Ended(end) = self.places[place] {
                self.step_ends.count(end);
            }
        }
    }

    /// How many replays of the step say something.
    fn size(&self) -> usize {
        self.end - self.begin - self.step_ends.withdrawn
    }

    /// Whether the step's outcomes are in.
    fn is_in(&self) -> bool {
        self.step_ends.judged() == self.size()
    }

    /// Whether too many of the step failed, whatever becomes of the rest of it.
    fn is_bad(&self) -> bool {
        self.limits.stops_at(self.step_ends.failed, self.size())
    }

    /// From now on it stands so.
    fn stands(&mut self, place: usize, now: Place) {
        let before = std::mem::replace(&mut self.places[place], now);
        let is_out = |place: Place| usize::from(place.missed_at().is_some());
        let waits = |place: Place| usize::from(matches!(place, Place::Waits(_)));
        let is_queued = |place: Place| usize::from(matches!(place, Place::Queued(_)));
        self.outstanding = self.outstanding + is_out(now) - is_out(before);
        self.waiting = self.waiting + waits(now) - waits(before);
        self.queued = self.queued + is_queued(now) - is_queued(before);
    }

    fn expect(&mut self, place: usize, now: Place) {
        self.stands(place, now);
        self.deadlines.extend(now.missed_at().map(|at| Reverse((at, place))));
    }

    /// The outcome at this place is not missed before a timeout after `from`.
    fn wait_longer(&mut self, place: usize, from: UnixMillis, stands: fn(UnixMillis) -> Place) {
        let Some(before) = self.places.get(place).and_then(|known| known.missed_at()) else { return };
        let missed_at = from.after(self.limits.timeout);
        if before < missed_at {
            self.expect(place, stands(missed_at));
        } else {
            self.stands(place, stands(before));
        }
    }

    /// When the next outcome is missed: not while others come.
    fn missed_at(&mut self) -> Option<UnixMillis> {
        let silent = self.heard_at.map(|heard| heard.after(self.limits.timeout));
        while let Some(&Reverse((at, place))) = self.deadlines.peek() {
            if self.places[place].missed_at() == Some(at) {
                return silent.max(Some(at));
            }
            self.deadlines.pop();
        }
        None
    }

    fn is_late(&self, place: usize, now: UnixMillis) -> bool {
        self.places.get(place).and_then(|known| known.missed_at()).is_some_and(|at| at <= now)
    }

    fn missing(&self, now: UnixMillis) -> Stop {
        let late: Vec<usize> = (self.begin..self.end).filter(|&place| self.is_late(place, now)).collect();
        let waited = late.iter().filter(|&&place| matches!(self.places[place], Place::Waits(_))).count();
        let place = late.first().copied().unwrap_or(self.begin);
        Stop::MissingOutcomes { step: self.step, place, missing: late.len().max(1), waited }
    }
}
