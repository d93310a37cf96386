//! Retry: copies wait until they are due, never less.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::time::Duration;

use tidegate_domain::{Hop, JobHeader, Ladder, Offset, Partition, UnixMillis};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::delay::{DelaySettings, DelayStage, SharedHeap};
use tidegate_pipeline::fakes::clock::BEGIN;
use tidegate_pipeline::fakes::events::{event_id, job_header};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::TIER;
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, World};
use tidegate_pipeline::ports::Clock as _;
use tidegate_pipeline::record::{OutboundRecord, Record};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn delay_partition(world: &World, delay: Duration, number: i32) -> TopicPartition {
    TopicPartition { topic: world.names.delay(TIER, delay), partition: Partition(number) }
}

fn retry(world: &World, heap_bytes: usize) -> Node {
    let mut node = world.retry(heap_bytes);
    for &delay in world.ladder.delays() {
        for at in world.log.partitions(&world.names.delay(TIER, delay)) {
            node.assign(&at);
        }
    }
    node
}

/// A copy in a delay topic that is due so long after the world began.
fn put(world: &World, delay: Duration, number: i32, due: Duration, id: u64) {
    let source = world.source_partition(0);
    let event = Event::new("c", "k", "x");
    let header = event.header(TIER, &source, (Offset(0), None), BEGIN);
    let text = JobHeader { hop: Hop(1), due: BEGIN.after(due), ..header }.to_text();
    append(world, delay, number, Some(text.as_bytes()), id);
}

fn append(world: &World, delay: Duration, number: i32, job: Option<&[u8]>, id: u64) {
    let (topic, id) = (world.names.delay(TIER, delay), id.to_string());
    let headers = [(&b"event-id"[..], Some(id.as_bytes())), (b"job", job), (b"later", None)];
    let record = OutboundRecord {
        topic: &topic,
        partition: Some(Partition(number)),
        key: Some(b"k"),
        value: Some(b"v"),
        headers: &headers,
    };
    world.log.append(&record).unwrap();
}

fn jobs(world: &World) -> Vec<Record> {
    world.records(&world.names.jobs(TIER))
}

fn committed(world: &World, at: &TopicPartition) -> i64 {
    world.group(&world.names.retry_group()).position(at).0
}

fn jobs_port(world: &World) -> Port {
    Port::Publish(world.names.jobs(TIER).to_string())
}

#[tokio::test(start_paused = true)]
async fn no_record_leaves_before_it_is_due_and_none_leaves_late() {
    let world = World::new(1, 2);
    let node = retry(&world, 1 << 20);
    node.faults().always(jobs_port(&world), Fate::Succeeds(Duration::ZERO));
    tokio::time::sleep(MILLI).await;
    for (id, due) in [0, 1, 2, 3, 500, 999, 1000, 1001, 1200].into_iter().enumerate() {
        put(&world, SECOND, i32::try_from(id % 2).unwrap(), due * MILLI, id as u64);
    }
    tokio::time::sleep(5 * SECOND).await;
    let arrived = jobs(&world);
    assert_eq!(arrived.len(), 9);
    for record in &arrived {
        let (due, at) = (job_header(record).unwrap().due, record.timestamp().unwrap());
        assert!(at >= due, "{at} is before {due}");
        assert!(at.since(due) <= 5 * MILLI, "{at} is long after {due}");
    }
    assert_eq!(committed(&world, &delay_partition(&world, SECOND, 0)), 5);
    assert_eq!(committed(&world, &delay_partition(&world, SECOND, 1)), 4);
}

/// Lets every task go on that can, while time stands still.
async fn stand_still() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn not_even_a_fraction_of_a_millisecond_early() {
    let world = World::new(1, 1);
    // The stage's clock and the wall clock are cut at different fractions of a millisecond.
    tokio::time::advance(Duration::from_micros(900)).await;
    let node = retry(&world, 1 << 20);
    node.faults().always(jobs_port(&world), Fate::Succeeds(Duration::ZERO));
    stand_still().await;
    tokio::time::advance(Duration::from_micros(200)).await;
    put(&world, SECOND, 0, SECOND, 1);
    stand_still().await;
    // A fraction before it is due, something else wakes the shard.
    tokio::time::advance(Duration::from_micros(998_850)).await;
    put(&world, 16 * SECOND, 0, 16 * SECOND, 2);
    stand_still().await;
    assert_eq!((jobs(&world).len(), node.parts.publisher.on_their_way()), (0, 0));
    tokio::time::sleep(3 * MILLI).await;
    assert_eq!(jobs(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_on_with_all_that_it_came_with() {
    let world = World::new(1, 2);
    let _node = retry(&world, 1 << 20);
    put(&world, SECOND, 1, SECOND, 7);
    tokio::time::sleep(2 * SECOND).await;
    let before = world.records(&world.names.delay(TIER, SECOND)).remove(0);
    let after = world.log.records(&world.names.jobs(TIER)).remove(0);
    assert_eq!(after.0, Partition(1), "a record keeps its partition number all its life");
    assert_eq!((after.1.key(), after.1.value()), (before.key(), before.value()));
    assert_eq!(after.1.headers().collect::<Vec<_>>(), before.headers().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn each_record_waits_for_its_own_due_time_and_holds_up_no_other() {
    let world = World::new(1, 1);
    let _node = retry(&world, 1 << 20);
    for (id, due) in [1200, 800, 1000].into_iter().enumerate() {
        put(&world, SECOND, 0, due * MILLI, id as u64);
    }
    put(&world, 16 * SECOND, 0, 17 * SECOND, 3);
    tokio::time::sleep(30 * SECOND).await;
    let order: Vec<_> = jobs(&world).iter().map(|record| event_id(record).unwrap()).collect();
    assert_eq!(order, [1, 2, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_its_topic_carries_is_several_hops_and_ends_on_time() {
    let world = World::new(1, 1);
    let _node = retry(&world, 1 << 20);
    let due = Duration::from_secs(1500);
    put(&world, SECOND, 0, due, 1);
    tokio::time::sleep(Duration::from_secs(2000)).await;
    let arrived = jobs(&world);
    assert_eq!(arrived.len(), 1);
    let job = job_header(&arrived[0]).unwrap();
    let late = arrived[0].timestamp().unwrap().since(BEGIN.after(due));
    assert!(arrived[0].timestamp().unwrap() >= job.due && late <= 10 * MILLI, "{late:?}");
    assert_eq!(job.due, BEGIN.after(due), "the due time is written once");
    // Nothing stays in a topic longer than its delay and the jitter.
    let hops = world.delayed();
    assert!(hops.len() >= 3 && hops.len() <= 8, "{} hops", hops.len());
    let mut stays: Vec<(u32, UnixMillis)> =
        hops.iter().map(|hop| (job_header(hop).unwrap().hop.0, hop.timestamp().unwrap())).collect();
    stays.sort_unstable();
    assert_eq!(
        stays.iter().map(|(hop, _)| *hop).collect::<Vec<_>>(),
        (1..=u32::try_from(hops.len()).unwrap()).collect::<Vec<_>>()
    );
    assert_eq!(job.hop.0, u32::try_from(hops.len()).unwrap());
    for pair in stays.windows(2) {
        assert!(pair[1].1.since(pair[0].1) <= Duration::from_secs(720) + 10 * MILLI);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_heap_stops_the_polling_of_its_partition_only() {
    let world = World::new(1, 2);
    let mut node = world.retry(1000);
    let (full, other) = (delay_partition(&world, 16 * SECOND, 0), delay_partition(&world, SECOND, 0));
    for id in 0..5000 {
        put(&world, 16 * SECOND, 0, 16 * SECOND, id);
    }
    node.assign(&full);
    node.assign(&other);
    tokio::time::sleep(SECOND).await;
    for id in 5000..5003 {
        put(&world, SECOND, 0, 2 * SECOND, id);
    }
    tokio::time::sleep(14 * SECOND).await;
    assert_eq!((jobs(&world).len(), committed(&world, &other), committed(&world, &full)), (3, 3, 0));
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(
        (jobs(&world).len(), committed(&world, &full)),
        (5003, 5000),
        "and goes on when there is room"
    );
    assert_eq!(node.told().changes.len(), 0, "to be full is no trouble");
}

#[tokio::test(start_paused = true)]
async fn the_partitions_of_all_shards_hold_no_more_than_their_process_may_and_each_goes_on() {
    const SHARDS: i32 = 4;
    const BUDGET: usize = 20_000;
    let world = World::new(1, 8);
    let heap = SharedHeap::new(BUDGET);
    let mut shards: Vec<Node> = (0..SHARDS).map(|_| world.retry_shard(&heap)).collect();
    let mut ids = 0..;
    let mut put = |delay, number, due| put(&world, delay, number, due, ids.next().unwrap());
    for number in 0..8 {
        (0..200).for_each(|_| put(16 * SECOND, number, 16 * SECOND));
        (0..200).for_each(|_| put(4 * SECOND, number, 4 * SECOND));
        let shard = &mut shards[usize::try_from(number % SHARDS).unwrap()];
        for delay in [16 * SECOND, 4 * SECOND, SECOND] {
            shard.assign(&delay_partition(&world, delay, number));
        }
    }
    tokio::time::sleep(2 * SECOND).await;
    // A flood holds the common part; another topic's records are handed on in time all the same.
    put(SECOND, 3, 3 * SECOND);
    let size = world.records(&world.names.delay(TIER, SECOND))[0].size();
    let held = heap.bytes();
    // A fetch may bring a record more than there is room for.
    assert!(held > BUDGET / 2 && held <= BUDGET + 24 * size, "{held} bytes");
    tokio::time::sleep(SECOND + 300 * MILLI).await;
    assert_eq!((jobs(&world).len(), committed(&world, &delay_partition(&world, SECOND, 3))), (1, 1));
    assert!(heap.bytes() <= BUDGET + 24 * size);
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!((jobs(&world).len(), heap.bytes()), (3201, 0), "and nothing is dropped");
    assert!(shards.iter().all(|shard| shard.told().changes.is_empty()), "to be full is no trouble");
}

#[tokio::test(start_paused = true)]
async fn what_a_released_partition_held_is_free_for_others() {
    let world = World::new(1, 2);
    let heap = SharedHeap::new(10_000);
    let mut node = world.retry_shard(&heap);
    for number in [0, 1] {
        (0..100).for_each(|id| put(&world, 16 * SECOND, number, 16 * SECOND, id));
        node.assign(&delay_partition(&world, 16 * SECOND, number));
    }
    tokio::time::sleep(SECOND).await;
    let both = heap.bytes();
    assert!(both > 0);
    node.lose(&[delay_partition(&world, 16 * SECOND, 0), delay_partition(&world, 16 * SECOND, 1)]).await;
    assert_eq!(heap.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_moves_no_wait_that_has_begun() {
    for jump in [3_600_000, -3_600_000] {
        let world = World::new(1, 1);
        let node = retry(&world, 1 << 20);
        put(&world, 16 * SECOND, 0, 16 * SECOND, 1);
        tokio::time::sleep(SECOND).await;
        node.parts.clock.jump(jump);
        tokio::time::sleep(14 * SECOND).await;
        assert_eq!(jobs(&world).len(), 0, "early after a jump by {jump} ms");
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(jobs(&world).len(), 1, "late after a jump by {jump} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_holds_nothing_much_longer_than_its_topic_carries() {
    let world = World::new(1, 1);
    let node = retry(&world, 1 << 20);
    node.parts.clock.jump(-86_400_000);
    put(&world, 16 * SECOND, 0, 16 * SECOND, 1);
    tokio::time::sleep(15 * SECOND).await;
    assert_eq!(jobs(&world).len(), 0);
    tokio::time::sleep(80 * SECOND).await;
    assert_eq!(jobs(&world).len(), 1);
    assert!(node.parts.clock.wall() < BEGIN);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_job_header_goes_to_the_dlq_with_its_bytes() {
    for job in [None, Some(&b"v=1 class=c"[..]), Some(b"v=7"), Some(b"\xff")] {
        let world = World::new(1, 1);
        let _node = retry(&world, 1 << 20);
        append(&world, SECOND, 0, job, 1);
        put(&world, SECOND, 0, SECOND, 2);
        tokio::time::sleep(2 * SECOND).await;
        let dead = world.dead();
        assert_eq!(
            (dead.len(), jobs(&world).len(), committed(&world, &delay_partition(&world, SECOND, 0))),
            (1, 1, 2)
        );
        assert_eq!(
            (dead[0].key(), dead[0].value(), event_id(&dead[0])),
            (Some(&b"k"[..]), Some(&b"v"[..]), Some(1))
        );
        assert_eq!(dead[0].header("job-error-kind"), Some(&b"malformed"[..]));
        assert_eq!(dead[0].header("__connect.errors.topic"), Some(&b"tg.default.retry-1s"[..]));
        assert_eq!(dead[0].header("src-job"), job);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_job_topic_cannot_be_written_nothing_is_settled_and_nothing_is_lost() {
    for fate in [Fate::Refused, Fate::Fails(10 * MILLI), Fate::Full] {
        let world = World::new(1, 1);
        let node = retry(&world, 1 << 20);
        let at = delay_partition(&world, SECOND, 0);
        node.faults().always(jobs_port(&world), fate);
        for id in 0..20 {
            put(&world, SECOND, 0, SECOND, id);
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((jobs(&world).len(), committed(&world, &at)), (0, 0));
        assert_eq!(node.told().troubles.contains_key(&at), fate != Fate::Full, "{fate:?}");
        assert!(node.told().rounds < 3000, "{} rounds", node.told().rounds);
        node.faults().heal(&jobs_port(&world));
        tokio::time::sleep(SECOND).await;
        assert_eq!(
            (jobs(&world).len(), committed(&world, &at), node.told().troubles.len()),
            (20, 20, 0),
            "{fate:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_too_large_to_go_on_goes_to_the_dlq_in_a_form_that_fits() {
    for fate in [Fate::TooLarge, Fate::FailsTooLarge(MILLI)] {
        for (dlq_fates, whole) in
            [(vec![], true), (vec![fate], true), (vec![fate, Fate::Refused, fate], false)]
        {
            let world = World::new(1, 1);
            let node = retry(&world, 1 << 20);
            node.faults().always(jobs_port(&world), fate);
            node.faults().script(Port::Publish(world.names.dlq().to_string()), dlq_fates.clone());
            put(&world, SECOND, 0, SECOND, 1);
            tokio::time::sleep(3 * SECOND).await;
            let dead = world.dead();
            assert_eq!(
                (dead.len(), jobs(&world).len(), node.told().troubles.len()),
                (1, 0, 0),
                "{fate:?} {dlq_fates:?}"
            );
            assert_eq!(
                (dead[0].value().is_some(), dead[0].header("job-stub").is_some()),
                (whole, !dlq_fates.is_empty())
            );
            assert_eq!(committed(&world, &delay_partition(&world, SECOND, 0)), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dlq_that_refuses_even_a_stub_holds_the_record_and_does_not_spin() {
    for fate in [Fate::TooLarge, Fate::FailsTooLarge(MILLI)] {
        let world = World::new(1, 1);
        let node = retry(&world, 1 << 20);
        let dlq = Port::Publish(world.names.dlq().to_string());
        node.faults().always(dlq.clone(), fate);
        append(&world, SECOND, 0, None, 1);
        tokio::time::sleep(10 * SECOND).await;
        let at = delay_partition(&world, SECOND, 0);
        assert!(node.told().troubles[&at].contains("refuses even a stub"));
        assert!(node.told().rounds < 400, "{} rounds", node.told().rounds);
        node.faults().heal(&dlq);
        tokio::time::sleep(SECOND).await;
        assert_eq!((world.dead().len(), committed(&world, &at), node.told().troubles.len()), (1, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoke_waits_for_what_is_on_its_way_and_leaves_what_waits() {
    let world = World::new(1, 1);
    let mut node = retry(&world, 1 << 20);
    let at = delay_partition(&world, SECOND, 0);
    node.faults().always(jobs_port(&world), Fate::Succeeds(3 * SECOND));
    put(&world, SECOND, 0, 500 * MILLI, 1);
    put(&world, SECOND, 0, 1100 * MILLI, 2);
    tokio::time::sleep(SECOND).await;
    let began = tokio::time::Instant::now();
    let positions = node.revoke(std::slice::from_ref(&at), 60 * SECOND).await;
    assert!(began.elapsed() < 3 * SECOND);
    assert_eq!((positions[0].1.0, jobs(&world).len()), (1, 1));
    node.kill(OnTheirWay::Lost).await;
    let _next = retry(&world, 1 << 20);
    tokio::time::sleep(SECOND).await;
    assert_eq!(jobs(&world).iter().map(|record| event_id(record).unwrap()).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_topic_that_the_ladder_does_not_know_is_served_too() {
    let world = World::new(1, 1);
    let old = Duration::from_secs(7);
    world.log.create(&world.names.delay(TIER, old), 1);
    put(&world, old, 0, old, 1);
    put(&world, old, 0, 40 * SECOND, 2);
    let parts = world.parts();
    let ladder = Ladder::new(&[SECOND, 16 * SECOND], &[], 0.2).unwrap();
    let settings = DelaySettings { names: world.names.clone(), ladder, heap: SharedHeap::new(1 << 20) };
    let stage = DelayStage::new(settings, parts.publisher.clone(), &parts.wake);
    let mut node = world.start(&world.names.retry_group(), parts, stage);
    for delay in [old, SECOND, 16 * SECOND] {
        node.assign(&delay_partition(&world, delay, 0));
    }
    tokio::time::sleep(60 * SECOND).await;
    let arrived = jobs(&world);
    assert_eq!(arrived.iter().map(|record| event_id(record).unwrap()).collect::<Vec<_>>(), [1, 2]);
    for (record, due) in arrived.iter().zip([old, 40 * SECOND]) {
        let at = record.timestamp().unwrap();
        assert!(at >= BEGIN.after(due) && at <= BEGIN.after(due + 10 * MILLI), "{at}");
    }
}
