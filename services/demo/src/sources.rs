//! The publishers' side: the source topics, their schemas, and the events.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_bootstrap::{Config, Shutdown};
use tidegate_codec::{CompiledSchema, SchemaRegistry, value_subject, wire};
use tidegate_domain::Topic;
use tidegate_kafka::topics::{Cluster, TopicSpec};
use tidegate_kafka::{Fatal, Publisher};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_service::deliveries::Deliveries;
use tidegate_service::{ServiceError, wiring};
use tokio::time::{Instant, sleep_until};

use crate::classes::{CLASSES, DemoClass};
use crate::error::DemoError;
use crate::events::{Content, Planned, planned};

/// How many records of each class were published, repeats and garbage included.
pub type Published = BTreeMap<&'static str, u64>;

const PARTITIONS: u32 = 3;
const CREATED_WITHIN: Duration = Duration::from_secs(30);

/// Creates the source topics that are missing and registers their schemas. Returns the topics that it created.
pub async fn prepare(config: &Config) -> Result<Vec<&'static str>, DemoError> {
    let registry = wiring::registry(config)?;
    for class in &CLASSES {
        schema(&registry, class).await?;
    }
    let cluster = Cluster::connect(&wiring::kafka(config))?;
    let missing = missing(&cluster)?;
    if !missing.is_empty() {
        let specs: Vec<TopicSpec> = missing.iter().map(|topic| spec(config, topic)).collect();
        cluster.create(&specs).await?;
        cluster.wait_until_known(&specs, CREATED_WITHIN).await?;
    }
    Ok(missing)
}

/// The source topics that are not there. Blocks.
fn missing(cluster: &Cluster) -> Result<Vec<&'static str>, DemoError> {
    let have = cluster.topics()?;
    Ok(CLASSES.iter().map(|class| class.topic).filter(|topic| !have.contains_key(*topic)).collect())
}

fn spec(config: &Config, topic: &str) -> TopicSpec {
    TopicSpec {
        name: topic.to_owned(),
        partitions: Some(PARTITIONS),
        keyed: false,
        replication: config.kafka.replication.map(std::num::NonZeroU16::get),
        settings: BTreeMap::new(),
    }
}

/// Registers the class's schema, or finds it registered.
async fn schema(registry: &SchemaRegistry, class: &DemoClass) -> Result<CompiledSchema, DemoError> {
    let subject = value_subject(class.topic);
    let id = match registry.register(&subject, class.schema).await {
        Ok(id) => id,
        Err(reason) => {
            registry.check(&[subject]).await.map_err(ServiceError::Registry)?;
            return Err(DemoError::Registry { topic: class.topic, reason });
        }
    };
    Ok(CompiledSchema::parse(id, class.schema, &[])?)
}

/// Publishes so many different events, `rate` records a second, until all are out or a stop is requested. What is counted is
/// acknowledged.
pub async fn publish(
    config: &Config,
    shutdown: &Shutdown,
    events: u64,
    rate: NonZeroU32,
) -> Result<Published, DemoError> {
    let topics = missing(&Cluster::connect(&wiring::kafka(config))?)?;
    if !topics.is_empty() {
        return Err(DemoError::NoTopics { topics });
    }
    let registry = wiring::registry(config)?;
    let mut schemas = BTreeMap::new();
    for class in &CLASSES {
        schemas.insert(class.name, schema(&registry, class).await?);
    }
    let publisher = Publisher::new(&wiring::kafka(config), Fatal::default())?;
    let mut deliveries = Deliveries::default();
    let mut published = Published::new();
    let started = Instant::now();
    let gap = Duration::from_secs(1) / rate.get();
    for (number, record) in (1_u64..).zip(planned(events)) {
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            () = sleep_until(started + gap.saturating_mul(u32::try_from(number - 1).unwrap_or(u32::MAX))) => {}
        }
        let (key, value) = bytes(&record, &schemas[record.class.name])?;
        let topic = Topic::new(record.class.topic.to_owned());
        let key = key.as_deref().map(str::as_bytes);
        let outbound =
            OutboundRecord { topic: &topic, partition: None, key, value: Some(&value), headers: &[] };
        deliveries.publish(&publisher, &outbound, number)?;
        *published.entry(record.class.name).or_default() += 1;
    }
    deliveries.finish()?;
    Ok(published)
}

fn bytes(record: &Planned, schema: &CompiledSchema) -> Result<(Option<String>, Vec<u8>), DemoError> {
    let Content::Event(number) = record.content else {
        return Ok((None, b"these bytes are no event".to_vec()));
    };
    let event = record.class.event(number);
    let key = event[record.class.key].as_str().map(str::to_owned);
    Ok((key, wire::frame(schema.id(), &schema.encode_json(&event)?)))
}
