//! Filling topics quickly, with what each scene reads.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tidegate_domain::{
    Attempt, FieldValue, Hop, IdempotencyKey, JobHeader, Lane, Offset, Partition, Round, UnixMillis,
};

/// How large a record's value is, as most events are.
pub(super) const VALUE: usize = 300;

/// The wall clock.
pub(super) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Publishes `count` records; `record` gives partition, value and job header of each.
pub(super) fn fill(
    bootstrap: &str,
    topic: &str,
    count: usize,
    record: impl Fn(usize) -> (i32, Vec<u8>, String),
) {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "20")
        .set("compression.type", "lz4")
        .set("enable.idempotence", "true")
        .create()
        .expect("a producer can be made");
    for number in 0..count {
        let (partition, value, header) = record(number);
        let mut headers = OwnedHeaders::new();
        if !header.is_empty() {
            headers = headers.insert(Header { key: "job", value: Some(&header) });
        }
        let key = format!("k{number}");
        let mut outgoing =
            BaseRecord::to(topic).partition(partition).key(&key).payload(&value).headers(headers);
        while let Err((error, back)) = producer.send(outgoing) {
            assert_eq!(
                error,
                KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull),
                "records can be produced"
            );
            std::thread::sleep(Duration::from_millis(5));
            outgoing = back;
        }
    }
    producer.flush(Duration::from_secs(120)).expect("everything is delivered");
}

/// The text of a job header, and its lane's partition.
pub(super) fn job(class: &str, tier: &str, number: usize, partitions: u32, due: UnixMillis) -> (i32, String) {
    let field = [FieldValue::Int(number as i64)];
    let key = IdempotencyKey::derive(class, &field, None).expect("a number is a key");
    let lane = Lane::derive(class, &field).expect("a number is a key");
    let Partition(partition) = lane.partition(partitions);
    let header = JobHeader {
        class,
        tier,
        topic: "bench.source",
        partition: Partition(0),
        offset: Offset(number as i64),
        key,
        lane,
        round: Round(0),
        hop: Hop(0),
        attempt: Attempt(1),
        due,
        first_seen: due,
        origin: Some(due),
        forced: false,
    };
    (partition, header.to_text())
}
