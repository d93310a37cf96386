//! The broker dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, Tally, attempt, id, tasks};
use tidegate_tests::servers::Kafka;

const LONG: Duration = Duration::from_secs(300);
const CONCURRENCY: usize = 64;

#[test]
fn a_broker_that_dies_in_the_middle_of_20000_jobs_costs_none() {
    let mut kafka = Kafka::start(1);
    let tally = Tally::default();
    let noted = tally.clone();
    let died = Arc::new(AtomicBool::new(false));
    let is_dead = died.clone();
    // Every tenth fails once, so that retry is at work too. What runs again after the death may be these alone, and all of them fail:
    // their class must not be parked for that.
    let class = "key = [\"id\"]\nflood.enabled = false";
    let mut jobs = Jobs::over_http_at(&kafka, "broker", class, move |call| {
        noted.note(call);
        let fails = id(call).ends_with('7') && attempt(call) == 1;
        let answer = if fails { Answer::status(500) } else { Answer::ok() };
        // So slow before the death that it comes in the middle, however late.
        let waits = noted.tasks() >= 4000 && !is_dead.load(Ordering::Relaxed);
        answer.after(Duration::from_millis(if waits { 250 } else { 0 }))
    });
    jobs.set_concurrency(CONCURRENCY);
    jobs.start();
    let all = tasks("t", 20_000);
    jobs.publish(&all);
    tally.wait_for_tasks(4000, LONG);
    kafka.kill_broker(0);
    assert!(tally.tasks() < all.len(), "it died in the middle");
    died.store(true, Ordering::Relaxed);
    kafka.start_broker(0);
    tally.wait_for_tasks(all.len(), LONG);
    jobs.wait_all_settled(LONG);
    tally.assert_has(&all);
    assert_eq!(tally.tasks(), all.len());
    // A partition that is lost meanwhile cancels what is unsettled: handlers that run, and failed jobs whose copy was not acknowledged
    // by the broker that was gone. Only these may run again; what was done stays done.
    let fails = |id: &str| id.ends_with('7');
    let again = |twice: u32, of: &dyn Fn(&str) -> bool| -> Vec<(String, u32)> {
        tally.other_than(twice).into_iter().filter(|(id, _)| of(id)).collect()
    };
    let done_again = again(1, &|id| !fails(id));
    assert!(done_again.len() <= CONCURRENCY, "{} ran again: {done_again:?}", done_again.len());
    let failed_again = again(2, &fails);
    assert!(failed_again.iter().all(|(_, calls)| (2..=4).contains(calls)), "{failed_again:?}");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
    for service in ["ingest", "retry", "worker"] {
        assert!(jobs.pipeline.process(service).is_running(), "{service} went on");
        jobs.pipeline.wait_ready(service);
    }
}

#[test]
fn while_no_broker_answers_a_service_lives_but_is_not_ready() {
    let mut kafka = Kafka::start(1);
    let mut jobs = Jobs::over_http_at(&kafka, "outage", r#"key = ["id"]"#, |_| Answer::ok());
    jobs.start();
    jobs.publish(&tasks("before", 10));
    jobs.endpoint.wait_for_count(10, LONG);
    jobs.wait_all_settled(LONG);
    kafka.stop_broker(0);
    for service in ["ingest", "retry", "worker"] {
        jobs.pipeline.wait_not_ready(service, "", LONG);
        assert_eq!(jobs.pipeline.get(service, "/livez").0, 200, "{service}");
    }
    kafka.start_broker(0);
    for service in ["ingest", "retry", "worker"] {
        jobs.pipeline.wait_ready(service);
    }
    let after = tasks("after", 10);
    jobs.publish(&after);
    jobs.endpoint
        .wait_until(LONG, |calls| after.iter().all(|task| calls.iter().any(|call| id(call) == task.id)));
    jobs.wait_all_settled(LONG);
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    jobs.endpoint.calls().iter().for_each(|call| *runs.entry(id(call)).or_default() += 1);
    assert!(
        tasks("before", 10).iter().all(|task| runs[&task.id] == 1),
        "what was settled ran again: {runs:?}"
    );
    assert_eq!(runs.len(), 20, "{runs:?}");
}

/// A client of librdkafka that loses all brokers at once may forget the addresses that it was given.
#[test]
fn a_broker_that_stalls_past_every_session_is_found_again_by_every_service() {
    let mut kafka = Kafka::start(1);
    let mut jobs = Jobs::over_http_at(&kafka, "stall", r#"key = ["id"]"#, |_| Answer::ok());
    jobs.start();
    jobs.publish(&tasks("before", 10));
    jobs.endpoint.wait_for_count(10, LONG);
    jobs.wait_all_settled(LONG);
    for round in 1..=2 {
        kafka.pause_broker(0);
        // The stall is the fault itself: longer than the sessions of the broker (6 s) and of the services (6 s).
        std::thread::sleep(Duration::from_secs(16));
        kafka.resume_broker(0);
        jobs.publish(&tasks(&format!("after-{round}"), 10));
        jobs.endpoint.wait_for_count(10 + 10 * round, LONG);
        for service in ["ingest", "retry", "worker"] {
            jobs.pipeline.wait_ready(service);
        }
    }
    jobs.wait_all_settled(LONG);
}
