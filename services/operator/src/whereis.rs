//! Where a job is: its mark in the changelogs, its items in the inbox, and what the journal says.

use serde::Serialize;
use tidegate_bootstrap::config::{Class, KeySource};
use tidegate_domain::mark::Phase;
use tidegate_domain::{FieldValue, IdempotencyKey, Lane, Partition};
use tidegate_kafka::ReadError;
use tidegate_pipeline::TopicPartition;

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::marks::{Found, Marks, Memory};
use crate::query::{Filter, Item, ListQuery};

/// Where a job is.
#[derive(Clone, Debug, Serialize)]
pub struct Whereabouts {
    /// Its key.
    pub key: String,
    /// What is remembered of it, in each tier that remembers anything.
    pub marks: Vec<FoundMark>,
    /// Changelogs that were not read whole: older marks may stand before the records that were read.
    pub cut: Vec<String>,
    /// Its items in the inbox.
    pub items: Vec<Item>,
}

/// A mark.
#[derive(Clone, Debug, Serialize)]
pub struct FoundMark {
    /// The tier.
    pub tier: String,
    /// The job partition, which is also the changelog's.
    pub partition: i32,
    /// The offset of the last entry of the changelog that names the key.
    pub offset: i64,
    /// When that was appended, in milliseconds since the epoch.
    pub at: Option<i64>,
    /// The round that it was done in.
    pub done_round: Option<u32>,
    /// Where its last step is: `scheduled`, `tried`, `started` or `dead`.
    pub phase: Option<&'static str>,
    /// The round of that step.
    pub round: Option<u32>,
    /// The publication to a delay topic in that round.
    pub hop: Option<u32>,
    /// How many attempts failed in place, or how often it was started.
    pub n: Option<u32>,
    /// It is older than marks are remembered: workers know nothing of it any more.
    pub forgotten: bool,
}

/// Which partitions to look through.
struct Range {
    tier: String,
    partitions: Vec<i32>,
}

impl Inbox {
    /// The keys that fields of an event give in a class: of a text that is a number or a truth value, both as that and as text,
    /// because the class's schema decides. With each key comes its lane.
    pub fn keys_of(
        &self,
        class: &str,
        fields: &[(String, String)],
    ) -> Result<Vec<(IdempotencyKey, Lane)>, OperatorError> {
        let classes = &self.shared.config.classes;
        let found = classes.values().find(|known| known.name.as_str() == class);
        let refused = |text: String| OperatorError::Request(text);
        let class = found.ok_or_else(|| refused(format!("the configuration has no class `{class}`")))?;
        let KeySource::Fields(paths) = &class.key else {
            return Err(refused(format!(
                "the key of class `{}` is of no fields: name the key itself",
                class.name
            )));
        };
        if class.key_window.is_some() {
            return Err(refused(format!(
                "the key of class `{}` has a window: name the key itself",
                class.name
            )));
        }
        let mut texts = Vec::new();
        for path in paths {
            let value =
                fields.iter().find(|(name, _)| name == path.as_str()).map(|(_, value)| value.as_str());
            let value = value.ok_or_else(|| refused(format!("the key needs `--field {path}=…`")))?;
            texts.push((path.as_str(), value));
        }
        keys(class, &texts)
    }

    /// Where the job with this key is. `lane`: where it is known, one partition of each changelog is looked through, else all. `most`:
    /// how many records at the end of each.
    pub fn whereabouts(
        &self,
        key: IdempotencyKey,
        lane: Option<Lane>,
        most: u64,
    ) -> Result<Whereabouts, OperatorError> {
        let mut found =
            Whereabouts { key: key.to_string(), marks: Vec::new(), cut: Vec::new(), items: Vec::new() };
        for range in self.ranges(lane)? {
            for partition in &range.partitions {
                self.look_through(key, &range.tier, *partition, most, &mut found)?;
            }
        }
        let filter = Filter { key: Some(key.to_string()), ..Filter::default() };
        for row in self.list(&ListQuery { filter, ..ListQuery::default() })?.items {
            found.items.extend(self.item(row.item)?);
        }
        Ok(found)
    }

    fn ranges(&self, lane: Option<Lane>) -> Result<Vec<Range>, OperatorError> {
        let topics = self.cluster()?.topics()?;
        let mut ranges = Vec::new();
        for tier in self.shared.config.tiers.keys() {
            let changelog = self.shared.names.marks(tier.as_str());
            let Some(count) = topics.get(changelog.as_str()).map(|topic| topic.partitions) else { continue };
            let partitions = match lane {
                Some(lane) => vec![lane.partition(count).0],
                None => (0..i32::try_from(count).unwrap_or(i32::MAX)).collect(),
            };
            ranges.push(Range { tier: tier.to_string(), partitions });
        }
        Ok(ranges)
    }

    fn look_through(
        &self,
        key: IdempotencyKey,
        tier: &str,
        partition: i32,
        most: u64,
        found: &mut Whereabouts,
    ) -> Result<(), OperatorError> {
        let log = TopicPartition { topic: self.shared.names.marks(tier), partition: Partition(partition) };
        let mut marks = Marks::of([key]);
        let memory = Memory::of(self);
        // All of them, also when the key is known to be done: what stands last is told.
        let extent = match marks.read(&self.shared.logs, &log, Some(most), &memory, &mut |_| true) {
            Err(ReadError::Missing(_)) => return Ok(()),
            extent => extent?,
        };
        if extent.is_cut {
            found.cut.push(log.to_string());
        }
        found.marks.extend(marks.get(&key).map(|found| FoundMark::of(tier, partition, found)));
        Ok(())
    }
}

impl FoundMark {
    fn of(tier: &str, partition: i32, found: &Found) -> Self {
        let Found { mark, offset, at, is_forgotten } = *found;
        Self {
            tier: tier.to_owned(),
            partition,
            offset: offset.0,
            at: at.map(|at| at.0),
            done_round: mark.done.map(|done| done.round.0),
            phase: mark.step.map(|step| phase(step.phase)),
            round: mark.step.map(|step| step.round.0),
            hop: mark.step.map(|step| step.hop.0),
            n: mark.step.map(|step| step.n),
            forgotten: is_forgotten,
        }
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Scheduled => "scheduled",
        Phase::Tried => "tried",
        Phase::Started => "started",
        Phase::Dead => "dead",
    }
}

fn keys(class: &Class, texts: &[(&str, &str)]) -> Result<Vec<(IdempotencyKey, Lane)>, OperatorError> {
    let mut found = Vec::new();
    // Each field's value as text, or as what it looks like.
    for choice in 0..1_u32 << texts.len().min(8) {
        let values: Option<Vec<(&str, FieldValue<'_>)>> = texts
            .iter()
            .enumerate()
            .map(|(place, (path, text))| {
                let value = if choice >> place & 1 == 0 { Some(FieldValue::Str(text)) } else { typed(text) };
                value.map(|value| (*path, value))
            })
            .collect();
        let Some(values) = values else { continue };
        let of_key: Vec<FieldValue<'_>> = values.iter().map(|(_, value)| *value).collect();
        let of_lane: Vec<FieldValue<'_>> = match class.partition_by.is_empty() {
            true => of_key.clone(),
            false => {
                let is_in = |path: &str| class.partition_by.iter().any(|by| by.as_str() == path);
                values.iter().filter(|(path, _)| is_in(path)).map(|(_, value)| *value).collect()
            }
        };
        let scope = class.key_scope.as_str();
        let refused = |error| OperatorError::Request(format!("these fields are no key: {error}"));
        let key = IdempotencyKey::derive(scope, &of_key, None).map_err(refused)?;
        found.push((key, Lane::derive(scope, &of_lane).map_err(refused)?));
    }
    Ok(found)
}

fn typed(text: &str) -> Option<FieldValue<'_>> {
    match text {
        "true" => Some(FieldValue::Bool(true)),
        "false" => Some(FieldValue::Bool(false)),
        number => number.parse().ok().map(FieldValue::Int),
    }
}
