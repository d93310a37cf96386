//! The loop by itself, with a stage that does what the test says.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::{CommitPosition, Offset};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::until;
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, World};
use tidegate_pipeline::ports::SourceError;
use tidegate_pipeline::record::Record;
use tidegate_pipeline::stage::{Desk, Slot, Stage};
use tidegate_pipeline::{TopicPartition, Wake};

const SECOND: Duration = Duration::from_secs(1);
const GROUP: &str = "test";

/// What the test and its stage share.
#[derive(Default)]
struct Plan {
    /// Taken and not settled.
    held: BTreeMap<Slot, Vec<(Offset, usize)>>,
    taken: Vec<Offset>,
    settle: Vec<Offset>,
    settle_at_once: bool,
    refuses: bool,
    busy: bool,
    on_purpose: bool,
    tell: Vec<Option<&'static str>>,
    drained: usize,
    released: usize,
}

#[derive(Clone)]
struct Puppet {
    plan: Arc<Mutex<Plan>>,
    wake: Wake,
}

impl Puppet {
    fn change(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.plan.lock());
        self.wake.wake();
    }

    fn settle(&self, offsets: &[i64]) {
        self.change(|plan| plan.settle.extend(offsets.iter().copied().map(Offset)));
    }

    fn taken(&self) -> Vec<i64> {
        self.plan.lock().taken.iter().map(|offset| offset.0).collect()
    }
}

impl Stage for Puppet {
    fn assigned(&mut self, slot: Slot, _partition: &TopicPartition, _desk: &mut Desk) {
        self.plan.lock().held.insert(slot, Vec::new());
    }

    fn wants(&self, _slot: Slot) -> bool {
        !self.plan.lock().refuses
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        let mut plan = self.plan.lock();
        for record in records.drain(..) {
            plan.taken.push(record.offset());
            if plan.settle_at_once {
                desk.settle(slot, record.offset(), record.size());
            } else {
                plan.held.entry(slot).or_default().push((record.offset(), record.size()));
            }
        }
    }

    fn turn(&mut self, desk: &mut Desk) {
        let mut plan = self.plan.lock();
        let settle = std::mem::take(&mut plan.settle);
        for (&slot, held) in &mut plan.held {
            for &(offset, size) in held.iter().filter(|(offset, _)| settle.contains(offset)) {
                desk.settle(slot, offset, size);
            }
            held.retain(|(offset, _)| !settle.contains(offset));
        }
        let slot = plan.held.keys().next().copied();
        for reason in std::mem::take(&mut plan.tell) {
            match (slot, reason) {
                (Some(slot), Some(reason)) => desk.trouble(slot, reason),
                (Some(slot), None) => desk.trouble_over(slot),
                (None, _) => {}
            }
        }
    }

    fn holds_on_purpose(&self) -> bool {
        self.plan.lock().on_purpose
    }

    fn drain(&mut self, _slot: Slot, _desk: &mut Desk) {
        self.plan.lock().drained += 1;
    }

    fn is_idle(&self, _slot: Slot) -> bool {
        !self.plan.lock().busy
    }

    fn release(&mut self, slot: Slot, _desk: &mut Desk) {
        let mut plan = self.plan.lock();
        plan.released += 1;
        plan.held.remove(&slot);
    }
}

/// A node with a puppet, assigned the first partition of the source, which has so many records.
fn begin(world: &World, records: usize) -> (Node, Puppet) {
    for n in 0..records {
        world.emit(0, &Event::new("c", "k", &n.to_string()));
    }
    let parts = world.parts();
    let puppet = Puppet { plan: Arc::default(), wake: parts.wake.clone() };
    let mut node = world.start(GROUP, parts, puppet.clone());
    node.assign(&world.source_partition(0));
    (node, puppet)
}

fn position(world: &World) -> i64 {
    world.group(GROUP).position(&world.source_partition(0)).0
}

#[tokio::test(start_paused = true)]
async fn a_position_is_committed_only_past_settled_records() {
    let world = World::new(1, 1);
    let (_node, puppet) = begin(&world, 5);
    tokio::time::sleep(SECOND).await;
    assert_eq!((puppet.taken(), position(&world)), (vec![0, 1, 2, 3, 4], 0));
    for (settled, committed) in [(&[1, 3][..], 0), (&[0], 2), (&[4], 2), (&[2], 5)] {
        puppet.settle(settled);
        tokio::time::sleep(SECOND).await;
        assert_eq!(position(&world), committed, "after {settled:?}");
    }
    let positions: Vec<i64> = world.group(GROUP).history().iter().map(|commit| commit.position.0).collect();
    assert_eq!(positions, [0, 2, 5], "a position that did not move is not sent again so soon");
}

#[tokio::test(start_paused = true)]
async fn gaps_in_the_offsets_cost_nothing() {
    let world = World::new(1, 1);
    let (_node, puppet) = begin(&world, 2);
    let at = world.source_partition(0);
    world.log.skip_offsets(&at, 3);
    world.emit(0, &Event::new("c", "k", "after the gap"));
    world.log.skip_offsets(&at, 1);
    tokio::time::sleep(SECOND).await;
    assert_eq!(puppet.taken(), [0, 1, 5]);
    puppet.settle(&[0, 1, 5]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(position(&world), 6);
}

#[tokio::test(start_paused = true)]
async fn a_revoke_drains_and_returns_the_positions() {
    let world = World::new(1, 1);
    let (mut node, puppet) = begin(&world, 3);
    tokio::time::sleep(SECOND).await;
    puppet.change(|plan| plan.busy = true);
    let at = world.source_partition(0);
    let later = puppet.clone();
    tokio::spawn(async move {
        tokio::time::sleep(2 * SECOND).await;
        later.change(|plan| {
            plan.settle = vec![Offset(0), Offset(1)];
            plan.busy = false;
        });
    });
    let began = tokio::time::Instant::now();
    let positions = node.revoke(std::slice::from_ref(&at), 10 * SECOND).await;
    assert_eq!(positions, [(at.clone(), CommitPosition(2))]);
    assert_eq!(began.elapsed(), 2 * SECOND, "it waits for what runs, and no longer");
    let plan = puppet.plan.lock();
    assert_eq!((plan.drained, plan.released), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_revoke_ends_at_its_deadline_and_fetches_nothing_meanwhile() {
    let world = World::new(1, 1);
    let (mut node, puppet) = begin(&world, 1);
    tokio::time::sleep(SECOND).await;
    puppet.change(|plan| plan.busy = true);
    let at = world.source_partition(0);
    let began = tokio::time::Instant::now();
    let revoked = node.revoke(std::slice::from_ref(&at), 3 * SECOND);
    world.emit(0, &Event::new("c", "k", "too late"));
    assert_eq!(revoked.await, [(at, CommitPosition(0))]);
    assert_eq!(began.elapsed(), 3 * SECOND);
    assert_eq!(puppet.taken(), [0]);
    // A result that comes after the release changes nothing.
    puppet.settle(&[0]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(position(&world), 0);
    assert!(node.runs());
}

#[tokio::test(start_paused = true)]
async fn other_partitions_go_on_while_one_is_drained() {
    let world = World::new(1, 2);
    let (mut node, puppet) = begin(&world, 1);
    node.assign(&world.source_partition(1));
    tokio::time::sleep(SECOND).await;
    puppet.change(|plan| plan.busy = true);
    world.emit(1, &Event::new("c", "k", "kept"));
    node.revoke(&[world.source_partition(0)], 3 * SECOND).await;
    assert_eq!(puppet.taken().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_is_released_without_a_commit() {
    let world = World::new(1, 1);
    let (mut node, puppet) = begin(&world, 2);
    tokio::time::sleep(SECOND + Duration::from_millis(50)).await;
    // Settled, and the next tick would commit it.
    puppet.settle(&[0, 1]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = world.group(GROUP).history().len();
    node.lose(&[world.source_partition(0)]).await;
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!((world.group(GROUP).history().len(), position(&world)), (before, 0));
    assert_eq!(puppet.plan.lock().released, 1);
}

#[tokio::test(start_paused = true)]
async fn a_partition_lost_while_it_is_drained_is_released_and_the_revoke_is_answered() {
    let world = World::new(1, 1);
    let (mut node, puppet) = begin(&world, 2);
    tokio::time::sleep(SECOND).await;
    puppet.change(|plan| plan.busy = true);
    let at = [world.source_partition(0)];
    tokio::select! {
        biased;
        positions = node.revoke(&at, 3 * SECOND) => panic!("answered while busy: {positions:?}"),
        () = tokio::time::sleep(SECOND) => {}
    }
    node.lose(&at).await;
    tokio::time::sleep(10 * SECOND).await;
    assert!(node.runs());
    node.assign(&at[0]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(puppet.taken(), [0, 1, 0, 1], "a new assignment begins at the committed position");
}

#[tokio::test(start_paused = true)]
async fn a_window_bound_in_records_stops_fetching_and_goes_on_at_once_when_there_is_room() {
    let mut world = World::new(1, 1);
    world.shard.window_records = 4;
    let (_node, puppet) = begin(&world, 10);
    tokio::time::sleep(SECOND).await;
    assert_eq!(puppet.taken(), [0, 1, 2, 3]);
    puppet.settle(&[1, 2, 3]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(puppet.taken().len(), 4, "what is settled behind an unsettled record still counts");
    puppet.settle(&[0]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(puppet.taken().len(), 8, "without waiting for a tick");
}

#[tokio::test(start_paused = true)]
async fn a_window_bound_in_bytes_stops_fetching_and_goes_on_when_there_is_room() {
    let mut world = World::new(1, 1);
    world.shard.window_bytes = 1;
    let (_node, puppet) = begin(&world, 3);
    for count in 1..=3 {
        tokio::time::sleep(SECOND).await;
        assert_eq!(puppet.taken().len(), count, "a record larger than the window is taken alone");
        puppet.settle(&[i64::try_from(count).unwrap() - 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_at_once_never_waits_for_a_tick() {
    let mut world = World::new(1, 1);
    world.shard.window_records = 10;
    world.shard.fetch_records = 3;
    let (_node, puppet) = begin(&world, 0);
    puppet.change(|plan| plan.settle_at_once = true);
    for n in 0..1000 {
        world.emit(0, &Event::new("c", "k", &n.to_string()));
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(puppet.taken().len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_wants_records_again_gets_them_without_a_wake_of_the_source() {
    let world = World::new(1, 1);
    let (_node, puppet) = begin(&world, 0);
    puppet.change(|plan| plan.refuses = true);
    world.emit(0, &Event::new("c", "k", "1"));
    tokio::time::sleep(SECOND).await;
    assert_eq!(puppet.taken().len(), 0);
    puppet.change(|plan| plan.refuses = false);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(puppet.taken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_loop_sleeps() {
    let world = World::new(1, 4);
    let (mut node, puppet) = begin(&world, 3);
    for number in 1..4 {
        node.assign(&world.source_partition(number));
    }
    tokio::time::sleep(SECOND).await;
    puppet.settle(&[0, 1, 2]);
    tokio::time::sleep(SECOND).await;
    let before = node.told().rounds;
    tokio::time::sleep(100 * SECOND).await;
    let rounds = node.told().rounds - before;
    assert!((400..=600).contains(&rounds), "{rounds} rounds in 100 s, where 500 ticks are due");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_does_not_spin_and_its_trouble_ends_when_it_can_be_read() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 1);
    tokio::time::sleep(SECOND).await;
    node.faults().always(Port::Fetch(world.source().to_string()), Fate::Refused);
    world.emit(0, &Event::new("c", "k", "1"));
    let before = node.told().rounds;
    tokio::time::sleep(10 * SECOND).await;
    let rounds = node.told().rounds - before;
    assert!(rounds <= 60, "{rounds} rounds in 10 s");
    assert!(node.told().troubles[&world.source_partition(0)].contains("can't be read"), "{:?}", node.told());
    node.faults().heal(&Port::Fetch(world.source().to_string()));
    tokio::time::sleep(SECOND).await;
    assert_eq!((puppet.taken(), node.told().troubles.len()), (vec![0, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_does_not_stop_the_loop_and_is_sent_again() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 2);
    node.faults().always(Port::Commit, Fate::Refused);
    tokio::time::sleep(SECOND).await;
    puppet.settle(&[0]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.group(GROUP).history().len(), 0);
    node.faults().heal(&Port::Commit);
    tokio::time::sleep(SECOND).await;
    assert_eq!(position(&world), 1);
    assert_eq!(puppet.taken(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn all_positions_are_committed_again_from_time_to_time() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 2);
    // This commit was started and is lost: nobody hears of it.
    node.faults().script(Port::Commit, [Fate::Fails(Duration::ZERO)]);
    puppet.change(|plan| plan.settle_at_once = true);
    tokio::time::sleep(59 * SECOND).await;
    assert_eq!((puppet.taken().len(), position(&world)), (2, 0));
    tokio::time::sleep(241 * SECOND).await;
    assert_eq!(position(&world), 2);
    let commits = world.group(GROUP).history().len();
    assert!((4..=6).contains(&commits), "{commits} commits in 300 s without anything new");
}

#[tokio::test(start_paused = true)]
async fn positions_whose_commit_was_refused_are_committed_again_at_the_next_tick() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 2);
    node.faults().script(Port::Commit, [Fate::FailsTooLarge(Duration::ZERO)]);
    puppet.change(|plan| plan.settle_at_once = true);
    tokio::time::sleep(SECOND).await;
    assert_eq!((puppet.taken().len(), position(&world)), (2, 2));
    assert_eq!(world.group(GROUP).history().len(), 1, "once: nothing was refused since");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_stands_still_while_records_come_is_told() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 1);
    tokio::time::sleep(SECOND).await;
    // It refuses, and nobody knows why.
    puppet.change(|plan| plan.refuses = true);
    world.emit(0, &Event::new("c", "k", "1"));
    tokio::time::sleep(25 * SECOND).await;
    assert_eq!(node.told().troubles.len(), 0);
    tokio::time::sleep(10 * SECOND).await;
    assert!(node.told().troubles[&world.source_partition(0)].contains("no progress for more than 30 s"));
    puppet.change(|plan| plan.refuses = false);
    tokio::time::sleep(SECOND).await;
    assert_eq!(node.told().troubles.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_read_to_its_end_is_not_stuck() {
    let world = World::new(1, 1);
    let at = world.source_partition(0);
    let (node, puppet) = begin(&world, 3);
    tokio::time::sleep(SECOND).await;
    puppet.settle(&[0, 1, 2]);
    tokio::time::sleep(SECOND).await;
    // The next owner has nothing to read: all is committed, and markers lie at the end.
    world.log.skip_offsets(&at, 2);
    node.kill(OnTheirWay::Lost).await;
    let (node, puppet) = begin(&world, 0);
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!((puppet.taken().len(), node.told().changes.len()), (0, 0), "{:?}", node.told());
    assert!(node.told().rounds > 1000);
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_holds_records_on_purpose_is_not_stuck_when_it_is_full() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 1);
    puppet.change(|plan| plan.on_purpose = true);
    tokio::time::sleep(SECOND).await;
    puppet.change(|plan| plan.refuses = true);
    for _ in 0..10 {
        world.emit(0, &Event::new("c", "k", "1"));
    }
    tokio::time::sleep(300 * SECOND).await;
    assert_eq!((puppet.taken().len(), node.told().changes.len()), (1, 0), "{:?}", node.told());
}

#[tokio::test(start_paused = true)]
async fn troubles_are_told_when_they_begin_and_when_they_are_over() {
    let world = World::new(1, 1);
    let (mut node, puppet) = begin(&world, 1);
    tokio::time::sleep(SECOND).await;
    puppet.change(|plan| plan.tell.push(Some("the DLQ is gone")));
    tokio::time::sleep(SECOND).await;
    assert_eq!(node.told().troubles[&world.source_partition(0)], "the DLQ is gone");
    puppet.change(|plan| plan.tell.push(None));
    tokio::time::sleep(SECOND).await;
    assert_eq!((node.told().troubles.len(), node.told().changes.len()), (0, 2));
    puppet.change(|plan| plan.tell.push(Some("gone again")));
    tokio::time::sleep(SECOND).await;
    node.lose(&[world.source_partition(0)]).await;
    assert_eq!(node.told().troubles.len(), 0, "a partition that is another's is no trouble of ours");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_delivered_twice_in_one_assignment_is_taken_once() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 3);
    tokio::time::sleep(SECOND).await;
    world.log.seek(&world.source_partition(0), Offset(1));
    world.emit(0, &Event::new("c", "k", "new"));
    tokio::time::sleep(SECOND).await;
    assert_eq!((puppet.taken(), node.told().fatal.len()), (vec![0, 1, 2, 3], 0));
    puppet.settle(&[0, 1, 2, 3]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(position(&world), 4);
}

#[tokio::test(start_paused = true)]
async fn offsets_that_begin_anew_end_the_process_instead_of_passing_for_repeats() {
    let world = World::new(1, 1);
    let at = world.source_partition(0);
    let (node, puppet) = begin(&world, 3);
    tokio::time::sleep(SECOND).await;
    world.log.fail_fetch(&at, SourceError::OutOfRange("the topic was made anew".to_owned()));
    world.log.seek(&at, Offset(0));
    tokio::time::sleep(SECOND).await;
    assert_eq!(puppet.taken(), [0, 1, 2]);
    assert!(node.told().fatal.iter().any(|reason| reason.contains("began anew")), "{:?}", node.told());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_failed_for_good_ends_the_process() {
    let world = World::new(1, 1);
    let (node, _puppet) = begin(&world, 0);
    world.log.fail_fetch(&world.source_partition(0), SourceError::Fatal("fenced".to_owned()));
    world.emit(0, &Event::new("c", "k", "1"));
    assert!(until(SECOND, || node.told().fatal == ["fenced"]).await, "{:?}", node.told());
}

#[tokio::test(start_paused = true)]
async fn a_shard_stops_when_told_and_gives_everything_back_before() {
    let world = World::new(1, 1);
    let (node, puppet) = begin(&world, 2);
    tokio::time::sleep(SECOND).await;
    puppet.settle(&[0]);
    node.stop(SECOND).await;
    assert_eq!(position(&world), 1);
}
