//! From settings to what the adapters take.

use std::time::Duration;

use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{Class, Start as ConfiguredStart};
use tidegate_codec::{Limits, RegistryAuth, RegistrySettings, SchemaRegistry};
use tidegate_domain::Ladder;
use tidegate_kafka::KafkaSettings;
use tidegate_kafka::consumer::Start;
use tidegate_pipeline::Names;
use tidegate_pipeline::shard::ShardSettings;

use crate::error::ServiceError;

/// The names of the pipeline's topics and groups.
pub fn names(config: &Config) -> Names {
    Names::new(config.pipeline.name.as_str())
}

/// What Kafka clients are made from.
pub fn kafka(config: &Config) -> KafkaSettings {
    let owned = |map: &tidegate_bootstrap::config::MaskedMap| {
        map.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    KafkaSettings {
        bootstrap: config.kafka.bootstrap_servers(),
        properties: owned(&config.kafka.properties),
        consumer_properties: owned(&config.kafka.consumer_properties),
        producer_properties: owned(&config.kafka.producer_properties),
        session_timeout: config.consume.session_timeout,
        max_message_bytes: bytes(config.topics.max_message_bytes),
    }
}

/// A size, as memory is counted.
pub fn bytes(size: tidegate_bootstrap::config::ByteSize) -> usize {
    usize::try_from(size.get()).unwrap_or(usize::MAX)
}

/// The whole ladder: every delay that has a topic.
pub fn ladder(config: &Config) -> Result<Ladder, ServiceError> {
    let rungs = delays(&config.retry.ladder);
    build_ladder(config, if rungs.is_empty() { delays(&config.retry.rungs()) } else { rungs })
}

/// The ladder of one class.
pub fn class_ladder(config: &Config, class: &Class) -> Result<Ladder, ServiceError> {
    if class.ladder.is_empty() { ladder(config) } else { build_ladder(config, delays(&class.ladder)) }
}

fn delays(rungs: &[tidegate_bootstrap::config::Rung]) -> Vec<Duration> {
    rungs.iter().map(|rung| rung.delay()).collect()
}

fn build_ladder(config: &Config, rungs: Vec<Duration>) -> Result<Ladder, ServiceError> {
    // Every other delay that has a topic can carry a wait.
    let others: Vec<Duration> =
        delays(&config.retry.rungs()).into_iter().filter(|d| !rungs.contains(d)).collect();
    Ladder::new(&rungs, &others, config.retry.jitter.fraction())
        .map_err(|error| ServiceError::Configuration(format!("retry: {error}")))
}

/// Where a source's first start begins; tidegate's own topics are always read from their beginning.
pub fn start_of(config: &Config) -> impl Fn(&str) -> Start + Send + Sync + use<> {
    let starts: Vec<(String, Start)> = config
        .sources
        .iter()
        .map(|(topic, source)| {
            let start = match source.start {
                ConfiguredStart::Earliest => Start::Earliest,
                ConfiguredStart::Latest => Start::Latest,
                ConfiguredStart::At(at) => Start::At(at),
            };
            (topic.as_str().to_owned(), start)
        })
        .collect();
    move |topic| starts.iter().find(|(name, _)| name == topic).map_or(Start::Earliest, |(_, start)| *start)
}

/// Bounds and rhythm of shards whose partitions have these windows.
pub fn shard(config: &Config, window_records: usize, window_bytes: usize) -> ShardSettings {
    ShardSettings {
        window_records,
        window_bytes,
        commit_interval: config.consume.commit_interval,
        ..ShardSettings::default()
    }
}

/// How deep and large an event may be.
pub fn limits(config: &Config) -> Limits {
    Limits {
        max_depth: u32::try_from(config.consume.max_depth.get()).unwrap_or(u32::MAX),
        ..Limits::default()
    }
}

/// The schema registry.
pub fn registry(config: &Config) -> Result<SchemaRegistry, ServiceError> {
    let Some(registry) = &config.registry else {
        return Err(ServiceError::Configuration(
            "registry.url is not set: Avro events can't be read without the schema registry that has their schemas".to_owned(),
        ));
    };
    let auth = match (&registry.bearer_token, &registry.username) {
        (Some(token), _) => RegistryAuth::Bearer(token.expose().clone()),
        (None, Some(user)) => RegistryAuth::Basic {
            user: user.clone(),
            password: registry.password.as_ref().map(|p| p.expose().clone()).unwrap_or_default(),
        },
        (None, None) => RegistryAuth::None,
    };
    let mut settings =
        RegistrySettings::new(registry.url.iter().map(|url| url.as_str().to_owned()).collect());
    settings.auth = auth;
    settings.timeout = registry.timeout;
    settings.unknown_schema_grace = registry.unknown_schema_grace;
    SchemaRegistry::new(&settings).map_err(|error| ServiceError::Configuration(format!("registry: {error}")))
}
