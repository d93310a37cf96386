//! A changelog that is deleted and made anew, is missing, or has another partition count.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, tasks};
use tidegate_tests::wait::wait_until;

use super::{LONG, log, none_is_dead, nothing_runs_again, run_once};
use crate::standstill::keep_sessions;

fn make_anew(jobs: &Jobs) {
    jobs.pipeline.client.delete_topic(&log::topic(jobs));
    jobs.pipeline.apply_topics();
}

/// Waits until the workers have told of all four partitions that they are to be restored: each is looked at by itself.
fn until_all_went_back(jobs: &mut Jobs, workers: &[&str]) {
    wait_until("every partition's changelog to be known as another", LONG, || {
        let said: String = workers.iter().map(|worker| jobs.pipeline.process(worker).stderr()).collect();
        let told = said.lines().filter(|line| line.contains("the changelog went back"));
        let partitions = told.filter_map(|line| line.split("partition=").nth(1)?.split(' ').next());
        partitions.collect::<BTreeSet<_>>().len() == 4
    });
}

/// What the changelog does not hold any more is not known: it runs once more, and is known then.
fn runs_again_once(jobs: &mut Jobs, tally: &Tally, forgotten: &[Task]) {
    let calls = tally.calls();
    jobs.publish(forgotten);
    wait_until("what is forgotten to run again", LONG, || tally.calls() >= calls + forgotten.len());
    jobs.wait_settled(LONG);
    assert_eq!(tally.calls(), calls + forgotten.len());
    nothing_runs_again(jobs, "worker", tally, forgotten);
}

#[test]
fn a_changelog_made_anew_while_its_worker_was_stopped_is_said_and_the_old_copy_is_not_trusted() {
    let (mut jobs, tally) = Jobs::noting("anew-stopped");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    let before = tasks("before", 100);
    run_once(&jobs, &tally, &before);
    jobs.pipeline.stop("worker");
    make_anew(&jobs);
    jobs.start_one("worker");
    let said = jobs.pipeline.process("worker").stderr();
    assert!(said.contains("was made anew") && said.contains(&jobs.job_topic()), "{said}");
    runs_again_once(&mut jobs, &tally, &before);
    run_once(&jobs, &tally, &tasks("after", 50));
    none_is_dead(&jobs);
}

#[test]
fn a_changelog_made_anew_and_longer_than_before_is_not_taken_for_the_old_one() {
    let (mut jobs, tally) = Jobs::noting("anew-longer");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    run_once(&jobs, &tally, &tasks("before", 20));
    jobs.pipeline.stop("worker");
    make_anew(&jobs);
    jobs.start_one("other");
    let since = run_in_batches(&jobs, &tally, "since");
    jobs.pipeline.stop("other");
    // Its copy ends in the middle of the new log, and knows nothing of what stands there before.
    jobs.start_one("worker");
    nothing_runs_again(&mut jobs, "worker", &tally, &since);
    none_is_dead(&jobs);
}

/// Runs many small batches: their marks take many records.
fn run_in_batches(jobs: &Jobs, tally: &Tally, prefix: &str) -> Vec<Task> {
    let batches = (0..10).map(|batch| tasks(&format!("{prefix}-{batch}"), 40));
    batches.inspect(|batch| run_once(jobs, tally, batch)).flatten().collect()
}

#[test]
fn a_worker_that_runs_knows_a_changelog_made_anew_of_a_partition_that_comes_back_to_it() {
    let (mut jobs, tally) = Jobs::noting("anew-back");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    run_once(&jobs, &tally, &tasks("before", 20));
    // It keeps the copies of those that it gives away.
    jobs.start_one("other");
    let moved = "giving partitions back";
    jobs.pipeline.process("worker").wait_for_output(moved, LONG);
    run_once(&jobs, &tally, &tasks("shared", 20));
    make_anew(&jobs);
    until_all_went_back(&mut jobs, &["worker", "other"]);
    let since = run_in_batches(&jobs, &tally, "since");
    jobs.pipeline.stop("other");
    nothing_runs_again(&mut jobs, "worker", &tally, &since);
    none_is_dead(&jobs);
}

#[test]
fn a_changelog_made_anew_while_its_worker_runs_is_noticed_and_the_worker_goes_on() {
    let (mut jobs, tally) = Jobs::noting("anew-running");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    let before = tasks("before", 100);
    run_once(&jobs, &tally, &before);
    jobs.pipeline.client.delete_topic(&log::topic(&jobs));
    let during = tasks("during", 20);
    jobs.publish(&during);
    tally.wait_for_tasks(before.len() + during.len(), SOON);
    jobs.pipeline.wait_not_ready("worker", "", LONG);
    jobs.pipeline.apply_topics();
    until_all_went_back(&mut jobs, &["worker"]);
    jobs.wait_settled(LONG);
    jobs.pipeline.wait_ready("worker");
    assert_eq!(tally.other_than(1), [], "what was in hand did not run twice");
    nothing_runs_again(&mut jobs, "worker", &tally, &during);
    runs_again_once(&mut jobs, &tally, &before);
    none_is_dead(&jobs);
}

#[test]
fn a_changelog_made_anew_while_its_worker_is_idle_is_noticed_and_the_worker_goes_on() {
    let (mut jobs, tally) = Jobs::noting("anew-idle");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    let before = tasks("before", 100);
    run_once(&jobs, &tally, &before);
    make_anew(&jobs);
    until_all_went_back(&mut jobs, &["worker"]);
    jobs.pipeline.wait_ready("worker");
    runs_again_once(&mut jobs, &tally, &before);
    none_is_dead(&jobs);
}

#[test]
fn without_its_changelog_or_with_another_partition_count_a_worker_is_refused_with_what_to_do() {
    let (mut jobs, _) = Jobs::noting("no-marks");
    jobs.pipeline.apply_topics();
    let topic = log::topic(&jobs);
    let refused = |jobs: &mut Jobs| {
        jobs.launch("worker");
        let worker = jobs.pipeline.process("worker");
        assert_eq!(worker.wait(Duration::from_secs(60)), Exit(2), "{}", worker.stderr());
        worker.stderr().lines().last().unwrap_or_default().to_owned()
    };
    jobs.pipeline.client.delete_topic(&topic);
    let said = refused(&mut jobs);
    assert!(said.contains(&format!("`{topic}` is missing: `tidegate topics apply` creates it")), "{said}");
    jobs.pipeline.client.create_topic_with(&topic, 5, &[("message.timestamp.type", "LogAppendTime")]);
    let said = refused(&mut jobs);
    for part in [&*format!("`{topic}` has 5 partitions"), "says 4", "correct `partitions` of its tier"] {
        assert!(said.contains(part), "`{part}` is missing: {said}");
    }
}
