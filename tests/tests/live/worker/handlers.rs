//! Handlers in Rust that misbehave, in `tidegate-test-worker`.

use tidegate_tests::jobs::{Jobs, SOON, Task, tasks};

use crate::standstill::keep_sessions;

const KEY: &str = r#"key = ["id"]"#;

fn count(runs: &[String], line: &str) -> usize {
    runs.iter().filter(|run| *run == line).count()
}

#[test]
fn a_panic_is_a_failed_attempt_and_the_process_lives_on() {
    let mut jobs = Jobs::in_rust("panic", KEY);
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let pid = jobs.pipeline.process("worker").pid();
    let mut all = tasks("ok", 20);
    all.insert(5, Task::new("for-ever").script("panic"));
    all.insert(9, Task::new("once").script("panic 1"));
    jobs.publish(&all);
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    jobs.wait_all_settled(SOON);
    assert_eq!(dead.key_text().as_deref(), Some("for-ever"));
    assert_eq!(
        (dead.header("job-error-kind"), dead.header("job-error-code")),
        (Some("transient"), Some("panic"))
    );
    assert_eq!(dead.header("job-attempt"), Some("3"));
    assert!(dead.header("job-error-message").unwrap().contains("told to by for-ever"), "{dead}");
    let runs = jobs.runs();
    for attempt in 1..=3 {
        assert_eq!(count(&runs, &format!("start for-ever {attempt}")), 1, "{runs:?}");
    }
    assert_eq!(count(&runs, "start once 2"), 1);
    assert_eq!(
        runs.iter().filter(|run| run.starts_with("end ")).count(),
        21,
        "twenty, and the one that healed"
    );
    assert!(jobs.pipeline.process("worker").is_running());
    assert_eq!(jobs.pipeline.process("worker").pid(), pid);
    assert_eq!(jobs.pipeline.readyz("worker").0, 200);
}

#[test]
fn a_handler_that_hangs_is_dropped_at_its_time_limit_and_its_job_tried_again() {
    let mut jobs = Jobs::in_rust("hang", &format!("{KEY}\ntime_limit = \"300ms\""));
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    jobs.publish(&[
        Task::new("for-ever").script("hang"),
        Task::new("once").script("hang 1"),
        Task::new("quick").script("slow 50"),
    ]);
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    jobs.wait_all_settled(SOON);
    assert_eq!(dead.key_text().as_deref(), Some("for-ever"));
    assert_eq!((dead.header("job-error-kind"), dead.header("job-attempt")), (Some("timeout"), Some("3")));
    let runs = jobs.runs();
    assert_eq!(count(&runs, "dropped for-ever"), 3, "{runs:?}");
    assert_eq!((count(&runs, "dropped once"), count(&runs, "end once")), (1, 1), "{runs:?}");
    assert_eq!((count(&runs, "dropped quick"), count(&runs, "end quick")), (0, 1), "{runs:?}");
    assert_eq!(jobs.count("tidegate_job_overruns_total", &[]), 4);
    assert_eq!(jobs.count("tidegate_job_failures_total", &["kind=\"timeout\""]), 4);
    assert_eq!(jobs.count("tidegate_jobs_in_flight", &[]), 0);
}

#[test]
fn a_snooze_uses_no_attempt() {
    let mut jobs = Jobs::in_rust("snooze", &format!("{KEY}\nmax_attempts = 2"));
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    jobs.publish(&[Task::new("later").script("snooze 4"), Task::new("twice").script("transient 1")]);
    jobs.wait_for_run("end twice", 2);
    jobs.wait_for_run("end later", 5);
    jobs.wait_all_settled(SOON);
    let runs = jobs.runs();
    assert_eq!(count(&runs, "start later 1"), 5, "{runs:?}");
    assert_eq!((count(&runs, "start twice 1"), count(&runs, "start twice 2")), (1, 1), "{runs:?}");
    assert_eq!(jobs.count("tidegate_jobs_total", &["outcome=\"snoozed\""]), 4);
    assert_eq!(jobs.count("tidegate_jobs_total", &["outcome=\"done\""]), 2);
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
}

#[test]
fn a_handler_that_ends_its_process_costs_no_other_job_and_its_own_runs_again() {
    let mut jobs = Jobs::in_rust("abort", KEY);
    jobs.start();
    let mut all = tasks("ok", 50);
    all.insert(20, Task::new("killer").script("abort 1"));
    jobs.publish(&all);
    let exit = jobs.pipeline.process("worker").wait(SOON);
    assert!(!exit.is_success(), "the handler ended the process");
    jobs.start_one("worker");
    jobs.wait_for_run("end killer", 1);
    jobs.wait_all_settled(SOON);
    let runs = jobs.runs();
    for task in &all {
        assert!(count(&runs, &format!("end {}", task.id)) >= 1, "{} never ended", task.id);
    }
    assert_eq!(
        count(&runs, "start killer 1"),
        2,
        "a run that ended the process counts as none in this version"
    );
}
