//! Lists, pages, counts and groups against a naive model.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use support::{DLQ, EPOCH, Made, inbox};
use tidegate_domain::{FailureKind, Partition};
use tidegate_operator::{By, Filter, GroupQuery, Inbox, ListQuery, LocalIndex, Order, Row, Sort};
use tidegate_pipeline::Record;

const CLASSES: [Option<&str>; 3] = [None, Some("charge"), Some("mail")];
const MESSAGES: [&str; 4] = ["connection refused", "no such user", "balance too low", "bad gateway"];

fn any_letter(events: i64) -> impl Strategy<Value = Made> {
    (0..events, 0..3_usize, 0..4_usize, 0..2_u32, 0..4000_i64).prop_map(
        |(event, class, message, round, at)| {
            let kind = if message % 2 == 0 { FailureKind::Transient } else { FailureKind::Permanent };
            // An event of a class is always of that class.
            let class = CLASSES[(class + event as usize) % 3];
            Made { kind, message: MESSAGES[message].to_owned(), round, at, ..Made::new(event, class) }
        },
    )
}

fn any_filter() -> impl Strategy<Value = Filter> {
    let some = |names: &'static [&'static str]| {
        proptest::sample::subsequence(names, 0..=names.len())
            .prop_map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    (
        some(&["charge", "mail", "-"]),
        some(&["transient", "permanent"]),
        proptest::option::of(0..4000_i64),
        proptest::option::of(0..4000_i64),
    )
        .prop_map(|(classes, kinds, since, until)| Filter {
            classes,
            kinds,
            since: since.map(|at| EPOCH + at),
            until: until.map(|at| EPOCH + at),
            ..Filter::default()
        })
}

fn records(letters: &[Made], from: usize) -> Vec<Record> {
    (from as i64..).zip(letters).map(|(offset, letter)| letter.record(offset)).collect()
}

fn fits(filter: &Filter, row: &Row) -> bool {
    let any = |names: &[String], name: Option<&str>| {
        names.is_empty() || names.iter().any(|n| n == name.unwrap_or("-"))
    };
    any(&filter.classes, row.job.class.as_deref())
        && any(&filter.kinds, row.error.kind.as_deref())
        && filter.since.is_none_or(|since| row.first_at >= since)
        && filter.until.is_none_or(|until| row.first_at < until)
}

fn all(inbox: &Inbox) -> Vec<Row> {
    let query = ListQuery { limit: Some(1000), ..ListQuery::default() };
    inbox.list(&query).unwrap().items
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn pages_have_every_item_that_was_there_once_while_others_arrive(
        first in proptest::collection::vec(any_letter(60), 1..80),
        later in proptest::collection::vec(any_letter(60), 0..40),
        filter in any_filter(),
        limit in 1..20_usize,
        oldest_first in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
        let inbox = inbox(dir.path());
        index.letters(Partition(0), &records(&first, 0)).unwrap();
        let there: BTreeMap<String, Row> = all(&inbox).into_iter().map(|row| (row.id.clone(), row)).collect();
        let order = if oldest_first { Order::OldestFirst } else { Order::NewestFirst };
        let mut query = ListQuery { filter: filter.clone(), order, limit: Some(limit), after: None };
        let mut seen = Vec::new();
        let mut arrived = first.len();
        let mut arriving = later.chunks(7);
        loop {
            let page = inbox.list(&query).unwrap();
            prop_assert!(page.items.len() <= limit);
            seen.extend(page.items);
            query.after = page.next;
            if let Some(chunk) = arriving.next() {
                index.letters(Partition(0), &records(chunk, arrived)).unwrap();
                arrived += chunk.len();
            }
            if query.after.is_none() {
                break;
            }
        }
        let ids: BTreeSet<&str> = seen.iter().map(|row| row.id.as_str()).collect();
        prop_assert_eq!(ids.len(), seen.len(), "an item came twice");
        // An item whose facts changed meanwhile may have left the list, or have come to it.
        let unchanged = all(&inbox).into_iter().filter(|row| there.get(&row.id).is_some_and(|was| was.record == row.record));
        for row in unchanged {
            prop_assert_eq!(fits(&filter, &row), ids.contains(row.id.as_str()), "{}", row.id);
        }
        prop_assert!(seen.iter().all(|row| fits(&filter, row)));
        let times: Vec<i64> = seen.iter().map(|row| row.first_at).collect();
        prop_assert!(times.is_sorted_by(|a, b| if oldest_first { a <= b } else { a >= b }), "{:?}", times);
    }

    #[test]
    fn counts_and_groups_are_those_of_the_listed_items(
        letters in proptest::collection::vec(any_letter(60), 1..80),
        filter in any_filter(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
        let inbox = inbox(dir.path());
        for (number, chunk) in letters.chunks(9).enumerate() {
            index.letters(Partition(0), &records(chunk, number * 9)).unwrap();
        }
        let rows: Vec<Row> = all(&inbox).into_iter().filter(|row| fits(&filter, row)).collect();
        let list = inbox.list(&ListQuery { filter: filter.clone(), limit: Some(1000), ..ListQuery::default() }).unwrap();
        prop_assert_eq!(list.items.len(), rows.len());
        prop_assert_eq!(list.total, Some(rows.len() as u64));
        for by in [By::Fingerprint, By::Class, By::Kind, By::Source] {
            let page = inbox.groups(&GroupQuery { filter: filter.clone(), by, ..GroupQuery::default() }).unwrap();
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for row in &rows {
                let key = match by {
                    By::Class => row.job.class.clone().unwrap_or("-".to_owned()),
                    By::Kind => row.error.kind.clone().unwrap(),
                    By::Source => "shop.orders".to_owned(),
                    _ => row.error.fingerprint.clone(),
                };
                *counts.entry(key).or_default() += 1;
            }
            let told: BTreeMap<String, u64> = page.groups.iter().map(|group| (group.key.clone(), group.items)).collect();
            prop_assert_eq!(told, counts, "{:?}", by);
            prop_assert_eq!(page.items, rows.len() as u64);
        }
        let overview = inbox.overview().unwrap();
        prop_assert_eq!(overview.waiting, all(&inbox).len() as u64);
    }
}

#[test]
fn an_item_is_found_by_words_of_its_message_its_key_and_its_payload_and_by_its_idempotency_key() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letters: Vec<Made> = (0..50).map(|event| Made::new(event, Some("charge"))).collect();
    index.letters(Partition(0), &records(&letters, 0)).unwrap();
    index.words(Partition(0), &records(&letters, 0)).unwrap();
    let find = |filter: Filter| -> Vec<String> {
        let page = inbox.list(&ListQuery { filter, limit: Some(100), ..ListQuery::default() }).unwrap();
        page.items.into_iter().map(|row| row.id).collect()
    };
    let text = |words: &str| Filter { text: Some(words.to_owned()), ..Filter::default() };
    assert_eq!(find(text("Connection REFUSED")).len(), 50);
    assert_eq!(find(text("order-17")), ["shop.orders/3/17/charge"]);
    assert_eq!(find(text("key-4*")).len(), 11);
    assert_eq!(find(Filter { classes: vec!["mail".to_owned()], ..text("refused") }), [""; 0]);
    let key = Some(letters[23].key().to_string());
    assert_eq!(find(Filter { key, ..Filter::default() }), ["shop.orders/3/23/charge"]);
    // A later letter is found by its own words, and its item comes once.
    let again = Made { message: "quota exceeded".to_owned(), round: 1, at: 9999, ..letters[23].clone() };
    index.letters(Partition(0), &[again.record(50)]).unwrap();
    index.words(Partition(0), &[again.record(50)]).unwrap();
    assert_eq!(find(text("quota")), ["shop.orders/3/23/charge"]);
    assert_eq!(find(text("order-23")), ["shop.orders/3/23/charge"]);
    let groups = inbox.groups(&GroupQuery { filter: text("order-23"), ..GroupQuery::default() }).unwrap();
    assert_eq!((groups.items, groups.total, groups.groups[0].message.as_str()), (1, 1, "quota exceeded"));
}

#[test]
fn a_search_is_paged_without_repeats_or_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letters: Vec<Made> = (0..200).map(|event| Made::new(event, CLASSES[event as usize % 3])).collect();
    index.letters(Partition(0), &records(&letters, 0)).unwrap();
    index.words(Partition(0), &records(&letters, 0)).unwrap();
    let filter =
        Filter { text: Some("refused".to_owned()), classes: vec!["mail".to_owned()], ..Filter::default() };
    let mut query = ListQuery { filter, limit: Some(7), ..ListQuery::default() };
    let mut seen = Vec::new();
    loop {
        let page = inbox.list(&query).unwrap();
        seen.extend(page.items.into_iter().map(|row| row.id));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..200)
        .rev()
        .filter(|event| event % 3 == 2)
        .map(|event| format!("shop.orders/3/{event}/mail"))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn a_beginning_finds_few_words_and_many_and_must_be_longer_where_very_many_begin_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letters: Vec<Made> = (1000..1200).map(|event| Made::new(event, Some("charge"))).collect();
    index.letters(Partition(0), &records(&letters, 0)).unwrap();
    index.words(Partition(0), &records(&letters, 0)).unwrap();
    let find = |words: &str| {
        let filter = Filter { text: Some(words.to_owned()), ..Filter::default() };
        let page = inbox.list(&ListQuery { filter, limit: Some(1000), ..ListQuery::default() });
        page.map(|page| page.items.len()).map_err(|error| error.to_string())
    };
    assert_eq!(find("ORD*"), Ok(200), "one word that all have");
    assert_eq!(find("118*"), Ok(10), "ten words");
    assert_eq!(find("ord* 1180"), Ok(1));
    assert_eq!(find("100* refus*"), Ok(10));
    assert_eq!(find("zzz*"), Ok(0));
    assert!(find("1*").is_err_and(|reason| reason.contains("at least 3 letters")), "200 words");
    assert_eq!(find("k*"), Ok(200), "short, and few words");
}

#[test]
fn groups_of_a_search_with_very_many_finds_count_the_newest_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letters: Vec<Made> = (0..5_050).map(|event| Made::new(event, Some("charge"))).collect();
    index.letters(Partition(0), &records(&letters, 0)).unwrap();
    index.words(Partition(0), &records(&letters, 0)).unwrap();
    let groups = |words: &str| {
        let filter = Filter { text: Some(words.to_owned()), ..Filter::default() };
        let page = inbox.groups(&GroupQuery { filter, ..GroupQuery::default() }).unwrap();
        (page.items, page.partly)
    };
    assert_eq!(groups("refused"), (5_000, true));
    assert_eq!(groups("order-17"), (1, false));
}

#[test]
fn groups_by_handler_follow_the_configuration_and_tell_no_query() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letters: Vec<Made> = (0..9).map(|event| Made::new(event, CLASSES[event as usize % 3])).collect();
    index.letters(Partition(0), &records(&letters, 0)).unwrap();
    let page = inbox.groups(&GroupQuery { by: By::Handler, ..GroupQuery::default() }).unwrap();
    let keys: BTreeMap<&str, u64> =
        page.groups.iter().map(|group| (group.key.as_str(), group.items)).collect();
    assert_eq!(keys, [("http http://127.0.0.1:1/charge", 3), ("log", 3), ("-", 3)].into());
    let handlers = vec!["log".to_owned()];
    let list =
        inbox.list(&ListQuery { filter: Filter { handlers, ..Filter::default() }, ..ListQuery::default() });
    assert!(list.unwrap().items.iter().all(|row| row.job.class.as_deref() == Some("mail")));
}

/// A letter whose message no other event has.
fn unlike_others(event: i64) -> Made {
    let (mut word, mut rest) = (String::new(), event);
    while rest > 0 || word.is_empty() {
        word.push(char::from(b'g' + (rest % 19) as u8));
        rest /= 19;
    }
    Made { message: format!("no such user {word}"), ..Made::new(event, Some("mail")) }
}

#[test]
fn very_many_causes_of_one_class_kind_and_code_are_one_group_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let groups = || {
        let page = inbox.groups(&GroupQuery { sort: Sort::Items, ..GroupQuery::default() }).unwrap();
        (page.total, page.items, page.groups[0].items)
    };
    let permanent = |event| Made { kind: FailureKind::Permanent, ..unlike_others(event) };
    let apart: Vec<Made> = (0..1000).map(unlike_others).chain((1000..1010).map(permanent)).collect();
    index.letters(Partition(0), &records(&apart, 0)).unwrap();
    assert_eq!(groups(), (1010, 1010, 1));
    index.letters(Partition(0), &records(&[unlike_others(1010)], 1010)).unwrap();
    assert_eq!(groups(), (11, 1011, 1001));
    let more: Vec<Made> = (1011..1100).map(unlike_others).chain((1100..1105).map(permanent)).collect();
    index.letters(Partition(0), &records(&more, 1011)).unwrap();
    assert_eq!(groups(), (16, 1105, 1090));
    drop(index);
    // One that is opened later goes on with it.
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    index.letters(Partition(0), &records(&[unlike_others(1105), permanent(1106)], 1105)).unwrap();
    assert_eq!(groups(), (17, 1107, 1091));
    let filter = Filter { kinds: vec!["transient".to_owned()], ..Filter::default() };
    assert_eq!(inbox.list(&ListQuery { filter, ..ListQuery::default() }).unwrap().total, Some(1091));
}

#[test]
fn what_is_left_when_letters_are_gone_is_grouped_as_if_they_had_never_been() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    let inbox = inbox(dir.path());
    let letters: Vec<Made> = (0..1200).map(unlike_others).collect();
    let records = records(&letters, 0);
    index.letters(Partition(0), &records).unwrap();
    let groups = || inbox.groups(&GroupQuery::default()).unwrap().total;
    assert!(!index.prune(Partition(0), 199).unwrap());
    assert_eq!(groups(), 1, "1001 of them");
    assert!(index.prune(Partition(0), 200).unwrap(), "it must be built anew");
    assert_eq!(groups(), 0);
    index.letters(Partition(0), &records[200..]).unwrap();
    assert_eq!(groups(), 1000);
    assert!(!index.prune(Partition(0), 1190).unwrap());
    assert_eq!(groups(), 10);
    // Those that are gone have made room.
    let new: Vec<Made> = (1200..2190).map(unlike_others).collect();
    let new: Vec<Record> = (1200..).zip(&new).map(|(offset, letter)| letter.record(offset)).collect();
    index.letters(Partition(0), &new).unwrap();
    assert_eq!(groups(), 1000);
}

#[test]
fn an_index_of_another_topic_and_one_that_is_no_database_are_built_anew() {
    let dir = tempfile::tempdir().unwrap();
    let fill = |dlq: &str| {
        let mut index = LocalIndex::open(dir.path(), dlq).unwrap();
        index.letters(Partition(0), &records(&[Made::new(1, Some("mail"))], 0)).unwrap();
    };
    let count = || inbox(dir.path()).overview().unwrap().waiting;
    fill(DLQ);
    assert_eq!(count(), 1);
    drop(LocalIndex::open(dir.path(), DLQ).unwrap());
    assert_eq!(count(), 1, "it is the same topic");
    drop(LocalIndex::open(dir.path(), "other.dlq").unwrap());
    assert_eq!(count(), 0);
    fill(DLQ);
    for end in ["", "-wal", "-shm"] {
        let path = dir.path().join(format!("index.db{end}"));
        if path.is_file() {
            std::fs::write(&path, b"no database at all, but long enough to be looked at").unwrap();
        }
    }
    fill(DLQ);
    assert_eq!(count(), 1);
}

#[test]
fn an_index_that_another_process_writes_is_not_written_and_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = LocalIndex::open(dir.path(), DLQ).unwrap();
    assert!(LocalIndex::open(dir.path(), DLQ).is_err());
    index.letters(Partition(0), &records(&[Made::new(1, Some("mail"))], 0)).unwrap();
    assert_eq!(inbox(dir.path()).overview().unwrap().waiting, 1);
}
