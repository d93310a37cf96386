//! Ingest: source topics of Avro events become jobs.
//!
//! `compile` turns the configured classes into routes over field places; `router` decides each event by them; `schemas`
//! fetches what the registry knows without blocking a partition that does not need it. The loop itself is
//! [`tidegate_pipeline::forward`].
#![deny(missing_docs)]

mod compile;
mod foresee;
mod router;
mod schemas;

use std::sync::Arc;

use tidegate_kafka::Publisher;
use tidegate_kafka::consumer::Subscription;
use tidegate_pipeline::forward::ForwardStage;
use tidegate_service::group::{self, Member};
use tidegate_service::registry::{Start, at_start, warmed};
use tidegate_service::{Process, ServiceError, wiring};

use crate::compile::Routes;
use crate::router::Router;
use crate::schemas::Schemas;

/// How many events of a source partition may be on their way.
const WINDOW_RECORDS: usize = 10_000;
/// And how many bytes of them.
const WINDOW_BYTES: usize = 64 << 20;

/// Runs ingest until shutdown is requested.
pub async fn run(process: &Process) -> Result<(), ServiceError> {
    let config = &process.config;
    if config.sources.is_empty() {
        return Err(ServiceError::Configuration(
            "there is no [sources.\"TOPIC\"] in the configuration: ingest has nothing to read".to_owned(),
        ));
    }
    let names = wiring::names(config);
    let registry = wiring::registry(config)?;
    let subjects: Vec<String> =
        config.sources.keys().map(|topic| tidegate_codec::value_subject(topic.as_str())).collect();
    let latest = match at_start(process, &registry, &subjects).await? {
        Start::Stopped => return Ok(()),
        Start::WithRegistry => match warmed(process, &registry, &subjects).await {
            Some(latest) => latest,
            None => return Ok(()),
        },
        // Asking for each would take its time, and tell the same again.
        Start::WithoutRegistry => vec![None; subjects.len()],
    };
    foresee::fields(config, &latest)?;
    let routes = Arc::new(Routes::compile(config)?);
    let publisher = Arc::new(Publisher::in_order(&process.kafka, process.fatal.clone())?);
    let mut topics: Vec<String> = config.sources.keys().map(|topic| topic.as_str().to_owned()).collect();
    topics.push(names.reingest().as_str().to_owned());
    let member = Member {
        name: "ingest".to_owned(),
        subscription: Subscription {
            group: names.ingest_group(),
            topics,
            start: Box::new(wiring::start_of(config)),
            drain_deadline: config.consume.drain_deadline,
        },
        shards: config.consume.shards.get(),
        settings: wiring::shard(config, WINDOW_RECORDS, WINDOW_BYTES),
        shutdown_deadline: config.consume.shutdown_deadline,
        warm_up: None,
    };
    let limits = wiring::limits(config);
    let runtime = tokio::runtime::Handle::current();
    let make = move |wake: &tidegate_pipeline::Wake| {
        let schemas = Schemas::new(registry.clone(), runtime.clone(), wake.clone());
        let router = Router::new(routes.clone(), schemas, limits);
        ForwardStage::new(router, publisher.clone(), names.clone(), wake)
    };
    group::run(member, &process.kafka, make, (&process.health, &process.shutdown, &process.fatal)).await
}
