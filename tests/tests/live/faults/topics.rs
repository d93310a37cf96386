//! Topics of the pipeline that can't be written.

use std::time::Duration;

use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::jobs::{Jobs, SOON, Task, attempt, id, script};

const KEY: &str = r#"key = ["id"]"#;
const LONG: Duration = Duration::from_secs(180);

fn as_told(call: &Call) -> Answer {
    match (script(call).as_str(), attempt(call)) {
        ("", _) | (_, 2) => Answer::ok(),
        (status, _) => Answer::status(status.parse().unwrap()),
    }
}

/// Jobs of one lane: in one partition, in order.
fn one_partition(script: &str, ids: &[&str]) -> Vec<Task> {
    ids.iter().map(|id| Task::new(*id).lane("a").script(script)).collect()
}

/// Deletes the topic, lets a job need it, makes it anew; then its partition goes on from where it stood.
fn check(prefix: &str, topic: &str, status: &str) -> Jobs {
    let mut jobs = Jobs::over_http(prefix, KEY, as_told);
    jobs.start_these(&["ingest", "worker"]);
    let group = jobs.pipeline.topic("default.worker");
    let topic = jobs.pipeline.topic(topic);
    // The producer knows the topic from before.
    jobs.publish(&one_partition(status, &["first"]));
    jobs.pipeline.client.wait_for_count(&topic, 1, SOON);
    jobs.wait_settled(SOON);
    jobs.pipeline.client.delete_topic(&topic);

    jobs.publish(&one_partition(status, &["second"]));
    jobs.publish(&one_partition("", &["third"]));
    jobs.pipeline.wait_not_ready("worker", "the topic can't be written now", LONG);
    jobs.wait_for_metric("tidegate_publish_errors_total", &[], 1);
    let committed = jobs.pipeline.client.committed(&group, &jobs.job_topic());
    let passed = |offset: &Option<i64>| offset.is_some_and(|offset| offset > 1);
    assert!(!committed.values().any(passed), "nothing after the first is settled: {committed:?}");
    assert_eq!(jobs.pipeline.get("worker", "/livez").0, 200);

    jobs.pipeline.apply_topics();
    let [record] = jobs.pipeline.client.wait_for_count(&topic, 1, LONG).try_into().expect("one record");
    assert_eq!(record.header("job-class").unwrap_or("task"), "task");
    jobs.wait_settled(SOON);
    jobs.pipeline.wait_ready("worker");
    assert!(jobs.endpoint.calls().iter().any(|call| id(call) == "third"));
    jobs
}

#[test]
fn without_a_delay_topic_nothing_is_settled_until_it_is_back() {
    let mut jobs = check("no-delay", "default.retry-200ms", "500");
    jobs.start_one("retry");
    jobs.endpoint
        .wait_until(SOON, |calls| calls.iter().any(|call| id(call) == "second" && attempt(call) == 2));
    jobs.wait_all_settled(SOON);
}

#[test]
fn without_a_dead_letter_topic_nothing_is_settled_until_it_is_back() {
    let jobs = check("no-dlq", "dlq", "422");
    let dead = jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq"));
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].header("job-error-code"), Some("http-422"));
    let of_second = jobs.endpoint.calls().iter().filter(|call| id(call) == "second").count();
    assert_eq!(of_second, 1, "the handler is not run again, only its record published");
}
