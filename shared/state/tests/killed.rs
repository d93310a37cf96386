//! A process that is killed at any instruction loses no mark that was acknowledged.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use support::*;

const DIR: &str = "TIDEGATE_STATE_TEST_DIR";
const FROM: &str = "TIDEGATE_STATE_TEST_FROM";
const BATCH: u64 = 50;

/// Not a test by itself: the child of the one below, which kills it.
#[test]
fn a_child_appends_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let from: u64 = std::env::var(FROM).unwrap().parse().unwrap();
    let marks = open(Path::new(&dir));
    open_partition(&marks, &partition(0));
    for batch in from.. {
        let entries: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(entry).collect();
        append(&marks, &partition(0), &entries, NOW);
        writeln!(std::io::stdout().lock(), "acknowledged {batch}").unwrap();
    }
}

#[test]
fn every_acknowledged_mark_outlives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut acknowledged = 0;
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_child_appends_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(DIR, &path)
            .env(FROM, acknowledged.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (target, before) = (acknowledged + 100 + round * 100, acknowledged);
        let mut killed = false;
        // To the end of what it wrote: it goes on until the signal arrives.
        for line in lines {
            let line = line.unwrap();
            if let Some((_, batch)) = line.split_once("acknowledged ") {
                acknowledged = batch.parse::<u64>().unwrap() + 1;
            }
            if acknowledged >= target && !killed {
                child.kill().unwrap();
                killed = true;
            }
        }
        assert!(!child.wait().unwrap().success() && killed);
        assert!(acknowledged >= before + 100);
        let marks = open(&path);
        open_partition(&marks, &partition(0));
        for batch in 0..acknowledged {
            let keys: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(key).collect();
            assert!(
                look_up(&marks, &partition(0), &keys).iter().all(|mark| *mark == done()),
                "batch {batch}"
            );
        }
        assert!(set_aside(&path).is_empty());
    }
}
