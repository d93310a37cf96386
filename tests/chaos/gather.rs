//! Reads back what Kafka holds: jobs, their copies, dead letters, and how far the groups have come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tidegate_domain::JobHeader;
use tidegate_domain::job::JOB_HEADER;
use tidegate_tests::kafka_io::Client;

use crate::config::{self, DLQ, SOURCE, TIERS};
use crate::history::{At, Copy, DeadLetter, Key, Kind, Origin, Published};
use crate::load::{NUMBER, Sending};

const READ_WITHIN: Duration = Duration::from_secs(300);
const ONE_CALL: Duration = Duration::from_secs(20);

/// A consumer that reads committed records, joins nothing, and tells of the ends of partitions.
pub(crate) fn consumer(bootstrap: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "chaos-harness")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set_log_level(RDKafkaLogLevel::Emerg)
        .create()
        .expect("a consumer can be created")
}

/// Gives each record that the topic holds now to `take`.
fn read(bootstrap: &str, topic: &str, mut take: impl FnMut(&BorrowedMessage<'_>)) -> Result<(), String> {
    let consumer = consumer(bootstrap);
    let metadata =
        consumer.fetch_metadata(Some(topic), ONE_CALL).map_err(|error| format!("{topic}: {error}"))?;
    let mut assignment = TopicPartitionList::new();
    let mut unread: Vec<i32> = Vec::new();
    for partition in metadata.topics().iter().flat_map(|topic| topic.partitions()) {
        unread.push(partition.id());
        let added = assignment.add_partition_offset(topic, partition.id(), Offset::Beginning);
        added.map_err(|error| error.to_string())?;
    }
    consumer.assign(&assignment).map_err(|error| error.to_string())?;
    let until = Instant::now() + READ_WITHIN;
    while !unread.is_empty() {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => take(&message),
            Some(Err(KafkaError::PartitionEOF(ended))) => unread.retain(|partition| *partition != ended),
            // The client itself tries again.
            Some(Err(_)) | None => {}
        }
        if Instant::now() > until {
            return Err(format!("the ends of {topic}/{unread:?} are not reached after {READ_WITHIN:?}"));
        }
    }
    Ok(())
}

fn header<'a>(message: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a str> {
    let found = message.headers()?.iter().find(|header| header.key == name)?;
    str::from_utf8(found.value?).ok()
}

/// The source topic as Kafka holds it: the events at their places; how many of them were not acknowledged; and how many of
/// the acknowledged ones it does not hold.
pub(crate) fn published(
    bootstrap: &str,
    sendings: &[Sending],
) -> Result<(Vec<Published>, usize, usize), String> {
    let (mut published, mut found, mut strange) = (Vec::new(), vec![false; sendings.len()], 0);
    read(bootstrap, SOURCE, |message| {
        let number = header(message, NUMBER).and_then(|number| number.parse::<usize>().ok());
        match number.and_then(|number| Some((number, sendings.get(number)?))) {
            Some((number, sending)) => {
                found[number] = true;
                let origin = Origin { partition: message.partition(), offset: message.offset() };
                published.push(sending.at(origin));
            }
            None => strange += 1,
        }
    })?;
    if strange > 0 {
        return Err(format!("{strange} records of {SOURCE} are not of this run"));
    }
    let all = || found.iter().zip(sendings);
    let unsure = all().filter(|(found, sending)| **found && !sending.is_acknowledged).count();
    let gone = all().filter(|(found, sending)| !**found && sending.is_acknowledged).count();
    Ok((published, unsure, gone))
}

/// The jobs of all tiers, or what waited in their delay topics.
pub(crate) fn copies(bootstrap: &str, topics: &[String]) -> Result<Vec<Copy>, String> {
    let mut copies = Vec::new();
    for topic in topics {
        let tier = TIERS.iter().position(|tier| topic.starts_with(&format!("{}.{tier}.", config::PIPELINE)));
        let tier = tier.ok_or_else(|| format!("{topic} is of no tier"))?;
        let mut strange = 0;
        read(bootstrap, topic, |message| match copy_of(message, tier) {
            Some(copy) => copies.push(copy),
            None => strange += 1,
        })?;
        if strange > 0 {
            return Err(format!("{strange} records of {topic} are no jobs of this run"));
        }
    }
    Ok(copies)
}

fn copy_of(message: &BorrowedMessage<'_>, tier: usize) -> Option<Copy> {
    let job = JobHeader::parse(header(message, JOB_HEADER)?.as_bytes()).ok()?;
    (job.topic == SOURCE).then(|| Copy {
        origin: Origin { partition: job.partition.0, offset: job.offset.0 },
        key: Key(u128::from_be_bytes(job.key.0)),
        log: (tier, message.partition()),
        attempt: job.attempt.0,
        due: At::of_millis(job.due.0),
    })
}

/// The dead letters.
pub(crate) fn dead_letters(bootstrap: &str) -> Result<Vec<DeadLetter>, String> {
    let (mut dead, mut strange) = (Vec::new(), 0);
    read(bootstrap, DLQ, |message| match dead_letter_of(message) {
        Some(letter) => dead.push(letter),
        None => strange += 1,
    })?;
    if strange > 0 { Err(format!("{strange} dead letters are not of {SOURCE}")) } else { Ok(dead) }
}

fn dead_letter_of(message: &BorrowedMessage<'_>) -> Option<DeadLetter> {
    let number = |name: &str| header(message, name)?.parse::<i64>().ok();
    let origin = Origin {
        partition: number("__connect.errors.partition")? as i32,
        offset: number("__connect.errors.offset")?,
    };
    (header(message, "__connect.errors.topic")? == SOURCE).then(|| DeadLetter {
        origin,
        kind: header(message, "job-class").and_then(Kind::of_class),
        error: header(message, "job-error-kind").unwrap_or("?").to_owned(),
        at: At::of_millis(message.timestamp().to_millis().unwrap_or(0)),
    })
}

/// By how much each group is behind each of its topics; those that are not are left out.
pub(crate) fn lag(client: &Client) -> BTreeMap<String, i64> {
    let groups = config::groups();
    let topics = groups.iter().flat_map(|(group, topics)| topics.iter().map(move |topic| (group, topic)));
    topics
        .map(|(group, topic)| (topic.clone(), client.lag(group, topic)))
        .filter(|(_, lag)| *lag > 0)
        .collect()
}
