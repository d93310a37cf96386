//! What makes two events of a class the same job, and which jobs meet in one partition.

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::error::InvalidValue;
use super::names::{FieldPath, HeaderName, TimeZoneName};
use super::reader::Section;
use super::values::{self, write_duration};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Where the idempotency key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// From these fields of the event, in this order: `key`.
    Fields(Vec<FieldPath>),
    /// From this Kafka header of the event: `key_header`.
    Header(HeaderName),
    /// From topic, partition and offset: `key_by_position = true`. The same event published twice runs twice.
    Position,
}

impl Serialize for KeySource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Fields(fields) => map.serialize_entry("key", fields)?,
            Self::Header(name) => map.serialize_entry("key_header", name)?,
            Self::Position => map.serialize_entry("key_by_position", &true)?,
        }
        map.end()
    }
}

impl KeySource {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        const REMEDY: &str = "set exactly one of `key` (fields), `key_header` (a header's name) and \
                              `key_by_position = true` (the same event published twice runs twice)";
        let given = ["key", "key_header"].into_iter().filter(|key| section.has(key)).count();
        let fields = section.optional("key", values::some).map(Self::Fields);
        let header = section.optional("key_header", values::parsed).map(Self::Header);
        let by_position = section.or("key_by_position", false, values::boolean);
        match given + usize::from(by_position) {
            0 => {
                section.problem("key", "nothing says what makes two events the same job", REMEDY);
                None
            }
            1 => fields.or(header).or(by_position.then_some(Self::Position)),
            _ => {
                section.problem("key", "there are two kinds of key", REMEDY);
                None
            }
        }
    }

    /// The setting `partition_by`: by default the key's fields; nothing if the key is not made of fields.
    pub(super) fn read_partition_by(&self, section: &Section<'_>) -> Vec<FieldPath> {
        let given: Option<Vec<FieldPath>> = section.optional("partition_by", values::some);
        match (self, given) {
            (Self::Fields(key), None) => key.clone(),
            (Self::Fields(key), Some(fields)) => {
                for field in fields.iter().filter(|field| !key.contains(field)) {
                    section.problem(
                        "partition_by",
                        format!("`{field}` is not in `key`, and equal keys must meet in one partition"),
                        "add the field to `key`: it changes nothing if the rest already decides it",
                    );
                }
                fields
            }
            (_, None) => Vec::new(),
            (_, Some(_)) => {
                section.problem(
                    "partition_by",
                    "the key has no fields to choose from",
                    "remove it, or use `key`",
                );
                Vec::new()
            }
        }
    }
}

/// Makes the same key a new job in each window of time: user + action + day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyWindow {
    /// The field with the event's time, of an Avro timestamp type. Required.
    pub field: FieldPath,
    /// The window's length: whole days, or a whole fraction of one. Default 1d.
    #[serde(serialize_with = "write_duration")]
    pub every: Duration,
    /// The time zone in which days begin. Default UTC.
    pub tz: TimeZoneName,
}

impl KeyWindow {
    pub(super) fn read(section: &Section<'_>) -> Option<Option<Self>> {
        if !section.has("key_window") {
            // Asked for all the same, so that it is a known key.
            return section.section("key_window", |_| Some(None));
        }
        section.section("key_window", |section| {
            let field = section.required("field", "name the field with the event's time", values::parsed);
            let every = section.or("every", DAY, |raw| values::duration(raw).and_then(fits_days));
            let utc = || "UTC".parse().ok();
            let tz = section.optional("tz", values::parsed).or_else(utc);
            Some(Some(Self { field: field?, every, tz: tz? }))
        })
    }
}

/// A window that doesn't fit days would begin at another hour each day.
fn fits_days(every: Duration) -> Result<Duration, InvalidValue> {
    let (every_millis, day) = (every.as_millis(), DAY.as_millis());
    if every_millis % day == 0 || day % every_millis == 0 {
        return Ok(every);
    }
    Err(InvalidValue::new(
        format!("{} divides no day evenly", values::duration_text(every)),
        "choose whole days or a whole fraction of a day, like \"1d\", \"1h\" or \"15m\"",
    ))
}
