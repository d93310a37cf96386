//! Which events a class or an ignore rule takes, and `[[ignore]]` itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use toml::Value;

use super::error::InvalidValue;
use super::names::{FieldPath, RecordName, RuleName, TopicName};
use super::reader::{Raw, Section};
use super::suggestion::suggest;
use super::values::{self, wrong_kind};

/// A value that a field is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Equal to a string or an enum symbol.
    Text(String),
    /// Equal to an int or a long.
    Integer(i64),
    /// Equal to a boolean.
    Boolean(bool),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Boolean(value) => write!(f, "{value}"),
        }
    }
}

/// What the fields of an event must be: all conditions hold, each if the field equals one of its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct When(BTreeMap<FieldPath, Vec<Scalar>>);

impl When {
    /// The conditions: a field, and the values of which it must have one.
    pub fn iter(&self) -> impl Iterator<Item = (&FieldPath, &[Scalar])> {
        self.0.iter().map(|(field, values)| (field, values.as_slice()))
    }

    /// Whether any event matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn read(section: &Section<'_>) -> Self {
        let conditions = section.open("when", None, |field, raw| Ok((field.parse()?, scalars(raw)?)));
        Self(conditions.into_values().collect())
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (field, values) in self.iter() {
            match values {
                [value] => map.serialize_entry(field, value)?,
                values => map.serialize_entry(field, values)?,
            }
        }
        map.end()
    }
}

fn scalars(raw: &Raw) -> Result<Vec<Scalar>, InvalidValue> {
    match &raw.value {
        Value::Array(values) if values.is_empty() => {
            Err(InvalidValue::new("no value can match an empty list", "name the values or remove the field"))
        }
        Value::Array(values) => values.iter().map(scalar).collect(),
        value => Ok(vec![scalar(value)?]),
    }
}

fn scalar(value: &Value) -> Result<Scalar, InvalidValue> {
    match value {
        Value::String(text) => Ok(Scalar::Text(text.clone())),
        Value::Integer(number) => Ok(Scalar::Integer(*number)),
        Value::Boolean(value) => Ok(Scalar::Boolean(*value)),
        other => Err(wrong_kind(
            other,
            "text, a whole number or true or false",
            "compare with one of these or with a list of them",
        )),
    }
}

/// Events that are dropped on purpose, and counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ignore {
    /// The name under which the dropped events are counted. Required.
    pub name: RuleName,
    /// The source topics it applies to: one or a list. Required.
    #[serde(rename = "source")]
    pub sources: Vec<TopicName>,
    /// Only events of this Avro record (full name). Default: of any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordName>,
    /// Only events whose fields have these values. Default: whatever they have.
    #[serde(skip_serializing_if = "When::is_empty")]
    pub when: When,
}

impl Ignore {
    pub(super) fn read(section: &Section<'_>, known_sources: &[String]) -> Option<Self> {
        let name = section.required("name", "name the rule: its drops are counted under it", values::parsed);
        let sources = sources(section, known_sources);
        let record = section.optional("record", values::parsed);
        let when = When::read(section);
        Some(Self { name: name?, sources: sources?, record, when })
    }
}

/// The setting `source`: topics that `[sources]` declares.
pub(super) fn sources(section: &Section<'_>, known: &[String]) -> Option<Vec<TopicName>> {
    let remedy = "name the source topic, and declare it under [sources]";
    let sources: Vec<TopicName> = section.required("source", remedy, values::some)?;
    for source in sources.iter().filter(|source| !known.iter().any(|name| name == source.as_str())) {
        let near = suggest(source.as_str(), known.iter().map(String::as_str));
        let remedy = if near.starts_with("did") {
            near
        } else {
            format!("declare it: [sources.\"{source}\"] with start = \"latest\" or \"earliest\"")
        };
        section.problem("source", format!("no source is named `{source}`"), &remedy);
    }
    Some(sources)
}
