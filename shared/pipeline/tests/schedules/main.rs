//! Seeded schedules through ingest, worker, retry and the DLQ: every port call may go wrong, processes die, partitions move; in
//! the end every event is accounted for.
//!
//! A run is a pure function of its seed. `TIDEGATE_SEED=7 cargo test -p tidegate-pipeline --test schedules` runs that one again;
//! `TIDEGATE_SCHEDULES=5000` runs more of them.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test ends there, and tells its seed"
)]

mod account;
mod cluster;

use std::time::Duration;

use account::Account;
use cluster::{Cluster, Story};

/// How many schedules each test runs.
const SCHEDULES: u64 = 300;

/// Tells the seed when a schedule fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the schedule failed: run it again with TIDEGATE_SEED={}", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64) -> Story {
    let _told = Seed(seed);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut cluster = Cluster::new(seed);
        let account = Account::begin(&cluster);
        for _ in 0..80 {
            cluster.something_happens().await;
            account.check();
        }
        cluster.calm_down();
        let quiet = cluster.until_quiet(Duration::from_secs(3600)).await;
        assert!(quiet, "something is stuck: {}", cluster.describe());
        account.check();
        account.close();
        cluster.stop().await
    })
}

/// Runs the schedules of one stream of seeds; together they must have met everything that they are made for.
fn check(stream: u64) {
    if let Some(seed) = number("TIDEGATE_SEED") {
        let story = run(seed);
        println!("seed {seed}: {story:?}");
        return;
    }
    let count = number("TIDEGATE_SCHEDULES").unwrap_or(SCHEDULES);
    let mut sum = Story::default();
    for seed in (0..count).map(|n| stream * 1_000_000 + n) {
        sum.add(&run(seed));
    }
    println!("{count} schedules: {sum:?}");
    for (what, times) in [
        ("events", sum.events),
        ("runs", sum.runs),
        ("failures of ports", sum.wrong),
        ("kills", sum.kills),
        ("revokes", sum.revokes),
        ("losses", sum.losses),
        ("deposed owners", sum.deposed),
        ("dead letters", sum.dead),
        ("retries", sum.retries),
        ("copies lost", sum.copies_lost),
        ("changelogs that lost their end", sum.ends_lost),
        ("crashes", sum.crashes),
        ("jobs dead-lettered for crashes", sum.poisonous * 4),
        ("times that a class was parked", sum.parked),
        // Rarer than the others: a window must be half full of parked jobs.
        ("jobs that climbed, twice", 2 * sum.climbed),
        ("records sent round again", sum.replays),
        ("outcomes", sum.outcomes),
        ("skips", sum.events.saturating_sub(sum.jobs_run)),
    ] {
        assert!(times >= count / 2, "only {times} {what} in {count} schedules");
    }
}

#[test]
fn whatever_fails_no_event_is_lost_and_none_runs_after_it_is_done() {
    check(1);
}

#[test]
fn whatever_fails_no_event_is_lost_and_none_runs_after_it_is_done_by_other_seeds() {
    check(2);
}

#[test]
fn a_schedule_is_a_pure_function_of_its_seed() {
    let (a, b) = (run(42), run(42));
    assert_eq!(a, b);
    assert_ne!(a, run(43));
}
