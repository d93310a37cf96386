//! What must hold at every commit, and in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::{CommitPosition, Mark, Offset, Partition, PayloadHash};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::fakes::events::job_header;
use tidegate_pipeline::fakes::world::TIER;
use tidegate_pipeline::fakes::{Event, World};
use tidegate_pipeline::journal::{Entry, OutcomeEntry};
use tidegate_pipeline::record::Record;

use crate::cluster::{Cluster, classes_of};

/// How long after its append a `Done` may be unknown to someone, where a third of all calls fail and answers are late.
const VISIBLE_WITHIN: Duration = Duration::from_secs(90);

/// The place of an event in the source: its name in every copy.
type Origin = (Partition, Offset);
/// One job of an event: its origin and its class.
type JobName = (Origin, String);
/// Round and hop of a copy.
type Step = (u32, u32);

#[derive(Default)]
struct Books {
    seen: BTreeMap<TopicPartition, usize>,
    events: BTreeMap<Origin, Record>,
    jobs: BTreeSet<(JobName, Step)>,
    delayed: BTreeSet<(JobName, Step)>,
    dead: BTreeSet<JobName>,
    /// Of each job, the rounds whose outcome the journal has.
    outcomes: BTreeSet<(JobName, u32)>,
    /// Dead-lettered before they were jobs.
    dead_events: BTreeSet<Origin>,
    wrong: Vec<String>,
    /// How many records were looked at when they were committed, and how many runs.
    commits: usize,
    runs: usize,
}

/// Watches the commits of all groups.
pub(crate) struct Account {
    world: Arc<World>,
    lived_through: Arc<Mutex<BTreeSet<(TopicPartition, u64)>>>,
    books: Arc<Mutex<Books>>,
}

impl Account {
    pub(crate) fn begin(cluster: &Cluster) -> Self {
        let (world, lived_through) = (cluster.world.clone(), cluster.lived_through.clone());
        let books: Arc<Mutex<Books>> = Arc::default();
        for group in [world.names.ingest_group(), world.names.worker_group(TIER), world.names.retry_group()] {
            // The world holds the group, and the group this: a weak handle, so that both end.
            let (world_of, books_of) = (Arc::downgrade(&world), books.clone());
            world.group(&group).watch(Box::new(move |partition, from, to| {
                if let Some(world) = world_of.upgrade() {
                    books_of.lock().check_commit(&world, partition, from, to);
                }
            }));
        }
        Self { world, lived_through, books }
    }

    /// No commit so far was wrong, and no handler ran early or after its key was done.
    pub(crate) fn check(&self) {
        let mut books = self.books.lock();
        assert!(books.wrong.is_empty(), "{}", books.wrong.join("\n"));
        for run in self.world.runs.since(books.runs) {
            books.runs += 1;
            let partitions =
                (0..i32::try_from(self.world.partitions()).unwrap()).map(|n| self.world.jobs_partition(n));
            let places: Vec<TopicPartition> = partitions.collect();
            let marks = &self.world.marks;
            let done =
                places.iter().filter_map(|at| marks.done_since(at, &run.key).map(|done| (done, at))).min();
            let forgotten = done.as_ref().is_some_and(|(done, at)| {
                let lived_through = self.lived_through.lock().contains(&((*at).clone(), run.node));
                let opened = marks.opened_at(at, run.node);
                opened.is_some_and(|opened| *done < opened && opened < run.began && !lived_through)
            });
            assert!(!forgotten, "a key ran that was done before its owner took over: {run:?}");
            let done = done.map(|(done, _)| done);
            assert!(!run.known_done, "a key ran although its owner knew that it is done: {run:?}");
            // A new owner knows it after its restore, a deposed one after a check of the log's end; either may have to ask again.
            let known_by = done.map(|done| done + VISIBLE_WITHIN);
            let excused = |at| self.lived_through.lock().contains(&(at, run.node));
            let known_by = known_by.filter(|_| !places.into_iter().any(excused));
            assert!(known_by.is_none_or(|by| run.began <= by), "a key ran long after it was done: {run:?}");
            assert!(run.wall >= run.due, "a retry ran before it was due: {run:?}");
        }
    }

    /// Every event is done, dead-lettered, or ignored by rule.
    pub(crate) fn close(&self) {
        let mut books = self.books.lock();
        books.read(&self.world);
        let lost: Vec<_> = books
            .events
            .iter()
            .filter(|(origin, event)| !books.all_settled(&self.world, **origin, event))
            .collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert!(!books.events.is_empty() && books.commits > books.events.len(), "nothing was accounted for");
    }
}

impl Books {
    /// Reads what is new in all topics.
    fn read(&mut self, world: &World) {
        let (log, names, seen) = (&world.log, &world.names, &mut self.seen);
        for (partition, record) in log.new_records(&world.source(), seen) {
            self.events.insert((partition, record.offset()), record);
        }
        self.jobs.extend(
            log.new_records(&names.jobs(TIER), seen).iter().filter_map(|(_, record)| copy_of(record)),
        );
        for &delay in world.ladder.delays() {
            let new = log.new_records(&names.delay(TIER, delay), seen);
            self.delayed.extend(new.iter().filter_map(|(_, record)| copy_of(record)));
        }
        for (_, record) in log.new_records(&names.dlq_journal(), seen) {
            if let Ok(Entry::Outcome(OutcomeEntry { id, outcome, .. })) = Entry::read(record.value()) {
                let name = ((id.partition, id.offset), id.class.unwrap_or_default().to_string());
                self.outcomes.insert((name, outcome.round.0));
            }
        }
        for (_, record) in log.new_records(&names.dlq(), seen) {
            let Some(origin) = origin_of_dead(&record) else { continue };
            let _new = match record.header("job-class") {
                Some(class) => self.dead.insert((origin, String::from_utf8_lossy(class).into_owned())),
                None => self.dead_events.insert(origin),
            };
        }
    }

    fn check_commit(&mut self, world: &World, at: &TopicPartition, from: CommitPosition, to: CommitPosition) {
        self.read(world);
        for record in world.log.between(at, from, to) {
            let holds = if at.topic == world.source() {
                self.source_holds((at.partition, record.offset()), &record)
            } else {
                self.copy_holds(world, at, &record)
            };
            self.commits += 1;
            if !holds {
                self.wrong.push(format!("{at} was committed to {to}, and {record:?} is not settled"));
            }
        }
    }

    fn source_holds(&self, origin: Origin, record: &Record) -> bool {
        let Some(event) = Event::of(record) else { return false };
        let forwarded = |class: &&str| self.jobs.contains(&((origin, (*class).to_owned()), (0, 0)));
        match event.class {
            "ignored" => true,
            "bad" => self.dead_events.contains(&origin),
            _ => self.dead_events.contains(&origin) || classes_of(&event).iter().all(forwarded),
        }
    }

    fn copy_holds(&self, world: &World, at: &TopicPartition, record: &Record) -> bool {
        let Some((name, step)) = copy_of(record) else { return false };
        if at.topic == world.names.jobs(TIER) && step.0 > 0 && !self.is_told(&name, step.0) {
            return false;
        }
        let later = (name.clone(), (step.0, step.1 + 1))..=(name.clone(), (u32::MAX, u32::MAX));
        if self.dead.contains(&name) || self.delayed.range(later).next().is_some() {
            return true;
        }
        if at.topic != world.names.jobs(TIER) {
            return self.jobs.contains(&(name, step));
        }
        if self.is_settled(world, &name) {
            return true;
        }
        let (Some(job), payload) = (job_header(record), PayloadHash::of(record.value())) else {
            return false;
        };
        let equal =
            |mark: Mark| mark.step.is_some_and(|step| step.job != job.job_hash() && step.payload == payload);
        // What was concluded from a mark stays settled when the changelog loses it.
        equal(world.marks.get(at, &job.key)) || equal(world.marks.ever(at, &job.key))
    }

    /// Whether operators know what became of this round: it may have run as a later one.
    fn is_told(&self, name: &JobName, round: u32) -> bool {
        self.outcomes.range((name.clone(), round)..=(name.clone(), u32::MAX)).next().is_some()
    }

    /// Whether the job needs nothing more: its key is done, or it or an equal one lies in the DLQ.
    fn is_settled(&self, world: &World, name: &JobName) -> bool {
        let Some(record) = self.events.get(&name.0) else { return false };
        let Some(event) = Event::of(record).map(|event| Event { class: &name.1, ..event }) else {
            return false;
        };
        let at = world.jobs_partition(event.lane().partition(world.partitions()).0);
        // Also where its changelog lost that later: it was done.
        let done = || world.marks.ever(&at, &event.idempotency_key()).done.is_some();
        let equal = |other: &JobName| {
            other.1 == name.1
                && self.events.get(&other.0).is_some_and(|other| other.value() == record.value())
        };
        self.dead.contains(name) || done() || self.dead.iter().any(equal)
    }

    /// Whether each job of the event needs nothing more, or the event none.
    fn all_settled(&self, world: &World, origin: Origin, record: &Record) -> bool {
        let Some(event) = Event::of(record) else { return false };
        let settled = |class: &&str| self.is_settled(world, &(origin, (*class).to_owned()));
        match event.class {
            "ignored" => true,
            "bad" => self.dead_events.contains(&origin),
            _ => self.dead_events.contains(&origin) || classes_of(&event).iter().all(settled),
        }
    }
}

fn copy_of(record: &Record) -> Option<(JobName, Step)> {
    let job = job_header(record)?;
    Some((((job.partition, job.offset), job.class.to_owned()), (job.round.0, job.hop.0)))
}

fn origin_of_dead(record: &Record) -> Option<Origin> {
    let number = |name| std::str::from_utf8(record.header(name)?).ok()?.parse::<i64>().ok();
    let partition = i32::try_from(number("__connect.errors.partition")?).ok()?;
    Some((Partition(partition), Offset(number("__connect.errors.offset")?)))
}
