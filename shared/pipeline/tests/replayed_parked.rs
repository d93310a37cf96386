//! What operators are told of replayed jobs whose class is parked: that they wait, again and again, until they go on.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_domain::flood::FloodLimits;
use tidegate_domain::inbox::Answer;
use tidegate_domain::{Failure, Outcome, Round};
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{Force, TIER, until};
use tidegate_pipeline::fakes::{Event, Fate, Node, Port, Reply, World};
use tidegate_pipeline::jobs::{Class, Guard, Job};
use tidegate_pipeline::journal::OutcomeEntry;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MILLI: Duration = Duration::from_millis(1);
const DONE: Reply = Reply::Now(Outcome::Done);

/// Nothing is probed before the test looked at what is told.
const LIMITS: FloodLimits = FloodLimits {
    failures: 0.5,
    of: 4,
    within: Duration::from_secs(10),
    probe_after: Duration::from_secs(20 * 60),
    probe_at_most: Duration::from_secs(20 * 60),
};

/// One partition with dead letters, and whether what class `c` depends on answers.
struct Parked {
    world: World,
    guard: Guard,
    answers: Arc<AtomicBool>,
}

impl Parked {
    /// These die in their first life, each in a lane of its key.
    async fn with_dead(jobs: &[(&str, &str)]) -> (Self, Node) {
        let this = Self { world: World::new(1, 1), guard: Guard::new("c", LIMITS), answers: Arc::default() };
        let node = this.worker();
        jobs.iter().for_each(|(class, key)| this.emit(class, key));
        assert!(until(SECOND, || this.world.dead().len() == jobs.len()).await);
        this.parks().await;
        assert!(until(SECOND, || this.committed() == jobs.len() as i64 + 4).await);
        (this, node)
    }

    /// Another shard of the process, or the same one again: they share the guard.
    fn worker(&self) -> Node {
        let answers = self.answers.clone();
        let script = move |job: &Job, _| match job.record().key() {
            Some(key) if key.starts_with(b"dead") && job.round == Round(0) => {
                Reply::Now(Outcome::Failed(Failure::permanent("http-422", "refused")))
            }
            _ if answers.load(Ordering::Relaxed) => DONE,
            _ => Reply::Now(Outcome::Failed(Failure::transient("away", "away"))),
        };
        let world = &self.world;
        let guarded = Class { guard: self.guard.clone(), ..world.class("c") };
        let mut node = world.worker(vec![guarded, world.class("d")], 10, Arc::new(script));
        node.assign(&world.jobs_partition(0));
        node
    }

    /// Enough of class `c` fails.
    async fn parks(&self) {
        (0..4).for_each(|n| self.emit("c", &format!("{n}")));
        assert!(until(SECOND, || self.world.delayed().len() == 4 && self.guard.is_parked()).await);
    }

    fn emit(&self, class: &str, key: &str) {
        self.world.emit_job(&Event::new(class, key, "x"));
    }

    fn replay(&self, round: u32) {
        self.world.dead().iter().for_each(|dead| self.world.replay(dead, round, Force::No));
    }

    fn committed(&self) -> i64 {
        let world = &self.world;
        world.group(&world.names.worker_group(TIER)).position(&world.jobs_partition(0)).0
    }

    fn journal(&self) -> Port {
        Port::Publish(self.world.names.dlq_journal().to_string())
    }

    /// How long after the first of them each was said, and for how long it holds, in seconds.
    fn words(&self) -> Vec<(u64, u64)> {
        let outcomes = self.world.outcomes();
        let first = outcomes.first().map(|outcome| outcome.at);
        let word = |outcome: &OutcomeEntry| match outcome.outcome.answer {
            Answer::WaitingUntil(until) => {
                Some((outcome.at.since(first?).as_secs(), until.since(outcome.at).as_secs()))
            }
            _ => None,
        };
        outcomes.iter().filter_map(word).collect()
    }

    fn answers(&self) -> Vec<&'static str> {
        self.world.outcomes().iter().map(|outcome| outcome.outcome.answer.as_str()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_a_parked_class_waits_aloud_and_is_resolved_when_a_probe_passes() {
    let (parked, _node) = Parked::with_dead(&[("c", "dead")]).await;
    let before = parked.committed();
    parked.replay(1);
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(parked.words(), [(0, 120)], "once, whatever happens meanwhile");
    assert_eq!(parked.committed(), before, "a word settles nothing");
    let told = parked.world.outcomes().remove(0);
    let (reason, clock) = (told.parked.clone().unwrap(), told.at);
    assert_eq!(reason.class, "c");
    assert!(reason.since <= clock && clock.since(reason.since) < 2 * SECOND, "{told:?}");
    let probe = reason.probe.unwrap().since(reason.since);
    assert!(probe >= LIMITS.probe_after - 5 * MILLI && probe <= LIMITS.probe_after + 5 * MILLI, "{probe:?}");
    assert_eq!((told.outcome.round, told.worker.as_deref()), (Round(1), Some("tg.default.worker")));
    parked.answers.store(true, Ordering::Relaxed);
    tokio::time::sleep(25 * MINUTE).await;
    assert_eq!(parked.committed(), before + 1);
    let words = [(0, 120), (60, 240), (180, 480), (420, 600), (720, 600), (1020, 600)];
    let near = |(said, holds): (u64, u64), (at, length)| (at..at + 10).contains(&said) && holds == length;
    let found = parked.words();
    assert!(found.len() == 6 && found.iter().zip(words).all(|(f, w)| near(*f, w)), "{found:?}");
    assert_eq!(parked.answers().last(), Some(&"resolved"));
}

#[tokio::test(start_paused = true)]
async fn only_what_was_replayed_is_told_and_so_is_what_follows_it_in_its_lane() {
    let (parked, _node) = Parked::with_dead(&[("c", "dead"), ("d", "dead"), ("d", "dead-too")]).await;
    (0..20).for_each(|n| parked.emit("c", &format!("first-{n}")));
    parked.answers.store(true, Ordering::Relaxed);
    parked.replay(1);
    tokio::time::sleep(5 * SECOND).await;
    let told = parked.world.outcomes();
    let mut told: Vec<(String, &str, Option<&str>)> = told
        .iter()
        .map(|o| {
            let parked = o.parked.as_ref().map(|parked| parked.class.as_str());
            (o.id.to_string(), o.outcome.answer.as_str(), parked)
        })
        .collect();
    told.sort();
    let waits = ("waiting", Some("c"));
    let expected = [
        ("shop.orders/0/1/c".to_owned(), waits.0, waits.1),
        ("shop.orders/0/2/d".to_owned(), waits.0, waits.1),
        ("shop.orders/0/3/d".to_owned(), "resolved", None),
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn the_next_owner_of_a_parked_replay_tells_anew_whether_the_one_before_died_or_lost_it() {
    for dies in [true, false] {
        let (parked, mut node) = Parked::with_dead(&[("c", "dead")]).await;
        parked.replay(1);
        assert!(until(5 * SECOND, || parked.words().len() == 1).await);
        if dies {
            node.kill(OnTheirWay::Lost).await;
        } else {
            node.lose(&[parked.world.jobs_partition(0)]).await;
        }
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(parked.words().len(), 1, "nobody has it, nobody says anything");
        let _next = parked.worker();
        assert!(until(5 * SECOND, || parked.words().len() == 2).await);
        tokio::time::sleep(50 * SECOND).await;
        let (said, holds) = parked.words()[1];
        assert_eq!((said / 10, holds, parked.words().len()), (30, 120, 2), "as if it were the first");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_journal_cannot_be_written_a_parked_replay_is_told_once_when_it_can() {
    let (parked, node) = Parked::with_dead(&[("c", "dead"), ("c", "dead-too")]).await;
    node.faults().always(parked.journal(), Fate::Fails(10 * MILLI));
    parked.replay(1);
    // Other classes go on, and the partition says what it can't do.
    parked.answers.store(true, Ordering::Relaxed);
    let runs = parked.world.runs.count();
    (0..20).for_each(|n| parked.emit("d", &format!("other-{n}")));
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!((parked.world.runs.count(), parked.words()), (runs + 20, vec![]));
    let trouble = node.told().troubles[&parked.world.jobs_partition(0)].clone();
    assert!(trouble.contains("outcomes of replays can't be written to `tg.dlq-journal`"), "{trouble}");
    node.faults().heal(&parked.journal());
    assert!(until(5 * SECOND, || node.told().troubles.is_empty()).await);
    tokio::time::sleep(2 * SECOND).await;
    // The words that were refused, and those that were due since.
    assert_eq!(parked.words().len(), 4, "{:?}", parked.words());
    tokio::time::sleep(15 * MINUTE).await;
    let resolved = parked.answers().iter().filter(|answer| **answer == "resolved").count();
    assert_eq!(resolved, 2);
}

#[tokio::test(start_paused = true)]
async fn a_word_on_its_way_holds_up_no_hand_over() {
    for answer in [Fate::Fails(10 * MILLI), Fate::Succeeds(60 * MINUTE)] {
        let (parked, mut node) = Parked::with_dead(&[("c", "dead")]).await;
        node.faults().always(parked.journal(), answer);
        parked.replay(1);
        // It is told, and that is not acknowledged.
        let journal_troubles = || !node.told().troubles.is_empty();
        assert!(until(10 * MINUTE, journal_troubles).await);
        let (began, settled) = (Instant::now(), parked.committed());
        let positions = node.revoke(&[parked.world.jobs_partition(0)], 25 * SECOND).await;
        assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
        assert_eq!(positions[0].1.0, settled, "its record is the next owner's");
        let _next = parked.worker();
        assert!(until(5 * SECOND, || parked.words().len() == 1).await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_settles_its_record_holds_up_a_hand_over() {
    let (parked, mut node) = Parked::with_dead(&[("d", "dead")]).await;
    node.faults().always(parked.journal(), Fate::Succeeds(5 * SECOND));
    parked.answers.store(true, Ordering::Relaxed);
    let (runs, before) = (parked.world.runs.count(), parked.committed());
    parked.replay(1);
    assert!(until(SECOND, || parked.world.runs.count() == runs + 1).await);
    tokio::time::sleep(SECOND).await;
    let positions = node.revoke(&[parked.world.jobs_partition(0)], 25 * SECOND).await;
    assert_eq!((positions[0].1.0, parked.answers()), (before + 1, vec!["resolved"]));
}
