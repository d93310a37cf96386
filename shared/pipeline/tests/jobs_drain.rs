//! Partitions that are taken back while jobs run, copies are published and marks are written.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Failure, Outcome};
use tidegate_pipeline::events::{ClassMetrics, JOBS_IN_FLIGHT};
use tidegate_pipeline::fakes::handlers::End;
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::TIER;
use tidegate_pipeline::fakes::{Event, Fate, Node, OneGauge, Port, Reply, World};
use tidegate_pipeline::jobs::{Class, Job};

const SECOND: Duration = Duration::from_secs(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn worker(world: &World, script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static) -> Node {
    let mut node = world.worker(vec![world.class("c")], 2, Arc::new(script));
    for number in 0..world.partitions() {
        node.assign(&world.jobs_partition(i32::try_from(number).unwrap()));
    }
    node
}

fn emit(world: &World, count: usize) {
    for n in 0..count {
        world.emit_job(&Event::new("c", &n.to_string(), "x"));
    }
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(0)).0
}

#[tokio::test(start_paused = true)]
async fn a_revoke_lets_running_jobs_end_and_starts_no_more() {
    let world = World::new(1, 1);
    let mut node = worker(&world, |_, _| Reply::After(5 * SECOND, Outcome::Done));
    emit(&world, 10);
    tokio::time::sleep(SECOND).await;
    let began = tokio::time::Instant::now();
    let positions = node.revoke(&[world.jobs_partition(0)], 60 * SECOND).await;
    assert!(began.elapsed() < 5 * SECOND);
    assert_eq!((world.runs.count(), positions[0].1.0, committed(&world)), (2, 2, 2));
    assert!(!node.parts.marks.is_open(&world.jobs_partition(0)));
    // The next owner goes on with the rest, and with no more.
    let _next = worker(&world, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.runs.count(), committed(&world)), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn a_revoke_cancels_what_still_runs_at_its_deadline_and_its_places_are_free_again() {
    let world = World::new(1, 2);
    let mut node = worker(&world, |_, before| if before == 0 { Reply::Hang } else { DONE });
    emit(&world, 10);
    tokio::time::sleep(SECOND).await;
    let began = tokio::time::Instant::now();
    let both = [world.jobs_partition(0), world.jobs_partition(1)];
    let positions = node.revoke(&both, 3 * SECOND).await;
    assert_eq!(
        (began.elapsed(), positions.iter().map(|(_, position)| position.0).max()),
        (3 * SECOND, Some(0))
    );
    tokio::time::sleep(Duration::from_millis(1)).await;
    let runs = world.runs.all();
    assert!(
        runs.len() == 2 && runs.iter().all(|run| matches!(run.ended, Some((_, End::Dropped)))),
        "{runs:?}"
    );
    // Both places would be taken for ever, had the cancelled jobs kept them.
    both.iter().for_each(|partition| node.assign(partition));
    tokio::time::sleep(100 * SECOND).await;
    assert!(world.runs.count() > 10, "{}", world.runs.count());
}

#[tokio::test(start_paused = true)]
async fn a_result_that_comes_after_its_partition_was_lost_settles_nothing_and_is_known_to_the_next_owner() {
    let world = World::new(1, 1);
    let mut deposed = worker(&world, |_, _| Reply::After(2 * SECOND, Outcome::Done));
    emit(&world, 1);
    tokio::time::sleep(SECOND).await;
    deposed.lose(&[world.jobs_partition(0)]).await;
    tokio::time::sleep(5 * SECOND).await;
    let runs = world.runs.all();
    assert!(matches!(runs[0].ended, Some((_, End::Answered(_)))), "{runs:?}");
    assert_eq!((runs.len(), committed(&world)), (1, 0));
    // The record is delivered again, and needs no run.
    let _owner = worker(&world, |_, _| DONE);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_revoke_waits_for_copies_and_marks_on_their_way() {
    let world = World::new(1, 1);
    let mut node = worker(&world, |_, _| Reply::Now(Outcome::Failed(Failure::permanent("p", "p"))));
    node.faults().always(Port::Publish(world.names.dlq().to_string()), Fate::Succeeds(3 * SECOND));
    node.faults().always(Port::Append, Fate::Succeeds(2 * SECOND));
    emit(&world, 3);
    tokio::time::sleep(SECOND).await;
    let began = tokio::time::Instant::now();
    let drained = node.drain(&[world.jobs_partition(0)], 60 * SECOND).await;
    assert_eq!((drained.positions[0].1.0, drained.settled, drained.left, world.dead().len()), (3, 3, 0, 3));
    assert!(began.elapsed() >= 4 * SECOND && began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_revoke_while_nothing_can_be_published_ends_at_its_deadline_and_loses_nothing() {
    let world = World::new(1, 1);
    let dlq = Port::Publish(world.names.dlq().to_string());
    let mut node = worker(&world, |_, _| Reply::Now(Outcome::Failed(Failure::permanent("p", "p"))));
    node.faults().always(dlq.clone(), Fate::Refused);
    emit(&world, 3);
    tokio::time::sleep(SECOND).await;
    let drained = node.drain(&[world.jobs_partition(0)], 3 * SECOND).await;
    assert_eq!((drained.positions[0].1.0, drained.settled, drained.left), (0, 0, 3));
    assert_eq!(node.told().troubles.len(), 0);
    node.faults().heal(&dlq);
    node.assign(&world.jobs_partition(0));
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.dead().len(), committed(&world), node.told().troubles.len()), (3, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_comes_after_a_release_settles_nothing_of_the_next_assignment() {
    let world = World::new(1, 1);
    let mut node = worker(&world, |_, before| {
        if before == 0 { Reply::Now(Outcome::Failed(Failure::permanent("p", "p"))) } else { Reply::Hang }
    });
    node.faults().script(Port::Publish(world.names.dlq().to_string()), [Fate::Succeeds(5 * SECOND)]);
    emit(&world, 1);
    tokio::time::sleep(SECOND).await;
    node.lose(&[world.jobs_partition(0)]).await;
    node.assign(&world.jobs_partition(0));
    tokio::time::sleep(6 * SECOND).await;
    assert_eq!((world.dead().len(), world.runs.count(), committed(&world)), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_killed_worker_loses_nothing_and_runs_again_only_what_was_in_hand() {
    for on_their_way in [OnTheirWay::Lost, OnTheirWay::Arrives] {
        let world = World::new(1, 1);
        let node = worker(&world, |job, _| {
            if job.record().key() == Some(b"5") { Reply::After(SECOND, Outcome::Done) } else { DONE }
        });
        emit(&world, 10);
        tokio::time::sleep(SECOND / 2).await;
        node.kill(on_their_way).await;
        let _next = worker(&world, |_, _| DONE);
        tokio::time::sleep(SECOND).await;
        assert_eq!((world.runs.count(), committed(&world)), (11, 10));
        let again: Vec<String> = world.runs.job_ids().into_iter().skip(10).collect();
        assert_eq!(again, ["shop.orders/0/6/c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_handler_counts_as_running_after_it_ended_in_whatever_way() {
    let gauge = OneGauge::of(JOBS_IN_FLIGHT);
    let in_flight = || gauge.get();
    let metrics = metrics::with_local_recorder(&gauge, || ClassMetrics::of("c", TIER));
    let world = World::new(1, 1);
    let replies = [
        Reply::After(SECOND, Outcome::Done),
        Reply::PanicAfter(SECOND),
        Reply::Panic,
        DONE,
        Reply::Hang,
        Reply::Hang,
    ];
    let script = move |job: &Job, _: usize| {
        let number = job.record().key().and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
        replies[number.unwrap_or(0_usize)].clone()
    };
    let mut node = world.worker(vec![Class { metrics, ..world.class("c") }], 10, Arc::new(script));
    emit(&world, 6);
    node.assign(&world.jobs_partition(0));
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(in_flight(), 4);
    tokio::time::sleep(SECOND).await;
    assert_eq!(in_flight(), 2);
    node.lose(&[world.jobs_partition(0)]).await;
    assert_eq!(in_flight(), 2, "what runs when its partition is lost runs to its end, or its limit");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(in_flight(), 0);
}
