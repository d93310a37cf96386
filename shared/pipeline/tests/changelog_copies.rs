//! Copies of marks that are lost while a partition is at work, and answers that come late: what is settled is in the copy, and nothing
//! waits for ever.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::mark::{Phase, Starts};
use tidegate_domain::{IdempotencyKey, Outcome};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{IDLE_CHECK, TIER, until};
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::Job;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn jobs(world: &World) -> TopicPartition {
    world.jobs_partition(0)
}

fn log(world: &World) -> TopicPartition {
    TopicPartition { topic: world.names.marks(TIER), partition: jobs(world).partition }
}

fn writes(world: &World) -> Port {
    Port::Publish(world.names.marks(TIER).to_string())
}

fn reads(world: &World) -> Port {
    Port::Fetch(world.names.marks(TIER).to_string())
}

/// A worker that is assigned the first partition, which is open after a moment.
fn worker(world: &World, script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static) -> Node {
    let mut node = world.worker_with_changelog(&world.disk(), vec![world.class("c")], 10, Arc::new(script));
    node.assign(&jobs(world));
    node
}

fn emit(world: &World, key: &str) {
    world.emit_job(&Event::new("c", key, "x"));
}

fn lose_copy(node: &Node, at: &TopicPartition) {
    node.parts.table.as_ref().unwrap().0.set_aside(at);
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&jobs(world)).0
}

fn entries(world: &World) -> Vec<Entry> {
    let records = world.records(&world.names.marks(TIER));
    records.iter().map(|record| format::read(record.value().unwrap()).unwrap().1).collect()
}

/// What the changelog says, a letter for each record.
fn letters(world: &World) -> String {
    let letter = |entry: Entry| match entry {
        Entry::Marks(_) => 'm',
        Entry::Opened { .. } => 'O',
        Entry::Closed => 'C',
    };
    entries(world).into_iter().map(letter).collect()
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_was_on_its_way_when_the_copy_was_lost_is_in_the_new_copy_when_it_settles() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    node.faults().script(writes(&world), [Fate::Succeeds(2500 * MILLI)]);
    emit(&world, "a");
    tokio::time::sleep(100 * MILLI).await;
    lose_copy(&node, &jobs(&world));
    // Asked for, so that it is seen that the copy is gone: it is there again before the mark is acknowledged.
    emit(&world, "a");
    assert!(until(10 * SECOND, || committed(&world) == 2).await);
    emit(&world, "a");
    assert!(until(10 * SECOND, || committed(&world) == 3).await);
    assert_eq!(world.runs.count(), 1, "it ran again although its owner had settled it as done");
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_waits_for_anothers_to_be_read_is_answered_although_the_copy_is_lost_meanwhile() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    world.log.append_marks_of_nobody(&log(&world));
    node.faults().script(reads(&world), [Fate::Succeeds(SECOND)]);
    emit(&world, "a");
    tokio::time::sleep(500 * MILLI).await;
    lose_copy(&node, &jobs(&world));
    emit(&world, "b");
    assert!(until(20 * SECOND, || committed(&world) == 2).await, "{:?}", node.told().troubles);
    assert_eq!(world.runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_was_asked_for_before_more_was_appended_is_no_log_that_went_back() {
    let world = World::new(1, 1);
    let node = worker(&world, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    node.faults().script(reads(&world), [Fate::Succeeds(1500 * MILLI)]);
    tokio::time::sleep(IDLE_CHECK - SECOND + 100 * MILLI).await;
    emit(&world, "a");
    assert!(until(SECOND, || committed(&world) == 1).await);
    tokio::time::sleep(2 * SECOND).await;
    emit(&world, "b");
    assert!(until(SECOND, || committed(&world) == 2).await);
    assert_eq!(letters(&world), "Omm", "nothing was opened anew");
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_opening_was_not_answered_says_that_it_let_go() {
    let world = World::new(1, 1);
    emit(&world, "a");
    let mut node = world.worker_with_changelog(
        &world.disk(),
        vec![world.class("c")],
        10,
        Arc::new(|_: &Job, _: usize| DONE),
    );
    node.faults().script(writes(&world), [Fate::LosesAnswer(100 * MILLI)]);
    node.assign(&jobs(&world));
    tokio::time::sleep(150 * MILLI).await;
    node.lose(&[jobs(&world)]).await;
    assert!(until(2 * IDLE_CHECK, || letters(&world) == "OC").await, "{}", letters(&world));
}

/// Keys of jobs in a partition of two.
fn keys_of(number: i32) -> impl Iterator<Item = &'static str> {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].into_iter();
    keys.filter(move |key| Event::new("c", key, "x").lane().partition(2).0 == number)
}

/// Two owners of the first partition die while these jobs run: the third has them run alone, one after the other.
async fn two_deaths(world: &World, keys: &[&str]) -> Node {
    keys.iter().for_each(|key| emit(world, key));
    for _death in 0..2 {
        let healthy = worker(world, |_, _| Reply::Hang);
        tokio::time::sleep(5 * SECOND).await;
        healthy.kill(OnTheirWay::Lost).await;
    }
    let before = world.runs.count();
    let third = worker(world, |_, _| Reply::After(3 * SECOND, Outcome::Done));
    assert!(until(5 * SECOND, || world.runs.count() > before).await);
    third
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_waits_to_be_alone_is_judged_by_a_whole_copy() {
    let world = World::new(1, 1);
    let third = two_deaths(&world, &["a", "b"]).await;
    // One runs alone, the other waits for its turn.
    lose_copy(&third, &jobs(&world));
    third.faults().always(reads(&world), Fate::Succeeds(4 * SECOND));
    assert!(until(60 * SECOND, || committed(&world) == 2).await);
    let alone: BTreeSet<IdempotencyKey> = entries(&world)
        .into_iter()
        .filter_map(|entry| if let Entry::Marks(marks) = entry { Some(marks) } else { None })
        .flatten()
        .filter(|entry| {
            let step = entry.mark.step.filter(|step| step.phase == Phase::Started);
            step.is_some_and(|step| Starts::of(step.n).crashes == 2)
        })
        .map(|entry| entry.key)
        .collect();
    assert_eq!(alone.len(), 2, "both ran alone, and say so");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_whose_partition_cannot_go_on_holds_up_no_other_partition() {
    let world = World::new(1, 2);
    let ours: Vec<&str> = keys_of(0).take(2).collect();
    let mut third = two_deaths(&world, &ours).await;
    third.assign(&world.jobs_partition(1));
    tokio::time::sleep(SECOND).await;
    lose_copy(&third, &jobs(&world));
    third.faults().always(reads(&world), Fate::Succeeds(60 * SECOND));
    let before = world.runs.count();
    emit(&world, keys_of(1).next().unwrap());
    assert!(until(10 * SECOND, || world.runs.count() > before).await, "{:?}", third.told().troubles);
    assert!(until(300 * SECOND, || committed(&world) == 2).await, "{:?}", third.told().troubles);
}

/// What holds a suspect's partition up just when the suspect has the process to itself.
async fn holds_up_no_other(
    world: &World,
    third: &mut Node,
    hold_up: impl FnOnce(&Node),
    heal: impl FnOnce(&Node),
) {
    third.assign(&world.jobs_partition(1));
    tokio::time::sleep(500 * MILLI).await;
    hold_up(third);
    // The first suspect ends, and the second one's turn comes.
    tokio::time::sleep(4 * SECOND).await;
    let before = world.runs.count();
    emit(world, keys_of(1).next().unwrap());
    let told = |node: &Node| format!("{:?}", node.told().troubles);
    assert!(until(10 * SECOND, || world.runs.count() > before).await, "{}", told(third));
    heal(third);
    let theirs = || world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(1)).0;
    let end = world.log.end(&jobs(world)).0;
    assert!(until(120 * SECOND, || committed(world) == end && theirs() == 1).await, "{}", told(third));
}

#[tokio::test(start_paused = true)]
async fn a_suspect_whose_mark_is_not_answered_holds_up_no_other_partition() {
    let world = World::new(1, 2);
    let ours: Vec<&str> = keys_of(0).take(2).collect();
    let mut third = two_deaths(&world, &ours).await;
    let never = |node: &Node| node.faults().always(writes(&world), Fate::Fails(60 * SECOND));
    holds_up_no_other(&world, &mut third, never, |node| node.faults().heal(&writes(&world))).await;
    assert!(world.dead().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_suspect_whose_mark_is_refused_holds_up_no_other_partition() {
    let world = World::new(1, 2);
    let ours: Vec<&str> = keys_of(0).take(2).collect();
    let mut third = two_deaths(&world, &ours).await;
    let refused = |node: &Node| node.faults().always(writes(&world), Fate::Refused);
    holds_up_no_other(&world, &mut third, refused, |node| node.faults().heal(&writes(&world))).await;
    assert!(world.dead().is_empty());
}

/// A third worker whose first suspect fails for good while the dead-letter topic can't be written, and whose second one is marked as
/// alone before that is known.
async fn suspect_marked_while_its_partition_stops(world: &World) -> Node {
    let ours: Vec<&str> = keys_of(0).take(2).collect();
    ours.iter().for_each(|key| emit(world, key));
    for _death in 0..2 {
        let healthy = worker(world, |_, _| Reply::Hang);
        tokio::time::sleep(5 * SECOND).await;
        healthy.kill(OnTheirWay::Lost).await;
    }
    let (first, before) = (ours[0].to_owned(), world.runs.count());
    let third = worker(world, move |job, _| match job.record().key() {
        Some(key) if key == first.as_bytes() => {
            Reply::After(SECOND, Outcome::Failed(tidegate_domain::Failure::permanent("p", "p")))
        }
        _ => Reply::After(SECOND, Outcome::Done),
    });
    assert!(until(5 * SECOND, || world.runs.count() > before).await);
    third.faults().always(Port::Publish(world.names.dlq().to_string()), Fate::Fails(500 * MILLI));
    third.faults().always(writes(world), Fate::Succeeds(SECOND));
    third
}

#[tokio::test(start_paused = true)]
async fn a_suspect_whose_partition_stops_once_it_is_marked_holds_up_no_other_partition() {
    let world = World::new(1, 2);
    let mut third = suspect_marked_while_its_partition_stops(&world).await;
    let heal = |node: &Node| node.faults().heal(&Port::Publish(world.names.dlq().to_string()));
    holds_up_no_other(&world, &mut third, |_| {}, heal).await;
    assert_eq!(world.dead().len(), 1, "what failed for good, and nothing that is blamed");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_gave_its_turn_back_is_not_blamed_for_a_death_of_that_time() {
    let world = World::new(1, 2);
    let third = suspect_marked_while_its_partition_stops(&world).await;
    tokio::time::sleep(5 * SECOND).await;
    third.kill(OnTheirWay::Lost).await;
    let before = world.runs.count();
    let _fourth = worker(&world, |_, _| DONE);
    assert!(until(60 * SECOND, || committed(&world) == 2).await);
    let alone = entries(&world).iter().filter(|entry| matches!(entry, Entry::Marks(marks) if marks.iter().any(|marked| {
        marked.mark.step.is_some_and(|step| step.phase == Phase::Started && Starts::of(step.n).crashes == 2)
    }))).count();
    assert!(alone >= 3, "the second one was marked as alone twice, and the first one once: {alone}");
    // The first one was alone in its third process, so far as its marks say.
    assert!(world.runs.count() > before, "the second one runs");
    let dead: Vec<_> = world.dead().iter().map(|record| record.key().unwrap().to_vec()).collect();
    assert!(!dead.contains(&keys_of(0).nth(1).unwrap().as_bytes().to_vec()), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_partition_must_be_told_is_said_again_without_waiting_for_a_tick() {
    let mut world = World::new(1, 2);
    world.shard.commit_interval = 60 * SECOND;
    let mut node = worker(&world, |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    node.faults().script(writes(&world), [Fate::Fails(50 * MILLI), Fate::Fails(50 * MILLI)]);
    emit(&world, keys_of(0).next().unwrap());
    tokio::time::sleep(20 * MILLI).await;
    node.lose(&[jobs(&world)]).await;
    tokio::time::sleep(100 * MILLI).await;
    // Something else wakes the shard meanwhile.
    node.assign(&world.jobs_partition(1));
    let told =
        |entry: &Entry| matches!(entry, Entry::Marks(marks) if marks.iter().any(|m| m.mark.done.is_some()));
    assert!(until(SECOND, || entries(&world).iter().any(told)).await);
    assert_eq!(world.runs.count(), 1);
}
