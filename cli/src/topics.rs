//! `tidegate topics`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_kafka::KafkaSettings;
use tidegate_kafka::topics::{Cluster, TopicSpec};
use tidegate_service::check::{self, Comparison, Finding, Told};
use tidegate_service::{ServiceError, drift, plan, wiring};

use crate::{Answer, block_on, print, print_note};

#[derive(Debug, Subcommand)]
pub(crate) enum Topics {
    /// Create what is missing; what exists is never changed
    #[command(
        after_help = "Examples:\n  tidegate topics apply\n  TIDEGATE_KAFKA__REPLICATION=3 tidegate topics apply"
    )]
    Apply {
        /// Make this configuration's keys, scopes and tiers the pipeline's, although they differ from those in use. Stop every
        /// instance and drain the job topics first: marks of a changed key protect nothing
        #[arg(long)]
        accept_drift: bool,
    },
    /// Compare topics with the configuration; exit code 3 when they differ
    Check {
        /// Print findings as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(config: &Config, command: &Topics) -> Answer {
    let kafka = wiring::kafka(config);
    match command {
        Topics::Apply { accept_drift } => apply(config, &kafka, *accept_drift),
        Topics::Check { json } => check(config, &kafka, *json),
    }
}

fn apply(config: &Config, kafka: &KafkaSettings, accept_drift: bool) -> Answer {
    let cluster = Cluster::connect(kafka)?;
    let specs = plan::topics(config);
    let have = cluster.topics().map_err(ServiceError::from)?;
    let missing: Vec<TopicSpec> =
        specs.iter().filter(|spec| !have.contains_key(&spec.name)).cloned().collect();
    if !missing.is_empty() {
        block_on(async {
            cluster.create(&missing).await?;
            cluster.wait_until_known(&missing, Duration::from_secs(30)).await
        })??;
    }
    for spec in &missing {
        let partitions = counted(spec.partitions.unwrap_or(1).into(), "partition", "partitions");
        print(&format!("created {} ({partitions})", spec.name));
    }
    print(&format!("{}, {} created", counted(specs.len() as u64, "topic", "topics"), missing.len()));
    make_known(config, kafka, accept_drift)?;
    let compared = block_on(check::compare(config, &cluster))??;
    let is_ours = |finding: &Finding| !matches!(finding, Finding::Missing { source: true, .. });
    let ours = compared.findings.iter().any(is_ours);
    tell(&compared, true);
    // A source is its publishers' to create: what was asked for is done.
    Ok(if ours { ExitCode::NotOk } else { ExitCode::Ok })
}

fn make_known(config: &Config, kafka: &KafkaSettings, accept_drift: bool) -> anyhow::Result<()> {
    let (changed, unknown): (Vec<_>, Vec<_>) =
        drift::differences(config, kafka)?.into_iter().partition(|difference| difference.pipeline.is_some());
    if !changed.is_empty() && !accept_drift {
        return Err(ServiceError::Drift(changed).into());
    }
    if !changed.is_empty() || !unknown.is_empty() {
        drift::publish(config, kafka)?;
        print(&format!("{} settings made known to the pipeline", changed.len() + unknown.len()));
    }
    Ok(())
}

fn check(config: &Config, kafka: &KafkaSettings, json: bool) -> Answer {
    let cluster = Cluster::connect(kafka)?;
    let compared = block_on(check::compare(config, &cluster))??;
    let findings = &compared.findings;
    let known = !findings
        .iter()
        .any(|f| matches!(f, Finding::Missing { topic, .. } if *topic == drift::topic(config)));
    let differences = if known { drift::differences(config, kafka)? } else { Vec::new() };
    if json {
        print(&serde_json::to_string_pretty(&json!({ "topics": findings, "drift": differences }))?);
        note_untold(compared.settings);
    } else {
        tell(&compared, differences.is_empty());
        differences.iter().for_each(|difference| print(&format!("- {difference}")));
    }
    Ok(if findings.is_empty() && differences.is_empty() { ExitCode::Ok } else { ExitCode::NotOk })
}

fn tell(Comparison { findings, settings }: &Comparison, all_well: bool) {
    match (findings.is_empty() && all_well, settings) {
        (true, Told::Yes) => print("every topic is as it must be"),
        (true, Told::NotByThisBroker) => print("every topic is there, with the partitions that it must have"),
        (false, _) => {}
    }
    findings.iter().for_each(|finding| print(&format!("- {finding}")));
    note_untold(*settings);
}

fn note_untold(settings: Told) {
    if settings == Told::NotByThisBroker {
        print_note(
            "the settings of topics were not compared: this broker does not tell them (that of `tidegate dev` has none)",
        );
    }
}
