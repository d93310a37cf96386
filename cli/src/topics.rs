//! `tidegate topics`.

use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_kafka::KafkaSettings;
use tidegate_kafka::topics::{Cluster, TopicSpec};
use tidegate_service::check::{self, Finding};
use tidegate_service::{ServiceError, drift, plan, wiring};

use crate::{Answer, block_on, print};

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
        print(&format!("created {} ({} partitions)", spec.name, spec.partitions.unwrap_or(1)));
    }
    print(&format!("{} topics, {} created", specs.len(), missing.len()));
    make_known(config, kafka, accept_drift)?;
    let findings = block_on(check::findings(config, &cluster))??;
    let ours = findings.iter().any(|finding| !matches!(finding, Finding::Missing { source: true, .. }));
    tell(&findings, true)?;
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
    let findings = block_on(check::findings(config, &cluster))??;
    let known = !findings
        .iter()
        .any(|f| matches!(f, Finding::Missing { topic, .. } if *topic == drift::topic(config)));
    let differences = if known { drift::differences(config, kafka)? } else { Vec::new() };
    if json {
        print(&serde_json::to_string_pretty(&json!({ "topics": findings, "drift": differences }))?);
    } else {
        tell(&findings, differences.is_empty())?;
        differences.iter().for_each(|difference| print(&format!("- {difference}")));
    }
    Ok(if findings.is_empty() && differences.is_empty() { ExitCode::Ok } else { ExitCode::NotOk })
}

fn tell(findings: &[Finding], all_well: bool) -> anyhow::Result<()> {
    if findings.is_empty() && all_well {
        print("every topic is as it must be");
    }
    findings.iter().for_each(|finding| print(&format!("- {finding}")));
    Ok(())
}
