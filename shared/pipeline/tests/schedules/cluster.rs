//! Two processes of each service, and what happens to them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::flood::FloodLimits;
use tidegate_domain::{Failure, Outcome};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::fakes::events::job_header;
use tidegate_pipeline::fakes::faults::Odds;
use tidegate_pipeline::fakes::handlers::Script;
use tidegate_pipeline::fakes::node::OnTheirWay;
use tidegate_pipeline::fakes::world::{Force, TIER};
use tidegate_pipeline::fakes::{Dice, Disk, Event, FnRouter, Node, Reply, World};
use tidegate_pipeline::forward::Routed;
use tidegate_pipeline::jobs::{Class, Conflicts, Guard, Ordering};
use tidegate_pipeline::record::Record;

const SECOND: Duration = Duration::from_secs(1);
/// The key of jobs that end every process.
const POISON: &str = "poison";

/// What happened in a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) events: u64,
    pub(crate) runs: u64,
    pub(crate) jobs_run: u64,
    pub(crate) wrong: u64,
    pub(crate) kills: u64,
    pub(crate) revokes: u64,
    pub(crate) losses: u64,
    pub(crate) deposed: u64,
    pub(crate) dead: u64,
    pub(crate) retries: u64,
    /// Processes that a handler ended, and jobs that were dead-lettered for it.
    pub(crate) crashes: u64,
    pub(crate) poisonous: u64,
    /// Copies of marks that were lost while their partition was at work.
    pub(crate) copies_lost: u64,
    /// Changelogs that lost their end, and went on from there.
    pub(crate) ends_lost: u64,
    /// How often a class was parked.
    pub(crate) parked: u64,
    /// Copies in the longest delay topic: nothing but a parked class sends jobs there.
    pub(crate) climbed: u64,
    /// Records that operators sent round again.
    pub(crate) replays: u64,
    /// Outcomes in the journal.
    pub(crate) outcomes: u64,
    /// How long it took, in its own time.
    pub(crate) lasted: Duration,
}

impl Story {
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.runs += other.runs;
        self.jobs_run += other.jobs_run;
        self.wrong += other.wrong;
        self.kills += other.kills;
        self.revokes += other.revokes;
        self.losses += other.losses;
        self.deposed += other.deposed;
        self.dead += other.dead;
        self.retries += other.retries;
        self.crashes += other.crashes;
        self.poisonous += other.poisonous;
        self.copies_lost += other.copies_lost;
        self.ends_lost += other.ends_lost;
        self.parked += other.parked;
        self.climbed += other.climbed;
        self.replays += other.replays;
        self.outcomes += other.outcomes;
        self.lasted += other.lasted;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Ingest,
    Worker,
    Retry,
}

struct Member {
    role: Role,
    node: Node,
    /// What it still holds although it is another's.
    deposed_of: Vec<TopicPartition>,
}

pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    dice: Dice,
    odds: Option<Odds>,
    script: Script,
    calm: Arc<Mutex<bool>>,
    /// What all handlers depend on is away.
    outage: Arc<Mutex<bool>>,
    members: Vec<Member>,
    /// Of every process that there was.
    guards: Vec<Guard>,
    /// Of workers that died: their successors may find them.
    disks: Vec<Disk>,
    /// Owners of a partition whose changelog lost its end while they had it. Should another's append fill just what was lost, nothing
    /// shows them that they miss it.
    pub(crate) lived_through: Arc<Mutex<BTreeSet<(TopicPartition, u64)>>>,
    story: Story,
    began: tokio::time::Instant,
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut world = World::new(dice.roll(), 2);
        world.shard.commit_interval = SECOND;
        world.shard.window_records = *dice.pick(&[3, 6, 1000]).unwrap();
        let calm = Arc::new(Mutex::new(false));
        let outage = Arc::new(Mutex::new(false));
        let script = script(dice.fork(), calm.clone(), outage.clone());
        let late = Duration::from_millis(*dice.pick(&[10, 300, 3000]).unwrap());
        let odds = Some(Odds { wrong: *dice.pick(&[2, 10, 30]).unwrap(), late });
        let (world, began) = (Arc::new(world), tokio::time::Instant::now());
        let lived_through = Arc::default();
        let (members, guards, disks, story) = (Vec::new(), Vec::new(), Vec::new(), Story::default());
        let mut cluster = Self {
            world,
            dice,
            odds,
            script,
            calm,
            outage,
            members,
            guards,
            disks,
            lived_through,
            story,
            began,
        };
        for role in [Role::Ingest, Role::Worker, Role::Retry] {
            let partitions = cluster.partitions_of(role);
            for half in partitions.chunks(partitions.len().div_ceil(2)) {
                cluster.start(role, half);
            }
        }
        cluster
    }

    fn partitions_of(&self, role: Role) -> Vec<TopicPartition> {
        let log = &self.world.log;
        match role {
            Role::Ingest => log.partitions(&self.world.source()),
            Role::Worker => log.partitions(&self.world.names.jobs(TIER)),
            Role::Retry => {
                let topics =
                    self.world.ladder.delays().iter().map(|&delay| self.world.names.delay(TIER, delay));
                topics.flat_map(|topic| log.partitions(&topic)).collect()
            }
        }
    }

    fn start(&mut self, role: Role, partitions: &[TopicPartition]) {
        let mut node = match role {
            Role::Ingest => self.world.ingest(router(&self.world, self.dice.fork(), self.calm.clone())),
            Role::Worker => {
                let classes = classes(&self.world);
                self.guards.extend(classes.iter().map(|class| class.guard.clone()));
                let disk = self.disks.pop().unwrap_or_else(|| self.world.disk());
                self.world.worker_with_changelog(&disk, classes, 4, self.script.clone())
            }
            Role::Retry => self.world.retry(2000),
        };
        node.faults().set_odds(self.odds);
        partitions.iter().for_each(|partition| node.assign(partition));
        self.members.push(Member { role, node, deposed_of: Vec::new() });
    }

    pub(crate) async fn something_happens(&mut self) {
        match self.dice.below(100) {
            0..50 => self.emit(),
            50..58 => self.move_partition(Leave::Revoked).await,
            58..63 => self.move_partition(Leave::Lost).await,
            63..68 => self.move_partition(Leave::Deposed).await,
            68..74 => self.kill().await,
            74..80 => self.tell_the_deposed().await,
            80..84 => *self.outage.lock() = true,
            84..88 => *self.outage.lock() = false,
            88..94 => self.replay(),
            94..97 => self.lose_a_copy(),
            97..99 => self.lose_an_end(),
            _ => {}
        }
        let wait = Duration::from_millis(
            self.dice.below(*[5, 50, 600].get(self.dice.clone().below(3) as usize).unwrap()),
        );
        self.pass(wait).await;
    }

    /// Time passes; a process that a handler ends is followed by another at once.
    async fn pass(&mut self, wait: Duration) {
        let over = tokio::time::sleep(wait);
        tokio::pin!(over);
        let world = self.world.clone();
        loop {
            tokio::select! {
                biased;
                node = world.runs.crash() => {
                    self.story.crashes += 1;
                    if let Some(place) = self.members.iter().position(|member| member.node.id() == node) {
                        self.kill_at(place, OnTheirWay::Arrives).await;
                    }
                }
                () = &mut over => return,
            }
        }
    }

    fn emit(&mut self) {
        for _ in 0..=self.dice.below(3) {
            let class = *self
                .dice
                .pick(&["free", "free", "free", "ordered", "ordered", "strict", "both", "ignored", "bad"])
                .unwrap();
            let key = *self.dice.pick(&["a", "b", "c", "d", "e", "f", "g", "h"]).unwrap();
            let payload = *self.dice.pick(&["x", "x", "x", "y"]).unwrap();
            let (class, key) = if self.dice.chance(1) { ("free", POISON) } else { (class, key) };
            let partition = i32::try_from(self.dice.below(2)).unwrap();
            self.world.emit(partition, &Event::new(class, key, payload));
            self.story.events += 1;
        }
    }

    /// An operator sends a dead letter round again, perhaps from two consoles at once.
    fn replay(&mut self) {
        let dead = self.world.dead();
        let Some(letter) = self.dice.pick(&dead) else { return };
        let Some(job) = job_header(letter) else { return };
        let same = dead.iter().filter_map(job_header).filter(|other| other.job_id() == job.job_id());
        let known = same.map(|other| other.round.0).max().unwrap_or(0);
        for _ in 0..=self.dice.below(2) {
            self.world.replay(letter, known + 1, Force::No);
            self.story.replays += 1;
        }
    }

    /// One of the members, and another of its role.
    fn two(&mut self) -> (usize, usize) {
        let from = self.dice.below(self.members.len() as u64) as usize;
        let role = self.members[from].role;
        let to = (0..self.members.len()).find(|&n| n != from && self.members[n].role == role).unwrap();
        (from, to)
    }

    async fn move_partition(&mut self, leave: Leave) {
        let (from, to) = self.two();
        let partitions: Vec<TopicPartition> = self.members[from].node.assigned().iter().cloned().collect();
        let Some(partition) = self.dice.pick(&partitions).cloned() else { return };
        let one = std::slice::from_ref(&partition);
        // A member that is deposed of it must let go of it before it can have it again.
        self.members[to].let_go(one).await;
        let old = &mut self.members[from];
        match leave {
            Leave::Revoked => {
                let grace = Duration::from_millis(self.dice.below(4000));
                old.node.revoke(one, grace).await;
                self.story.revokes += 1;
            }
            Leave::Lost => {
                old.node.lose(one).await;
                self.story.losses += 1;
            }
            Leave::Deposed => {
                old.node.depose(&partition);
                old.deposed_of.push(partition.clone());
                self.story.deposed += 1;
            }
        }
        self.members[to].node.assign(&partition);
    }

    fn lose_a_copy(&mut self) {
        let workers: Vec<&Node> =
            self.members.iter().filter(|m| m.role == Role::Worker).map(|m| &m.node).collect();
        let Some(&node) = self.dice.pick(&workers) else { return };
        let partitions: Vec<&TopicPartition> = node.assigned().iter().collect();
        if let (Some((table, _)), Some(at)) = (&node.parts.table, self.dice.pick(&partitions)) {
            table.set_aside(at);
            self.story.copies_lost += 1;
        }
    }

    /// An unclean election: the changelog goes on from an earlier end. Perhaps so far that no position lies beyond it.
    fn lose_an_end(&mut self) {
        let number = i32::try_from(self.dice.below(2)).unwrap();
        let records = 1 + i64::try_from(self.dice.below(8)).unwrap();
        let at = self.world.jobs_partition(number);
        for member in self.members.iter().filter(|member| member.node.assigned().contains(&at)) {
            self.lived_through.lock().insert((at.clone(), member.node.id()));
        }
        self.world.lose_end_of_changelog(number, records);
        if self.dice.chance(50) {
            let log = TopicPartition {
                topic: self.world.names.marks(TIER),
                partition: self.world.jobs_partition(number).partition,
            };
            (0..records + 1).for_each(|_| self.world.log.append_marks_of_nobody(&log));
        }
        self.story.ends_lost += 1;
    }

    async fn tell_the_deposed(&mut self) {
        for member in &mut self.members {
            let partitions = member.deposed_of.clone();
            member.let_go(&partitions).await;
        }
    }

    async fn kill(&mut self) {
        let place = self.dice.below(self.members.len() as u64) as usize;
        let on_their_way = *self.dice.pick(&[OnTheirWay::Lost, OnTheirWay::Arrives]).unwrap();
        self.kill_at(place, on_their_way).await;
        self.story.kills += 1;
    }

    async fn kill_at(&mut self, place: usize, on_their_way: OnTheirWay) {
        let Member { role, node, .. } = self.members.swap_remove(place);
        let partitions: Vec<TopicPartition> = node.assigned().iter().cloned().collect();
        self.story.wrong += node.faults().wrong();
        let disk = node.parts.table.as_ref().map(|(table, _)| table.disk.clone());
        node.kill(on_their_way).await;
        if let Some(disk) = disk {
            match self.dice.below(10) {
                0..7 => self.disks.push(disk),
                // Found by whoever comes after the next.
                7 => self.disks.insert(0, disk),
                _ => {}
            }
        }
        self.start(role, &partitions);
    }

    /// Nothing fails any more.
    pub(crate) fn calm_down(&mut self) {
        self.odds = None;
        *self.calm.lock() = true;
        *self.outage.lock() = false;
        self.members.iter().for_each(|member| member.node.faults().set_odds(None));
    }

    /// Waits until everything is read to its end and committed.
    pub(crate) async fn until_quiet(&mut self, limit: Duration) -> bool {
        self.tell_the_deposed().await;
        let deadline = tokio::time::Instant::now() + limit;
        while tokio::time::Instant::now() < deadline {
            if self.behind().is_empty() {
                return true;
            }
            self.pass(SECOND).await;
        }
        false
    }

    fn behind(&self) -> Vec<TopicPartition> {
        let names = &self.world.names;
        let groups = [
            (Role::Ingest, names.ingest_group()),
            (Role::Worker, names.worker_group(TIER)),
            (Role::Retry, names.retry_group()),
        ];
        let behind = |(role, group): (Role, String)| {
            let group = self.world.group(&group);
            let partitions = self.partitions_of(role).into_iter();
            partitions.filter(|at| group.position(at) < self.world.log.end(at)).collect::<Vec<_>>()
        };
        groups.into_iter().flat_map(behind).collect()
    }

    pub(crate) fn describe(&self) -> String {
        let members: Vec<String> = self
            .members
            .iter()
            .map(|m| {
                format!(
                    "{:?} {} of {:?}: {:?}",
                    m.role,
                    m.node.id(),
                    m.node.assigned(),
                    m.node.told().troubles
                )
            })
            .collect();
        format!("{:?} behind; {members:#?}", self.behind())
    }

    /// Everything is given back at once, since nothing is in hand; no trouble is left.
    pub(crate) async fn stop(mut self) -> Story {
        // A fault of a source is told for ten seconds when nothing else comes.
        tokio::time::sleep(12 * SECOND).await;
        for member in self.members {
            let told = member.node.told();
            assert!(member.node.runs() && told.troubles.is_empty() && told.fatal.is_empty(), "{told:?}");
            assert_eq!(member.node.parts.publisher.on_their_way(), 0);
            self.story.wrong += member.node.faults().wrong();
            let began = tokio::time::Instant::now();
            member.node.stop(60 * SECOND).await;
            assert!(began.elapsed() < SECOND, "something counts as in hand that is not: {:?}", member.role);
        }
        let mut jobs = self.world.runs.job_ids();
        self.story.runs = jobs.len() as u64;
        jobs.sort_unstable();
        jobs.dedup();
        self.story.jobs_run = jobs.len() as u64;
        let dead = self.world.dead();
        self.story.dead = dead.len() as u64;
        let crashed = dead.iter().filter(|record| record.header("job-error-kind") == Some(b"crash"));
        let (poisonous, blamed): (Vec<&Record>, Vec<&Record>) =
            crashed.partition(|record| record.key() == Some(POISON.as_bytes()));
        self.story.poisonous = poisonous.len() as u64;
        // Blamed is also what ran alone when its process was killed from outside, or was deposed; with it go its equals.
        let blamed: BTreeSet<(&[u8], &[u8])> =
            blamed.iter().filter_map(|record| Some((record.key()?, record.value()?))).collect();
        let from_outside = self.story.kills + self.story.deposed;
        assert!(blamed.len() as u64 <= from_outside, "a neighbour was blamed: {blamed:?}");
        self.story.retries = self.world.delayed().len() as u64;
        self.story.parked = self.guards.iter().map(Guard::times_parked).sum();
        let longest = self.world.names.delay(TIER, 600 * SECOND);
        self.story.climbed = self.world.records(&longest).len() as u64;
        self.story.outcomes = self.world.outcomes().len() as u64;
        self.story.lasted = self.began.elapsed();
        self.story
    }
}

#[derive(Clone, Copy, Debug)]
enum Leave {
    Revoked,
    Lost,
    /// Another has it, and it does not know.
    Deposed,
}

impl Member {
    async fn let_go(&mut self, partitions: &[TopicPartition]) {
        let theirs: Vec<TopicPartition> =
            partitions.iter().filter(|at| self.deposed_of.contains(at)).cloned().collect();
        if !theirs.is_empty() {
            self.deposed_of.retain(|at| !theirs.contains(at));
            self.node.lose(&theirs).await;
        }
    }
}

fn classes(world: &World) -> Vec<Class> {
    let time_limit = 2 * SECOND;
    // Easily parked: few runs are enough.
    let limits = FloodLimits {
        failures: 0.6,
        of: 3,
        within: 5 * SECOND,
        probe_after: SECOND / 5,
        probe_at_most: 2 * SECOND,
    };
    let class = |name| Class { time_limit, guard: Guard::new(name, limits), ..world.class(name) };
    vec![
        class("free"),
        Class { ordering: Ordering::Key, ..class("ordered") },
        Class { on_conflict: Conflicts::DeadLetter, max_attempts: 2, ..class("strict") },
    ]
}

/// The classes of the jobs that an event becomes.
pub(crate) fn classes_of<'a>(event: &Event<'a>) -> Vec<&'a str> {
    match event.class {
        "both" => vec!["free", "strict"],
        "ignored" | "bad" => vec![],
        class => vec![class],
    }
}

fn router(world: &World, dice: Dice, calm: Arc<Mutex<bool>>) -> FnRouter {
    let (names, partitions, mut dice) = (world.names.clone(), world.partitions(), dice);
    FnRouter::new(move |source, record, now, jobs| {
        if !*calm.lock() && dice.chance(5) {
            return Routed::Later("drawn".to_owned());
        }
        match Event::of(record) {
            Some(event) if event.class == "ignored" => Routed::Ignored,
            Some(event) if event.class != "bad" => {
                for class in classes_of(&event) {
                    jobs.push(Event { class, ..event }.plan((&names, TIER, partitions), source, record, now));
                }
                Routed::Jobs
            }
            _ => Routed::Dead(Failure::permanent("bad", "bad")),
        }
    })
}

fn script(dice: Dice, calm: Arc<Mutex<bool>>, outage: Arc<Mutex<bool>>) -> Script {
    let dice = Mutex::new(dice);
    Arc::new(move |job, before| {
        if job.record().key() == Some(POISON.as_bytes()) {
            return Reply::Crash;
        }
        let mut dice = dice.lock();
        let wait = Duration::from_millis(dice.below(1500));
        let transient = Outcome::Failed(Failure::transient("t", "t"));
        if *outage.lock() {
            return Reply::After(wait / 10, transient);
        }
        if *calm.lock() {
            return if dice.chance(80) { Reply::After(wait, Outcome::Done) } else { Reply::Now(transient) };
        }
        match dice.below(100) {
            0..30 => Reply::Now(Outcome::Done),
            30..60 => Reply::After(wait, Outcome::Done),
            60..70 => Reply::Now(transient),
            70..82 => Reply::After(wait, transient),
            82..86 => Reply::Now(Outcome::Failed(Failure::permanent("p", "p"))),
            86..88 => Reply::Panic,
            88..90 => Reply::PanicAfter(wait),
            90..94 => Reply::Hang,
            94..98 if before < 3 => Reply::Now(Outcome::Snooze(wait)),
            _ => {
                Reply::After(wait, Outcome::Failed(Failure::transient("t", "t").with_retry_after(2 * SECOND)))
            }
        }
    })
}
