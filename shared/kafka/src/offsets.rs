//! Where a partition is read from when it is assigned.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tracing::{info, warn};

/// Where the first start of a group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest record.
    Earliest,
    /// With the first record after the start.
    Latest,
    /// With the first record from this time.
    At(SystemTime),
}

const TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the offset of each partition: the committed one; where the group never committed in the topic, what `start` says; where it
/// did, and the partition is new, its beginning, so that no event is passed over.
///
/// What `Latest` and `At` mean is committed at once: if the process died before its first commit, they would mean something else
/// at the next start, and events in between would be lost.
pub(crate) fn resolve<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    assigned: &mut TopicPartitionList,
    start_of: impl Fn(&str) -> Start,
) -> KafkaResult<()> {
    let committed = consumer.committed_offsets(assigned.clone(), TIMEOUT)?;
    let mut first = TopicPartitionList::new();
    let mut known_topics = BTreeSet::new();
    for element in committed.elements() {
        let (topic, partition) = (element.topic(), element.partition());
        let offset = match element.offset() {
            offset @ Offset::Offset(_) => offset,
            _ if start_of(topic) == Start::Earliest => Offset::Beginning,
            _ if known_topics.contains(topic) || group_knows(consumer, topic)? => {
                known_topics.insert(topic.to_owned());
                info!(topic, partition, "a new partition of a known source is read from its beginning");
                Offset::Beginning
            }
            _ => {
                let offset = Offset::Offset(start_offset(consumer, topic, partition, start_of(topic))?);
                first.add_partition_offset(topic, partition, offset)?;
                offset
            }
        };
        assigned.set_partition_offset(topic, partition, offset)?;
    }
    if first.count() > 0 {
        info!(positions = ?first, "the first start of this group begins here");
        consumer.commit(&first, CommitMode::Sync)?;
    }
    Ok(())
}

/// Whether the group has committed in any partition of the topic.
fn group_knows<C: ConsumerContext>(consumer: &BaseConsumer<C>, topic: &str) -> KafkaResult<bool> {
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT)?;
    let mut all = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|t| t.partitions()) {
        all.add_partition(topic, partition.id());
    }
    let committed = consumer.committed_offsets(all, TIMEOUT)?;
    Ok(committed.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))))
}

fn start_offset<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
    start: Start,
) -> KafkaResult<i64> {
    let (low, high) = consumer.fetch_watermarks(topic, partition, TIMEOUT)?;
    let at = match start {
        Start::Earliest => return Ok(low),
        Start::Latest => return Ok(high),
        Start::At(at) => at.duration_since(UNIX_EPOCH).unwrap_or_default(),
    };
    let mut wanted = TopicPartitionList::new();
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    wanted.add_partition_offset(topic, partition, Offset::Offset(millis))?;
    let found = consumer.offsets_for_times(wanted, TIMEOUT)?;
    match found.find_partition(topic, partition).map(|element| (element.error(), element.offset())) {
        Some((Ok(()), Offset::Offset(offset))) => Ok(offset),
        // Nothing is as young as that: the next record is.
        Some((Ok(()), Offset::End)) => Ok(high),
        Some((Err(error), _)) => Err(error),
        other => {
            warn!(topic, partition, ?other, "the broker does not say which offset belongs to the start time");
            Err(KafkaError::MetadataFetch(rdkafka::error::RDKafkaErrorCode::InvalidTimestamp))
        }
    }
}
