//! `tidegate produce`: JSON lines become Avro events.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde_json::Value;
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_codec::{CompiledSchema, wire};
use tidegate_domain::Topic;
use tidegate_kafka::topics::{Cluster, TopicSpec};
use tidegate_kafka::{Fatal, Publisher};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_service::deliveries::{Deliveries, Undelivered};
use tidegate_service::{ServiceError, wiring};

use crate::{Answer, block_on, print};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo '{\"payment_id\": \"p-1\", \"order_id\": \"o-1\", \"customer_id\": \"c-1\", \"amount_cents\": 4200, \"paid_at\": \"2026-01-31T12:00:00Z\"}' \\
    | tidegate produce --topic demo.payments --schema schemas/payment.avsc --key payment_id
  tidegate produce --topic demo.payments --schema schemas/payment.avsc events.jsonl")]
pub(crate) struct Produce {
    /// The topic to publish to
    #[arg(long)]
    topic: String,
    /// The Avro schema; it is registered under the subject TOPIC-value
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// The field whose text becomes the record's key; none: a null key
    #[arg(long, value_name = "FIELD")]
    key: Option<String>,
    /// Create the topic with this many partitions when there is none
    #[arg(long, value_name = "PARTITIONS")]
    create: Option<u32>,
    /// A file of JSON lines [default: standard input]
    file: Option<PathBuf>,
}

pub(crate) fn run(config: &Config, args: &Produce) -> Answer {
    let text = std::fs::read_to_string(&args.schema)
        .with_context(|| format!("the schema {} can't be read", args.schema.display()))?;
    let kafka = wiring::kafka(config);
    let cluster = Cluster::connect(&kafka)?;
    let exists = cluster.topics()?.contains_key(&args.topic);
    // Before anything is changed: a wrong name must not leave a schema behind.
    if !exists && args.create.is_none() {
        return Err(no_topic(&args.topic).into());
    }
    let registry = wiring::registry(config)?;
    let subject = format!("{}-value", args.topic);
    let id = block_on(registry.register(&subject, &text))?
        .map_err(|error| anyhow!("the schema can't be registered as `{subject}`: {error}"))?;
    let schema = CompiledSchema::parse(id, &text, &[])
        .map_err(|error| anyhow!("{}: {error}", args.schema.display()))?;
    if let (false, Some(partitions)) = (exists, args.create) {
        create(config, &cluster, &args.topic, partitions)?;
    }
    let publisher = Publisher::new(&kafka, Fatal::default())?;
    let lines: Box<dyn BufRead> = match &args.file {
        Some(file) => Box::new(std::io::BufReader::new(
            std::fs::File::open(file).with_context(|| format!("{} can't be read", file.display()))?,
        )),
        None => Box::new(std::io::stdin().lock()),
    };
    let published = publish_lines(args, &schema, &publisher, lines)?;
    print(&format!("{published} events published to {} with schema {id}", args.topic));
    Ok(ExitCode::Ok)
}

fn no_topic(topic: &str) -> ServiceError {
    ServiceError::Configuration(format!(
        "there is no topic `{topic}`: correct the name, or let `--create PARTITIONS` create it"
    ))
}

fn create(config: &Config, cluster: &Cluster, topic: &str, partitions: u32) -> anyhow::Result<()> {
    let spec = TopicSpec {
        name: topic.to_owned(),
        partitions: Some(partitions),
        keyed: false,
        replication: config.kafka.replication.map(std::num::NonZeroU16::get),
        settings: BTreeMap::new(),
    };
    let specs = [spec];
    block_on(async {
        cluster.create(&specs).await?;
        cluster.wait_until_known(&specs, Duration::from_secs(30)).await
    })??;
    print(&format!("created {topic} ({partitions} partitions)"));
    Ok(())
}

fn publish_lines(
    args: &Produce,
    schema: &CompiledSchema,
    publisher: &Publisher,
    lines: Box<dyn BufRead>,
) -> anyhow::Result<u64> {
    let topic = Topic::new(args.topic.clone());
    let mut deliveries = Deliveries::default();
    for (number, line) in (1_u64..).zip(lines.lines()) {
        let line = line.context("the input can't be read")?;
        if line.trim().is_empty() {
            continue;
        }
        let at = || format!("line {number}");
        let event: Value = serde_json::from_str(&line).with_context(at)?;
        let value = wire::frame(
            schema.id(),
            &schema.encode_json(&event).map_err(|e| anyhow!("{e}")).with_context(at)?,
        );
        let key = args.key.as_deref().map(|field| key_of(&event, field)).transpose().with_context(at)?;
        let record = OutboundRecord {
            topic: &topic,
            partition: None,
            key: key.as_deref().map(str::as_bytes),
            value: Some(&value),
            headers: &[],
        };
        deliveries.publish(publisher, &record, number).map_err(undelivered)?;
    }
    deliveries.finish().map_err(undelivered)
}

fn undelivered(Undelivered { number, reason }: Undelivered) -> anyhow::Error {
    anyhow::Error::new(reason).context(format!("line {number} was not published"))
}

fn key_of(event: &Value, field: &str) -> anyhow::Result<String> {
    match &event[field] {
        Value::Null => bail!("the key field `{field}` is missing or null"),
        Value::String(text) => Ok(text.clone()),
        other => Ok(other.to_string()),
    }
}
