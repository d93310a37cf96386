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
        for rung in config.retry.rungs() {
            let topic = names.delay(tier.as_str(), rung.delay());
            specs.push(spec(config, topic.as_str(), partitions, jobs.clone()));
        }
    }
    let dlq = match config.topics.dlq_retention {
        Retention::Unlimited => {
            let mut settings = base(config);
            settings.insert("retention.ms".to_owned(), "-1".to_owned());
            settings
        }
        Retention::For(retention) => finite(config, retention),
    };
    // Nothing is looked up by the partition of a dead letter: their count may differ from a tier's.
    specs.push(TopicSpec { keyed: false, ..spec(config, names.dlq().as_str(), most, dlq) });
    specs.push(TopicSpec { keyed: false, ..spec(config, names.reingest().as_str(), most, jobs) });
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

fn compacted() -> BTreeMap<String, String> {
    [("cleanup.policy", "compact"), ("message.timestamp.type", "LogAppendTime")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}
