//! Marks in a changelog: what a new owner knows of what others did, whatever became of them.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::mark::{Phase, Step};
use tidegate_domain::{CommitPosition, Hop, JobHash, Mark, Outcome, PayloadHash, Round, UnixMillis};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::OpenerId;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{IDLE_CHECK, TIER, until};
use tidegate_pipeline::fakes::{Disk, Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::Job;
use tidegate_pipeline::ports::MarkEntry;
use tidegate_pipeline::record::OutboundRecord;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn idle_worker(
    world: &World,
    disk: &Disk,
    script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    world.worker_with_changelog(disk, vec![world.class("c")], 10, Arc::new(script))
}

fn worker(world: &World, disk: &Disk, script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static) -> Node {
    let mut node = idle_worker(world, disk, script);
    node.assign(&jobs(world));
    node
}

fn jobs(world: &World) -> TopicPartition {
    world.jobs_partition(0)
}

fn log(world: &World) -> TopicPartition {
    TopicPartition { topic: world.names.marks(TIER), partition: jobs(world).partition }
}

fn emit(world: &World, keys: std::ops::Range<usize>) {
    for n in keys {
        world.emit_job(&Event::new("c", &format!("k{n}"), "x"));
    }
}

/// Another process appends these marks to the changelog.
fn append(world: &World, entries: &[MarkEntry]) {
    let (log, mut value) = (log(world), Vec::new());
    format::write_marks(OpenerId([9; 16]), entries, &mut value);
    let (partition, value) = (Some(log.partition), Some(&value[..]));
    let record = OutboundRecord { topic: &log.topic, partition, key: None, value, headers: &[] };
    world.log.append(&record).unwrap();
}

/// That the job of this key was done.
fn done(key: usize) -> MarkEntry {
    let event = format!("k{key}");
    let step = Step {
        round: Round(0),
        hop: Hop(0),
        phase: Phase::Tried,
        n: 1,
        job: JobHash(7),
        payload: PayloadHash(7),
        written_at: UnixMillis(0),
    };
    MarkEntry { key: Event::new("c", &event, "x").idempotency_key(), mark: Mark::done(step) }
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&jobs(world)).0
}

/// What the changelog says, a letter for each record.
fn entries(world: &World) -> String {
    let letter = |record: &tidegate_pipeline::Record| match format::read(record.value().unwrap()).unwrap().1 {
        Entry::Marks(_) => 'm',
        Entry::Opened { .. } => 'O',
        Entry::Closed => 'C',
    };
    world.records(&world.names.marks(TIER)).iter().map(letter).collect()
}

/// Delivers the same events once more: each has been done, so none runs.
async fn nothing_runs_again(world: &World, keys: std::ops::Range<usize>) {
    let (runs, position) = (world.runs.count(), committed(world));
    let more = i64::try_from(keys.len()).unwrap();
    emit(world, keys);
    assert!(until(10 * SECOND, || committed(world) == position + more).await, "{}", committed(world));
    assert_eq!(world.runs.count(), runs);
}

#[tokio::test(start_paused = true)]
async fn a_new_owner_with_an_empty_disk_knows_all_that_was_done() {
    let world = World::new(1, 1);
    let mut first = worker(&world, &world.disk(), |_, _| DONE);
    emit(&world, 0..1000);
    assert!(until(5 * SECOND, || committed(&world) == 1000).await);
    first.revoke(&[jobs(&world)], SECOND).await;
    let _second = worker(&world, &world.disk(), |_, _| DONE);
    nothing_runs_again(&world, 0..1000).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_changelog_that_lost_its_end_and_went_on_past_it_is_made_anew() {
    let world = World::new(1, 1);
    let (a, b) = (world.disk(), world.disk());
    let mut first = worker(&world, &a, |_, _| DONE);
    for number in 0..5 {
        emit(&world, number..number + 1);
        assert!(until(5 * SECOND, || committed(&world) == number as i64 + 1).await);
    }
    first.revoke(&[jobs(&world)], SECOND).await;
    // The replica that leads now had not come to the last marks and the end of that owner.
    world.lose_end_of_changelog(0, 4);
    let mut second = worker(&world, &b, |_, _| DONE);
    for number in 10..15 {
        let before = committed(&world);
        emit(&world, number..number + 1);
        assert!(until(5 * SECOND, || committed(&world) == before + 1).await);
    }
    second.revoke(&[jobs(&world)], SECOND).await;
    // By its position, the copy of the first owner goes on in the middle of what the second one wrote.
    let _third = worker(&world, &a, |_, _| DONE);
    nothing_runs_again(&world, 10..15).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_changelog_lost_its_end_and_went_on_past_it_reads_it_anew() {
    let world = World::new(1, 1);
    let _owner = worker(&world, &world.disk(), |_, _| DONE);
    emit(&world, 0..5);
    assert!(until(5 * SECOND, || committed(&world) == 5).await);
    world.lose_end_of_changelog(0, 1);
    // A deposed owner tells of a job that this one is to know, and more than it lost.
    append(&world, &[done(7)]);
    append(&world, &[]);
    append(&world, &[]);
    tokio::time::sleep(2 * IDLE_CHECK).await;
    nothing_runs_again(&world, 7..8).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_copy_of_a_changelog_that_lost_its_end_is_made_anew_too() {
    let world = World::new(1, 1);
    let owner = worker(&world, &world.disk(), |_, _| DONE);
    emit(&world, 0..5);
    assert!(until(5 * SECOND, || committed(&world) == 5).await);
    world.lose_end_of_changelog(0, 1);
    owner.parts.table.as_ref().unwrap().0.set_aside(&jobs(&world));
    emit(&world, 5..10);
    assert!(until(20 * SECOND, || committed(&world) == 10).await, "{:?}", owner.told().troubles);
}

#[tokio::test(start_paused = true)]
async fn a_process_is_warm_when_its_first_partitions_are_restored_and_stays_so() {
    let world = World::new(1, 2);
    let mut node =
        world.worker_with_changelog(&world.disk(), vec![world.class("c")], 10, Arc::new(|_: &Job, _| DONE));
    node.faults().always(Port::Fetch(world.names.marks(TIER).to_string()), Fate::Succeeds(60 * SECOND));
    node.assign(&jobs(&world));
    let first = node.parts.first.clone();
    let restored = tokio::time::timeout(50 * SECOND, first.restored()).await;
    assert!(restored.is_err(), "its marks are being read");
    assert!(tokio::time::timeout(20 * SECOND, first.restored()).await.is_ok());
    node.assign(&world.jobs_partition(1));
    assert!(tokio::time::timeout(SECOND, first.restored()).await.is_ok(), "a later one changes nothing");
}

#[tokio::test(start_paused = true)]
async fn the_normal_path_writes_nothing_but_its_marks() {
    let world = World::new(1, 1);
    let mut node = worker(&world, &world.disk(), |_, _| DONE);
    emit(&world, 0..100);
    assert!(until(5 * SECOND, || committed(&world) == 100).await);
    node.revoke(&[jobs(&world)], SECOND).await;
    let entries = entries(&world);
    let marks = entries.trim_start_matches('O').trim_end_matches('C');
    assert!(
        entries.starts_with('O') && entries.ends_with('C') && marks.chars().all(|c| c == 'm'),
        "{entries}"
    );
    assert!(marks.len() <= 3, "{entries}");
}

#[tokio::test(start_paused = true)]
async fn only_what_the_local_copy_misses_is_read_and_all_of_it_when_unflushed_marks_are_lost() {
    let world = World::new(1, 1);
    let disk = world.disk();
    let node = worker(&world, &disk, |_, _| DONE);
    for _ in 0..50 {
        emit(&world, 0..20);
        tokio::time::sleep(20 * MILLI).await;
    }
    assert!(until(5 * SECOND, || committed(&world) == 1000).await);
    let before = disk.position(&jobs(&world)).unwrap();
    node.kill(OnTheirWay::Lost).await;
    let flushed = disk.position(&jobs(&world));
    assert!(flushed.is_none_or(|flushed| flushed <= before));
    let _again = worker(&world, &disk, |_, _| DONE);
    nothing_runs_again(&world, 0..20).await;
    assert!(disk.position(&jobs(&world)).unwrap() > before);
}

/// A deposed owner whose handler ends late; `meanwhile` is when, after the new owner was assigned.
async fn late_append(meanwhile: Duration, slow_restore: Duration) {
    let world = World::new(1, 1);
    let mut old = worker(&world, &world.disk(), |_, _| Reply::After(5 * SECOND, Outcome::Done));
    emit(&world, 0..1);
    tokio::time::sleep(SECOND).await;
    // The pause of a SIGSTOP: it does not know that it is deposed.
    old.depose(&jobs(&world));
    tokio::time::sleep((4 * SECOND).saturating_sub(meanwhile)).await;
    // The new owner's own run hangs, so only the old one's success can settle the key's later copies.
    let mut new = idle_worker(&world, &world.disk(), |_, _| Reply::Hang);
    new.faults().script(Port::Fetch(world.names.marks(TIER).to_string()), [Fate::Succeeds(slow_restore)]);
    new.assign(&jobs(&world));
    tokio::time::sleep(meanwhile + slow_restore + SECOND + IDLE_CHECK).await;
    let runs = world.runs.count();
    emit(&world, 0..1);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(world.runs.count(), runs, "the old owner's success was not seen");
    old.lose(&[jobs(&world)]).await;
    assert!(world.runs.all().iter().any(|run| run.node == old.id() && run.ended.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_late_append_before_during_and_after_the_restore_is_known_to_the_new_owner() {
    late_append(Duration::ZERO, MILLI).await;
    late_append(SECOND, 3 * SECOND).await;
    late_append(3 * SECOND, MILLI).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_marks_between_own_ones_are_joined_before_anything_settles() {
    let world = World::new(1, 1);
    let mut old = worker(&world, &world.disk(), |job, _| match job.record().key() {
        Some(b"k0") => Reply::After(2 * SECOND, Outcome::Done),
        _ => DONE,
    });
    emit(&world, 0..1);
    tokio::time::sleep(SECOND).await;
    old.depose(&jobs(&world));
    let disk = world.disk();
    let _new = worker(&world, &disk, |job, _| match job.record().key() {
        Some(b"k0") => Reply::Hang,
        _ => DONE,
    });
    // A steady flow of own appends: the foreign one shows as a gap.
    for n in 1..40 {
        emit(&world, n..n + 1);
        tokio::time::sleep(100 * MILLI).await;
    }
    let key = Event::new("c", "k0", "x").idempotency_key();
    assert!(disk.get(&jobs(&world), &key).done.is_some());
    assert_eq!(disk.position(&jobs(&world)), Some(world.log.end(&log(&world))));
}

#[tokio::test(start_paused = true)]
async fn away_and_back_with_a_stale_copy_knows_what_was_done_in_between() {
    let world = World::new(1, 1);
    let (disk_a, disk_b) = (world.disk(), world.disk());
    let mut a = worker(&world, &disk_a, |_, _| DONE);
    emit(&world, 0..10);
    assert!(until(5 * SECOND, || committed(&world) == 10).await);
    a.revoke(&[jobs(&world)], SECOND).await;
    let stale = disk_a.position(&jobs(&world));
    let mut b = worker(&world, &disk_b, |_, _| DONE);
    emit(&world, 10..20);
    assert!(until(5 * SECOND, || committed(&world) == 20).await);
    b.revoke(&[jobs(&world)], SECOND).await;
    assert_eq!(disk_a.position(&jobs(&world)), stale);
    a.assign(&jobs(&world));
    nothing_runs_again(&world, 0..20).await;
}

/// The node comes back with a stale copy, and what it misses can't be read at first.
async fn back_while_the_log_cannot_be_read(failures: usize) {
    let world = World::new(1, 1);
    let (disk_a, disk_b) = (world.disk(), world.disk());
    let mut a = worker(&world, &disk_a, |_, _| DONE);
    emit(&world, 0..10);
    assert!(until(5 * SECOND, || committed(&world) == 10).await);
    a.revoke(&[jobs(&world)], SECOND).await;
    let mut b = worker(&world, &disk_b, |_, _| DONE);
    emit(&world, 10..20);
    assert!(until(5 * SECOND, || committed(&world) == 20).await);
    b.revoke(&[jobs(&world)], SECOND).await;
    emit(&world, 10..20);
    let port = Port::Fetch(world.names.marks(TIER).to_string());
    a.faults().script(port, std::iter::repeat_n(Fate::Fails(MILLI), failures));
    a.assign(&jobs(&world));
    assert!(until(60 * SECOND, || committed(&world) == 30).await);
    assert_eq!(world.runs.count(), 20, "what was done meanwhile is known");
}

#[tokio::test(start_paused = true)]
async fn an_opening_whose_restore_fails_begins_anew_and_believes_no_stale_copy() {
    back_while_the_log_cannot_be_read(1).await;
    back_while_the_log_cannot_be_read(3).await;
}

#[tokio::test(start_paused = true)]
async fn two_deposed_owners_that_end_late_settle_nothing_and_are_both_known() {
    let world = World::new(1, 1);
    let slow = |key: &'static [u8]| {
        move |job: &Job, _: usize| {
            if job.record().key() == Some(key) {
                Reply::After(4 * SECOND, Outcome::Done)
            } else {
                Reply::Hang
            }
        }
    };
    emit(&world, 0..2);
    let mut a = worker(&world, &world.disk(), slow(b"k0"));
    tokio::time::sleep(SECOND).await;
    a.depose(&jobs(&world));
    let mut b = worker(&world, &world.disk(), slow(b"k1"));
    tokio::time::sleep(SECOND).await;
    b.depose(&jobs(&world));
    let _c = worker(&world, &world.disk(), |_, _| Reply::Hang);
    tokio::time::sleep(8 * SECOND).await;
    a.lose(&[jobs(&world)]).await;
    b.lose(&[jobs(&world)]).await;
    assert_eq!(committed(&world), 0, "the owner's own runs hang");
    let runs = world.runs.count();
    emit(&world, 0..2);
    tokio::time::sleep(20 * SECOND).await;
    // What hung was cancelled at its limit and waits for its retry; nothing else ran.
    assert!(world.runs.since(runs).is_empty(), "{:?}", world.runs.since(runs));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_set_aside_is_restored_and_the_partition_goes_on() {
    let world = World::new(1, 1);
    let node = worker(&world, &world.disk(), |_, _| DONE);
    emit(&world, 0..10);
    assert!(until(5 * SECOND, || committed(&world) == 10).await);
    node.parts.table.as_ref().unwrap().0.set_aside(&jobs(&world));
    nothing_runs_again(&world, 0..10).await;
    emit(&world, 10..20);
    assert!(until(5 * SECOND, || committed(&world) == 30).await);
    assert_eq!(world.runs.count(), 20);
    assert_eq!(entries(&world).matches('O').count(), 1, "it is still the same owner");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_went_back_is_no_reason_to_trust_the_copy() {
    let world = World::new(1, 1);
    let disk = world.disk();
    let mut node = worker(&world, &disk, |_, _| DONE);
    emit(&world, 0..10);
    assert!(until(5 * SECOND, || committed(&world) == 10).await);
    node.revoke(&[jobs(&world)], SECOND).await;
    world.log.truncate(&log(&world), CommitPosition(0));
    node.assign(&jobs(&world));
    emit(&world, 0..10);
    assert!(until(5 * SECOND, || committed(&world) == 20).await);
    assert_eq!(world.runs.count(), 20, "what the changelog does not hold is not known");
    assert_eq!(disk.position(&jobs(&world)), Some(world.log.end(&log(&world))));
}

#[tokio::test(start_paused = true)]
async fn other_partitions_go_on_while_one_is_restored() {
    let world = World::new(1, 2);
    let mut node = idle_worker(&world, &world.disk(), |_, _| DONE);
    node.assign(&world.jobs_partition(0));
    for n in 0..50 {
        world.emit_job(&Event::new("c", &format!("k{n}"), "x"));
    }
    tokio::time::sleep(SECOND).await;
    let first = world.runs.count();
    node.faults().script(Port::Fetch(world.names.marks(TIER).to_string()), [Fate::Succeeds(60 * SECOND)]);
    world.log.append_marks_of_nobody(&TopicPartition {
        partition: world.jobs_partition(1).partition,
        ..log(&world)
    });
    node.assign(&world.jobs_partition(1));
    for n in 50..100 {
        world.emit_job(&Event::new("c", &format!("k{n}"), "x"));
    }
    tokio::time::sleep(SECOND).await;
    let second = world.runs.count();
    assert!(first > 0 && second > first && second < 100, "{first} {second}");
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(world.runs.count(), 100);
}

#[tokio::test(start_paused = true)]
async fn while_the_changelog_cannot_be_written_nothing_is_settled_and_nothing_runs_twice() {
    for fate in [Fate::Refused, Fate::Fails(10 * MILLI), Fate::LosesAnswer(10 * MILLI)] {
        let world = World::new(1, 1);
        let node = worker(&world, &world.disk(), |_, _| DONE);
        tokio::time::sleep(SECOND).await;
        let port = Port::Publish(world.names.marks(TIER).to_string());
        node.faults().always(port.clone(), fate);
        emit(&world, 0..10);
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((committed(&world), world.runs.count()), (0, 10), "{fate:?}");
        assert!(!node.told().troubles.is_empty());
        node.faults().heal(&port);
        assert!(until(5 * SECOND, || committed(&world) == 10).await, "{fate:?}");
        assert_eq!(world.runs.count(), 10);
        assert!(node.told().troubles.is_empty());
    }
}

fn marks_port(world: &World) -> Port {
    Port::Publish(world.names.marks(TIER).to_string())
}

#[tokio::test(start_paused = true)]
async fn that_a_live_owner_let_go_is_said_again_until_the_changelog_has_it() {
    let world = World::new(1, 1);
    emit(&world, 0..10);
    let mut old = worker(&world, &world.disk(), |_, _| Reply::Hang);
    tokio::time::sleep(SECOND).await;
    old.faults().always(marks_port(&world), Fate::Fails(10 * MILLI));
    old.lose(&[jobs(&world)]).await;
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(entries(&world), "O");
    old.faults().heal(&marks_port(&world));
    assert!(until(2 * IDLE_CHECK, || entries(&world) == "OC").await, "{}", entries(&world));
    let _new = worker(&world, &world.disk(), |_, _| DONE);
    assert!(until(10 * SECOND, || committed(&world) == 10).await);
    assert_eq!(entries(&world).matches('C').count(), 1, "once is enough: {}", entries(&world));
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_has_it_back_does_not_say_any_more_that_it_let_go() {
    let world = World::new(1, 1);
    let mut node = worker(&world, &world.disk(), |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    node.faults().always(marks_port(&world), Fate::Fails(10 * MILLI));
    node.lose(&[jobs(&world)]).await;
    tokio::time::sleep(SECOND).await;
    node.faults().heal(&marks_port(&world));
    node.assign(&jobs(&world));
    emit(&world, 0..10);
    assert!(until(10 * SECOND, || committed(&world) == 10).await);
    tokio::time::sleep(3 * IDLE_CHECK).await;
    assert!(!entries(&world).contains('C'), "{}", entries(&world));
}

#[tokio::test(start_paused = true)]
async fn what_was_done_and_not_marked_when_its_partition_was_lost_is_known_to_the_next_owner() {
    for fate in
        [Fate::Refused, Fate::Fails(10 * MILLI), Fate::Fails(30 * SECOND), Fate::LosesAnswer(10 * MILLI)]
    {
        let world = World::new(1, 1);
        let mut old = worker(&world, &world.disk(), |_, _| DONE);
        tokio::time::sleep(SECOND).await;
        old.faults().always(marks_port(&world), fate);
        emit(&world, 0..50);
        tokio::time::sleep(SECOND).await;
        assert_eq!((committed(&world), world.runs.count()), (0, 50), "{fate:?}");
        old.lose(&[jobs(&world)]).await;
        tokio::time::sleep(50 * SECOND).await;
        old.faults().heal(&marks_port(&world));
        tokio::time::sleep(31 * SECOND).await;
        let _new = worker(&world, &world.disk(), |_, _| DONE);
        assert!(until(10 * SECOND, || committed(&world) == 50).await);
        assert_eq!(world.runs.count(), 50, "{fate:?}");
        let written = world.records(&world.names.marks(TIER)).len();
        tokio::time::sleep(50 * SECOND).await;
        assert_eq!(world.records(&world.names.marks(TIER)).len(), written, "it is told once");
    }
}

#[tokio::test(start_paused = true)]
async fn marks_that_gather_while_the_changelog_is_slow_take_several_records() {
    let mut world = World::new(1, 1);
    world.shard.window_records = 10_000;
    let node = worker(&world, &world.disk(), |_, _| DONE);
    tokio::time::sleep(SECOND).await;
    node.faults().script(marks_port(&world), [Fate::Succeeds(5 * SECOND)]);
    emit(&world, 0..3500);
    assert!(until(10 * SECOND, || committed(&world) == 3500).await, "{}", committed(&world));
    let marks = |record: &tidegate_pipeline::Record| match format::read(record.value().unwrap()).unwrap().1 {
        Entry::Marks(marks) => marks.len(),
        _ => 0,
    };
    let sizes: Vec<usize> = world.records(&world.names.marks(TIER)).iter().map(marks).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 3500);
    assert!(sizes.iter().all(|&marks| marks <= 1000) && sizes.contains(&1000), "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_given_back_before_it_is_open_is_no_trouble() {
    let world = World::new(1, 1);
    let mut node = idle_worker(&world, &world.disk(), |_, _| DONE);
    node.faults().script(marks_port(&world), [Fate::Succeeds(5 * SECOND)]);
    node.assign(&jobs(&world));
    tokio::time::sleep(SECOND).await;
    node.drain(&[jobs(&world)], 10 * SECOND).await;
    assert_eq!(node.told().troubles, [].into());
    assert_eq!(entries(&world), "OC");
}
