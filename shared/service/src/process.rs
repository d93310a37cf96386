//! The frame of a service's process: logs, metrics, health, signals, and the checks before it starts.

use std::sync::Arc;
use std::time::Duration;

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
    /// The server of metrics and health; none: this process is shown by whoever it is a part of.
    observe: Option<tokio::task::JoinHandle<()>>,
}

/// How long calls that still wait for a server may hold up the end of a process: nothing that counts is under way in them.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The whole life of a service's process: logs, metrics, health and signals are set up, the cluster is checked against the
/// configuration, and `service` works until it ends. A stop that is asked for during the checks is as clean an end as any.
pub fn serve(
    config: Config,
    service: impl AsyncFnOnce(&Process) -> Result<(), ServiceError>,
) -> Result<(), ServiceError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| ServiceError::Local(format!("the runtime can't start: {error}")))?;
    let result = runtime.block_on(async {
        let process = Process::set_up(config).await?;
        let result = match process.checked().await {
            Ok(Checked::Fit) => service(&process).await,
            Ok(Checked::Stopped) => Ok(()),
            Err(error) => Err(error),
        };
        if let Some(observe) = process.observe {
            observe.abort();
        }
        result
    });
    runtime.shutdown_timeout(END_WITHIN);
    result
}

/// How the checks before the start ended, unless they failed.
enum Checked {
    /// The service may start.
    Fit,
    /// A stop was asked for before they were done.
    Stopped,
}

impl Process {
    async fn set_up(config: Config) -> Result<Self, ServiceError> {
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
        info!(rule = config.duplicates_summary(), "duplicates");
        let kafka = wiring::kafka(&config);
        Ok(Self {
            config: Arc::new(config),
            kafka,
            health,
            shutdown,
            fatal: Fatal::default(),
            observe: Some(observe),
        })
    }

    /// A service that is a part of another program, which has its own logs, metrics and signals, and tells when to stop. The cluster is
    /// not compared with the plan: whoever calls this has made the topics from it just now. The folder `state.dir` must be there, and
    /// is never made anew: it is its maker's to remove, while services that were not waited for still run.
    pub fn within(config: Arc<Config>, shutdown: Shutdown) -> Self {
        let (kafka, health) = (wiring::kafka(&config), Health::default());
        health.not_ready(STARTING, "it is starting");
        Self { config, kafka, health, shutdown, fatal: Fatal::default(), observe: None }
    }

    /// Whether it is a part of another program, made by [`Process::within`].
    pub fn is_part_of_another(&self) -> bool {
        self.observe.is_none()
    }

    /// The checks wait for brokers, on a thread that blocks. A process that is asked to stop does not wait with them: they change
    /// nothing. They have a runtime of their own, whose timers go on while the process's is taken apart.
    async fn checked(&self) -> Result<Checked, ServiceError> {
        let checks = check(self.config.clone(), self.kafka.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ServiceError::Local(format!("the runtime can't start: {error}")))?;
        let checks = tokio::task::spawn_blocking(move || runtime.block_on(checks));
        tokio::select! {
            biased;
            () = self.shutdown.requested() => {
                info!("stopped before it had begun: the checks of the start were not done");
                return Ok(Checked::Stopped);
            }
            checked = checks => checked.map_err(|error| ServiceError::Fatal(error.to_string()))??,
        }
        self.health.ready("cluster");
        Ok(Checked::Fit)
    }
}

/// Whether the cluster fits the configuration, and the configuration the pipeline's. Blocks.
async fn check(config: Arc<Config>, kafka: KafkaSettings) -> Result<(), ServiceError> {
    let cluster = Cluster::connect(&kafka)?;
    for finding in check::before_start(&config, &cluster).await? {
        warn!(%finding, "the cluster differs from the plan");
    }
    drift::verify(&config, &kafka)
}
