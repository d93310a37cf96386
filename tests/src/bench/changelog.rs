//! What the changelog costs: the same worker with it and without. Handler, local copy and commits are the same; without it, an append
//! is acknowledged as soon as it is handed over. There is no such switch in the product: without a changelog, marks don't survive.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{Class as Configured, Tier, TierName, process_environment};
use tidegate_domain::{CommitPosition, Offset, Outcome};
use tidegate_kafka::consumer::{Start, Subscription};
use tidegate_kafka::{Publisher, SystemClock};
use tidegate_pipeline::changelog::{
    CatchUp, CaughtUp, Changelog, ChangelogPorts, ChangelogReader, ChangelogSettings, LocalCopy, LogEnd,
    OpenerId,
};
use tidegate_pipeline::events::ClassMetrics;
use tidegate_pipeline::jobs::{
    Class, Conflicts, CutOff, FirstPartitions, Guard, Job, JobSettings, JobStage, Ordering, ParkedShare,
    Ports, Solitude,
};
use tidegate_pipeline::ports::{
    Acknowledged, Delivery, Handler, MarkStoreError, PublishError, RecordPublisher, Ticket,
};
use tidegate_pipeline::{Inbox, OutboundRecord, TopicPartition, Wake};
use tidegate_service::group::{self, Member};
use tidegate_service::{Process, ServiceError, process, wiring};
use tidegate_state::{Marks, MemoryBudgets, Parents, Provenance, Settings, TopicIdentity};

use super::fill::now;
use super::measured::{Used, median};
use super::scenes::{Stage, fill_jobs, measure, pipeline};
use crate::process::built_binary;

/// Where the marks of the measured worker go before its local copy has them.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Appends {
    /// To the changelog topic.
    Kafka,
    /// Nowhere.
    Nowhere,
}

impl Appends {
    fn word(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Nowhere => "nowhere",
        }
    }
}

#[derive(Debug, Parser)]
struct Arguments {
    appends: Appends,
    #[arg(long)]
    config: PathBuf,
}

const TIER: &str = "critical";

/// No-op jobs through both workers, one after the other in each round.
pub(super) fn changelog(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let cpu = |used: Used| used.cpu_seconds * 1e6 / records as f64;
    for _ in 0..stage.rounds {
        let (logged, used_logged) = run(stage, Appends::Kafka, records)?;
        let (unlogged, used_unlogged) = run(stage, Appends::Nowhere, records)?;
        with.push((logged, cpu(used_logged)));
        without.push((unlogged, cpu(used_unlogged)));
        ratios.push(logged / unlogged);
    }
    let middle = |of: &[(f64, f64)]| {
        (median(of.iter().map(|round| round.0).collect()), median(of.iter().map(|round| round.1).collect()))
    };
    let ((logged, cpu_logged), (unlogged, cpu_unlogged)) = (middle(&with), middle(&without));
    println!(
        "\nworker with its changelog and without, no-op jobs ({records} records, median of {})",
        stage.rounds
    );
    println!(
        "  {logged:>9.0}/s   without {unlogged:>9.0}/s   ratio {:.2}   {cpu_logged:.2} us CPU each, without {cpu_unlogged:.2}",
        median(ratios)
    );
    Ok(())
}

fn run(stage: &Stage<'_>, appends: Appends, count: usize) -> Result<(f64, Used), String> {
    let mut pipeline = pipeline(stage, "bench-changelog");
    fill_jobs(stage, &pipeline, "nothing", count);
    let program = built_binary("tidegate-bench");
    let labels = ["class=\"nothing\"", "outcome=\"done\""];
    measure(
        &mut pipeline,
        "worker",
        |pipeline| pipeline.launch_program("worker", &program, &["marks-process", appends.word()]),
        count,
        |pipeline| pipeline.metric("worker", "tidegate_jobs_total", &labels),
    )
}

/// The worker that is measured here.
pub fn marks_process(arguments: &[String]) -> ExitCode {
    let name = [String::from("tidegate-bench")];
    let arguments = Arguments::parse_from(name.iter().chain(arguments));
    let worked = Config::load(Some(&arguments.config), process_environment())
        .map_err(|error| error.to_string())
        .and_then(|config| {
            process::serve(config, async |process| work(process, arguments.appends).await)
                .map_err(|error| error.to_string())
        });
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn work(process: &Process, appends: Appends) -> Result<(), ServiceError> {
    let config = &process.config;
    let wrong = |error: String| ServiceError::Configuration(error);
    let name: TierName = TIER.parse().map_err(|error| wrong(format!("the tier's name: {error}")))?;
    let tier = config.tier(&name).ok_or_else(|| wrong(format!("there is no tier {TIER}")))?;
    let names = wiring::names(config);
    let served: Vec<&Configured> = config.classes.values().filter(|class| class.tier == name).collect();
    let marks = Arc::new(marks(config, tier)?);
    let publisher = Arc::new(Publisher::new(&process.kafka, process.fatal.clone())?);
    let shard = wiring::shard(config, tier.window_records.get(), wiring::bytes(tier.window_bytes));
    let settings = JobSettings {
        names: names.clone(),
        classes: served.iter().map(|class| settings_of(config, class)).collect::<Result<_, _>>()?,
        concurrency: tier.concurrency.get().div_ceil(config.consume.shards.get()),
        belief: wiring::ladder(config)?.belief(),
        parked: ParkedShare::half_of(&shard),
        marks_together: 4096,
        solitude: Solitude::default(),
        cut_off: CutOff::default(),
        first: FirstPartitions::default(),
    };
    let (log, log_settings) = log(process, appends, marks)?;
    let member = Member {
        name: "worker".to_owned(),
        subscription: Subscription {
            group: names.worker_group(TIER),
            topics: vec![names.jobs(TIER).as_str().to_owned()],
            start: Box::new(|_| Start::Earliest),
            drain_deadline: config.consume.drain_deadline,
        },
        shards: config.consume.shards.get(),
        settings: shard,
        shutdown_deadline: config.consume.shutdown_deadline,
        warm_up: None,
    };
    let handler: Arc<dyn Handler> = Arc::new(Nothing);
    let (runtime, handlers) = (tokio::runtime::Handle::current(), vec![handler; served.len()]);
    let make = move |wake: &Wake| {
        let (changelog, task) = Changelog::new(log.clone(), log_settings.clone());
        let handle = runtime.clone();
        std::thread::spawn(move || handle.block_on(task));
        let ports = Ports {
            publisher: publisher.clone(),
            marks: Arc::new(changelog),
            handlers: handlers.clone(),
            clock: Arc::new(SystemClock),
            runtime: runtime.clone(),
        };
        JobStage::new(ports, settings.clone(), wake)
    };
    group::run(member, &process.kafka, make, (&process.health, &process.shutdown, &process.fatal)).await
}

fn log(
    process: &Process,
    appends: Appends,
    marks: Arc<Marks>,
) -> Result<(ChangelogPorts, ChangelogSettings), ServiceError> {
    let names = wiring::names(&process.config);
    let publisher: Arc<dyn RecordPublisher> = match appends {
        Appends::Kafka => Arc::new(Publisher::for_changelog(&process.kafka, process.fatal.clone())?),
        Appends::Nowhere => Arc::new(Nowhere::default()),
    };
    let ports = ChangelogPorts { publisher, table: marks.clone(), reader: Arc::new(NothingToRead(marks)) };
    let settings = ChangelogSettings {
        opener: OpenerId([1; 16]),
        window: 10_000,
        topics: [(names.jobs(TIER), names.marks(TIER))].into_iter().collect(),
        idle_check: Duration::from_secs(3),
    };
    Ok((ports, settings))
}

fn settings_of(config: &Config, class: &Configured) -> Result<Class, ServiceError> {
    Ok(Class {
        name: class.name.to_string(),
        tier: TIER.to_owned(),
        ladder: wiring::class_ladder(config, class)?,
        max_attempts: class.max_attempts.get(),
        max_age: class.max_age,
        time_limit: class.time_limit,
        ordering: Ordering::None,
        on_conflict: Conflicts::Skip,
        guard: Guard::default(),
        metrics: ClassMetrics::of(class.name.as_str(), TIER),
    })
}

/// The local copy, of a cluster and topics that nobody asks for: its directory is new.
fn marks(config: &Config, tier: &Tier) -> Result<Marks, ServiceError> {
    let identity = TopicIdentity { id: String::new(), partitions: tier.partitions.get(), changelog: None };
    let topic = wiring::names(config).jobs(TIER);
    let settings = Settings {
        dir: config.state.dir.join(TIER),
        parents: Parents::Made,
        retention: config.state.retention,
        provenance: Provenance { cluster_id: String::new(), topics: [(topic, identity)].into() },
        memory: MemoryBudgets::default(),
    };
    Marks::open_dir(settings).map_err(|error| ServiceError::Local(error.to_string()))
}

struct Nothing;

impl Handler for Nothing {
    fn call(&self, _job: Arc<Job>) -> futures_util::future::BoxFuture<'static, Outcome> {
        Box::pin(std::future::ready(Outcome::Done))
    }
}

/// Acknowledges what it is handed, and keeps nothing.
#[derive(Default)]
struct Nowhere {
    ends: Mutex<BTreeMap<i32, i64>>,
}

impl RecordPublisher for Nowhere {
    fn publish(
        &self,
        record: &OutboundRecord<'_>,
        ticket: Ticket,
        inbox: &Arc<Inbox<Delivery>>,
    ) -> Result<(), PublishError> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end = ends.entry(record.partition.map_or(0, |partition| partition.0)).or_default();
        let offset = Offset(*end);
        *end += 1;
        inbox.push((ticket, Ok(Acknowledged { offset, append_time: now() })));
        Ok(())
    }
}

/// Below what was just opened there is nothing: the changelogs are new.
struct NothingToRead(Arc<Marks>);

impl ChangelogReader for NothingToRead {
    fn catch_up(&self, request: CatchUp, ticket: Ticket, inbox: &Arc<Inbox<CaughtUp>>) {
        let CatchUp { partition, until, .. } = request;
        let restored =
            self.0.restore(&partition, true).and_then(|restoring| restoring.finish(until, None, None));
        let copy = LocalCopy { position: Some(CommitPosition(until.0)), ..LocalCopy::default() };
        inbox.push((ticket, restored.map(|_| copy)));
    }

    fn end(&self, _log: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LogEnd>>) {
        let unknown = MarkStoreError::Read("nobody else appends to it".to_owned());
        inbox.push((ticket, Err(unknown)));
    }
}
