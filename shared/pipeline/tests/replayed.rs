//! What operators are told of replayed records: for every verdict an outcome, before the record is settled.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::inbox::Answer;
use tidegate_domain::{Failure, Offset, Outcome, Round};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::fakes::events::job_header;
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{Force, TIER, until};
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::{Class, Conflicts, Job, Ordering};
use tidegate_pipeline::journal::OutcomeEntry;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

fn permanent() -> Reply {
    Reply::Now(Outcome::Failed(Failure::permanent("http-422", "order 7 is refused")))
}

fn transient() -> Reply {
    Reply::Now(Outcome::Failed(Failure::transient("http-503", "shop 7 is away")))
}

fn worker(
    world: &World,
    class: Class,
    script: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    let mut node = world.worker(vec![class], 10, Arc::new(script));
    node.assign(&world.jobs_partition(0));
    node
}

/// A worker whose jobs die in their first life.
fn worker_after_death(
    world: &World,
    class: Class,
    then: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> Node {
    worker(
        world,
        class,
        move |job, before| {
            if job.round == Round(0) { permanent() } else { then(job, before) }
        },
    )
}

/// A world with one dead letter, of event 1.
async fn after_a_death(
    class: impl Fn(&World) -> Class,
    then: impl Fn(&Job, usize) -> Reply + Send + Sync + 'static,
) -> (World, Node) {
    let world = World::new(1, 1);
    let node = worker_after_death(&world, class(&world), then);
    world.emit_job(&Event::new("c", "k", "x"));
    assert!(until(SECOND, || world.dead().len() == 1 && committed(&world) == 1).await);
    assert_eq!(world.outcomes(), [], "nobody waits for the outcome of a first life");
    (world, node)
}

fn class(world: &World) -> Class {
    world.class("c")
}

fn replay(world: &World, round: u32) {
    world.replay(&world.dead()[0], round, Force::No);
}

fn committed(world: &World) -> i64 {
    world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(0)).0
}

fn journal(world: &World) -> Port {
    Port::Publish(world.names.dlq_journal().to_string())
}

/// Round and answer of each outcome of event 1.
fn answers(world: &World) -> Vec<(u32, Answer)> {
    let outcomes = world.outcomes();
    let of_one = outcomes.iter().filter(|entry| entry.id.to_string() == "shop.orders/0/1/c");
    of_one.map(|entry| (entry.outcome.round.0, entry.outcome.answer)).collect()
}

fn last(world: &World) -> OutcomeEntry {
    world.outcomes().pop().unwrap()
}

async fn settles(world: &World, upto: i64) {
    assert!(until(60 * SECOND, || committed(world) == upto).await, "{} of {upto}", committed(world));
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_is_done_is_resolved_and_told_after_its_mark() {
    let (world, node) = after_a_death(class, |_, _| DONE).await;
    node.faults().script(Port::Append, [Fate::Succeeds(5 * SECOND)]);
    replay(&world, 1);
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!(
        (world.runs.count(), world.outcomes().len()),
        (2, 0),
        "it is not true before its mark is there"
    );
    settles(&world, 2).await;
    assert_eq!(answers(&world), [(1, Answer::Resolved)]);
    let told = last(&world);
    assert_eq!((told.worker.as_deref(), told.detail, told.error), (Some("tg.default.worker"), None, None));
    let record = world.records(&world.names.dlq_journal()).remove(0);
    assert_eq!(record.key(), Some(&b"shop.orders/0/1/c"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_replay_is_settled_only_when_its_outcome_is_there() {
    let (world, node) = after_a_death(class, |_, _| DONE).await;
    node.faults().script(journal(&world), [Fate::Succeeds(5 * SECOND)]);
    replay(&world, 1);
    tokio::time::sleep(4 * SECOND).await;
    assert_eq!((world.runs.count(), committed(&world)), (2, 1));
    settles(&world, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_fails_for_good_is_told_with_its_error() {
    let (world, _node) = after_a_death(class, |_, _| permanent()).await;
    replay(&world, 1);
    settles(&world, 2).await;
    assert_eq!(answers(&world), [(1, Answer::FailedAgain)]);
    let error = last(&world).error.unwrap();
    assert_eq!((error.kind.as_str(), error.code.as_str()), ("permanent", "http-422"));
    assert_eq!(error.message, "order 7 is refused");
    let fingerprint = Failure::permanent("http-422", "order 8 is refused").fingerprint().to_string();
    assert_eq!(error.fingerprint, fingerprint);
    assert_eq!(job_header(&world.dead()[1]).unwrap().round, Round(1));
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_is_put_off_waits_until_its_copy_is_due_and_is_then_resolved() {
    for (reply, error) in [(transient(), true), (Reply::Now(Outcome::Snooze(SECOND)), false)] {
        let then = move |_: &Job, before| if before == 1 { reply.clone() } else { DONE };
        let (world, _node) = after_a_death(class, then).await;
        let mut retry = world.retry(1 << 20);
        retry.assign(&TopicPartition { topic: world.names.delay(TIER, SECOND), ..world.jobs_partition(0) });
        replay(&world, 1);
        settles(&world, 3).await;
        let due = job_header(&world.delayed()[0]).unwrap().due;
        assert_eq!(answers(&world), [(1, Answer::WaitingUntil(due)), (1, Answer::Resolved)]);
        let waiting = world.outcomes().remove(0);
        assert_eq!(waiting.error.map(|error| error.code), error.then(|| "http-503".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn where_order_is_kept_each_wait_in_place_is_told_and_settles_nothing() {
    let ordered = |world: &World| Class { ordering: Ordering::Key, ..world.class("c") };
    let then = |_: &Job, before| if before < 3 { transient() } else { DONE };
    let (world, _node) = after_a_death(ordered, then).await;
    replay(&world, 1);
    assert!(until(10 * SECOND, || answers(&world).len() == 2).await);
    assert_eq!(committed(&world), 1);
    settles(&world, 2).await;
    let answers = answers(&world);
    assert!(matches!(answers[..2], [(1, Answer::WaitingUntil(a)), (1, Answer::WaitingUntil(b))] if a < b));
    assert_eq!(answers[2..], [(1, Answer::Resolved)]);
}

#[tokio::test(start_paused = true)]
async fn a_round_that_is_published_twice_runs_once_and_both_say_the_same() {
    let (world, _node) = after_a_death(class, |_, _| DONE).await;
    replay(&world, 1);
    replay(&world, 1);
    settles(&world, 3).await;
    assert_eq!(world.runs.count(), 2);
    assert_eq!(answers(&world), [(1, Answer::Resolved); 2]);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_is_already_done_in_a_later_round_unless_that_is_forced() {
    let (world, _node) = after_a_death(class, |_, _| DONE).await;
    replay(&world, 1);
    settles(&world, 2).await;
    replay(&world, 2);
    settles(&world, 3).await;
    assert_eq!((world.runs.count(), last(&world).outcome.answer), (2, Answer::AlreadyDone));
    world.replay(&world.dead()[0], 3, Force::AlsoIfDone);
    world.replay(&world.dead()[0], 3, Force::AlsoIfDone);
    settles(&world, 5).await;
    assert_eq!(world.runs.count(), 3);
    assert_eq!(
        answers(&world),
        [(1, Answer::Resolved), (2, Answer::AlreadyDone), (3, Answer::Resolved), (3, Answer::Resolved)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_copy_of_a_round_that_waits_is_superseded() {
    let (world, _node) = after_a_death(class, |_, _| transient()).await;
    replay(&world, 1);
    settles(&world, 2).await;
    replay(&world, 1);
    settles(&world, 3).await;
    assert_eq!((world.runs.count(), last(&world).outcome.answer), (2, Answer::Superseded));
}

#[tokio::test(start_paused = true)]
async fn a_second_copy_of_a_round_that_failed_says_so_again() {
    let (world, _node) = after_a_death(class, |_, _| permanent()).await;
    replay(&world, 1);
    replay(&world, 1);
    settles(&world, 3).await;
    assert_eq!((world.runs.count(), world.dead().len()), (2, 2));
    assert_eq!(answers(&world), [(1, Answer::FailedAgain); 2]);
    let second = last(&world);
    assert_eq!((second.error, second.detail.is_some()), (None, true), "the first one told the error");
    // A later round runs.
    replay(&world, 2);
    settles(&world, 4).await;
    assert_eq!(world.runs.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_replay_whose_equal_is_alive_is_coalesced() {
    let world = World::new(1, 1);
    let script =
        |job: &Job, _| if job.header().unwrap().offset == Offset(1) { permanent() } else { transient() };
    let _node = worker(&world, world.class("c"), script);
    world.emit_job(&Event::new("c", "k", "x"));
    // Another job with the same key and payload takes the key over, and waits in a delay topic that nobody serves.
    world.emit_job(&Event::new("c", "k", "x"));
    settles(&world, 2).await;
    assert_eq!((world.runs.count(), world.dead().len(), world.delayed().len()), (2, 1, 1));
    replay(&world, 1);
    settles(&world, 3).await;
    assert_eq!((world.runs.count(), answers(&world)), (2, vec![(1, Answer::Coalesced)]));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_a_failure_or_a_skip_as_its_class_says() {
    for (on_conflict, answer) in
        [(Conflicts::DeadLetter, Answer::FailedAgain), (Conflicts::Skip, Answer::AlreadyDone)]
    {
        let class = |world: &World| Class { on_conflict, ..world.class("c") };
        let world = World::new(1, 1);
        let dies =
            |job: &Job, _| if job.record().value().unwrap().ends_with(b"x") { permanent() } else { DONE };
        let _node = worker(&world, class(&world), dies);
        world.emit_job(&Event::new("c", "k", "x"));
        world.emit_job(&Event::new("c", "k", "y"));
        settles(&world, 2).await;
        replay(&world, 1);
        settles(&world, 3).await;
        assert_eq!((world.runs.count(), answers(&world)), (2, vec![(1, answer)]), "{on_conflict:?}");
        let told = last(&world);
        let kind = told.error.map(|error| error.kind);
        match on_conflict {
            Conflicts::DeadLetter => assert_eq!((kind.as_deref(), told.detail), (Some("conflict"), None)),
            Conflicts::Skip => assert!(told.detail.unwrap().contains("another payload")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_a_class_that_is_gone_failed_again_in_its_round() {
    let (world, node) = after_a_death(class, |_, _| DONE).await;
    node.stop(SECOND).await;
    let _node = worker(&world, world.class("other"), |_, _| DONE);
    replay(&world, 1);
    settles(&world, 2).await;
    assert_eq!(answers(&world), [(1, Answer::FailedAgain)]);
    assert_eq!(last(&world).error.unwrap().code, "unknown-class");
    let dead = &world.dead()[1];
    assert_eq!((dead.header("job-round"), job_header(dead).unwrap().round), (Some(&b"1"[..]), Round(1)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_between_mark_and_outcome_is_followed_by_one_that_tells_it() {
    for (reply, answer) in [(DONE, Answer::Resolved), (permanent(), Answer::FailedAgain)] {
        let then = move |_: &Job, _| reply.clone();
        let (world, node) = after_a_death(class, then.clone()).await;
        node.faults().always(journal(&world), Fate::Fails(10 * MILLI));
        replay(&world, 1);
        tokio::time::sleep(5 * SECOND).await;
        assert_eq!((world.runs.count(), committed(&world), world.outcomes().len()), (2, 1, 0));
        node.kill(OnTheirWay::Lost).await;
        let _node = worker_after_death(&world, world.class("c"), then);
        settles(&world, 2).await;
        assert_eq!((world.runs.count(), answers(&world)), (2, vec![(1, answer)]));
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_journal_cannot_be_written_no_replay_settles_and_everything_else_goes_on() {
    for fate in [Fate::Refused, Fate::Fails(10 * MILLI), Fate::LosesAnswer(10 * MILLI)] {
        let (world, node) = after_a_death(class, |_, _| DONE).await;
        node.faults().always(journal(&world), fate);
        replay(&world, 1);
        tokio::time::sleep(SECOND).await;
        for n in 0..20 {
            world.emit_job(&Event::new("c", &format!("other-{n}"), "x"));
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((world.runs.count(), committed(&world)), (22, 1), "{fate:?}");
        let told = node.told();
        let trouble = &told.troubles[&world.jobs_partition(0)];
        assert!(trouble.contains("outcomes of replays can't be written to `tg.dlq-journal`"), "{trouble}");
        node.faults().heal(&journal(&world));
        // The twenty others died and were dead-lettered: they settled without the journal.
        settles(&world, 22).await;
        assert_eq!((node.told().troubles.len(), world.dead().len()), (0, 21), "{fate:?}");
        let distinct = answers(&world);
        assert!(distinct.iter().all(|answer| *answer == (1, Answer::Resolved)) && !distinct.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_says_nothing_for_long_is_told_until_it_answers() {
    let (world, node) = after_a_death(class, |_, _| DONE).await;
    node.faults().script(journal(&world), [Fate::Succeeds(60 * SECOND)]);
    replay(&world, 1);
    tokio::time::sleep(19 * SECOND).await;
    assert_eq!(node.told().troubles.len(), 0);
    tokio::time::sleep(3 * SECOND).await;
    let trouble = node.told().troubles[&world.jobs_partition(0)].clone();
    assert!(trouble.contains("none was acknowledged for 20s"), "{trouble}");
    settles(&world, 2).await;
    assert!(until(SECOND, || node.told().troubles.is_empty()).await);
    assert_eq!(answers(&world), [(1, Answer::Resolved)]);
}

#[tokio::test(start_paused = true)]
async fn a_revoke_waits_for_the_outcome_and_a_lost_partition_leaves_it_to_its_next_owner() {
    let (world, mut node) = after_a_death(class, |_, _| DONE).await;
    node.faults().script(journal(&world), [Fate::Succeeds(3 * SECOND)]);
    replay(&world, 1);
    tokio::time::sleep(SECOND).await;
    let drained = node.drain(&[world.jobs_partition(0)], 10 * SECOND).await;
    assert_eq!((drained.left, committed(&world)), (0, 2));

    node.assign(&world.jobs_partition(0));
    node.faults().script(journal(&world), [Fate::Succeeds(3 * SECOND)]);
    replay(&world, 2);
    tokio::time::sleep(SECOND).await;
    node.lose(&[world.jobs_partition(0)]).await;
    let _next = worker_after_death(&world, world.class("c"), |_, _| DONE);
    settles(&world, 3).await;
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(
        answers(&world),
        [(1, Answer::Resolved), (2, Answer::AlreadyDone), (2, Answer::AlreadyDone)],
        "told by both"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_too_large_goes_without_its_error() {
    let (world, node) = after_a_death(class, |_, _| permanent()).await;
    node.faults().limit_size(world.names.dlq_journal().as_str(), 190);
    replay(&world, 1);
    settles(&world, 2).await;
    assert_eq!((answers(&world), last(&world).error), (vec![(1, Answer::FailedAgain)], None));
    assert_eq!(node.told().changes.len(), 0, "that is no trouble");
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_dies_in_its_delay_topic_is_told_by_retry() {
    let (world, _node) = after_a_death(class, |_, _| transient()).await;
    let mut retry = world.retry(1 << 20);
    retry.faults().limit_size(world.names.jobs(TIER).as_str(), 10);
    let delay = TopicPartition { topic: world.names.delay(TIER, SECOND), ..world.jobs_partition(0) };
    retry.assign(&delay);
    retry.faults().script(journal(&world), [Fate::Refused, Fate::Succeeds(SECOND)]);
    replay(&world, 1);
    assert!(until(20 * SECOND, || answers(&world).len() == 2).await);
    let told = last(&world);
    assert_eq!((told.outcome.round, told.outcome.answer), (Round(1), Answer::FailedAgain));
    assert_eq!((told.worker.as_deref(), told.error.unwrap().code.as_str()), (Some("tg.retry"), "too-large"));
    let position = || world.group(&world.names.retry_group()).position(&delay).0;
    assert!(until(5 * SECOND, || position() == 1).await);
    assert_eq!(retry.told().troubles.len(), 0);
}

mod ingest {
    use tidegate_domain::job::JOB_HEADER;
    use tidegate_pipeline::fakes::FnRouter;
    use tidegate_pipeline::forward::Routed;
    use tidegate_pipeline::record::Record;

    use super::*;

    const REPLAY: &str = "v=1 item=shop.orders/0/0/ round=1";

    /// Everything of the source dies; what comes back is decided by its class.
    fn ingest(world: &World) -> Node {
        let (names, partitions) = (world.names.clone(), world.partitions());
        let reingest = world.names.reingest();
        let router = FnRouter::new(move |source, record, now, jobs| {
            let event = Event::of(record).unwrap();
            let job = event.plan((&names, TIER, partitions), source, record, now);
            let no_route = || Failure::permanent("no-route", "no class takes it");
            match event.class {
                _ if source.topic != reingest => Routed::Dead(no_route()),
                "ignored" => Routed::Ignored,
                "dead" => Routed::Dead(no_route()),
                "half" => {
                    jobs.push(job);
                    Routed::JobsAndDead(vec![no_route()])
                }
                _ => {
                    jobs.push(job);
                    Routed::Jobs
                }
            }
        });
        let mut node = world.ingest(router);
        node.assign(&world.source_partition(0));
        node.assign(&reingested(world));
        node
    }

    fn reingested(world: &World) -> TopicPartition {
        TopicPartition { topic: world.names.reingest(), ..world.source_partition(0) }
    }

    fn position(world: &World) -> i64 {
        world.group(&world.names.ingest_group()).position(&reingested(world)).0
    }

    async fn after_a_death(class: &str) -> (World, Node) {
        let world = World::new(1, 1);
        let node = ingest(&world);
        world.emit(0, &Event::new(class, "k", "x"));
        assert!(until(SECOND, || world.dead().len() == 1).await);
        (world, node)
    }

    fn text(record: &Record, name: &str) -> Option<String> {
        record.header(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_routed_now_is_resolved_and_its_job_begins_a_life_of_its_own() {
        let (world, node) = after_a_death("c").await;
        node.faults().script(Port::Publish(world.names.jobs(TIER).to_string()), [Fate::Succeeds(3 * SECOND)]);
        world.reingest(&world.dead()[0], Some(REPLAY));
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(world.outcomes().len(), 0, "it is not true before the job is there");
        assert!(until(5 * SECOND, || position(&world) == 1).await);
        let told = last(&world);
        assert_eq!((told.id.to_string().as_str(), told.outcome.round), ("shop.orders/0/0/", Round(1)));
        assert_eq!((told.outcome.answer, told.worker.as_deref()), (Answer::Resolved, Some("tg.ingest")));
        let job = world.records(&world.names.jobs(TIER)).remove(0);
        assert_eq!(job_header(&job).unwrap().round, Round(0));
        let names: Vec<_> =
            job.headers().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["event-id", JOB_HEADER], "nothing of the dead letter travels on");
    }

    #[tokio::test(start_paused = true)]
    async fn what_dies_again_failed_again_and_its_dead_letter_names_source_and_round() {
        for class in ["dead", "half"] {
            let (world, _node) = after_a_death(class).await;
            world.reingest(&world.dead()[0], Some(REPLAY));
            assert!(until(5 * SECOND, || position(&world) == 1).await);
            let told = last(&world);
            assert_eq!(told.outcome.answer, Answer::FailedAgain);
            assert_eq!(told.error.unwrap().code, "no-route");
            let dead = &world.dead()[1];
            for (name, value) in [
                ("__connect.errors.topic", "shop.orders"),
                ("__connect.errors.partition", "0"),
                ("__connect.errors.offset", "0"),
                ("job-round", "1"),
            ] {
                assert_eq!(text(dead, name).as_deref(), Some(value), "{name}");
                let of_that_name = dead.headers().filter(|(header, _)| *header == name.as_bytes());
                assert_eq!(of_that_name.count(), 1, "{name}");
            }
            assert_eq!(text(dead, "job-replay"), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_ignored_by_a_rule_now_is_resolved_and_says_why() {
        let (world, _node) = after_a_death("ignored").await;
        world.reingest(&world.dead()[0], Some(REPLAY));
        assert!(until(5 * SECOND, || position(&world) == 1).await);
        let told = last(&world);
        assert_eq!(
            (told.outcome.answer, told.detail.unwrap().as_str()),
            (Answer::Resolved, "it is ignored by a rule")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_console_sent_is_forwarded_without_an_outcome_and_keeps_its_source() {
        for replay in [None, Some("v=1 round=0"), Some("v=2 item=shop.orders/0/0/ round=1")] {
            let (world, _node) = after_a_death("dead").await;
            world.reingest(&world.dead()[0], replay);
            assert!(until(5 * SECOND, || position(&world) == 1).await);
            assert_eq!((world.outcomes().len(), world.dead().len()), (0, 2));
            let again = &world.dead()[1];
            assert_eq!(text(again, "__connect.errors.topic").as_deref(), Some("shop.orders"));
            assert_eq!(text(again, "job-round"), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_journal_cannot_be_written_ingest_goes_on_and_forwards_nothing_twice() {
        let (world, node) = after_a_death("c").await;
        node.faults().always(journal(&world), Fate::Refused);
        world.reingest(&world.dead()[0], Some(REPLAY));
        world.reingest(&world.dead()[0], None);
        world.emit(0, &Event::new("c", "k2", "x"));
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!((world.records(&world.names.jobs(TIER)).len(), world.dead().len()), (2, 2));
        assert_eq!(position(&world), 0);
        assert!(node.told().troubles[&reingested(&world)].contains("outcomes of replays can't be written"));
        node.faults().heal(&journal(&world));
        assert!(until(5 * SECOND, || position(&world) == 2).await);
        assert_eq!((node.told().troubles.len(), world.outcomes().len()), (0, 1));
        assert_eq!(world.records(&world.names.jobs(TIER)).len(), 2);
    }
}
