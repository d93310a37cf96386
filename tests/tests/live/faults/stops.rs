//! Processes that are killed or stopped under load. Counted is by id: what never ran, and what ran more than once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_domain::IdempotencyKey;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::events::Writer;
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Jobs, SCHEMA, SOON, Tally, Task, attempt, job_header, tasks};
use tidegate_tests::kafka_io::{Client, ReadRecord};
use tidegate_tests::servers::Registry;
use tidegate_tests::wait::wait_until;

use crate::standstill::with_long_sessions;

const KEY: &str = r#"key = ["id"]"#;
/// As many as can be divided among one, two, three or four shards: then never more run.
const CONCURRENCY: usize = 24;

/// Jobs that take some milliseconds each.
fn slow(prefix: &str, takes: Duration) -> (Jobs, Tally) {
    let tally = Tally::default();
    let noted = tally.clone();
    let jobs = scripted(prefix, move |call| {
        noted.note(call);
        Answer::ok().after(takes)
    });
    (jobs, tally)
}

/// Jobs of which none is cut off at its time limit.
fn scripted(prefix: &str, script: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Jobs {
    let mut jobs = Jobs::over_http(prefix, &format!("{KEY}\ntime_limit = \"5m\""), script);
    jobs.set_concurrency(CONCURRENCY);
    jobs
}

/// How many calls are answered as usual; those after them are what a worker has in hand when its end comes, however late that is.
#[derive(Debug, Clone)]
struct Mark(Arc<AtomicUsize>);

impl Mark {
    fn at(calls: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(calls)))
    }

    fn is_before(&self, call: &Call) -> bool {
        call.number < self.0.load(Ordering::SeqCst)
    }

    fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// From the next call on, so many more are answered as usual.
    fn go_on(&self, jobs: &Jobs, more: usize) {
        self.0.store(jobs.endpoint.calls().len().saturating_add(more), Ordering::SeqCst);
    }
}

/// Every task was noted, once.
fn check(jobs: &Jobs, tally: &Tally, all: &[Task]) {
    tally.wait_for_tasks(all.len(), SOON);
    jobs.wait_all_settled(SOON);
    tally.assert_has(all);
    assert_eq!(tally.tasks(), all.len());
    assert_eq!(tally.other_than(1), [], "these ran more than once");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
}

/// How many keys the changelog says are done.
fn marked_done(jobs: &Jobs) -> usize {
    let read = |record: ReadRecord| match format::read(&record.value.expect("there are no tombstones")) {
        Ok((_, Entry::Marks(marks))) => marks,
        Ok((_, Entry::Opened { .. } | Entry::Closed)) => Vec::new(),
        Err(error) => panic!("{error}"),
    };
    let marks =
        jobs.pipeline.client.read_all(&jobs.pipeline.topic("default.marks")).into_iter().flat_map(read);
    let done = marks.filter(|entry| entry.mark.done.is_some());
    done.map(|entry| entry.key).collect::<BTreeSet<IdempotencyKey>>().len()
}

#[test]
fn a_worker_killed_in_the_middle_loses_no_job_and_runs_only_those_in_flight_again() {
    let (answered, held, mark) = (Tally::default(), Tally::default(), Mark::at(700));
    let (noted, noted_held, until) = (answered.clone(), held.clone(), mark.clone());
    let mut jobs = scripted("worker-killed", move |call| {
        if until.is_before(call) {
            noted.note(call);
            Answer::ok().after(Duration::from_millis(20))
        } else {
            noted_held.note(call);
            Answer::hang()
        }
    });
    jobs.start();
    let all = tasks("t", 3000);
    jobs.publish(&all);
    for (kill, more) in [(1, 1000), (2, usize::MAX)] {
        // All that may run are held, and what was answered is in the changelog: then it is known what the kill may repeat.
        wait_until("calls to be held", SOON, || held.calls() >= kill * CONCURRENCY);
        wait_until("marks of what was answered", SOON, || marked_done(&jobs) >= answered.tasks());
        jobs.pipeline.kill("worker");
        mark.go_on(&jobs, more);
        jobs.start_one("worker");
    }
    check(&jobs, &answered, &all);
    assert_eq!(held.calls(), 2 * CONCURRENCY, "those in flight, and no others, ran again");
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
    let (tally, mark) = (Tally::default(), Mark::at(500));
    let (noted, until) = (tally.clone(), mark.clone());
    // From the mark on so slow that the stop comes long before the end.
    let mut jobs = with_long_sessions(scripted("worker-stopped", move |call| {
        noted.note(call);
        Answer::ok().after(Duration::from_millis(if until.is_before(call) { 20 } else { 1500 }))
    }));
    jobs.start();
    let all = tasks("t", 2000);
    jobs.publish(&all);
    for more in [700, usize::MAX] {
        wait_until("calls that take long", SOON, || tally.calls() >= mark.calls() + CONCURRENCY);
        let said = stop_and_hear(&mut jobs);
        assert!(!said.contains("the drain deadline passed"), "what ran ended by itself: {said}");
        assert!(tally.tasks() < all.len(), "it was stopped in the middle");
        mark.go_on(&jobs, more);
        jobs.start_one("worker");
    }
    check(&jobs, &tally, &all);
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
    let mut jobs = with_long_sessions(jobs);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("t")]);
    jobs.endpoint.wait_for_count(1, SOON);
    let before = Instant::now();
    let said = stop_and_hear(&mut jobs);
    let took = before.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(28), "it took {took:?}");
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
    let (open, gate) = channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    // Who asks for the only job waits, until the gate is opened.
    let mut jobs = with_long_sessions(scripted("last-words", move |_| {
        let opened = tokio::task::block_in_place(|| gate.lock().expect("no call panics").recv());
        opened.map_or_else(|_| Answer::status(500), |()| Answer::ok())
    }));
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("t")]);
    jobs.endpoint.wait_for_count(1, SOON);
    jobs.pipeline.process("worker").sigterm();
    jobs.pipeline.process("worker").wait_for_output("what runs may end", SOON);
    open.send(()).expect("the job waits for it");
    let busy = hear_of_its_end(&mut jobs);
    assert!(busy.contains("gave partitions back; all that was under way has ended settled=1"), "{busy}");
    jobs.start_one("worker");
    let idle = stop_and_hear(&mut jobs);
    assert!(idle.contains("nothing was under way"), "{idle}");
    for said in [busy, idle] {
        // A broker that takes its time is told between them.
        let mut told = said.lines().skip_while(|line| !line.contains("signal=\"SIGTERM\""));
        assert!(told.clone().all(|line| !line.contains("ERROR")), "{said}");
        for part in ["SIGTERM", "what runs may end", "gave partitions back", "stopped: it has left its group"]
        {
            assert!(told.any(|line| line.contains(part)), "`{part}` is missing, or too early: {said}");
        }
    }
}

/// Stops the worker, and returns what it logged.
fn stop_and_hear(jobs: &mut Jobs) -> String {
    jobs.pipeline.process("worker").sigterm();
    hear_of_its_end(jobs)
}

/// Waits until the worker has ended well, and returns what it logged.
fn hear_of_its_end(jobs: &mut Jobs) -> String {
    let worker = jobs.pipeline.process("worker");
    assert_eq!(worker.wait(SOON), Exit(0), "{}", worker.stderr());
    worker.stderr()
}

#[test]
fn ingest_killed_and_stopped_in_the_middle_loses_no_event_and_marks_absorb_its_repeats() {
    let (mut jobs, tally) = slow("ingest-killed", Duration::ZERO);
    jobs.start_these(&["ingest", "retry"]);
    // Nobody kills the worker, and it must not run a job again because it stood still for a moment.
    let patient = [("TIDEGATE_CONSUME__SESSION_TIMEOUT", "30s")];
    jobs.pipeline.launch("worker", &["worker", "--tier", "default"], &patient);
    jobs.pipeline.wait_ready("worker");
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
    check(&jobs, &tally, &all);
}

/// Keeps some hundred jobs waiting until told to stop; returns how many it published.
fn feed(client: &Client, source: &str, tally: &Tally, stop: &AtomicBool) -> usize {
    let writer = Writer::register(Registry::shared(), source, SCHEMA);
    let record = |n: usize| {
        let id = format!("t-{n}");
        writer.record(&json!({ "id": id, "lane": id, "script": "" })).key(id)
    };
    let mut published = 0;
    loop {
        wait_until("the backlog to shrink", SOON, || {
            stop.load(Ordering::Relaxed) || published < tally.tasks() + 600
        });
        if stop.load(Ordering::Relaxed) {
            return published;
        }
        client.produce_all(source, &(published..published + 200).map(record).collect::<Vec<_>>());
        published += 200;
    }
}

#[test]
fn workers_that_join_and_leave_under_load_lose_nothing_and_run_nothing_settled_again() {
    let (jobs, tally) = slow("rebalance", Duration::from_millis(50));
    let mut jobs = with_long_sessions(jobs);
    jobs.start();
    let (client, source, stop) = (jobs.pipeline.client.clone(), jobs.source.clone(), AtomicBool::new(false));
    let published = std::thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(&client, &source, &tally, &stop));
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
    assert!(published >= 1500, "{published} were published: it was under load");
    // What was given back had been drained and committed, so that even without a shared memory nothing runs twice.
    check(&jobs, &tally, &tasks("t", published));
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
