//! The cluster against the plan.

use std::collections::BTreeMap;

use tidegate_bootstrap::Config;
use tidegate_kafka::topics::{Cluster, TopicError, TopicSpec, TopicState};

use crate::plan;

/// How a topic differs from what is needed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "finding")]
pub enum Finding {
    /// There is no such topic.
    Missing {
        /// The topic.
        topic: String,
        /// Whether it is one that others own.
        source: bool,
    },
    /// It has another number of partitions: equal keys would not meet.
    Partitions {
        /// The topic.
        topic: String,
        /// How many it has.
        has: u32,
        /// How many are configured.
        needs: u32,
    },
    /// It has another setting.
    Setting {
        /// The topic.
        topic: String,
        /// The setting.
        name: String,
        /// What it is.
        has: String,
        /// What it must be.
        needs: String,
    },
}

impl Finding {
    /// Whether a service must not run with it: records could be lost, stuck, or run twice.
    pub fn is_grave(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::Partitions { .. } => true,
            Self::Setting { name, .. } => {
                matches!(name.as_str(), "cleanup.policy" | "message.timestamp.type")
            }
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { topic, source: false } => {
                write!(f, "topic `{topic}` is missing: `tidegate topics apply` creates it")
            }
            Self::Missing { topic, source: true } => {
                write!(
                    f,
                    "source topic `{topic}` is missing: whoever publishes the events must create it, or correct its name in [sources]"
                )
            }
            Self::Partitions { topic, has, needs } => write!(
                f,
                "topic `{topic}` has {has} partitions and the configuration says {needs}: correct `partitions` of its tier; \
                 a topic that holds jobs can't change its count without moving keys"
            ),
            Self::Setting { topic, name, has, needs } => write!(
                f,
                "topic `{topic}` has {name}={has} and needs {needs}: `kafka-configs.sh --alter --topic {topic} --add-config {name}={needs}`"
            ),
        }
    }
}

/// Compares every topic with the plan, sources included.
pub async fn findings(config: &Config, cluster: &Cluster) -> Result<Vec<Finding>, TopicError> {
    let have = cluster.topics()?;
    let specs = plan::topics(config);
    let mut findings = differences(&specs, &have);
    for source in config.sources.keys().filter(|source| !have.contains_key(source.as_str())) {
        findings.push(Finding::Missing { topic: source.to_string(), source: true });
    }
    let existing: Vec<&str> =
        specs.iter().map(|spec| spec.name.as_str()).filter(|name| have.contains_key(*name)).collect();
    if !existing.is_empty() {
        findings.extend(settings(&specs, &cluster.settings(&existing).await?));
    }
    Ok(findings)
}

fn differences(specs: &[TopicSpec], have: &BTreeMap<String, TopicState>) -> Vec<Finding> {
    let difference = |spec: &TopicSpec| match (have.get(&spec.name), spec.partitions) {
        (None, _) => Some(Finding::Missing { topic: spec.name.clone(), source: false }),
        (Some(state), Some(needs)) if spec.keyed && state.partitions != needs => {
            Some(Finding::Partitions { topic: spec.name.clone(), has: state.partitions, needs })
        }
        _ => None,
    };
    specs.iter().filter_map(difference).collect()
}

fn settings(specs: &[TopicSpec], have: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for spec in specs {
        let Some(has) = have.get(&spec.name) else { continue };
        for (name, needs) in &spec.settings {
            let value = has.get(name).map_or("", String::as_str);
            if !suffices(name, value, needs) {
                findings.push(Finding::Setting {
                    topic: spec.name.clone(),
                    name: name.clone(),
                    has: value.to_owned(),
                    needs: needs.clone(),
                });
            }
        }
    }
    findings
}

/// Longer retention, larger records and more replicas than needed are no fault.
fn suffices(name: &str, has: &str, needs: &str) -> bool {
    if has == needs {
        return true;
    }
    let (Ok(has), Ok(needs)) = (has.parse::<i64>(), needs.parse::<i64>()) else { return false };
    match name {
        "retention.ms" => has == -1 || (needs != -1 && has >= needs),
        "segment.ms" => has <= needs,
        _ => has >= needs,
    }
}

/// Whether a service may start; what is not grave is returned for the log.
pub async fn before_start(config: &Config, cluster: &Cluster) -> Result<Vec<Finding>, crate::ServiceError> {
    let (grave, slight): (Vec<_>, Vec<_>) =
        findings(config, cluster).await?.into_iter().partition(Finding::is_grave);
    if grave.is_empty() { Ok(slight) } else { Err(crate::ServiceError::Unfit(grave)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_needed_suffices_and_less_does_not() {
        for (name, has, needs, expected) in [
            ("retention.ms", "-1", "1000", true),
            ("retention.ms", "999", "1000", false),
            ("retention.ms", "1000", "-1", false),
            ("segment.ms", "10", "100", true),
            ("segment.ms", "1000", "100", false),
            ("max.message.bytes", "2000", "1000", true),
            ("max.message.bytes", "999", "1000", false),
            ("cleanup.policy", "compact", "delete", false),
            ("message.timestamp.type", "LogAppendTime", "LogAppendTime", true),
        ] {
            assert_eq!(suffices(name, has, needs), expected, "{name}: has {has}, needs {needs}");
        }
    }
}
