//! Where a partition is read from when it is assigned.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};
use tidegate_pipeline::{Names, events};
use tracing::{error, info, warn};

use crate::context::topic_partition;
use crate::lost_place;

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

/// How long a question may take that only tells of a loss: it is not asked again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the offset of each partition: the committed one, or its beginning where the topic does not hold that any more; where the
/// group never committed in the topic, what `start` says; where it did, and the partition is new, its beginning, so that no event is
/// passed over. `forwards_to` is the pipeline of an ingest: that it has jobs shows a first start that is none. Each question to a
/// broker may take `timeout`.
///
/// What `Latest` and `At` mean is committed at once: if the process died before its first commit, they would mean something else
/// at the next start, and events in between would be lost.
pub(crate) fn resolve<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    assigned: &mut TopicPartitionList,
    start_of: impl Fn(&str) -> Start,
    forwards_to: Option<&Names>,
    timeout: Duration,
) -> KafkaResult<()> {
    let committed = consumer.committed_offsets(assigned.clone(), timeout)?;
    let lost = lost_place::find(consumer, &committed, timeout)?;
    // Asked once, before the first start in any topic commits.
    let gone = LazyCell::new(|| {
        forwards_to.is_some_and(|pipeline| lost_place::offsets_are_gone(consumer, pipeline, TIMEOUT))
    });
    let mut starts: BTreeMap<String, Positions> = BTreeMap::new();
    for element in committed.elements() {
        let (topic, partition) = (element.topic(), element.partition());
        let offset = match (element.offset(), start_of(topic)) {
            (Offset::Offset(_), _) if lost.contains(&topic_partition(topic, partition)) => Offset::Beginning,
            (offset @ Offset::Offset(_), _) => offset,
            (_, Start::Earliest) => Offset::Beginning,
            (_, start) => {
                let positions = match starts.entry(topic.to_owned()) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(first_start(consumer, topic, start, || *gone, timeout)?),
                };
                positions.get(&partition).map_or_else(
                    || {
                        info!(
                            topic,
                            partition, "a new partition of a known source is read from its beginning"
                        );
                        Offset::Beginning
                    },
                    |&position| Offset::Offset(position),
                )
            }
        };
        assigned.set_partition_offset(topic, partition, offset)?;
    }
    Ok(())
}

/// Offsets by partition.
type Positions = BTreeMap<i32, i64>;

/// Where the group goes on in the topic: what it has committed there; if nothing, what `start` says of *every* partition, which is
/// committed then. A partition that is not among them came later.
///
/// Instances that start together decide this side by side, each for all partitions: one commit is either seen whole or not at all, so
/// that nobody takes a part of the first start for a new partition. Positions are looked up *before* the question whether there are
/// any. So those that are committed last by an instance which saw none are from before every other's commit, and no event that
/// was published since some instance was ready lies below them.
fn first_start<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    start: Start,
    offsets_are_gone: impl FnOnce() -> bool,
    timeout: Duration,
) -> KafkaResult<Positions> {
    let mut all = TopicPartitionList::new();
    for partition in
        consumer.fetch_metadata(Some(topic), timeout)?.topics().iter().flat_map(|t| t.partitions())
    {
        all.add_partition(topic, partition.id());
    }
    let positions = start_offsets(consumer, &all, start, timeout)?;
    let gone = offsets_are_gone();
    let committed = consumer.committed_offsets(all, timeout)?;
    let known: Positions = committed
        .elements()
        .iter()
        .filter_map(|element| {
            Some((element.partition(), element.offset().to_raw().filter(|&offset| offset >= 0)?))
        })
        .collect();
    if !known.is_empty() {
        return Ok(known);
    }
    let mut first = TopicPartitionList::new();
    for (&partition, &position) in &positions {
        first.add_partition_offset(topic, partition, Offset::Offset(position))?;
    }
    if gone {
        tell_lost_offsets(consumer, topic, start, &positions);
    }
    consumer.commit(&first, CommitMode::Sync)?;
    info!(topic, ?positions, "the first start of this group begins here");
    Ok(positions)
}

/// What the start means now is not what it meant when the group began.
fn tell_lost_offsets<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    start: Start,
    positions: &Positions,
) {
    for (&number, &position) in positions {
        let partition = topic_partition(topic, number);
        let oldest = consumer.fetch_watermarks(topic, number, TIMEOUT).map_or(0, |(low, _)| low);
        if oldest >= position {
            continue;
        }
        error!(
            %partition, oldest, position, ?start,
            "records of this partition may be passed over unread: this group has read before and its offsets are gone, so it begins \
             at `position`, as `start` says; to read what is before, stop ingest, set the group's offsets by \
             kafka-consumer-groups.sh --reset-offsets, and start it again"
        );
        events::offset_out_of_range(&partition);
    }
}

fn start_offsets<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &TopicPartitionList,
    start: Start,
    timeout: Duration,
) -> KafkaResult<Positions> {
    let edge = |element: &TopicPartitionListElem<'_>, start| edge(consumer, element, start, timeout);
    let Start::At(at) = start else {
        return partitions.elements().iter().map(|element| edge(element, start)).collect();
    };
    let millis = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut wanted = partitions.clone();
    wanted.set_all_offsets(Offset::Offset(i64::try_from(millis).unwrap_or(i64::MAX)))?;
    let found = consumer.offsets_for_times(wanted, timeout)?;
    let position = |element: TopicPartitionListElem<'_>| match (element.error(), element.offset()) {
        (Ok(()), Offset::Offset(offset)) => Ok((element.partition(), offset)),
        // Nothing is as young as that: the next record is.
        (Ok(()), Offset::End) => edge(&element, Start::Latest),
        (Err(error), _) => Err(error),
        (Ok(()), other) => {
            let (topic, partition) = (element.topic(), element.partition());
            warn!(topic, partition, ?other, "the broker does not say which offset belongs to the start time");
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::InvalidTimestamp))
        }
    };
    found.elements().into_iter().map(position).collect()
}

fn edge<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    element: &TopicPartitionListElem<'_>,
    start: Start,
    timeout: Duration,
) -> KafkaResult<(i32, i64)> {
    let (low, high) = consumer.fetch_watermarks(element.topic(), element.partition(), timeout)?;
    Ok((element.partition(), if start == Start::Earliest { low } else { high }))
}
