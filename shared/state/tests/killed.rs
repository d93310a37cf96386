//! A process that is killed at any instruction leaves copies that hold all that their positions claim.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::*;
use tidegate_domain::{CommitPosition, UnixMillis};
use tidegate_pipeline::TopicPartition;
use tidegate_state::{Marks, Settings};

const DIR: &str = "TIDEGATE_STATE_TEST_DIR";
const FROM: &str = "TIDEGATE_STATE_TEST_FROM";
const BATCH: u64 = 50;
/// Of the restored partition, whose every restore has so many marks in each of its records.
const RESTORED: u64 = 5_000;

/// Write buffers that are flushed again and again while it runs.
fn small(dir: &Path) -> Settings {
    let mut settings = settings(dir);
    settings.memory.write_buffers = 1 << 20;
    settings
}

fn keys_of(position: u64) -> std::ops::Range<u64> {
    position * BATCH..(position + 1) * BATCH
}

/// Not a test by itself: the child of one below, which kills it. The changelog's record at each position has the marks `keys_of` it.
#[test]
fn a_child_applies_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let from: u64 = std::env::var(FROM).unwrap().parse().unwrap();
    let marks = Marks::open_dir(small(Path::new(&dir))).unwrap();
    std::thread::scope(|scope| {
        for n in 0..2 {
            let marks = &marks;
            scope.spawn(move || apply_on(marks, &partition(n), from));
        }
    });
}

fn apply_on(marks: &Marks, at: &TopicPartition, from: u64) {
    let found = open_partition(marks, at).position.map_or(0, |CommitPosition(position)| position as u64);
    for position in found.. {
        let entries: Vec<_> = keys_of(position).map(entry).collect();
        let to = copy(position as i64 + 1, Some(opener(position as u8)));
        apply(marks, at, &entries, NOW, to).unwrap();
        if at.partition.0 == 0 && position % 10 == 0 && position >= from {
            writeln!(std::io::stdout().lock(), "applied {position}").unwrap();
        }
    }
}

/// Not a test by itself, like the one above. It restores from scratch, again and again.
#[test]
fn a_child_restores_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let marks = Marks::open_dir(small(Path::new(&dir))).unwrap();
    let at = partition(0);
    open_partition(&marks, &at);
    for round in 1.. {
        let mut restoring = marks.restore(&at, true).unwrap();
        for record in 0..12 * round {
            let entries: Vec<_> = (record * RESTORED..(record + 1) * RESTORED).map(entry).collect();
            restoring.push(&entries, UnixMillis(NOW)).unwrap();
        }
        restoring.finish(CommitPosition(12 * round as i64), None, None).unwrap();
        writeln!(std::io::stdout().lock(), "restored {round}").unwrap();
    }
}

fn spawn(test: &str, dir: &Path, from: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(FROM, from.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the child once it said so many lines of a kind, and gives the number in the last of them.
fn kill_after(mut child: Child, word: &str, lines: usize) -> u64 {
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut count, mut last) = (0, 0);
    // To the end of what it wrote: it goes on until the signal arrives.
    for line in said {
        if let Some((_, number)) = line.unwrap().split_once(word) {
            last = number.trim().parse().unwrap();
            count += 1;
            if count == lines {
                child.kill().unwrap();
            }
        }
    }
    assert!(!child.wait().unwrap().success() && count >= lines);
    last
}

#[test]
fn what_is_found_after_a_kill_is_a_prefix_of_the_changelog_with_exactly_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (mut found, mut lost) = (0, 0);
    for round in 0..3 {
        let applied = kill_after(
            spawn("a_child_applies_until_it_is_killed", &path, found),
            "applied ",
            100 + 40 * round,
        );
        let marks = Marks::open_dir(small(&path)).unwrap();
        let positions: Vec<u64> = (0..2).map(|n| check_prefix(&marks, &partition(n), applied)).collect();
        found = positions[0];
        lost += (applied + 1).saturating_sub(found);
        assert!(set_aside(&path).is_empty());
    }
    assert!(
        found > 0 && lost > 0,
        "some was flushed and some was not, or nothing was tried: {found}, {lost}"
    );
}

/// Checks that all below the copy's position is there, and nothing of what is above.
fn check_prefix(marks: &Marks, at: &TopicPartition, applied: u64) -> u64 {
    let found = open_partition(marks, at);
    let position = found.position.map_or(0, |CommitPosition(position)| position as u64);
    if position > 0 {
        assert_eq!(found.opener, Some(opener((position - 1) as u8)), "of that very position");
    }
    for below in 0..position {
        let keys: Vec<_> = keys_of(below).map(key).collect();
        assert!(look_up(marks, at, &keys).iter().all(|mark| *mark == done()), "{below} of {position}");
    }
    for above in position..applied.max(position) + 50 {
        let keys: Vec<_> = keys_of(above).map(key).collect();
        assert!(look_up(marks, at, &keys).iter().all(|mark| *mark != done()), "{above} of {position}");
    }
    position
}

#[test]
fn a_restore_that_is_killed_leaves_no_position_that_claims_more_than_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (mut whole, mut none) = (0, 0);
    for round in 0..3 {
        kill_after(spawn("a_child_restores_until_it_is_killed", &path, 0), "restored ", 1 + round % 2);
        let marks = open(&path);
        match open_partition(&marks, &partition(0)).position {
            None => none += 1,
            Some(CommitPosition(position)) => {
                whole += 1;
                for record in 0..position as u64 {
                    let keys: Vec<_> = (record * RESTORED..(record + 1) * RESTORED).map(key).collect();
                    let found = look_up(&marks, &partition(0), &keys);
                    assert!(found.iter().all(|mark| *mark == done()), "{record} of {position}");
                }
            }
        }
        assert!(set_aside(&path).is_empty());
        assert!(std::fs::read_dir(path.join("restores")).unwrap().next().is_none(), "nothing is left over");
    }
    assert_eq!(whole + none, 3);
}
