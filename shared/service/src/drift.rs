//! What must be the same in every instance of a pipeline, kept in its compacted topic `P.config`.
//!
//! If one instance derived keys from other fields, or counted other partitions, equal events would not meet, and marks would
//! protect nothing. So a service whose configuration differs refuses to start.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Value, json};
use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{Class, KeySource};
use tidegate_domain::Partition;
use tidegate_kafka::single::{publish_one, read_topic};
use tidegate_kafka::{Fatal, KafkaSettings, Publisher};
use tidegate_pipeline::record::OutboundRecord;

use crate::error::ServiceError;
use crate::wiring::names;

/// One setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// Which.
    pub setting: String,
    /// What the pipeline has; none: it does not know it.
    pub pipeline: Option<String>,
    /// What this configuration says.
    pub here: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { setting, pipeline, here } = self;
        match pipeline {
            None => write!(
                f,
                "{setting} = {here} is not known to the pipeline: `tidegate topics apply` makes it known"
            ),
            Some(pipeline) => write!(
                f,
                "{setting} is {here} here and {pipeline} in the pipeline: correct this file; or, to change it for all, stop every \
                 instance, drain the job topics, and run `tidegate topics apply --accept-drift`"
            ),
        }
    }
}

/// The settings that must not drift, each by its path.
pub fn settings(config: &Config) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for (name, tier) in &config.tiers {
        settings.insert(format!("tiers.{name}.partitions"), tier.partitions.to_string());
    }
    for (name, class) in &config.classes {
        settings.insert(format!("classes.{name}"), class_text(class));
    }
    settings
}

fn class_text(class: &Class) -> String {
    let key = match &class.key {
        KeySource::Fields(fields) => json!(fields.iter().map(ToString::to_string).collect::<Vec<_>>()),
        KeySource::Header(name) => json!({ "header": name.to_string() }),
        KeySource::Position => json!("position"),
    };
    let window = class.key_window.as_ref().map(|window| {
        json!({ "field": window.field.to_string(), "every_seconds": window.every.as_secs(), "tz": window.tz.to_string() })
    });
    let partition_by: Vec<String> = class.partition_by.iter().map(ToString::to_string).collect();
    json!({
        "tier": class.tier.to_string(),
        "key": key,
        "scope": class.key_scope.to_string(),
        "window": window,
        "partition_by": partition_by,
    })
    .to_string()
}

/// The topic that holds them.
pub fn topic(config: &Config) -> String {
    names(config).config().as_str().to_owned()
}

/// The record's key in the compacted topic.
const KEY: &[u8] = b"must-not-drift";

/// Compares this configuration with the pipeline's. Blocks.
pub fn differences(config: &Config, kafka: &KafkaSettings) -> Result<Vec<Difference>, ServiceError> {
    let pipeline = read(config, kafka)?;
    let differs = |(setting, here): (String, String)| {
        let known = pipeline.get(&setting).cloned();
        (known.as_ref() != Some(&here)).then_some(Difference { setting, pipeline: known, here })
    };
    Ok(settings(config).into_iter().filter_map(differs).collect())
}

/// Refuses a configuration that differs. Blocks.
pub fn verify(config: &Config, kafka: &KafkaSettings) -> Result<(), ServiceError> {
    let differences = differences(config, kafka)?;
    if differences.is_empty() { Ok(()) } else { Err(ServiceError::Drift(differences)) }
}

/// Makes this configuration's settings known to the pipeline; those that it alone does not have stay. Blocks.
pub fn publish(config: &Config, kafka: &KafkaSettings) -> Result<(), ServiceError> {
    let mut all = read(config, kafka)?;
    all.extend(settings(config));
    let text = json!({ "format": 1, "settings": all }).to_string();
    let publisher = Publisher::new(kafka, Fatal::default())?;
    let topic = names(config).config();
    let record = OutboundRecord {
        topic: &topic,
        partition: Some(Partition(0)),
        key: Some(KEY),
        value: Some(text.as_bytes()),
        headers: &[],
    };
    publish_one(&publisher, &record)
        .map_err(|error| ServiceError::Configuration(format!("{topic} can't be written: {error}")))
}

fn read(config: &Config, kafka: &KafkaSettings) -> Result<BTreeMap<String, String>, ServiceError> {
    let topic = names(config).config();
    let mut newest: Option<Vec<u8>> = None;
    read_topic(kafka, topic.as_str(), |found| {
        if found.record.key() == Some(KEY) {
            newest = found.record.value().map(<[u8]>::to_vec);
        }
        ControlFlow::Continue(())
    })?;
    let Some(newest) = newest else { return Ok(BTreeMap::new()) };
    let unreadable = || {
        ServiceError::Configuration(format!(
            "{topic} holds something that this version can't read: upgrade this instance"
        ))
    };
    let value: Value = serde_json::from_slice(&newest).map_err(|_| unreadable())?;
    if value["format"] != 1 {
        return Err(unreadable());
    }
    serde_json::from_value(value["settings"].clone()).map_err(|_| unreadable())
}
