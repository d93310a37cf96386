//! An endpoint that fails for one class altogether, and heals.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::jobs::{CLASS, Jobs, SOON, Task, id};
use tidegate_tests::wait::wait_until;

use crate::standstill::keep_sessions;

/// The class that fails: easily parked, often probed.
const FAILING: &str = r#"key = ["id"]
when = { script = "fails" }
flood = { failures = 0.5, of = 20, probe_after = "300ms", probe_at_most = "600ms" }"#;

const PARKED: &str = "the class is parked";
const HEALED: &str = "a probe was answered";

/// The failing class, and one that has an endpoint of its own.
fn two_classes(prefix: &str, tier: &str) -> Jobs {
    let away = |call: &Call| if call.path == "/run" { Answer::status(503) } else { Answer::ok() };
    let mut jobs = Jobs::over_http(prefix, FAILING, away);
    keep_sessions(&mut jobs.pipeline);
    jobs.pipeline.configure(&format!(
        "[classes.other]\nsource = \"{}\"\nkey = [\"id\"]\nwhen = {{ script = \"passes\" }}\n\
         handler = {{ type = \"http\", url = \"{}/other\" }}\n",
        jobs.source,
        jobs.endpoint.url()
    ));
    let partitions = "[tiers.default]\npartitions = 4";
    jobs.pipeline.reconfigure(partitions, &format!("{partitions}\nconcurrency = 8\n{tier}"));
    jobs
}

fn tasks(script: &str, count: usize) -> Vec<Task> {
    (0..count).map(|n| Task::new(format!("{script}-{n}")).script(script)).collect()
}

fn calls_to(jobs: &Jobs, path: &str) -> Vec<Call> {
    jobs.endpoint.calls().into_iter().filter(|call| call.path == path).collect()
}

fn is_parked(jobs: &mut Jobs) -> bool {
    jobs.count("tidegate_class_parked", &[&format!("class=\"{CLASS}\"")]) == 1
}

fn times_told(jobs: &mut Jobs, text: &str) -> usize {
    jobs.pipeline.process("worker").stderr().matches(text).count()
}

fn until_parked(jobs: &mut Jobs) {
    wait_until("the class to be parked", SOON, || is_parked(jobs));
}

#[test]
fn a_class_whose_endpoint_is_away_is_parked_probed_and_done_when_it_is_back_and_others_pass() {
    let mut jobs = two_classes("flood", "");
    // A probe is an attempt of its job: on a slow machine one and the same could use up three.
    jobs.pipeline.reconfigure("flood = {", "max_attempts = 100\nflood = {");
    jobs.start();
    jobs.publish(&tasks("fails", 200));
    until_parked(&mut jobs);
    let before = calls_to(&jobs, "/run").len();
    jobs.publish(&tasks("passes", 100));
    wait_until("the other class to be done", SOON, || calls_to(&jobs, "/other").len() == 100);
    jobs.wait_for_metric("tidegate_probes_total", &["outcome=\"failed\""], 4);
    // In this order: probes that come in between are allowed for.
    let during = calls_to(&jobs, "/run").len() - before;
    let probes = jobs.count("tidegate_probes_total", &["outcome=\"failed\""]) as usize;
    // Those that were running when it was parked, and one that is running now.
    assert!(during <= probes + 8 + 1, "{during} calls, {probes} probes");
    assert!(is_parked(&mut jobs) && jobs.count("tidegate_parked_records", &[]) > 100);
    assert_eq!(jobs.pipeline.readyz("worker").0, 200, "a parked class is no fault of the process");

    jobs.endpoint.answer_with(|_| Answer::ok());
    wait_until("every job to be done", SOON, || {
        jobs.count("tidegate_jobs_total", &["outcome=\"done\""]) == 300
    });
    jobs.wait_all_settled(SOON);
    let mut of_task: BTreeMap<String, u32> = BTreeMap::new();
    calls_to(&jobs, "/run").iter().for_each(|call| *of_task.entry(id(call)).or_default() += 1);
    let once = of_task.values().filter(|&&calls| calls == 1).count();
    assert!(of_task.len() == 200 && once > 120, "{once} of {} were called once", of_task.len());
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
    assert!(!is_parked(&mut jobs) && jobs.count("tidegate_parked_records", &[]) == 0);
    assert_eq!((times_told(&mut jobs, PARKED), times_told(&mut jobs, HEALED)), (1, 1));
}

#[test]
fn what_a_parked_class_may_not_hold_climbs_and_comes_back_with_the_attempts_that_it_had() {
    // Four partitions hold ten parked records each.
    let mut jobs = two_classes("climb", "window_records = 20");
    jobs.start();
    jobs.publish(&tasks("fails", 200));
    until_parked(&mut jobs);
    jobs.wait_for_metric("tidegate_jobs_total", &["outcome=\"climbed\""], 100);
    jobs.publish(&tasks("passes", 200));
    wait_until("the other class to be done", SOON, || calls_to(&jobs, "/other").len() == 200);
    assert!(is_parked(&mut jobs));
    let before = calls_to(&jobs, "/run").len();
    assert!(before < 100, "{before} calls");

    jobs.endpoint.answer_with(|_| Answer::ok());
    // A probe is an attempt of its job, so on a slow machine one that had failed before the class was parked may use up its own.
    let dlq = jobs.pipeline.topic("dlq");
    let dead = |jobs: &Jobs| jobs.pipeline.client.read_all(&dlq).len();
    wait_until("every job to have an end", 2 * SOON, || {
        jobs.count("tidegate_jobs_total", &["outcome=\"done\""]) as usize + dead(&jobs) == 400
    });
    jobs.wait_all_settled(SOON);
    let probes = jobs.count("tidegate_probes_total", &["outcome=\"failed\""]) as usize;
    assert!(dead(&jobs) <= probes, "{} are dead, {probes} probes failed", dead(&jobs));
    let calls = calls_to(&jobs, "/run");
    let first_attempts = calls.iter().filter(|call| call.header("tidegate-attempt") == Some("1")).count();
    assert_eq!(first_attempts, 200, "waiting used no attempt");
    let climbed = jobs.pipeline.client.read_all(&jobs.delay_topic("2s"));
    assert!(climbed.len() >= 100, "{}", climbed.len());
    let longest = Duration::from_millis(2000 * 12 / 10 + 1);
    for record in &climbed {
        let header = tidegate_tests::jobs::job_header(record);
        let wait = header.due.0 - record.timestamp.unwrap();
        assert!(wait <= longest.as_millis() as i64, "{wait} ms");
    }
}
