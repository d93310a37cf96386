//! One key, one job partition: the state of the world, small enough to be copied and hashed millions of times.
//!
//! What the promises don't depend on is left out, so that equal worlds are one state: the committed part of the job topic,
//! the order of a delay topic, all but the newest round of a job in the DLQ, and the changelog's entries once joined.

use std::time::Duration;

use tidegate_domain::mark::{Arrival, Phase, Step, Verdict};
use tidegate_domain::{Hop, JobHash, Mark, PayloadHash, Round, UnixMillis};

/// How long a step is believed in the model; the jump of the clock is longer.
pub(crate) const BELIEF: Duration = Duration::from_millis(100);
const JUMP: i64 = 1000;

/// How many jobs a scenario may have.
pub(crate) const JOBS: usize = 3;

/// The functions under test, so that broken ones can be searched with the same code.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) verdict: fn(&Mark, &Arrival, UnixMillis, Duration) -> Verdict,
    pub(crate) join: fn(Mark, Mark) -> Mark,
}

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The owner ends; another takes over.
    pub(crate) crash: u8,
    /// Another takes over, and the old owner does not know.
    pub(crate) depose: u8,
    /// The retry service hands over the same copy twice.
    pub(crate) double: u8,
    /// An operator sends a dead-lettered job round again.
    pub(crate) replay: u8,
    /// An operator orders another round although the key is done.
    pub(crate) force: u8,
    /// A publication or a mark reaches its log, and its writer gets an error.
    pub(crate) lost_ack: u8,
    /// The clock jumps past the belief of everything that was written before.
    pub(crate) jump: u8,
    /// A handler asks to be run later.
    pub(crate) snooze: u8,
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The payload of each job, by the job's number.
    pub(crate) payloads: &'static [u8],
    pub(crate) budget: Budget,
    pub(crate) attempts: u8,
    /// How many records may be handed out before the oldest of them is committed.
    pub(crate) window: usize,
    /// How many records a deposed owner still hands out.
    pub(crate) deposed_takes: u8,
    pub(crate) ordering: Ordering,
    pub(crate) takeover: Takeover,
    /// More runs than that are a fork.
    pub(crate) max_runs: Option<u8>,
    /// Fewer states than that mean that the search did not run.
    pub(crate) min_states: usize,
}

/// Where a retry waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordering {
    /// In a delay topic.
    None,
    /// In its lane.
    Key,
}

/// What a new owner does with the window of one that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// Nothing.
    Trusting,
    /// It marks what it will run as started.
    Suspicious,
}

/// A copy of a job in the job topic, a delay topic or the DLQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) job: u8,
    pub(crate) round: u8,
    pub(crate) hop: u8,
    pub(crate) attempt: u8,
    pub(crate) forced: bool,
}

/// What a handler answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    Transient,
    Permanent,
    Snooze,
}

/// How far an owner is with the record at `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    Ran(Record, Answer),
    Scheduled(Record),
    Buried(Record),
    Conflicted(Record),
}

/// A process that has, or believes that it has, the partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// The store with the overlay of marks on their way.
    pub(crate) view: Mark,
    /// One past the round of the newest `done` that this owner can know of; 0 is none. Kept without `join`.
    pub(crate) sees_done: u8,
    /// The record to hand out next.
    pub(crate) next: u8,
    pub(crate) stage: Stage,
    /// Records before `next` that are not committed, with the mark that is not acknowledged yet.
    pub(crate) held: List<Option<Mark>, 2>,
    /// How many records it may still hand out after it was deposed.
    pub(crate) takes: u8,
}

/// The world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The job topic, from the first record that an owner may still read.
    pub(crate) jobs: List<Record, 12>,
    /// The delay topics.
    pub(crate) delayed: List<Record, 8>,
    /// The DLQ: one past the newest round of each job; 0 is none.
    pub(crate) buried: [u8; JOBS],
    /// The changelog, joined.
    pub(crate) log: Mark,
    pub(crate) owner: Owner,
    pub(crate) deposed: Option<Owner>,
    pub(crate) budget: Budget,
    pub(crate) jumped: bool,
    /// One past the round of the newest `done` in the changelog. Kept without `join`.
    pub(crate) done: u8,
    /// The payloads that are done, one bit each.
    pub(crate) done_payloads: u8,
    /// The jobs that were settled because another one with their payload was alive, one bit each.
    pub(crate) coalesced: u8,
    /// One past the round that an operator ordered by force, of each job; 0 is none.
    pub(crate) ordered: [u8; JOBS],
    pub(crate) runs: u8,
}

impl Owner {
    pub(crate) fn taking_over(log: Mark, done: u8, next: u8) -> Self {
        Self { view: log, sees_done: done, next, stage: Stage::Idle, held: List::default(), takes: 0 }
    }

    /// The committed position of the partition, if this is its owner.
    pub(crate) fn committed(&self) -> u8 {
        self.next - self.held.len() as u8
    }
}

impl State {
    pub(crate) fn start(scenario: &Scenario) -> Self {
        let mut jobs = List::default();
        for job in 0..scenario.payloads.len() as u8 {
            jobs.push(Record { job, round: 0, hop: 0, attempt: 1, forced: false });
        }
        Self {
            jobs,
            delayed: List::default(),
            buried: [0; JOBS],
            log: Mark::default(),
            owner: Owner::taking_over(Mark::default(), 0, 0),
            deposed: None,
            budget: scenario.budget,
            jumped: false,
            done: 0,
            done_payloads: 0,
            coalesced: 0,
            ordered: [0; JOBS],
            runs: 0,
        }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        UnixMillis(if self.jumped { JUMP } else { 0 })
    }

    /// The copies that wait for a run: not committed, or in a delay topic.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Record> {
        self.jobs.as_slice()[usize::from(self.owner.committed())..].iter().chain(self.delayed.as_slice())
    }

    /// Drops what nobody can read any more, and a deposed owner that has nothing left to do.
    pub(crate) fn tidy(&mut self) {
        if let Some(deposed) = &mut self.deposed {
            while deposed.held.as_slice().first().is_some_and(Option::is_none) {
                deposed.held.remove(0);
            }
            let idle = deposed.stage == Stage::Idle && deposed.held.len() == 0;
            if idle && (deposed.takes == 0 || usize::from(deposed.next) == self.jobs.len()) {
                self.deposed = None;
            }
        }
        let mut low = self.owner.committed();
        if let Some(deposed) = &self.deposed {
            low = low.min(deposed.committed());
        }
        for _ in 0..low {
            self.jobs.remove(0);
        }
        self.owner.next -= low;
        if let Some(deposed) = &mut self.deposed {
            deposed.next -= low;
        }
        self.delayed.sort();
    }
}

impl Record {
    pub(crate) fn arrival(self, scenario: &Scenario) -> Arrival {
        Arrival {
            round: Round(self.round.into()),
            hop: Hop(self.hop.into()),
            job: JobHash(self.job.into()),
            payload: PayloadHash(scenario.payloads[usize::from(self.job)].into()),
            forced: self.forced,
        }
    }

    pub(crate) fn step(self, scenario: &Scenario, phase: Phase, n: u8, now: UnixMillis) -> Step {
        let Arrival { round, hop, job, payload, .. } = self.arrival(scenario);
        Step { round, hop, phase, n: n.into(), job, payload, written_at: now }
    }
}

/// A short list that is copied with the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<T, const N: usize> {
    len: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self { len: 0, items: [T::default(); N] }
    }
}

impl<T: Copy, const N: usize> List<T, N> {
    pub(crate) fn len(&self) -> usize {
        self.len.into()
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.items[..self.len()]
    }

    pub(crate) fn push(&mut self, item: T) {
        assert!(self.len() < N, "the scenario needs a longer list");
        self.items[self.len()] = item;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let len = self.len();
        self.items.copy_within(index + 1..len, index);
        self.len -= 1;
    }

    pub(crate) fn set(&mut self, index: usize, item: T) {
        self.items[..usize::from(self.len)][index] = item;
    }
}

impl<T: Copy + Ord, const N: usize> List<T, N> {
    fn sort(&mut self) {
        let len = self.len();
        if len > 1 {
            self.items[..len].sort_unstable();
        }
    }
}
