//! The answers of an HTTP endpoint.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::jobs::{CLASS, Jobs, SOON, Task, attempt, id, job_header, script};
use tidegate_tests::kafka_io::ReadRecord;

use crate::standstill::keep_sessions;

const KEY: &str = r#"key = ["id"]"#;

fn calls_of(calls: &[Call], task: &str) -> Vec<Call> {
    calls.iter().filter(|call| id(call) == task).cloned().collect()
}

/// Answers with the status that the task's script names until its second attempt.
fn heals_at_once(call: &Call) -> Answer {
    match (attempt(call), script(call).as_str()) {
        (1, "hang") => Answer::hang(),
        (1, status) if !status.is_empty() => Answer::status(status.parse().unwrap()),
        _ => Answer::ok(),
    }
}

#[test]
fn what_may_heal_is_done_after_one_retry_with_the_same_idempotency_key() {
    // One call uses it up; no other may, on a machine that stands still for some seconds.
    let mut jobs = Jobs::over_http("heals", &format!("{KEY}\ntime_limit = \"12s\""), heals_at_once);
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let scripts = [
        ("500", "transient"),
        ("502", "transient"),
        ("503", "transient"),
        ("425", "transient"),
        ("408", "timeout"),
        ("504", "timeout"),
        ("hang", "timeout"),
    ];
    let tasks: Vec<Task> = scripts.iter().map(|(script, _)| Task::new(*script).script(script)).collect();
    jobs.publish(&tasks);
    let calls = jobs.endpoint.wait_for_count(2 * tasks.len(), SOON);
    jobs.wait_all_settled(SOON);
    for task in &tasks {
        let [first, second] = calls_of(&calls, &task.id).try_into().expect("one retry");
        assert_eq!((attempt(&first), attempt(&second)), (1, 2), "{}", task.id);
        let key = first.header("idempotency-key").unwrap();
        assert_eq!((key.len(), Some(key)), (32, second.header("idempotency-key")), "{}", task.id);
        assert_eq!(first.header("tidegate-job-id"), second.header("tidegate-job-id"));
        assert_eq!((first.method.as_str(), first.body), ("POST", second.body));
    }
    let keys: BTreeSet<_> = calls.iter().map(|call| call.header("idempotency-key")).collect();
    assert_eq!(keys.len(), tasks.len(), "each task has a key of its own");
    assert_eq!(jobs.endpoint.calls().len(), 2 * tasks.len(), "none was called more often");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
    assert_eq!(jobs.count("tidegate_jobs_total", &["outcome=\"done\""]), 7);
    assert_eq!(jobs.count("tidegate_jobs_total", &["outcome=\"scheduled\""]), 7);
    for kind in ["transient", "timeout"] {
        let expected = scripts.iter().filter(|(_, expected)| *expected == kind).count() as u64;
        let labels = [format!("class=\"{CLASS}\""), format!("kind=\"{kind}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert_eq!(jobs.count("tidegate_job_failures_total", &labels), expected, "{kind}");
    }
}

#[test]
fn what_cant_heal_is_dead_lettered_at_once_with_the_first_kib_of_the_answer() {
    let answer = |call: &Call| match script(call).as_str() {
        "302" => Answer::status(302).header("location", "/elsewhere"),
        status => Answer::status(status.parse().unwrap()).body("x".repeat(1024) + "beyond"),
    };
    let mut jobs = Jobs::over_http("hopeless", KEY, answer);
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    let scripts = ["422", "400", "404", "409", "302"];
    let tasks: Vec<Task> = scripts.iter().map(|script| Task::new(*script).script(script)).collect();
    jobs.publish(&tasks);
    let dead = jobs.pipeline.wait_for_dead(tasks.len(), SOON);
    jobs.wait_settled(SOON);
    let calls = jobs.endpoint.calls();
    assert_eq!(calls.len(), tasks.len(), "each was called once");
    assert!(calls.iter().all(|call| call.path == "/run"), "no redirect was followed");
    assert_eq!(dead.len(), tasks.len());
    for task in &tasks {
        let code = format!("http-{}", task.script);
        let record = dead.iter().find(|record| record.header("job-error-code") == Some(&code)).expect(&code);
        assert_eq!(record.key_text().as_deref(), Some(task.id.as_str()));
        assert_eq!(record.header("job-error-kind"), Some("permanent"));
        assert_eq!(record.header("job-attempt"), Some("1"));
        assert_eq!(record.header("__connect.errors.topic"), Some(jobs.source.as_str()));
        let class = format!("permanent/{code}");
        assert_eq!(record.header("__connect.errors.exception.class.name"), Some(class.as_str()));
        let message = record.header("job-error-message").unwrap();
        let kept = if task.script == "302" { "(no body)".to_owned() } else { "x".repeat(1024) };
        assert_eq!(message, format!("HTTP {}: {kept}", status_text(&task.script)));
    }
    let topics = ["200ms", "400ms", "2s"].map(|rung| jobs.delay_topic(rung));
    assert!(
        topics.iter().all(|topic| jobs.pipeline.client.read_all(topic).is_empty()),
        "nothing was retried"
    );
    assert_eq!(jobs.count("tidegate_dead_letters_total", &["kind=\"permanent\""]), 5);
}

fn status_text(status: &str) -> &str {
    match status {
        "422" => "422 Unprocessable Entity",
        "400" => "400 Bad Request",
        "404" => "404 Not Found",
        "409" => "409 Conflict",
        _ => "302 Found",
    }
}

#[test]
fn jobs_of_an_endpoint_that_is_down_are_done_when_it_is_back() {
    let mut jobs = Jobs::over_http("down", &format!("{KEY}\nmax_attempts = 100"), |_| Answer::ok());
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    jobs.endpoint.stop();
    let tasks = tidegate_tests::jobs::tasks("t", 20);
    jobs.publish(&tasks);
    jobs.wait_for_metric("tidegate_job_failures_total", &["kind=\"transient\""], 40);
    let failed_once = |waiting: &[ReadRecord]| {
        waiting.iter().map(|record| job_header(record).job_id()).collect::<BTreeSet<_>>().len() == tasks.len()
    };
    jobs.pipeline.client.wait_for(&jobs.delay_topic("200ms"), SOON, failed_once);
    assert_eq!(jobs.endpoint.calls().len(), 0);
    jobs.endpoint.start_again();
    let calls = jobs.endpoint.wait_for_count(tasks.len(), SOON);
    jobs.wait_all_settled(SOON);
    let called: BTreeSet<String> = calls.iter().map(id).collect();
    assert_eq!((called.len(), jobs.endpoint.calls().len()), (tasks.len(), tasks.len()), "each once");
    assert!(calls.iter().all(|call| attempt(call) > 1));
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
}

#[test]
fn an_overloaded_endpoint_is_not_called_before_the_time_that_it_asked_for() {
    let overloaded = |call: &Call| match (attempt(call), script(call).as_str()) {
        (1, status) => Answer::status(status.parse().unwrap()).header("retry-after", "2"),
        _ => Answer::ok(),
    };
    let mut jobs = Jobs::over_http("overload", KEY, overloaded);
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    jobs.publish(&[Task::new("a").script("429"), Task::new("b").script("503")]);
    let calls = jobs.endpoint.wait_for_count(4, SOON);
    for task in ["a", "b"] {
        let [first, second] = calls_of(&calls, task).try_into().expect("two calls");
        let waited = second.at - first.at;
        assert!(waited >= Duration::from_secs(2), "{task} was called again after {waited:?}");
        assert_eq!(attempt(&second), 2);
    }
    assert_eq!(jobs.count("tidegate_job_failures_total", &["kind=\"overload\""]), 2);
}

#[test]
fn a_job_carries_its_events_trace_on_and_gets_the_event_as_its_publisher_wrote_it() {
    let mut jobs = Jobs::over_http("trace", KEY, |_| Answer::ok());
    keep_sessions(&mut jobs.pipeline);
    let url = format!("{}/run\"", jobs.endpoint.url());
    jobs.pipeline
        .reconfigure(&url, &format!("{url}, format = \"avro\", headers = {{ x-shop = \"berlin\" }}"));
    jobs.start_these(&["ingest", "worker"]);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let record = jobs.record(&Task::new("t")).header("traceparent", parent);
    jobs.pipeline.client.produce(&jobs.source, &record);
    let [call] = jobs.endpoint.wait_for_count(1, SOON).try_into().expect("one call");
    let written = jobs.pipeline.client.read_all(&jobs.source)[0].value.clone();
    assert_eq!(Some(call.body.clone()), written);
    assert_eq!(call.header("content-type"), Some("application/vnd.confluent.avro"));
    assert_eq!(call.header("x-shop"), Some("berlin"));
    assert_eq!(call.header("tidegate-class"), Some(CLASS));
    let trace = call.header("traceparent").expect("the trace goes on");
    assert_eq!(trace[..36], parent[..36], "the same trace");
    assert_ne!(trace[36..52], parent[36..52], "a span of its own");
}
