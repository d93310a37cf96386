//! The fields of a topic's events, as the registry tells them, and whether a key can be made of them.

use crate::config::{FieldPath, HttpUrl, InvalidValue, TopicName, nearest};

/// Tells the fields of a topic's events: a schema registry, or a test.
pub trait Schemas {
    /// The fields of the latest schema of the topic's values.
    fn fields(&self, registry: &HttpUrl, topic: &TopicName) -> Result<Vec<Field>, SchemaTrouble>;
}

/// A field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its path: `customer.id`.
    pub path: String,
    /// Its type, for people: `string`, `timestamp-millis`.
    pub type_name: String,
    /// What a key can make of it.
    pub kind: FieldKind,
}

/// What a key can make of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A single value, which every event has.
    Value,
    /// A single value, or null: an event with null has no key.
    MaybeNull,
    /// Many values, or a record: no key can be made of it as a whole.
    Container,
}

/// Why a topic's fields are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaTrouble {
    /// The registry does not answer.
    #[error("{reason}; check --registry and that it runs")]
    Unreachable {
        /// What happened, with the registry's address.
        reason: String,
    },
    /// The registry's address or the log-in at it is wrong for certain.
    #[error("{reason}")]
    WrongRegistry {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The registry has no schema for the topic's values.
    #[error(
        "the registry has no schema for the subject {subject}{}; correct --topic, let a publisher register its schema",
        near(subject, known)
    )]
    UnknownSubject {
        /// `TOPIC-value`.
        subject: String,
        /// The subjects that it has.
        known: Vec<String>,
    },
    /// The schema can't be used.
    #[error("{reason}; correct the schema")]
    Unusable {
        /// Why.
        reason: String,
    },
}

fn near(subject: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    nearest(subject, &known).map_or_else(String::new, |near| format!(" (it has {near})"))
}

/// As many names as fit into a sentence.
const LISTED: usize = 12;

/// The fields in one line: `payment_id, order_id, ... (and 3 more)`.
pub(super) fn list<'a>(fields: impl Iterator<Item = &'a Field>) -> String {
    let names: Vec<&str> = fields.map(|field| field.path.as_str()).collect();
    let listed = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => listed,
        more => format!("{listed} (and {more} more)"),
    }
}

/// The field that most likely identifies an event: the first that every event has and whose name ends like an id's.
pub(super) fn likely_key(fields: &[Field]) -> Option<&str> {
    let is_id = |field: &&Field| {
        let name = field.path.to_lowercase();
        field.kind == FieldKind::Value
            && (name == "id" || name.ends_with("_id") || field.path.ends_with("Id"))
    };
    fields.iter().find(is_id).map(|field| field.path.as_str())
}

/// Refuses a path that the schema lacks or that is no single value. A schema without named fields refuses nothing.
pub(super) fn check(path: &FieldPath, fields: &[Field]) -> Result<(), InvalidValue> {
    let found = fields.iter().find(|field| field.path == path.as_str());
    match found {
        Some(Field { kind: FieldKind::Container, type_name, .. }) => {
            let within = fields.iter().filter(|field| {
                field.kind != FieldKind::Container && field.path.starts_with(&format!("{path}."))
            });
            let within = list(within);
            let remedy = match within.as_str() {
                "" => format!("name one of {}", list(values(fields))),
                within => format!("name a field within it: {within}"),
            };
            Err(InvalidValue::new(
                format!("`{path}` is of type {type_name}, and a key is made of single values"),
                remedy,
            ))
        }
        Some(_) => Ok(()),
        None => {
            let known: Vec<&str> = values(fields).map(|field| field.path.as_str()).collect();
            let remedy = nearest(path.as_str(), &known).map_or_else(
                || format!("it has {}", list(values(fields))),
                |near| format!("did you mean `{near}`?"),
            );
            Err(InvalidValue::new(format!("the schema has no field `{path}`"), remedy))
        }
    }
}

/// Fields that a key can be made of.
pub(super) fn values(fields: &[Field]) -> impl Iterator<Item = &Field> {
    fields.iter().filter(|field| field.kind != FieldKind::Container)
}
