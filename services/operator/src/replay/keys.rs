//! Which keys of a plan are done, by their marks in the changelogs: what workers go by.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tidegate_bootstrap::config::duration_text;
use tidegate_domain::{IdempotencyKey, JobHeader, Partition, UnixMillis};
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_pipeline::{Record, TopicPartition};

use crate::error::OperatorError;
use crate::inbox::{Inbox, now};

/// For how long changelogs are read for one plan: an operator waits for it, and what was not read is told.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(10);

/// How many items have a key that is done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeysDone {
    pub(super) done: u64,
    /// Of how many others that is not known, by the reason.
    pub(super) unchecked: BTreeMap<String, u64>,
}

/// The keys of a plan, by the changelog partition that holds their marks.
pub(super) struct PlannedKeys {
    /// How many partitions each topic has, or why that is not known.
    partitions: Result<BTreeMap<String, u32>, String>,
    /// The changelog of each tier that was met; none where there is none.
    changelogs: BTreeMap<String, Vec<Sought>>,
    keyless: u64,
}

/// What is sought in one partition of a changelog.
#[derive(Clone, Debug, Default)]
struct Sought {
    /// How many items have each key that is not known to be done.
    open: FxHashMap<IdempotencyKey, u64>,
    /// How many items have a key that is.
    done: u64,
}

impl PlannedKeys {
    pub(super) fn new(inbox: &Inbox) -> Self {
        let partitions = partitions(inbox).map_err(|error| error.to_string());
        Self { partitions, changelogs: BTreeMap::new(), keyless: 0 }
    }

    /// The plan has an item of this job; none where it never became one.
    pub(super) fn add(&mut self, inbox: &Inbox, job: Option<&JobHeader<'_>>) {
        let Some(job) = job else {
            self.keyless += 1;
            return;
        };
        let log = inbox.shared.names.marks(job.tier);
        let count = self.partitions.as_ref().ok().and_then(|known| known.get(log.as_str())).copied();
        self.place(log.as_str(), count, job);
    }

    /// Without a changelog, the keys are kept together all the same, so that they are counted.
    fn place(&mut self, log: &str, count: Option<u32>, job: &JobHeader<'_>) {
        let sought = self.changelogs.entry(log.to_owned()).or_default();
        let at = count.map_or(0, |count| usize::try_from(job.lane.partition(count).0).unwrap_or(0));
        if sought.len() <= at {
            sought.resize(at + 1, Sought::default());
        }
        if let Some(sought) = sought.get_mut(at) {
            *sought.open.entry(job.key).or_default() += 1;
        }
    }

    /// Reads each partition that is concerned once, and goes on with none after this time. A broker that does not answer takes longer.
    pub(super) fn look_up(self, inbox: &Inbox, within: Duration) -> KeysDone {
        let until = Instant::now() + within;
        let remembered = inbox.shared.config.state.retention;
        let since = UnixMillis(now().saturating_sub_unsigned(remembered.as_millis() as u64));
        let known = self.partitions.clone();
        self.settle(|log, sought| {
            if !known.as_ref().map_err(Clone::clone)?.contains_key(log.topic.as_str()) {
                return Err(format!("there is no topic {}, or this user may not see it", log.topic));
            }
            match sought.read(inbox, log, since, until) {
                Ok(true) => Ok(()),
                Ok(false) => {
                    let within = duration_text(within);
                    Err(format!("the marks in {} were not all read within {within}", log.topic))
                }
                Err(error) => Err(error.to_string()),
            }
        })
    }

    /// Of none of them it is known whether it is done: the look at their items was broken off.
    pub(super) fn not_looked_up(self) -> KeysDone {
        self.settle(|_, _| Err("the dry run was broken off".to_owned()))
    }

    /// Has each partition read. Where that fails, the others of its topic are not tried: each may take as long to fail.
    fn settle(self, mut read: impl FnMut(&TopicPartition, &mut Sought) -> Result<(), String>) -> KeysDone {
        let mut found = KeysDone::default();
        if self.keyless > 0 {
            let reason = "they never became a job: ingest makes their keys";
            found.unchecked.insert(reason.to_owned(), self.keyless);
        }
        for (topic, partitions) in self.changelogs {
            let mut failed = None;
            for (partition, mut sought) in (0..).zip(partitions) {
                if sought.open.is_empty() {
                    continue;
                }
                let log = TopicPartition {
                    topic: tidegate_domain::Topic::new(topic.as_str()),
                    partition: Partition(partition),
                };
                if failed.is_none() {
                    failed = read(&log, &mut sought).err();
                }
                found.done += sought.done;
                let open: u64 = sought.open.values().sum();
                if let Some(reason) = failed.as_ref().filter(|_| open > 0) {
                    *found.unchecked.entry(reason.clone()).or_default() += open;
                }
            }
        }
        found
    }
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
        since: UnixMillis,
        until: Instant,
    ) -> Result<bool, OperatorError> {
        if Instant::now() >= until {
            return Ok(false);
        }
        let logs = &inbox.shared.logs;
        let (first, end) = logs.bounds(log)?;
        let mut is_enough = true;
        logs.read(log, first, end, &mut |records| {
            records.iter().for_each(|record| self.look(record, since));
            if self.open.is_empty() {
                return ControlFlow::Break(());
            }
            is_enough = Instant::now() < until;
            if is_enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(is_enough)
    }

    /// What one record of the changelog says. Workers forget what was appended before `since`.
    fn look(&mut self, record: &Record, since: UnixMillis) {
        if record.timestamp().is_some_and(|at| at < since) {
            return;
        }
        // What is no entry says nothing of any key: workers pass it over too.
        let Ok((_, Entry::Marks(entries))) = format::read(record.value().unwrap_or_default()) else { return };
        for entry in entries.iter().filter(|entry| entry.mark.done.is_some()) {
            self.done += self.open.remove(&entry.key).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_domain::mark::{Phase, Step};
    use tidegate_domain::{Hop, JobHash, Lane, Mark, Offset, PayloadHash, Round};
    use tidegate_pipeline::changelog::OpenerId;
    use tidegate_pipeline::ports::MarkEntry;
    use tidegate_pipeline::record::RecordBuilder;

    use super::*;

    fn key(number: u8) -> IdempotencyKey {
        IdempotencyKey([number; 16])
    }

    /// These keys are sought, each for one item more than the one before.
    fn sought(keys: &[u8]) -> Sought {
        let open = keys.iter().zip(1..).map(|(number, items)| (key(*number), items)).collect();
        Sought { open, done: 0 }
    }

    fn entry(number: u8, phase: Option<Phase>) -> MarkEntry {
        let step = Step {
            round: Round(0),
            hop: Hop(0),
            phase: phase.unwrap_or(Phase::Started),
            n: 1,
            job: JobHash(1),
            payload: PayloadHash(1),
            written_at: UnixMillis(5),
        };
        MarkEntry {
            key: key(number),
            mark: if phase.is_some() { Mark::step(step) } else { Mark::done(step) },
        }
    }

    fn record(at: i64, entries: &[MarkEntry]) -> Record {
        let mut value = Vec::new();
        format::write_marks(OpenerId([7; 16]), entries, &mut value);
        RecordBuilder::new(Offset(0), Some(UnixMillis(at)), None, Some(&value), 0).build()
    }

    /// A job in the one partition of its tier's changelog.
    fn planned(tiers: &[(&str, u8)]) -> PlannedKeys {
        let mut planned =
            PlannedKeys { partitions: Ok(BTreeMap::new()), changelogs: BTreeMap::new(), keyless: 0 };
        for (tier, number) in tiers {
            let header = JobHeader {
                class: "charge",
                tier,
                topic: "shop",
                partition: Partition(0),
                offset: Offset(0),
                key: key(*number),
                lane: Lane(u64::from(*number)),
                round: Round(0),
                hop: Hop(0),
                attempt: tidegate_domain::Attempt(1),
                due: UnixMillis(0),
                first_seen: UnixMillis(0),
                origin: None,
                forced: false,
            };
            planned.place(tier, Some(4), &header);
        }
        planned
    }

    #[test]
    fn every_item_counts_whose_key_has_a_mark_of_done_and_no_other() {
        let mut sought = sought(&[1, 2, 3]);
        sought
            .look(&record(9, &[entry(2, None), entry(4, None), entry(1, Some(Phase::Dead))]), UnixMillis(0));
        sought.look(&record(9, &[entry(2, None)]), UnixMillis(0));
        assert_eq!((sought.done, sought.open.len()), (2, 2));
    }

    #[test]
    fn a_mark_that_workers_have_forgotten_does_not_count() {
        let mut sought = sought(&[1]);
        sought.look(&record(9, &[entry(1, None)]), UnixMillis(10));
        assert_eq!(sought.done, 0);
        sought.look(&record(10, &[entry(1, None)]), UnixMillis(10));
        assert_eq!(sought.done, 1);
    }

    #[test]
    fn where_a_changelog_was_not_read_whole_what_was_found_counts_and_the_rest_is_not_checked() {
        let mut planned = planned(&[("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]);
        planned.keyless = 4;
        let mut asked = Vec::new();
        let found = planned.settle(|log, sought| {
            asked.push(log.topic.to_string());
            sought.look(&record(9, &[entry(1, None)]), UnixMillis(0));
            if log.topic.as_str() == "a" { Err("it is too long".to_owned()) } else { Ok(()) }
        });
        // Of `a` key 1 is found where its partition comes first, of `b` in any case; of 9 items one is known not to be done.
        assert_eq!(
            asked.iter().filter(|topic| *topic == "a").count(),
            1,
            "its other partitions are not tried"
        );
        assert_eq!(found.unchecked.get("it is too long"), Some(&(4 - found.done)));
        assert_eq!(found.unchecked.values().sum::<u64>(), 8 - found.done);
    }
}
