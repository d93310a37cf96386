//! Restoring a partition's copy from its changelog.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use support::*;
use tidegate_domain::mark::Phase;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, UnixMillis};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::{LocalCopy, MarkTable, Opener};
use tidegate_pipeline::ports::{MarkEntry, MarkStoreError};
use tidegate_state::Marks;

/// More than one run, so two files.
const MANY: u64 = 530_000;

/// Cheaper to make than `key`.
fn quick(n: u64) -> IdempotencyKey {
    IdempotencyKey(u128::from(n + 1).wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15).to_be_bytes())
}

fn quick_entry(n: u64) -> MarkEntry {
    MarkEntry { key: quick(n), mark: done() }
}

/// Restores marks of `keys`, 1,000 a record.
fn restore(
    marks: &Marks,
    at: &TopicPartition,
    from_scratch: bool,
    keys: std::ops::Range<u64>,
    to: (i64, Option<Opener>),
) -> u64 {
    let mut restoring = marks.restore(at, from_scratch).unwrap();
    let entries: Vec<_> = keys.map(quick_entry).collect();
    for entries in entries.chunks(1_000) {
        restoring.push(entries, UnixMillis(NOW)).unwrap();
    }
    restoring.finish(CommitPosition(to.0), to.1, None).unwrap()
}

fn holds(marks: &Marks, at: &TopicPartition, keys: std::ops::Range<u64>) -> bool {
    let keys: Vec<_> = keys.map(quick).collect();
    look_up(marks, at, &keys).iter().all(|mark| *mark == done())
}

fn not_open<T: std::fmt::Debug>(answer: Result<T, MarkStoreError>) {
    assert!(matches!(answer, Err(MarkStoreError::NotOpen(_))), "{answer:?}");
}

#[test]
fn few_and_many_marks_are_restored_with_their_position_and_opener() {
    for count in [0, 1, 3_000, 60_000, MANY] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let at = partition(0);
        let mut marks = open(&path);
        open_partition(&marks, &at);
        append(&marks, &at, &[entry(1)], NOW);
        assert_eq!(restore(&marks, &at, true, 0..count, (77, Some(opener(3)))), count);
        for _restart in 0..2 {
            assert_eq!(open_partition(&marks, &at), copy(77, Some(opener(3))));
            assert!(holds(&marks, &at, 0..count.min(5_000)) && holds(&marks, &at, count / 10 * 9..count));
            assert!(!is_done(&marks, &at, 1), "what was there before is gone");
            let none = look_up(&marks, &at, &(count..count + 5_000).map(quick).collect::<Vec<_>>());
            assert!(none.iter().all(|mark| *mark == Mark::default()));
            drop(marks);
            marks = open(&path);
            open_partition(&marks, &at);
        }
        assert!(fs::read_dir(path.join("restores")).unwrap().next().is_none(), "files are moved");
    }
}

#[test]
fn what_is_restored_is_joined_with_what_is_there_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    open_partition(&marks, &at);
    let mark = |n: u64, part: u64| match (n + part) % 3 {
        0 => Mark::step(step(part as u32, 2, Phase::Scheduled)),
        1 => Mark::step(step(0, part as u32, Phase::Dead)),
        _ => Mark::done(step(1, part as u32, Phase::Started)),
    };
    let mut model = HashMap::<IdempotencyKey, Mark>::new();
    let entries = |part: u64, keys: std::ops::Range<u64>| -> Vec<MarkEntry> {
        keys.map(|n| MarkEntry { key: quick(n % 40_000), mark: mark(n, part) }).collect()
    };
    let mut parts = vec![entries(0, 0..20_000), entries(1, 0..MANY), entries(2, 30_000..40_000)];
    parts.push(entries(3, 0..30_000));
    for (n, part) in parts.iter().enumerate() {
        for &MarkEntry { key, mark } in part {
            let known = model.entry(key).or_default();
            *known = known.join(mark);
        }
        if n % 2 == 0 {
            apply(&marks, &at, part, NOW, copy(n as i64, None)).unwrap();
        } else {
            let mut restoring = marks.restore(&at, false).unwrap();
            // All at once is more than fits in memory.
            restoring.push(part, UnixMillis(NOW)).unwrap();
            let stored = restoring.finish(CommitPosition(n as i64), None, None).unwrap();
            assert!(stored <= 80_000, "equal keys are joined: {stored}");
        }
    }
    let keys: Vec<_> = model.keys().copied().collect();
    let expected: Vec<_> = model.values().copied().collect();
    assert_eq!(look_up(&marks, &at, &keys), expected);
    marks.compact(&at).unwrap();
    assert_eq!(look_up(&marks, &at, &keys), expected);
}

#[test]
fn from_scratch_nothing_is_answered_before_it_is_finished_and_a_dropped_one_leaves_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (at, other) = (partition(0), partition(1));
    let mut marks = open(&path);
    open_partition(&marks, &at);
    open_partition(&marks, &other);
    append(&marks, &at, &[entry(1)], NOW);
    for count in [1_000, MANY] {
        let mut restoring = marks.restore(&at, true).unwrap();
        let entries: Vec<_> = (0..count).map(quick_entry).collect();
        restoring.push(&entries, UnixMillis(NOW)).unwrap();
        not_open(marks.look_up(&at, &[key(1)], &mut Vec::new()));
        not_open(try_append(&marks, &at, &[entry(2)], NOW));
        append(&marks, &other, &[entry(count)], NOW);
        assert!(is_done(&marks, &other, count), "others go on");
        drop(restoring);
        not_open(marks.look_up(&at, &[key(1)], &mut Vec::new()));
        assert_eq!(open_partition(&marks, &at), LocalCopy::default());
        drop(marks);
        marks = open(&path);
        assert_eq!(open_partition(&marks, &at), LocalCopy::default());
        open_partition(&marks, &other);
    }
    assert_eq!(restore(&marks, &at, true, 5..10, (9, None)), 5);
    assert!(holds(&marks, &at, 5..10) && !is_done(&marks, &at, 1));
}

#[test]
fn what_is_added_and_dropped_leaves_the_old_position_and_answers_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    let mut marks = open(&path);
    open_partition(&marks, &at);
    apply(&marks, &at, &[entry(1)], NOW, copy(5, Some(opener(1)))).unwrap();
    for count in [1_000, MANY] {
        let mut restoring = marks.restore(&at, false).unwrap();
        let entries: Vec<_> = (0..count).map(quick_entry).collect();
        restoring.push(&entries, UnixMillis(NOW)).unwrap();
        assert!(is_done(&marks, &at, 1));
        drop(restoring);
        assert_eq!(open_partition(&marks, &at), copy(5, Some(opener(1))));
        drop(marks);
        marks = open(&path);
        assert_eq!(open_partition(&marks, &at), copy(5, Some(opener(1))));
        assert!(is_done(&marks, &at, 1));
    }
}

#[test]
fn a_restore_of_an_earlier_opening_or_before_another_restore_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    not_open(marks.restore(&at, true));
    open_partition(&marks, &at);
    let begin = || {
        let mut restoring = marks.restore(&at, true).unwrap();
        restoring.push(&[quick_entry(1)], UnixMillis(NOW)).unwrap();
        restoring
    };
    let late = begin();
    marks.close(&at);
    not_open(late.finish(CommitPosition(100), None, None));
    open_partition(&marks, &at);
    let late = begin();
    marks.close(&at);
    open_partition(&marks, &at);
    not_open(late.finish(CommitPosition(100), None, None));
    let late = begin();
    let now = begin();
    not_open(late.finish(CommitPosition(100), None, None));
    assert_eq!(now.finish(CommitPosition(50), None, None).unwrap(), 1);
    assert_eq!(open_partition(&marks, &at), copy(50, None));
}

/// Opens a store whose partition 0 has a damaged file, and lets a look-up find it.
fn set_aside_while(marks: &Marks, path: &Path) {
    for file in files(path, ".sst") {
        let mut bytes = fs::read(&file).unwrap();
        let place = bytes.len() / 3;
        bytes[place] ^= 0x40;
        fs::write(file, bytes).unwrap();
    }
    eventually("the state is set aside", || {
        let keys: Vec<_> = (0..20_000).map(key).collect();
        matches!(marks.look_up(&partition(0), &keys, &mut Vec::new()), Err(MarkStoreError::NotOpen(_)))
    });
    // Nothing is answered for from just before it is moved.
    eventually("it is beside it", || set_aside(path).len() == 1);
}

#[test]
fn a_restore_that_a_set_aside_overtakes_changes_nothing() {
    for count in [1_000, MANY] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let mut settings = settings(&path);
        settings.memory.filter_per_partition = 0;
        let marks = Marks::open_dir(settings).unwrap();
        for n in 0..2 {
            open_partition(&marks, &partition(n));
        }
        append(&marks, &partition(0), &(0..20_000).map(entry).collect::<Vec<_>>(), NOW);
        marks.compact(&partition(0)).unwrap();
        let mut restoring = marks.restore(&partition(1), true).unwrap();
        let entries: Vec<_> = (0..count).map(quick_entry).collect();
        restoring.push(&entries, UnixMillis(NOW)).unwrap();
        set_aside_while(&marks, &path);
        eventually("it opens", || try_open(&marks, &partition(1)).is_ok());
        let finished = restoring.finish(CommitPosition(9), None, None);
        assert!(finished.is_err(), "{finished:?}");
        assert_eq!(open_partition(&marks, &partition(1)), LocalCopy::default());
        assert_eq!(set_aside(&path).len(), 1, "the new one is not blamed");
        assert_eq!(restore(&marks, &partition(1), true, 0..10, (9, None)), 10);
    }
}

#[test]
fn what_is_expired_by_the_end_of_the_changelog_is_not_restored() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    open_partition(&marks, &at);
    let mut counts = Vec::new();
    // Logs of one to ten days, of which the last day is remembered.
    for days in 1..=10_i64 {
        let mut restoring = marks.restore(&at, true).unwrap();
        let hours = days * 24;
        for hour in 0..hours {
            let keys = hour as u64 * 100..(hour as u64 + 1) * 100;
            // One of them with a wild time.
            let time = if hour == 12 { NOW + 10_000 * HOUR } else { NOW + hour * HOUR };
            restoring.push(&keys.map(quick_entry).collect::<Vec<_>>(), UnixMillis(time)).unwrap();
        }
        counts.push(restoring.finish(CommitPosition(hours), None, None).unwrap());
        assert!(holds(&marks, &at, (hours as u64 - 24) * 100..hours as u64 * 100));
    }
    assert!(counts.iter().all(|&count| (2_400..=2_500).contains(&count)), "{counts:?}");
}
