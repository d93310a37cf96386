//! Committed offsets that a topic does not hold any more: told loudly, never guessed over.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidegate_pipeline::{TopicPartition, events};
use tracing::error;

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
