//! Marks and copies that can't be written, or whose answers are late or lost.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Failure, Outcome};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::fakes::events::{event_id, job_header};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{TIER, until};
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::Job;
use tidegate_pipeline::record::Record;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn worker(world: &World, script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static) -> Node {
    let mut node = world.worker(vec![world.class("c")], 10, Arc::new(script));
    for number in 0..world.partitions() {
        node.assign(&world.jobs_partition(i32::try_from(number).unwrap()));
    }
    node
}

fn transient() -> Reply {
    Reply::Now(Outcome::Failed(Failure::transient("t", "t")))
}

fn permanent() -> Reply {
    Reply::Now(Outcome::Failed(Failure::permanent("p", "p")))
}

fn committed(world: &World, number: i32) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(number)).0
}

fn delay(world: &World, rung: Duration) -> Port {
    Port::Publish(world.names.delay(TIER, rung).to_string())
}

fn dlq(world: &World) -> Port {
    Port::Publish(world.names.dlq().to_string())
}

/// Keys whose jobs lie in this partition of two.
fn keys_of(number: i32, count: usize) -> Vec<String> {
    let lies = |key: &String| Event::new("c", key, "x").lane().partition(2).0 == number;
    (0..).map(|n| format!("k{n}")).filter(lies).take(count).collect()
}

fn header(record: &Record, name: &str) -> Option<String> {
    record.header(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[tokio::test(start_paused = true)]
async fn while_marks_cannot_be_written_nothing_is_settled_and_nothing_runs_twice() {
    for fate in [Fate::Refused, Fate::Fails(10 * MILLI), Fate::LosesAnswer(10 * MILLI)] {
        let world = World::new(1, 1);
        let node = worker(&world, |_, _| DONE);
        node.faults().always(Port::Append, fate);
        world.emit_job(&Event::new("c", "k", "x"));
        tokio::time::sleep(SECOND).await;
        world.emit_job(&Event::new("c", "k", "x"));
        world.emit_job(&Event::new("c", "other", "x"));
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((world.runs.count(), committed(&world, 0)), (1, 0), "{fate:?}");
        assert!(node.told().troubles[&world.jobs_partition(0)].contains("can't be written"));
        node.faults().heal(&Port::Append);
        tokio::time::sleep(SECOND).await;
        assert_eq!(
            (world.runs.count(), committed(&world, 0), node.told().troubles.len()),
            (2, 3, 0),
            "{fate:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_is_written_at_last_ends_the_trouble_also_where_nothing_else_waits() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    node.faults().script(Port::Append, [Fate::Refused]);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((committed(&world, 0), node.told().troubles.len(), node.told().changes.len()), (1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_concluded_from_a_mark_on_its_way_is_settled_after_it() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    node.faults().script(Port::Append, [Fate::Succeeds(5 * SECOND)]);
    for _ in 0..3 {
        world.emit_job(&Event::new("c", "k", "x"));
    }
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0)), (1, 0));
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0)), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn marks_go_in_batches() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    for n in 0..1000 {
        world.emit_job(&Event::new("c", &n.to_string(), "x"));
    }
    tokio::time::sleep(SECOND).await;
    let appends = node.parts.marks.appends();
    assert_eq!((appends.iter().sum::<usize>(), committed(&world, 0)), (1000, 1000));
    assert!(appends.len() <= 10, "{} batches", appends.len());
}

#[tokio::test(start_paused = true)]
async fn while_marks_cannot_be_looked_up_nothing_is_handed_out() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    node.faults().always(Port::LookUp, Fate::Refused);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0)), (0, 0));
    assert!(node.told().troubles[&world.jobs_partition(0)].contains("can't be read"));
    assert!(node.parts.marks.looked_up() <= 50, "{} look-ups in 10 s", node.parts.marks.looked_up());
    node.faults().heal(&Port::LookUp);
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0), node.told().troubles.len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_failed_is_no_trouble_any_more_when_all_that_waits_is_skipped() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    node.faults().script(Port::LookUp, [Fate::Refused]);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0)), (1, 2));
    assert_eq!((node.told().troubles.len(), node.told().changes.len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn until_its_marks_are_open_a_partition_is_not_read() {
    let world = World::new(1, 1);
    let mut node = world.worker(vec![world.class("c")], 10, Arc::new(|_: &Job, _| DONE));
    node.faults().script(Port::Open, [Fate::Fails(5 * SECOND), Fate::Succeeds(5 * SECOND)]);
    node.assign(&world.jobs_partition(0));
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(6 * SECOND).await;
    assert!(node.told().troubles.contains_key(&world.jobs_partition(0)));
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!((world.runs.count(), node.parts.marks.looked_up()), (0, 0));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), committed(&world, 0), node.told().troubles.len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn while_a_copy_cannot_be_published_its_partition_stops_and_others_go_on() {
    for (port, reply) in [(0, transient()), (1, permanent())] {
        for fate in [Fate::Refused, Fate::Fails(10 * MILLI)] {
            let world = World::new(1, 2);
            let bad = keys_of(0, 3);
            let (reply, first) = (reply.clone(), bad[0].clone());
            let node = worker(&world, move |job, _| {
                if job.record().key() == Some(first.as_bytes()) { reply.clone() } else { DONE }
            });
            let port = [delay(&world, SECOND), dlq(&world)][port].clone();
            node.faults().always(port.clone(), fate);
            world.emit_job(&Event::new("c", &bad[0], "x"));
            tokio::time::sleep(SECOND).await;
            for key in bad[1..].iter().chain(&keys_of(1, 3)) {
                world.emit_job(&Event::new("c", key, "x"));
            }
            tokio::time::sleep(10 * SECOND).await;
            assert_eq!((committed(&world, 0), committed(&world, 1), world.runs.count()), (0, 3, 4));
            assert!(node.told().troubles[&world.jobs_partition(0)].contains("can't be written"));
            node.faults().heal(&port);
            tokio::time::sleep(SECOND).await;
            assert_eq!((committed(&world, 0), world.runs.count(), node.told().troubles.len()), (3, 6, 0));
            assert_eq!(world.delayed().len() + world.dead().len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_producer_is_waited_for_and_is_no_trouble() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| permanent());
    node.faults().always(dlq(&world), Fate::Full);
    for n in 0..100 {
        world.emit_job(&Event::new("c", &n.to_string(), "x"));
    }
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((world.dead().len(), committed(&world, 0)), (0, 0));
    assert!(world.runs.count() <= 10, "{} jobs wait for room where one would do", world.runs.count());
    node.faults().heal(&dlq(&world));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.dead().len(), committed(&world, 0), node.told().changes.len()), (100, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn a_copy_too_large_for_its_delay_topic_goes_to_the_dlq() {
    for fate in [Fate::TooLarge, Fate::FailsTooLarge(10 * MILLI)] {
        let world = World::new(1, 1);
        let node = worker(&world, |_, _| transient());
        node.faults().always(delay(&world, SECOND), fate);
        world.emit_job(&Event::new("c", "k", "x"));
        tokio::time::sleep(SECOND).await;
        assert_eq!((world.delayed().len(), world.dead().len(), committed(&world, 0)), (0, 1, 1));
        assert_eq!(header(&world.dead()[0], "job-error-code").unwrap(), "too-large");
        assert!(world.dead()[0].value().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_too_large_for_its_delay_topic_keeps_what_the_handler_answered() {
    let later = |_: &Job, before| {
        if before == 0 { transient() } else { Reply::Now(Outcome::Failed(Failure::transient("later", "x"))) }
    };
    for (dlq_fates, whole) in [(vec![], true), (vec![Fate::TooLarge, Fate::TooLarge], false)] {
        for runs in [1, 2] {
            let world = World::new(1, 1);
            let node = worker(&world, later);
            let topics = [delay(&world, SECOND), delay(&world, 4 * SECOND)];
            node.faults().always(topics[runs - 1].clone(), Fate::TooLarge);
            node.faults().script(dlq(&world), dlq_fates.clone());
            world.emit_job(&Event::new("c", "k", "x"));
            tokio::time::sleep(SECOND).await;
            let mut retry = world.retry(1 << 20);
            retry.assign(&TopicPartition {
                topic: world.names.delay(TIER, SECOND),
                ..world.jobs_partition(0)
            });
            assert!(until(10 * SECOND, || world.dead().len() == 1).await);
            let dead = &world.dead()[0];
            assert_eq!((world.runs.count(), dead.value().is_some()), (runs, whole));
            assert_eq!(header(dead, "job-error-code").unwrap(), "too-large");
            let first: Vec<_> = dead.headers().filter(|(name, _)| *name == b"job-first-error").collect();
            assert_eq!(first.len(), 1);
            assert!(header(dead, "job-first-error").unwrap().starts_with("transient/t: t"), "{first:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_too_large_for_the_dlq_goes_without_its_headers_and_then_as_a_stub() {
    for (fates, whole) in [
        (vec![Fate::TooLarge], true),
        (vec![Fate::FailsTooLarge(MILLI)], true),
        (vec![Fate::TooLarge, Fate::TooLarge], false),
        (vec![Fate::FailsTooLarge(MILLI), Fate::TooLarge], false),
        (vec![Fate::FailsTooLarge(MILLI), Fate::Refused, Fate::FailsTooLarge(MILLI)], false),
    ] {
        let world = World::new(1, 1);
        let node = worker(&world, |_, _| permanent());
        node.faults().script(dlq(&world), fates.clone());
        world.emit_job(&Event::new("c", "k", "x"));
        tokio::time::sleep(SECOND).await;
        let dead = world.dead();
        assert_eq!((dead.len(), committed(&world, 0), node.told().troubles.len()), (1, 1, 0), "{fates:?}");
        assert_eq!(
            (dead[0].value().is_some(), dead[0].key().is_some(), event_id(&dead[0])),
            (whole, whole, None)
        );
        assert_eq!(header(&dead[0], "job-id").unwrap(), "shop.orders/0/1/c");
        let lacks = if whole { "the source's headers" } else { "key and value" };
        assert!(header(&dead[0], "job-stub").unwrap().starts_with(lacks), "{fates:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dlq_that_refuses_even_a_stub_holds_the_partition_up_and_does_not_spin() {
    for fate in [Fate::TooLarge, Fate::FailsTooLarge(MILLI)] {
        let world = World::new(1, 1);
        let node = worker(&world, |_, _| permanent());
        node.faults().always(dlq(&world), fate);
        world.emit_job(&Event::new("c", "k", "x"));
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((world.dead().len(), committed(&world, 0)), (0, 0));
        assert!(node.told().troubles[&world.jobs_partition(0)].contains("refuses even a stub"));
        assert!(node.told().rounds < 300, "{} rounds", node.told().rounds);
        node.faults().heal(&dlq(&world));
        tokio::time::sleep(SECOND).await;
        assert_eq!((world.dead().len(), committed(&world, 0), node.told().troubles.len()), (1, 1, 0));
    }
}

/// The doubled copies of one (round, hop + 1) reach the worker, in whatever way they were made.
async fn check_that_doubled_copies_run_once(world: &World, runs_so_far: usize) {
    let copies = world.records(&world.names.delay(TIER, SECOND));
    let hops: Vec<_> = copies
        .iter()
        .map(|copy| (job_header(copy).unwrap().round.0, job_header(copy).unwrap().hop.0))
        .collect();
    assert_eq!(hops, [(0, 1), (0, 1)]);
    let mut retry = world.retry(1 << 20);
    retry.assign(&TopicPartition { topic: world.names.delay(TIER, SECOND), ..world.jobs_partition(0) });
    retry.assign(&TopicPartition { topic: world.names.delay(TIER, 4 * SECOND), ..world.jobs_partition(0) });
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(world.runs.count(), runs_so_far + 1, "{:?}", world.runs.all());
    assert_eq!((world.dead().len(), committed(world, 0)), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_lost_acknowledgement_makes_two_copies_that_run_once_in_sum() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, before| if before == 0 { transient() } else { DONE });
    node.faults().script(delay(&world, SECOND), [Fate::LosesAnswer(MILLI)]);
    world.emit_job(&Event::new("c", "k", "x"));
    tokio::time::sleep(SECOND).await;
    check_that_doubled_copies_run_once(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_the_copy_and_its_mark_forks_no_chain() {
    let world = World::new(1, 1);
    let script = |_: &Job, before| if before < 2 { transient() } else { DONE };
    let node = worker(&world, script);
    node.faults().always(Port::Append, Fate::Fails(10 * SECOND));
    world.emit_job(&Event::new("c", "k", "x"));
    assert!(until(SECOND, || world.delayed().len() == 1).await);
    tokio::time::sleep(10 * MILLI).await;
    node.kill(OnTheirWay::Lost).await;
    let _node = worker(&world, script);
    tokio::time::sleep(SECOND).await;
    check_that_doubled_copies_run_once(&world, 2).await;
}
