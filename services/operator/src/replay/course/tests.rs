//! Carriers that read the journal late, die, and do the same at once; operators who stop, resume, reopen and replay meanwhile; an
//! author whose orders come one by one, or never; and workers who answer or don't.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;
use tidegate_bootstrap::Config;
use tidegate_domain::inbox::{Answer, Item, ItemId, Outcome, State};
use tidegate_domain::{Partition, Round, Topic};
use tidegate_pipeline::journal::{
    Actions, Entry, Order, Ordered, OutcomeEntry, ParkedEntry, RunEntry, RunPlan,
};
use tidegate_pipeline::record::RecordBuilder;

use super::*;
use crate::index::LocalIndex;

const RUN: RunId = RunId(7);
const OTHER: RunId = RunId(8);
const CHUNKS: u32 = 3;
const CHUNK: usize = 4;
const ITEMS: usize = CHUNKS as usize * CHUNK;
const START: i64 = 1_764_000_000_000;

fn id(item: usize) -> ItemId {
    ItemId {
        topic: Topic::new("orders"),
        partition: Partition(0),
        offset: Offset(item as i64),
        class: Some("charge".into()),
    }
}

fn of(item: usize) -> ItemRef {
    ItemRef::of_id(&id(item))
}

/// An index of its own, and how much of the journal is in it.
struct Reader {
    inbox: Inbox,
    index: LocalIndex,
    read: usize,
    _dir: TempDir,
}

impl Reader {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = "[pipeline]\nname = \"test\"\n[kafka]\nbootstrap = \"127.0.0.1:1\"\n[registry]\nurl = \"http://127.0.0.1:1\"\n\
                    [sources.orders]\nstart = \"earliest\"\n[classes.charge]\nsource = \"orders\"\nkey = [\"id\"]\nhandler = { type = \"log\" }\n";
        let config = Arc::new(Config::parse("test", text, std::iter::empty()).unwrap());
        let index = LocalIndex::open(dir.path(), "test.dlq").unwrap();
        Self { inbox: Inbox::open(config, Some(dir.path())).unwrap(), index, read: 0, _dir: dir }
    }

    fn read_to(&mut self, log: &[Entry], end: usize) {
        let end = end.min(log.len());
        if end <= self.read {
            return;
        }
        let record = |(offset, entry): (usize, &Entry)| {
            let at = Some(UnixMillis(START + offset as i64));
            RecordBuilder::new(Offset(offset as i64), at, None, Some(&entry.write()), 0).build()
        };
        let records: Vec<_> = log.iter().enumerate().take(end).skip(self.read).map(record).collect();
        self.index.journal(&records).unwrap();
        self.read = end;
    }

    fn run(&self) -> Option<Run> {
        self.inbox.run(RUN).unwrap()
    }

    fn item(&self, item: usize) -> Item {
        self.inbox.folded(of(item)).unwrap()
    }
}

/// Who carries the run out, from when it begins until it dies or is told that it ended.
struct Carrier<'a> {
    reader: &'a Inbox,
    course: Option<Course<'a>>,
    /// What this life of it published, each once: the item, and where the ramp began.
    published: BTreeSet<(u64, Option<i64>)>,
}

struct World {
    log: Vec<Entry>,
    readers: [Reader; 2],
    /// Reads everything at once.
    observer: Reader,
    /// How many chunks the author appended, after the begin.
    chunks: u32,
    now: UnixMillis,
    copies: Vec<(usize, Round)>,
    /// Every publication of the run's replays: the item, and its order's place.
    published: BTreeSet<(usize, Offset)>,
}

impl World {
    fn new(limits: RampLimits) -> Self {
        let mut world = Self {
            log: Vec::new(),
            readers: [Reader::new(), Reader::new()],
            observer: Reader::new(),
            chunks: 0,
            now: UnixMillis(START),
            copies: Vec::new(),
            published: BTreeSet::new(),
        };
        let plan = RunPlan {
            order: Order::Replay { forced: false },
            total: ITEMS as u64,
            chunks: CHUNKS,
            selection: "all items".to_owned(),
            // A portion is then 5 replays.
            rate: Some(0.5),
            ramp: Some(limits),
        };
        world.step(RunStep::Begin(plan));
        world
    }

    fn append(&mut self, entry: Entry) -> Offset {
        self.log.push(entry);
        let before: Vec<Item> = (0..ITEMS).map(|item| self.observer.item(item)).collect();
        let stage = self.observer.run().map(|run| run.status);
        self.observer.read_to(&self.log, self.log.len());
        let finished = self.observer.run().is_some_and(|run| run.status == RunStatus::Finished);
        for (item, before) in before.iter().enumerate() {
            let after = self.observer.item(item);
            let Some(replay) = after.replay.filter(|replay| replay.run == RUN) else { continue };
            if after.released && !before.released {
                assert!(
                    !self.published.contains(&(item, replay.at)),
                    "item {item} was published and is released"
                );
            }
            let is_new = stage != Some(RunStatus::Finished);
            assert!(!(finished && is_new && after.orders(replay.at)), "it finished without item {item}");
        }
        Offset(self.log.len() as i64 - 1)
    }

    fn step(&mut self, step: RunStep) -> Offset {
        self.append(Entry::Run(RunEntry { run: RUN, by: "ann".to_owned(), at: self.now, step }))
    }

    fn order(&mut self, run: RunId, order: Order, chunk: u32, items: &[usize]) -> Offset {
        let ordered = |item: &usize| {
            let known = self.observer.item(*item);
            let round =
                if matches!(order, Order::Replay { .. }) { known.next_round(Round(0)) } else { Round(0) };
            Ordered { id: id(*item), seen: known.seen, round, edited: None }
        };
        let items = items.iter().map(ordered).collect();
        let (by, reason) = ("ann".to_owned(), Some("a test".to_owned()));
        self.append(Entry::Actions(Actions { run, by, at: self.now, chunk, order, reason, items }))
    }

    fn add_chunk(&mut self) {
        if self.chunks < CHUNKS {
            let first = self.chunks as usize * CHUNK;
            let items: Vec<usize> = (first..first + CHUNK).collect();
            self.order(RUN, Order::Replay { forced: false }, self.chunks, &items);
            self.chunks += 1;
        }
    }

    fn works(&mut self, place: usize, answer: Option<Answer>) {
        if self.copies.is_empty() {
            return;
        }
        let (item, round) = self.copies.remove(place % self.copies.len());
        if let Some(answer) = answer {
            let outcome = Outcome { round, answer };
            self.append(Entry::Outcome(OutcomeEntry::new(id(item), outcome, self.now, "w".to_owned())));
            if answer.end().is_none() {
                self.copies.push((item, round));
            }
        }
    }

    /// The worker that has them says of all copies that they wait for their class.
    fn parks(&mut self, holds: Duration) {
        for (item, round) in self.copies.clone() {
            let outcome = Outcome { round, answer: Answer::WaitingUntil(self.now.after(holds)) };
            let parked =
                ParkedEntry { class: "charge".to_owned(), since: UnixMillis(START), probe: Some(self.now) };
            let entry = OutcomeEntry::new(id(item), outcome, self.now, "w".to_owned());
            self.append(Entry::Outcome(OutcomeEntry { parked: Some(parked), ..entry }));
        }
    }

    fn published(&mut self, who: usize, due: &Due) {
        let item = (0..ITEMS).find(|item| of(*item) == due.place.item).unwrap();
        let (reader, at) = (&self.readers[who], Offset(due.place.at));
        let run = reader.run().unwrap();
        assert!(run.journal.state.is_complete() && run.status == RunStatus::Running);
        assert!(
            due.place.index < run.journal.state.climbed,
            "{due:?} and it climbed to {}",
            run.journal.state.climbed
        );
        assert!(reader.item(item).orders(at), "{:?}", reader.item(item));
        self.published.insert((item, at));
        self.copies.push((item, due.replay.round));
    }
}

/// What a carrier does now; how it ended, if it did.
fn turn(world: &mut World, who: usize, carrier: &mut Carrier<'_>, unsendable: bool) -> Option<RunEnd> {
    if carrier.course.is_none() {
        let found = carrier.reader.run(RUN).unwrap()?;
        carrier.course = Some(Course::new(carrier.reader, &found, RUN));
        carrier.published.clear();
    }
    let course = carrier.course.as_mut()?;
    match course.turn(world.now, 3).unwrap() {
        Turn::Publish(due) => {
            assert!(!due.is_empty(), "nothing to publish is no turn");
            for due in &due {
                if unsendable {
                    let item = (0..ITEMS).find(|item| of(*item) == due.place.item)?;
                    let seen = world.readers[who].item(item).seen;
                    let items = vec![Ordered { id: id(item), seen, round: Round(0), edited: None }];
                    let (by, reason) = ("console".to_owned(), Some("gone".to_owned()));
                    let order = Order::Reopen;
                    let actions = Actions { run: RUN, by, at: world.now, chunk: 0, order, reason, items };
                    course.appended(world.append(Entry::Actions(actions)));
                    continue;
                }
                let is_first = carrier.published.insert((due.place.item.0, course.from));
                assert!(is_first, "{due:?} is published once more by the same carrier");
                world.published(who, due);
                course.published(due.number, world.now);
            }
            None
        }
        Turn::Append(step) => {
            course.stepped(&step, world.step(step.clone()));
            None
        }
        Turn::Wait | Turn::Paused => None,
        Turn::Ended(end) => {
            carrier.course = None;
            Some(end)
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    AddChunk,
    Read(usize, usize),
    Turn(usize, bool),
    Dies(usize),
    Works(usize, Option<Answer>),
    Parks(u32),
    /// Sees records behind others, or none.
    Looks(usize, bool),
    Reopens(usize),
    Discards(usize),
    ReplaysElsewhere(usize),
    Pauses,
    Resumes,
    Stops,
    Passes(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let answer = proptest::sample::select(vec![
        Some(Answer::Resolved),
        Some(Answer::Resolved),
        Some(Answer::Resolved),
        Some(Answer::FailedAgain),
        Some(Answer::Coalesced),
        Some(Answer::WaitingUntil(UnixMillis(START + 30_000))),
        None,
    ]);
    prop_oneof![
        3 => Just(Event::AddChunk),
        6 => (0..2_usize, 1..9_usize).prop_map(|(who, entries)| Event::Read(who, entries)),
        9 => (0..2_usize, proptest::bool::weighted(0.1)).prop_map(|(who, bad)| Event::Turn(who, bad)),
        1 => (0..2_usize).prop_map(Event::Dies),
        6 => (0..9_usize, answer).prop_map(|(place, answer)| Event::Works(place, answer)),
        1 => (1..200_u32).prop_map(Event::Parks),
        2 => (0..2_usize, any::<bool>()).prop_map(|(who, queued)| Event::Looks(who, queued)),
        2 => (0..ITEMS).prop_map(Event::Reopens),
        1 => (0..ITEMS).prop_map(Event::Discards),
        1 => (0..ITEMS).prop_map(Event::ReplaysElsewhere),
        1 => Just(Event::Pauses),
        3 => Just(Event::Resumes),
        2 => Just(Event::Stops),
        1 => (1..100_u32).prop_map(Event::Passes),
    ]
}

fn happens(world: &mut World, carriers: &mut [Carrier<'_>; 2], event: Event) {
    match event {
        Event::AddChunk => world.add_chunk(),
        Event::Read(who, entries) => {
            let end = world.readers[who].read + entries;
            let World { log, readers, .. } = world;
            readers[who].read_to(log, end);
        }
        Event::Turn(who, unsendable) => {
            turn(world, who, &mut carriers[who], unsendable);
        }
        Event::Dies(who) => carriers[who].course = None,
        Event::Works(place, answer) => world.works(place, answer),
        Event::Parks(seconds) => world.parks(Duration::from_secs(seconds.into())),
        Event::Looks(who, queued) => {
            let doubt =
                carriers[who].course.as_mut().map(|course| (course.doubt(world.now, None).unwrap(), course));
            if let Some((Doubt::Now(numbers, _), course)) = doubt.filter(|_| queued) {
                let seen = Seen { queued: (0..numbers.len()).collect(), ..Seen::default() };
                course.seen(&numbers, seen, world.now);
            }
        }
        Event::Reopens(item) => {
            world.order(OTHER, Order::Reopen, 0, &[item]);
        }
        Event::Discards(item) => {
            world.order(OTHER, Order::Discard, 0, &[item]);
        }
        Event::ReplaysElsewhere(item) => {
            world.order(OTHER, Order::Replay { forced: false }, 0, &[item]);
        }
        Event::Pauses => {
            world.step(RunStep::Pause);
        }
        Event::Resumes => {
            world.step(RunStep::Resume);
        }
        Event::Stops => {
            world.step(RunStep::Stop { why: "enough".to_owned() });
        }
        Event::Passes(seconds) => world.now = world.now.after(Duration::from_secs(seconds.into())),
    }
}

/// Everything works from now on: the run comes to its end, without publishing anything that is not ordered.
fn comes_to_its_end(world: &mut World, carriers: &mut [Carrier<'_>; 2]) {
    carriers.iter_mut().for_each(|carrier| carrier.course = None);
    let mut stops = 0;
    for _ in 0..600 {
        for who in 0..2 {
            let World { log, readers, .. } = world;
            readers[who].read_to(log, log.len());
            match turn(world, who, &mut carriers[who], false) {
                Some(RunEnd::Finished) => return,
                Some(RunEnd::Stopped(_)) if world.observer.run().unwrap().status == RunStatus::Stopped => {
                    stops += 1;
                    assert!(stops < 40, "it stops for ever");
                    world.step(RunStep::Resume);
                }
                _ => {}
            }
        }
        if world.observer.run().unwrap().status == RunStatus::Paused {
            world.step(RunStep::Resume);
        }
        while !world.copies.is_empty() {
            world.works(0, Some(Answer::Resolved));
        }
        world.now = world.now.after(Duration::from_secs(5));
    }
    panic!("it does not end: {:?}", world.observer.run());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_carries_a_run_out_and_whatever_happens_meanwhile_it_publishes_what_is_ordered_once_and_ends(
        (first, factor, failures) in (1..6_u32, 1..4_u32, proptest::sample::select(vec![0.1, 0.5, 1.0])),
        events in proptest::collection::vec(event(), 0..70),
    ) {
        let limits = RampLimits { first, factor, cap: 8, failures, timeout: Duration::from_secs(60) };
        let mut world = World::new(limits);
        let inboxes = [world.readers[0].inbox.clone(), world.readers[1].inbox.clone()];
        let mut carriers = [0, 1].map(|who| Carrier {
            reader: &inboxes[who], course: None, published: BTreeSet::new(),
        });
        for event in events {
            happens(&mut world, &mut carriers, event);
        }
        comes_to_its_end(&mut world, &mut carriers);
        // All readers agree, and the run holds nothing any more.
        let World { log, readers, observer, .. } = &mut world;
        readers.iter_mut().for_each(|reader| reader.read_to(log, log.len()));
        let mut states: BTreeMap<State, usize> = BTreeMap::new();
        for item in 0..ITEMS {
            let known = observer.item(item);
            *states.entry(known.state).or_default() += 1;
            let holds = known.state == State::Replaying && known.replay.is_some_and(|replay| replay.run == RUN);
            prop_assert!(!holds, "item {} is held for ever: {:?}", item, known);
            for reader in readers.iter() {
                prop_assert_eq!(reader.item(item), known);
            }
        }
        let run = observer.run().unwrap();
        prop_assert_eq!((run.status, run.pending), (RunStatus::Finished, 0));
        for reader in readers.iter() {
            prop_assert_eq!(reader.run(), Some(run.clone()));
        }
    }
}
