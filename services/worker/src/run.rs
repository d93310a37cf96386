//! Running tiers: classes, handlers, marks and groups put together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{
    Class as Configured, Handler as ConfiguredHandler, OnConflict, Ordering as ConfiguredOrdering, Tier,
    TierName,
};
use tidegate_domain::Topic;
use tidegate_domain::flood::FloodLimits;
use tidegate_kafka::consumer::{Start, Subscription};
use tidegate_kafka::log_reader::LogReader;
use tidegate_kafka::topics::Cluster;
use tidegate_kafka::{Fatal, KafkaSettings, Publisher, SystemClock};
use tidegate_pipeline::changelog::{Changelog, ChangelogPorts, ChangelogSettings, OpenerId};
use tidegate_pipeline::events::ClassMetrics;
use tidegate_pipeline::jobs::{
    Class, Conflicts, CutOff, FirstPartitions, Guard, JobSettings, JobStage, Ordering, ParkedShare, Ports,
    Solitude,
};
use tidegate_pipeline::ports::{Handler as HandlerPort, RecordPublisher};
use tidegate_service::group::{self, Member, WarmUp};
use tidegate_service::registry::Start as AtStart;
use tidegate_service::{Process, ServiceError, wiring};
use tidegate_state::{Marks, MemoryBudgets, OpenError, Parents, Provenance, Settings, TopicIdentity};
use tokio::sync::mpsc;
use tracing::warn;

use crate::handler::Adapter;
use crate::http::{self, Http};
use crate::job::Events;
use crate::log::Log;
use crate::main_of::Registered;
use crate::restore::Restorer;
use crate::schemas;

/// Runs the workers of `tiers` until shutdown is requested. `registered` are the handlers of classes with `handler.type = "rust"`.
pub async fn run(process: &Process, tiers: &[TierName], registered: &Registered) -> Result<(), ServiceError> {
    tidegate_state::events::describe();
    let config = &process.config;
    let served: Vec<&Configured> =
        config.classes.values().filter(|class| tiers.contains(&class.tier)).collect();
    let events = Arc::new(Events {
        registry: config.registry.as_ref().map(|_| wiring::registry(config)).transpose()?,
        limits: wiring::limits(config),
    });
    let handlers = handlers(&served, registered, &events)?;
    let classes = classes(config, &served)?;
    if schemas::look(process, &served, &events).await? == AtStart::Stopped {
        return Ok(());
    }
    let publisher: Arc<dyn RecordPublisher> =
        Arc::new(Publisher::new(&process.kafka, process.fatal.clone())?);
    let (solitude, cut_off, opener) = (Solitude::default(), CutOff::default(), OpenerId(rand::random()));
    let (mut running, mut left) = (Vec::new(), Vec::new());
    let (at_work, mut ended) = mpsc::channel(1);
    for name in tiers {
        let tier = config.tier(name).ok_or_else(|| unknown_tier(config, name))?;
        let Some(marks) = open_marks(process, name, tier).await? else { return Ok(()) };
        let changelogs = Arc::new(Publisher::for_changelog(&process.kafka, process.fatal.clone())?);
        left.push((changelogs.clone(), marks.clone()));
        let changelog = changelog(process, name, tier, (changelogs, marks, opener))?;
        let parts = Parts {
            publisher: publisher.clone(),
            handlers: handlers.clone(),
            classes: classes.clone(),
            solitude: solitude.clone(),
            cut_off: cut_off.clone(),
            changelog,
            runtime: tokio::runtime::Handle::current(),
            fatal: process.fatal.clone(),
            at_work: at_work.clone(),
        };
        let tier = run_tier(process, name, tier, parts);
        running.push(async move {
            let result = tier.await;
            // One tier that ends must not leave a process that looks alive: the others end too, and a restart begins anew.
            process.shutdown.request();
            result
        });
    }
    let results = futures_util::future::join_all(running).await;
    drop(at_work);
    // They share the copies, which are closed next.
    let none_left = tokio::time::timeout(CHANGELOGS_END_WITHIN, ended.recv()).await;
    if none_left.is_err() {
        warn!(
            "a changelog's thread has not ended: its disk or Kafka does not answer; what it had in hand is done again"
        );
    }
    keep(left).await;
    results.into_iter().collect()
}

/// How long a changelog may take at the end to acknowledge what it was handed last: that partitions were let go of at the drain deadline,
/// where a silent end would pass for a death, and what their next owners must be told.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);

/// Lets the changelogs have the last words, and writes the copies of marks to their files. The threads that share them may outlive the
/// main function, and what is in memory only ends with the process: the next one would have to read all of it from the changelog.
async fn keep(left: Vec<(Arc<Publisher>, Arc<Marks>)>) {
    let flush = move || {
        for (changelogs, marks) in left {
            if !changelogs.flush(LAST_WORDS_WITHIN) {
                warn!(
                    "the changelog may not know that partitions were let go of: their next owner may take this process for dead"
                );
            }
            if let Err(error) = marks.flush() {
                warn!(%error, "the copy of marks is not kept whole; what it misses is read from the changelog at the next start");
            }
        }
    };
    if let Err(error) = tokio::task::spawn_blocking(flush).await {
        warn!(%error, "the copy of marks may not be kept whole");
    }
}

/// The names of tiers on a command line.
pub fn tiers(config: &Config, names: &[String]) -> Result<Vec<TierName>, ServiceError> {
    let parse = |name: &String| {
        let tier: TierName =
            name.parse().map_err(|error| ServiceError::Configuration(format!("--tier {name}: {error}")))?;
        config.tier(&tier).map(|_| tier.clone()).ok_or_else(|| unknown_tier(config, &tier))
    };
    names.iter().map(parse).collect()
}

fn unknown_tier(config: &Config, name: &TierName) -> ServiceError {
    let known: Vec<&str> = config.tiers.keys().map(TierName::as_str).collect();
    ServiceError::Configuration(format!(
        "there is no tier `{name}`; the configuration has: {}",
        known.join(", ")
    ))
}

/// What a tier's shards are made of.
struct Parts {
    publisher: Arc<dyn RecordPublisher>,
    handlers: Vec<Arc<dyn HandlerPort>>,
    classes: Arc<[Class]>,
    solitude: Solitude,
    cut_off: CutOff,
    changelog: (ChangelogPorts, ChangelogSettings),
    runtime: tokio::runtime::Handle,
    fatal: Fatal,
    /// Held by each thread of a changelog for as long as it lives.
    at_work: mpsc::Sender<()>,
}

/// A changelog that nobody uses any more ends at once, unless its disk holds it up.
const CHANGELOGS_END_WITHIN: Duration = Duration::from_secs(2);

impl Parts {
    /// The ports of one shard, whose changelog has a thread of its own: it waits for the disk.
    fn ports(&self, name: &str) -> Ports {
        let (ports, settings) = self.changelog.clone();
        let (changelog, task) = Changelog::new(ports, settings);
        let (at_work, fatal) = (self.at_work.clone(), self.fatal.clone());
        if let Err(error) = work_on(task, format!("{name} marks"), at_work, fatal) {
            self.fatal.report(&format!("a thread for the changelog can't be started: {error}"));
        }
        Ports {
            publisher: self.publisher.clone(),
            marks: Arc::new(changelog),
            handlers: self.handlers.clone(),
            clock: Arc::new(SystemClock),
            runtime: self.runtime.clone(),
        }
    }
}

/// Runs a changelog's task on a thread of its own. Without it nothing settles any more and nothing would tell, so its panic ends the
/// process, as that of a shard does.
fn work_on(
    task: impl Future<Output = ()> + Send + 'static,
    name: String,
    at_work: mpsc::Sender<()>,
    fatal: Fatal,
) -> std::io::Result<()> {
    // With timers of its own: those of the process end before a thread that its disk holds up.
    let timers = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    std::thread::Builder::new().name(name.clone()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(|| timers.block_on(task))).is_err() {
            fatal.report(&format!("{name} panicked: that is a bug in tidegate"));
        }
        drop(at_work);
    })?;
    Ok(())
}

/// How many marks fit into a record of the changelog for certain. More than some thousand together save nothing.
fn marks_together(max_message_bytes: usize) -> usize {
    (max_message_bytes / 64).min(4096)
}

/// How often it is asked where an idle changelog ends, since nothing else would show a deposed owner's marks.
const IDLE_CHECK: Duration = Duration::from_secs(3);

fn changelog(
    process: &Process,
    name: &TierName,
    tier: &Tier,
    (changelogs, marks, opener): (Arc<Publisher>, Arc<Marks>, OpenerId),
) -> Result<(ChangelogPorts, ChangelogSettings), ServiceError> {
    let names = wiring::names(&process.config);
    let reader = LogReader::new(&process.kafka)?;
    let restorer = Restorer::new(reader, marks.clone(), tokio::runtime::Handle::current());
    let ports = ChangelogPorts { publisher: changelogs, table: marks, reader: Arc::new(restorer) };
    let settings = ChangelogSettings {
        opener,
        window: u32::try_from(tier.window_records.get()).unwrap_or(u32::MAX),
        topics: [(names.jobs(name.as_str()), names.marks(name.as_str()))].into_iter().collect(),
        idle_check: IDLE_CHECK,
    };
    Ok((ports, settings))
}

/// What `/readyz` says until a worker that just started can work on its partitions.
const RESTORING: &str = "the marks of its first partitions are being restored from their changelog; tidegate_restore_records_left says how far they are";

async fn run_tier(process: &Process, name: &TierName, tier: &Tier, parts: Parts) -> Result<(), ServiceError> {
    let config = &process.config;
    let names = wiring::names(config);
    let shards = config.consume.shards.get();
    let first = FirstPartitions::default();
    let shard = wiring::shard(config, tier.window_records.get(), wiring::bytes(tier.window_bytes));
    let settings = JobSettings {
        names: names.clone(),
        classes: parts.classes.clone(),
        concurrency: tier.concurrency.get().div_ceil(shards),
        belief: wiring::ladder(config)?.belief(),
        parked: ParkedShare::half_of(&shard),
        marks_together: marks_together(wiring::bytes(config.topics.max_message_bytes)),
        solitude: parts.solitude.clone(),
        cut_off: parts.cut_off.clone(),
        first: first.clone(),
    };
    let member = Member {
        name: format!("worker {name}"),
        subscription: Subscription {
            group: names.worker_group(name.as_str()),
            topics: vec![names.jobs(name.as_str()).as_str().to_owned()],
            start: Box::new(|_| Start::Earliest),
            drain_deadline: config.consume.drain_deadline,
        },
        shards,
        settings: shard,
        shutdown_deadline: config.consume.shutdown_deadline,
        warm_up: Some(WarmUp { reason: RESTORING, over: Box::pin(async move { first.restored().await }) }),
    };
    let name = name.to_string();
    let make =
        move |wake: &tidegate_pipeline::Wake| JobStage::new(parts.ports(&name), settings.clone(), wake);
    group::run(member, &process.kafka, make, (&process.health, &process.shutdown, &process.fatal)).await
}

fn classes(config: &Config, served: &[&Configured]) -> Result<Arc<[Class]>, ServiceError> {
    let class = |class: &&Configured| -> Result<Class, ServiceError> {
        Ok(Class {
            name: class.name.to_string(),
            tier: class.tier.to_string(),
            ladder: wiring::class_ladder(config, class)?,
            max_attempts: class.max_attempts.get(),
            max_age: class.max_age,
            time_limit: class.time_limit,
            ordering: match class.ordering {
                ConfiguredOrdering::None => Ordering::None,
                ConfiguredOrdering::Key => Ordering::Key,
            },
            on_conflict: match class.on_conflict {
                OnConflict::Skip => Conflicts::Skip,
                OnConflict::DeadLetter => Conflicts::DeadLetter,
            },
            guard: guard(class),
            metrics: ClassMetrics::of(class.name.as_str(), class.tier.as_str()),
        })
    };
    served.iter().map(class).collect()
}

/// One for all shards of the process.
fn guard(class: &Configured) -> Guard {
    let flood = &class.flood;
    if !flood.enabled {
        return Guard::default();
    }
    let limits = FloodLimits {
        failures: flood.failures,
        of: flood.of.get().into(),
        within: flood.within,
        probe_after: flood.probe_after,
        probe_at_most: flood.probe_at_most,
    };
    Guard::new(class.name.as_str(), limits)
}

/// One handler for each class, in the order of the classes.
fn handlers(
    served: &[&Configured],
    registered: &Registered,
    events: &Arc<Events>,
) -> Result<Vec<Arc<dyn HandlerPort>>, ServiceError> {
    let client = http::client()?;
    let handler = |class: &&Configured| -> Result<Arc<dyn HandlerPort>, ServiceError> {
        Ok(match &class.handler {
            ConfiguredHandler::Http(http) => {
                Arc::new(Adapter::new(Arc::new(Http::new(client.clone(), http)?), events.clone()))
            }
            ConfiguredHandler::Log => Arc::new(Adapter::new(Arc::new(Log), events.clone())),
            ConfiguredHandler::Rust => registered.get(class.name.as_str(), events).ok_or_else(|| {
                ServiceError::Configuration(format!(
                    "class `{}` has handler.type = \"rust\" and this binary registers none for it: register it by \
                     `Worker::new().handler(\"{0}\", …)`, or give the class another handler",
                    class.name
                ))
            })?,
        })
    };
    served.iter().map(handler).collect()
}

/// The marks of one tier on this machine; none when a stop is asked for before the cluster has said whose they are.
async fn open_marks(
    process: &Process,
    name: &TierName,
    tier: &Tier,
) -> Result<Option<Arc<Marks>>, ServiceError> {
    let config = &process.config;
    let (kafka, names) = (process.kafka.clone(), wiring::names(config));
    let topics = (names.jobs(name.as_str()), names.marks(name.as_str()));
    let partitions = tier.partitions.get();
    let asked = tokio::task::spawn_blocking(move || provenance(&kafka, topics, partitions));
    let provenance = tokio::select! {
        biased;
        () = process.shutdown.requested() => return Ok(None),
        asked = asked => asked.map_err(|error| ServiceError::Fatal(error.to_string()))??,
    };
    let settings = Settings {
        dir: config.state.dir.join(name.as_str()),
        parents: if process.is_part_of_another() { Parents::Required } else { Parents::Made },
        retention: config.state.retention,
        provenance,
        memory: MemoryBudgets::default(),
    };
    // It may recover a killed process's log: not on the runtime, and not to be left in the middle.
    let opened = tokio::task::spawn_blocking(move || Marks::open_dir(settings))
        .await
        .map_err(|error| ServiceError::Fatal(error.to_string()))?;
    Ok(Some(Arc::new(opened.map_err(|error| unusable(&error))?)))
}

/// A folder that can't be one, or that this user may not use, is a wrong setting; a full or failing disk, or somebody else who still has
/// the folder, may be another matter in a minute.
fn unusable(error: &OpenError) -> ServiceError {
    let text = format!("state.dir: {error}");
    match error {
        OpenError::NoDirectory { .. } | OpenError::Denied { .. } => ServiceError::Configuration(text),
        OpenError::InUse(_) | OpenError::NoSpace { .. } | OpenError::Failed { .. } => {
            ServiceError::Local(text)
        }
    }
}

/// What the marks of a job topic belong to. Blocks.
fn provenance(
    kafka: &KafkaSettings,
    (jobs, marks): (Topic, Topic),
    partitions: u32,
) -> Result<Provenance, ServiceError> {
    let cluster = Cluster::connect(kafka)?;
    let mut ids = cluster.topic_ids(&[jobs.as_str(), marks.as_str()])?;
    let mut id_of = |topic: &Topic| {
        ids.remove(topic.as_str()).ok_or_else(|| {
            ServiceError::Configuration(format!(
                "topic `{topic}` is missing: `tidegate topics apply` creates it"
            ))
        })
    };
    let identity = TopicIdentity { id: id_of(&jobs)?, partitions, changelog: Some(id_of(&marks)?) };
    Ok(Provenance { cluster_id: cluster.cluster_id()?, topics: [(jobs, identity)].into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_changelog_that_panics_ends_its_process() {
        let (fatal, (at_work, mut ended)) = (Fatal::default(), mpsc::channel(1));
        work_on(async { panic!("scripted") }, "bulk marks".to_owned(), at_work, fatal.clone()).unwrap();
        assert_eq!(fatal.reported().await, "bulk marks panicked: that is a bug in tidegate");
        assert_eq!(ended.recv().await, None, "and is not waited for");
    }

    #[test]
    fn a_state_folder_that_can_not_be_one_is_a_wrong_setting_and_a_full_disk_is_none() {
        use tidegate_bootstrap::ExitCode::{Failed, Usage};
        let file = tempfile::NamedTempFile::new().unwrap();
        let (nowhere, file) = (std::path::Path::new("/proc/nope"), file.path());
        for dir in [nowhere.join("bulk"), file.join("bulk"), file.to_owned()] {
            let provenance = Provenance { cluster_id: "c".to_owned(), topics: [].into() };
            let settings = Settings {
                dir: dir.clone(),
                parents: Parents::Made,
                retention: Duration::from_secs(60),
                provenance,
                memory: MemoryBudgets::default(),
            };
            let error = unusable(&Marks::open_dir(settings).expect_err("it is refused"));
            assert_eq!(error.exit_code(), Usage, "{error}");
            assert!(error.to_string().starts_with("state.dir: "), "{error}");
        }
        let (path, reason) = (file.to_owned(), "scripted".to_owned());
        assert_eq!(unusable(&OpenError::NoSpace { path, reason }).exit_code(), Failed);
        assert_eq!(unusable(&OpenError::InUse(file.to_owned())).exit_code(), Failed);
    }
}
