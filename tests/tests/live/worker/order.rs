//! Classes with `ordering = "key"`, and those without.

use std::time::Duration;

use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::jobs::{Jobs, SOON, Task, attempt, id, script};

/// The lane is the field `lane`; the key must have it too.
const IN_LANES: &str = "key = [\"lane\", \"id\"]\npartition_by = [\"lane\"]\nordering = \"key\"";

fn nothing_in_delay_topics(jobs: &Jobs) -> bool {
    ["200ms", "400ms", "2s"].iter().all(|rung| {
        jobs.pipeline.client.offsets(&jobs.delay_topic(rung)).values().all(|&(_, next)| next == 0)
    })
}

/// Fails the attempts that the script lists.
fn fails_as_told(call: &Call) -> Answer {
    if script(call).contains(&attempt(call).to_string()) { Answer::status(500) } else { Answer::ok() }
}

#[test]
fn in_order_a_failed_job_is_tried_again_in_place_and_its_followers_wait() {
    let mut jobs = Jobs::over_http("in-place", IN_LANES, fails_as_told);
    jobs.start();
    let in_a = |id: &str, script: &str| Task::new(id).lane("a").script(script);
    let tasks =
        [in_a("a1", ""), in_a("a2", "12"), in_a("a3", ""), in_a("a4", "1"), in_a("a5", ""), Task::new("b")];
    jobs.publish(&tasks);
    let calls = jobs.endpoint.wait_for_count(9, SOON);
    jobs.wait_settled(SOON);
    let of_a: Vec<(String, u32)> =
        calls.iter().filter(|call| id(call) != "b").map(|call| (id(call), attempt(call))).collect();
    let expected = [("a1", 1), ("a2", 1), ("a2", 2), ("a2", 3), ("a3", 1), ("a4", 1), ("a4", 2), ("a5", 1)];
    assert_eq!(of_a, expected.map(|(id, attempt)| (id.to_owned(), attempt)));
    let place = |task: &str, attempt_is: u32| {
        calls.iter().position(|call| id(call) == task && attempt(call) == attempt_is).expect("it was called")
    };
    assert!(place("b", 1) < place("a2", 3), "another lane does not wait");
    let waited = calls[place("a2", 2)].at - calls[place("a2", 1)].at;
    assert!(waited.as_millis() >= 160, "the shortest wait of a rung of 200 ms is 160 ms, not {waited:?}");
    assert!(nothing_in_delay_topics(&jobs), "nothing is published");
}

#[test]
fn in_place_too_back_off_is_no_wait() {
    let mut jobs = Jobs::over_http("in-place-wait", IN_LANES, fails_as_told);
    jobs.pipeline.reconfigure(r#"["200ms", "400ms"]"#, r#"["4s"]"#);
    jobs.start();
    jobs.publish(&[Task::new("a").script("1"), Task::new("b").script("1")]);
    let calls = jobs.endpoint.wait_for_count(4, SOON);
    jobs.wait_settled(SOON);
    assert!(calls[3].at - calls[0].at >= Duration::from_millis(3200), "they backed off");
    assert_eq!(jobs.count("tidegate_job_wait_seconds_count", &[]), 4);
    let waited = jobs.pipeline.metric("worker", "tidegate_job_wait_seconds_sum", &[]);
    assert!(waited < 4.0, "{waited} s of wait; the back-off was 6.4 s at least");
}

#[test]
fn in_order_a_job_without_attempts_left_is_dead_lettered_and_its_followers_go_on() {
    let mut jobs = Jobs::over_http("in-place-dead", IN_LANES, fails_as_told);
    jobs.start();
    jobs.publish(&[Task::new("a1").lane("a").script("123"), Task::new("a2").lane("a")]);
    let calls = jobs.endpoint.wait_for_count(4, SOON);
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    jobs.wait_settled(SOON);
    let order: Vec<(String, u32)> = calls.iter().map(|call| (id(call), attempt(call))).collect();
    assert_eq!(order, [("a1", 1), ("a1", 2), ("a1", 3), ("a2", 1)].map(|(id, n)| (id.to_owned(), n)));
    assert_eq!((dead.header("job-attempt"), dead.header("job-hop")), (Some("3"), Some("0")));
    assert!(nothing_in_delay_topics(&jobs));
}

#[test]
fn attempts_in_place_are_counted_across_a_sigkill() {
    let mut jobs =
        Jobs::over_http("in-place-killed", &format!("{IN_LANES}\nmax_attempts = 5"), fails_as_told);
    // Long enough for the kill to come before the next attempt, also on a busy machine.
    jobs.pipeline.reconfigure(r#"["200ms", "400ms"]"#, r#"["1500ms", "1800ms", "1900ms"]"#);
    jobs.start();
    jobs.publish(&[Task::new("a1").lane("a").script("12345"), Task::new("a2").lane("a")]);
    for attempts in 1..=3 {
        jobs.endpoint.wait_for_count(attempts, SOON);
        // The mark of the failed attempt is what survives; in this wait the process is killed. After a death there is one before it: that
        // the attempt has begun.
        jobs.wait_for_metric("tidegate_state_marks_appended_total", &[], u64::from(attempts > 1) + 1);
        jobs.pipeline.kill("worker");
        jobs.start_one("worker");
    }
    jobs.pipeline.wait_for_dead(1, SOON);
    let calls = jobs.endpoint.wait_for_count(6, SOON);
    jobs.wait_settled(SOON);
    let order: Vec<(String, u32)> = calls.iter().map(|call| (id(call), attempt(call))).collect();
    let expected = [("a1", 1), ("a1", 2), ("a1", 3), ("a1", 4), ("a1", 5), ("a2", 1)];
    assert_eq!(order, expected.map(|(id, attempt)| (id.to_owned(), attempt)));
}

#[test]
fn without_order_a_retry_is_overtaken() {
    let class = "key = [\"lane\", \"id\"]\npartition_by = [\"lane\"]";
    let mut jobs = Jobs::over_http("overtaken", class, fails_as_told);
    jobs.start();
    let in_a = |id: &str, script: &str| Task::new(id).lane("a").script(script);
    jobs.publish(&[in_a("a1", "1"), in_a("a2", ""), in_a("a3", "")]);
    let calls = jobs.endpoint.wait_for_count(4, SOON);
    jobs.wait_all_settled(SOON);
    let order: Vec<(String, u32)> = calls.iter().map(|call| (id(call), attempt(call))).collect();
    assert_eq!(order, [("a1", 1), ("a2", 1), ("a3", 1), ("a1", 2)].map(|(id, n)| (id.to_owned(), n)));
    assert!(!nothing_in_delay_topics(&jobs), "it waited in a delay topic");
}
