//! A mock cluster, its settings, and a way to publish.

use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tidegate_domain::{Partition, Topic};
use tidegate_kafka::single::publish_one;
use tidegate_kafka::{KafkaSettings, Publisher};
use tidegate_pipeline::ports::PublishError;
use tidegate_pipeline::record::OutboundRecord;

pub(crate) fn cluster(topic: &str, partitions: i32) -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic(topic, partitions, 1).unwrap();
    cluster
}

pub(crate) fn settings(cluster: &MockCluster<'static, DefaultProducerContext>) -> KafkaSettings {
    KafkaSettings {
        bootstrap: cluster.bootstrap_servers(),
        properties: Vec::new(),
        consumer_properties: Vec::new(),
        producer_properties: Vec::new(),
        // No member is to be taken for dead on a machine that does more than this.
        session_timeout: Duration::from_secs(30),
        max_message_bytes: 1 << 20,
    }
}

pub(crate) fn publish(
    publisher: &Publisher,
    topic: &str,
    partition: i32,
    value: &[u8],
) -> Result<(), PublishError> {
    let topic = Topic::new(topic);
    let partition = Some(Partition(partition));
    let record = OutboundRecord { topic: &topic, partition, key: None, value: Some(value), headers: &[] };
    publish_one(publisher, &record)
}
