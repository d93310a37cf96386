//! Events of a world: what is in a source record, and the job that it becomes.

use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{
    Attempt, FieldValue, Hop, IdempotencyKey, JobHeader, Lane, Offset, Partition, Round, Topic, UnixMillis,
};

use crate::forward::{EventRouter, PlannedJob, Routed};
use crate::names::Names;
use crate::record::{Record, TopicPartition};

/// The header that names an event through all of its copies.
pub const EVENT_ID: &str = "event-id";

/// What the Confluent wire format puts before a value.
pub const SCHEMA_PREFIX: [u8; 5] = [0, 0, 0, 0, 1];

/// An event: `class key payload` behind the schema prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The class of the job that it becomes.
    pub class: &'a str,
    /// The text of its key.
    pub key: &'a str,
    /// The rest.
    pub payload: &'a str,
}

impl<'a> Event<'a> {
    /// An event.
    pub fn new(class: &'a str, key: &'a str, payload: &'a str) -> Self {
        Self { class, key, payload }
    }

    /// The record's value.
    pub fn value(&self) -> Vec<u8> {
        let text = format!("{} {} {}", self.class, self.key, self.payload);
        [&SCHEMA_PREFIX[..], text.as_bytes()].concat()
    }

    /// Reads a value.
    pub fn of(record: &'a Record) -> Option<Self> {
        let text = std::str::from_utf8(record.value()?.get(SCHEMA_PREFIX.len()..)?).ok()?;
        let mut parts = text.splitn(3, ' ');
        Some(Self { class: parts.next()?, key: parts.next()?, payload: parts.next()? })
    }

    /// The idempotency key of the job.
    pub fn idempotency_key(&self) -> IdempotencyKey {
        IdempotencyKey::derive(self.class, &[FieldValue::Str(self.key)], None)
            .unwrap_or(IdempotencyKey([0; 16]))
    }

    /// The lane of the job.
    pub fn lane(&self) -> Lane {
        Lane::derive("lane", &[FieldValue::Str(self.key)]).unwrap_or(Lane(0))
    }

    /// The header of its job, as ingest writes it.
    pub fn header(
        &self,
        tier: &'a str,
        source: &'a TopicPartition,
        (offset, origin): (Offset, Option<UnixMillis>),
        now: UnixMillis,
    ) -> JobHeader<'a> {
        JobHeader {
            class: self.class,
            tier,
            topic: source.topic.as_str(),
            partition: source.partition,
            offset,
            key: self.idempotency_key(),
            lane: self.lane(),
            round: Round(0),
            hop: Hop(0),
            attempt: Attempt(1),
            due: now,
            first_seen: now,
            origin,
            forced: false,
        }
    }

    /// The job that `record` becomes in a tier of so many partitions.
    pub fn plan(
        &self,
        (names, tier, partitions): (&Names, &str, u32),
        source: &TopicPartition,
        record: &Record,
        now: UnixMillis,
    ) -> PlannedJob {
        let header = self.header(tier, source, (record.offset(), record.timestamp()), now).to_text();
        PlannedJob { topic: names.jobs(tier), partition: self.lane().partition(partitions), header }
    }
}

/// What an [`FnRouter`] calls.
pub type Route = dyn FnMut(&TopicPartition, &Record, UnixMillis, &mut Vec<PlannedJob>) -> Routed + Send;

/// Routes by closure.
pub struct FnRouter(pub Box<Route>);

impl std::fmt::Debug for FnRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FnRouter").finish_non_exhaustive()
    }
}

impl FnRouter {
    /// Routes by this.
    pub fn new(
        route: impl FnMut(&TopicPartition, &Record, UnixMillis, &mut Vec<PlannedJob>) -> Routed + Send + 'static,
    ) -> Self {
        Self(Box::new(route))
    }

    /// Each event becomes the one job that it says.
    pub fn one_job(names: Names, tier: &'static str, partitions: u32) -> Self {
        Self::new(move |source, record, now, jobs| match Event::of(record) {
            Some(event) => {
                jobs.push(event.plan((&names, tier, partitions), source, record, now));
                Routed::Jobs
            }
            None => Routed::Dead(tidegate_domain::Failure::malformed("no-event", "not of the form")),
        })
    }
}

impl EventRouter for FnRouter {
    fn route(
        &mut self,
        partition: &TopicPartition,
        record: &Record,
        now: UnixMillis,
        jobs: &mut Vec<PlannedJob>,
    ) -> Routed {
        (self.0)(partition, record, now, jobs)
    }
}

/// A partition by its topic's name and number.
pub fn partition_of(topic: &Topic, number: i32) -> TopicPartition {
    TopicPartition { topic: topic.clone(), partition: Partition(number) }
}

/// What the `job` header of a record says.
pub fn job_header(record: &Record) -> Option<JobHeader<'_>> {
    JobHeader::parse(record.header(JOB_HEADER)?).ok()
}

/// The event that a record is a copy of.
pub fn event_id(record: &Record) -> Option<u64> {
    std::str::from_utf8(record.header(EVENT_ID)?).ok()?.parse().ok()
}
