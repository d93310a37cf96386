//! Which keys of a plan are done, by their marks in the changelogs: what workers go by.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tidegate_bootstrap::config::duration_text;
use tidegate_domain::{IdempotencyKey, JobHeader, Lane, Partition};
use tidegate_pipeline::TopicPartition;

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::marks::{Marks, Memory};

/// For how long changelogs are read for one plan: an operator waits for it, and what was not read is told.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(10);

/// How many items have a key that is done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeysDone {
    pub(super) done: u64,
    /// Of how many others that is not known, by the reason.
    pub(super) unchecked: BTreeMap<String, u64>,
}

/// How many items have each key. Equal keys are of one lane, unless classes are configured otherwise meanwhile.
type Keys = FxHashMap<(IdempotencyKey, Lane), u64>;

/// The keys of a plan.
#[derive(Debug, Default)]
pub(super) struct PlannedKeys {
    by_tier: BTreeMap<String, Keys>,
    keyless: u64,
}

/// What was found out of some of the items.
#[derive(Debug, PartialEq, Eq)]
struct Looked {
    items: u64,
    done: u64,
    /// Why it is not known of the others.
    unchecked: Option<String>,
}

/// What is sought in one partition of a changelog.
#[derive(Clone, Debug, Default)]
struct Sought {
    /// How many items have each key.
    items: FxHashMap<IdempotencyKey, u64>,
    marks: Marks,
}

impl PlannedKeys {
    /// The plan has an item of this job; none where it never became one.
    pub(super) fn add(&mut self, job: Option<&JobHeader<'_>>) {
        let Some(job) = job else {
            self.keyless += 1;
            return;
        };
        if !self.by_tier.contains_key(job.tier) {
            self.by_tier.insert(job.tier.to_owned(), Keys::default());
        }
        if let Some(keys) = self.by_tier.get_mut(job.tier) {
            *keys.entry((job.key, job.lane)).or_default() += 1;
        }
    }

    /// Reads each partition that is concerned once, for no longer than that.
    pub(super) fn look_up(self, inbox: &Inbox, within: Duration) -> KeysDone {
        let began = Instant::now();
        // What is merely long breaks off by itself, and keeps what it found.
        let (inbox, read_until) = (inbox.clone(), began + within.mul_f64(0.9));
        self.settle(began + within, within, move |by_tier, told| {
            read(&inbox, by_tier, (read_until, within), told)
        })
    }

    /// Of none of them it is known whether it is done: the look at their items was broken off.
    pub(super) fn not_looked_up(self) -> KeysDone {
        let mut found = KeysDone::default();
        let keys = self.by_tier.values().flat_map(Keys::values).sum();
        self.note_keyless(&mut found);
        found.leave("the dry run was broken off".to_owned(), keys);
        found
    }

    /// Has it read on a thread of its own: a broker that does not answer is not waited for any longer than this, and what the client does
    /// can't be broken off. The thread ends when its client gives up.
    fn settle(
        self,
        until: Instant,
        within: Duration,
        read: impl FnOnce(BTreeMap<String, Keys>, &Sender<Looked>) + Send + 'static,
    ) -> KeysDone {
        let mut found = KeysDone::default();
        self.note_keyless(&mut found);
        let mut left: u64 = self.by_tier.values().flat_map(Keys::values).sum();
        if left == 0 {
            return found;
        }
        let (sender, looked) = mpsc::channel();
        let reader = move || read(self.by_tier, &sender);
        if let Err(error) = std::thread::Builder::new().name("marks".to_owned()).spawn(reader) {
            found.leave(format!("there is no thread to read their marks: {error}"), left);
            return found;
        }
        let reason = loop {
            match looked.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Looked { items, done, unchecked }) => {
                    left = left.saturating_sub(items);
                    found.done += done;
                    if let Some(reason) = unchecked {
                        found.leave(reason, items.saturating_sub(done));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    break "the look at their marks ended early".to_owned();
                }
                Err(RecvTimeoutError::Timeout) => {
                    break format!(
                        "Kafka did not answer within {} when it was asked for their marks",
                        duration_text(within)
                    );
                }
            }
        };
        found.leave(reason, left);
        found
    }

    fn note_keyless(&self, found: &mut KeysDone) {
        found.leave("they never became a job: ingest makes their keys".to_owned(), self.keyless);
    }
}

impl KeysDone {
    /// Of so many it is not known.
    fn leave(&mut self, reason: String, items: u64) {
        if items > 0 {
            *self.unchecked.entry(reason).or_default() += items;
        }
    }
}

/// Looks through the changelogs, and tells of each partition.
fn read(
    inbox: &Inbox,
    by_tier: BTreeMap<String, Keys>,
    (until, within): (Instant, Duration),
    told: &Sender<Looked>,
) {
    let partitions = partitions(inbox).map_err(|error| error.to_string());
    let memory = Memory::of(inbox);
    for (tier, keys) in by_tier {
        let topic = inbox.shared.names.marks(&tier);
        let count = partitions.as_ref().map_err(Clone::clone).and_then(|known| {
            let count = known.get(topic.as_str()).copied();
            count.ok_or_else(|| format!("there is no topic {topic}, or this user may not see it"))
        });
        look_through(keys, count, told, |partition, sought| {
            let log = TopicPartition { topic: topic.clone(), partition: Partition(partition) };
            sought
                .read(inbox, &log, &memory, until)
                .map_err(|error| error.to_string())?
                .then_some(())
                .ok_or_else(|| {
                    format!("the marks in {topic} were not all read within {}", duration_text(within))
                })
        });
    }
}

/// Has each partition of a tier's changelog read. Where that fails, the others are not tried: each may take as long to fail.
fn look_through(
    keys: Keys,
    partitions: Result<u32, String>,
    told: &Sender<Looked>,
    mut read: impl FnMut(i32, &mut Sought) -> Result<(), String>,
) {
    let count = partitions.as_ref().copied().unwrap_or(1);
    let mut failed = partitions.err();
    for (partition, mut sought) in by_partition(keys, count) {
        if failed.is_none() {
            failed = read(partition, &mut sought).err();
        }
        let looked =
            Looked { items: sought.items.values().sum(), done: sought.done(), unchecked: failed.clone() };
        if told.send(looked).is_err() {
            // Nobody waits for it any more.
            return;
        }
    }
}

fn by_partition(keys: Keys, count: u32) -> BTreeMap<i32, Sought> {
    let mut sought: BTreeMap<i32, Sought> = BTreeMap::new();
    for ((key, lane), items) in keys {
        let at = sought.entry(lane.partition(count).0).or_default();
        *at.items.entry(key).or_default() += items;
    }
    for sought in sought.values_mut() {
        sought.marks = Marks::of(sought.items.keys().copied());
    }
    sought
}

/// How many partitions each topic has.
fn partitions(inbox: &Inbox) -> Result<BTreeMap<String, u32>, OperatorError> {
    let topics = inbox.cluster()?.topics()?;
    Ok(topics.into_iter().map(|(name, topic)| (name, topic.partitions)).collect())
}

impl Sought {
    /// Reads a partition from its beginning; whether that was enough to know of every key.
    fn read(
        &mut self,
        inbox: &Inbox,
        log: &TopicPartition,
        memory: &Memory,
        until: Instant,
    ) -> Result<bool, OperatorError> {
        if Instant::now() >= until {
            return Ok(false);
        }
        let mut goes_on = |marks: &Marks| !marks.are_all_done() && Instant::now() < until;
        let extent = self.marks.read(&inbox.shared.logs, log, None, memory, &mut goes_on)?;
        Ok(extent.is_enough || self.marks.are_all_done())
    }

    /// How many items have a key that is done.
    fn done(&self) -> u64 {
        let is_done = |key: &IdempotencyKey| self.marks.get(key).is_some_and(|found| found.is_done());
        self.items.iter().filter(|(key, _)| is_done(key)).map(|(_, items)| items).sum()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_domain::{Attempt, Hop, Offset, Round, UnixMillis};

    use super::*;

    /// Jobs of these tiers and keys.
    fn planned(jobs: &[(&str, u8)]) -> PlannedKeys {
        let mut planned = PlannedKeys::default();
        for (tier, number) in jobs {
            let header = JobHeader {
                class: "charge",
                tier,
                topic: "shop",
                partition: Partition(0),
                offset: Offset(0),
                key: IdempotencyKey([*number; 16]),
                lane: Lane(u64::from(*number)),
                round: Round(0),
                hop: Hop(0),
                attempt: Attempt(1),
                due: UnixMillis(0),
                first_seen: UnixMillis(0),
                origin: None,
                forced: false,
            };
            planned.add(Some(&header));
        }
        planned
    }

    fn soon() -> (Instant, Duration) {
        (Instant::now() + Duration::from_secs(30), Duration::from_secs(30))
    }

    #[test]
    fn where_a_changelog_was_not_read_whole_what_was_found_counts_and_the_rest_is_not_checked() {
        let mut planned = planned(&[("a", 1), ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]);
        planned.add(None);
        let (until, within) = soon();
        let found = planned.settle(until, within, |by_tier, told| {
            for (tier, keys) in by_tier {
                look_through(keys, Ok(1), told, |_, sought| {
                    sought.marks.look_at_done(1);
                    if tier == "a" { Err("it is too long".to_owned()) } else { Ok(()) }
                });
            }
        });
        assert_eq!(found.done, 3, "each item of the key");
        let keyless = "they never became a job: ingest makes their keys".to_owned();
        assert_eq!(found.unchecked, BTreeMap::from([("it is too long".to_owned(), 2), (keyless, 1)]));
    }

    #[test]
    fn where_one_partition_fails_the_others_of_its_topic_are_not_tried() {
        let (until, within) = soon();
        let (sender, tried) = mpsc::channel();
        let jobs: Vec<(&str, u8)> = (0..40).map(|number| ("a", number)).collect();
        let found = planned(&jobs).settle(until, within, move |by_tier, told| {
            for keys in by_tier.into_values() {
                look_through(keys, Ok(8), told, |partition, _| {
                    sender.send(partition).map_err(|error| error.to_string())?;
                    Err("no leader".to_owned())
                });
            }
        });
        assert_eq!((tried.iter().count(), found.unchecked.get("no leader")), (1, Some(&40)));
        let missing = |by_tier: BTreeMap<String, Keys>, told: &Sender<Looked>| {
            for keys in by_tier.into_values() {
                look_through(keys, Err("there is no topic".to_owned()), told, |_, _| Ok(()));
            }
        };
        let found = planned(&jobs).settle(until, within, missing);
        assert_eq!(found.unchecked, BTreeMap::from([("there is no topic".to_owned(), 40)]));
    }

    #[test]
    fn a_broker_that_does_not_answer_is_waited_for_no_longer_than_the_limit_and_is_told() {
        // A busy machine may take longer than the limit before the first tier is looked through, which then counts with the other one.
        let limits = [Duration::from_millis(200), Duration::from_secs(5), Duration::from_secs(30)];
        assert!(limits.into_iter().any(first_tier_answers_within), "the first tier was never looked through");
    }

    /// Whether the first tier's marks were found within the limit. Those of the second one never come; that is told either way.
    fn first_tier_answers_within(within: Duration) -> bool {
        let (answers, answer) = mpsc::channel::<()>();
        let began = Instant::now();
        let found =
            planned(&[("a", 1), ("b", 1), ("b", 2)]).settle(began + within, within, move |by_tier, told| {
                for (tier, keys) in by_tier {
                    look_through(keys, Ok(1), told, |_, sought| {
                        if tier == "b" {
                            // It never comes: the test holds the other end until it is over.
                            answer.recv().map_err(|error| error.to_string())?;
                        }
                        sought.marks.look_at_done(1);
                        Ok(())
                    });
                }
            });
        let took = began.elapsed();
        assert!(took >= within && took < within + Duration::from_secs(60), "{took:?}");
        let limit = duration_text(within);
        let reason = format!("Kafka did not answer within {limit} when it was asked for their marks");
        let done = found.done;
        assert_eq!(found, KeysDone { done, unchecked: BTreeMap::from([(reason, 3 - done)]) });
        drop(answers);
        done == 1
    }
}
