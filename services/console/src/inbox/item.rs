//! One item, and what its latest letter holds.

use serde::Serialize;
use serde_json::Value;

use super::Row;

/// An item with its letters.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Item {
    /// As in a list.
    #[serde(flatten)]
    pub row: Row,
    /// The handler of its class, as the configuration has it.
    pub handler: Option<String>,
    /// The place of its event.
    pub source: Source,
    /// Its letters, the latest first.
    pub occurrences: Vec<Letter>,
    /// What operators ordered of it, and what came of it, in the order of the journal.
    pub journal: Vec<JournalEntry>,
    /// While it is replaying: when the copy in a delay topic is due, in milliseconds since the epoch.
    pub waiting_until: Option<i64>,
    /// When it was dead-lettered again after it was done or discarded, as which it stays.
    pub late: Option<i64>,
}

/// Where an event stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

/// One dead letter of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Letter {
    /// Its place in the dead-letter topic: `partition/offset`.
    pub record: String,
    /// The last failure.
    #[serde(flatten)]
    pub failure: Attempted,
    /// The first failure of its round, where that was another.
    pub first_error: Option<String>,
    /// The round that it died in.
    pub round: u32,
    /// The attempt that failed.
    pub attempt: Option<u32>,
    /// It ran although its key was done.
    pub forced: bool,
    /// When it was dead-lettered, in milliseconds since the epoch.
    pub dead_at: i64,
    /// When ingest first forwarded its event.
    pub first_seen: Option<i64>,
    /// The size of its value; none: it is null.
    pub value_bytes: Option<u64>,
    /// Why it is not whole.
    pub stub: Option<String>,
    /// The id of its trace.
    pub trace: Option<String>,
}

/// What failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Attempted {
    /// The kind of the failure.
    pub kind: Option<String>,
    /// Its code.
    pub code: String,
    /// Its group.
    pub fingerprint: String,
    /// What it says.
    pub message: String,
}

/// An entry of the journal about an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JournalEntry {
    /// Its offset in the journal.
    pub at: i64,
    /// When it was written, in milliseconds since the epoch, by the broker's clock.
    pub time: i64,
    /// `replay`, `discard`, `reopen`, or what became of a replay.
    pub what: String,
    /// Why it does not count; none: it does.
    pub void: Option<String>,
    /// The round that it is about.
    pub round: Option<u32>,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// Who: an operator, or the group of a service.
    pub by: Option<String>,
    /// More for a person.
    pub detail: Option<String>,
}

/// What the latest letter of an item holds.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Its value, read as an event.
    pub event: Event,
    /// Its key; none: it is null.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
}

/// Bytes of a record.
pub type Bytes = Vec<u8>;

/// A header of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: Bytes,
    /// Its value; none: it is null.
    pub value: Option<Bytes>,
}

/// A value, read as an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It is one.
    Decoded {
        /// The full name of its record, or of another type.
        schema: String,
        /// What it says.
        json: Value,
    },
    /// It is none, or can't be read now.
    Undecodable {
        /// What the decoder says.
        reason: String,
    },
    /// The record is gone, or never had a value.
    Absent {
        /// Why.
        reason: String,
    },
}

impl Default for Event {
    fn default() -> Self {
        Self::Absent { reason: "the record has no value".to_owned() }
    }
}
