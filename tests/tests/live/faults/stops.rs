//! Processes that are killed or stopped under load. Counted is by id: what never ran, and what ran more than once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_tests::endpoint::Answer;
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, attempt, job_header, tasks};
use tidegate_tests::kafka_io::{Client, Record};
use tidegate_tests::wait::wait_until;

const KEY: &str = r#"key = ["id"]"#;
const CONCURRENCY: usize = 32;

/// Jobs that take some milliseconds each.
fn slow(prefix: &str, takes: Duration) -> (Jobs, Tally) {
    let tally = Tally::default();
    let noted = tally.clone();
    let mut jobs = Jobs::over_http(prefix, KEY, move |call| {
        noted.note(call);
        Answer::ok().after(takes)
    });
    jobs.set_concurrency(CONCURRENCY);
    (jobs, tally)
}

/// Every task ran; those that ran twice are no more than this.
fn check(jobs: &Jobs, tally: &Tally, all: &[Task], twice_at_most: usize) {
    tally.wait_for_tasks(all.len(), SOON);
    jobs.wait_all_settled(SOON);
    tally.assert_has(all);
    assert_eq!(tally.tasks(), all.len());
    let other = tally.other_than(1);
    assert!(other.len() <= twice_at_most, "{} ran more than once: {other:?}", other.len());
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
}

#[test]
fn a_worker_killed_in_the_middle_loses_no_job_and_runs_only_those_in_flight_again() {
    let (mut jobs, tally) = slow("worker-killed", Duration::from_millis(20));
    jobs.start();
    let all = tasks("t", 3000);
    jobs.publish(&all);
    let kills = [700, 1700];
    for after in kills {
        tally.wait_for_tasks(after, SOON);
        jobs.pipeline.kill("worker");
        assert!(tally.tasks() < all.len(), "it was killed in the middle");
        jobs.start_one("worker");
    }
    // At each kill: those in flight, and those that ended while the broker had not acknowledged their marks yet, which on a busy
    // machine takes it as long as several jobs.
    check(&jobs, &tally, &all, kills.len() * 8 * CONCURRENCY);
    assert!(tally.other_than(1).iter().all(|(_, calls)| *calls <= 1 + kills.len() as u32));
}

#[test]
fn a_worker_killed_while_jobs_fail_forks_no_chain_of_attempts() {
    let tally = Tally::default();
    let noted = tally.clone();
    // All jobs fail twice; a class that is parked then would start no chains to be killed in.
    let mut jobs = Jobs::over_http("fork", &format!("{KEY}\nflood.enabled = false"), move |call| {
        noted.note(call);
        let answer = if attempt(call) < 3 { Answer::status(500) } else { Answer::ok() };
        answer.after(Duration::from_millis(20))
    });
    jobs.set_concurrency(CONCURRENCY);
    jobs.start();
    let all = tasks("t", 600);
    jobs.publish(&all);
    // Two: a third one may hit a job that runs alone by then, and rightly takes it for one that kills.
    let kills = [300, 1100];
    for after in kills {
        wait_until("calls", SOON, || tally.calls() >= after);
        jobs.pipeline.kill("worker");
        jobs.start_one("worker");
    }
    tally.wait_for_tasks(all.len(), SOON);
    jobs.wait_all_settled(SOON);
    tally.assert_has(&all);
    // Three calls each. A kill may repeat one call of a job, and the copy that follows from it; never the rest of its chain.
    let other = tally.other_than(3);
    assert!(other.iter().all(|(_, calls)| (3..=3 + kills.len() as u32).contains(calls)), "{other:?}");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
    let written = jobs.pipeline.client.read_all(&jobs.job_topic());
    assert!(written.iter().all(|record| job_header(record).hop.0 + 1 == job_header(record).attempt.0));
    assert!(written.iter().all(|record| job_header(record).attempt.0 <= 3), "no chain is longer");
}

#[test]
fn a_worker_stopped_in_the_middle_runs_nothing_twice() {
    let (mut jobs, tally) = slow("worker-stopped", Duration::from_millis(20));
    jobs.start();
    let all = tasks("t", 2000);
    jobs.publish(&all);
    for after in [500, 1200] {
        tally.wait_for_tasks(after, SOON);
        let before = Instant::now();
        jobs.pipeline.stop("worker");
        assert!(before.elapsed() < Duration::from_secs(25), "stopping took {:?}", before.elapsed());
        assert!(tally.tasks() < all.len(), "it was stopped in the middle");
        jobs.start_one("worker");
    }
    check(&jobs, &tally, &all, 0);
}

#[test]
fn a_job_that_outlasts_the_drain_deadline_is_cancelled_and_runs_again_elsewhere() {
    let mut jobs = Jobs::over_http("drain", KEY, |call| match call.number {
        0 => Answer::hang(),
        _ => Answer::ok(),
    });
    let session = "session_timeout = \"6s\"";
    jobs.pipeline
        .reconfigure(session, &format!("{session}\ndrain_deadline = \"1s\"\nshutdown_deadline = \"20s\""));
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("t")]);
    jobs.endpoint.wait_for_count(1, SOON);
    let before = Instant::now();
    let said = stop_and_hear(&mut jobs);
    let took = before.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(15), "it took {took:?}");
    for part in ["at_most=1s", "the drain deadline passed", "settled=0 left=1", "is delivered again"] {
        assert!(said.contains(part), "`{part}` is missing: {said}");
    }
    jobs.start_one("worker");
    jobs.endpoint.wait_for_count(2, SOON);
    jobs.wait_settled(SOON);
    assert_eq!(jobs.endpoint.calls().len(), 2);
}

#[test]
fn a_worker_that_stops_says_what_it_waits_for_and_what_became_of_it() {
    let mut jobs = Jobs::over_http("last-words", KEY, |call| match call.number {
        0 => Answer::ok().after(Duration::from_secs(2)),
        _ => Answer::ok(),
    });
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("t")]);
    jobs.endpoint.wait_for_count(1, SOON);
    let busy = stop_and_hear(&mut jobs);
    assert!(busy.contains("gave partitions back; all that was under way has ended settled=1"), "{busy}");
    jobs.start_one("worker");
    let idle = stop_and_hear(&mut jobs);
    assert!(idle.contains("nothing was under way"), "{idle}");
    for said in [busy, idle] {
        let told = said.lines().skip_while(|line| !line.contains("signal=\"SIGTERM\"")).collect::<Vec<_>>();
        assert!(told.len() == 4 && told[1].contains("what runs may end"), "{said}");
        assert!(told[3].contains("stopped: it has left its group"), "{said}");
    }
}

/// Stops the worker, and returns what it logged.
fn stop_and_hear(jobs: &mut Jobs) -> String {
    let worker = jobs.pipeline.process("worker");
    worker.sigterm();
    assert_eq!(worker.wait(SOON), Exit(0));
    worker.stderr()
}

#[test]
fn ingest_killed_and_stopped_in_the_middle_loses_no_event_and_marks_absorb_its_repeats() {
    let (mut jobs, tally) = slow("ingest-killed", Duration::ZERO);
    jobs.start();
    let all = tasks("t", 4000);
    let forwarded = |jobs: &Jobs| -> i64 {
        jobs.pipeline.client.offsets(&jobs.job_topic()).values().map(|(_, next)| next).sum()
    };
    for (part, ends) in all.chunks(1000).zip([Exit::KILLED, Exit(0), Exit::KILLED, Exit(0)]) {
        let before = forwarded(&jobs);
        jobs.publish(part);
        wait_until("ingest to be at work", SOON, || forwarded(&jobs) > before);
        if ends == Exit::KILLED {
            jobs.pipeline.kill("ingest")
        } else {
            jobs.pipeline.stop("ingest")
        }
        jobs.start_one("ingest");
    }
    check(&jobs, &tally, &all, 0);
}

/// Keeps some hundred jobs waiting until told to stop; returns how many it published.
fn feed(client: &Client, source: &str, records: &[Record], tally: &Tally, stop: &AtomicBool) -> usize {
    let mut published = 0;
    for batch in records.chunks(200) {
        wait_until("the backlog to shrink", SOON, || {
            stop.load(Ordering::Relaxed) || published < tally.tasks() + 600
        });
        if stop.load(Ordering::Relaxed) {
            break;
        }
        client.produce_all(source, batch);
        published += batch.len();
    }
    published
}

#[test]
fn workers_that_join_and_leave_under_load_lose_nothing_and_run_nothing_settled_again() {
    let (mut jobs, tally) = slow("rebalance", Duration::from_millis(20));
    jobs.start();
    let all = tasks("t", 40_000);
    let records: Vec<Record> = all.iter().map(|task| jobs.record(task)).collect();
    let (client, source, stop) = (jobs.pipeline.client.clone(), jobs.source.clone(), AtomicBool::new(false));
    let published = std::thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(&client, &source, &records, &tally, &stop));
        let goes_on = || tally.wait_for_tasks(tally.tasks() + 300, SOON);
        goes_on();
        jobs.start_one("second");
        goes_on();
        jobs.start_one("third");
        goes_on();
        jobs.pipeline.stop("worker");
        goes_on();
        jobs.pipeline.stop("second");
        goes_on();
        stop.store(true, Ordering::Relaxed);
        feeder.join().expect("all was published")
    });
    assert!((1500..all.len()).contains(&published), "{published} were published: it ended under load");
    // What was given back had been drained and committed, so that even without a shared memory nothing runs twice.
    check(&jobs, &tally, &all[..published], 0);
    let done = jobs.pipeline.metric("third", "tidegate_jobs_total", &["outcome=\"done\""]);
    assert!(done > 0.0, "the last to join had its share");
}

#[test]
fn a_worker_that_froze_loses_its_partitions_and_nothing_is_lost() {
    let (mut jobs, tally) = slow("frozen", Duration::from_millis(10));
    jobs.start();
    jobs.start_one("second");
    let all = tasks("t", 3000);
    jobs.publish(&all);
    tally.wait_for_tasks(500, SOON);
    jobs.pipeline.process("worker").pause();
    // Longer than its session: the other gets its partitions, and ends the jobs.
    tally.wait_for_tasks(all.len(), SOON);
    jobs.pipeline.process("worker").resume();
    jobs.wait_all_settled(SOON);
    tally.assert_has(&all);
    // It did not know of the other's marks; what it had read ahead it may have run before it heard that it lost them.
    assert!(jobs.pipeline.process("worker").is_running());
    jobs.pipeline.wait_ready("worker");
    let more = tasks("more", 200);
    jobs.publish(&more);
    tally.wait_for_tasks(all.len() + more.len(), SOON);
    jobs.wait_all_settled(SOON);
    tally.assert_has(&more);
}
