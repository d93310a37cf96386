//! When a retry runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Task, attempt, id, job_header, tasks};
use tidegate_tests::kafka_io::ReadRecord;

use crate::standstill::keep_sessions;

/// All jobs fail at first, and none may wait for another reason than its own failure.
const KEY: &str = "key = [\"id\"]\nflood.enabled = false";

/// When each copy is due, by job and hop.
fn due_times(records: &[ReadRecord]) -> BTreeMap<(String, u32), i64> {
    let due = |record| {
        let header = job_header(record);
        ((header.job_id(), header.hop.0), header.due.0)
    };
    records.iter().map(due).collect()
}

#[test]
fn no_retry_is_early_and_how_late_it_is_is_measured() {
    let mut jobs = Jobs::over_http("early", KEY, |call| match attempt(call) {
        3 => Answer::ok(),
        _ => Answer::status(500),
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let tasks = tasks("t", 200);
    jobs.publish(&tasks);
    let calls = jobs.endpoint.wait_for_count(3 * tasks.len(), SOON);
    jobs.wait_all_settled(SOON);

    let client = &jobs.pipeline.client;
    let delayed =
        [client.read_all(&jobs.delay_topic("200ms")), client.read_all(&jobs.delay_topic("400ms"))].concat();
    assert_eq!(delayed.len(), 2 * tasks.len());
    let due = due_times(&delayed);
    let handed_on = client.read_all(&jobs.job_topic());
    let mut checked = 0;
    for record in handed_on.iter().filter(|record| job_header(record).hop.0 > 0) {
        let header = job_header(record);
        let written = due[&(header.job_id(), header.hop.0)];
        assert_eq!(header.due.0, written, "the due time goes along");
        assert!(
            record.timestamp >= Some(written),
            "handed on {:?}, due {written}: {record}",
            record.timestamp
        );
        checked += 1;
    }
    assert_eq!(checked, 2 * tasks.len());
    for call in calls.iter().filter(|call| attempt(call) > 1) {
        let job = call.header("tidegate-job-id").unwrap().to_owned();
        // Both clocks are this machine's; the shown one is cut to whole milliseconds.
        let (at, due) = (jobs.millis(call.at), due[&(job, attempt(call) - 1)]);
        assert!(at + 1 >= due, "called at {at}, due {due}: {call}");
    }
    let handed_on = jobs.pipeline.metric("retry", "tidegate_retry_lateness_seconds_count", &[]);
    assert_eq!(handed_on as usize, 2 * tasks.len());
    let to_jobs = jobs.pipeline.metric("retry", "tidegate_retry_records_total", &["to=\"jobs\""]);
    assert_eq!(to_jobs as usize, 2 * tasks.len());
    assert_eq!(jobs.pipeline.metric("retry", "tidegate_retry_waiting", &[]), 0.0);
}

#[test]
fn each_record_draws_a_wait_of_its_own() {
    let mut jobs = Jobs::over_http("jitter", KEY, |_| Answer::status(503));
    keep_sessions(&mut jobs.pipeline);
    jobs.pipeline.reconfigure(r#"["200ms", "400ms"]"#, r#"["10s"]"#);
    jobs.start_these(&["ingest", "worker"]);
    let tasks = tasks("t", 200);
    jobs.publish(&tasks);
    let delayed = jobs.pipeline.client.wait_for_count(&jobs.delay_topic("10s"), tasks.len(), SOON);
    let calls = jobs.endpoint.wait_for_count(tasks.len(), SOON);
    let called: BTreeMap<&str, i64> =
        calls.iter().map(|call| (call.header("tidegate-job-id").unwrap(), jobs.millis(call.at))).collect();
    // A failure comes after its call, so the wait seen from here is longer, never shorter.
    let wait = |((job, _), due): (&(String, u32), &i64)| due - called[job.as_str()];
    let waits: Vec<i64> = due_times(&delayed).iter().map(wait).collect();
    assert_eq!(waits.len(), tasks.len());
    assert!(waits.iter().all(|&wait| wait >= 8000), "a fifth less than 10 s at most: {waits:?}");
    let (shortest, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
    assert!(longest - shortest > 2000, "they are spread over four seconds: {waits:?}");
    assert!(waits.iter().collect::<BTreeSet<_>>().len() > 100, "each for itself: {waits:?}");
}

#[test]
fn a_wait_longer_than_every_rung_goes_hop_by_hop_and_uses_one_attempt() {
    let mut jobs = Jobs::over_http("hops", KEY, |call| match attempt(call) {
        1 => Answer::status(429).header("retry-after", "12"),
        _ => Answer::ok(),
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.pipeline.reconfigure(r#"wait_only = ["2s"]"#, r#"wait_only = ["1s"]"#);
    jobs.start();
    jobs.publish(&[Task::new("t")]);
    let [first, second] = jobs.endpoint.wait_for_count(2, SOON).try_into().expect("two calls");
    jobs.wait_all_settled(SOON);
    assert!(second.at - first.at >= Duration::from_secs(12), "{:?}", second.at - first.at);
    assert_eq!(attempt(&second), 2);

    let client = &jobs.pipeline.client;
    let hops = client.read_all(&jobs.delay_topic("1s"));
    // A hop that ends late leaves less for those after it.
    assert!(hops.len() >= 3, "twelve seconds don't fit fewer hops of one: {}", hops.len());
    let shorter =
        [client.read_all(&jobs.delay_topic("200ms")), client.read_all(&jobs.delay_topic("400ms"))].concat();
    let [job] = client.read_all(&jobs.job_topic()).split_off(1).try_into().expect("one came back");
    let last = job_header(&job);
    assert_eq!((last.attempt.0, last.hop.0 as usize), (2, hops.len() + shorter.len()));
    let by_hop: BTreeSet<u32> = hops.iter().chain(&shorter).map(|record| job_header(record).hop.0).collect();
    assert_eq!(by_hop, (1..=last.hop.0).collect(), "each hop has its number");
    for record in hops.iter().chain(&shorter) {
        let header = job_header(record);
        assert_eq!((header.due, header.attempt), (last.due, last.attempt), "the wait is one: {record}");
    }
    for (before, after) in hops.iter().zip(&hops[1..]) {
        let stayed = after.timestamp.unwrap() - before.timestamp.unwrap();
        assert!(stayed >= 1000, "a hop of 1 s took {stayed} ms");
    }
    let to_delay = jobs.pipeline.metric("retry", "tidegate_retry_records_total", &["to=\"delay\""]);
    assert_eq!(to_delay as u32, last.hop.0 - 1);
}

#[test]
fn a_job_without_attempts_left_is_dead_lettered_with_their_number_and_its_event() {
    let mut jobs = Jobs::over_http("used-up", KEY, |call| match attempt(call) {
        1 => Answer::status(500).body("first"),
        _ => Answer::status(503).body("last"),
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let record = jobs.record(&Task::new("t")).header("shop", "berlin");
    let (partition, offset) = jobs.pipeline.client.produce(&jobs.source, &record);
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    jobs.wait_all_settled(SOON);
    let attempts: Vec<u32> = jobs.endpoint.calls().iter().map(attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    let [event] = jobs.pipeline.client.read_all(&jobs.source).try_into().expect("one event");
    assert_eq!((&dead.key, &dead.value), (&event.key, &event.value));
    let coordinates = [
        ("topic", jobs.source.clone()),
        ("partition", partition.to_string()),
        ("offset", offset.to_string()),
    ];
    for (name, expected) in &coordinates {
        assert_eq!(dead.header(&format!("__connect.errors.{name}")), Some(expected.as_str()));
    }
    for (name, expected) in [
        ("shop", "berlin"),
        ("job-attempt", "3"),
        ("job-hop", "2"),
        ("job-round", "0"),
        ("job-class", "task"),
        ("job-tier", "default"),
        ("job-error-kind", "transient"),
        ("job-error-code", "http-503"),
    ] {
        assert_eq!(dead.header(name), Some(expected), "{name} of {dead}");
    }
    assert!(dead.header("job-error-message").unwrap().contains("last"));
    assert!(dead.header("job-first-error").unwrap().contains("first"));
    assert_eq!(job_header(&dead).job_id(), dead.header("job-id").unwrap());
}

#[test]
fn the_time_that_a_job_waits_is_counted_from_its_due_time_so_back_off_is_none() {
    let mut jobs = Jobs::over_http("wait-time", KEY, |call| match attempt(call) {
        1 => Answer::status(500),
        _ => Answer::ok(),
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.pipeline.reconfigure(r#"ladder = ["200ms", "400ms"]"#, "ladder = [\"20s\"]\njitter = 0.0");
    jobs.start();
    let tasks = tasks("t", 20);
    jobs.publish(&tasks);
    let calls = jobs.endpoint.wait_for_count(2 * tasks.len(), SOON);
    jobs.wait_all_settled(SOON);
    let backed_off: Duration = tasks
        .iter()
        .map(|task| {
            let mut of_task = calls.iter().filter(|call| id(call) == task.id).map(|call| call.at);
            let (first, second) = (of_task.next().unwrap(), of_task.next().unwrap());
            second - first
        })
        .sum();
    assert!(
        backed_off >= Duration::from_secs(20) * 20,
        "each waited for twenty seconds at least: {backed_off:?}"
    );
    assert_eq!(jobs.count("tidegate_job_wait_seconds_count", &[]), 40);
    let waited = jobs.pipeline.metric("worker", "tidegate_job_wait_seconds_sum", &[]);
    // Where something stands still, all twenty wait for that.
    assert!(waited < backed_off.as_secs_f64() / 2.0, "{waited} s of wait, {backed_off:?} of back-off");
}

#[test]
fn a_changed_ladder_strands_nothing_in_a_topic_of_the_old_one() {
    let mut jobs = Jobs::over_http("ladder", KEY, |call| match attempt(call) {
        1 => Answer::status(500),
        _ => Answer::ok(),
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&tasks("t", 10));
    jobs.pipeline.client.wait_for_count(&jobs.delay_topic("200ms"), 10, SOON);
    jobs.pipeline.reconfigure(r#"["200ms", "400ms"]"#, r#"["300ms", "500ms"]"#);
    jobs.pipeline.apply_topics();
    jobs.start_one("retry");
    jobs.endpoint.wait_for_count(20, SOON);
    jobs.wait_all_settled(SOON);
    assert_eq!(jobs.endpoint.calls().len(), 20);
}
