//! What the topics hold at the end of the story of the kill, in which a killed process's counters are missing.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use tidegate_bootstrap::Config;
use tidegate_domain::Mark;
use tidegate_kafka::single::read_topic;
use tidegate_kafka::topics::TopicError;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_service::wiring;

/// The ends of records, as the topics tell them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    /// The keys that are marked as done.
    pub(crate) done: HashSet<String>,
    /// The keys of jobs that were dead-lettered.
    pub(crate) refused: HashSet<String>,
    /// How many records of each source topic were dead-lettered and no jobs.
    pub(crate) unreadable: HashMap<String, u64>,
}

impl Held {
    /// Reads it all. Blocks.
    pub(crate) fn read(config: &Config) -> Result<Self, TopicError> {
        let (refused, unreadable) = dead_letters(config)?;
        Ok(Self { done: done_keys(config)?, refused, unreadable })
    }
}

fn done_keys(config: &Config) -> Result<HashSet<String>, TopicError> {
    let (kafka, names) = (wiring::kafka(config), wiring::names(config));
    let mut marks: HashMap<String, Mark> = HashMap::new();
    for tier in config.tiers.keys() {
        read_topic(&kafka, names.marks(tier.as_str()).as_str(), |found| {
            if let Ok((_, Entry::Marks(entries))) = format::read(found.record.value().unwrap_or_default()) {
                for entry in entries {
                    let known = marks.entry(entry.key.to_string()).or_default();
                    *known = known.join(entry.mark);
                }
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(marks.into_iter().filter(|(_, mark)| mark.done.is_some()).map(|(key, _)| key).collect())
}

/// The keys of jobs that were refused, and how many records of each source topic were no jobs.
fn dead_letters(config: &Config) -> Result<(HashSet<String>, HashMap<String, u64>), TopicError> {
    let (kafka, names) = (wiring::kafka(config), wiring::names(config));
    let (mut jobs, mut others) = (HashSet::new(), HashMap::new());
    read_topic(&kafka, names.dlq().as_str(), |found| {
        let text =
            |header| found.record.header(header).map(|value| String::from_utf8_lossy(value).into_owned());
        match (text("job-key"), text("__connect.errors.topic")) {
            (Some(key), _) => _ = jobs.insert(key),
            (None, topic) => *others.entry(topic.unwrap_or_default()).or_default() += 1,
        }
        ControlFlow::Continue(())
    })?;
    Ok((jobs, others))
}
