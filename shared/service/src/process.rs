//! The frame of a service's process: logs, metrics, health, signals, and the checks before it starts.

use std::sync::Arc;

use tidegate_bootstrap::telemetry::{Metrics, init_logs};
use tidegate_bootstrap::{Config, Health, ObserveServer, Shutdown};
use tidegate_kafka::topics::Cluster;
use tidegate_kafka::{Fatal, KafkaSettings};
use tracing::{info, warn};

use crate::error::ServiceError;
use crate::{check, drift, wiring};

/// The component that is not ready from the start of a process until its group members speak for themselves: in between, nothing
/// else would say that there is more to come.
pub(crate) const STARTING: &str = "start";

/// What a service works in.
#[derive(Debug)]
pub struct Process {
    /// The validated configuration.
    pub config: Arc<Config>,
    /// What Kafka clients are made from.
    pub kafka: KafkaSettings,
    /// What `/readyz` and `/livez` answer.
    pub health: Health,
    /// Requested by SIGTERM and SIGINT.
    pub shutdown: Shutdown,
    /// Told of clients that are broken for good.
    pub fatal: Fatal,
    observe: tokio::task::JoinHandle<()>,
}

impl Process {
    /// Sets up logs, metrics, health and signals, and checks that the cluster fits the configuration.
    pub async fn start(config: Config) -> Result<Self, ServiceError> {
        init_logs(&config.observe)?;
        let shutdown = Shutdown::on_signals()?;
        let health = Health::default();
        let metrics = Metrics::install()?;
        tidegate_pipeline::events::describe();
        let server = ObserveServer::bind(config.observe.listen, health.clone(), metrics).await?;
        info!(address = %server.address(), "metrics at /metrics, health at /readyz and /livez");
        health.not_ready("cluster", "the topics are not checked yet");
        health.not_ready(STARTING, "it is starting");
        let observe = tokio::spawn(server.serve(std::future::pending()));
        for note in config.notes() {
            warn!(note, "configuration");
        }
        info!(ladder = config.ladder_summary(), "the retry ladder");
        let kafka = wiring::kafka(&config);
        let process =
            Self { config: Arc::new(config), kafka, health, shutdown, fatal: Fatal::default(), observe };
        process.check().await?;
        process.health.ready("cluster");
        Ok(process)
    }

    async fn check(&self) -> Result<(), ServiceError> {
        let cluster = Cluster::connect(&self.kafka)?;
        for finding in check::before_start(&self.config, &cluster).await? {
            warn!(%finding, "the cluster differs from the plan");
        }
        let (config, kafka) = (self.config.clone(), self.kafka.clone());
        tokio::task::spawn_blocking(move || {
            // Dropping a client blocks for a moment: not on the runtime.
            drop(cluster);
            drift::verify(&config, &kafka)
        })
        .await
        .map_err(|error| ServiceError::Fatal(error.to_string()))?
    }

    /// Ends the answers to probes: the last thing that a process does.
    pub fn finish(self) {
        self.observe.abort();
    }
}
