//! Opening, asking, appending and closing partitions.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::fs;

use proptest::prelude::*;
use support::*;
use tidegate_domain::mark::Phase;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Offset, Topic, UnixMillis};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::{LastRecord, LocalCopy, MarkTable};
use tidegate_pipeline::ports::{MarkEntry, MarkStoreError, Ticket};
use tidegate_state::{Marks, MemoryBudgets};

#[test]
fn a_copy_names_its_last_record_also_after_it_was_closed_or_restored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    let marks = open(&path);
    open_partition(&marks, &at);
    let last = |offset| Some(LastRecord { offset: Offset(offset), fingerprint: 9 });
    let appended = LocalCopy { last: last(4), ..copy(5, None) };
    apply(&marks, &at, &[entry(1)], NOW, appended).unwrap();
    drop(marks);
    let marks = open(&path);
    assert_eq!(open_partition(&marks, &at), appended);
    let restoring = marks.restore(&at, true).unwrap();
    restoring.finish(CommitPosition(8), None, last(7)).unwrap();
    assert_eq!(open_partition(&marks, &at), LocalCopy { last: last(7), ..copy(8, None) });
}

#[test]
fn what_is_appended_is_found_in_the_order_of_the_keys_asked() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    open_partition(&marks, &at);
    let entries: Vec<_> = (0..1_000)
        .map(|n| MarkEntry { key: key(n), mark: Mark::step(step(n as u32, 0, Phase::Scheduled)) })
        .collect();
    append(&marks, &at, &entries, NOW);
    let keys: Vec<_> = (0..2_000).rev().chain([5, 5]).map(key).collect();
    let found = look_up(&marks, &at, &keys);
    let expected = (0..2_000).rev().chain([5, 5]).map(|n| match n {
        0..1_000 => Mark::step(step(n as u32, 0, Phase::Scheduled)),
        _ => Mark::default(),
    });
    assert!(found.into_iter().eq(expected));
    let mut more = vec![done()];
    marks.look_up(&at, &[key(0)], &mut more).unwrap();
    assert_eq!(more.len(), 2, "results are appended to what is there");
}

#[test]
fn marks_of_one_key_are_joined_whatever_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    open_partition(&marks, &at);
    let late = Mark::step(step(0, 2, Phase::Dead));
    let early = Mark::step(step(0, 1, Phase::Scheduled));
    append(&marks, &at, &[MarkEntry { key: key(1), mark: late }], NOW);
    append(&marks, &at, &[MarkEntry { key: key(1), mark: early }, entry(1)], NOW + 5);
    append(&marks, &at, &[MarkEntry { key: key(1), mark: early }], NOW + 3);
    assert_eq!(look_up(&marks, &at, &[key(1)]), [late.join(done())]);
    let (mark, append_time) = marks.inspect(&at, &key(1)).unwrap().unwrap();
    assert_eq!((mark, append_time), (late.join(done()), UnixMillis(NOW + 5)));
    assert_eq!(marks.inspect(&at, &key(2)).unwrap(), None);
    assert_eq!(marks.inspect(&partition(7), &key(1)).unwrap(), None);
}

#[test]
fn partitions_know_nothing_of_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    for n in 0..3 {
        open_partition(&marks, &partition(n));
        append(&marks, &partition(n), &[entry(n as u64)], NOW);
    }
    for n in 0..3 {
        for k in 0..3 {
            assert_eq!(is_done(&marks, &partition(n), k), k == n as u64);
        }
    }
}

#[test]
fn a_partition_that_is_not_open_can_be_neither_read_nor_written() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    let not_open = |marks: &Marks| {
        let looked = marks.look_up(&at, &[key(1)], &mut Vec::new()).unwrap_err();
        assert!(matches!(looked, MarkStoreError::NotOpen(_)));
        let appended = try_append(marks, &at, &[entry(1)], NOW).unwrap_err();
        assert!(matches!(appended, MarkStoreError::NotOpen(_)));
    };
    not_open(&marks);
    open_partition(&marks, &at);
    append(&marks, &at, &[entry(1)], NOW);
    marks.close(&at);
    not_open(&marks);
    open_partition(&marks, &at);
    assert!(is_done(&marks, &at, 1), "what was appended stays");
}

#[test]
fn every_opening_is_answered_once_and_the_last_one_counts() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let ear = Ear::new();
    for round in 0..50 {
        for n in 0..8 {
            marks.open(&partition(n), Ticket(round * 8 + n as u64), &ear.inbox);
            if round != 49 {
                marks.close(&partition(n));
            }
        }
    }
    let mut answers: Vec<_> = (0..400).map(|_| ear.next()).collect();
    assert!(ear.nothing_more());
    answers.sort_by_key(|(Ticket(n), _)| *n);
    for (place, (Ticket(n), answer)) in answers.iter().enumerate() {
        assert_eq!(*n, place as u64);
        assert!(answer.is_ok() || matches!(answer, Err(MarkStoreError::NotOpen(_))));
    }
    assert!(answers[392..].iter().all(|(_, answer)| answer.is_ok()));
    for n in 0..8 {
        append(&marks, &partition(n), &[entry(1)], NOW);
    }
    marks.open(&partition(0), Ticket(9), &ear.inbox);
    assert!(
        matches!(ear.next(), (Ticket(9), Ok(LocalCopy { position: Some(_), .. }))),
        "an open one is open at once"
    );
}

#[test]
fn a_topic_without_an_identity_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let stranger = TopicPartition { topic: Topic::new("stranger"), partition: partition(0).partition };
    let error = try_open(&marks, &stranger).unwrap_err();
    assert!(error.to_string().contains("topic stranger has no identity"), "{error}");
}

#[test]
fn a_copy_says_how_far_it_goes_and_who_opened_the_partition_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    let steps = [
        copy(17, None),
        copy(18, Some(opener(1))),
        copy(40, Some(tidegate_pipeline::changelog::Opener { closed: true, ..opener(200) })),
        copy(41, None),
    ];
    let mut marks = open(&path);
    assert_eq!(open_partition(&marks, &at), LocalCopy::default(), "there is no copy yet");
    for (n, step) in steps.into_iter().enumerate() {
        apply(&marks, &at, &[entry(n as u64)], NOW, step).unwrap();
        assert_eq!(open_partition(&marks, &at), step, "it is open already");
        marks.close(&at);
        assert_eq!(open_partition(&marks, &at), step);
        drop(marks);
        marks = open(&path);
        assert_eq!(open_partition(&marks, &at), step);
        assert!((0..=n as u64).all(|n| is_done(&marks, &at, n)));
        assert_eq!(open_partition(&marks, &partition(1)), LocalCopy::default(), "of another");
    }
}

#[test]
fn a_partition_whose_filter_outgrew_its_budget_still_answers_rightly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    let mut settings = settings(&path);
    settings.memory = MemoryBudgets { filter_per_partition: 20_000, ..settings.memory };
    let entries: Vec<_> = (0..20_000).map(entry).collect();
    let check = |marks: &Marks| {
        assert_eq!(marks.size(&at).unwrap().filter_bytes, 0, "it was given up");
        let keys: Vec<_> = (0..40_000).map(key).collect();
        let found = look_up(marks, &at, &keys);
        assert!(found.iter().enumerate().all(|(n, mark)| (*mark == done()) == (n < 20_000)));
    };
    {
        let marks = Marks::open_dir(settings.clone()).unwrap();
        open_partition(&marks, &at);
        assert!(marks.size(&at).unwrap().filter_bytes > 0);
        append(&marks, &at, &entries, NOW);
        check(&marks);
    }
    let marks = Marks::open_dir(settings).unwrap();
    open_partition(&marks, &at);
    check(&marks);
}

#[test]
fn the_filter_is_built_again_from_what_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    {
        let marks = open(&path);
        open_partition(&marks, &at);
        // More than one read of the scan.
        for batch in 0..120 {
            append(&marks, &at, &(batch * 1_000..(batch + 1) * 1_000).map(entry).collect::<Vec<_>>(), NOW);
        }
    }
    let marks = open(&path);
    open_partition(&marks, &at);
    let size = marks.size(&at).unwrap();
    assert!(size.filter_bytes > 120_000 && size.keys > 100_000, "{size:?}");
    let keys: Vec<_> = (0..120_000).map(key).collect();
    assert!(look_up(&marks, &at, &keys).iter().all(|mark| *mark == done()));
}

#[test]
fn the_options_are_those_of_the_column_families_that_are_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let marks = open(&path);
    open_partition(&marks, &partition(3));
    let newest =
        files(&path, "").into_iter().filter(|f| f.to_str().unwrap().contains("/OPTIONS-")).max().unwrap();
    let options = fs::read_to_string(newest).unwrap();
    let section = |name: &str| {
        let start = options.find(&format!("[{name}]")).unwrap_or_else(|| panic!("no {name}"));
        options[start + 1..].split("\n[").next().unwrap().to_owned()
    };
    let check = |section: &str, lines: &[&str]| {
        for line in lines {
            assert!(section.lines().any(|l| l.trim() == *line), "{line} is missing in {section}");
        }
    };
    check(
        &section("DBOptions"),
        &["max_open_files=256", "atomic_flush=false", "avoid_flush_during_shutdown=false"],
    );
    check(
        &section(r#"CFOptions "jobs.tidegate.default.jobs.3""#),
        &[
            "write_buffer_size=8388608",
            "level0_stop_writes_trigger=2147483647",
            "compression=kNoCompression",
            "memtable_whole_key_filtering=true",
            "memtable_prefix_bloom_size_ratio=0.020000",
            "level_compaction_dynamic_level_bytes=true",
            "optimize_filters_for_hits=false",
            "periodic_compaction_seconds=21600",
            "ttl=21600",
            "merge_operator=tidegate.join-marks",
            "compaction_filter_factory=tidegate.forget-expired",
        ],
    );
    check(
        &section(r#"TableOptions/BlockBasedTable "jobs.tidegate.default.jobs.3""#),
        &[
            "data_block_index_type=kDataBlockBinaryAndHash",
            "whole_key_filtering=true",
            "filter_policy=bloomfilter",
            "cache_index_and_filter_blocks=true",
            "cache_index_and_filter_blocks_with_high_priority=true",
            "pin_l0_filter_and_index_blocks_in_cache=true",
        ],
    );
}

#[derive(Debug, Clone)]
enum Act {
    Append(Vec<(u64, Mark)>),
    LookUp(Vec<u64>),
    CloseAndOpen,
    Restart,
    Compact,
}

fn any_mark() -> impl Strategy<Value = Mark> {
    let phase = prop::sample::select(vec![Phase::Scheduled, Phase::Tried, Phase::Started, Phase::Dead]);
    (any::<bool>(), 0..3_u32, 0..3_u32, phase).prop_map(|(is_done, round, hop, phase)| {
        if is_done { Mark::done(step(round, hop, phase)) } else { Mark::step(step(round, hop, phase)) }
    })
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => prop::collection::vec((0..60_u64, any_mark()), 1..30).prop_map(Act::Append),
        8 => prop::collection::vec(0..80_u64, 1..40).prop_map(Act::LookUp),
        1 => Just(Act::CloseAndOpen),
        1 => Just(Act::Restart),
        1 => Just(Act::Compact),
    ]
}

fn run_against_a_map(acts: &[Act]) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(2);
    let mut model = std::collections::HashMap::<IdempotencyKey, Mark>::new();
    let mut marks = open(&path);
    open_partition(&marks, &at);
    for (time, act) in acts.iter().enumerate() {
        match act {
            Act::Append(entries) => {
                let entries: Vec<_> =
                    entries.iter().map(|&(n, mark)| MarkEntry { key: key(n), mark }).collect();
                for entry in &entries {
                    let known = model.entry(entry.key).or_default();
                    *known = known.join(entry.mark);
                }
                append(&marks, &at, &entries, NOW + time as i64);
            }
            Act::LookUp(keys) => {
                let keys: Vec<_> = keys.iter().copied().map(key).collect();
                let expected: Vec<_> =
                    keys.iter().map(|k| model.get(k).copied().unwrap_or_default()).collect();
                prop_assert_eq!(look_up(&marks, &at, &keys), expected);
            }
            Act::CloseAndOpen => {
                marks.close(&at);
                open_partition(&marks, &at);
            }
            Act::Restart => {
                drop(marks);
                marks = open(&path);
                open_partition(&marks, &at);
            }
            Act::Compact => marks.compact(&at).unwrap(),
        }
    }
    let keys: Vec<_> = model.keys().copied().collect();
    let expected: Vec<_> = model.values().copied().collect();
    prop_assert_eq!(look_up(&marks, &at, &keys), expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_store_answers_as_a_map_of_joined_marks_would(acts in prop::collection::vec(any_act(), 1..40)) {
        run_against_a_map(&acts)?;
    }
}
