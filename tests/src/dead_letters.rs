//! A dead letter, read back field by field against the source record that it came from.

use std::time::SystemTime;

use tidegate_domain::failure::fingerprint;
use tidegate_domain::{FailureKind, JobHeader};

use crate::kafka_io::ReadRecord;

/// What every dead letter says, after the source's own headers and in this order.
const OF_ALL: [&str; 10] = [
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__connect.errors.offset",
    "__connect.errors.exception.class.name",
    "__connect.errors.exception.message",
    "job-error-kind",
    "job-error-code",
    "job-error-fingerprint",
    "job-error-message",
    "job-dead-at",
];
/// What a job's dead letter says before that.
const OF_JOBS: [&str; 9] = [
    "job",
    "job-class",
    "job-tier",
    "job-id",
    "job-key",
    "job-round",
    "job-hop",
    "job-attempt",
    "job-first-seen",
];

/// Why a record should be in the DLQ.
#[derive(Debug, Clone, Copy)]
pub struct Cause<'a> {
    pub kind: FailureKind,
    pub code: &'a str,
}

/// The header's text; it must be there once, and hold text.
#[track_caller]
fn text<'a>(dead: &'a ReadRecord, name: &str) -> &'a str {
    let count = dead.headers.iter().filter(|(header, _)| header == name).count();
    assert_eq!(count, 1, "{name} should be there once:\n{dead}");
    dead.header(name).unwrap_or_else(|| panic!("{name} is no text:\n{dead}"))
}

/// The record of `source` that the dead letter names by its coordinates.
///
/// # Panics
/// When there is none.
#[track_caller]
pub fn origin<'a>(dead: &ReadRecord, topic: &str, source: &'a [ReadRecord]) -> &'a ReadRecord {
    assert_eq!(text(dead, "__connect.errors.topic"), topic);
    let (partition, offset) =
        (text(dead, "__connect.errors.partition"), text(dead, "__connect.errors.offset"));
    let is_it = |record: &&ReadRecord| {
        record.partition.to_string() == partition && record.offset.to_string() == offset
    };
    source.iter().find(is_it).unwrap_or_else(|| panic!("{topic}/{partition}/{offset} was never published"))
}

/// Checks a dead letter of ingest: bytes, source headers, every header of ours, and no more than these.
#[track_caller]
pub fn check_event(dead: &ReadRecord, source: &ReadRecord, cause: Cause<'_>) {
    assert_eq!((&dead.key, &dead.value), (&source.key, &source.value), "key and value, byte for byte");
    let (theirs, ours) = dead.headers.split_at(source.headers.len().min(dead.headers.len()));
    assert_eq!(theirs, source.headers, "the source's headers, in their order");
    let names: Vec<_> = ours.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, OF_ALL);
    check_cause(dead, cause);
}

/// Checks what a dead letter of a worker says of its job. `source` is the event's record in its source topic.
#[track_caller]
pub fn check_job(dead: &ReadRecord, topic: &str, source: &ReadRecord, cause: Cause<'_>) {
    assert_eq!((&dead.key, &dead.value), (&source.key, &source.value), "key and value, byte for byte");
    let names: Vec<_> = dead.headers.iter().map(|(name, _)| name.as_str()).collect();
    for name in OF_ALL.iter().chain(&OF_JOBS) {
        assert_eq!(names.iter().filter(|other| other == &name).count(), 1, "{name} in {names:?}");
    }
    check_cause(dead, cause);
    let job = JobHeader::parse(text(dead, "job").as_bytes()).expect("the job header can be read");
    assert_eq!((job.topic, job.partition.0, job.offset.0), (topic, source.partition, source.offset));
    assert_eq!(text(dead, "job-class"), job.class);
    assert_eq!(text(dead, "job-tier"), job.tier);
    assert_eq!(text(dead, "job-id"), format!("{topic}/{}/{}/{}", source.partition, source.offset, job.class));
    assert_eq!(text(dead, "job-key"), job.key.to_string());
    assert_eq!(text(dead, "job-round"), job.round.0.to_string());
    assert_eq!(text(dead, "job-hop"), job.hop.0.to_string());
    assert_eq!(text(dead, "job-attempt"), job.attempt.0.to_string());
    assert_eq!(text(dead, "job-first-seen"), job.first_seen.to_string());
    assert_eq!(job.origin.map(|at| at.0), source.timestamp);
}

#[track_caller]
fn check_cause(dead: &ReadRecord, Cause { kind, code }: Cause<'_>) {
    assert_eq!((text(dead, "job-error-kind"), text(dead, "job-error-code")), (kind.as_str(), code));
    assert_eq!(text(dead, "__connect.errors.exception.class.name"), format!("{kind}/{code}"));
    let message = text(dead, "job-error-message");
    assert!(!message.is_empty());
    assert_eq!(text(dead, "__connect.errors.exception.message"), message);
    assert_eq!(text(dead, "job-error-fingerprint"), fingerprint(kind, code, message).to_string());
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970").as_millis();
    let dead_at: u128 = text(dead, "job-dead-at").parse().expect("it is a number");
    assert!(dead_at <= now && now - dead_at < 600_000, "dead at {dead_at}, now {now}");
}
