//! `[classes.NAME]`: the jobs of one kind.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

use super::class_key::{KeySource, KeyWindow};
use super::flood::Flood;
use super::handler::Handler;
use super::names::{ClassName, FieldPath, KeyScope, RecordName, TierName, TopicName};
use super::reader::Section;
use super::retry::{Retry, Rung, rungs};
use super::selection::{When, sources};
use super::suggestion::suggest;
use super::values::{self, write_duration, write_some_duration};

/// Jobs of one kind: which events become such a job, what makes two of them the same, and what runs them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Class {
    /// The class's name, from the table's.
    #[serde(skip)]
    pub name: ClassName,
    /// The tier whose topics and workers carry these jobs. Default `default`.
    pub tier: TierName,
    /// The source topics whose events become these jobs: one or a list. Required.
    #[serde(rename = "source")]
    pub sources: Vec<TopicName>,
    /// Only events of this Avro record (full name). Default: of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordName>,
    /// Only events whose fields have these values: `field = value` or `field = [values]`. Default: whatever they have.
    #[serde(skip_serializing_if = "When::is_empty")]
    pub when: When,
    /// What makes two events the same job: `key`, `key_header` or `key_by_position`. Required.
    #[serde(flatten)]
    pub key: KeySource,
    /// What the key is unique in. Classes with one scope share their marks. Default: the class's name.
    pub key_scope: KeyScope,
    /// Makes equal keys new jobs in each window of an event's time. Default: equal keys are one job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_window: Option<KeyWindow>,
    /// The fields of the key that choose partition and lane. Default: all; empty if the key is not made of fields,
    /// and then the key itself chooses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partition_by: Vec<FieldPath>,
    /// Whether a retry may be overtaken. Default `none`.
    pub ordering: Ordering,
    /// How long one attempt may take; then it is cancelled. Default 30s.
    #[serde(serialize_with = "write_duration")]
    pub time_limit: Duration,
    /// Attempts before the job is dead-lettered, the first included. Default: rungs of the ladder + 1. With more, the
    /// last rung repeats.
    pub max_attempts: NonZeroU32,
    /// Jobs whose event is older than this are dead-lettered instead of run. Default: no age is too old.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_some_duration")]
    pub max_age: Option<Duration>,
    /// What happens to an event with a key that is done and another payload. Default `skip`.
    pub on_conflict: OnConflict,
    /// The waits between attempts: some of `retry.ladder`. Default: all of them.
    pub ladder: Vec<Rung>,
    /// When the class is parked because nearly all of its jobs fail.
    pub flood: Flood,
    /// What runs the jobs. Required.
    pub handler: Handler,
}

/// Whether jobs with one lane keep their order when one of them fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    /// A failed job waits in a delay topic, and those behind it overtake it.
    None,
    /// A failed job is retried in its place, and those behind it in its lane wait.
    Key,
}

/// What happens to an event whose key is done, but with another payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// It is skipped, and counted.
    Skip,
    /// It goes to the dead-letter topic.
    DeadLetter,
}

/// What a class refers to.
#[derive(Debug)]
pub(super) struct Declared<'a> {
    pub(super) sources: &'a [String],
    pub(super) tiers: &'a [String],
    pub(super) retry: &'a Retry,
}

impl Class {
    pub(super) fn read(name: &ClassName, section: &Section<'_>, declared: &Declared<'_>) -> Option<Self> {
        let tier = tier(section, declared.tiers);
        let sources = sources(section, declared.sources);
        let record = section.optional("record", values::parsed);
        let when = When::read(section);
        let key = KeySource::read(section);
        // Read in any case, so that it is a known key when `key` is wrong.
        let partition_by = key.as_ref().unwrap_or(&KeySource::Fields(Vec::new())).read_partition_by(section);
        let key_scope = section.optional("key_scope", values::parsed).or_else(|| name.as_str().parse().ok());
        let key_window = KeyWindow::read(section);
        let orderings = [("none", Ordering::None), ("key", Ordering::Key)];
        let ordering = section.or("ordering", Ordering::None, values::one_of(&orderings));
        if ordering == Ordering::Key && key == Some(KeySource::Position) {
            let wrong = "each event has a key of its own, so there is no order to keep";
            section.problem("ordering", wrong, "use `key` or `key_header`, or ordering = \"none\"");
        }
        let time_limit = section.or("time_limit", Duration::from_secs(30), values::duration);
        let ladder = ladder(section, declared.retry);
        let max_attempts = max_attempts(section, &ladder);
        let max_age = section.optional("max_age", values::duration);
        let conflicts = [("skip", OnConflict::Skip), ("dead_letter", OnConflict::DeadLetter)];
        let on_conflict = section.or("on_conflict", OnConflict::Skip, values::one_of(&conflicts));
        let flood = section.section("flood", Flood::read);
        let handler = Handler::read(section, time_limit);
        Some(Self {
            name: name.clone(),
            tier: tier?,
            sources: sources?,
            record,
            when,
            key: key?,
            key_scope: key_scope?,
            key_window: key_window?,
            partition_by,
            ordering,
            time_limit,
            max_attempts,
            max_age,
            on_conflict,
            ladder,
            flood,
            handler: handler?,
        })
    }
}

fn tier(section: &Section<'_>, known: &[String]) -> Option<TierName> {
    let given = section.optional("tier", values::parsed::<TierName>);
    let tier = given.or_else(|| "default".parse().ok())?;
    if !known.iter().any(|name| name == tier.as_str()) {
        let remedy = suggest(tier.as_str(), known.iter().map(String::as_str));
        section.problem("tier", format!("no tier is named `{tier}`"), &remedy);
        return None;
    }
    Some(tier)
}

fn ladder(section: &Section<'_>, retry: &Retry) -> Vec<Rung> {
    let ladder = section.or("ladder", retry.ladder.clone(), rungs);
    for rung in ladder.iter().filter(|rung| !retry.ladder.contains(rung)) {
        let known = retry.ladder.iter().map(Rung::to_string).collect::<Vec<_>>().join(", ");
        let wrong = format!("{rung} is not in retry.ladder, and each rung is a topic");
        section.problem("ladder", wrong, &format!("choose from {known}, or add it to retry.ladder"));
    }
    ladder
}

fn max_attempts(section: &Section<'_>, ladder: &[Rung]) -> NonZeroU32 {
    let rungs = u32::try_from(ladder.len()).unwrap_or(u32::MAX);
    let default = NonZeroU32::MIN.saturating_add(rungs);
    let max_attempts = section.or("max_attempts", default, values::count(1000));
    if ladder.is_empty() && max_attempts > NonZeroU32::MIN {
        section.problem(
            "max_attempts",
            "there is no rung to wait on before a second attempt",
            "add one to the ladder",
        );
    }
    max_attempts
}
