//! What stands on a record in the dead-letter topic.
//!
//! Value, key and the source's own headers are untouched. What tidegate knows stands in readable headers, and the names that
//! Kafka Connect uses for the same facts (KIP-298) stand beside them, so that tools which know those work here too. Only the
//! first and the last failure are kept, each cut to a budget: a record does not grow with every round.

use std::sync::Arc;

use tidegate_domain::inbox::{ItemId, REPLAY_HEADER, ReplayHeader};
use tidegate_domain::job::{JOB_HEADER, SOURCE_JOB_HEADER};
use tidegate_domain::{Failure, JobHeader, Offset, Partition, Round, Topic, UnixMillis};
use tracing::{error, warn};

use crate::events;
use crate::inbox::Inbox;
use crate::ports::{Delivery, PublishError, RecordPublisher, Ticket};
use crate::record::{OutboundHeaders, OutboundRecord, Record, TopicPartition};

/// The header of the failure's kind.
pub const ERROR_KIND: &str = "job-error-kind";
/// The header of the failure's code.
pub const ERROR_CODE: &str = "job-error-code";
/// The header of the failure's fingerprint.
pub const ERROR_FINGERPRINT: &str = "job-error-fingerprint";
/// The header of the failure's message.
pub const ERROR_MESSAGE: &str = "job-error-message";
/// The header of the first failure of the job, where the last one is another.
pub const FIRST_ERROR: &str = "job-first-error";
/// Present on a stub: why the record itself is not here.
pub const STUB: &str = "job-stub";

/// How many bytes of a failure's message are kept.
pub const MESSAGE_BUDGET: usize = 2048;
/// How many bytes of the first failure are kept on the way.
pub const FIRST_ERROR_BUDGET: usize = 512;

/// The header of the time of death: a record that has it was dead-lettered before.
const DEAD_AT: &str = "job-dead-at";

/// The headers of the place in the source topic.
const ORIGIN_TOPIC: &str = "__connect.errors.topic";
const ORIGIN_PARTITION: &str = "__connect.errors.partition";
const ORIGIN_OFFSET: &str = "__connect.errors.offset";
/// The header of the round, where it is not 0 or the record is a job.
pub const ROUND: &str = "job-round";

const OURS: [&str; 20] = [
    ERROR_KIND,
    ERROR_CODE,
    ERROR_FINGERPRINT,
    ERROR_MESSAGE,
    STUB,
    "job-class",
    "job-tier",
    "job-id",
    "job-key",
    ROUND,
    "job-hop",
    "job-attempt",
    "job-first-seen",
    DEAD_AT,
    REPLAY_HEADER,
    ORIGIN_TOPIC,
    ORIGIN_PARTITION,
    ORIGIN_OFFSET,
    "__connect.errors.exception.class.name",
    "__connect.errors.exception.message",
];

/// A record that goes to the DLQ.
#[derive(Clone, Copy, Debug)]
pub struct Dying<'a> {
    /// The record.
    pub record: &'a Record,
    /// Where it was read.
    pub partition: &'a TopicPartition,
    /// What its job header says, where it is a job.
    pub job: Option<&'a JobHeader<'a>>,
    /// Where it came from, where an operator sent it to ingest again.
    pub returned: Option<&'a Returned>,
}

/// A dead letter of ingest that an operator sent to it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The event's place in its source topic.
    pub item: ItemId,
    /// The round, where the record says that it is one of the inbox's replays.
    pub round: Option<Round>,
}

impl Returned {
    /// What a record of the reingest topic says of itself; none where it does not name its source.
    pub fn read(record: &Record) -> Option<Self> {
        if let Some(Ok(ReplayHeader { item, round })) = record.header(REPLAY_HEADER).map(ReplayHeader::parse)
        {
            return Some(Self { item, round: Some(round) });
        }
        let text = |name: &str| record.header(name).and_then(|value| std::str::from_utf8(value).ok());
        let topic = Topic::new(text(ORIGIN_TOPIC)?);
        let (partition, offset) = (text(ORIGIN_PARTITION)?.parse().ok()?, text(ORIGIN_OFFSET)?.parse().ok()?);
        let item = ItemId::of_event(topic, Partition(partition), Offset(offset));
        Some(Self { item, round: None })
    }
}

/// The way of a record to the DLQ: whole; where it is too large, without the source's headers; and where it still is, as a stub
/// that names it.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Why.
    pub failure: Failure,
    /// What had failed before, where the record does not say so itself.
    earlier: Option<Failure>,
    body: Body,
}

/// The dead-letter topic refuses even a stub: nothing can be dead-lettered until it takes larger records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dead-letter topic refuses even a stub for its size; raise its `max.message.bytes`")]
pub struct SmallestForm;

impl From<SmallestForm> for PublishError {
    fn from(smallest: SmallestForm) -> Self {
        Self::Unavailable(smallest.to_string())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Whole,
    WithoutSourceHeaders,
    Stub,
}

impl DeadLetter {
    /// The whole record, because of `failure`.
    pub fn new(failure: Failure) -> Self {
        Self { failure, earlier: None, body: Body::Whole }
    }

    /// The same, and `earlier` is the job's first failure, unless the record brings one along.
    #[must_use]
    pub fn after(mut self, earlier: Option<Failure>) -> Self {
        self.earlier = earlier;
        self
    }

    /// Takes the next smaller form, after the broker or the client refused this one for its size; refused where there is none.
    pub fn shrink(&mut self) -> Result<(), SmallestForm> {
        self.body = match self.body {
            Body::Whole => Body::WithoutSourceHeaders,
            Body::WithoutSourceHeaders => Body::Stub,
            Body::Stub => return Err(SmallestForm),
        };
        Ok(())
    }

    /// Hands it to the publisher; see [`RecordPublisher::publish`].
    pub fn publish(
        &self,
        (publisher, dlq): (&dyn RecordPublisher, &Topic),
        dying: &Dying<'_>,
        now: UnixMillis,
        ticket: Ticket,
        inbox: &Arc<Inbox<Delivery>>,
    ) -> Result<(), PublishError> {
        let mut ours = DeadLetterHeaders::new(dying, &self.failure, now);
        match self.body {
            Body::Whole => {}
            Body::WithoutSourceHeaders => {
                ours.as_stub("the source's headers are left out: with them the record is too large");
            }
            Body::Stub => ours.as_stub("key and value are left out: the record is too large"),
        }
        let whole = self.body == Body::Whole;
        ours.tell_first_error(dying.record, self.earlier.as_ref(), whole);
        let headers = if whole { ours.with_source(dying.record) } else { ours.alone() };
        let (key, value) = match self.body {
            Body::Stub => (None, None),
            _ => (dying.record.key(), dying.record.value()),
        };
        let record = OutboundRecord { topic: dlq, partition: None, key, value, headers: &headers };
        publisher.publish(&record, ticket, inbox)
    }

    /// It is acknowledged: counts and logs it.
    pub fn note(&self, dying: &Dying<'_>) {
        let (partition, offset, failure) = (dying.partition, dying.record.offset(), &self.failure);
        let job_id = dying.job.map(JobHeader::job_id);
        events::dead_letter(failure.kind);
        if self.body == Body::Stub {
            events::at_risk();
            error!(%partition, %offset, job_id, "a record is too large to be dead-lettered whole; save it from its source topic before it expires");
        }
        warn!(%partition, %offset, job_id, %failure, "dead-lettered");
    }
}

#[derive(Debug, Default)]
struct DeadLetterHeaders {
    named: Vec<(&'static str, String)>,
    job: Option<String>,
}

impl DeadLetterHeaders {
    fn new(dead: &Dying<'_>, failure: &Failure, now: UnixMillis) -> Self {
        let mut headers = Self::default();
        let (topic, partition, offset) = match (&dead.job, dead.returned) {
            (Some(job), _) => {
                headers.tell_job(job);
                (job.topic.to_owned(), job.partition, job.offset)
            }
            (None, Some(Returned { item, round })) => {
                if let Some(round) = round {
                    headers.push(ROUND, round.0.to_string());
                }
                (item.topic.to_string(), item.partition, item.offset)
            }
            (None, None) => {
                (dead.partition.topic.to_string(), dead.partition.partition, dead.record.offset())
            }
        };
        headers.push(ORIGIN_TOPIC, topic);
        headers.push(ORIGIN_PARTITION, partition.to_string());
        headers.push(ORIGIN_OFFSET, offset.to_string());
        headers.push("__connect.errors.exception.class.name", format!("{}/{}", failure.kind, failure.code));
        headers.push("__connect.errors.exception.message", cut(&failure.message, MESSAGE_BUDGET));
        headers.push(ERROR_KIND, failure.kind.as_str().to_owned());
        headers.push(ERROR_CODE, failure.code.to_string());
        headers.push(ERROR_FINGERPRINT, failure.fingerprint().to_string());
        headers.push(ERROR_MESSAGE, cut(&failure.message, MESSAGE_BUDGET));
        headers.push(DEAD_AT, now.to_string());
        headers
    }

    fn as_stub(&mut self, reason: &str) {
        self.push(STUB, cut(reason, MESSAGE_BUDGET));
    }

    /// The record's own first error travels with the source's headers, and is ours to keep where those are left out.
    fn tell_first_error(&mut self, record: &Record, earlier: Option<&Failure>, with_source: bool) {
        let first = match record.header(FIRST_ERROR) {
            Some(_) if with_source => None,
            Some(known) => Some(String::from_utf8_lossy(known).into_owned()),
            None => earlier.map(Failure::to_string),
        };
        if let Some(first) = first {
            self.push(FIRST_ERROR, cut(&first, FIRST_ERROR_BUDGET));
        }
    }

    fn tell_job(&mut self, job: &JobHeader<'_>) {
        self.job = Some(job.to_text());
        self.push("job-class", job.class.to_owned());
        self.push("job-tier", job.tier.to_owned());
        self.push("job-id", job.job_id());
        self.push("job-key", job.key.to_string());
        self.push(ROUND, job.round.0.to_string());
        self.push("job-hop", job.hop.0.to_string());
        self.push("job-attempt", job.attempt.0.to_string());
        self.push("job-first-seen", job.first_seen.to_string());
    }

    fn push(&mut self, name: &'static str, value: String) {
        self.named.push((name, value));
    }

    /// The source's own headers, then ours.
    fn with_source<'a>(&'a self, record: &'a Record) -> OutboundHeaders<'a> {
        let mut headers = source_headers(record, self.job.is_none());
        self.append(&mut headers);
        headers
    }

    /// Our headers alone: for a stub, where the source's own may be what is too large.
    fn alone(&self) -> OutboundHeaders<'_> {
        let mut headers = OutboundHeaders::new();
        self.append(&mut headers);
        headers
    }

    fn append<'a>(&'a self, headers: &mut OutboundHeaders<'a>) {
        if let Some(job) = &self.job {
            headers.push((JOB_HEADER.as_bytes(), Some(job.as_bytes())));
        }
        headers.extend(self.named.iter().map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))));
    }
}

/// The headers that travel along untouched: all but our own `job` header, and what we wrote on a dead letter that comes back, so
/// that a record does not grow with every round. Where the record is a source event, a `job` header is the source's own and is
/// kept under another name.
pub fn source_headers(record: &Record, is_source_event: bool) -> OutboundHeaders<'_> {
    let comes_back = record.header(DEAD_AT).is_some();
    record
        .headers()
        .filter(|(name, _)| !(comes_back && is_ours(name)))
        .filter_map(|(name, value)| match (name == JOB_HEADER.as_bytes(), is_source_event) {
            (true, true) => Some((SOURCE_JOB_HEADER.as_bytes(), value)),
            (true, false) => None,
            (false, _) => Some((name, value)),
        })
        .collect()
}

/// Whether a header of a dead letter is one that tidegate writes there. What else begins alike is the source's own.
pub fn is_ours(name: &[u8]) -> bool {
    OURS.iter().any(|ours| ours.as_bytes() == name)
}

/// At most `budget` bytes of `text`, cut between characters.
pub fn cut(text: &str, budget: usize) -> String {
    if text.len() <= budget {
        return text.to_owned();
    }
    let mut end = budget.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}
