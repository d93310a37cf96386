//! Jobs that kill their process, and those that only stood beside them.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_domain::mark::{Phase, Starts, Step};
use tidegate_domain::{Attempt, Failure, JobHash, Mark, Outcome};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::OpenerId;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_pipeline::fakes::events::event_id;
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{TIER, until};
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::{Class, Job, Ordering as LaneOrder};
use tidegate_pipeline::ports::MarkEntry;
use tidegate_pipeline::record::OutboundRecord;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn jobs(world: &World) -> TopicPartition {
    world.jobs_partition(0)
}

/// A worker on a machine of its own.
fn worker(
    world: &World,
    concurrency: usize,
    script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    let script = Arc::new(script);
    let mut node = world.worker_with_changelog(&world.disk(), vec![world.class("c")], concurrency, script);
    node.assign(&jobs(world));
    node
}

fn emit(world: &World, count: usize) {
    for n in 0..count {
        world.emit_job(&Event::new("c", &n.to_string(), "x"));
    }
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&jobs(world)).0
}

/// What was marked as started, in order.
fn started(world: &World) -> Vec<Starts> {
    let of = |record: &tidegate_pipeline::Record| match format::read(record.value().unwrap()).unwrap().1 {
        Entry::Marks(entries) => entries,
        _ => Vec::new(),
    };
    let marks = world.records(&world.names.marks(TIER));
    let steps = marks.iter().flat_map(of).filter_map(|entry| entry.mark.step);
    steps.filter(|step| step.phase == Phase::Started).map(|step| Starts::of(step.n)).collect()
}

fn marks_with_started(world: &World) -> usize {
    started(world).len()
}

/// How often a job was marked to run alone.
fn marks_alone(world: &World) -> usize {
    started(world).iter().filter(|starts| starts.crashes == 2).count()
}

/// Workers one after the other, each dying when it runs a job of `poison`; ends when all is committed.
async fn survive(world: &World, poison: &BTreeSet<&'static str>, limit: usize) -> usize {
    let end = world.log.end(&jobs(world)).0;
    for deaths in 0..limit {
        let crashed = Arc::new(AtomicUsize::new(0));
        let (poison, noted) = (poison.clone(), crashed.clone());
        let node = worker(world, 10, move |job, _| {
            let key = job.record().key().map(|key| String::from_utf8_lossy(key).into_owned());
            if poison.contains(key.unwrap().as_str()) {
                noted.fetch_add(1, Ordering::SeqCst);
                return Reply::Hang;
            }
            Reply::After(5 * MILLI, Outcome::Done)
        });
        let over = until(60 * SECOND, || crashed.load(Ordering::SeqCst) > 0 || committed(world) == end).await;
        assert!(over, "{} of {end}: {:?}", committed(world), node.told().troubles);
        if crashed.load(Ordering::SeqCst) == 0 {
            node.stop(SECOND).await;
            return deaths;
        }
        node.kill(OnTheirWay::Lost).await;
    }
    panic!("still dying after {limit} deaths");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_every_process_is_dead_lettered_after_the_third_and_no_neighbour_is_blamed() {
    let world = World::new(1, 1);
    emit(&world, 200);
    let deaths = survive(&world, &["57"].into(), 10).await;
    assert_eq!(deaths, 3, "among many, among suspects, and alone");
    let dead = world.dead();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].key(), Some(&b"57"[..]));
    assert_eq!(dead[0].header("job-error-kind"), Some(&b"crash"[..]));
    let done: BTreeSet<u64> = world
        .runs
        .all()
        .iter()
        .filter(|run| matches!(&run.ended, Some((_, tidegate_pipeline::fakes::handlers::End::Answered(_)))))
        .filter_map(|run| run.job_id.split('/').nth(2)?.parse().ok())
        .collect();
    assert_eq!(done.len(), 199);
    assert!(event_id(&dead[0]).is_some());
}

#[tokio::test(start_paused = true)]
async fn several_jobs_that_kill_their_process_are_told_apart() {
    let world = World::new(1, 1);
    emit(&world, 60);
    let deaths = survive(&world, &["3", "4", "50"].into(), 20).await;
    assert!(deaths <= 9, "{deaths} deaths");
    let dead: BTreeSet<Vec<u8>> = world.dead().iter().map(|record| record.key().unwrap().to_vec()).collect();
    assert_eq!(dead, [b"3".to_vec(), b"4".to_vec(), b"50".to_vec()].into());
}

#[tokio::test(start_paused = true)]
async fn jobs_equal_to_one_that_kills_its_process_are_dead_lettered_without_a_death_of_their_own() {
    let world = World::new(1, 1);
    for _ in 0..3 {
        emit(&world, 20);
    }
    let deaths = survive(&world, &["7"].into(), 10).await;
    let dead = world.dead();
    assert_eq!((deaths, dead.len()), (3, 3), "{dead:?}");
    assert!(dead.iter().all(|record| record.header("job-error-kind") == Some(&b"crash"[..])));
}

/// The mark that a job of key `poison` has when a process died with it.
async fn step_of_a_death() -> Step {
    let world = World::new(1, 1);
    world.emit_job(&Event::new("c", "poison", "x"));
    for _ in 0..2 {
        let node = worker(&world, 10, |_, _| Reply::Hang);
        let runs = world.runs.count();
        assert!(until(SECOND, || world.runs.count() > runs).await);
        node.kill(OnTheirWay::Lost).await;
    }
    world.marks.get(&jobs(&world), &Event::new("c", "poison", "x").idempotency_key()).step.unwrap()
}

/// A world with a job of key `poison`, and what its changelog says of an equal one. Whoever wrote that died. The equal one's record,
/// and what became of it, are gone: the changelog lost its end.
async fn after_an_equal(starts: Starts) -> World {
    let step = step_of_a_death().await;
    let equal = Step { job: JobHash(0), n: starts.number(), ..step };
    let world = World::new(1, 1);
    let key = Event::new("c", "poison", "x").idempotency_key();
    let (mut opened, mut marks) = (Vec::new(), Vec::new());
    format::write_opened(OpenerId([9; 16]), 10, &mut opened);
    format::write_marks(OpenerId([9; 16]), &[MarkEntry { key, mark: Mark::step(equal) }], &mut marks);
    for value in [opened, marks] {
        let (topic, partition) = (world.names.marks(TIER), Some(jobs(&world).partition));
        let record =
            OutboundRecord { topic: &topic, partition, key: None, value: Some(&value), headers: &[] };
        assert!(world.log.append(&record).is_some());
    }
    world.emit_job(&Event::new("c", "poison", "x"));
    world
}

/// A worker that keeps order.
fn worker_in_order(world: &World, script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static) -> Node {
    let class = Class { ordering: LaneOrder::Key, max_attempts: 4, ..world.class("c") };
    let mut node = world.worker_with_changelog(&world.disk(), vec![class], 10, Arc::new(script));
    node.assign(&jobs(world));
    node
}

fn fails() -> Reply {
    Reply::Now(Outcome::Failed(Failure::transient("t", "t")))
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_process_ends_although_the_mark_of_an_equal_one_hides_its_own() {
    let world = after_an_equal(Starts { crashes: 2, ..Starts::default() }).await;
    let deaths = survive(&world, &["poison"].into(), 10).await;
    let dead = world.dead();
    assert_eq!((deaths, dead.len()), (1, 1), "alone, and not again");
    assert_eq!(dead[0].header("job-error-kind"), Some(&b"crash"[..]));
}

#[tokio::test(start_paused = true)]
async fn in_order_a_job_whose_equal_was_tried_runs_alone_at_once_and_a_later_death_is_not_its_own() {
    let world = after_an_equal(Starts { tried: 2, crashes: 1, ..Starts::default() }).await;
    world.emit_job(&Event::new("c", "other", "x"));
    let first = worker_in_order(&world, |job, _| match job.record().key() {
        Some(b"poison") => fails(),
        _ => Reply::Hang,
    });
    // Less than any wait in place.
    tokio::time::sleep(500 * MILLI).await;
    let attempts = || world.runs.all().iter().map(|run| run.attempt.0).collect::<Vec<_>>();
    assert_eq!((attempts(), marks_alone(&world)), (vec![3, 1], 1), "alone, before the other");
    first.kill(OnTheirWay::Lost).await;
    let _second = worker_in_order(&world, |_, _| DONE);
    assert!(until(60 * SECOND, || committed(&world) == 2).await);
    assert!(world.dead().is_empty(), "{:?}", world.dead());
    assert_eq!(attempts(), [3, 1, 1, 4], "what the mark counts goes on");
}

#[tokio::test(start_paused = true)]
async fn the_ended_run_of_an_equal_job_lets_none_run_alone() {
    let world = after_an_equal(Starts { tried: 1, ..Starts::default() }).await;
    let _worker = worker_in_order(&world, |_, _| DONE);
    assert!(until(SECOND, || committed(&world) == 1).await);
    assert_eq!((marks_with_started(&world), marks_alone(&world)), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn in_order_a_suspect_that_snoozed_is_not_blamed_for_a_death_meanwhile() {
    let world = World::new(1, 1);
    world.emit_job(&Event::new("c", "tired", "x"));
    for runs in 1..=2 {
        let node = worker_in_order(&world, |_, _| Reply::Hang);
        assert!(until(SECOND, || world.runs.count() == runs).await);
        node.kill(OnTheirWay::Lost).await;
    }
    let third = worker_in_order(&world, |_, _| Reply::Now(Outcome::Snooze(60 * SECOND)));
    assert!(until(SECOND, || world.runs.count() == 3 && marks_alone(&world) == 1).await);
    tokio::time::sleep(SECOND).await;
    third.kill(OnTheirWay::Lost).await;
    let _fourth = worker_in_order(&world, |_, _| DONE);
    assert!(until(SECOND, || committed(&world) == 1).await);
    assert!(world.dead().is_empty(), "{:?}", world.dead());
    assert_eq!(world.runs.all().last().map(|run| run.attempt), Some(Attempt(1)), "a snooze is no attempt");
}

#[tokio::test(start_paused = true)]
async fn jobs_of_one_key_with_other_payloads_that_all_kill_their_process_come_to_an_end() {
    let world = World::new(1, 1);
    for payload in ["x", "y", "z"] {
        world.emit_job(&Event::new("c", "7", payload));
    }
    emit(&world, 5);
    let deaths = survive(&world, &["7"].into(), 20).await;
    assert!(deaths <= 9, "{deaths}");
}

#[tokio::test(start_paused = true)]
async fn the_death_of_a_healthy_worker_with_a_full_window_costs_less_than_a_second() {
    let world = {
        let mut world = World::new(1, 1);
        world.shard.window_records = 10_000;
        world
    };
    emit(&world, 10_000);
    let first = worker(&world, 256, |_, _| Reply::Hang);
    tokio::time::sleep(SECOND).await;
    first.kill(OnTheirWay::Lost).await;
    let second = worker(&world, 256, |_, _| DONE);
    // A broker that takes as long as one with three replicas.
    second.faults().always(Port::Publish(world.names.marks(TIER).to_string()), Fate::Succeeds(5 * MILLI));
    let began = Instant::now();
    assert!(until(10 * SECOND, || world.runs.count() == 256 + 10_000).await, "{}", world.runs.count());
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert!(until(10 * SECOND, || committed(&world) == 10_000).await);
    assert_eq!(marks_with_started(&world), 10_000);
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_a_window_whose_workers_die_twice_only_what_ran_or_was_next_runs_alone() {
    let world = World::new(1, 1);
    emit(&world, 2000);
    for _death in 0..2 {
        let healthy = worker(&world, 16, |_, _| Reply::Hang);
        tokio::time::sleep(5 * SECOND).await;
        healthy.kill(OnTheirWay::Lost).await;
    }
    let _third = worker(&world, 16, |_, _| DONE);
    assert!(until(10 * SECOND, || committed(&world) == 2000).await, "{}", committed(&world));
    let alone = marks_alone(&world);
    assert!((16..=16 + 2 * 32).contains(&alone), "{alone}");
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_lost_by_a_live_process_makes_nothing_suspect() {
    let world = World::new(1, 1);
    emit(&world, 100);
    let mut first = worker(&world, 10, |_, _| Reply::Hang);
    tokio::time::sleep(SECOND).await;
    // The coordinator is away: everybody loses everything, and comes back.
    first.lose(&[jobs(&world)]).await;
    tokio::time::sleep(SECOND).await;
    let _second = worker(&world, 10, |_, _| DONE);
    assert!(until(10 * SECOND, || committed(&world) == 100).await);
    assert_eq!(marks_with_started(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_was_cut_off_itself_takes_the_silence_of_another_for_no_death() {
    let world = World::new(1, 2);
    emit(&world, 100);
    let on_the_second = world.log.end(&world.jobs_partition(1)).0;
    let back = Arc::new(AtomicUsize::new(0));
    let start = |back: Arc<AtomicUsize>| {
        let script = move |_: &Job, _: usize| match back.load(Ordering::SeqCst) {
            0 => Reply::Hang,
            _ => DONE,
        };
        world.worker_with_changelog(&world.disk(), vec![world.class("c")], 10, Arc::new(script))
    };
    let (mut a, mut b) = (start(back.clone()), start(back.clone()));
    a.assign(&jobs(&world));
    b.assign(&world.jobs_partition(1));
    tokio::time::sleep(SECOND).await;
    // No broker answers: both lose what they have, and neither can say so. Then one of them is found first.
    let marks = Port::Publish(world.names.marks(TIER).to_string());
    for node in [&a, &b] {
        node.faults().always(marks.clone(), Fate::Fails(10 * MILLI));
    }
    a.lose(&[jobs(&world)]).await;
    b.lose(&[world.jobs_partition(1)]).await;
    tokio::time::sleep(100 * SECOND).await;
    b.faults().heal(&marks);
    back.store(1, Ordering::SeqCst);
    b.assign(&jobs(&world));
    b.assign(&world.jobs_partition(1));
    let group = world.group(&world.names.worker_group(TIER));
    let second = || group.position(&world.jobs_partition(1)).0;
    let all = until(10 * SECOND, || committed(&world) + second() == 100).await;
    assert!(all && on_the_second > 0, "{} and {}", committed(&world), second());
    assert_eq!(marks_with_started(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_revoke_at_its_deadline_makes_nothing_suspect() {
    let world = World::new(1, 1);
    emit(&world, 100);
    let mut first = worker(&world, 10, |_, _| Reply::Hang);
    tokio::time::sleep(SECOND).await;
    first.revoke(&[jobs(&world)], SECOND).await;
    tokio::time::sleep(SECOND).await;
    let _second = worker(&world, 10, |_, _| DONE);
    assert!(until(10 * SECOND, || committed(&world) == 100).await);
    assert_eq!(marks_with_started(&world), 0);
}

#[tokio::test(start_paused = true)]
async fn in_order_what_runs_with_care_still_counts_its_attempts() {
    let world = World::new(1, 1);
    emit(&world, 1);
    let mut attempts = 0;
    for _death in 0..3 {
        let node = worker_in_order(&world, |_, _| fails());
        let before = world.runs.count();
        if !until(120 * SECOND, || world.runs.count() > before || committed(&world) == 1).await {
            break;
        }
        tokio::time::sleep(100 * MILLI).await;
        attempts = world.runs.count();
        node.kill(OnTheirWay::Lost).await;
    }
    let _node = worker_in_order(&world, |_, _| fails());
    assert!(until(600 * SECOND, || committed(&world) == 1).await);
    let dead = world.dead();
    assert_eq!(
        (attempts, world.runs.count(), dead.len()),
        (3, 4, 1),
        "no attempt was forgotten or counted twice"
    );
    assert_eq!(dead[0].header("job-error-kind"), Some(&b"transient"[..]));
}
