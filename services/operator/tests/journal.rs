//! What the journal makes of items and groups, in whichever order the two logs are indexed.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::{DLQ, Made, entry, inbox, order, outcome};
use tidegate_domain::inbox::{Answer, Entry as Folding, Item, RampLimits, RunId, fold};
use tidegate_domain::{FailureKind, Offset, Partition, UnixMillis};
use tidegate_operator::{Group, GroupQuery, Inbox, Item as Shown, ItemRef, ListQuery, LocalIndex};
use tidegate_pipeline::Record;
use tidegate_pipeline::journal::{Entry, Order, RunEntry, RunPlan, RunStep};

/// Everything that an inbox shows, in an order that has nothing to do with its index.
fn shown(inbox: &Inbox) -> String {
    let mut rows = inbox.list(&ListQuery { limit: Some(1000), ..ListQuery::default() }).unwrap().items;
    rows.sort_by_key(|row| row.item);
    let items: Vec<_> = rows.iter().map(|row| inbox.item(row.item).unwrap().unwrap()).collect();
    let mut groups = inbox.groups(&GroupQuery::default()).unwrap().groups;
    groups.sort_by(|a, b| a.key.cmp(&b.key));
    let overview = inbox.overview().unwrap();
    let runs = inbox.runs(10).unwrap();
    serde_json::to_string_pretty(&(items, groups, overview, runs)).unwrap()
}

/// What happens, in order: letters of two partitions, and entries of the journal.
#[derive(Clone, Debug)]
enum Event {
    Letter(i32, Made),
    Entry(Entry),
    /// An order about an event's item, by somebody who knows its last entry.
    Order(Order, i64, u32),
}

const CLASSES: [&str; 2] = ["charge", "mail"];
const MESSAGES: [&str; 3] = ["connection refused", "no such user", "bad gateway"];

/// The letter of an event, which always is of the same class. Tier, schema and cause may be others each time.
fn letter_of(event: i64) -> Made {
    Made::new(event, Some(CLASSES[event as usize % 2]))
}

fn any_letter() -> impl Strategy<Value = Made> {
    (0..8_i64, 0..3_u32, 0..500_i64, -300..300_i64, 0..3_usize, any::<bool>(), any::<bool>()).prop_map(
        |(event, round, at, ahead, message, is_bulk, is_old)| {
            let kind = if message == 1 { FailureKind::Permanent } else { FailureKind::Transient };
            let tier = if is_bulk { "bulk" } else { "critical" };
            let mut made = Made { round, at, ahead, kind, tier, ..letter_of(event) };
            made.message = MESSAGES[message].to_owned();
            // The last byte of the schema's id.
            made.value[4] = if is_old { 6 } else { 7 };
            made
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let id = |event: i64| letter_of(event).id();
    let seen = proptest::option::of(0..12_i64);
    prop_oneof![
        3 => (0..2, any_letter()).prop_map(|(partition, letter)| Event::Letter(partition, letter)),
        1 => (0..8_i64, seen.clone(), 1..4_u32, any::<bool>()).prop_map(move |(event, seen, round, forced)| {
            Event::Entry(order(Order::Replay { forced }, vec![(id(event), seen, round)]))
        }),
        1 => (0..8_i64, seen).prop_map(move |(event, seen)| {
            Event::Entry(order(Order::Discard, vec![(id(event), seen, 0)]))
        }),
        4 => (0..8_i64, 1..6_u32, proptest::sample::select(vec![
            Order::Replay { forced: false }, Order::Replay { forced: true }, Order::Discard, Order::Reopen,
        ])).prop_map(|(event, round, order)| Event::Order(order, event, round)),
        1 => proptest::sample::select(vec![
            RunStep::Climb { until: 1 },
            RunStep::Stop { why: "enough".to_owned() },
            RunStep::Resume,
            RunStep::Close,
        ]).prop_map(|step| Event::Entry(run_step(step))),
        2 => (0..8_i64, 0..3_u32, proptest::sample::select(vec![
            Answer::Resolved, Answer::AlreadyDone, Answer::FailedAgain, Answer::Coalesced,
        ])).prop_map(move |(event, round, answer)| Event::Entry(outcome(id(event), round, answer))),
    ]
}

fn plan(chunks: u32) -> RunPlan {
    RunPlan {
        order: Order::Replay { forced: false },
        total: 4,
        chunks,
        selection: "all items".to_owned(),
        rate: Some(5.0),
        ramp: Some(RampLimits::CANARY),
    }
}

/// A step of the run that all orders here belong to.
fn run_step(step: RunStep) -> Entry {
    Entry::Run(RunEntry { run: RunId(7), by: "ann".to_owned(), at: UnixMillis(1), step })
}

/// What somebody knows who reads the journal, but for the stops of its runs.
fn know(items: &mut BTreeMap<String, Item>, at: i64, entry: &Entry) {
    let mut know = |id: String, entry: &Folding| {
        fold(items.entry(id).or_default(), Offset(at), entry);
    };
    match entry {
        Entry::Actions(actions) => {
            for (ordered, entry) in actions.entries() {
                know(ordered.id.to_string(), &entry);
            }
        }
        Entry::Outcome(outcome) => know(outcome.id.to_string(), &outcome.entry()),
        _ => {}
    }
}

/// The records of each log.
fn logs(events: &[Event]) -> (Vec<Vec<Record>>, Vec<Record>) {
    let mut letters = vec![Vec::new(), Vec::new()];
    let mut journal = vec![entry(0, 0, &run_step(RunStep::Begin(plan(3))))];
    let mut items: BTreeMap<String, Item> = BTreeMap::new();
    for (time, event) in (0..).zip(events) {
        match event {
            Event::Letter(partition, letter) => {
                let log = &mut letters[*partition as usize];
                log.push(letter.record(log.len() as i64));
            }
            Event::Entry(what) => journal.push(entry(journal.len() as i64, time, what)),
            Event::Order(what, event, round) => {
                let id = letter_of(*event).id();
                let seen = items.get(&id.to_string()).and_then(|item| item.seen).map(|at| at.0);
                journal.push(entry(journal.len() as i64, time, &order(*what, vec![(id, seen, *round)])));
            }
        }
        if let Some(Ok(last)) = journal.last().map(|record| Entry::read(record.value())) {
            know(&mut items, journal.len() as i64 - 1, &last);
        }
    }
    (letters, journal)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn an_index_that_grew_with_its_logs_shows_what_one_that_is_built_anew_shows(
        events in proptest::collection::vec(any_event(), 1..60),
        steps in proptest::collection::vec((0..3_usize, 1..9_usize), 0..60),
    ) {
        let (letters, journal) = logs(&events);
        let (grown, built) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut index = LocalIndex::open(grown.path(), DLQ).unwrap();
        let mut rest = [letters[0].as_slice(), &letters[1], &journal];
        // The steps in their order, then whatever is left.
        for (log, count) in steps.into_iter().chain([(0, 99), (1, 99), (2, 99)]) {
            let (now, later) = rest[log].split_at(count.min(rest[log].len()));
            rest[log] = later;
            match log {
                2 => index.journal(now).unwrap(),
                log => index.letters(Partition(log as i32), now).unwrap(),
            }
        }
        let mut anew = LocalIndex::open(built.path(), DLQ).unwrap();
        for (partition, log) in (0..).zip(&letters) {
            anew.letters(Partition(partition), log).unwrap();
        }
        anew.journal(&journal).unwrap();
        // The place in lists is that of the letter that was indexed first.
        let without_place = |text: String| -> String {
            text.lines().filter(|line| !line.contains("\"first_at\"")).collect::<Vec<_>>().join("\n")
        };
        let (grown, built) = (shown(&inbox(grown.path())), shown(&inbox(built.path())));
        prop_assert_eq!(without_place(grown), without_place(built));
    }

    #[test]
    fn letters_that_are_gone_leave_what_an_index_of_the_others_shows(
        events in proptest::collection::vec(any_event(), 1..50),
        first in 0..20_i64,
    ) {
        let (letters, journal) = logs(&events);
        let (pruned, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut index = LocalIndex::open(pruned.path(), DLQ).unwrap();
        let mut anew = LocalIndex::open(fresh.path(), DLQ).unwrap();
        for (partition, log) in (0..).zip(&letters) {
            index.letters(Partition(partition), log).unwrap();
        }
        index.journal(&journal).unwrap();
        index.prune(Partition(0), first).unwrap();
        let left = letters[0].iter().filter(|record| record.offset().0 >= first).cloned().collect::<Vec<_>>();
        anew.letters(Partition(0), &left).unwrap();
        anew.letters(Partition(1), &letters[1]).unwrap();
        anew.journal(&journal).unwrap();
        let ids = |inbox: &Inbox| {
            let rows = inbox.list(&ListQuery { limit: Some(1000), ..ListQuery::default() }).unwrap();
            let mut rows: Vec<_> = rows.items.into_iter().map(|row| (row.item, row.state, row.letters, row.record)).collect();
            rows.sort();
            let groups = inbox.groups(&GroupQuery::default()).unwrap().groups;
            let mut groups: Vec<_> = groups.into_iter().map(|group| (group.key, group.state, group.waiting_since)).collect();
            groups.sort();
            (rows, inbox.overview().unwrap().states, groups)
        };
        prop_assert_eq!(ids(&inbox(pruned.path())), ids(&inbox(fresh.path())));
    }

    #[test]
    fn what_the_clocks_of_workers_say_changes_nothing(events in proptest::collection::vec(any_event(), 1..60)) {
        let right = events.iter().cloned().map(|event| match event {
            Event::Letter(partition, letter) => Event::Letter(partition, Made { ahead: 0, ..letter }),
            other => other,
        });
        let [one, other] = [events.clone(), right.collect()].map(|events| {
            let dir = tempfile::tempdir().unwrap();
            filled(dir.path(), &events);
            shown(&inbox(dir.path()))
        });
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_group_is_closed_when_nothing_of_it_is_open_or_replayed_and_what_failed_after_its_end_is_counted(
        events in proptest::collection::vec(any_event(), 1..60),
    ) {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), &events);
        let inbox = inbox(dir.path());
        let rows = inbox.list(&ListQuery { limit: Some(1000), ..ListQuery::default() }).unwrap().items;
        let items: Vec<_> = rows.iter().map(|row| inbox.item(row.item).unwrap().unwrap()).collect();
        let groups = inbox.groups(&GroupQuery::default()).unwrap().groups;
        prop_assert_eq!(groups.iter().map(|group| group.items).sum::<u64>(), items.len() as u64);
        for group in groups {
            let of_group = || items.iter().filter(|item| item.row.error.fingerprint == group.key);
            let has_ended = |item: &&Shown| ["resolved", "already-done", "discarded"].contains(&item.row.state);
            let waits = |item: &&Shown| ["open", "failed-again"].contains(&item.row.state);
            prop_assert_eq!(group.state == Some("closed"), group.waiting_since.is_none());
            prop_assert!(group.state == Some("closed") || !of_group().all(|item| has_ended(&item)));
            prop_assert!(group.state != Some("closed") || !of_group().any(|item| waits(&item)));
            prop_assert_eq!(group.late, of_group().filter(|item| item.late.is_some()).count() as u64);
            for item in of_group().filter(|item| item.late.is_some()) {
                prop_assert!(has_ended(&item), "{} is {}", item.row.id, item.row.state);
                prop_assert!(item.occurrences.iter().any(|letter| Some(letter.dead_at) == item.late));
            }
        }
    }
}

/// An index of all of it, letters first.
fn filled(dir: &std::path::Path, events: &[Event]) {
    let (letters, journal) = logs(events);
    let mut index = LocalIndex::open(dir, DLQ).unwrap();
    for (partition, log) in (0..).zip(&letters) {
        index.letters(Partition(partition), log).unwrap();
    }
    index.journal(&journal).unwrap();
}

/// Letters of 300 items of one class, whose messages differ, each dead-lettered up to six times, in two partitions; and entries about some of them.
fn noise() -> (Vec<Vec<Record>>, Vec<Record>) {
    let mut letters = vec![Vec::new(), Vec::new()];
    for number in 0..1500_i64 {
        let (event, round) = (number * 7 % 300 * 2, (number / 300) as u32);
        let log = &mut letters[(number % 2) as usize];
        // Other words, since numbers make no other cause.
        let word: String = number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'g')).collect();
        let tier = if number % 5 == 0 { "critical" } else { "bulk" };
        let letter = Made { message: format!("no user {word}"), at: number, round, tier, ..letter_of(event) };
        log.push(letter.record(log.len() as i64));
    }
    let ended = |event: i64| match event % 3 {
        0 => order(Order::Discard, vec![(letter_of(event).id(), None, 0)]),
        1 => outcome(letter_of(event).id(), 6, Answer::Resolved),
        _ => outcome(letter_of(event).id(), 6, Answer::FailedAgain),
    };
    let journal = (0..120).map(|place| entry(place, 700 + place * 5, &ended(place * 2))).collect();
    (letters, journal)
}

#[test]
fn in_whichever_order_logs_are_read_the_same_causes_are_merged() {
    let (letters, journal) = noise();
    let in_order = |steps: &[(usize, usize)]| {
        let dir = tempfile::tempdir().unwrap();
        let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
        let mut rest = [letters[0].as_slice(), &letters[1], &journal];
        for (log, count) in steps.iter().copied().chain([(0, 9999), (1, 9999), (2, 9999)]) {
            let (now, later) = rest[log].split_at(count.min(rest[log].len()));
            rest[log] = later;
            match log {
                2 => index.journal(now).unwrap(),
                log => index.letters(Partition(log as i32), now).unwrap(),
            }
        }
        let text = shown(&inbox(dir.path()));
        let lines = text.lines().filter(|line| !line.contains("\"first_at\""));
        lines.collect::<Vec<_>>().join("\n")
    };
    let (one, other) = (in_order(&[]), in_order(&[(2, 60), (1, 700), (0, 290), (1, 20), (2, 30), (0, 100)]));
    for (one, other) in one.lines().zip(other.lines()) {
        assert_eq!(one, other);
    }
    assert_eq!(one, in_order(&[(1, 9999)]));
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    index.letters(Partition(0), &letters[0]).unwrap();
    index.letters(Partition(1), &letters[1]).unwrap();
    let groups = inbox(dir.path()).groups(&GroupQuery::default()).unwrap();
    assert_eq!((groups.total, groups.items), (1, 300));
}

fn one_group(inbox: &Inbox) -> Group {
    let page = inbox.groups(&GroupQuery::default()).unwrap();
    assert_eq!(page.total, 1);
    page.groups.into_iter().next().unwrap()
}

#[test]
fn a_group_whose_items_were_all_done_and_that_fails_again_has_regressed() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letter = |event, at| Made { at, ..Made::new(event, Some("charge")) };
    index.letters(Partition(0), &[letter(1, 10).record(0), letter(2, 20).record(1)]).unwrap();
    assert_eq!(one_group(&inbox).state, Some("open"));
    let done = |offset, at, event| entry(offset, at, &outcome(letter(event, 0).id(), 1, Answer::Resolved));
    index.journal(&[done(0, 30, 1)]).unwrap();
    assert_eq!(one_group(&inbox).state, Some("open"), "one of two");
    index.journal(&[done(1, 40, 2)]).unwrap();
    assert_eq!(one_group(&inbox).state, Some("closed"));
    index.letters(Partition(0), &[letter(3, 50).record(2)]).unwrap();
    let group = one_group(&inbox);
    assert_eq!((group.state, group.waiting, group.items), (Some("regressed"), 1, 3));
    let after_the_first = |at: Option<i64>| at.map(|at| at - group.first_dead_at);
    assert_eq!(after_the_first(group.waiting_since), Some(40), "the two before it are done");
    index.journal(&[done(2, 60, 3)]).unwrap();
    assert_eq!((one_group(&inbox).state, one_group(&inbox).waiting_since), (Some("closed"), None));
}

/// An index of one item that was dead-lettered at 10, and its group.
struct OneItem {
    index: LocalIndex,
    inbox: Inbox,
    entries: i64,
    letters: i64,
    _dir: tempfile::TempDir,
}

impl OneItem {
    fn dead() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (index, inbox) = (LocalIndex::open(dir.path(), DLQ).unwrap(), inbox(dir.path()));
        let mut one = Self { index, inbox, entries: 0, letters: 0, _dir: dir };
        one.dies(10, 0);
        one
    }

    fn dies(&mut self, at: i64, round: u32) {
        self.dies_as(Made { at, round, ..Made::new(1, Some("charge")) });
    }

    fn dies_as(&mut self, letter: Made) {
        self.index.letters(Partition(0), &[letter.record(self.letters)]).unwrap();
        self.letters += 1;
    }

    fn journal(&mut self, at: i64, what: &Entry) {
        self.index.journal(&[entry(self.entries, at, what)]).unwrap();
        self.entries += 1;
    }

    /// An order of somebody who knows the last entry.
    fn order(&mut self, at: i64, what: Order, round: u32) {
        let seen = (self.entries > 0).then(|| self.entries - 1);
        self.journal(at, &order(what, vec![(Made::new(1, Some("charge")).id(), seen, round)]));
    }

    fn ends(&mut self, at: i64, round: u32, answer: Answer) {
        self.journal(at, &outcome(Made::new(1, Some("charge")).id(), round, answer));
    }

    /// The states of its group and of itself, and since when it waits.
    fn shows(&self) -> (&'static str, &'static str, Option<i64>) {
        let group = one_group(&self.inbox);
        let states: Vec<_> = group.states.keys().copied().collect();
        assert_eq!(states.len(), 1);
        (group.state.unwrap(), states[0], group.waiting_since.map(|at| at - support::EPOCH))
    }
}

#[test]
fn an_item_that_is_run_again_although_it_is_done_and_fails_makes_its_group_regressed() {
    let mut item = OneItem::dead();
    item.order(20, Order::Replay { forced: false }, 1);
    assert_eq!(item.shows(), ("open", "replaying", Some(10)));
    item.ends(30, 1, Answer::Resolved);
    assert_eq!(item.shows(), ("closed", "resolved", None));
    item.order(40, Order::Replay { forced: true }, 2);
    assert_eq!(item.shows(), ("closed", "replaying", None), "it is done all the same");
    item.dies(50, 2);
    item.ends(51, 2, Answer::FailedAgain);
    assert_eq!(item.shows(), ("regressed", "failed-again", Some(50)));
    item.order(60, Order::Discard, 0);
    assert_eq!(item.shows(), ("closed", "discarded", None));
}

#[test]
fn a_new_letter_of_an_item_that_is_done_or_discarded_is_told_and_makes_its_group_regressed_once_it_is_acted_on()
 {
    let late = |item: &OneItem| {
        let told = item.inbox.item(ItemRef::of_id(&Made::new(1, Some("charge")).id())).unwrap().unwrap().late;
        assert_eq!(one_group(&item.inbox).late, u64::from(told.is_some()));
        told.map(|at| at - support::EPOCH)
    };
    let mut item = OneItem::dead();
    item.ends(30, 1, Answer::Resolved);
    item.dies(40, 0);
    assert_eq!((item.shows(), late(&item)), (("closed", "resolved", None), Some(40)));
    item.order(50, Order::Replay { forced: true }, 2);
    assert_eq!((item.shows(), late(&item)), (("regressed", "replaying", Some(40)), None));
    item.ends(60, 2, Answer::Resolved);
    assert_eq!((item.shows(), late(&item)), (("closed", "resolved", None), None));

    let mut item = OneItem::dead();
    item.order(20, Order::Discard, 0);
    item.dies(30, 1);
    assert_eq!((item.shows(), late(&item)), (("closed", "discarded", None), Some(30)));
    item.order(40, Order::Reopen, 0);
    assert_eq!((item.shows(), late(&item)), (("regressed", "open", Some(30)), None));
    item.order(50, Order::Discard, 0);
    assert_eq!((item.shows(), late(&item)), (("closed", "discarded", None), None));
}

#[test]
fn a_worker_whose_clock_is_wrong_makes_no_group_regressed_and_hides_no_regression() {
    for ahead in [-3_600_000, -15, 0, 15, 3_600_000] {
        let letter = |at, round| Made { at, round, ahead, ..Made::new(1, Some("charge")) };
        let mut item = OneItem::dead();
        // Between the first failure and the end, whatever its worker thinks.
        item.order(15, Order::Replay { forced: false }, 1);
        item.dies_as(letter(20, 1));
        item.ends(21, 1, Answer::FailedAgain);
        assert_eq!(item.shows(), ("open", "failed-again", Some(10)), "{ahead}");
        item.order(25, Order::Replay { forced: false }, 2);
        item.ends(30, 2, Answer::Resolved);
        assert_eq!(item.shows(), ("closed", "resolved", None), "{ahead}");
        assert_eq!(one_group(&item.inbox).late, 0, "{ahead}");
        // And after it.
        item.order(40, Order::Replay { forced: true }, 3);
        item.dies_as(letter(50, 3));
        item.ends(51, 3, Answer::FailedAgain);
        assert_eq!(item.shows(), ("regressed", "failed-again", Some(50)), "{ahead}");
    }
}

#[test]
fn a_cause_is_the_same_after_its_class_changed_its_tier() {
    let critical = |at, round| Made { at, round, tier: "critical", ..Made::new(1, Some("charge")) };
    let mut item = OneItem::dead();
    item.order(20, Order::Replay { forced: false }, 1);
    item.dies_as(critical(30, 1));
    item.ends(31, 1, Answer::FailedAgain);
    assert_eq!(item.shows(), ("open", "failed-again", Some(10)), "it failed of it since");
    item.order(40, Order::Discard, 0);
    item.dies_as(critical(50, 2));
    item.order(60, Order::Reopen, 0);
    assert_eq!(item.shows(), ("regressed", "open", Some(50)));
}

/// Items of one group that were dead-lettered one after another and then discarded; the last one a while after the others.
fn many_discarded(index: &mut LocalIndex, items: i64) {
    let letters: Vec<Record> = (0..items)
        .map(|event| Made { at: event, ..Made::new(event, Some("charge")) }.record(event))
        .collect();
    index.letters(Partition(0), &letters).unwrap();
    let chunks = (0..items - 1).collect::<Vec<_>>();
    let of_chunk = |events: &[i64]| {
        let ids = events.iter().map(|event| (Made::new(*event, Some("charge")).id(), None, 0));
        order(Order::Discard, ids.collect())
    };
    let mut journal: Vec<Record> =
        (0..).zip(chunks.chunks(5000)).map(|(at, events)| entry(at, items, &of_chunk(events))).collect();
    journal.push(entry(journal.len() as i64, 2 * items, &of_chunk(&[items - 1])));
    index.journal(&journal).unwrap();
}

#[test]
fn a_regression_is_seen_behind_more_than_fifty_thousand_items_that_ended() {
    const ITEMS: i64 = 50_100;
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    many_discarded(&mut index, ITEMS);
    assert_eq!((one_group(&inbox).state, one_group(&inbox).items), (Some("closed"), ITEMS as u64));
    let mut dies = |event: i64, at: i64| {
        let letter = Made { at, ..Made::new(event, Some("charge")) };
        index.letters(Partition(1), &[letter.record(event)]).unwrap();
        one_group(&inbox).state
    };
    assert_eq!(dies(ITEMS, 2 * ITEMS + 1), Some("regressed"));
    assert_eq!(dies(ITEMS + 1, ITEMS + 10), Some("open"), "when it failed, the last of the others was open");
}

#[test]
fn a_discard_that_is_taken_back_makes_no_group_regressed() {
    let mut item = OneItem::dead();
    item.order(20, Order::Discard, 0);
    item.order(30, Order::Reopen, 0);
    item.order(40, Order::Replay { forced: false }, 1);
    item.dies(50, 1);
    item.ends(51, 1, Answer::FailedAgain);
    assert_eq!(item.shows(), ("open", "failed-again", Some(10)));
}

#[test]
fn an_order_that_its_author_gave_without_knowing_the_last_entry_is_shown_as_void() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letter = Made::new(1, Some("charge"));
    index.letters(Partition(0), &[letter.record(0)]).unwrap();
    let discard = order(Order::Discard, vec![(letter.id(), None, 0)]);
    index.journal(&[entry(0, 1, &discard), entry(1, 2, &discard)]).unwrap();
    let item = inbox.item(ItemRef::of_id(&letter.id())).unwrap().unwrap();
    assert_eq!((item.row.state, item.seen), ("discarded", Some(0)));
    let voids: Vec<_> = item.journal.iter().map(|entry| (entry.at, entry.void.as_deref())).collect();
    assert_eq!(voids, [(0, None), (1, Some("stale"))]);
}

#[test]
fn what_was_ordered_about_an_item_counts_when_its_letter_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letter = Made::new(1, None);
    index.journal(&[entry(0, 1, &order(Order::Discard, vec![(letter.id(), None, 0)]))]).unwrap();
    index.letters(Partition(1), &[letter.record(0)]).unwrap();
    assert_eq!(inbox.overview().unwrap().states, [("discarded", 1)].into());
}

#[test]
fn a_run_tells_how_its_orders_and_replays_stand() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let order_of = Order::Replay { forced: false };
    let id = |event: i64| Made::new(event, Some("charge")).id();
    let orders =
        order(order_of, vec![(id(1), None, 1), (id(2), None, 1), (id(3), None, 1), (id(4), Some(9), 1)]);
    let begun = [entry(0, 1, &run_step(RunStep::Begin(plan(1)))), entry(1, 2, &orders)];
    index.journal(&begun).unwrap();
    let counts =
        |run: &tidegate_operator::Run| (run.accepted, run.refused, run.passed, run.failed, run.pending);
    let run = || inbox.run(RunId(7)).unwrap().unwrap();
    assert_eq!(counts(&run()), (3, 1, 0, 0, 3));
    index.journal(&[entry(2, 3, &outcome(id(1), 1, Answer::Resolved))]).unwrap();
    index.journal(&[entry(3, 4, &outcome(id(2), 1, Answer::FailedAgain))]).unwrap();
    assert_eq!(counts(&run()), (3, 1, 1, 1, 1));
    // Reopened is no longer pending.
    index.journal(&[entry(4, 5, &order(Order::Reopen, vec![(id(3), Some(1), 0)]))]).unwrap();
    assert_eq!(counts(&run()), (3, 1, 1, 1, 0));
    assert_eq!(run().ramp, Some(RampLimits::CANARY));
    index.journal(&[entry(5, 6, &run_step(RunStep::Stop { why: "enough".to_owned() }))]).unwrap();
    assert_eq!((run().status, run().why.as_deref()), (tidegate_operator::RunStatus::Stopped, Some("enough")));
}

#[test]
fn a_run_that_stops_lets_go_of_what_it_did_not_climb_to_and_takes_back_what_nobody_touched() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letter = |event: i64| Made::new(event, Some("charge"));
    let letters: Vec<_> = (1..5).map(|event| letter(event).record(event)).collect();
    index.letters(Partition(0), &letters).unwrap();
    let items = (1..5).map(|event| (letter(event).id(), None, 1)).collect();
    let orders = order(Order::Replay { forced: false }, items);
    let begun = [run_step(RunStep::Begin(plan(1))), orders, run_step(RunStep::Climb { until: 1 })];
    let stop = run_step(RunStep::Stop { why: "enough".to_owned() });
    for (offset, what) in (0..).zip(begun.iter().chain([&stop])) {
        index.journal(&[entry(offset, offset, what)]).unwrap();
    }
    let states = || inbox.overview().unwrap().states;
    let counts = || {
        let run = inbox.run(RunId(7)).unwrap().unwrap();
        (run.pending, run.released)
    };
    assert_eq!((states(), counts()), ([("open", 3), ("replaying", 1)].into(), (1, 3)));
    let discard = order(Order::Discard, vec![(letter(4).id(), Some(3), 0)]);
    index.journal(&[entry(4, 4, &discard), entry(5, 5, &run_step(RunStep::Resume))]).unwrap();
    assert_eq!((states(), counts()), ([("discarded", 1), ("replaying", 3)].into(), (3, 0)));
    let item = inbox.item(ItemRef::of_id(&letter(2).id())).unwrap().unwrap();
    let told: Vec<_> = item.journal.iter().map(|entry| entry.what.as_str()).collect();
    assert_eq!(told, ["replay", "released", "taken back"]);
}
