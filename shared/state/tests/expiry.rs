//! Marks are forgotten by the broker's time, and leave the disk.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use support::*;
use tidegate_state::Marks;

#[test]
fn a_mark_is_remembered_for_the_retention_and_not_longer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    let mut marks = open(&path);
    open_partition(&marks, &at);
    append(&marks, &at, &[entry(1)], NOW);
    append(&marks, &at, &[entry(2)], NOW + 24 * HOUR);
    assert!(is_done(&marks, &at, 1), "to the last millisecond");
    append(&marks, &at, &[entry(3)], NOW + 24 * HOUR + 1);
    for _restart in 0..2 {
        assert!(!is_done(&marks, &at, 1));
        assert!(is_done(&marks, &at, 2) && is_done(&marks, &at, 3));
        drop(marks);
        marks = open(&path);
        open_partition(&marks, &at);
    }
    append(&marks, &at, &[entry(1)], NOW + 24 * HOUR + 1);
    assert!(is_done(&marks, &at, 1), "a forgotten key is remembered anew");
}

/// A record that is delivered again is older than the newest one seen, but its mark is new.
#[test]
fn a_mark_with_an_older_time_than_the_newest_is_remembered_as_long_as_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let marks = open(&dir.path().join("s"));
    let at = partition(0);
    open_partition(&marks, &at);
    append(&marks, &at, &[entry(1)], NOW);
    append(&marks, &at, &[entry(2)], NOW - 48 * HOUR);
    assert!(is_done(&marks, &at, 2));
    append(&marks, &at, &[entry(3)], NOW + 24 * HOUR);
    assert!(is_done(&marks, &at, 2));
}

#[test]
fn partitions_expire_by_their_own_time_and_no_clock_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // Whatever this machine's clock says, these are decades before and after it.
    let (past, future) = (partition(0), partition(1));
    {
        let marks = open(&path);
        for (at, time) in [(&past, 1_000), (&future, NOW + 400_000 * HOUR)] {
            open_partition(&marks, at);
            append(&marks, at, &[entry(1)], time);
            append(&marks, at, &[entry(2)], time + HOUR);
            marks.compact(at).unwrap();
        }
    }
    let marks = open(&path);
    for at in [&past, &future] {
        open_partition(&marks, at);
        marks.compact(at).unwrap();
        assert!(is_done(&marks, at, 1) && is_done(&marks, at, 2), "{at}");
    }
}

#[test]
fn what_is_expired_leaves_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = partition(0);
    let mut marks = open(&path);
    open_partition(&marks, &at);
    let fill = |marks: &Marks, from: u64, time| {
        for batch in 0..50 {
            let first = from + batch * 1_000;
            append(marks, &at, &(first..first + 1_000).map(entry).collect::<Vec<_>>(), time);
        }
        marks.compact(&at).unwrap();
    };
    fill(&marks, 0, NOW);
    let full = marks.size(&at).unwrap();
    assert!(full.keys >= 50_000, "{full:?}");
    // Day after day the same: what comes, goes.
    for day in 1..4_u64 {
        let time = NOW + (day as i64) * 25 * HOUR;
        fill(&marks, day * 1_000_000, time);
        let size = marks.size(&at).unwrap();
        assert!(size.keys < full.keys + 100 && size.bytes < full.bytes * 12 / 10, "{size:?} after {full:?}");
        assert!(is_done(&marks, &at, day * 1_000_000) && !is_done(&marks, &at, (day - 1) * 1_000_000));
        assert_eq!(marks.inspect(&at, &key((day - 1) * 1_000_000)).unwrap(), None, "not merely hidden");
    }
    // A database that was opened anew knows its newest time before the first append.
    drop(marks);
    marks = open(&path);
    open_partition(&marks, &at);
    append(&marks, &at, &[entry(9)], NOW + 1_000 * HOUR);
    marks.compact(&at).unwrap();
    let size = marks.size(&at).unwrap();
    assert!(size.keys < 10 && size.bytes < full.bytes / 4, "{size:?}");
    assert!(is_done(&marks, &at, 9));
}
