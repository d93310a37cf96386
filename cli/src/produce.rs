//! `tidegate produce`: JSON lines become Avro events.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use serde_json::Value;
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_codec::{CompiledSchema, RegistryError, SchemaRegistry, value_subject, wire};
use tidegate_domain::Topic;
use tidegate_kafka::topics::{Cluster, TopicSpec};
use tidegate_kafka::{Fatal, Publisher};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_service::deliveries::{Deliveries, Undelivered};
use tidegate_service::{ServiceError, wiring};

use crate::{Answer, block_on, number, print};

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
    #[arg(long, value_name = "PARTITIONS", value_parser = partitions)]
    create: Option<u32>,
    /// A file of JSON lines [default: standard input]
    file: Option<PathBuf>,
}

/// As many as Kafka can number.
fn partitions(text: &str) -> Result<u32, String> {
    number::within(text, 1..=i32::MAX.unsigned_abs())
}

pub(crate) fn run(config: &Config, args: &Produce) -> Answer {
    // What is at hand is looked at first: a slip in it must leave no schema and no topic behind.
    let text = read_schema(&args.schema)?;
    let lines = open_lines(args.file.as_deref())?;
    let kafka = wiring::kafka(config);
    let cluster = Cluster::connect(&kafka)?;
    let exists = cluster.topics()?.contains_key(&args.topic);
    if !exists && args.create.is_none() {
        return Err(no_topic(&args.topic).into());
    }
    let registry = wiring::registry(config)?;
    let subject = value_subject(&args.topic);
    let id = block_on(register(&registry, &subject, &text))??;
    let schema = compiled(&args.schema, id, &text)?;
    if let (false, Some(partitions)) = (exists, args.create) {
        create(config, &cluster, &args.topic, partitions)?;
    }
    let publisher = Publisher::new(&kafka, Fatal::default())?;
    let published = publish_lines(args, &schema, &publisher, lines)?;
    let events = if published == 1 { "event" } else { "events" };
    print(&format!("{published} {events} published to {} with schema {id}", args.topic));
    Ok(ExitCode::Ok)
}

/// What was given is wrong: trying again won't help.
fn wrong(text: String) -> anyhow::Error {
    ServiceError::Configuration(text).into()
}

fn read_schema(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(format!("the schema {name} can't be read: {error}; correct --schema")))?;
    // Its id is known when it is registered.
    compiled(file, 0, &text).map(|_| text)
}

fn compiled(file: &Path, id: u32, text: &str) -> anyhow::Result<CompiledSchema> {
    CompiledSchema::parse(id, text, &[])
        .map_err(|error| wrong(format!("{} is no Avro schema: {error}; correct it", file.display())))
}

fn open_lines(file: Option<&Path>) -> anyhow::Result<Box<dyn BufRead>> {
    let Some(file) = file else { return Ok(Box::new(std::io::stdin().lock())) };
    let name = file.display();
    if file.is_dir() {
        return Err(wrong(format!("{name} is a folder; name a file of JSON lines")));
    }
    let opened = std::fs::File::open(file)
        .map_err(|error| wrong(format!("{name} can't be read: {error}; name a file of JSON lines")))?;
    Ok(Box::new(std::io::BufReader::new(opened)))
}

async fn register(registry: &SchemaRegistry, subject: &str, text: &str) -> anyhow::Result<u32> {
    match registry.register(subject, text).await {
        Ok(id) => Ok(id),
        Err(error @ RegistryError::Refused { .. }) => Err(not_registered(subject, &error)),
        Err(error) => {
            // Of an answer to the question of one schema, only part can be told.
            registry.check(&[subject.to_owned()]).await.map_err(ServiceError::Registry)?;
            Err(not_registered(subject, &error))
        }
    }
}

fn not_registered(subject: &str, error: &RegistryError) -> anyhow::Error {
    match error {
        RegistryError::Refused { .. } => {
            wrong(format!("{error}; let it accept what it accepted before, or publish to another topic"))
        }
        error => anyhow!(
            "the schema can't be registered as `{subject}`: {error}; check registry.url and that the registry runs"
        ),
    }
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
    print(&format!("created {topic} ({})", counted(partitions.into(), "partition", "partitions")));
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
        let event = match line.map_err(|error| format!("can't be read: {error}")) {
            Ok(line) if line.trim().is_empty() => continue,
            line => line.and_then(|line| encode(args, schema, &line)),
        };
        let (key, value) = match event {
            Ok(event) => event,
            Err(reason) => {
                let before = deliveries.finish().map_err(undelivered)?;
                return Err(wrong(format!(
                    "line {number} {reason}; correct it, and publish from this line on: {before} before it are published"
                )));
            }
        };
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

/// The record of a line, its key and its value; else what is wrong with the line.
fn encode(args: &Produce, schema: &CompiledSchema, line: &str) -> Result<(Option<String>, Vec<u8>), String> {
    let event: Value = serde_json::from_str(line).map_err(|error| format!("is no JSON: {error}"))?;
    let datum = schema.encode_json(&event).map_err(|error| format!("does not fit the schema: {error}"))?;
    let key = args.key.as_deref().map(|field| key_of(&event, field)).transpose()?;
    Ok((key, wire::frame(schema.id(), &datum)))
}

fn undelivered(Undelivered { number, reason }: Undelivered) -> anyhow::Error {
    anyhow!("line {number} was not published: {reason}; those before it may be, and the rest is not")
}

fn key_of(event: &Value, field: &str) -> Result<String, String> {
    match &event[field] {
        Value::Null => Err(format!("has no key: the field `{field}` is missing or null")),
        Value::String(text) => Ok(text.clone()),
        other => Ok(other.to_string()),
    }
}
