//! What follows from a handler's answer, and from a verdict: the copies field by field.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::mark::Phase;
use tidegate_domain::{Attempt, Failure, FailureKind, Hop, JobHeader, Outcome, Round, Topic};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::fakes::events::{event_id, job_header};
use tidegate_pipeline::fakes::handlers::End;
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{TIER, until};
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::{Class, Conflicts, Job};
use tidegate_pipeline::record::{OutboundRecord, Record};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn worker(
    world: &World,
    class: Class,
    script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    let mut node = world.worker(vec![class], 10, Arc::new(script));
    node.assign(&world.jobs_partition(0));
    node
}

fn fails(failure: Failure) -> Reply {
    Reply::Now(Outcome::Failed(failure))
}

fn transient() -> Reply {
    fails(Failure::transient("http-503", "shop 7 is away"))
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(0)).0
}

fn header(record: &Record, name: &str) -> Option<String> {
    record.header(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_done_is_settled_and_its_key_never_runs_again() {
    let world = World::new(1, 1);
    let node = worker(&world, world.class("c"), |_, _| DONE);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), committed(&world)), (1, 1));
    // The same event again, after a crash too.
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    node.kill(OnTheirWay::Lost).await;
    let _node = worker(&world, world.class("c"), |_, _| DONE);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), committed(&world)), (1, 3));
    assert_eq!((world.delayed().len(), world.dead().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn two_equal_keys_in_one_poll_run_once() {
    for reply in [DONE, Reply::After(SECOND, Outcome::Done)] {
        let world = World::new(1, 1);
        for _ in 0..3 {
            world.emit_job(&Event::new("c", "k", "x"));
        }
        let _node = worker(&world, world.class("c"), move |_, _| reply.clone());
        tokio::time::sleep(3 * SECOND).await;
        assert_eq!((world.runs.count(), committed(&world)), (1, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn the_copy_in_a_delay_topic_is_the_record_with_another_job_header() {
    let world = World::new(1, 1);
    let node = worker(&world, world.class("c"), |_, _| transient());
    node.parts.clock.always_draw(0.0);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    let original = world.records(&world.names.jobs(TIER)).remove(0);
    let copies = world.records(&world.names.delay(TIER, SECOND));
    assert_eq!(copies.len(), 1);
    let (copy, before) = (&copies[0], job_header(&original).unwrap());
    assert_eq!((copy.key(), copy.value()), (original.key(), original.value()));
    assert_eq!((event_id(copy), event_id(&original)), (Some(1), Some(1)));
    let run = &world.runs.all()[0];
    let due = run.wall.after(Duration::from_millis(800));
    assert_eq!(
        job_header(copy).unwrap(),
        JobHeader { hop: Hop(1), attempt: Attempt(2), due, ..before.clone() }
    );
    assert_eq!(header(copy, "job-first-error").unwrap(), "transient/http-503: shop 7 is away");
    let names: Vec<_> = copy.headers().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
    assert_eq!(names, ["event-id", "job-first-error", "job"]);
    let step = world.marks.get(&world.jobs_partition(0), &before.key).step.unwrap();
    assert_eq!((step.round, step.hop, step.phase), (Round(0), Hop(1), Phase::Scheduled));
    assert_eq!((world.dead().len(), committed(&world)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_climbs_the_ladder_and_goes_to_the_dlq_when_its_attempts_are_used_up() {
    let world = World::new(1, 1);
    let node = worker(&world, world.class("c"), |_, _| transient());
    let mut retry = world.retry(1 << 20);
    for delay in [SECOND, 4 * SECOND, 16 * SECOND] {
        retry.assign(&TopicPartition { topic: world.names.delay(TIER, delay), ..world.jobs_partition(0) });
    }
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(60 * SECOND).await;
    let runs = world.runs.all();
    assert_eq!(
        runs.iter().map(|run| (run.attempt.0, run.hop.0)).collect::<Vec<_>>(),
        [(1, 0), (2, 1), (3, 2)]
    );
    for (pair, rung) in runs.windows(2).zip([SECOND, 4 * SECOND]) {
        let waited = pair[1].began - pair[0].began;
        assert!(
            waited >= rung.mul_f64(0.8) && waited <= rung.mul_f64(1.2) + 20 * MILLI,
            "{waited:?} of {rung:?}"
        );
        assert!(pair[1].wall >= pair[1].due, "a retry never runs before it is due");
    }
    let dead = world.dead();
    assert_eq!(dead.len(), 1);
    let original = world.records(&world.names.jobs(TIER)).remove(0);
    assert_eq!((dead[0].key(), dead[0].value()), (original.key(), original.value()));
    check_dead_headers(&dead[0], &original, node.parts.clock.as_ref());
    let mark = world.marks.get(&world.jobs_partition(0), &job_header(&original).unwrap().key);
    assert_eq!(mark.step.map(|step| (step.phase, step.hop, step.n)), Some((Phase::Dead, Hop(2), 3)));
    assert_eq!(committed(&world), 3);
}

fn check_dead_headers(dead: &Record, original: &Record, clock: &dyn tidegate_pipeline::ports::Clock) {
    let job = job_header(original).unwrap();
    let message = "shop 7 is away (after 3 attempts)";
    let failure = Failure::transient("http-503", message);
    let (key, fingerprint) = (job.key.to_string(), failure.fingerprint().to_string());
    for (name, value) in [
        ("event-id", "1"),
        ("job-first-error", "transient/http-503: shop 7 is away"),
        ("job-class", "c"),
        ("job-tier", "default"),
        ("job-id", "shop.orders/0/1/c"),
        ("job-key", key.as_str()),
        ("job-round", "0"),
        ("job-hop", "2"),
        ("job-attempt", "3"),
        ("job-first-seen", "1764432000000"),
        ("__connect.errors.topic", "shop.orders"),
        ("__connect.errors.partition", "0"),
        ("__connect.errors.offset", "1"),
        ("__connect.errors.exception.class.name", "transient/http-503"),
        ("__connect.errors.exception.message", message),
        ("job-error-kind", "transient"),
        ("job-error-code", "http-503"),
        ("job-error-fingerprint", fingerprint.as_str()),
        ("job-error-message", message),
    ] {
        assert_eq!(header(dead, name).as_deref(), Some(value), "{name}");
    }
    let at: i64 = header(dead, "job-dead-at").unwrap().parse().unwrap();
    assert!(at > job.first_seen.0 && at <= clock.wall().0);
    let theirs = job_header(dead).unwrap();
    assert_eq!(
        (theirs.hop, theirs.attempt, theirs.key, theirs.offset),
        (Hop(2), Attempt(3), job.key, job.offset)
    );
    assert_eq!(dead.header("job-stub"), None);
    let mut names: Vec<_> = dead.headers().map(|(name, _)| name.to_vec()).collect();
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!((names.len(), all), (21, 21), "each header stands once");
}

#[tokio::test(start_paused = true)]
async fn null_and_empty_keys_and_values_stay_what_they_are_on_every_copy() {
    for failure in [Failure::transient("t", "t"), Failure::permanent("p", "p")] {
        for key in [None, Some(&b""[..]), Some(b"key")] {
            for value in [None, Some(&b""[..]), Some(b"\x00")] {
                let world = World::new(1, 1);
                let reply = fails(failure.clone());
                let _node = worker(&world, world.class("c"), move |_, _| reply.clone());
                let event = Event::new("c", "k", "x");
                let source = world.source_partition(0);
                let text = event
                    .header(
                        TIER,
                        &source,
                        (tidegate_domain::Offset(0), None),
                        tidegate_pipeline::fakes::clock::BEGIN,
                    )
                    .to_text();
                let headers = [
                    (&b"null"[..], None),
                    (b"empty", Some(&b""[..])),
                    (b"\xff", Some(b"\xfe")),
                    (JOB_HEADER.as_bytes(), Some(text.as_bytes())),
                ];
                let topic = world.names.jobs(TIER);
                let partition = Some(tidegate_domain::Partition(0));
                world
                    .log
                    .append(&OutboundRecord { topic: &topic, partition, key, value, headers: &headers })
                    .unwrap();
                tokio::time::sleep(SECOND).await;
                let copies: Vec<Record> = world.delayed().into_iter().chain(world.dead()).collect();
                assert_eq!(copies.len(), 1);
                assert_eq!((copies[0].key(), copies[0].value()), (key, value));
                let kept: Vec<_> = copies[0].headers().take(3).collect();
                assert_eq!(kept, headers[..3]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_goes_to_the_dlq_at_once() {
    let world = World::new(1, 1);
    let _node = worker(&world, world.class("c"), |_, _| fails(Failure::permanent("http-422", "no")));
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        (world.runs.count(), world.dead().len(), world.delayed().len(), committed(&world)),
        (1, 1, 0, 1)
    );
    assert_eq!(header(&world.dead()[0], "job-error-message").unwrap(), "no");
    assert_eq!(world.dead()[0].header("job-first-error"), None);
}

#[tokio::test(start_paused = true)]
async fn a_job_older_than_its_class_allows_goes_to_the_dlq() {
    let world = World::new(1, 1);
    let class = Class { max_age: Some(Duration::from_millis(500)), ..world.class("c") };
    let _node = worker(&world, class, |_, _| transient());
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.delayed().len(), world.dead().len()), (0, 1));
    assert!(header(&world.dead()[0], "job-error-message").unwrap().contains("older than its class allows"));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_and_never_early() {
    for draw in [0.0, 0.999] {
        let world = World::new(1, 1);
        let asked = Duration::from_secs(30);
        let failure = Failure::new(FailureKind::Overload, "http-429", "slow down").with_retry_after(asked);
        let node = worker(&world, world.class("c"), move |_, _| {
            Reply::After(3 * SECOND, Outcome::Failed(failure.clone()))
        });
        node.parts.clock.always_draw(draw);
        world.emit_job(&Event::new("c", "k", "x"));
        tokio::time::sleep(5 * SECOND).await;
        // The wait fills the rung of 16 s; the rest is another hop.
        let copy = world.records(&world.names.delay(TIER, 16 * SECOND)).remove(0);
        let run = &world.runs.all()[0];
        let answered = run.wall.after(3 * SECOND);
        let due = job_header(&copy).unwrap().due;
        assert!(due >= answered.after(asked), "{due} {answered}");
        assert!(due <= answered.after(asked.mul_f64(1.2) + 5 * MILLI), "{due} {answered}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_snooze_waits_without_using_an_attempt() {
    let world = World::new(1, 1);
    let script = |_: &Job, before| if before < 5 { Reply::Now(Outcome::Snooze(4 * SECOND)) } else { DONE };
    let _node = worker(&world, world.class("c"), script);
    let mut retry = world.retry(1 << 20);
    for delay in [SECOND, 4 * SECOND] {
        retry.assign(&TopicPartition { topic: world.names.delay(TIER, delay), ..world.jobs_partition(0) });
    }
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(60 * SECOND).await;
    let runs = world.runs.all();
    assert_eq!(
        runs.iter().map(|run| (run.attempt.0, run.hop.0)).collect::<Vec<_>>(),
        (0..6).map(|n| (1, n)).collect::<Vec<_>>()
    );
    for pair in runs.windows(2) {
        let waited = pair[1].began - pair[0].began;
        assert!((4 * SECOND..4 * SECOND + 20 * MILLI).contains(&waited), "{waited:?}");
    }
    assert!(
        world.delayed().iter().all(|copy| copy.header("job-first-error").is_none()),
        "a snooze is no failure"
    );
    assert_eq!((world.dead().len(), committed(&world)), (0, 6));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_attempt_and_the_loop_lives() {
    for reply in [Reply::Panic, Reply::PanicAfter(SECOND)] {
        let world = World::new(1, 1);
        let node = worker(&world, world.class("c"), move |job, _| {
            if job.record().key() == Some(b"bad") { reply.clone() } else { DONE }
        });
        world.emit_job(&Event::new("c", "bad", "x"));
        world.emit_job(&Event::new("c", "good", "x"));
        tokio::time::sleep(3 * SECOND).await;
        assert_eq!((world.runs.count(), committed(&world)), (2, 2));
        assert_eq!(
            header(&world.delayed()[0], "job-first-error").unwrap(),
            "transient/panic: the handler panicked: scripted"
        );
        assert!(node.runs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_cancelled_at_its_time_limit() {
    let world = World::new(1, 1);
    let _node = worker(&world, world.class("c"), |_, _| Reply::Hang);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(9 * SECOND).await;
    assert_eq!(world.runs.all()[0].ended, None);
    tokio::time::sleep(2 * SECOND).await;
    let run = &world.runs.all()[0];
    let (at, end) = run.ended.clone().unwrap();
    assert_eq!(end, End::Dropped);
    assert!(at - run.began >= 10 * SECOND && at - run.began <= 10 * SECOND + 5 * MILLI);
    let error = header(&world.delayed()[0], "job-first-error").unwrap();
    assert_eq!(error, "timeout/time-limit: the handler was cancelled at its time limit of 10s");
    assert_eq!(committed(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_cancelled_is_a_failed_attempt_too() {
    let world = World::new(1, 1);
    let _node = worker(&world, world.class("c"), |_, _| Reply::PanicWhenDropped);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(12 * SECOND).await;
    assert_eq!(
        (world.delayed().len(), committed(&world)),
        (1, 1),
        "its lane and its offset are not held for ever"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_job_goes_to_the_dlq_with_its_bytes() {
    let world = World::new(1, 1);
    let known = Event::new("c", "k", "x");
    let source = world.source_partition(0);
    let text = |class: &'static str| {
        Event::new(class, "k", "x")
            .header(TIER, &source, (tidegate_domain::Offset(7), None), tidegate_pipeline::fakes::clock::BEGIN)
            .to_text()
    };
    let (unknown, other_version) = (text("gone"), text("c").replace("v=1", "v=9"));
    for (job, kind, code) in [
        (None, "malformed", "job-header"),
        (Some("v=1 class=c"), "malformed", "job-header"),
        (Some(other_version.as_str()), "malformed", "job-header"),
        (Some(unknown.as_str()), "unroutable", "unknown-class"),
    ] {
        let world = World::new(1, 1);
        let _node = worker(&world, world.class("c"), |_, _| DONE);
        append_raw(&world, &known, job);
        world.emit_job(&known);
        tokio::time::sleep(SECOND).await;
        let dead = world.dead();
        assert_eq!((dead.len(), world.runs.count(), committed(&world)), (1, 1, 2), "{job:?}");
        assert_eq!((dead[0].key(), dead[0].value()), (Some(&b"k"[..]), Some(known.value().as_slice())));
        assert_eq!(
            (header(&dead[0], "job-error-kind").as_deref(), header(&dead[0], "job-error-code").as_deref()),
            (Some(kind), Some(code))
        );
        let topic = header(&dead[0], "__connect.errors.topic").unwrap();
        if code == "unknown-class" {
            assert_eq!((topic.as_str(), header(&dead[0], "job").unwrap()), ("shop.orders", unknown.clone()));
        } else {
            assert_eq!((topic.as_str(), header(&dead[0], "src-job").as_deref()), ("tg.default.jobs", job));
        }
    }
}

fn append_raw(world: &World, event: &Event<'_>, job: Option<&str>) {
    let topic: Topic = world.names.jobs(TIER);
    let value = event.value();
    let headers: Vec<_> = job.iter().map(|text| (JOB_HEADER.as_bytes(), Some(text.as_bytes()))).collect();
    let partition = Some(tidegate_domain::Partition(0));
    let record =
        OutboundRecord { topic: &topic, partition, key: Some(b"k"), value: Some(&value), headers: &headers };
    world.log.append(&record).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_done_key_with_another_payload_is_skipped_or_dead_lettered_as_its_class_says() {
    for (on_conflict, dead) in [(Conflicts::Skip, 0), (Conflicts::DeadLetter, 1)] {
        let world = World::new(1, 1);
        let _node = worker(&world, Class { on_conflict, ..world.class("c") }, |_, _| DONE);
        world.emit_job(&Event::new("c", "k", "x"));
        world.emit_job(&Event::new("c", "k", "other"));
        tokio::time::sleep(SECOND).await;
        assert_eq!((world.runs.count(), world.dead().len(), committed(&world)), (1, dead, 2));
        for record in world.dead() {
            assert_eq!(header(&record, "job-error-kind").unwrap(), "conflict");
            assert_eq!(header(&record, "job-error-code").unwrap(), "key-done");
            assert!(record.value().unwrap().ends_with(b"other"));
        }
        // A conflict leaves no mark: the key stays done by the first job.
        let key = Event::new("c", "k", "x").idempotency_key();
        assert!(world.marks.get(&world.jobs_partition(0), &key).done.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_job_waits_for_its_retry_equal_events_are_coalesced_and_others_conflict() {
    let world = World::new(1, 1);
    let _node = worker(&world, world.class("c"), |_, _| transient());
    world.emit_job(&Event::new("c", "k", "x"));
    world.emit_job(&Event::new("c", "k", "x"));
    world.emit_job(&Event::new("c", "k", "other"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), world.delayed().len(), committed(&world)), (1, 1, 3));
    let dead = world.dead();
    assert_eq!(dead.len(), 1);
    assert_eq!(header(&dead[0], "job-error-code").unwrap(), "key-alive");
    assert_eq!(event_id(&dead[0]), Some(3));
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_is_superseded_until_its_promise_is_no_longer_believed() {
    let world = World::new(1, 1);
    let node = worker(&world, world.class("c"), |_, before| if before == 0 { transient() } else { DONE });
    node.faults().always(Port::Commit, Fate::Refused);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.delayed().len(), committed(&world)), (1, 0));
    node.kill(OnTheirWay::Lost).await;
    // Nobody serves the delay topic. The record comes again, and again.
    let node = worker(&world, world.class("c"), |_, before| if before == 0 { transient() } else { DONE });
    node.faults().always(Port::Commit, Fate::Refused);
    assert!(until(SECOND, || node.parts.marks.looked_up() == 1).await);
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.runs.count(), 1, "superseded");
    node.kill(OnTheirWay::Lost).await;
    tokio::time::sleep(world.ladder.belief()).await;
    let _node = worker(&world, world.class("c"), |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), committed(&world)), (2, 1), "orphaned");
}

#[tokio::test(start_paused = true)]
async fn after_a_job_died_another_of_its_key_runs_as_a_new_round() {
    let world = World::new(1, 1);
    let script = |job: &Job, _| {
        if job.record().value().is_some_and(|value| value.ends_with(b"bad")) {
            fails(Failure::permanent("p", "p"))
        } else {
            transient()
        }
    };
    let _node = worker(&world, world.class("c"), script);
    world.emit_job(&Event::new("c", "k", "bad"));
    world.emit_job(&Event::new("c", "k", "good"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), world.dead().len(), committed(&world)), (2, 1, 2));
    let copy = world.delayed().remove(0);
    let job = job_header(&copy).unwrap();
    assert_eq!((job.round, job.hop, job.attempt), (Round(1), Hop(1), Attempt(2)));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_too_old_when_its_turn_comes_is_not_run() {
    let world = World::new(1, 1);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(2 * SECOND).await;
    let class = Class { max_age: Some(SECOND), ..world.class("c") };
    let _node = worker(&world, class, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), world.dead().len(), committed(&world)), (0, 1, 1));
    assert_eq!(header(&world.dead()[0], "job-error-code").unwrap(), "too-old");
}
