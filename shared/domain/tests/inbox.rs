//! Two operators, their consoles, and a worker with its marks, in any order: what the inbox promises holds.
//!
//! The journal is a list, its offsets are places in it. Consoles read it late, die, and read it again; they publish what is
//! ordered as often as they like. The worker decides by the mark table, dies between a mark and its outcome, and tells old
//! outcomes again.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_domain::inbox::{Action, Answer, Entry, Folded, Item, Outcome, RunId, State, fold};
use tidegate_domain::mark::{Arrival, Mark, Phase, Skip, Step, Verdict, verdict};
use tidegate_domain::{Hop, JobHash, Offset, PayloadHash, Round, UnixMillis};

/// Items 1 and 2 have the same key and payload: only one of them runs while the other is alive.
const ITEMS: usize = 3;
const KEY_OF: [usize; ITEMS] = [0, 1, 1];
const BELIEF: Duration = Duration::from_secs(3600);
const NOW: UnixMillis = UnixMillis(1_764_432_000_000);

type Log = Vec<(usize, Entry)>;

#[derive(Clone, Debug, Default, PartialEq)]
struct Console {
    /// How much of the log it read.
    read: usize,
    items: [Item; ITEMS],
    /// Accepted replays, by offset: their item.
    ordered: BTreeMap<usize, usize>,
}

impl Console {
    fn read_to(&mut self, log: &Log, end: usize) {
        for (offset, (item, entry)) in log.iter().enumerate().take(end).skip(self.read) {
            let folded = fold(&mut self.items[*item], Offset(offset as i64), entry);
            let is_replay = matches!(entry, Entry::Action { action: Action::Replay { .. }, .. });
            if folded == Folded::Accepted && is_replay {
                self.ordered.insert(offset, *item);
            }
        }
        self.read = self.read.max(end.min(log.len()));
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Copy {
    item: usize,
    round: u32,
    hop: u32,
    forced: bool,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Done,
    Retried,
    Dead,
}

#[derive(Clone, Copy, Debug)]
enum Tells {
    AtOnce,
    /// It dies between the mark and the outcome: the record is delivered again.
    DiesBefore,
    Twice,
}

#[derive(Debug, Default)]
struct World {
    log: Log,
    consoles: [Console; 2],
    copies: Vec<Copy>,
    marks: [Mark; 2],
    /// The highest round of an item's dead letters.
    dead: [u32; ITEMS],
    /// How often each copy ran.
    runs: BTreeMap<(usize, u32, u32), u32>,
    published: BTreeMap<usize, u32>,
}

fn step(copy: &Copy, round: u32, hop: u32, phase: Phase) -> Step {
    let job = JobHash(copy.item as u32 + 1);
    Step { round: Round(round), hop: Hop(hop), phase, n: 1, job, payload: PayloadHash(1), written_at: NOW }
}

impl World {
    /// Every item is in the dead-letter topic. The third one took the key over from the second one, so its round is 1.
    fn new() -> Self {
        let mut world = Self { dead: [0, 0, 1], ..Self::default() };
        for (item, round) in world.dead.into_iter().enumerate() {
            let copy = Copy { item, round, hop: 0, forced: false };
            let dead = Mark::step(step(&copy, round, 0, Phase::Dead));
            let mark = &mut world.marks[KEY_OF[item]];
            *mark = mark.join(dead);
        }
        world
    }

    fn act(&mut self, who: usize, item: usize, what: What) {
        let known = &self.consoles[who].items[item];
        let round = known.next_round(Round(self.dead[item]));
        let action = match what {
            What::Replay => Action::Replay { round, forced: false, edited: false },
            What::Force => Action::Replay { round, forced: true, edited: false },
            What::Discard => Action::Discard,
            What::Reopen => Action::Reopen,
        };
        self.log.push((item, Entry::Action { seen: known.seen, run: RunId(who as u64), action }));
    }

    /// Publishes what the console knows to be ordered, also if that was done before.
    fn publish(&mut self, who: usize) {
        for (&offset, &item) in &self.consoles[who].ordered {
            let known = &self.consoles[who].items[item];
            let Some(replay) = known.replay.filter(|_| known.orders(Offset(offset as i64))) else { continue };
            *self.published.entry(offset).or_default() += 1;
            let (round, forced) = (replay.round.0, replay.forced);
            self.copies.push(Copy { item, round, hop: 0, forced });
        }
    }

    fn work(&mut self, place: usize, fate: Fate, tells: Tells) {
        if self.copies.is_empty() {
            return;
        }
        let copy = self.copies.remove(place % self.copies.len());
        let mark = self.marks[KEY_OF[copy.item]];
        let arrival = Arrival {
            round: Round(copy.round),
            hop: Hop(copy.hop),
            job: JobHash(copy.item as u32 + 1),
            payload: PayloadHash(1),
            forced: copy.forced,
        };
        let (round, answer) = match verdict(&mark, &arrival, NOW, BELIEF) {
            Verdict::Run => (copy.round, self.run(copy, copy.round, copy.hop, fate)),
            Verdict::RunAsRound(round) => (round.0, self.run(copy, round.0, 0, fate)),
            Verdict::Skip(Skip::Resolved) => (copy.round, Answer::Resolved),
            Verdict::Skip(Skip::AlreadyDone) => (copy.round, Answer::AlreadyDone),
            Verdict::Skip(Skip::Superseded) => (copy.round, Answer::Superseded),
            Verdict::Skip(Skip::Coalesced) => (copy.round, Answer::Coalesced),
            Verdict::Skip(Skip::AlreadyDead) => (copy.round, Answer::FailedAgain),
            other => panic!("{other:?} of {copy:?} after {mark:?}"),
        };
        let outcome = (copy.item, Entry::Outcome(Outcome { round: Round(round), answer }));
        match tells {
            Tells::AtOnce => self.log.push(outcome),
            Tells::DiesBefore => self.copies.push(copy),
            Tells::Twice => self.log.extend([outcome, outcome]),
        }
    }

    fn run(&mut self, copy: Copy, round: u32, hop: u32, fate: Fate) -> Answer {
        let mark = &mut self.marks[KEY_OF[copy.item]];
        if let Some(done) = mark.done {
            assert!(copy.forced && round > done.round.0, "{copy:?} ran after {done:?}");
        }
        *self.runs.entry((copy.item, round, hop)).or_default() += 1;
        match fate {
            Fate::Done => {
                *mark = mark.join(Mark::done(step(&copy, round, hop, Phase::Tried)));
                Answer::Resolved
            }
            Fate::Retried => {
                *mark = mark.join(Mark::step(step(&copy, round, hop + 1, Phase::Scheduled)));
                self.copies.push(Copy { round, hop: hop + 1, ..copy });
                Answer::WaitingUntil(NOW)
            }
            Fate::Dead => {
                *mark = mark.join(Mark::step(step(&copy, round, hop, Phase::Dead)));
                self.dead[copy.item] = self.dead[copy.item].max(round);
                Answer::FailedAgain
            }
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Act(who, item, what) => self.act(who, item, what),
            Event::Read(who, entries) => {
                let end = self.consoles[who].read + entries;
                self.consoles[who].read_to(&self.log, end);
            }
            Event::Publish(who) => self.publish(who),
            Event::Dies(who) => self.consoles[who] = Console::default(),
            Event::ReadsAgain(who, from) => {
                let console = &mut self.consoles[who];
                let (before, read) = (console.clone(), console.read);
                console.read = from.min(read);
                console.read_to(&self.log, read);
                assert_eq!(console.items, before.items, "what is read again changes nothing");
            }
            Event::Works(place, fate, tells) => self.work(place, fate, tells),
            Event::TellsAgain(place) => {
                let outcomes: Vec<_> = self
                    .log
                    .iter()
                    .filter(|(_, entry)| matches!(entry, Entry::Outcome(_)))
                    .copied()
                    .collect();
                if !outcomes.is_empty() {
                    self.log.push(outcomes[place % outcomes.len()]);
                }
            }
        }
    }

    /// One console goes on with all that is ordered, and the worker works, until nothing is left to do.
    fn finish(&mut self) -> Console {
        for _ in 0..100 {
            let end = self.log.len();
            self.consoles[0].read_to(&self.log, end);
            self.publish(0);
            if self.copies.is_empty() {
                return self.consoles[0].clone();
            }
            while !self.copies.is_empty() {
                self.work(0, Fate::Done, Tells::AtOnce);
            }
        }
        panic!("it does not end: {self:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Replay,
    Force,
    Discard,
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Act(usize, usize, What),
    Read(usize, usize),
    Publish(usize),
    Dies(usize),
    ReadsAgain(usize, usize),
    Works(usize, Fate, Tells),
    TellsAgain(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let what = prop_oneof![
        6 => Just(What::Replay), 2 => Just(What::Force), 1 => Just(What::Discard), 2 => Just(What::Reopen)
    ];
    let fate = prop_oneof![2 => Just(Fate::Done), 1 => Just(Fate::Retried), 3 => Just(Fate::Dead)];
    let tells = prop_oneof![4 => Just(Tells::AtOnce), 2 => Just(Tells::DiesBefore), 1 => Just(Tells::Twice)];
    prop_oneof![
        4 => (0..2_usize, 0..ITEMS, what).prop_map(|(who, item, what)| Event::Act(who, item, what)),
        4 => (0..2_usize, 1..8_usize).prop_map(|(who, entries)| Event::Read(who, entries)),
        3 => (0..2_usize).prop_map(Event::Publish),
        1 => (0..2_usize).prop_map(Event::Dies),
        1 => (0..2_usize, 0..40_usize).prop_map(|(who, from)| Event::ReadsAgain(who, from)),
        6 => (0..8_usize, fate, tells).prop_map(|(place, fate, tells)| Event::Works(place, fate, tells)),
        1 => (0..40_usize).prop_map(Event::TellsAgain),
    ]
}

/// What a reader knows that begins at the beginning and reads all.
fn fresh(log: &Log) -> Console {
    let mut console = Console::default();
    console.read_to(log, log.len());
    console
}

fn check(events: &[Event]) -> Result<World, TestCaseError> {
    let mut world = World::new();
    for &event in events {
        world.happens(event);
        // Whatever a console has read, it knows what every other reader of the same prefix knows.
        for console in &world.consoles {
            let prefix: Log = world.log[..console.read].to_vec();
            prop_assert_eq!(console.items, fresh(&prefix).items);
        }
    }
    let end = world.finish();
    prop_assert_eq!(&end.items, &fresh(&world.log).items);
    for (copy, runs) in &world.runs {
        prop_assert_eq!(*runs, 1, "item, round and hop {:?} ran {} times", copy, runs);
    }
    for (item, known) in end.items.iter().enumerate() {
        prop_assert_ne!(known.state, State::Replaying, "item {} has no end", item);
        let key_is_done = world.marks[KEY_OF[item]].done.is_some();
        prop_assert!(key_is_done || !known.state.is_done(), "item {} is {}", item, known.state);
    }
    // What was accepted was published, unless it ended by another outcome or was given up before.
    for (&offset, &item) in &end.ordered {
        let replay = |entry: &Entry| match entry {
            Entry::Action { action: Action::Replay { round, .. }, .. } => *round,
            _ => Round(0),
        };
        let round = replay(&world.log[offset].1);
        let mut known = Item::default();
        let mut ended_by_others = false;
        for (at, (of, entry)) in world.log.iter().enumerate().filter(|(_, (of, _))| *of == item) {
            prop_assert_eq!(*of, item);
            let ordered = known.orders(Offset(offset as i64));
            fold(&mut known, Offset(at as i64), entry);
            let by_another = match entry {
                // A copy of an earlier round may take over its key as this one.
                Entry::Outcome(outcome) => outcome.round != round || KEY_OF[item] == 1,
                Entry::Action { .. } | Entry::Release { .. } | Entry::Retake { .. } => true,
            };
            ended_by_others |= ordered && !known.orders(Offset(offset as i64)) && by_another;
        }
        prop_assert!(
            world.published.contains_key(&offset) || ended_by_others,
            "{} was not published",
            offset
        );
    }
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_every_order_all_readers_agree_what_is_ordered_is_published_and_each_round_runs_once(
        events in proptest::collection::vec(event(), 0..60)
    ) {
        check(&events)?;
    }
}

#[test]
fn the_orders_that_are_tried_reach_every_state_every_refusal_and_every_outcome() {
    use std::collections::BTreeSet;

    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut states, mut voids, mut answers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..2000 {
        let events = proptest::collection::vec(event(), 0..60).new_tree(&mut runner).unwrap().current();
        let world = check(&events).unwrap();
        let mut items = [Item::default(); ITEMS];
        for (offset, (item, entry)) in world.log.iter().enumerate() {
            let folded = fold(&mut items[*item], Offset(offset as i64), entry);
            states.insert(items[*item].state);
            if let Folded::Void(void) = folded {
                voids.insert(void.as_str());
            }
            if let Entry::Outcome(outcome) = entry {
                answers.insert((outcome.answer.as_str(), folded == Folded::Accepted));
            }
        }
    }
    assert_eq!(states, BTreeSet::from(State::ALL));
    for void in ["stale", "under-way", "done", "discarded", "nothing-to-reopen", "known", "older-round"] {
        assert!(voids.contains(void), "{void} of {voids:?}");
    }
    let taken = |name| answers.contains(&(name, true));
    for name in ["resolved", "already-done", "coalesced", "waiting", "failed-again"] {
        assert!(taken(name), "{name} of {answers:?}");
    }
    assert!(answers.contains(&("superseded", false)));
}
