//! Ingest: events become jobs in order, and none is lost.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::{Failure, Partition, Topic};
use tidegate_pipeline::fakes::events::{EVENT_ID, event_id, job_header};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::TIER;
use tidegate_pipeline::fakes::{Event, Fate, FnRouter, Node, Port, World};
use tidegate_pipeline::forward::Routed;
use tidegate_pipeline::record::{OutboundRecord, Record};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const OTHER: &str = "other";

/// Routes by the event's class: `two` becomes two jobs in two tiers, `none` jobs that are not there.
fn router(world: &World) -> FnRouter {
    let (names, partitions) = (world.names.clone(), world.partitions());
    FnRouter::new(move |source, record, now, jobs| {
        let Some(event) = Event::of(record) else {
            return Routed::Dead(Failure::malformed("no-event", "not of the form"));
        };
        match event.class {
            "ignored" => return Routed::Ignored,
            "dead" => return Routed::Dead(Failure::permanent("refused", "no")),
            "none" => return Routed::Jobs,
            "half" => {
                jobs.push(event.plan((&names, TIER, partitions), source, record, now));
                return Routed::JobsAndDead(vec![Failure::malformed(
                    "missing-key",
                    "no key for the other class",
                )]);
            }
            "two" => {
                jobs.push(event.plan((&names, TIER, partitions), source, record, now));
                jobs.push(event.plan((&names, OTHER, partitions), source, record, now));
            }
            _ => jobs.push(event.plan((&names, TIER, partitions), source, record, now)),
        }
        Routed::Jobs
    })
}

fn world() -> World {
    let world = World::new(1, 2);
    world.log.create(&world.names.jobs(OTHER), 2);
    world
}

fn ingest(world: &World) -> Node {
    let mut node = world.ingest(router(world));
    node.assign(&world.source_partition(0));
    node.assign(&world.source_partition(1));
    node
}

fn emit(world: &World, partition: i32, class: &str, count: usize) {
    for n in 0..count {
        world.emit(partition, &Event::new(class, &format!("k{}", n % 7), &n.to_string()));
    }
}

fn committed(world: &World, number: i32) -> i64 {
    world.group(&world.names.ingest_group()).position(&world.source_partition(number)).0
}

fn port(world: &World, tier: &str) -> Port {
    Port::Publish(world.names.jobs(tier).to_string())
}

fn dlq(world: &World) -> Port {
    Port::Publish(world.names.dlq().to_string())
}

fn ids(records: &[Record]) -> BTreeSet<u64> {
    records.iter().filter_map(event_id).collect()
}

/// The first copies of each source partition, within one job partition, stand in the order of their events.
fn check_order(world: &World, tier: &str) {
    for number in 0..2 {
        let mut seen = Vec::new();
        for (partition, record) in world.log.records(&world.names.jobs(tier)) {
            let job = job_header(&record).unwrap();
            let place = (job.partition, job.offset);
            if partition == Partition(number) && !seen.contains(&place) {
                assert!(
                    seen.iter().filter(|(p, _)| *p == job.partition).all(|before| *before < place),
                    "{place:?} after {seen:?}"
                );
                seen.push(place);
            }
        }
        assert!(!seen.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn events_become_jobs_in_order_with_their_bytes_and_headers() {
    let world = world();
    let _node = ingest(&world);
    emit(&world, 0, "c", 50);
    emit(&world, 1, "c", 50);
    tokio::time::sleep(SECOND).await;
    let (sources, jobs) = (world.records(&world.source()), world.records(&world.names.jobs(TIER)));
    assert_eq!((jobs.len(), committed(&world, 0), committed(&world, 1)), (100, 50, 50));
    check_order(&world, TIER);
    for source in &sources {
        let job = jobs.iter().find(|job| event_id(job) == event_id(source)).unwrap();
        assert_eq!((job.key(), job.value()), (source.key(), source.value()));
        let header = job_header(job).unwrap();
        assert_eq!(
            (header.topic, header.offset, header.origin),
            ("shop.orders", source.offset(), source.timestamp())
        );
        assert_eq!((header.attempt.0, header.hop.0, header.round.0), (1, 0, 0));
    }
    assert_eq!(world.dead().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_with_two_routes_is_settled_when_both_copies_are_acknowledged() {
    let world = world();
    let node = ingest(&world);
    node.faults().always(port(&world, OTHER), Fate::Succeeds(5 * SECOND));
    emit(&world, 0, "two", 3);
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!((world.records(&world.names.jobs(TIER)).len(), committed(&world, 0)), (3, 0));
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!((world.records(&world.names.jobs(OTHER)).len(), committed(&world, 0)), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn ignored_events_are_settled_and_dead_ones_keep_their_bytes() {
    let world = world();
    let _node = ingest(&world);
    emit(&world, 0, "ignored", 2);
    emit(&world, 0, "dead", 1);
    emit(&world, 0, "none", 1);
    tokio::time::sleep(SECOND).await;
    let dead = world.dead();
    assert_eq!((dead.len(), committed(&world, 0), world.records(&world.names.jobs(TIER)).len()), (2, 4, 0));
    assert_eq!(dead[0].value(), Some(Event::new("dead", "k0", "0").value().as_slice()));
    for (name, value) in [
        ("__connect.errors.topic", "shop.orders"),
        ("__connect.errors.partition", "0"),
        ("__connect.errors.offset", "2"),
        ("job-error-kind", "permanent"),
        ("job-error-code", "refused"),
        (EVENT_ID, "3"),
    ] {
        assert_eq!(dead[0].header(name), Some(value.as_bytes()), "{name}");
    }
    assert_eq!(dead[0].header("job"), None);
    assert_eq!(
        dead[1].header("job-error-kind"),
        Some(&b"unroutable"[..]),
        "routes that make no job lose no event"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_header_of_the_source_is_kept_under_another_name() {
    let world = world();
    let _node = ingest(&world);
    for class in ["c", "dead"] {
        let (topic, value): (Topic, _) = (world.source(), Event::new(class, "k", "x").value());
        let headers = [(&b"job"[..], Some(&b"theirs"[..])), (b"job", None), (b"a", Some(b"1"))];
        let record = OutboundRecord {
            topic: &topic,
            partition: Some(Partition(0)),
            key: None,
            value: Some(&value),
            headers: &headers,
        };
        world.log.append(&record).unwrap();
    }
    tokio::time::sleep(SECOND).await;
    let job = world.records(&world.names.jobs(TIER)).remove(0);
    for copy in [&job, &world.dead()[0]] {
        let kept: Vec<_> = copy.headers().take(3).collect();
        assert_eq!(kept, [(&b"src-job"[..], Some(&b"theirs"[..])), (b"src-job", None), (b"a", Some(b"1"))]);
        assert_eq!(copy.key(), None);
    }
    assert!(job_header(&job).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_decided_holds_its_partition_and_only_it_in_order() {
    let world = world();
    let open = Arc::new(Mutex::new(false));
    let (asked, mut inner) = (open.clone(), router(&world));
    let router = FnRouter::new(move |source, record, now, jobs| {
        let waits =
            Event::of(record).is_some_and(|event| event.class == "unknown" || event.class == "ignored");
        if waits && !*asked.lock() {
            Routed::Later("the registry is away".to_owned())
        } else {
            (inner.0)(source, record, now, jobs)
        }
    });
    let mut node = world.ingest(router);
    node.assign(&world.source_partition(0));
    node.assign(&world.source_partition(1));
    node.faults().always(port(&world, TIER), Fate::Succeeds(SECOND));
    for class in ["c", "unknown", "c"] {
        emit(&world, 0, class, 1);
    }
    emit(&world, 1, "c", 2);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!((committed(&world, 0), committed(&world, 1)), (1, 2));
    let told = node.told();
    assert_eq!(told.troubles[&world.source_partition(0)], "the registry is away");
    assert_eq!(told.changes.len(), 1, "it stays told while what was sent before is acknowledged");
    assert!(told.rounds < 200, "{} rounds in 10 s", told.rounds);
    *open.lock() = true;
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!((committed(&world, 0), node.told().troubles.len()), (3, 0));
    check_order(&world, TIER);
    // The same, where all that follows is ignored.
    *open.lock() = false;
    emit(&world, 0, "ignored", 1);
    tokio::time::sleep(SECOND).await;
    assert_eq!(node.told().troubles.len(), 1);
    *open.lock() = true;
    tokio::time::sleep(SECOND).await;
    assert_eq!((committed(&world, 0), node.told().troubles.len()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_publish_rewinds_in_order_and_loses_nothing() {
    // What was handed over before a failure is known may arrive before the record that failed, with a producer that lets it: that of
    // ingest does not. Nothing that is handed over later does.
    for (fates, keeps_order) in [
        (vec![Fate::Succeeds(200 * MILLI), Fate::Refused], true),
        (vec![Fate::Fails(50 * MILLI); 20], true),
        (vec![Fate::LosesAnswer(50 * MILLI), Fate::Succeeds(10 * MILLI), Fate::Full, Fate::Refused], true),
        (vec![Fate::Succeeds(MILLI), Fate::Fails(50 * MILLI)], false),
        (
            vec![
                Fate::Fails(MILLI),
                Fate::Succeeds(300 * MILLI),
                Fate::Succeeds(MILLI),
                Fate::Full,
                Fate::Fails(MILLI),
            ],
            false,
        ),
    ] {
        let world = world();
        let node = ingest(&world);
        node.faults().script(port(&world, TIER), fates.clone());
        emit(&world, 0, "two", 20);
        emit(&world, 1, "c", 20);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!((committed(&world, 0), committed(&world, 1)), (20, 20), "{fates:?}");
        assert_eq!(ids(&world.records(&world.names.jobs(TIER))).len(), 40);
        assert_eq!(ids(&world.records(&world.names.jobs(OTHER))).len(), 20);
        if keeps_order {
            check_order(&world, TIER);
            check_order(&world, OTHER);
        }
        assert_eq!((world.dead().len(), node.told().troubles.len()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_job_topic_cannot_be_written_nothing_is_settled_and_the_trouble_does_not_flicker() {
    for fate in [Fate::Refused, Fate::Fails(20 * MILLI)] {
        let world = world();
        let node = ingest(&world);
        node.faults().always(port(&world, TIER), fate);
        emit(&world, 0, "c", 5);
        tokio::time::sleep(10 * SECOND).await;
        let told = node.told();
        assert_eq!((committed(&world, 0), told.changes.len()), (0, 1), "{:?}", told.changes);
        assert!(told.troubles[&world.source_partition(0)].contains("can't be written"));
        assert!(told.rounds < 500, "{} rounds in 10 s", told.rounds);
        node.faults().heal(&port(&world, TIER));
        tokio::time::sleep(SECOND).await;
        assert_eq!((committed(&world, 0), node.told().troubles.len()), (5, 0));
        assert_eq!(world.records(&world.names.jobs(TIER)).len(), 5);
        check_order(&world, TIER);
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_takes_nothing_for_long_is_told_though_nothing_fails_and_over_with_the_first_answer() {
    let world = world();
    let node = ingest(&world);
    node.faults().script(port(&world, TIER), [Fate::Succeeds(60 * SECOND)]);
    emit(&world, 0, "c", 1);
    tokio::time::sleep(19 * SECOND).await;
    assert_eq!(node.told().troubles.len(), 0, "that long a broker may be replaced");
    tokio::time::sleep(2 * SECOND).await;
    let told = node.told();
    assert!(told.troubles[&world.source_partition(0)].contains("nothing is acknowledged since 20s"));
    tokio::time::sleep(40 * SECOND).await;
    let told = node.told();
    assert_eq!(
        (committed(&world, 0), told.troubles.len(), told.changes.len()),
        (1, 0, 2),
        "{:?}",
        told.changes
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_producer_is_waited_for_in_order() {
    let world = world();
    let node = ingest(&world);
    node.faults().always(port(&world, OTHER), Fate::Full);
    emit(&world, 0, "two", 5);
    emit(&world, 1, "c", 5);
    tokio::time::sleep(SECOND).await;
    assert_eq!((committed(&world, 0), committed(&world, 1)), (0, 5));
    node.faults().heal(&port(&world, OTHER));
    tokio::time::sleep(SECOND).await;
    assert_eq!((committed(&world, 0), node.told().changes.len()), (5, 0));
    assert_eq!(world.records(&world.names.jobs(OTHER)).len(), 5, "what was sent is not sent again");
    assert_eq!(world.records(&world.names.jobs(TIER)).len(), 10);
    check_order(&world, TIER);
}

#[tokio::test(start_paused = true)]
async fn an_event_too_large_for_one_of_its_topics_goes_there_and_to_the_dlq() {
    for fate in [Fate::TooLarge, Fate::FailsTooLarge(10 * MILLI)] {
        for late in [MILLI, 100 * MILLI] {
            let world = world();
            let node = ingest(&world);
            node.faults().always(port(&world, OTHER), fate);
            node.faults().always(port(&world, TIER), Fate::Succeeds(late));
            emit(&world, 0, "two", 3);
            tokio::time::sleep(SECOND).await;
            assert_eq!(world.records(&world.names.jobs(TIER)).len(), 3);
            assert_eq!((world.dead().len(), committed(&world, 0)), (3, 3), "{fate:?} {late:?}");
            assert!(world.dead().iter().all(|dead| dead.value().is_some()), "whole");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_acknowledgement_of_one_copy_settles_nothing_for_another_that_was_too_large() {
    let world = world();
    let node = ingest(&world);
    // The first copy is acknowledged after the second was refused, and while its place in the DLQ can't be written.
    node.faults().always(port(&world, TIER), Fate::Succeeds(SECOND));
    node.faults().always(port(&world, OTHER), Fate::FailsTooLarge(MILLI));
    node.faults().always(dlq(&world), Fate::Fails(2 * SECOND));
    emit(&world, 0, "two", 1);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!((committed(&world, 0), world.dead().len()), (0, 0));
    assert_eq!(node.told().troubles.len(), 1);
    node.faults().heal(&dlq(&world));
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!((committed(&world, 0), ids(&world.dead()).len(), node.told().troubles.len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn both_copies_too_large_hold_nothing_up() {
    let world = world();
    let mut node = ingest(&world);
    node.faults().always(port(&world, TIER), Fate::FailsTooLarge(MILLI));
    node.faults().always(port(&world, OTHER), Fate::FailsTooLarge(2 * MILLI));
    emit(&world, 0, "two", 2);
    tokio::time::sleep(SECOND).await;
    assert_eq!((committed(&world, 0), ids(&world.dead()).len()), (2, 2));
    assert!(
        world.dead().iter().all(|dead| dead.header("job-stub").is_none()),
        "neither is made smaller than it must be"
    );
    let began = tokio::time::Instant::now();
    node.revoke(&[world.source_partition(0)], 60 * SECOND).await;
    assert!(began.elapsed() < SECOND, "nothing counts as on its way");
}

#[tokio::test(start_paused = true)]
async fn a_dlq_that_refuses_even_a_stub_holds_the_partition_up_and_does_not_spin() {
    for fate in [Fate::TooLarge, Fate::FailsTooLarge(MILLI)] {
        let world = world();
        let node = ingest(&world);
        node.faults().always(dlq(&world), fate);
        emit(&world, 0, "dead", 1);
        emit(&world, 1, "c", 1);
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((committed(&world, 0), committed(&world, 1)), (0, 1));
        assert!(node.told().troubles[&world.source_partition(0)].contains("refuses even a stub"));
        assert!(node.told().rounds < 400, "{} rounds", node.told().rounds);
        node.faults().heal(&dlq(&world));
        tokio::time::sleep(SECOND).await;
        assert_eq!((committed(&world, 0), node.told().troubles.len()), (1, 0));
        assert_eq!(world.dead()[0].header("job-stub"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoke_waits_for_what_is_on_its_way_and_leaves_the_rest() {
    let mut world = world();
    world.shard.fetch_records = 2;
    world.shard.window_records = 2;
    let mut node = ingest(&world);
    node.faults().always(port(&world, TIER), Fate::Succeeds(2 * SECOND));
    emit(&world, 0, "c", 10);
    tokio::time::sleep(SECOND).await;
    let positions = node.revoke(&[world.source_partition(0)], 60 * SECOND).await;
    assert_eq!((positions[0].1.0, world.records(&world.names.jobs(TIER)).len()), (2, 2));
    node.kill(OnTheirWay::Lost).await;
    let _next = ingest(&world);
    tokio::time::sleep(SECOND).await;
    assert_eq!((committed(&world, 0), ids(&world.records(&world.names.jobs(TIER))).len()), (10, 10));
    assert_eq!(world.records(&world.names.jobs(TIER)).len(), 10, "nothing is sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_class_that_can_have_no_job_of_an_event_keeps_it_from_no_other() {
    let world = world();
    let node = ingest(&world);
    emit(&world, 0, "half", 3);
    tokio::time::sleep(SECOND).await;
    assert_eq!((world.log.records(&world.names.jobs(TIER)).len(), world.dead().len()), (3, 3));
    assert_eq!(world.dead()[0].header("job-error-code"), Some(&b"missing-key"[..]));
    assert_eq!((committed(&world, 0), node.told().troubles.len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_decided_in_a_moment_waits_in_order_and_is_no_trouble() {
    let world = world();
    let mut inner = router(&world);
    let mut asked = 0;
    let router = FnRouter::new(move |source, record, now, jobs| {
        asked += 1;
        if asked < 4 { Routed::Soon } else { (inner.0)(source, record, now, jobs) }
    });
    let mut node = world.ingest(router);
    node.assign(&world.source_partition(0));
    emit(&world, 0, "c", 5);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!((committed(&world, 0), node.told().changes.len()), (5, 0));
    check_order(&world, TIER);
}
