//! Classes and ignore rules, compiled: every field that any of them needs has a place in one list for its source topic.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{Class, KeySource, Scalar, When};
use tidegate_codec::FieldPaths;
use tidegate_domain::Topic;
use tidegate_domain::routing::{Condition, Literal, Pattern};
use tidegate_pipeline::Names;
use tidegate_service::{ServiceError, wiring};

/// How the events of each source topic are routed.
#[derive(Debug)]
pub(crate) struct Routes {
    by_topic: BTreeMap<String, SourceRoutes>,
    pub(crate) reingest: Topic,
}

/// How the events of one source topic are routed.
#[derive(Debug)]
pub(crate) struct SourceRoutes {
    pub(crate) wanted: FieldPaths,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) ignore: Vec<Pattern>,
    /// In the order of `patterns`.
    pub(crate) classes: Vec<JobPlan>,
}

/// How a matching event becomes a job of one class.
#[derive(Debug)]
pub(crate) struct JobPlan {
    pub(crate) class: String,
    pub(crate) tier: String,
    pub(crate) topic: Topic,
    pub(crate) partitions: u32,
    pub(crate) scope: String,
    pub(crate) key: KeyPlan,
    pub(crate) window: Option<WindowPlan>,
}

/// Where a key comes from; fields are places in the wanted list, with their names for messages.
#[derive(Debug)]
pub(crate) enum KeyPlan {
    Fields { key: Vec<(usize, String)>, lane: Vec<usize> },
    Header(String),
    Position,
}

/// A window of event time in the key.
#[derive(Debug)]
pub(crate) struct WindowPlan {
    pub(crate) field: usize,
    pub(crate) name: String,
    pub(crate) every: Duration,
    pub(crate) tz: TimeZone,
}

impl Routes {
    pub(crate) fn compile(config: &Config) -> Result<Self, ServiceError> {
        let names = wiring::names(config);
        let mut by_topic = BTreeMap::new();
        for topic in config.sources.keys() {
            by_topic.insert(topic.as_str().to_owned(), compile_source(config, &names, topic.as_str())?);
        }
        Ok(Self { by_topic, reingest: names.reingest() })
    }

    pub(crate) fn of(&self, topic: &str) -> Option<&SourceRoutes> {
        self.by_topic.get(topic)
    }
}

/// The wanted fields of a topic, each once.
#[derive(Default)]
struct Wanted(Vec<String>);

impl Wanted {
    fn place(&mut self, path: &str) -> usize {
        match self.0.iter().position(|known| known == path) {
            Some(place) => place,
            None => {
                self.0.push(path.to_owned());
                self.0.len() - 1
            }
        }
    }
}

fn compile_source(config: &Config, names: &Names, topic: &str) -> Result<SourceRoutes, ServiceError> {
    let mut wanted = Wanted::default();
    let (mut patterns, mut classes, mut ignore) = (Vec::new(), Vec::new(), Vec::new());
    for class in config.classes.values().filter(|c| c.sources.iter().any(|source| source.as_str() == topic)) {
        patterns.push(pattern(class.record.as_ref().map(ToString::to_string), &class.when, &mut wanted));
        classes.push(job_plan(config, names, class, &mut wanted)?);
    }
    for rule in &config.ignore {
        if rule.sources.is_empty() || rule.sources.iter().any(|source| source.as_str() == topic) {
            ignore.push(pattern(rule.record.as_ref().map(ToString::to_string), &rule.when, &mut wanted));
        }
    }
    let wanted = FieldPaths::new(wanted.0)
        .map_err(|error| ServiceError::Configuration(format!("a field path of source `{topic}`: {error}")))?;
    Ok(SourceRoutes { wanted, patterns, ignore, classes })
}

fn pattern(record: Option<String>, when: &When, wanted: &mut Wanted) -> Pattern {
    let when = when
        .iter()
        .map(|(path, one_of)| Condition {
            field: wanted.place(path.as_str()),
            one_of: one_of.iter().map(literal).collect(),
        })
        .collect();
    // The topic was matched when the list was made.
    Pattern { sources: Vec::new(), record, when }
}

fn literal(scalar: &Scalar) -> Literal {
    match scalar {
        Scalar::Text(text) => Literal::Str(text.clone()),
        Scalar::Integer(number) => Literal::Int(*number),
        Scalar::Boolean(value) => Literal::Bool(*value),
    }
}

fn job_plan(
    config: &Config,
    names: &Names,
    class: &Class,
    wanted: &mut Wanted,
) -> Result<JobPlan, ServiceError> {
    let tier = config.tier(&class.tier).ok_or_else(|| {
        ServiceError::Configuration(format!("class `{}` names the unknown tier `{}`", class.name, class.tier))
    })?;
    let key = match &class.key {
        KeySource::Fields(fields) => KeyPlan::Fields {
            key: fields.iter().map(|path| (wanted.place(path.as_str()), path.to_string())).collect(),
            lane: class.partition_by.iter().map(|path| wanted.place(path.as_str())).collect(),
        },
        KeySource::Header(name) => KeyPlan::Header(name.to_string()),
        KeySource::Position => KeyPlan::Position,
    };
    let window = match &class.key_window {
        None => None,
        Some(window) => Some(WindowPlan {
            field: wanted.place(window.field.as_str()),
            name: window.field.to_string(),
            every: window.every,
            tz: TimeZone::get(window.tz.as_str())
                .map_err(|error| ServiceError::Configuration(format!("class `{}`: {error}", class.name)))?,
        }),
    };
    Ok(JobPlan {
        class: class.name.to_string(),
        tier: class.tier.to_string(),
        topic: names.jobs(class.tier.as_str()),
        partitions: tier.partitions.get(),
        scope: class.key_scope.to_string(),
        key,
        window,
    })
}
