//! A retry service that is killed, stopped, or can't publish.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Tally, attempt, job_header, tasks};
use tidegate_tests::wait::wait_until;

/// All jobs fail at first: a class that is parked then would keep retry from its work.
const KEY: &str = "key = [\"id\"]\nflood.enabled = false";

/// Jobs that fail at their first attempt and are done at their second.
fn failing_once(prefix: &str) -> (Jobs, Tally) {
    let tally = Tally::default();
    let noted = tally.clone();
    let mut jobs = Jobs::over_http(prefix, KEY, move |call| {
        noted.note(call);
        if attempt(call) == 1 { Answer::status(500) } else { Answer::ok() }
    });
    // A ladder of one long rung would make the test long; many short ones make retry busy when it is killed.
    jobs.pipeline.reconfigure(r#"["200ms", "400ms"]"#, r#"["500ms", "1s"]"#);
    (jobs, tally)
}

#[test]
fn retry_killed_again_and_again_loses_nothing_and_no_job_runs_more_often() {
    let (mut jobs, tally) = failing_once("killed");
    jobs.start();
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
    let (mut jobs, tally) = failing_once("stopped");
    jobs.start();
    let tasks = tasks("t", 400);
    jobs.publish(&tasks);
    wait_until("retry to be at work", SOON, || {
        jobs.pipeline.metric("retry", "tidegate_retry_records_total", &[]) > 0.0
    });
    let before = std::time::Instant::now();
    jobs.pipeline.stop("retry");
    assert!(
        before.elapsed() < Duration::from_secs(10),
        "it waited for what is not due: {:?}",
        before.elapsed()
    );
    jobs.start_one("retry");
    tally.wait_for_tasks(tasks.len(), SOON);
    jobs.wait_all_settled(SOON);
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
    assert_eq!(copies.len(), tasks.len());
    let thrice: Vec<_> = copies.iter().filter(|(_, copies)| **copies > 2).collect();
    assert_eq!(thrice, []);
}
