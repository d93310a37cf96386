//! The cluster against the plan.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::duration_text;
use tidegate_kafka::topics::{Cluster, TopicError, TopicSpec, TopicState};

use crate::plan;

/// What it means that a cluster does not show a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is not there.
    Certain,
    /// The cluster knows its clients, so it may be there, and this user may not see it.
    OrHidden,
}

impl Absence {
    fn on(config: &Config) -> Self {
        let knows_clients = config.kafka.properties.iter().any(|(name, _)| name == "security.protocol");
        if knows_clients { Self::OrHidden } else { Self::Certain }
    }
}

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
        /// What it means that the cluster does not show it.
        #[serde(skip)]
        absence: Absence,
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
    /// It is a changelog of marks that forgets them too early: duplicates would run again.
    Forgets {
        /// The topic.
        topic: String,
        /// The setting.
        name: String,
        /// What it is.
        has: String,
        /// What it must be.
        needs: String,
        /// How long marks are remembered: `state.retention`.
        remembered: String,
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
            Self::Missing { .. } | Self::Partitions { .. } | Self::Forgets { .. } => true,
            Self::Setting { topic, name, .. } => {
                matches!(name.as_str(), "cleanup.policy" | "message.timestamp.type")
                    // What it forgets, some readers know and others don't.
                    || (is_journal(topic) && name.starts_with("retention."))
            }
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { topic, source, absence } => {
                let hidden = match absence {
                    Absence::Certain => "",
                    Absence::OrHidden => "; if it exists, this user may not see it, and needs Describe on it",
                };
                if *source {
                    write!(
                        f,
                        "source topic `{topic}` is missing: whoever publishes the events must create it, or correct its name in \
                         [sources]{hidden}"
                    )
                } else {
                    write!(f, "topic `{topic}` is missing: `tidegate topics apply` creates it{hidden}")
                }
            }
            Self::Partitions { topic, has, .. } if has_no_tier(topic) => write!(
                f,
                "topic `{topic}` has {has} partitions and must have one, because its order decides what counts: stop the pipeline, \
                 save what the topic holds, delete it, and let `tidegate topics apply` create it"
            ),
            Self::Partitions { topic, has, needs } => write!(
                f,
                "topic `{topic}` has {has} partitions and the configuration says {needs}: correct `partitions` of its tier; \
                 a topic that holds jobs can't change its count without moving keys"
            ),
            Self::Forgets { topic, name, has, needs, remembered } => write!(
                f,
                "topic `{topic}` has {name}={has} and would forget marks that state.retention = {remembered} counts on, so that \
                 duplicates run again: `kafka-configs.sh --alter --topic {topic} --add-config {name}={needs}`{}",
                if name == "retention.ms" { ", or lower state.retention" } else { "" }
            ),
            Self::Setting { topic, name, has, needs } => write!(
                f,
                "topic `{topic}` has {name}={has} and needs {needs}: `kafka-configs.sh --alter --topic {topic} --add-config {name}={needs}`"
            ),
        }
    }
}

/// Whether the topic is one whose single partition nobody configures.
fn has_no_tier(topic: &str) -> bool {
    is_journal(topic) || topic.ends_with(".config")
}

fn is_journal(topic: &str) -> bool {
    topic.ends_with(".dlq-journal")
}

/// What a comparison of the cluster with the plan gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// How it differs.
    pub findings: Vec<Finding>,
    /// Whether the settings of topics were compared.
    pub settings: Told,
}

/// Whether the brokers told the settings of their topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// They did.
    Yes,
    /// They have no such request, as the embedded broker of dev mode has none.
    NotByThisBroker,
}

/// Compares every topic with the plan, sources included.
///
/// # Errors
/// When the cluster does not answer, or hides what it is asked for.
pub async fn compare(config: &Config, cluster: &Cluster) -> Result<Comparison, TopicError> {
    let have = cluster.topics()?;
    let specs = plan::topics(config);
    let absence = Absence::on(config);
    let mut findings = differences(&specs, &have, absence);
    for source in config.sources.keys().filter(|source| !have.contains_key(source.as_str())) {
        findings.push(Finding::Missing { topic: source.to_string(), source: true, absence });
    }
    let existing: Vec<&str> =
        specs.iter().map(|spec| spec.name.as_str()).filter(|name| have.contains_key(*name)).collect();
    if existing.is_empty() {
        return Ok(Comparison { findings, settings: Told::Yes });
    }
    let have = match cluster.settings(&existing).await {
        Err(TopicError::Unsupported { .. }) => {
            return Ok(Comparison { findings, settings: Told::NotByThisBroker });
        }
        told => told?,
    };
    findings.extend(settings(&specs, &have).into_iter().map(|finding| weighed(finding, config)));
    Ok(Comparison { findings, settings: Told::Yes })
}

fn differences(specs: &[TopicSpec], have: &BTreeMap<String, TopicState>, absence: Absence) -> Vec<Finding> {
    let difference = |spec: &TopicSpec| match (have.get(&spec.name), spec.partitions) {
        (None, _) => Some(Finding::Missing { topic: spec.name.clone(), source: false, absence }),
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

/// A changelog that holds less than the slack is a blemish; one that holds less than the marks breaks the promise.
fn weighed(finding: Finding, config: &Config) -> Finding {
    let remembered = config.state.retention;
    match finding {
        Finding::Setting { topic, name, has, needs }
            if plan::is_changelog(config, &topic) && forgets(&name, &has, remembered) =>
        {
            let remembered = duration_text(remembered);
            Finding::Forgets { topic, name, has, needs, remembered }
        }
        other => other,
    }
}

/// Whether this setting, which does not suffice, lets go of marks before they are to be forgotten.
fn forgets(name: &str, has: &str, remembered: Duration) -> bool {
    match name {
        "retention.ms" => has.parse::<u64>().is_ok_and(|has| Duration::from_millis(has) < remembered),
        name => name == "retention.bytes",
    }
}

/// Longer retention, larger records and more replicas than needed are no fault.
fn suffices(name: &str, has: &str, needs: &str) -> bool {
    if has == needs {
        return true;
    }
    let (Ok(has), Ok(needs)) = (has.parse::<i64>(), needs.parse::<i64>()) else { return false };
    match name {
        "retention.ms" | "retention.bytes" => has == -1 || (needs != -1 && has >= needs),
        "segment.ms" => has <= needs,
        _ => has >= needs,
    }
}

/// Whether a service may start; what is not grave is returned for the log.
pub async fn before_start(config: &Config, cluster: &Cluster) -> Result<Vec<Finding>, crate::ServiceError> {
    let (grave, slight): (Vec<_>, Vec<_>) =
        compare(config, cluster).await?.findings.into_iter().partition(Finding::is_grave);
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
            ("retention.bytes", "-1", "-1", true),
            ("retention.bytes", "1000", "-1", false),
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

    fn config() -> Config {
        Config::parse("test", "[kafka]\nbootstrap = \"b:9092\"", std::iter::empty()).expect("it is valid")
    }

    /// What is found when the topic has this in place of what it needs; none: all is well.
    fn found(topic: &str, name: &str, value: &str) -> Option<Finding> {
        let config = config();
        let specs: Vec<_> = plan::topics(&config).into_iter().filter(|spec| spec.name == topic).collect();
        let mut has = specs[0].settings.clone();
        assert_eq!(settings(&specs, &[(topic.to_owned(), has.clone())].into()), []);
        has.insert(name.to_owned(), value.to_owned());
        let mut found = settings(&specs, &[(topic.to_owned(), has)].into());
        found.pop().map(|finding| weighed(finding, &config))
    }

    #[test]
    fn a_changelog_that_forgets_marks_before_their_time_is_refused_with_what_to_do() {
        let marks = "tidegate.default.marks";
        for (name, value, grave) in [
            ("retention.ms", "86399999", Some(true)),
            ("retention.ms", "86400000", Some(false)),
            ("retention.ms", "95040000", None),
            ("retention.ms", "-1", None),
            ("retention.bytes", "1073741824", Some(true)),
            ("cleanup.policy", "compact", Some(true)),
            ("cleanup.policy", "compact,delete", Some(true)),
            ("message.timestamp.type", "CreateTime", Some(true)),
            ("segment.ms", "604800000", Some(false)),
        ] {
            let found = found(marks, name, value);
            assert_eq!(found.map(|finding| finding.is_grave()), grave, "{name}={value}");
        }
        let said = found(marks, "retention.ms", "3600000").expect("it is found").to_string();
        assert_eq!(
            said,
            "topic `tidegate.default.marks` has retention.ms=3600000 and would forget marks that state.retention = 1d counts \
             on, so that duplicates run again: `kafka-configs.sh --alter --topic tidegate.default.marks --add-config \
             retention.ms=95040000`, or lower state.retention"
        );
    }

    #[test]
    fn a_missing_changelog_and_one_with_another_partition_count_are_refused() {
        let config = config();
        let specs = plan::topics(&config);
        let state = |spec: &TopicSpec| TopicState {
            partitions: spec.partitions.unwrap_or(1),
            replication: 1,
            led: true,
        };
        let mut have: BTreeMap<_, _> = specs.iter().map(|spec| (spec.name.clone(), state(spec))).collect();
        assert_eq!(differences(&specs, &have, Absence::Certain), []);
        have.remove("tidegate.bulk.marks");
        have.get_mut("tidegate.default.marks").expect("it is planned").partitions = 12;
        let found = differences(&specs, &have, Absence::Certain);
        assert!(found.iter().all(Finding::is_grave));
        let said: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2);
        assert!(
            said[0].starts_with("topic `tidegate.bulk.marks` is missing: `tidegate topics apply`"),
            "{said:?}"
        );
        assert!(said[1].starts_with("topic `tidegate.default.marks` has 12 partitions and"), "{said:?}");
    }

    #[test]
    fn a_journal_of_two_partitions_or_that_forgets_is_refused() {
        let config = config();
        let specs: Vec<_> =
            plan::topics(&config).into_iter().filter(|spec| spec.name == "tidegate.dlq-journal").collect();
        let has = TopicState { partitions: 2, replication: 1, led: true };
        let found_of_two = differences(&specs, &[(specs[0].name.clone(), has)].into(), Absence::Certain);
        assert!(found_of_two[0].is_grave());
        let said = found_of_two[0].to_string();
        assert!(
            said.starts_with("topic `tidegate.dlq-journal` has 2 partitions and must have one"),
            "{said}"
        );
        for (name, value) in [("retention.ms", "604800000"), ("retention.bytes", "1073741824")] {
            let found = found("tidegate.dlq-journal", name, value).expect("it is found");
            assert!(found.is_grave(), "{found}");
        }
    }

    #[test]
    fn a_job_topic_that_holds_less_than_planned_is_told_and_not_refused() {
        let found = found("tidegate.default.jobs", "retention.ms", "3600000").expect("it is found");
        assert!(!found.is_grave());
    }
}
