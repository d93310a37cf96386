//! The envelope of a job: the one header `job` that tidegate adds to a record, and what it says.
//!
//! The header is logfmt text, so that every Kafka tool shows it readably:
//!
//! ```text
//! v=1 class=charge tier=critical topic=shop.payments partition=3 offset=1234 key=<32 hex> lane=<16 hex> round=0 hop=0 attempt=1 due=1764432000000 first-seen=1764432000000 origin=1764431999000
//! ```
//!
//! Fields may stand in any order, none twice and none quoted; unknown ones are passed over, so that a later version 1 can
//! add some.

mod canonical;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key::{IdempotencyKey, Lane};
use crate::position::{Offset, Partition, UnixMillis};

/// The header's name.
pub const JOB_HEADER: &str = "job";
/// The name that a `job` header of the source itself gets, so that it survives beside ours.
pub const SOURCE_JOB_HEADER: &str = "src-job";

/// How often operators sent the job round again; 0 is the first life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Round(pub u32);

/// How often the job was published to a delay topic in its round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop(pub u32);

/// Which run of the handler this is in its round, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt(pub u32);

/// Four bytes that tell one job-id from another within a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobHash(pub u32);

/// Four bytes that tell one payload from another within a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PayloadHash(pub u32);

/// How many bytes of a value name its schema (Confluent wire format: a magic byte and a four-byte id).
const SCHEMA_PREFIX: usize = 5;

impl PayloadHash {
    /// The hash of a value without its schema prefix, so that registering the same schema again changes nothing.
    pub fn of(value: Option<&[u8]>) -> Self {
        let bytes = value.unwrap_or_default();
        Self(cut(xxh3_64(bytes.get(SCHEMA_PREFIX..).unwrap_or(bytes))))
    }
}

/// What the `job` header says. Borrows from the header's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHeader<'a> {
    /// The class that the job belongs to.
    pub class: &'a str,
    /// The tier whose job topic it runs from.
    pub tier: &'a str,
    /// The source topic of the event.
    pub topic: &'a str,
    /// The event's partition there.
    pub partition: Partition,
    /// The event's offset there.
    pub offset: Offset,
    /// Equal for events that are the same job.
    pub key: IdempotencyKey,
    /// Jobs of one lane run in order.
    pub lane: Lane,
    /// Operators' replays so far.
    pub round: Round,
    /// Publications to a delay topic in this round.
    pub hop: Hop,
    /// The next run of the handler, from 1.
    pub attempt: Attempt,
    /// Not to be run before.
    pub due: UnixMillis,
    /// When ingest first forwarded the event.
    pub first_seen: UnixMillis,
    /// The source record's own timestamp.
    pub origin: Option<UnixMillis>,
    /// An operator ordered this round although the key is done.
    pub forced: bool,
}

/// Why a `job` header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobHeaderError {
    /// Not UTF-8.
    #[error("the job header is not text")]
    NotText,
    /// Written by a version that this one can't read.
    #[error("the job header has version `{0}`, this version of tidegate reads version 1")]
    Version(String),
    /// A needed field is missing.
    #[error("the job header lacks `{0}`")]
    Missing(&'static str),
    /// A field's value is not of its form, or the field stands twice.
    #[error("the job header's `{field}` is `{value}`, which is not of its form")]
    Invalid {
        /// The field.
        field: String,
        /// Its value.
        value: String,
    },
}

impl<'a> JobHeader<'a> {
    /// Reads the header's text.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, JobHeaderError> {
        let text = std::str::from_utf8(bytes).map_err(|_| JobHeaderError::NotText)?;
        match canonical::parse(text) {
            Some(header) => Ok(header),
            None => Self::parse_in_any_order(text),
        }
    }

    fn parse_in_any_order(text: &'a str) -> Result<Self, JobHeaderError> {
        // The version first: another one may have other forms.
        match text.split(' ').find_map(|pair| pair.strip_prefix("v=")) {
            Some("1") => {}
            Some(other) => return Err(JobHeaderError::Version(other.to_owned())),
            None => return Err(JobHeaderError::Missing("v")),
        }
        let mut fields = Fields::default();
        for pair in text.split(' ').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| invalid(pair, ""))?;
            fields.take(name, value)?;
        }
        fields.finish()
    }

    /// Appends the header's text.
    pub fn write(&self, out: &mut String) {
        // By hand: `format!` costs as much as all else that ingest does with an event.
        let mut digits = itoa::Buffer::new();
        let mut number = |out: &mut String, name: &str, value: i64| {
            out.push_str(name);
            out.push_str(digits.format(value));
        };
        for (name, word) in [("v=1 class=", self.class), (" tier=", self.tier), (" topic=", self.topic)] {
            out.push_str(name);
            out.push_str(word);
        }
        number(out, " partition=", self.partition.0.into());
        number(out, " offset=", self.offset.0);
        for (name, bytes) in [(" key=", &self.key.0[..]), (" lane=", &self.lane.0.to_be_bytes())] {
            out.push_str(name);
            push_hex(out, bytes);
        }
        number(out, " round=", self.round.0.into());
        number(out, " hop=", self.hop.0.into());
        number(out, " attempt=", self.attempt.0.into());
        number(out, " due=", self.due.0);
        number(out, " first-seen=", self.first_seen.0);
        if let Some(origin) = self.origin {
            number(out, " origin=", origin.0);
        }
        if self.forced {
            out.push_str(" forced=true");
        }
    }

    /// The header's text.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(256);
        self.write(&mut text);
        text
    }

    /// The job-id: `topic/partition/offset/class`, the same for all rounds and hops of one job.
    pub fn job_id(&self) -> String {
        format!("{}/{}/{}/{}", self.topic, self.partition, self.offset, self.class)
    }

    /// The hash of the job-id.
    pub fn job_hash(&self) -> JobHash {
        let mut position = [0; 12];
        position[..4].copy_from_slice(&self.partition.0.to_be_bytes());
        position[4..].copy_from_slice(&self.offset.0.to_be_bytes());
        // Each part is hashed with the one before as its seed, so nothing is put together in memory.
        let hash = xxh3_64(self.topic.as_bytes());
        let hash = xxh3_64_with_seed(self.class.as_bytes(), hash);
        JobHash(cut(xxh3_64_with_seed(&position, hash)))
    }
}

#[derive(Default)]
struct Fields<'a> {
    version: Option<()>,
    class: Option<&'a str>,
    tier: Option<&'a str>,
    topic: Option<&'a str>,
    partition: Option<i32>,
    offset: Option<i64>,
    key: Option<IdempotencyKey>,
    lane: Option<u64>,
    round: Option<u32>,
    hop: Option<u32>,
    attempt: Option<u32>,
    due: Option<i64>,
    first_seen: Option<i64>,
    origin: Option<i64>,
    forced: Option<bool>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, name: &'a str, value: &'a str) -> Result<(), JobHeaderError> {
        match name {
            "v" => once(&mut self.version, name, value, Some(())),
            "class" => once(&mut self.class, name, value, word(value)),
            "tier" => once(&mut self.tier, name, value, word(value)),
            "topic" => once(&mut self.topic, name, value, word(value)),
            "partition" => once(&mut self.partition, name, value, value.parse().ok()),
            "offset" => once(&mut self.offset, name, value, value.parse().ok()),
            "key" => once(&mut self.key, name, value, IdempotencyKey::parse(value)),
            "lane" => once(&mut self.lane, name, value, u64::from_str_radix(value, 16).ok()),
            "round" => once(&mut self.round, name, value, value.parse().ok()),
            "hop" => once(&mut self.hop, name, value, value.parse().ok()),
            "attempt" => once(&mut self.attempt, name, value, value.parse().ok().filter(|&n| n > 0)),
            "due" => once(&mut self.due, name, value, value.parse().ok()),
            "first-seen" => once(&mut self.first_seen, name, value, value.parse().ok()),
            "origin" => once(&mut self.origin, name, value, value.parse().ok()),
            "forced" => once(&mut self.forced, name, value, value.parse().ok()),
            _ => Ok(()),
        }
    }

    fn finish(self) -> Result<JobHeader<'a>, JobHeaderError> {
        Ok(JobHeader {
            class: needed("class", self.class)?,
            tier: needed("tier", self.tier)?,
            topic: needed("topic", self.topic)?,
            partition: Partition(needed("partition", self.partition)?),
            offset: Offset(needed("offset", self.offset)?),
            key: needed("key", self.key)?,
            lane: Lane(needed("lane", self.lane)?),
            round: Round(needed("round", self.round)?),
            hop: Hop(needed("hop", self.hop)?),
            attempt: Attempt(needed("attempt", self.attempt)?),
            due: UnixMillis(needed("due", self.due)?),
            first_seen: UnixMillis(needed("first-seen", self.first_seen)?),
            origin: self.origin.map(UnixMillis),
            forced: self.forced.unwrap_or(false),
        })
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)].into());
        out.push(DIGITS[usize::from(byte & 15)].into());
    }
}

fn needed<T>(name: &'static str, value: Option<T>) -> Result<T, JobHeaderError> {
    value.ok_or(JobHeaderError::Missing(name))
}

/// Sets a field that was not set before; `read` is what its value says, if that is of its form.
fn once<T>(field: &mut Option<T>, name: &str, value: &str, read: Option<T>) -> Result<(), JobHeaderError> {
    match read {
        Some(read) if field.is_none() => {
            *field = Some(read);
            Ok(())
        }
        _ => Err(invalid(name, value)),
    }
}

/// A name as it is written: not empty, and not quoted, because nothing here unquotes.
fn word(value: &str) -> Option<&str> {
    (!value.is_empty() && !value.contains(['"', '='])).then_some(value)
}

fn invalid(field: &str, value: &str) -> JobHeaderError {
    JobHeaderError::Invalid { field: field.to_owned(), value: value.to_owned() }
}

fn cut(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests;
