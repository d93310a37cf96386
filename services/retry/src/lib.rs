//! Retry: every delay topic of the pipeline, of all tiers and of any ladder, read by one group; each record goes on to its job topic
//! when it is due. The waiting itself is [`tidegate_pipeline::delay`].
#![deny(missing_docs)]

use std::sync::Arc;

use tidegate_kafka::consumer::{Start, Subscription};
use tidegate_kafka::{KafkaSettings, Publisher};
use tidegate_pipeline::delay::{DelaySettings, DelayStage, SharedHeap};
use tidegate_service::group::{self, Member};
use tidegate_service::{Process, ServiceError, wiring};

/// Runs retry until shutdown is requested.
pub async fn run(process: &Process) -> Result<(), ServiceError> {
    let config = &process.config;
    let names = wiring::names(config);
    let heap = SharedHeap::new(wiring::bytes(config.retry.heap_bytes));
    let publisher = Arc::new(Publisher::new(&process.kafka, process.fatal.clone())?);
    let settings = DelaySettings { names: names.clone(), ladder: wiring::ladder(config)?, heap };
    let member = Member {
        name: "retry".to_owned(),
        subscription: Subscription {
            group: names.retry_group(),
            topics: vec![names.delay_pattern()],
            start: Box::new(|_| Start::Earliest),
            drain_deadline: config.consume.drain_deadline,
        },
        shards: config.consume.shards.get(),
        // What waits is bounded by the heap; records that were handed on wait in the window for an older one to be due.
        settings: wiring::shard(config, usize::MAX, usize::MAX),
        shutdown_deadline: config.consume.shutdown_deadline,
        warm_up: None,
    };
    let make =
        move |wake: &tidegate_pipeline::Wake| DelayStage::new(settings.clone(), publisher.clone(), wake);
    group::run(
        member,
        &read_ahead(&process.kafka),
        make,
        (&process.health, &process.shutdown, &process.fatal),
    )
    .await
}

/// Records wait in the heap, so the client need not hold many more of each partition; `[kafka.consumer_properties]` wins.
fn read_ahead(kafka: &KafkaSettings) -> KafkaSettings {
    let mut kafka = kafka.clone();
    kafka.consumer_properties.insert(0, ("queued.max.messages.kbytes".to_owned(), "1024".to_owned()));
    kafka
}
