//! Workers that die with records in hand.

use std::time::{Duration, Instant};

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, tasks};
use tidegate_tests::servers::Kafka;
use tidegate_tests::wait::wait_until;

use super::{KEY, LONG, log, none_is_dead};

#[test]
fn a_job_that_kills_every_worker_is_dead_lettered_after_the_third_and_no_neighbour_is_blamed() {
    let mut jobs = Jobs::in_rust("poison", KEY);
    jobs.set_concurrency(16);
    jobs.start_these(&["ingest"]);
    let neighbours: Vec<Task> = tasks("ok", 200).into_iter().map(|task| task.script("slow 30")).collect();
    let mut all = neighbours.clone();
    all.insert(100, Task::new("poison").script("abort"));
    jobs.publish(&all);
    jobs.pipeline.client.wait_for_count(&jobs.job_topic(), all.len(), SOON);
    let workers = ["a", "b"];
    workers.iter().for_each(|worker| jobs.launch(worker));
    let (group, mut deaths) = (jobs.pipeline.topic("default.worker"), 0);
    wait_until("all jobs to be settled", 3 * LONG, || {
        for worker in workers {
            if !jobs.pipeline.process(worker).is_running() {
                deaths += 1;
                jobs.launch(worker);
            }
        }
        jobs.pipeline.client.lag(&group, &jobs.job_topic()) == 0
    });
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    assert_eq!((dead.key_text().as_deref(), dead.header("job-error-kind")), (Some("poison"), Some("crash")));
    assert_eq!(deaths, 3, "among many, among suspects, and alone");
    let runs = jobs.runs();
    for task in &neighbours {
        assert!(runs.contains(&format!("end {}", task.id)), "{} was not done", task.id);
    }
    let of_poison = runs.iter().filter(|run| run.starts_with("start poison ")).count();
    assert_eq!(of_poison, 3, "it ran in each that died");
}

const WINDOW: usize = 10_000;

/// Fills a worker's window with jobs that wait, ends the worker by `end`, and tells how long its successor takes from getting the partition
/// to its first run. How long a process takes to start is the machine's affair, and is only told.
fn take_over(jobs: &mut Jobs, tally: &Tally, name: &str, end: impl FnOnce(&mut Jobs)) -> Duration {
    jobs.endpoint.answer_with(|_| Answer::hang());
    let all = tasks(name, WINDOW + 1000);
    jobs.publish(&all);
    jobs.start_one("worker");
    wait_until("the window to be full", LONG, || {
        jobs.pipeline.metric("worker", "tidegate_partition_window_records", &[]) >= 0.99 * WINDOW as f64
    });
    end(jobs);
    // Neither waits for the session of the one before it: that is not what is measured.
    let group = jobs.pipeline.topic("default.worker");
    log::wait_for_no_member(Kafka::shared().bootstrap(), &group, LONG);
    let noted = tally.clone();
    jobs.endpoint.answer_with(move |call| {
        noted.note(call);
        Answer::ok()
    });
    let (calls, began) = (jobs.endpoint.calls().len(), Instant::now());
    jobs.launch("worker");
    jobs.pipeline.process("worker").wait_for_output("assigned partitions", LONG);
    let assigned = Instant::now();
    let first = jobs.endpoint.wait_for_count(calls + 1, LONG)[calls].at;
    jobs.pipeline.wait_ready("worker");
    jobs.wait_settled(LONG);
    tally.assert_has(&all);
    let (since_start, took) = (first - began, first.saturating_duration_since(assigned));
    println!(
        "{name}: the successor's first run came {since_start:?} after its start and {took:?} after it got its partition; all \
         was done after {:?}",
        began.elapsed()
    );
    jobs.pipeline.stop("worker");
    took
}

#[test]
fn a_worker_killed_with_a_full_window_costs_its_successor_less_than_a_second() {
    let class = format!("{KEY}\ntime_limit = \"10m\"");
    let mut jobs = Jobs::over_http("full-window", &class, |_| Answer::hang());
    let tier = "[tiers.default]\npartitions = 4";
    let window = format!("[tiers.default]\npartitions = 1\nwindow_records = {WINDOW}\nconcurrency = 256");
    jobs.pipeline.reconfigure(tier, &window);
    let session = "session_timeout = \"6s\"";
    jobs.pipeline
        .reconfigure(session, &format!("{session}\ndrain_deadline = \"1s\"\nshutdown_deadline = \"20s\""));
    jobs.start_these(&["ingest"]);
    let tally = Tally::default();
    let clean = take_over(&mut jobs, &tally, "clean", |jobs| jobs.pipeline.stop("worker"));
    assert_eq!(log::started(&jobs), 0, "a clean stop makes nothing suspect");
    let mut killed = take_over(&mut jobs, &tally, "killed", |jobs| jobs.pipeline.kill("worker"));
    let with_care = log::started(&jobs);
    assert!(with_care >= WINDOW * 9 / 10, "{with_care} were started with care");
    // A busy machine may hold some of them up; what a death costs by itself, it costs each time.
    for name in ["killed-again", "killed-a-third-time", "killed-a-fourth-time", "killed-a-fifth-time"] {
        if killed.saturating_sub(clean) >= Duration::from_secs(1) {
            killed = take_over(&mut jobs, &tally, name, |jobs| jobs.pipeline.kill("worker"));
        }
    }
    assert!(killed.saturating_sub(clean) < Duration::from_secs(1), "{killed:?} and not {clean:?}");
    assert_eq!(tally.other_than(1), [], "each ran to its end once");
    none_is_dead(&jobs);
}
