//! A retry service that is killed, stopped, or can't publish.

use std::collections::BTreeMap;

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, attempt, job_header, script, tasks};
use tidegate_tests::wait::wait_until;

use crate::standstill::{keep_sessions, shorten_sessions};

/// All jobs fail at first: a class that is parked then would keep retry from its work.
const KEY: &str = "key = [\"id\"]\nflood.enabled = false";

const TWICE: &str = "twice";

/// Jobs that fail at their first attempt and are done at their second, but for those whose script says `twice`.
fn failing_once(prefix: &str, ladder: &str) -> (Jobs, Tally) {
    let tally = Tally::default();
    let noted = tally.clone();
    let mut jobs = Jobs::over_http(prefix, KEY, move |call| {
        noted.note(call);
        let failing = if script(call) == TWICE { 2 } else { 1 };
        if attempt(call) <= failing { Answer::status(500) } else { Answer::ok() }
    });
    jobs.pipeline.reconfigure(r#"["200ms", "400ms"]"#, ladder);
    keep_sessions(&mut jobs.pipeline);
    (jobs, tally)
}

#[test]
fn retry_killed_again_and_again_loses_nothing_and_no_job_runs_more_often() {
    // A ladder of one long rung would make the test long; many short ones make retry busy when it is killed.
    let (mut jobs, tally) = failing_once("killed", r#"["500ms", "1s"]"#);
    jobs.start_these(&["ingest", "worker"]);
    shorten_sessions(&mut jobs.pipeline);
    jobs.start_one("retry");
    let tasks = tasks("t", 600);
    for part in tasks.chunks(200) {
        jobs.publish(part);
        let handed_on = |jobs: &mut Jobs| jobs.pipeline.metric("retry", "tidegate_retry_records_total", &[]);
        wait_until("retry to be at work", SOON, || handed_on(&mut jobs) > 0.0);
        jobs.pipeline.kill("retry");
        jobs.start_one("retry");
    }
    tally.wait_for_tasks(tasks.len(), SOON);
    jobs.wait_all_settled(SOON);
    tally.assert_has(&tasks);
    assert_eq!(tally.other_than(2), [], "marks absorb what was handed on twice");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
}

#[test]
fn retry_stopped_in_the_middle_ends_at_once_and_no_job_runs_more_often() {
    let (mut jobs, tally) = failing_once("stopped", r#"["500ms", "10m"]"#);
    // Nothing but its own end may end a wait for what is not due: that takes longer than a service that is stopped may.
    jobs.pipeline
        .reconfigure("[consume]\n", "[consume]\ndrain_deadline = \"2m\"\nshutdown_deadline = \"3m\"\n");
    jobs.start();
    jobs.publish(&[Task::new("long").script(TWICE)]);
    jobs.pipeline.client.wait_for_count(&jobs.delay_topic("10m"), 1, SOON);
    wait_until("retry to hold what is due in minutes", SOON, || {
        jobs.pipeline.metric("retry", "tidegate_retry_waiting", &[]) > 0.0
    });
    let handed_on = |jobs: &mut Jobs| jobs.pipeline.metric("retry", "tidegate_retry_records_total", &[]);
    let before = handed_on(&mut jobs);
    let tasks = tasks("t", 400);
    jobs.publish(&tasks);
    wait_until("retry to be at work", SOON, || handed_on(&mut jobs) > before);
    jobs.pipeline.stop("retry");
    jobs.start_one("retry");
    tally.wait_for_tasks(tasks.len() + 1, SOON);
    wait_until("all that is due soon to be done", SOON, || tally.other_than(2).is_empty());
    let group = jobs.pipeline.topic("retry");
    jobs.pipeline.client.wait_for_no_lag(&group, &jobs.delay_topic("500ms"), SOON);
    jobs.wait_settled(SOON);
    assert_eq!(tally.other_than(2), []);
    // What was handed on behind a record that still waited lies above the commit position and comes again, once for one
    // stop; the marks above absorbed it.
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for record in jobs.pipeline.client.read_all(&jobs.job_topic()) {
        let header = job_header(&record);
        if header.hop.0 == 1 {
            *copies.entry(header.job_id()).or_default() += 1;
        }
    }
    assert_eq!(copies.len(), tasks.len() + 1);
    let thrice: Vec<_> = copies.iter().filter(|(_, copies)| **copies > 2).collect();
    assert_eq!(thrice, []);
}
