//! Breadth-first search over all states, and what must hold in each of them.

use tidegate_domain::mark::Verdict;
use tidegate_domain::{Mark, Round};

use crate::model::{Budget, List, Owner, Record, Scenario, Stage, State, Table};
use crate::moves::{Label, Next, World};

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) moves: usize,
    pub(crate) ends: usize,
    /// The first broken promise, with what led to it.
    pub(crate) broken: Option<(&'static str, Vec<String>)>,
}

/// Visits every state once, and stops at the first broken promise.
pub(crate) fn search(scenario: &Scenario, table: Table) -> Found {
    let world = World { scenario, table };
    let mut found = Found::default();
    let mut seen = Seen::with_capacity(1 << 16);
    // Of each state, which one it follows and by which of its moves: enough to tell how it came about.
    let mut origins: Vec<(u32, u16)> = vec![(0, 0)];
    let mut frontier = vec![(0_u32, State::start(scenario))];
    let mut following = Vec::new();
    let mut moves: Vec<Next> = Vec::with_capacity(32);
    seen.insert(fingerprint(&frontier[0].1));
    while !frontier.is_empty() {
        for (id, state) in &frontier {
            moves.clear();
            world.moves(state, &mut moves);
            found.moves += moves.len();
            found.ends += usize::from(moves.is_empty());
            if let Some(broken) = world.broken(state, &moves) {
                found.broken = Some((broken, trace(&world, &origins, *id, None)));
                found.states = origins.len();
                return found;
            }
            for (index, next) in moves.iter_mut().enumerate() {
                if let Some(broken) = next.broken {
                    found.broken = Some((broken, trace(&world, &origins, *id, Some(next.label))));
                    found.states = origins.len();
                    return found;
                }
                next.state.tidy();
                if seen.insert(fingerprint(&next.state)) {
                    following.push((origins.len() as u32, next.state));
                    origins.push((*id, index as u16));
                }
            }
        }
        std::mem::swap(&mut frontier, &mut following);
        following.clear();
    }
    found.states = origins.len();
    found
}

impl World<'_> {
    fn broken(&self, state: &State, moves: &[Next]) -> Option<&'static str> {
        if (0..self.scenario.payloads.len()).any(|job| self.lost(state, job)) {
            return Some("a job is lost");
        }
        if !state.jumped && self.forked(state) {
            return Some("two copies of a job, and both would run");
        }
        if moves.is_empty() {
            if usize::from(state.owner.committed()) < state.jobs.len() {
                return Some("the end is not committed");
            }
            if state.delayed.len() > 0 {
                return Some("a retry is left");
            }
        }
        None
    }

    /// A job is done, or on its way, or dead-lettered; or it was left to another one of which this holds.
    ///
    /// The mark remembers one step only, and so can't tell the payload of a `done` from that of a further step. This
    /// needs a deposed owner that succeeds late, with another payload tried since: then the key's `done` must do.
    fn lost(&self, state: &State, job: usize) -> bool {
        let payloads = self.scenario.payloads;
        if self.ignored(state, job) {
            return true;
        }
        let same_payload = state.done_payloads & (1 << payloads[job]) != 0;
        if same_payload || (state.done > 0 && self.scenario.budget.depose > 0) {
            return false;
        }
        let coalesced = state.coalesced & (1 << job) != 0;
        let counts = |other: usize| other == job || (coalesced && payloads[other] == payloads[job]);
        !(0..payloads.len()).any(|other| counts(other) && state.buried[other] > 0)
            && !state.waiting().any(|copy| counts(copy.job.into()))
    }

    /// A round that was ordered by force is done, or on its way, or dead-lettered again.
    fn ignored(&self, state: &State, job: usize) -> bool {
        let ordered = state.ordered[job];
        ordered > 0
            && state.done < ordered
            && state.buried[job] < ordered
            && !state.waiting().any(|copy| usize::from(copy.job) == job && copy.forced)
    }

    /// Of a job's copies only one (round, hop) may run among those that the changelog knows of. A later one may exist,
    /// whose mark is not written yet.
    fn forked(&self, state: &State) -> bool {
        let mut alive: [Option<(u8, u8)>; crate::model::JOBS] = [None; crate::model::JOBS];
        for &copy in state.waiting() {
            let place = match self.verdict(&state.log, copy, state) {
                Verdict::Run | Verdict::RunOrphaned => (copy.round, copy.hop),
                Verdict::RunAsRound(Round(round)) => (round as u8, 0),
                Verdict::Skip(_) | Verdict::Conflict { .. } => continue,
            };
            let known = state.log.step.is_some_and(|step| {
                step.job.0 == u32::from(copy.job)
                    && (step.round.0, step.hop.0) >= (place.0.into(), place.1.into())
            });
            let other = &mut alive[usize::from(copy.job)];
            if known && other.replace(place).is_some_and(|other| other != place) {
                return true;
            }
        }
        false
    }
}

fn trace(world: &World<'_>, origins: &[(u32, u16)], id: u32, last: Option<Label>) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = id;
    while at != 0 {
        let (origin, index) = origins[at as usize];
        path.push(usize::from(index));
        at = origin;
    }
    let mut state = State::start(world.scenario);
    let mut told = Vec::new();
    for index in path.into_iter().rev() {
        let mut moves = Vec::new();
        world.moves(&state, &mut moves);
        let next = &mut moves[index];
        next.state.tidy();
        state = next.state;
        told.push(tell(next.label));
    }
    told.extend(last.map(tell));
    told
}

fn tell(label: Label) -> String {
    match label.record {
        Some(Record { job, round, hop, attempt, .. }) => {
            format!("{} {} job {job} ({round},{hop}) attempt {attempt}", label.who, label.what)
        }
        None => format!("{} {}", label.who, label.what),
    }
}

/// A set of fingerprints: open addressing, because the standard set is slow without optimisation.
struct Seen {
    slots: Vec<u64>,
    len: usize,
}

impl Seen {
    fn with_capacity(slots: usize) -> Self {
        Self { slots: vec![0; slots], len: 0 }
    }

    /// Whether `print` is new.
    fn insert(&mut self, print: u64) -> bool {
        if self.len * 2 > self.slots.len() {
            let larger = vec![0; self.slots.len() * 4];
            let old = std::mem::replace(&mut self.slots, larger);
            for print in old {
                if print != 0 {
                    self.place(print);
                }
            }
        }
        let new = self.place(print);
        self.len += usize::from(new);
        new
    }

    fn place(&mut self, print: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut index = print as usize & mask;
        while self.slots[index] != 0 {
            if self.slots[index] == print {
                return false;
            }
            index = (index + 1) & mask;
        }
        self.slots[index] = print;
        true
    }
}

/// 64 bits of a state. Two of five million states meet with a chance below one in a million.
fn fingerprint(state: &State) -> u64 {
    let mut print = Print(0x9e37_79b9_7f4a_7c15);
    print.records(&state.jobs);
    print.records(&state.delayed);
    let [a, b, c] = state.buried;
    print.bytes([
        a,
        b,
        c,
        u8::from(state.jumped),
        state.done,
        state.done_payloads,
        state.coalesced,
        state.runs,
    ]);
    let [a, b, c] = state.ordered;
    print.bytes([a, b, c, 0, 0, 0, 0, 0]);
    let Budget { crash, depose, double, replay, force, lost_ack, jump, snooze } = state.budget;
    print.bytes([crash, depose, double, replay, force, lost_ack, jump, snooze]);
    print.word(pack_mark(&state.log));
    print.owner(&state.owner);
    if let Some(deposed) = &state.deposed {
        print.owner(deposed);
    }
    print.0.max(1)
}

struct Print(u64);

impl Print {
    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn bytes(&mut self, bytes: [u8; 8]) {
        self.word(u64::from_le_bytes(bytes));
    }

    fn records<const N: usize>(&mut self, records: &List<Record, N>) {
        let mut word = records.len() as u64;
        for (index, record) in records.as_slice().iter().enumerate() {
            word = word << 14 | pack(*record);
            if index % 4 == 3 {
                self.word(word);
                word = 0;
            }
        }
        self.word(word);
    }

    fn owner(&mut self, owner: &Owner) {
        let (stage, record) = match owner.stage {
            Stage::Idle => (1, 0),
            Stage::Ran(record, answer) => (2 + answer as u8, pack(record)),
            Stage::Scheduled(record) => (6, pack(record)),
            Stage::Buried(record) => (7, pack(record)),
            Stage::Conflicted(record) => (8, pack(record)),
        };
        let [r0, r1, ..] = record.to_le_bytes();
        let held = owner.held.len() as u8;
        self.bytes([stage, r0, r1, owner.next, owner.sees_done, owner.takes, held, 0]);
        self.word(pack_mark(&owner.view));
        for mark in owner.held.as_slice() {
            self.word(mark.as_ref().map_or(1, pack_mark));
        }
    }
}

fn pack(record: Record) -> u64 {
    let Record { job, round, hop, attempt, forced } = record;
    u64::from(job) << 11
        | u64::from(round) << 8
        | u64::from(hop) << 4
        | u64::from(attempt) << 1
        | u64::from(forced)
}

fn pack_mark(mark: &Mark) -> u64 {
    let done = mark.done.map_or(0, |done| 1 | u64::from(done.round.0) << 1 | u64::from(done.hop.0) << 5);
    let step = mark.step.map_or(0, |step| {
        let place = u64::from(step.round.0) << 1 | u64::from(step.hop.0) << 5 | (step.phase as u64) << 9;
        let rest =
            u64::from(step.n) << 11 | u64::from(step.job.0) << 15 | u64::from(step.written_at.0 > 0) << 17;
        1 | place | rest
    });
    done << 32 | step << 1
}
