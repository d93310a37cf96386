//! Partitions that move to another machine: a process with a state folder of its own.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, id, tasks};
use tidegate_tests::wait::{look_until, wait_until};

use super::{KEY, LONG, already_done, none_is_dead, nothing_runs_again, restored, run_once};
use crate::standstill::keep_sessions;

#[test]
fn a_partition_that_moves_to_another_machine_runs_nothing_again() {
    let (mut jobs, tally) = Jobs::noting("moves");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "a"]);
    let done = tasks("t", 500);
    run_once(&jobs, &tally, &done);
    jobs.pipeline.stop("a");
    jobs.start_one("b");
    nothing_runs_again(&mut jobs, "b", &tally, &done);
    assert_eq!(restored(&mut jobs, "b"), done.len() as u64);
    none_is_dead(&jobs);
}

#[test]
fn away_and_back_the_stale_copy_learns_what_was_done_in_between() {
    let (mut jobs, tally) = Jobs::noting("back");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "a"]);
    let first = tasks("first", 100);
    run_once(&jobs, &tally, &first);
    jobs.pipeline.stop("a");
    jobs.start_one("b");
    let between = tasks("between", 70);
    run_once(&jobs, &tally, &between);
    jobs.pipeline.stop("b");
    jobs.start_one("a");
    nothing_runs_again(&mut jobs, "a", &tally, &[first, between.clone()].concat());
    assert_eq!(restored(&mut jobs, "a"), between.len() as u64, "what it has it does not read");
    none_is_dead(&jobs);
}

/// The first run of `late` takes until the gate is opened, its second fails; everything else is done at once.
fn with_a_late_one(tally: &Tally) -> (Jobs, Sender<()>) {
    let noted = tally.clone();
    let (open, gate) = channel();
    let gate = Mutex::new(gate);
    let late = move || {
        let opened = tokio::task::block_in_place(|| gate.lock().unwrap().recv());
        opened.map_or_else(|_| Answer::status(500), |()| Answer::ok())
    };
    let class = format!("{KEY}\ntime_limit = \"10m\"");
    let mut jobs =
        Jobs::over_http("frozen", &class, move |call| match (id(call).as_str(), noted.note(call)) {
            ("late", 1) => late(),
            ("late", _) => Answer::status(500),
            _ => Answer::ok(),
        });
    jobs.set_concurrency(32);
    (jobs, open)
}

/// How often the worker has got partitions.
fn times_assigned(jobs: &mut Jobs, worker: &str) -> usize {
    jobs.pipeline.process(worker).stderr().matches("assigned partitions").count()
}

#[test]
fn the_late_success_of_a_worker_that_froze_is_known_to_the_new_owner_and_settles_nothing() {
    let tally = Tally::default();
    let (mut jobs, open) = with_a_late_one(&tally);
    jobs.start_these(&["ingest", "a"]);
    run_once(&jobs, &tally, &tasks("before", 100));
    jobs.publish(&[Task::new("late")]);
    tally.wait_for_tasks(101, SOON);
    let assigned = times_assigned(&mut jobs, "a");
    jobs.pipeline.process("a").pause();
    // The endpoint answers, and nobody hears it.
    open.send(()).expect("the endpoint waits for it");
    jobs.launch("b");
    wait_until("the new owner to run what the old one had in hand", LONG, || tally.calls() >= 102);
    jobs.pipeline.wait_ready("b");
    run_once(&jobs, &tally, &tasks("between", 100));
    let group = jobs.pipeline.topic("default.worker");
    let settled = jobs.pipeline.client.committed(&group, &jobs.job_topic());
    jobs.pipeline.process("a").resume();

    let foreign = "tidegate_changelog_foreign_total";
    wait_until("the new owner to find the late mark", LONG, || jobs.pipeline.metric("b", foreign, &[]) > 0.0);
    let after = jobs.pipeline.client.committed(&group, &jobs.job_topic());
    assert!(settled.iter().all(|(partition, offset)| after[partition] >= *offset), "{settled:?} {after:?}");
    // The key's other events, and the copy of its second run: none runs, for the first run was a success. Where the late mark is not all
    // that the old owner wrote, an event may come before that was read, and joins the second run.
    let known = |jobs: &mut Jobs| already_done(jobs, "a") + already_done(jobs, "b");
    let before = known(&mut jobs);
    wait_until("a duplicate to be known as done", LONG, || {
        jobs.publish(&[Task::new("late")]);
        look_until(Duration::from_secs(3), || (known(&mut jobs) > before).then_some(())).is_some()
    });
    jobs.start_one("retry");
    jobs.wait_all_settled(LONG);
    assert_eq!(tally.other_than(1), [("late".to_owned(), 2)]);
    // Both go on.
    wait_until("a to own partitions again", LONG, || times_assigned(&mut jobs, "a") > assigned);
    jobs.pipeline.wait_ready("a");
    let more = tasks("more", 400);
    run_once(&jobs, &tally, &more);
    for worker in ["a", "b"] {
        wait_until(&format!("{worker} to have a share"), LONG, || {
            jobs.pipeline.metric(worker, "tidegate_jobs_total", &["outcome=\"done\""]) > 100.0
        });
    }
    jobs.wait_all_settled(LONG);
    none_is_dead(&jobs);
}
