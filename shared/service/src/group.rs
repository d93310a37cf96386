//! Shards as a member of a consumer group.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_bootstrap::health::Heartbeat;
use tidegate_bootstrap::{Health, Shutdown};
use tidegate_kafka::consumer::{GroupMember, ShardPort, Subscription};
use tidegate_kafka::{Fatal, KafkaSettings, SystemClock};
use tidegate_pipeline::ports::OffsetCommitter;
use tidegate_pipeline::shard::{Shard, ShardObserver, ShardSettings};
use tidegate_pipeline::stage::Stage;
use tidegate_pipeline::{Inbox, TopicPartition, Wake};
use tracing::info;

use crate::error::ServiceError;
use crate::process::STARTING;

/// A member of a group, before it joins.
#[derive(Debug)]
pub struct Member {
    /// Its name in health and logs.
    pub name: String,
    /// What it reads.
    pub subscription: Subscription,
    /// How many threads share the partitions.
    pub shards: usize,
    /// Bounds and rhythm of each.
    pub settings: ShardSettings,
    /// How long leaving may take.
    pub shutdown_deadline: Duration,
    /// What it waits for before it counts as ready, once it has joined.
    pub warm_up: Option<WarmUp>,
}

/// What a member has to get ready before it can work on its first partitions.
pub struct WarmUp {
    /// What `/readyz` says meanwhile.
    pub reason: &'static str,
    /// Ends when it is over. It is asked for from the time of joining on.
    pub over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for WarmUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WarmUp").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// How long a shard's loop may stand before the process counts as dead.
const ALIVE_WITHIN: Duration = Duration::from_secs(60);

/// Joins the group and works until shutdown is requested or something breaks for good. `make` makes the stage of a shard, on the
/// shard's thread.
pub async fn run<S: Stage>(
    member: Member,
    kafka: &KafkaSettings,
    make: impl Fn(&Wake) -> S + Send + Sync + 'static,
    (health, shutdown, fatal): (&Health, &Shutdown, &Fatal),
) -> Result<(), ServiceError> {
    let Member { name, subscription, shards, settings, shutdown_deadline, warm_up } = member;
    let ports: Vec<ShardPort> = (0..shards).map(|_| port()).collect();
    health.not_ready(&name, "it has not joined its group yet; a member that was killed holds its place for consume.session_timeout");
    health.ready(STARTING);
    info!(group = subscription.group, topics = ?subscription.topics, "joining the group");
    let group = GroupMember::join(kafka, subscription, ports.clone(), fatal.clone())?;
    tokio::spawn(watch_brokers(group.outage(), health.clone(), format!("{name} brokers")));
    let make = Arc::new(make);
    for (number, port) in ports.into_iter().enumerate() {
        let component = format!("{name} shard {number}");
        let observer = Observer {
            health: health.clone(),
            heartbeat: health.heartbeat(&component, ALIVE_WITHIN),
            component,
            fatal: fatal.clone(),
        };
        spawn_shard(port, settings, group.committer(), observer, make.clone())?;
    }
    tokio::select! {
        () = become_ready(&name, group.joined(), warm_up, health) => {}
        () = shutdown.requested() => {}
        _ = fatal.reported() => {}
    }
    tokio::select! {
        () = shutdown.requested() => {}
        _ = fatal.reported() => {}
    }
    health.not_ready(&name, "it is leaving its group");
    let left = tokio::time::timeout(shutdown_deadline, group.leave()).await;
    match (fatal.reason(), left) {
        (Some(reason), _) => Err(ServiceError::Fatal(reason)),
        (None, Err(_)) => Err(ServiceError::ShutdownDeadline),
        (None, Ok(())) => {
            info!(name, "stopped: it has left its group");
            Ok(())
        }
    }
}

/// Ready when the member has joined and is warm.
async fn become_ready(
    name: &str,
    mut joined: tokio::sync::watch::Receiver<bool>,
    warm_up: Option<WarmUp>,
    health: &Health,
) {
    if joined.wait_for(|&joined| joined).await.is_err() {
        // The group is gone before it was joined: its reason is told as fatal.
        return;
    }
    if let Some(WarmUp { reason, over }) = warm_up {
        health.not_ready(name, reason);
        over.await;
    }
    health.ready(name);
}

/// Not ready while no broker serves the group's member; ends with the group.
async fn watch_brokers(
    mut outage: tokio::sync::watch::Receiver<Option<String>>,
    health: Health,
    component: String,
) {
    while outage.changed().await.is_ok() {
        match &*outage.borrow_and_update() {
            None => health.ready(&component),
            Some(reason) => health.not_ready(&component, reason.as_str()),
        }
    }
}

fn port() -> ShardPort {
    let wake = Wake::default();
    ShardPort { control: Inbox::new(wake.clone()), wake }
}

fn spawn_shard<S: Stage>(
    port: ShardPort,
    settings: ShardSettings,
    committer: Arc<dyn OffsetCommitter>,
    observer: Observer,
    make: Arc<impl Fn(&Wake) -> S + Send + Sync + 'static>,
) -> Result<(), ServiceError> {
    let (component, fatal) = (observer.component.clone(), observer.fatal.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| ServiceError::Local(format!("a shard's runtime can't start: {error}")))?;
    let run = move || {
        let stage = make(&port.wake);
        let shard = Shard::new(
            stage,
            settings,
            Arc::new(SystemClock),
            committer,
            (port.control, port.wake),
            Box::new(observer),
        );
        runtime.block_on(shard.run());
    };
    std::thread::Builder::new()
        .name(component.clone())
        .spawn(move || {
            if std::panic::catch_unwind(AssertUnwindSafe(run)).is_err() {
                fatal.report(&format!("{component} panicked: that is a bug in tidegate"));
            }
        })
        .map_err(|error| ServiceError::Local(format!("a shard's thread can't start: {error}")))?;
    Ok(())
}

struct Observer {
    health: Health,
    heartbeat: Heartbeat,
    component: String,
    fatal: Fatal,
}

impl ShardObserver for Observer {
    fn troubles(&mut self, troubles: &BTreeMap<TopicPartition, String>) {
        match troubles.iter().next() {
            None => self.health.ready(&self.component),
            Some((partition, reason)) => {
                let more = if troubles.len() > 1 {
                    format!(" (and {} more)", troubles.len() - 1)
                } else {
                    String::new()
                };
                self.health.not_ready(&self.component, format!("{partition}: {reason}{more}"));
            }
        }
    }

    fn fatal(&mut self, reason: &str) {
        self.fatal.report(reason);
    }

    fn alive(&mut self) {
        self.heartbeat.beat();
    }
}
