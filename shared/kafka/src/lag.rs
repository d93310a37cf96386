//! How far consumer groups are behind, as an onlooker sees it.

use std::collections::BTreeMap;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::{Offset as NativeOffset, TopicPartitionList};
use tidegate_domain::Offset;
use tidegate_pipeline::TopicPartition;

use crate::look::{self, Reports};
use crate::native::add_brokers;
use crate::settings::{ConnectError, KafkaSettings, LOOK_TIMEOUT};
use crate::topics::TopicError;

/// Looks at the positions of one group without being a member of it.
pub struct GroupLag {
    consumer: BaseConsumer<Reports>,
    bootstrap: String,
}

impl std::fmt::Debug for GroupLag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupLag").finish_non_exhaustive()
    }
}

impl GroupLag {
    /// An onlooker of `group`; nothing is asked yet.
    pub fn new(settings: &KafkaSettings, group: &str) -> Result<Self, ConnectError> {
        let mut config = settings.client("lag");
        // It never subscribes and never commits: the group's name is all that it shares with its members.
        config.set("group.id", group).set("enable.auto.commit", "false");
        Ok(Self { consumer: look::client(config)?, bootstrap: settings.bootstrap.clone() })
    }

    /// How many records of each topic, given with its partitions, lie behind the group's positions: from its beginning, where the
    /// group has none. Blocks.
    pub fn of(&self, topics: &[(&str, u32)]) -> Result<BTreeMap<String, u64>, TopicError> {
        // Brokers that do not answer take ten seconds to be given up, so this happens seldom.
        self.ask(topics).inspect_err(|_| add_brokers(&self.consumer, &self.bootstrap))
    }

    /// Where the group goes on in each of these partitions, in their order; none: it committed nothing there. Blocks.
    pub fn committed(&self, partitions: &[TopicPartition]) -> Result<Vec<Option<Offset>>, TopicError> {
        let mut asked = TopicPartitionList::new();
        for TopicPartition { topic, partition } in partitions {
            asked.add_partition(topic.as_str(), partition.0);
        }
        let answer = self.consumer.committed_offsets(asked, LOOK_TIMEOUT);
        let committed = answer
            .map_err(TopicError::Request)
            .inspect_err(|_| add_brokers(&self.consumer, &self.bootstrap))?;
        let position = |TopicPartition { topic, partition }: &TopicPartition| {
            let Some(found) = committed.find_partition(topic.as_str(), partition.0) else { return Ok(None) };
            found.error().map_err(TopicError::Request)?;
            match found.offset() {
                NativeOffset::Offset(offset) => Ok(Some(Offset(offset))),
                _ => Ok(None),
            }
        };
        partitions.iter().map(position).collect()
    }

    fn ask(&self, topics: &[(&str, u32)]) -> Result<BTreeMap<String, u64>, TopicError> {
        let mut all = TopicPartitionList::new();
        for (topic, partitions) in topics {
            for partition in 0..i32::try_from(*partitions).unwrap_or(i32::MAX) {
                all.add_partition(topic, partition);
            }
        }
        let committed = self.consumer.committed_offsets(all, LOOK_TIMEOUT).map_err(TopicError::Request)?;
        let mut lags: BTreeMap<String, u64> = BTreeMap::new();
        for element in committed.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            let bounds = self.consumer.fetch_watermarks(topic, partition, LOOK_TIMEOUT);
            let (first, end) = bounds.map_err(TopicError::Request)?;
            let position = match element.offset() {
                NativeOffset::Offset(offset) => offset.max(first),
                _ => first,
            };
            *lags.entry(topic.to_owned()).or_default() += u64::try_from(end - position).unwrap_or(0);
        }
        Ok(lags)
    }
}
