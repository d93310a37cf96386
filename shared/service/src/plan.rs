//! Which topics a pipeline needs, and how they must be set.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::Retention;
use tidegate_kafka::topics::TopicSpec;

use crate::wiring::names;

/// Every topic of the pipeline, in the order of the flow.
pub fn topics(config: &Config) -> Vec<TopicSpec> {
    let names = names(config);
    let most = config.tiers.values().map(|tier| tier.partitions.get()).max().unwrap_or(1);
    let jobs = finite(config, config.topics.job_retention);
    let mut specs = Vec::new();
    for (tier, settings) in &config.tiers {
        let partitions = settings.partitions.get();
        specs.push(spec(config, names.jobs(tier.as_str()).as_str(), partitions, jobs.clone()));
        specs.push(spec(config, names.marks(tier.as_str()).as_str(), partitions, marks(config)));
        for rung in config.retry.rungs() {
            let topic = names.delay(tier.as_str(), rung.delay());
            specs.push(spec(config, topic.as_str(), partitions, jobs.clone()));
        }
    }
    let dlq = match config.topics.dlq_retention {
        Retention::Unlimited => unlimited(config),
        Retention::For(retention) => finite(config, retention),
    };
    // Nothing is looked up by the partition of a dead letter: their count may differ from a tier's.
    specs.push(TopicSpec { keyed: false, ..spec(config, names.dlq().as_str(), most, dlq) });
    specs.push(TopicSpec { keyed: false, ..spec(config, names.reingest().as_str(), most, jobs) });
    // Which of two orders counts is decided by which comes first: one partition, and nothing of it is ever deleted.
    specs.push(spec(config, names.dlq_journal().as_str(), 1, journal(config)));
    specs.push(spec(config, names.config().as_str(), 1, compacted()));
    specs
}

fn spec(config: &Config, name: &str, partitions: u32, mut settings: BTreeMap<String, String>) -> TopicSpec {
    let replication = config.kafka.replication.map(std::num::NonZeroU16::get);
    if replication.is_some_and(|replicas| replicas >= 3) {
        settings.insert("min.insync.replicas".to_owned(), "2".to_owned());
    }
    TopicSpec { name: name.to_owned(), partitions: Some(partitions), keyed: true, replication, settings }
}

/// Due times and expiry are compared with the broker's clock, so every record must carry it.
fn base(config: &Config) -> BTreeMap<String, String> {
    [
        ("cleanup.policy", "delete".to_owned()),
        ("message.timestamp.type", "LogAppendTime".to_owned()),
        ("max.message.bytes", config.topics.max_message_bytes.get().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Retention works by whole segments, so segments must be shorter than it.
fn finite(config: &Config, retention: Duration) -> BTreeMap<String, String> {
    let mut settings = base(config);
    settings.insert("retention.ms".to_owned(), retention.as_millis().to_string());
    settings.insert("segment.ms".to_owned(), (retention.as_millis() / 10).max(60_000).to_string());
    settings
}

fn unlimited(config: &Config) -> BTreeMap<String, String> {
    let mut settings = base(config);
    settings.insert("retention.ms".to_owned(), "-1".to_owned());
    settings
}

/// Whoever reads it later must come to the same: nothing may remove an entry.
fn journal(config: &Config) -> BTreeMap<String, String> {
    let mut settings = unlimited(config);
    settings.insert("retention.bytes".to_owned(), "-1".to_owned());
    settings
}

/// Nothing but time may remove a mark.
fn marks(config: &Config) -> BTreeMap<String, String> {
    let mut settings = finite(config, marks_retention(config));
    settings.insert("retention.bytes".to_owned(), "-1".to_owned());
    settings
}

/// How long a changelog of marks holds its records: a tenth, and at least an hour, longer than marks are remembered. So a broker
/// whose clock is ahead deletes no mark that still counts.
pub fn marks_retention(config: &Config) -> Duration {
    let remembered = config.state.retention;
    remembered + (remembered / 10).max(Duration::from_secs(3600))
}

/// Whether the topic is a changelog of marks.
pub fn is_changelog(config: &Config, topic: &str) -> bool {
    let names = names(config);
    config.tiers.keys().any(|tier| names.marks(tier.as_str()).as_str() == topic)
}

fn compacted() -> BTreeMap<String, String> {
    [("cleanup.policy", "compact"), ("message.timestamp.type", "LogAppendTime")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!("[kafka]\nbootstrap = \"b:9092\"\n{more}");
        Config::parse("test", &text, std::iter::empty()).expect("it is valid")
    }

    fn spec_of(config: &Config, topic: &str) -> TopicSpec {
        topics(config).into_iter().find(|spec| spec.name == topic).expect("it is planned")
    }

    #[test]
    fn every_tier_has_a_changelog_that_is_partitioned_as_its_jobs_and_outlasts_its_marks() {
        let config = config("replication = 3\n[tiers.fast]\npartitions = 7\n[tiers.slow]\n");
        for (tier, partitions) in [("fast", 7), ("slow", 6)] {
            let marks = spec_of(&config, &format!("tidegate.{tier}.marks"));
            let jobs = spec_of(&config, &format!("tidegate.{tier}.jobs"));
            assert_eq!((marks.partitions, jobs.partitions), (Some(partitions), Some(partitions)));
            assert_eq!((marks.replication, marks.keyed), (jobs.replication, true));
            let settings = |name: &str| marks.settings.get(name).map(String::as_str);
            assert_eq!(settings("cleanup.policy"), Some("delete"));
            assert_eq!(settings("message.timestamp.type"), Some("LogAppendTime"));
            // A day and a tenth of it.
            assert_eq!(settings("retention.ms"), Some("95040000"));
            assert_eq!(settings("segment.ms"), Some("9504000"));
            assert_eq!(settings("retention.bytes"), Some("-1"));
            assert_eq!(settings("min.insync.replicas"), Some("2"));
        }
    }

    #[test]
    fn the_journal_has_one_partition_and_keeps_all_that_it_ever_had() {
        let config =
            config("replication = 3\n[tiers.fast]\npartitions = 7\n[topics]\ndlq_retention = \"30d\"\n");
        let journal = spec_of(&config, "tidegate.dlq-journal");
        assert_eq!((journal.partitions, journal.keyed, journal.replication), (Some(1), true, Some(3)));
        let settings = |name: &str| journal.settings.get(name).map(String::as_str);
        assert_eq!(settings("cleanup.policy"), Some("delete"));
        assert_eq!(settings("message.timestamp.type"), Some("LogAppendTime"));
        assert_eq!(settings("retention.ms"), Some("-1"));
        assert_eq!(settings("retention.bytes"), Some("-1"));
        assert_eq!(settings("min.insync.replicas"), Some("2"));
        assert!(settings("max.message.bytes").is_some(), "an edited value may be as large as an event");
    }

    #[test]
    fn dead_letters_carry_the_clock_of_the_broker_as_the_journal_does() {
        for retention in ["", "[topics]\ndlq_retention = \"30d\"\n"] {
            let config = config(retention);
            for topic in ["tidegate.dlq", "tidegate.dlq-journal"] {
                let spec = spec_of(&config, topic);
                let clock = spec.settings.get("message.timestamp.type").map(String::as_str);
                assert_eq!(clock, Some("LogAppendTime"), "{topic}");
            }
        }
    }

    #[test]
    fn the_slack_of_a_changelog_is_a_tenth_and_at_least_an_hour() {
        for (retention, hours) in [("2h", 3), ("10h", 11), ("100h", 110)] {
            let config = config(&format!("[state]\nretention = \"{retention}\""));
            assert_eq!(marks_retention(&config), Duration::from_secs(hours * 3600), "{retention}");
        }
    }
}
