//! Classes with `ordering = "key"`, and those without.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::jobs::{Jobs, SOON, Task, attempt, id, script};

use crate::standstill::keep_sessions;

/// The lane is the field `lane`; the key must have it too.
const IN_LANES: &str = "key = [\"lane\", \"id\"]\npartition_by = [\"lane\"]\nordering = \"key\"";

/// The ladder that pipelines have here.
const LADDER: &str = r#"ladder = ["200ms", "400ms"]"#;

fn nothing_in_delay_topics(jobs: &Jobs) -> bool {
    ["200ms", "400ms", "2s"].iter().all(|rung| {
        jobs.pipeline.client.offsets(&jobs.delay_topic(rung)).values().all(|&(_, next)| next == 0)
    })
}

/// Fails the attempts that the script lists.
fn fails_as_told(call: &Call) -> Answer {
    if script(call).contains(&attempt(call).to_string()) { Answer::status(500) } else { Answer::ok() }
}

/// Fails as told, and besides a call of `one` until each of `others` was called: however late those are, what fails waits for them.
fn fails_until_called(one: &'static str, others: &'static [&'static str]) -> impl Fn(&Call) -> Answer {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    move |call| {
        let mut seen = seen.lock().unwrap();
        seen.insert(id(call));
        match id(call) == one && !others.iter().all(|other| seen.contains(*other)) {
            true => Answer::status(500),
            false => fails_as_told(call),
        }
    }
}

fn order(calls: &[Call]) -> Vec<(String, u32)> {
    calls.iter().map(|call| (id(call), attempt(call))).collect()
}

fn named<const N: usize>(calls: [(&str, u32); N]) -> [(String, u32); N] {
    calls.map(|(id, attempt)| (id.to_owned(), attempt))
}

#[test]
fn in_order_a_failed_job_is_tried_again_in_place_and_its_followers_wait() {
    let class = format!("{IN_LANES}\nmax_attempts = 100");
    let mut jobs = Jobs::over_http("in-place", &class, fails_until_called("a2", &["b"]));
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let in_a = |id: &str, script: &str| Task::new(id).lane("a").script(script);
    let tasks =
        [in_a("a1", ""), in_a("a2", "12"), in_a("a3", ""), in_a("a4", "1"), in_a("a5", ""), Task::new("b")];
    jobs.publish(&tasks);
    let is_called = |calls: &[Call], task: &str| calls.iter().any(|call| id(call) == task);
    let calls = jobs.endpoint.wait_until(SOON, |calls| is_called(calls, "a5") && is_called(calls, "b"));
    jobs.wait_settled(SOON);
    let of_a: Vec<Call> = calls.iter().filter(|call| id(call) != "b").cloned().collect();
    let last = of_a.iter().filter(|call| id(call) == "a2").map(attempt).max().expect("it was called");
    assert!(last >= 3, "two attempts failed as told");
    let tries = (1..=last).map(|attempt| ("a2", attempt));
    let expected = [("a1", 1)].into_iter().chain(tries).chain([("a3", 1), ("a4", 1), ("a4", 2), ("a5", 1)]);
    assert_eq!(order(&of_a), expected.map(|(id, attempt)| (id.to_owned(), attempt)).collect::<Vec<_>>());
    let place = |task: &str, attempt_is: u32| {
        calls.iter().position(|call| id(call) == task && attempt(call) == attempt_is).expect("it was called")
    };
    assert!(place("b", 1) < place("a2", last), "another lane does not wait");
    let waited = calls[place("a2", 2)].at - calls[place("a2", 1)].at;
    assert!(waited.as_millis() >= 160, "the shortest wait of a rung of 200 ms is 160 ms, not {waited:?}");
    assert!(nothing_in_delay_topics(&jobs), "nothing is published");
}

#[test]
fn in_place_too_back_off_is_no_wait() {
    let mut jobs = Jobs::over_http("in-place-wait", IN_LANES, fails_as_told);
    keep_sessions(&mut jobs.pipeline);
    jobs.pipeline.reconfigure(LADDER, "ladder = [\"16s\"]\njitter = 0.0");
    jobs.start();
    jobs.publish(&[Task::new("a").script("1"), Task::new("b").script("1")]);
    let calls = jobs.endpoint.wait_for_count(4, SOON);
    jobs.wait_settled(SOON);
    for task in ["a", "b"] {
        let at: Vec<_> = calls.iter().filter(|call| id(call) == task).map(|call| call.at).collect();
        assert!(at.len() == 2 && at[1] - at[0] >= Duration::from_secs(16), "{task} backed off: {at:?}");
    }
    assert_eq!(jobs.count("tidegate_job_wait_seconds_count", &[]), 4);
    let waited = jobs.pipeline.metric("worker", "tidegate_job_wait_seconds_sum", &[]);
    // Where something stands still, all four wait for that; the back-off of any one were as much.
    assert!(waited < 16.0, "{waited} s of wait; the back-off was 32 s at least");
}

#[test]
fn in_order_a_job_without_attempts_left_is_dead_lettered_and_its_followers_go_on() {
    let mut jobs = Jobs::over_http("in-place-dead", IN_LANES, fails_as_told);
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    jobs.publish(&[Task::new("a1").lane("a").script("123"), Task::new("a2").lane("a")]);
    let calls = jobs.endpoint.wait_for_count(4, SOON);
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    jobs.wait_settled(SOON);
    assert_eq!(order(&calls), named([("a1", 1), ("a1", 2), ("a1", 3), ("a2", 1)]));
    assert_eq!((dead.header("job-attempt"), dead.header("job-hop")), (Some("3"), Some("0")));
    assert!(nothing_in_delay_topics(&jobs));
}

#[test]
fn attempts_in_place_are_counted_across_a_sigkill() {
    let mut jobs =
        Jobs::over_http("in-place-killed", &format!("{IN_LANES}\nmax_attempts = 4"), fails_as_told);
    // So long that the kill comes before the next attempt, though a broker and this test stand still for some seconds in between.
    jobs.pipeline.reconfigure(LADDER, "ladder = [\"12s\"]\njitter = 0.0");
    jobs.start();
    jobs.publish(&[Task::new("a1").lane("a").script("1234"), Task::new("a2").lane("a")]);
    for attempts in 1..=3 {
        jobs.endpoint.wait_for_count(attempts, SOON);
        // The mark of the failed attempt is what survives; in this wait the process is killed. After a death there is one before it: that
        // the attempt has begun.
        jobs.wait_for_metric("tidegate_state_marks_appended_total", &[], u64::from(attempts > 1) + 1);
        jobs.pipeline.kill("worker");
        jobs.start_one("worker");
    }
    jobs.pipeline.wait_for_dead(1, SOON);
    let calls = jobs.endpoint.wait_for_count(5, SOON);
    jobs.wait_settled(SOON);
    assert_eq!(order(&calls), named([("a1", 1), ("a1", 2), ("a1", 3), ("a1", 4), ("a2", 1)]));
}

#[test]
fn without_order_a_retry_is_overtaken() {
    let class = "key = [\"lane\", \"id\"]\npartition_by = [\"lane\"]\nmax_attempts = 100";
    let mut jobs = Jobs::over_http("overtaken", class, fails_until_called("a1", &["a2", "a3"]));
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let in_a = |id: &str, script: &str| Task::new(id).lane("a").script(script);
    jobs.publish(&[in_a("a1", "1"), in_a("a2", ""), in_a("a3", "")]);
    let overtaken = |calls: &[Call]| {
        let last = |task: &str| calls.iter().rposition(|call| id(call) == task);
        last("a2").is_some() && last("a3").is_some() && last("a1") > last("a2").max(last("a3"))
    };
    jobs.endpoint.wait_until(SOON, overtaken);
    jobs.wait_all_settled(SOON);
    let calls = jobs.endpoint.calls();
    let (retried, others): (Vec<Call>, Vec<Call>) = calls.iter().cloned().partition(|call| id(call) == "a1");
    assert!(overtaken(&calls) && retried.len() > 1, "{:?}", order(&calls));
    assert_eq!(
        retried.iter().map(attempt).collect::<Vec<_>>(),
        (1..=retried.len() as u32).collect::<Vec<_>>()
    );
    assert_eq!(BTreeSet::from_iter(order(&others)), BTreeSet::from(named([("a2", 1), ("a3", 1)])));
    assert_eq!(others.len(), 2, "each once");
    assert!(!nothing_in_delay_topics(&jobs), "it waited in a delay topic");
}
