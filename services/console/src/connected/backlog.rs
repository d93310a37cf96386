//! What waits in Kafka: how far workers and the retry service are behind, by tier.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tidegate_bootstrap::Config;
use tidegate_kafka::topics::{Cluster, TopicState};
use tidegate_kafka::{ConnectError, GroupLag};
use tidegate_pipeline::Names;
use tidegate_service::wiring;

use crate::figures::{Backlog, TierFigures};

/// Asks Kafka.
#[derive(Debug)]
pub struct KafkaBacklog {
    names: Names,
    cluster: Cluster,
    retry: GroupLag,
    tiers: Vec<(String, GroupLag)>,
    /// One looks at a time: clients are shared.
    looking: Mutex<()>,
}

impl KafkaBacklog {
    /// Nothing is asked yet.
    pub fn new(config: &Config) -> Result<Self, ConnectError> {
        let (settings, names) = (wiring::kafka(config), wiring::names(config));
        let of_tier =
            |tier: &str| Ok((tier.to_owned(), GroupLag::new(&settings, &names.worker_group(tier))?));
        Ok(Self {
            cluster: Cluster::connect(&settings)?,
            retry: GroupLag::new(&settings, &names.retry_group())?,
            tiers: config
                .tiers
                .keys()
                .map(|tier| of_tier(tier.as_str()))
                .collect::<Result<_, ConnectError>>()?,
            names,
            looking: Mutex::new(()),
        })
    }
}

impl Backlog for KafkaBacklog {
    fn backlog(&self) -> Result<BTreeMap<String, TierFigures>, String> {
        let _alone = self.looking.lock();
        let topics = self.cluster.topics().map_err(|error| error.to_string())?;
        let mut tiers = BTreeMap::new();
        for (tier, workers) in &self.tiers {
            let jobs = self.names.jobs(tier);
            let of_jobs = known(&topics, |name| name == jobs.as_str());
            let delays = format!("{}.{tier}.retry-", self.names.prefix());
            let of_delays = known(&topics, |name| name.starts_with(&delays));
            let lag = |group: &GroupLag, topics: &[(&str, u32)]| {
                let lags = group.of(topics).map_err(|error| error.to_string())?;
                Ok::<_, String>((!topics.is_empty()).then(|| lags.values().sum()))
            };
            let figures =
                TierFigures { waiting: lag(workers, &of_jobs)?, delayed: lag(&self.retry, &of_delays)? };
            tiers.insert(tier.clone(), figures);
        }
        Ok(tiers)
    }
}

fn known(topics: &BTreeMap<String, TopicState>, is_wanted: impl Fn(&str) -> bool) -> Vec<(&str, u32)> {
    topics
        .iter()
        .filter(|(name, _)| is_wanted(name))
        .map(|(name, topic)| (name.as_str(), topic.partitions))
        .collect()
}
