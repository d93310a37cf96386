//! Whether replays of which nothing was heard stand behind records that are not read yet: after an outage, a dead letter that is sent
//! again waits behind all that was published meanwhile.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rustc_hash::FxHashMap;
use tidegate_bootstrap::counted;
use tidegate_domain::{Offset, UnixMillis};
use tidegate_kafka::{ConnectError, GroupLag, KafkaSettings};
use tidegate_pipeline::{Names, TopicPartition};

use crate::error::OperatorError;
use crate::reference::ItemRef;

/// The partitions that replays went to, and how far their group got.
pub(super) struct Queues {
    kafka: KafkaSettings,
    names: Names,
    groups: BTreeMap<String, GroupLag>,
    queues: BTreeMap<TopicPartition, Position>,
    /// Where the record of each replay stands that this process published last.
    sent: FxHashMap<ItemRef, (TopicPartition, Offset)>,
    /// When it was last looked how far groups got.
    pub(super) looked_at: Option<UnixMillis>,
}

/// How far a group got in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Unknown,
    /// It committed nothing yet.
    Before,
    At(Offset),
}

impl Position {
    /// Whether it was seen that the group got further, from here to `now`.
    fn moves(self, now: Self) -> bool {
        match (self, now) {
            (Self::Unknown, _) | (_, Self::Unknown | Self::Before) => false,
            (Self::Before, Self::At(_)) => true,
            (Self::At(before), Self::At(now)) => before < now,
        }
    }

    /// How many records are to be settled before the one at `offset`; none: that one is settled.
    fn ahead_of(self, offset: Offset) -> Option<u64> {
        match self {
            Self::At(position) => u64::try_from(offset.0 - position.0).ok(),
            Self::Unknown | Self::Before => None,
        }
    }
}

/// A record that stands behind others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    ahead: u64,
    partition: TopicPartition,
    group: String,
}

impl Queued {
    /// Of these, the one that waits longest, in words.
    pub(super) fn longest<'q>(all: impl Iterator<Item = &'q Self>) -> Option<String> {
        all.max_by_key(|queued| queued.ahead).map(|Self { ahead, partition, group }| {
            format!(
                "behind {} in {partition}, which {group} gets through",
                counted(*ahead, "record", "records")
            )
        })
    }
}

impl Queues {
    pub(super) fn new(kafka: KafkaSettings, names: Names) -> Self {
        Self {
            kafka,
            names,
            groups: BTreeMap::new(),
            queues: BTreeMap::new(),
            sent: FxHashMap::default(),
            looked_at: None,
        }
    }

    /// The record of a replay stands there.
    pub(super) fn sent(&mut self, item: ItemRef, partition: TopicPartition, offset: Offset) {
        if !self.queues.contains_key(&partition) {
            self.queues.insert(partition.clone(), Position::Unknown);
        }
        self.sent.insert(item, (partition, offset));
    }

    /// Looks how far groups got.
    pub(super) fn look(&mut self, now: UnixMillis) -> Result<(), OperatorError> {
        self.looked_at = Some(now);
        self.queues = self.ask()?;
        Ok(())
    }

    /// Which of these replays are queued, as their group got further since it was last looked: by their place among `items`.
    pub(super) fn behind(
        &mut self,
        items: &[ItemRef],
        now: UnixMillis,
    ) -> Result<Vec<(usize, Queued)>, OperatorError> {
        let before = self.queues.clone();
        self.look(now)?;
        let queued = |(place, item): (usize, &ItemRef)| {
            let (partition, offset) = self.sent.get(item)?;
            let (before, position) = (before.get(partition)?, self.queues.get(partition)?);
            let ahead = position.ahead_of(*offset).filter(|_| before.moves(*position))?;
            let group = group_of(&self.names, partition)?;
            Some((place, Queued { ahead, partition: partition.clone(), group }))
        };
        Ok(items.iter().enumerate().filter_map(queued).collect())
    }

    fn ask(&mut self) -> Result<BTreeMap<TopicPartition, Position>, OperatorError> {
        let mut of_group: BTreeMap<String, Vec<TopicPartition>> = BTreeMap::new();
        for partition in self.queues.keys() {
            let group = group_of(&self.names, partition);
            of_group.entry(group.unwrap_or_default()).or_default().push(partition.clone());
        }
        let mut found = BTreeMap::new();
        for (group, partitions) in of_group {
            let committed = self.group(&group)?.committed(&partitions)?;
            let position = |offset: Option<Offset>| offset.map_or(Position::Before, Position::At);
            found.extend(partitions.into_iter().zip(committed.into_iter().map(position)));
        }
        Ok(found)
    }

    fn group(&mut self, group: &str) -> Result<&GroupLag, ConnectError> {
        match self.groups.entry(group.to_owned()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => Ok(new.insert(GroupLag::new(&self.kafka, group)?)),
        }
    }
}

/// Who reads a topic that replays go to.
fn group_of(names: &Names, partition: &TopicPartition) -> Option<String> {
    if partition.topic == names.reingest() {
        return Some(names.ingest_group());
    }
    names.tier_of_jobs(partition.topic.as_str()).map(|tier| names.worker_group(tier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_queued_until_its_group_got_past_it() {
        let at = |offset| Position::At(Offset(offset));
        assert_eq!(at(3).ahead_of(Offset(10)), Some(7));
        assert_eq!(at(10).ahead_of(Offset(10)), Some(0), "it is the next one");
        assert_eq!(at(11).ahead_of(Offset(10)), None);
        assert_eq!(
            (Position::Before.ahead_of(Offset(0)), Position::Unknown.ahead_of(Offset(0))),
            (None, None)
        );
    }

    #[test]
    fn a_group_gets_through_what_it_was_seen_to_get_further_in() {
        let (early, late) = (Position::At(Offset(3)), Position::At(Offset(4)));
        assert!(early.moves(late) && Position::Before.moves(early));
        assert!(!early.moves(early) && !late.moves(early) && !Position::Before.moves(Position::Before));
        assert!(!Position::Unknown.moves(early) && !early.moves(Position::Unknown));
    }
}
