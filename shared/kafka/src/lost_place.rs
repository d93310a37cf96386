//! Committed offsets that a topic does not hold any more: told loudly, never guessed over.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidegate_pipeline::{Names, TopicPartition, events};
use tracing::{error, warn};

use crate::context::topic_partition;

/// The partitions of `committed` whose offset lies outside what the topic holds: retention went ahead of the group, or the topic
/// was made anew or cut. What is left of them must be read from its beginning.
pub(crate) fn find<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    committed: &TopicPartitionList,
    timeout: Duration,
) -> KafkaResult<BTreeSet<TopicPartition>> {
    let known =
        || committed.elements().into_iter().filter(|element| matches!(element.offset(), Offset::Offset(_)));
    let mut lost = BTreeSet::new();
    if known().next().is_none() {
        return Ok(lost);
    }
    // One request to each leader, however many partitions there are.
    let ask = |end: Offset| {
        let mut asked = TopicPartitionList::new();
        for element in known() {
            asked.add_partition_offset(element.topic(), element.partition(), end)?;
        }
        consumer.offsets_for_times(asked, timeout)
    };
    let (oldest, next) = (ask(Offset::Beginning)?, ask(Offset::End)?);
    for element in known() {
        let (topic, partition) = (element.topic(), element.partition());
        let in_list = |list: &TopicPartitionList| list.find_partition(topic, partition)?.offset().to_raw();
        let (Some(position), Some(oldest), Some(next)) =
            (element.offset().to_raw(), in_list(&oldest), in_list(&next))
        else {
            continue;
        };
        // A negative one is no answer.
        if oldest < 0 || next < 0 || (oldest..=next).contains(&position) {
            continue;
        }
        let partition = topic_partition(topic, partition);
        error!(
            %partition, position, oldest, next,
            "records of this partition may be gone unread: the topic does not hold the committed offset; it is read from its beginning"
        );
        events::offset_out_of_range(&partition);
        lost.insert(partition);
    }
    Ok(lost)
}

/// Whether an ingest that has read before has no offset any more: they expired while it was away, or somebody deleted them.
///
/// That its pipeline had jobs shows that it has read; that it has an offset in any topic shows that it merely begins to read another
/// source. Jobs are looked for first: instances that start for the first time side by side commit before they forward, so who finds
/// jobs of another one finds its offsets too.
pub(crate) fn offsets_are_gone<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    pipeline: &Names,
    timeout: Duration,
) -> bool {
    let ask = || Ok(has_jobs(consumer, pipeline, timeout)? && has_no_offset(consumer, timeout)?);
    // What only tells of a loss must not keep ingest from its work, where it may not ask.
    ask().unwrap_or_else(|error: KafkaError| {
        warn!(%error, "whether the group's offsets are gone is not known");
        false
    })
}

/// Retention does not take the end of a topic back.
fn has_jobs<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    pipeline: &Names,
    timeout: Duration,
) -> KafkaResult<bool> {
    let metadata = consumer.fetch_metadata(None, timeout)?;
    for topic in metadata.topics().iter().filter(|topic| pipeline.is_jobs(topic.name())) {
        for partition in topic.partitions() {
            if consumer.fetch_watermarks(topic.name(), partition.id(), timeout)?.1 > 0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn has_no_offset<C: ConsumerContext>(consumer: &BaseConsumer<C>, timeout: Duration) -> KafkaResult<bool> {
    let metadata = consumer.fetch_metadata(None, timeout)?;
    let mut all = TopicPartitionList::new();
    for topic in metadata.topics() {
        for partition in topic.partitions() {
            all.add_partition(topic.name(), partition.id());
        }
    }
    let committed = consumer.committed_offsets(all, timeout)?;
    Ok(!committed.elements().iter().any(|element| matches!(element.offset(), Offset::Offset(_))))
}
