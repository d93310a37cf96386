//! Marks live in a changelog: what is done stays done, on whatever machine, and after whatever became of the one before.
#![allow(clippy::print_stdout, reason = "what was measured is told")]

mod deaths;
mod log;
mod moves;
mod outages;
mod recreated;
mod restored;
mod size;

use std::time::Duration;

use tidegate_tests::jobs::{Jobs, SOON, Tally, Task};
use tidegate_tests::wait::wait_until;

const KEY: &str = r#"key = ["id"]"#;
/// For what needs a session to run out, or a broker to come back.
const LONG: Duration = Duration::from_secs(120);

/// Publishes the tasks and waits until they have run, each once.
fn run_once(jobs: &Jobs, tally: &Tally, tasks: &[Task]) {
    let before = tally.tasks();
    jobs.publish(tasks);
    tally.wait_for_tasks(before + tasks.len(), SOON);
    jobs.wait_settled(SOON);
    tally.assert_has(tasks);
}

/// Publishes the same events once more, to a worker: each was done, so each is skipped.
fn nothing_runs_again(jobs: &mut Jobs, worker: &str, tally: &Tally, tasks: &[Task]) {
    let (calls, skipped) = (tally.calls(), already_done(jobs, worker));
    jobs.publish(tasks);
    jobs.wait_settled(SOON);
    wait_until("duplicates to be counted", SOON, || {
        already_done(jobs, worker) >= skipped + tasks.len() as u64
    });
    assert_eq!(tally.calls(), calls, "what was done ran again: {:?}", tally.other_than(1));
}

fn already_done(jobs: &mut Jobs, worker: &str) -> u64 {
    jobs.pipeline.metric(worker, "tidegate_duplicates_total", &["verdict=\"already_done\""]) as u64
}

fn restored(jobs: &mut Jobs, worker: &str) -> u64 {
    jobs.pipeline.metric(worker, "tidegate_restored_marks_total", &[]) as u64
}

/// No record was dead-lettered.
fn none_is_dead(jobs: &Jobs) {
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
}
