//! Reading and writing outside a consumer group: for tools and start-up checks. Everything here blocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidegate_domain::Partition;
use tidegate_pipeline::ports::{PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::{Inbox, Record, Wake};

use crate::look::{self, Reports};
use crate::native::PartitionQueue;
use crate::publisher::Publisher;
use crate::settings::{KafkaSettings, LOOK_TIMEOUT, READER_GROUP};
use crate::topics::TopicError;

/// A record, and the partition that it was read from.
#[derive(Clone, Debug)]
pub struct Found {
    /// The partition.
    pub partition: Partition,
    /// The record.
    pub record: Record,
}

/// Reads a topic from its beginning to the end that it has now, and hands each record to `each` until that says to stop.
pub fn read_topic(
    settings: &KafkaSettings,
    topic: &str,
    mut each: impl FnMut(Found) -> std::ops::ControlFlow<()>,
) -> Result<(), TopicError> {
    let mut config = settings.consumer(READER_GROUP);
    config.set("auto.offset.reset", "earliest");
    let consumer: Arc<BaseConsumer<Reports>> = Arc::new(look::client(config)?);
    let unreadable =
        |error: &dyn std::fmt::Display| TopicError::Unreadable(topic.to_owned(), error.to_string());
    let metadata = look::metadata(&consumer, &settings.bootstrap, Some(topic))?;
    let refused = metadata.topics().first().and_then(|t| t.error()).map(RDKafkaErrorCode::from);
    if refused == Some(RDKafkaErrorCode::TopicAuthorizationFailed) {
        return Err(TopicError::forbidden(topic, "see the partitions", "Describe"));
    }
    let Some(found) = metadata.topics().first().filter(|t| t.error().is_none()) else {
        return Err(unreadable(&"there is no such topic; `tidegate topics apply` creates it"));
    };
    for partition in found.partitions() {
        let (low, high) = patiently(|| consumer.fetch_watermarks(topic, partition.id(), LOOK_TIMEOUT))
            .map_err(|e| unreadable(&e))?;
        if high > low && read_partition(&consumer, topic, partition.id(), high, &mut each)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// How long a partition may be without a leader that answers: a busy broker has many topics to make at once.
const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// A leader that moves, or a topic that was made just now, is no error for a while.
fn patiently<T>(mut ask: impl FnMut() -> KafkaResult<T>) -> KafkaResult<T> {
    let deadline = Instant::now() + LEADER_WITHIN;
    loop {
        match ask() {
            Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                return Err(error);
            }
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
            answer => return answer,
        }
    }
}

fn read_partition(
    consumer: &Arc<BaseConsumer<Reports>>,
    topic: &str,
    partition: i32,
    end: i64,
    each: &mut impl FnMut(Found) -> std::ops::ControlFlow<()>,
) -> Result<std::ops::ControlFlow<()>, TopicError> {
    let unreadable =
        |error: &dyn std::fmt::Display| TopicError::Unreadable(topic.to_owned(), error.to_string());
    let mut queue = PartitionQueue::split(consumer.clone(), topic, partition, Wake::default())
        .ok_or_else(|| unreadable(&"its queue can't be split"))?;
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, partition, Offset::Beginning).map_err(|e| unreadable(&e))?;
    consumer.assign(&assignment).map_err(|e| unreadable(&e))?;
    let mut last_seen = Instant::now();
    loop {
        let mut records = Vec::new();
        let (taken, failed) = queue.take(1000, &mut records);
        if let Some(failed) = failed {
            return Err(match failed.code {
                RDKafkaErrorCode::TopicAuthorizationFailed => {
                    TopicError::forbidden(topic, "read the records", "Read")
                }
                _ => unreadable(&failed.message),
            });
        }
        for record in records {
            if each(Found { partition: Partition(partition), record }).is_break() {
                return Ok(std::ops::ControlFlow::Break(()));
            }
        }
        // The position counts transaction markers too, which no record shows.
        let position = consumer
            .position()
            .ok()
            .and_then(|list| list.find_partition(topic, partition).map(|element| element.offset()));
        if matches!(position, Some(Offset::Offset(at)) if at >= end) {
            return Ok(std::ops::ControlFlow::Continue(()));
        }
        if taken > 0 {
            last_seen = Instant::now();
        } else if last_seen.elapsed() > LOOK_TIMEOUT {
            return Err(unreadable(&"the broker sends nothing although there is more"));
        } else {
            // The main queue must be served, and waiting there costs nothing.
            if let Some(Err(error)) = consumer.poll(Duration::from_millis(5))
                && !is_no_hindrance(&error)
            {
                return Err(unreadable(&error));
            }
        }
    }
}

/// One broker of several that can't be reached; the client goes on trying, and the others may do. Without an answer it is an error
/// after a while. And the client asks for its group though it is named for form's sake: so no right on that is needed.
fn is_no_hindrance(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, GroupAuthorizationFailed};
    matches!(
        error.rdkafka_error_code(),
        Some(AllBrokersDown | BrokerTransportFailure | GroupAuthorizationFailed)
    )
}

/// Publishes one record and waits for its acknowledgement.
pub fn publish_one(publisher: &Publisher, record: &OutboundRecord<'_>) -> Result<(), PublishError> {
    let inbox = Inbox::new(Wake::default());
    publisher.publish(record, Ticket(0), &inbox)?;
    let mut answers = Vec::new();
    let deadline = Instant::now() + LOOK_TIMEOUT * 4;
    while Instant::now() < deadline {
        inbox.take(&mut answers);
        if let Some((_, answer)) = answers.pop() {
            return answer.map(drop);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(PublishError::Unavailable("no acknowledgement in time".to_owned()))
}
