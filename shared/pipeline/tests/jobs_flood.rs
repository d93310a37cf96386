//! Classes that fail altogether: parked, probed, and let go when a probe was answered.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_domain::flood::FloodLimits;
use tidegate_domain::mark::Phase;
use tidegate_domain::{Attempt, Failure, Hop, Outcome};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::events::{ClassMetrics, PARKED_RECORDS};
use tidegate_pipeline::fakes::events::job_header;
use tidegate_pipeline::fakes::handlers::{End, Run};
use tidegate_pipeline::fakes::world::TIER;
use tidegate_pipeline::fakes::{Event, Fate, Node, OneGauge, Port, Reply, World};
use tidegate_pipeline::jobs::{Class, Guard, Job, Ordering as LaneOrder};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(600);
const DONE: Reply = Reply::Now(Outcome::Done);

const LIMITS: FloodLimits = FloodLimits {
    failures: 0.5,
    of: 4,
    within: Duration::from_secs(10),
    probe_after: SECOND,
    probe_at_most: Duration::from_secs(4),
};

/// What the guarded class `c` depends on. The class `d` depends on nothing.
#[derive(Clone, Default)]
struct Dependency(Arc<AtomicBool>);

impl Dependency {
    fn is_back(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn answers(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails class `c` by `failure` while it is away; every run of it takes so long.
    fn script(
        &self,
        took: Duration,
        failure: Outcome,
    ) -> impl Fn(&Job, usize) -> Reply + Send + Sync + 'static {
        let this = self.clone();
        move |job, _| match job.header().is_ok_and(|header| header.class == "d") || this.answers() {
            true => DONE,
            false if took.is_zero() => Reply::Now(failure.clone()),
            false => Reply::After(took, failure.clone()),
        }
    }
}

fn away() -> Outcome {
    Outcome::Failed(Failure::transient("away", "away"))
}

fn guarded(world: &World) -> Class {
    Class { guard: Guard::new("c", LIMITS), ..world.class("c") }
}

fn worker(
    world: &World,
    class: &Class,
    partitions: &[i32],
    script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    let mut node = world.worker(vec![class.clone(), world.class("d")], 10, Arc::new(script));
    partitions.iter().for_each(|&number| node.assign(&world.jobs_partition(number)));
    node
}

/// Jobs of a class, each in a lane of its own.
fn emit(world: &World, class: &str, count: usize) {
    for n in 0..count {
        world.emit_job(&Event::new(class, &format!("{class}{n}"), "x"));
    }
}

fn runs_of(world: &World, class: &str) -> Vec<Run> {
    let ending = format!("/{class}");
    world.runs.all().into_iter().filter(|run| run.job_id.ends_with(&ending)).collect()
}

fn done(runs: &[Run]) -> BTreeSet<&str> {
    let is_done = |run: &&Run| matches!(run.ended, Some((_, End::Answered(Outcome::Done))));
    runs.iter().filter(is_done).map(|run| run.job_id.as_str()).collect()
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(0)).0
}

fn longest_topic(world: &World) -> Vec<tidegate_pipeline::record::Record> {
    world.records(&world.names.delay(TIER, LONGEST))
}

#[tokio::test(start_paused = true)]
async fn a_class_that_fails_altogether_is_parked_and_other_classes_of_its_partition_pass() {
    let world = World::new(1, 1);
    let (class, dependency) = (guarded(&world), Dependency::default());
    let _node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    for n in 0..20 {
        world.emit_job(&Event::new("c", &format!("c{n}"), "x"));
        world.emit_job(&Event::new("d", &format!("d{n}"), "x"));
    }
    tokio::time::sleep(SECOND / 2).await;
    assert!(class.guard.is_parked());
    assert_eq!((runs_of(&world, "c").len(), done(&runs_of(&world, "d")).len()), (4, 20));
    assert_eq!(committed(&world), 8, "up to the first parked one");
    // Also what comes later.
    for n in 20..40 {
        world.emit_job(&Event::new("d", &format!("d{n}"), "x"));
    }
    tokio::time::sleep(SECOND / 4).await;
    assert_eq!((runs_of(&world, "c").len(), done(&runs_of(&world, "d")).len()), (4, 40));
}

#[tokio::test(start_paused = true)]
async fn one_probe_at_a_time_is_run_and_each_that_fails_is_followed_by_a_longer_wait() {
    let world = World::new(1, 1);
    let (class, dependency) = (guarded(&world), Dependency::default());
    let _node = worker(&world, &class, &[0], dependency.script(SECOND / 2, away()));
    emit(&world, "c", 40);
    tokio::time::sleep(18 * SECOND).await;
    let runs = runs_of(&world, "c");
    let (first, probes) = runs.split_at(10);
    assert!(first.iter().all(|run| run.began == runs[0].began), "as many as there are places began together");
    let mut before = first[0].ended.as_ref().unwrap().0;
    let mut waits = Vec::new();
    for probe in probes {
        waits.push((probe.began - before).as_secs_f64().round() as u64);
        // The last one may still run.
        before = probe.ended.as_ref().map_or(before, |(ended, _)| *ended);
    }
    assert_eq!(waits, [1, 2, 4, 4, 4]);
}

#[tokio::test(start_paused = true)]
async fn waiting_uses_no_attempt_and_when_a_probe_is_answered_all_go_on() {
    let world = World::new(1, 1);
    let (class, dependency) = (guarded(&world), Dependency::default());
    let _node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    let mut retry = world.retry(1 << 20);
    for &delay in world.ladder.delays() {
        retry.assign(&TopicPartition { topic: world.names.delay(TIER, delay), ..world.jobs_partition(0) });
    }
    emit(&world, "c", 40);
    tokio::time::sleep(20 * SECOND).await;
    let tried = runs_of(&world, "c").len();
    assert!(class.guard.is_parked() && tried < 12, "{tried} runs in 20 s");
    dependency.is_back();
    tokio::time::sleep(5 * SECOND).await;
    assert!(!class.guard.is_parked());
    tokio::time::sleep(60 * SECOND).await;
    let runs = runs_of(&world, "c");
    assert_eq!((done(&runs).len(), world.dead().len()), (40, 0));
    let first_runs = runs.iter().filter(|run| (run.attempt, run.hop) == (Attempt(1), Hop(0))).count();
    assert_eq!(first_runs, 40, "whatever waited was not counted, and not published");
    assert_eq!(runs.len() - 40, tried, "nothing failed since");
    assert_eq!(committed(&world) as usize, world.records(&world.names.jobs(TIER)).len());
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_has_used_its_attempt_as_any_run_has() {
    let world = World::new(1, 1);
    let (class, dependency) = (guarded(&world), Dependency::default());
    let _node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    emit(&world, "c", 5);
    tokio::time::sleep(3 * SECOND / 2).await;
    let probe = runs_of(&world, "c").pop().unwrap();
    assert_eq!((runs_of(&world, "c").len(), probe.attempt), (5, Attempt(1)));
    let copies = world.records(&world.names.delay(TIER, SECOND));
    let copy = copies.iter().filter_map(job_header).find(|header| header.job_id() == probe.job_id).unwrap();
    assert_eq!((copy.attempt, committed(&world)), (Attempt(2), 5));
}

#[tokio::test(start_paused = true)]
async fn jobs_that_fail_by_themselves_do_not_keep_their_class_parked() {
    let world = World::new(1, 1);
    let class = guarded(&world);
    // The first of all: after a restart the jobs that were done are skipped, and what failed stands together.
    let _node = worker(&world, &class, &[0], |job, _| {
        let number = job.header().map_or(0, |header| header.offset.0);
        if number <= 24 { Reply::Now(away()) } else { DONE }
    });
    emit(&world, "c", 224);
    tokio::time::sleep(SECOND / 2).await;
    assert!(class.guard.is_parked());
    // Each time that it heals, four of them park it again; one after the other they would take more than a minute.
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((done(&runs_of(&world, "c")).len(), class.guard.is_parked()), (200, false));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_answer_too() {
    let world = World::new(1, 1);
    let class = guarded(&world);
    let (permanent, began) = (Outcome::Failed(Failure::permanent("p", "p")), Instant::now());
    let _node = worker(&world, &class, &[0], move |_, _| {
        Reply::Now(if began.elapsed() < SECOND / 2 { away() } else { permanent.clone() })
    });
    emit(&world, "c", 10);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((class.guard.is_parked(), world.dead().len(), runs_of(&world, "c").len()), (false, 6, 10));
}

#[tokio::test(start_paused = true)]
async fn parked_records_hold_half_of_the_window_and_the_oldest_climb_without_using_an_attempt() {
    let mut world = World::new(1, 1);
    world.shard.window_records = 20;
    let (class, dependency) = (guarded(&world), Dependency::default());
    let _node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    emit(&world, "c", 44);
    tokio::time::sleep(SECOND / 2).await;
    // Four failed, ten are parked.
    assert_eq!((runs_of(&world, "c").len(), longest_topic(&world).len(), committed(&world)), (4, 30, 34));
    for record in longest_topic(&world) {
        let header = job_header(&record).unwrap();
        assert_eq!((header.attempt, header.hop), (Attempt(1), Hop(1)));
        let wait = header.due.since(header.first_seen);
        assert!(wait >= LONGEST.mul_f64(0.8) && wait <= LONGEST.mul_f64(1.2) + SECOND, "{wait:?}");
        let step = world.marks.get(&world.jobs_partition(0), &header.key).step.unwrap();
        assert_eq!((step.hop, step.phase), (Hop(1), Phase::Scheduled));
    }
    let dues: BTreeSet<_> =
        longest_topic(&world).iter().map(|record| job_header(record).unwrap().due).collect();
    assert!(dues.len() > 20, "each has a wait of its own");
    // What holds the window must go for others to pass, however few of them are parked.
    emit(&world, "d", 100);
    tokio::time::sleep(SECOND / 4).await;
    assert_eq!(
        (done(&runs_of(&world, "d")).len(), longest_topic(&world).len(), committed(&world)),
        (100, 40, 144)
    );
    // Nothing is left to be tried: the next one that comes is.
    dependency.is_back();
    tokio::time::sleep(60 * SECOND).await;
    assert!(class.guard.is_parked());
    world.emit_job(&Event::new("c", "later", "x"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((class.guard.is_parked(), done(&runs_of(&world, "c")).len()), (false, 1));
}

#[tokio::test(start_paused = true)]
async fn parked_records_hold_half_of_the_windows_bytes() {
    let mut world = World::new(1, 1);
    let (class, dependency) = (guarded(&world), Dependency::default());
    let payload = "x".repeat(1000);
    world.emit_job(&Event::new("c", "first", &payload));
    world.shard.window_bytes = 20 * world.records(&world.names.jobs(TIER))[0].size();
    let _node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    for n in 0..43 {
        world.emit_job(&Event::new("c", &format!("{:05}", n), &payload));
    }
    tokio::time::sleep(SECOND / 2).await;
    let climbed = longest_topic(&world).len();
    assert_eq!((runs_of(&world, "c").len(), committed(&world)), (4, 4 + climbed as i64));
    // Their sizes differ by a digit or two.
    assert!((29..=31).contains(&climbed), "{climbed} of 40");
}

#[tokio::test(start_paused = true)]
async fn while_the_longest_delay_topic_cannot_be_written_what_should_climb_stays_and_is_not_lost() {
    let mut world = World::new(1, 1);
    world.shard.window_records = 20;
    let (class, dependency) = (guarded(&world), Dependency::default());
    let node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    let topic = Port::Publish(world.names.delay(TIER, LONGEST).to_string());
    node.faults().always(topic.clone(), Fate::Refused);
    emit(&world, "c", 44);
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!((longest_topic(&world).len(), committed(&world), node.told().troubles.len()), (0, 4, 1));
    node.faults().heal(&topic);
    tokio::time::sleep(SECOND / 2).await;
    let climbed: BTreeSet<_> =
        longest_topic(&world).iter().map(|record| job_header(record).unwrap().job_id()).collect();
    assert_eq!((climbed.len(), longest_topic(&world).len()), (30, 30), "each once");
    assert_eq!((committed(&world), node.told().troubles.len()), (34, 0));
}

#[tokio::test(start_paused = true)]
async fn where_order_is_kept_nothing_climbs_and_a_window_full_of_it_is_no_sign_of_trouble() {
    let mut world = World::new(1, 1);
    world.shard.window_records = 20;
    let class = Class { ordering: LaneOrder::Key, max_attempts: 100, ..guarded(&world) };
    let dependency = Dependency::default();
    let node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    for n in 0..40 {
        // Eight lanes.
        world.emit_job(&Event::new("c", &format!("lane{}", n % 8), &n.to_string()));
        // The partition's end moves on when its window is full already.
        tokio::time::sleep(if n < 30 { MILLI } else { SECOND }).await;
    }
    tokio::time::sleep(120 * SECOND).await;
    assert!(class.guard.is_parked());
    assert_eq!((world.delayed().len(), world.dead().len(), committed(&world)), (0, 0, 0));
    let tried = runs_of(&world, "c").len();
    assert!(tried < 50, "{tried} runs in two minutes");
    assert_eq!(node.told().changes.iter().filter(|troubles| !troubles.is_empty()).count(), 0);
    dependency.is_back();
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!((class.guard.is_parked(), committed(&world)), (false, 40));
    assert_eq!(node.told().changes.iter().filter(|troubles| !troubles.is_empty()).count(), 0);
    // The first of each lane; its followers have its key and are done with it.
    let order: Vec<String> = runs_of(&world, "c")
        .iter()
        .filter(|run| matches!(run.ended, Some((_, End::Answered(Outcome::Done)))))
        .map(|run| run.job_id.clone())
        .collect();
    assert_eq!((order.len(), done(&runs_of(&world, "c")).len()), (8, 8));
    let firsts: BTreeSet<String> = (1..=8).map(|id| format!("shop.orders/0/{id}/c")).collect();
    assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), firsts);
}

#[tokio::test(start_paused = true)]
async fn a_revoke_waits_for_nothing_that_is_parked_and_the_next_owner_has_it() {
    let world = World::new(1, 1);
    let dependency = Dependency::default();
    let class = guarded(&world);
    let mut node = worker(&world, &class, &[0], dependency.script(Duration::ZERO, away()));
    emit(&world, "c", 20);
    tokio::time::sleep(SECOND / 2).await;
    let began = Instant::now();
    let positions = node.revoke(&[world.jobs_partition(0)], 60 * SECOND).await;
    assert!(began.elapsed() < 100 * MILLI, "{:?}", began.elapsed());
    assert_eq!(positions[0].1.0, 4);
    // Another process, which knows nothing of it.
    dependency.is_back();
    let _next = worker(&world, &guarded(&world), &[0], dependency.script(Duration::ZERO, away()));
    tokio::time::sleep(SECOND).await;
    assert_eq!((done(&runs_of(&world, "c")).len(), committed(&world)), (16, 20));
    assert!(class.guard.is_parked(), "nobody has probed it there");
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_process_share_one_probe_and_all_go_on_when_it_is_answered() {
    let mut world = World::new(1, 2);
    // No tick of another kind makes a shard look.
    world.shard.commit_interval = 600 * SECOND;
    let (class, dependency) = (guarded(&world), Dependency::default());
    let script = || dependency.script(SECOND / 2, away());
    let _nodes = [0, 1].map(|number| worker(&world, &class, &[number], script()));
    emit(&world, "c", 100);
    tokio::time::sleep(20 * SECOND).await;
    let probes: Vec<Run> = runs_of(&world, "c").into_iter().skip(20).collect();
    assert!(probes.len() >= 4, "{}", probes.len());
    for pair in probes.windows(2) {
        assert!(pair[1].began >= pair[0].ended.as_ref().unwrap().0, "two at a time: {pair:?}");
    }
    dependency.is_back();
    tokio::time::sleep(5 * SECOND).await;
    let runs = runs_of(&world, "c");
    assert_eq!(done(&runs).len() + 20 + probes.len(), 100);
    let healed = runs.iter().filter_map(|run| run.ended.as_ref()).map(|(ended, _)| *ended).max().unwrap();
    let first = runs[20 + probes.len()].began;
    assert!(healed - first < 10 * MILLI, "both at once: {:?}", healed - first);
}

#[tokio::test(start_paused = true)]
async fn runs_that_began_before_the_class_was_parked_do_not_park_it_again_after_it_healed() {
    let world = World::new(1, 1);
    let class = guarded(&world);
    let slow = |number: u64| Reply::After(if number > 4 { 5 * SECOND } else { 5 * MILLI }, away());
    let _node = worker(&world, &class, &[0], move |job, _| {
        let number = job.header().map_or(0, |header| header.offset.0.unsigned_abs());
        if number > 10 { DONE } else { slow(number) }
    });
    emit(&world, "c", 11);
    tokio::time::sleep(2 * SECOND).await;
    world.emit_job(&Event::new("c", "of now", "x"));
    tokio::time::sleep(10 * SECOND).await;
    let failed = runs_of(&world, "c")
        .iter()
        .filter(|run| run.ended.as_ref().unwrap().1 != End::Answered(Outcome::Done))
        .count();
    assert_eq!((class.guard.times_parked(), class.guard.is_parked(), failed), (1, false, 10));
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_partition_is_lost_makes_way_for_another() {
    let world = World::new(1, 2);
    let class = guarded(&world);
    let began = Instant::now();
    let hangs =
        move |_: &Job, _: usize| if began.elapsed() < SECOND / 2 { Reply::Now(away()) } else { Reply::Hang };
    let mut nodes = [0, 1].map(|number| worker(&world, &class, &[number], hangs));
    emit(&world, "c", 100);
    tokio::time::sleep(3 * SECOND / 2).await;
    let probing = runs_of(&world, "c").pop().unwrap();
    assert!(probing.ended.is_none());
    let [holder, other] = if nodes[0].id() == probing.node { [0, 1] } else { [1, 0] };
    nodes[holder].lose(&[world.jobs_partition(i32::try_from(holder).unwrap())]).await;
    tokio::time::sleep(10 * MILLI).await;
    let next = runs_of(&world, "c").pop().unwrap();
    assert_eq!((next.node, next.ended.is_none()), (nodes[other].id(), true));
    assert_ne!(next.job_id, probing.job_id);
}

#[tokio::test(start_paused = true)]
async fn a_class_without_a_guard_is_never_parked() {
    let world = World::new(1, 1);
    let class = world.class("c");
    let _node = worker(&world, &class, &[0], Dependency::default().script(Duration::ZERO, away()));
    emit(&world, "c", 500);
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!((runs_of(&world, "c").len(), class.guard.is_parked(), committed(&world)), (500, false, 500));
}

#[tokio::test(start_paused = true)]
async fn no_record_counts_as_parked_after_it_left_in_whatever_way() {
    let gauge = OneGauge::of(PARKED_RECORDS);
    let parked = || gauge.get();
    let mut world = World::new(1, 2);
    world.shard.window_records = 60;
    let metrics = metrics::with_local_recorder(&gauge, || ClassMetrics::of("c", TIER));
    let (class, dependency) = (Class { metrics, ..guarded(&world) }, Dependency::default());
    let mut node = worker(&world, &class, &[0, 1], dependency.script(Duration::ZERO, away()));
    emit(&world, "c", 50);
    tokio::time::sleep(SECOND / 2).await;
    let held = |number| {
        let end = world.log.end(&world.jobs_partition(number)).0;
        end - world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(number)).0
    };
    assert_eq!((parked(), parked() > 40), (held(0) + held(1), true));
    emit(&world, "d", 100);
    tokio::time::sleep(SECOND / 4).await;
    assert_eq!(parked(), 0, "all have climbed");
    emit(&world, "c", 20);
    for n in 0..20 {
        world.emit_job(&Event::new("c", &format!("more{n}"), "x"));
    }
    tokio::time::sleep(SECOND / 8).await;
    assert!(parked() > 10, "{}", parked());
    node.lose(&[world.jobs_partition(0)]).await;
    node.revoke(&[world.jobs_partition(1)], 60 * SECOND).await;
    assert_eq!(parked(), 0, "taken away");
    [0, 1].iter().for_each(|&number| node.assign(&world.jobs_partition(number)));
    tokio::time::sleep(SECOND / 8).await;
    assert!(parked() > 10, "{}", parked());
    dependency.is_back();
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((parked(), class.guard.is_parked()), (0, false), "they went on");
}
