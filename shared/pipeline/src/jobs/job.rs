//! A job as handlers see it, and what its class says.

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::job::{JOB_HEADER, JobHeaderError};
use tidegate_domain::mark::{Arrival, Phase, Step};
use tidegate_domain::{
    Attempt, Hop, IdempotencyKey, JobHash, JobHeader, Ladder, Lane, PayloadHash, Round, UnixMillis,
};

use crate::events::ClassMetrics;
use crate::record::{Record, TopicPartition};

/// The place of a class in the worker's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub usize);

/// Whether jobs of one lane may overtake a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// A retry goes through a delay topic and is overtaken.
    None,
    /// Retries happen in place; what follows in the lane waits.
    Key,
}

/// What becomes of a job whose key is done with another payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// It is skipped, and counted.
    Skip,
    /// It is dead-lettered.
    DeadLetter,
}

/// What a worker knows of a class.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The tier that it runs in.
    pub tier: String,
    /// Its retries.
    pub ladder: Ladder,
    /// How often a job is tried.
    pub max_attempts: u32,
    /// How old a job may get.
    pub max_age: Option<Duration>,
    /// How long one run may take.
    pub time_limit: Duration,
    /// Whether retries keep the lane's order.
    pub ordering: Ordering,
    /// What becomes of conflicts with a done job.
    pub on_conflict: Conflicts,
    /// Where it is counted.
    pub metrics: ClassMetrics,
}

/// One job: a record of a job topic and what its header says.
#[derive(Debug)]
pub struct Job {
    pub(crate) record: Record,
    /// Its class.
    pub class: ClassId,
    /// Where it was read.
    pub partition: TopicPartition,
    /// Equal for events that are the same job: pass it on, so that the other end can tell repeats.
    pub key: IdempotencyKey,
    /// Jobs of one lane run in order.
    pub lane: Lane,
    /// Operators' replays so far.
    pub round: Round,
    /// Publications to a delay topic in this round.
    pub hop: Hop,
    /// Which run of the handler this is in its round, from 1; in-place retries count on.
    pub attempt: Attempt,
    /// When it became due.
    pub due: UnixMillis,
    /// When its event was first forwarded.
    pub first_seen: UnixMillis,
    pub(crate) hash: JobHash,
    pub(crate) payload: PayloadHash,
    pub(crate) forced: bool,
}

impl Job {
    /// Reads the job of `record`; the class is looked up by its name.
    pub(crate) fn read(
        record: Record,
        partition: &TopicPartition,
        class_of: impl Fn(&str) -> Option<ClassId>,
    ) -> Result<Self, (Record, NoJob)> {
        let (header, class) = match known_header(&record, class_of) {
            Ok(known) => known,
            Err(error) => return Err((record, error)),
        };
        let (hash, payload) = (header.job_hash(), PayloadHash::of(record.value()));
        let JobHeader { key, lane, round, hop, attempt, due, first_seen, forced, .. } = header;
        let partition = partition.clone();
        Ok(Self {
            record,
            class,
            partition,
            key,
            lane,
            round,
            hop,
            attempt,
            due,
            first_seen,
            hash,
            payload,
            forced,
        })
    }

    /// The record: value, key and the source's headers are the event's own.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The whole job header. It was read before, so it is there.
    pub fn header(&self) -> Result<JobHeader<'_>, JobHeaderError> {
        JobHeader::parse(self.record.header(JOB_HEADER).unwrap_or_default())
    }

    /// The job as its handler sees it, which counts in-place retries and new rounds too.
    pub(crate) fn running_as(self: &Arc<Self>, round: Round, hop: Hop, attempt: Attempt) -> Arc<Self> {
        if (self.round, self.hop, self.attempt) == (round, hop, attempt) {
            return self.clone();
        }
        Arc::new(Self {
            record: self.record.clone(),
            partition: self.partition.clone(),
            round,
            hop,
            attempt,
            ..**self
        })
    }

    pub(crate) fn arrival(&self) -> Arrival {
        Arrival {
            round: self.round,
            hop: self.hop,
            job: self.hash,
            payload: self.payload,
            forced: self.forced,
        }
    }

    pub(crate) fn step(&self, round: Round, hop: Hop, phase: Phase, n: u32, written_at: UnixMillis) -> Step {
        Step { round, hop, phase, n, job: self.hash, payload: self.payload, written_at }
    }
}

fn known_header(
    record: &Record,
    class_of: impl Fn(&str) -> Option<ClassId>,
) -> Result<(JobHeader<'_>, ClassId), NoJob> {
    let header = JobHeader::parse(record.header(JOB_HEADER).ok_or(NoJob::NoHeader)?)?;
    let class = class_of(header.class).ok_or_else(|| NoJob::UnknownClass(header.class.to_owned()))?;
    Ok((header, class))
}

/// Why a record of a job topic is no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoJob {
    #[error("the record has no job header: something else than tidegate wrote it")]
    NoHeader,
    #[error(transparent)]
    Header(#[from] JobHeaderError),
    #[error("this worker's configuration has no class `{0}`")]
    UnknownClass(String),
}
