//! Order within a lane, places for handlers, and retries in place.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::mark::Phase;
use tidegate_domain::{Failure, Outcome};
use tidegate_pipeline::fakes::handlers::{End, Run};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::TIER;
use tidegate_pipeline::fakes::{Event, Node, Reply, World};
use tidegate_pipeline::jobs::{Class, Job, Ordering};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn worker(
    world: &World,
    class: Class,
    places: usize,
    script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    let mut node = world.worker(vec![class], places, Arc::new(script));
    for number in 0..world.partitions() {
        node.assign(&world.jobs_partition(i32::try_from(number).unwrap()));
    }
    node
}

fn in_order(world: &World) -> Class {
    Class { ordering: Ordering::Key, ..world.class("c") }
}

fn transient() -> Reply {
    Reply::Now(Outcome::Failed(Failure::transient("t", "t")))
}

fn committed(world: &World, number: i32) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(number)).0
}

fn most_at_once(runs: &[Run]) -> usize {
    let running = |at| {
        runs.iter()
            .filter(|run| run.began <= at && run.ended.as_ref().is_none_or(|(end, _)| *end > at))
            .count()
    };
    runs.iter().map(|run| running(run.began)).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_lane_runs_in_order_and_does_not_hold_up_another() {
    let world = World::new(1, 1);
    // One lane for each key; other payloads would conflict, so each event has a class scope of its own: the key is the lane.
    let keys = ["a", "b", "c", "d"];
    let _node = worker(&world, world.class("c"), 10, |job, _| {
        if job.record().key() == Some(b"a") {
            Reply::After(5 * SECOND, Outcome::Done)
        } else {
            Reply::After(SECOND, Outcome::Done)
        }
    });
    for key in keys {
        world.emit_job(&Event::new("c", key, "x"));
    }
    // Behind `a` in its lane: it is judged when `a` is done, and needs no run then.
    world.emit_job(&Event::new("c", "a", "x"));
    tokio::time::sleep(2 * SECOND).await;
    let ended = |world: &World| world.runs.all().iter().filter(|run| run.ended.is_some()).count();
    assert_eq!((world.runs.count(), ended(&world), committed(&world, 0)), (4, 3, 0));
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0)), (4, 5));
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_there_are_places() {
    let world = World::new(1, 2);
    let _node = worker(&world, world.class("c"), 3, |_, _| Reply::After(SECOND, Outcome::Done));
    for n in 0..30 {
        world.emit_job(&Event::new("c", &n.to_string(), "x"));
    }
    tokio::time::sleep(60 * SECOND).await;
    let runs = world.runs.all();
    assert_eq!((runs.len(), most_at_once(&runs)), (30, 3));
    let last = runs.iter().map(|run| run.began).max().unwrap() - runs[0].began;
    assert!(last < 9 * SECOND + 100 * MILLI, "a place that is free is used at once: {last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_partition_with_much_to_do_does_not_keep_the_places_from_another() {
    let world = World::new(1, 2);
    let _node = worker(&world, world.class("c"), 1, |_, _| Reply::After(SECOND, Outcome::Done));
    let mut of = BTreeMap::new();
    for n in 0..200 {
        let key = n.to_string();
        *of.entry(Event::new("c", &key, "x").lane().partition(2)).or_insert(0) += 1;
        world.emit_job(&Event::new("c", &key, "x"));
    }
    assert!(of.values().all(|&count| count > 20), "{of:?}");
    tokio::time::sleep(21 * SECOND).await;
    let (a, b) = (committed(&world, 0), committed(&world, 1));
    assert!(a.abs_diff(b) <= 1 && a + b >= 18, "{a} and {b}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_place_is_not_looked_up_again_and_again() {
    let world = World::new(1, 1);
    let node = worker(&world, world.class("c"), 2, |_, _| Reply::After(MILLI, Outcome::Done));
    for n in 0..500 {
        world.emit_job(&Event::new("c", &n.to_string(), "x"));
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((world.runs.count(), node.parts.marks.looked_up()), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn in_order_a_retry_happens_in_place_and_its_followers_wait() {
    let world = World::new(1, 1);
    let _node = worker(&world, in_order(&world), 10, |job, before| {
        if job.record().key() == Some(b"a") && before < 2 { transient() } else { DONE }
    });
    world.emit_job(&Event::new("c", "a", "x"));
    world.emit_job(&Event::new("c", "a", "x"));
    world.emit_job(&Event::new("c", "b", "x"));
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(world.runs.job_ids(), ["shop.orders/0/1/c", "shop.orders/0/3/c"], "the other lane goes on");
    tokio::time::sleep(10 * SECOND).await;
    let runs: Vec<Run> =
        world.runs.all().into_iter().filter(|run| run.job_id == "shop.orders/0/1/c").collect();
    assert_eq!((runs.len(), world.runs.count()), (3, 4));
    for (pair, rung) in runs.windows(2).zip([SECOND, 4 * SECOND]) {
        let waited = pair[1].began - pair[0].began;
        assert!(waited >= rung.mul_f64(0.8) && waited <= rung.mul_f64(1.2) + 5 * MILLI, "{waited:?}");
    }
    assert_eq!((world.delayed().len(), world.dead().len(), committed(&world, 0)), (0, 0, 3));
}

#[tokio::test(start_paused = true)]
async fn in_order_attempts_are_used_up_in_place_too() {
    let world = World::new(1, 1);
    let _node = worker(&world, in_order(&world), 10, |_, _| transient());
    world.emit_job(&Event::new("c", "a", "x"));
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(
        (world.runs.count(), world.delayed().len(), world.dead().len(), committed(&world, 0)),
        (3, 0, 1, 1)
    );
    assert_eq!(world.dead()[0].header("job-attempt"), Some(&b"3"[..]));
}

#[tokio::test(start_paused = true)]
async fn in_order_retry_after_and_snooze_are_waited_for_in_place() {
    let world = World::new(1, 1);
    let failure = Failure::transient("t", "t").with_retry_after(40 * SECOND);
    let _node = worker(&world, in_order(&world), 10, move |_, before| match before {
        0 => Reply::After(SECOND, Outcome::Failed(failure.clone())),
        1 => Reply::After(SECOND, Outcome::Snooze(50 * SECOND)),
        _ => DONE,
    });
    world.emit_job(&Event::new("c", "a", "x"));
    tokio::time::sleep(200 * SECOND).await;
    let runs = world.runs.all();
    assert_eq!((runs.len(), committed(&world, 0)), (3, 1));
    for (pair, asked) in runs.windows(2).zip([40, 50]) {
        let waited = pair[1].began - pair[0].ended.as_ref().unwrap().0;
        assert!(waited >= asked * SECOND && waited <= asked * SECOND + 5 * MILLI, "{waited:?} of {asked} s");
    }
}

#[tokio::test(start_paused = true)]
async fn in_order_attempts_survive_a_restart_and_the_wait_counts_from_the_last_try() {
    let world = World::new(1, 1);
    let node = worker(&world, in_order(&world), 10, |_, _| transient());
    node.parts.clock.always_draw(0.5);
    world.emit_job(&Event::new("c", "a", "x"));
    // Tried at about 0 s and at about 1 s; the third attempt is due 4 s later.
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(world.runs.count(), 2);
    let key = Event::new("c", "a", "x").idempotency_key();
    let step = world.marks.get(&world.jobs_partition(0), &key).step.unwrap();
    assert_eq!((step.phase, step.n), (Phase::Tried, 2));
    node.kill(OnTheirWay::Lost).await;
    let node = worker(&world, in_order(&world), 10, |_, _| transient());
    node.parts.clock.always_draw(0.5);
    tokio::time::sleep(60 * SECOND).await;
    let runs = world.runs.all();
    assert_eq!((runs.len(), world.dead().len(), committed(&world, 0)), (3, 1, 1));
    let waited = runs[2].began - runs[1].began;
    assert!(waited >= 4 * SECOND - 2 * MILLI && waited <= 4 * SECOND + 5 * MILLI, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn in_order_a_clock_that_was_set_back_makes_no_wait_longer_than_it_is() {
    let world = World::new(1, 1);
    let node = worker(&world, in_order(&world), 10, |_, _| transient());
    world.emit_job(&Event::new("c", "a", "x"));
    tokio::time::sleep(SECOND / 2).await;
    node.kill(OnTheirWay::Lost).await;
    let node = worker(&world, in_order(&world), 10, |_, _| DONE);
    node.parts.clock.jump(-86_400_000);
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn in_order_a_drain_leaves_what_waits_in_place_to_the_next_owner() {
    let world = World::new(1, 1);
    let mut node = worker(&world, in_order(&world), 10, |_, _| transient());
    world.emit_job(&Event::new("c", "a", "x"));
    world.emit_job(&Event::new("c", "a", "x"));
    tokio::time::sleep(SECOND / 2).await;
    let began = tokio::time::Instant::now();
    let positions = node.revoke(&[world.jobs_partition(0)], 60 * SECOND).await;
    assert!(began.elapsed() < SECOND, "it waits for nothing that only waits");
    assert_eq!(positions[0].1.0, 0);
    node.assign(&world.jobs_partition(0));
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(
        (world.dead().len(), committed(&world, 0)),
        (2, 2),
        "the second has its own attempts: only done suppresses"
    );
    let first: Vec<Run> = world.runs.all().into_iter().filter(|run| run.job_id.contains("/1/")).collect();
    assert_eq!(first.len(), 3, "attempts count on");
}

#[tokio::test(start_paused = true)]
async fn in_order_a_run_that_fails_while_its_partition_is_drained_counts_its_attempt() {
    let world = World::new(1, 1);
    let mut node = worker(&world, in_order(&world), 10, |_, _| {
        Reply::After(2 * SECOND, Outcome::Failed(Failure::transient("t", "t")))
    });
    world.emit_job(&Event::new("c", "a", "x"));
    tokio::time::sleep(SECOND).await;
    let positions = node.revoke(&[world.jobs_partition(0)], 60 * SECOND).await;
    assert_eq!(positions[0].1.0, 0);
    let key = Event::new("c", "a", "x").idempotency_key();
    let step = world.marks.get(&world.jobs_partition(0), &key).step.unwrap();
    assert_eq!((step.phase, step.n), (Phase::Tried, 1));
    assert!(matches!(world.runs.all()[0].ended, Some((_, End::Answered(_)))));
}
