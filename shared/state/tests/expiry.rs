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
    pass(&marks, &at, NOW, NOW + 24 * HOUR);
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
    append(&marks, &at, &[entry(2)], NOW - HOUR);
    append(&marks, &at, &[entry(3)], NOW - 48 * HOUR);
    pass(&marks, &at, NOW, NOW + 24 * HOUR);
    assert!(is_done(&marks, &at, 3));
    assert!(is_done(&marks, &at, 2));
}

#[test]
fn a_clock_that_jumps_a_year_forward_or_back_forgets_nothing() {
    for wild in [NOW + 365 * 24 * HOUR, NOW - 365 * 24 * HOUR, 0, i64::MAX] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let at = partition(0);
        let mut marks = open(&path);
        open_partition(&marks, &at);
        append(&marks, &at, &[entry(1)], NOW);
        append(&marks, &at, &[entry(2)], wild);
        for _restart in 0..2 {
            marks.compact(&at).unwrap();
            assert!(is_done(&marks, &at, 1) && is_done(&marks, &at, 2), "{wild}");
            append(&marks, &at, &[entry(3)], wild);
            append(&marks, &at, &[entry(4)], NOW + HOUR);
            assert!((1..5).all(|n| is_done(&marks, &at, n)), "{wild}");
            drop(marks);
            marks = open(&path);
            open_partition(&marks, &at);
        }
        // Nor is anything remembered for a year.
        pass(&marks, &at, NOW + HOUR, NOW + 26 * HOUR);
        assert!((1..5).all(|n| !is_done(&marks, &at, n)), "{wild}");
    }
}

#[test]
fn partitions_expire_by_their_own_time_and_not_by_this_machines_date() {
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
fn over_many_retentions_what_is_expired_leaves_the_disk_and_what_is_restored_stays_flat() {
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
    let mut time = NOW;
    for day in 1..8_u64 {
        pass(&marks, &at, time, time + 25 * HOUR);
        time += 25 * HOUR;
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
    pass(&marks, &at, time, time + 25 * HOUR);
    append(&marks, &at, &[entry(9)], time + 25 * HOUR);
    marks.compact(&at).unwrap();
    let size = marks.size(&at).unwrap();
    assert!(size.keys < 10 && size.bytes < full.bytes / 4, "{size:?}");
    assert!(is_done(&marks, &at, 9));
}

#[test]
fn what_is_expired_leaves_the_disk_by_itself_while_marks_come() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&dir.path().join("s"));
    settings.memory.write_buffers = 1 << 20;
    let marks = Marks::open_dir(settings).unwrap();
    let at = partition(0);
    open_partition(&marks, &at);
    let day = 24_000 * 55;
    for n in 0..10_u64 {
        let start = NOW + n as i64 * 24 * HOUR;
        for hour in 0..24_u64 {
            let first = n * 1_000_000 + hour * 1_000;
            let entries: Vec<_> = (first..first + 1_000).map(entry).collect();
            append(&marks, &at, &entries, start + hour as i64 * HOUR);
            if hour % 4 == 3 {
                marks.flush().unwrap();
            }
        }
        // A day is remembered, and one more is in files that wait: for each other, and to be merged before they are forgotten.
        eventually("old days are gone", || marks.size(&at).unwrap().bytes < 4 * day);
        assert!(is_done(&marks, &at, n * 1_000_000));
    }
}
