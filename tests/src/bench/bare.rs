//! The bare loops that tidegate is measured against: as little as one can do with rdkafka.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use crate::kafka_io::unique;

/// Reads `count` records and their headers; gives records per second, from the first record on.
pub(super) fn consume(bootstrap: &str, topic: &str, count: usize) -> f64 {
    let consumer = consumer(bootstrap, topic);
    let (mut read, mut header_bytes, mut started) = (0, 0, Instant::now());
    while read < count {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message.expect("the topic can be read");
            if let Some(headers) = message.headers() {
                header_bytes +=
                    headers.iter().map(|header| header.value.map_or(0, <[u8]>::len)).sum::<usize>();
            }
            if read == 0 {
                started = Instant::now();
            }
            read += 1;
        }
    }
    assert!(header_bytes > 0, "the loop read headers");
    rate(count, started)
}

/// Reads `count` records and publishes each with its headers, acknowledged by all replicas.
pub(super) fn consume_produce(bootstrap: &str, from: &str, to: &str, count: usize) -> f64 {
    let consumer = consumer(bootstrap, from);
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .create()
        .expect("a producer can be made");
    let (mut read, mut started) = (0, Instant::now());
    while read < count {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message.expect("the topic can be read");
        if read == 0 {
            started = Instant::now();
        }
        read += 1;
        let mut outgoing = BaseRecord::<[u8], [u8]>::to(to);
        outgoing.key = message.key();
        outgoing.payload = message.payload();
        if let Some(headers) = message.headers() {
            outgoing = outgoing.headers(headers.detach());
        }
        while let Err((_, back)) = producer.send(outgoing) {
            std::thread::sleep(Duration::from_millis(1));
            outgoing = back;
        }
    }
    producer.flush(Duration::from_secs(60)).expect("everything is delivered");
    rate(count, started)
}

fn consumer(bootstrap: &str, topic: &str) -> BaseConsumer {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", unique("bare"))
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "20")
        .create()
        .expect("a consumer can be made");
    consumer.subscribe(&[topic]).expect("the topic can be subscribed");
    consumer
}

pub(super) fn rate(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}
