//! Brokers that stand still, and a changelog that can't be written.

use std::time::Duration;

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Tally, tasks};
use tidegate_tests::servers::Kafka;

use super::{KEY, LONG, log, none_is_dead, nothing_runs_again, run_once};
use crate::standstill::keep_sessions;

const CONCURRENCY: usize = 16;

/// Two workers at work while the only broker stands still for so long. Both lose everything, neither died.
/// Gives how many jobs ran more than once.
fn stall(prefix: &str, standstill: Duration) -> usize {
    let mut kafka = Kafka::start(1);
    let tally = Tally::default();
    let noted = tally.clone();
    let mut jobs = Jobs::over_http_at(&kafka, prefix, KEY, move |call| {
        noted.note(call);
        Answer::ok().after(Duration::from_millis(200))
    });
    jobs.set_concurrency(CONCURRENCY);
    jobs.start_these(&["ingest", "a", "b"]);
    // 160 a second run, and go on for two seconds without a broker: that leaves ten more to notice that it is time.
    let all = tasks("t", 2000);
    jobs.publish(&all);
    tally.wait_for_tasks(100, SOON);
    kafka.pause_broker(0);
    // The standstill is the fault itself.
    std::thread::sleep(standstill);
    assert!(tally.tasks() < all.len(), "it stood still in the middle");
    kafka.resume_broker(0);
    tally.wait_for_tasks(all.len(), LONG);
    jobs.wait_settled(LONG);
    tally.assert_has(&all);
    let again = tally.other_than(1).len();
    println!("after {standstill:?}, {again} jobs ran more than once");
    for worker in ["a", "b"] {
        jobs.pipeline.wait_ready(worker);
        let said = jobs.pipeline.process(worker).stderr();
        assert!(said.contains("lost: another process may own them already"), "{worker} lost them:\n{said}");
    }
    assert_eq!(log::started(&jobs), 0, "no worker died, so nothing is suspect");
    none_is_dead(&jobs);
    again
}

#[test]
fn a_broker_that_stands_still_past_the_sessions_makes_nothing_suspect_and_what_was_done_meanwhile_is_known() {
    let again = stall("stall-short", Duration::from_secs(14));
    // Hundreds end between its last answer and the loss.
    assert!(again <= 4 * CONCURRENCY, "{again} jobs ran more than once");
}

#[test]
fn a_broker_that_stands_still_longer_than_a_record_may_take_makes_nothing_suspect() {
    stall("stall-long", Duration::from_secs(40));
}

#[test]
fn while_the_changelog_cannot_be_written_nothing_is_settled_and_nothing_runs_twice() {
    let mut kafka = Kafka::start(2);
    let tally = Tally::default();
    let noted = tally.clone();
    let mut jobs = Jobs::over_http_at(&kafka, "unwritable", KEY, move |call| {
        noted.note(call);
        Answer::ok()
    });
    jobs.pipeline.reconfigure("replication = 1", "replication = 2");
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    let first = tasks("first", 40);
    run_once(&jobs, &tally, &first);
    let group = jobs.pipeline.topic("default.worker");
    let committed = jobs.pipeline.client.committed(&group, &jobs.job_topic());
    // Every topic has a replica left; this one asks for two.
    log::alter(kafka.bootstrap(), &log::topic(&jobs), "min.insync.replicas", "2");
    kafka.stop_broker(1);

    let second = tasks("second", 40);
    jobs.publish(&second);
    tally.wait_for_tasks(first.len() + second.len(), LONG);
    jobs.pipeline.wait_not_ready("worker", "the changelog", LONG);
    assert_eq!(jobs.pipeline.client.committed(&group, &jobs.job_topic()), committed, "nothing is settled");
    assert_eq!(jobs.pipeline.get("worker", "/livez").0, 200);
    assert!(jobs.count("tidegate_mark_errors_total", &[]) > 0);

    kafka.start_broker(1);
    jobs.wait_settled(LONG);
    jobs.pipeline.wait_ready("worker");
    assert_eq!(tally.other_than(1), [], "nothing ran twice");
    nothing_runs_again(&mut jobs, "worker", &tally, &[first, second].concat());
    none_is_dead(&jobs);
}
