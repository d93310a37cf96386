//! A dead letter as its record tells it: one pass over its headers, nothing copied.
//!
//! A record of another tool, or one whose headers were lost, is a letter too: what it does not say is `None`.

use tidegate_domain::failure::{Fingerprint, fingerprint};
use tidegate_domain::inbox::ItemId;
use tidegate_domain::{FailureKind, IdempotencyKey, JobHeader, Offset, Partition, Topic, UnixMillis};
use tidegate_pipeline::Record;
use tidegate_pipeline::dead_letter::{
    ERROR_CODE, ERROR_FINGERPRINT, ERROR_KIND, ERROR_MESSAGE, FIRST_ERROR, ROUND, STUB,
};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::reference::ItemRef;

/// What a record of the dead-letter topic says.
#[derive(Clone, Debug)]
pub struct Letter<'a> {
    /// Its partition in the dead-letter topic.
    pub partition: Partition,
    /// The record.
    pub record: &'a Record,
    /// Its job, unless it never became one.
    pub job: Option<JobHeader<'a>>,
    /// The topic, partition and offset that its event was read from; of a record that does not say so, its own place.
    pub source: (&'a str, i32, i64),
    /// What kind of failure it died of; none where another tool wrote it.
    pub kind: Option<FailureKind>,
    /// The failure's code.
    pub code: &'a str,
    /// What the failure says.
    pub message: &'a str,
    /// The first failure of the job, where it was another.
    pub first_error: Option<&'a str>,
    /// Why the record is not whole.
    pub stub: Option<&'a str>,
    /// The id of the trace that it belongs to.
    pub trace: Option<&'a str>,
    /// Which cause it has.
    pub fingerprint: Fingerprint,
    /// The round that it died in.
    pub round: u32,
    /// When it came into the dead-letter topic, by the broker's clock, as the journal has it: so it can be told what came first. Where
    /// the topic has `CreateTime`, which `tidegate topics check` finds, it is what the worker's clock said.
    pub dead_at: UnixMillis,
    /// The id of the schema that its value names.
    pub schema_id: Option<u32>,
}

/// What the headers say, as bytes.
#[derive(Default)]
struct Told<'a> {
    job: Option<&'a [u8]>,
    topic: Option<&'a [u8]>,
    partition: Option<&'a [u8]>,
    offset: Option<&'a [u8]>,
    kind: Option<&'a [u8]>,
    code: Option<&'a [u8]>,
    fingerprint: Option<&'a [u8]>,
    message: Option<&'a [u8]>,
    connect_message: Option<&'a [u8]>,
    first_error: Option<&'a [u8]>,
    stub: Option<&'a [u8]>,
    dead_at: Option<&'a [u8]>,
    traceparent: Option<&'a [u8]>,
    round: Option<&'a [u8]>,
}

impl<'a> Told<'a> {
    fn of(record: &'a Record) -> Self {
        const NAMES: [&[u8]; 7] = [
            ERROR_KIND.as_bytes(),
            ERROR_CODE.as_bytes(),
            ERROR_FINGERPRINT.as_bytes(),
            ERROR_MESSAGE.as_bytes(),
            FIRST_ERROR.as_bytes(),
            STUB.as_bytes(),
            ROUND.as_bytes(),
        ];
        let mut told = Self::default();
        for (name, value) in record.headers() {
            let place = match name {
                b"job" => &mut told.job,
                b"traceparent" => &mut told.traceparent,
                b"job-dead-at" => &mut told.dead_at,
                b"__connect.errors.topic" => &mut told.topic,
                b"__connect.errors.partition" => &mut told.partition,
                b"__connect.errors.offset" => &mut told.offset,
                b"__connect.errors.exception.message" => &mut told.connect_message,
                name if name == NAMES[0] => &mut told.kind,
                name if name == NAMES[1] => &mut told.code,
                name if name == NAMES[2] => &mut told.fingerprint,
                name if name == NAMES[3] => &mut told.message,
                name if name == NAMES[4] => &mut told.first_error,
                name if name == NAMES[5] => &mut told.stub,
                name if name == NAMES[6] => &mut told.round,
                _ => continue,
            };
            *place = value;
        }
        told
    }
}

impl<'a> Letter<'a> {
    /// Reads what stands on a record of `dlq`, the dead-letter topic.
    pub fn read(dlq: &'a str, partition: Partition, record: &'a Record) -> Self {
        let told = Told::of(record);
        let job = told.job.and_then(|header| JobHeader::parse(header).ok());
        let kind = told.kind.and_then(text).and_then(FailureKind::from_name);
        let code = told.code.and_then(text).unwrap_or_default();
        let message = told.message.or(told.connect_message).and_then(text).unwrap_or_default();
        let own_place = (dlq, partition.0, record.offset().0);
        let source = match &job {
            Some(job) => (job.topic, job.partition.0, job.offset.0),
            None => source(&told).unwrap_or(own_place),
        };
        Self {
            partition,
            record,
            source,
            kind,
            code,
            message,
            first_error: told.first_error.and_then(text),
            stub: told.stub.and_then(text),
            trace: told.traceparent.and_then(text).and_then(trace_id),
            fingerprint: told
                .fingerprint
                .and_then(text)
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                .map_or_else(|| unsaid(kind, code, message), Fingerprint),
            dead_at: record
                .appended_at()
                .or_else(|| told.dead_at.and_then(number).map(UnixMillis))
                .or(record.timestamp())
                .unwrap_or(UnixMillis(0)),
            schema_id: record.value().and_then(schema_id),
            round: match &job {
                Some(job) => job.round.0,
                None => told.round.and_then(number).and_then(|round| u32::try_from(round).ok()).unwrap_or(0),
            },
            job,
        }
    }

    /// The class of its job.
    pub fn class(&self) -> Option<&'a str> {
        self.job.as_ref().map(|job| job.class)
    }

    /// The tier of its job.
    pub fn tier(&self) -> Option<&'a str> {
        self.job.as_ref().map(|job| job.tier)
    }

    /// The idempotency key of its job.
    pub fn key(&self) -> Option<IdempotencyKey> {
        self.job.as_ref().map(|job| job.key)
    }

    /// Which item it is an occurrence of.
    pub fn item(&self) -> ItemRef {
        let (topic, partition, offset) = self.source;
        ItemRef::of(topic, partition, offset, self.class())
    }

    /// The item's whole name.
    pub fn item_id(&self) -> ItemId {
        let (topic, partition, offset) = self.source;
        let (topic, partition, offset) = (Topic::new(topic), Partition(partition), Offset(offset));
        ItemId { topic, partition, offset, class: self.class().map(Into::into) }
    }

    /// The same for all letters of one class, kind and code.
    pub(crate) fn family(&self) -> u64 {
        let kind = self.kind.map_or("", FailureKind::as_str);
        let parts = [self.class().unwrap_or(""), kind, self.code];
        parts.iter().fold(0, |hash, part| xxh3_64_with_seed(part.as_bytes(), hash))
    }

    /// The letter, as one of all that have its class, kind and code.
    pub(crate) fn coarse(&self) -> Self {
        let message = "many different messages of one class, kind and code";
        Letter { message, fingerprint: Fingerprint(self.family()), ..self.clone() }
    }

    /// The same for all letters that differ in nothing that they are grouped by.
    pub(crate) fn cause_hash(&self) -> u64 {
        self.hash_with(self.tier(), self.schema_id, self.source.0)
    }

    /// The hash of the cause that it would have with these.
    pub(crate) fn hash_with(&self, tier: Option<&str>, schema_id: Option<u32>, source: &str) -> u64 {
        let kind = self.kind.map_or("", FailureKind::as_str);
        let parts = [self.class().unwrap_or(""), tier.unwrap_or(""), kind, self.code, source];
        // Each part is hashed with the one before as its seed, so nothing is put together in memory.
        let hash =
            parts.iter().fold(self.fingerprint.0, |hash, part| xxh3_64_with_seed(part.as_bytes(), hash));
        xxh3_64_with_seed(&schema_id.map_or(u64::MAX, u64::from).to_be_bytes(), hash)
    }
}

/// The cause of a record that names none: what it says otherwise.
fn unsaid(kind: Option<FailureKind>, code: &str, message: &str) -> Fingerprint {
    match kind {
        Some(kind) => fingerprint(kind, code, message),
        None => Fingerprint(xxh3_64(tidegate_domain::failure::mask(message).as_bytes())),
    }
}

fn source<'a>(told: &Told<'a>) -> Option<(&'a str, i32, i64)> {
    let partition = i32::try_from(told.partition.and_then(number)?).ok()?;
    Some((told.topic.and_then(text)?, partition, told.offset.and_then(number)?))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn number(bytes: &[u8]) -> Option<i64> {
    text(bytes)?.parse().ok()
}

/// The second field of W3C's `traceparent`.
fn trace_id(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(1).filter(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn schema_id(value: &[u8]) -> Option<u32> {
    tidegate_codec::wire::parse(value).ok().map(|framed| framed.schema_id)
}
