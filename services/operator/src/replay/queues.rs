//! Whether replays of which nothing was heard stand behind records that are not read yet: after an outage, a dead letter that is sent
//! again waits behind all that was published meanwhile.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rustc_hash::FxHashMap;
use tidegate_bootstrap::counted;
use tidegate_domain::{Offset, UnixMillis};
use tidegate_kafka::{GroupLag, KafkaSettings};
use tidegate_pipeline::{Names, TopicPartition};

use crate::error::OperatorError;
use crate::reference::ItemRef;

/// The partitions that replays went to, and how far their group got.
pub(super) struct Queues {
    kafka: KafkaSettings,
    names: Names,
    groups: BTreeMap<String, GroupLag>,
    queues: BTreeMap<TopicPartition, Queue>,
    /// Where the record of each replay stands that this process published last.
    sent: FxHashMap<ItemRef, (TopicPartition, Offset)>,
    /// When it was last looked how far groups got.
    pub(super) looked_at: Option<UnixMillis>,
}

/// What was seen of a partition's group.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    position: Position,
    /// When it was last seen further than the time before.
    moved_at: Option<UnixMillis>,
}

/// How far a group got in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Unknown,
    /// It committed nothing yet.
    Before,
    At(Offset),
}

impl Queue {
    /// It is seen there now.
    fn seen(&mut self, position: Position, now: UnixMillis) {
        let moved = match (self.position, position) {
            (Position::Before, Position::At(_)) => true,
            (Position::At(before), Position::At(now)) => before < now,
            _ => false,
        };
        if moved {
            self.moved_at = Some(now);
        }
        self.position = position;
    }

    /// How many records are to be settled before the one at `offset`; none: that one is settled, or nobody knows.
    fn ahead_of(&self, offset: Offset) -> Option<u64> {
        match self.position {
            Position::At(position) => u64::try_from(offset.0 - position.0).ok(),
            Position::Unknown | Position::Before => None,
        }
    }

    fn moved_since(&self, since: UnixMillis) -> bool {
        self.moved_at.is_some_and(|at| at > since)
    }
}

/// A record that stands behind others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Queued {
    ahead: u64,
    partition: TopicPartition,
    group: String,
}

/// What was seen of replays of which nothing was heard.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Those that stand behind records which their group gets through, by their place among those that were asked for.
    pub(super) queued: Vec<usize>,
    /// The one of them that has most before it, in words.
    pub(super) behind: Option<String>,
    /// The same of those whose group gets no further.
    pub(super) stuck: Option<String>,
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
            self.queues.insert(partition.clone(), Queue::default());
        }
        self.sent.insert(item, (partition, offset));
    }

    /// Looks how far groups got. One that can't be asked hides no other.
    ///
    /// # Errors
    /// The first of them.
    pub(super) fn look(&mut self, now: UnixMillis) -> Result<(), OperatorError> {
        self.looked_at = Some(now);
        let mut of_group: BTreeMap<String, Vec<TopicPartition>> = BTreeMap::new();
        for partition in self.queues.keys() {
            if let Some(group) = group_of(&self.names, partition) {
                of_group.entry(group).or_default().push(partition.clone());
            }
        }
        let mut looked = Ok(());
        for (group, partitions) in of_group {
            match self.positions(&group, &partitions) {
                Ok(positions) => self.seen(&partitions, &positions, now),
                Err(error) => looked = looked.and(Err(error)),
            }
        }
        looked
    }

    fn seen(&mut self, partitions: &[TopicPartition], positions: &[Option<Offset>], now: UnixMillis) {
        for (partition, position) in partitions.iter().zip(positions) {
            if let Some(queue) = self.queues.get_mut(partition) {
                queue.seen(position.map_or(Position::Before, Position::At), now);
            }
        }
    }

    /// Which of these replays stand behind others, by what was seen last. A group that was seen further after `since` gets through them.
    pub(super) fn behind(&self, items: &[ItemRef], since: UnixMillis) -> Seen {
        let (mut queued, mut longest): (_, [Option<Queued>; 2]) = (Vec::new(), [None, None]);
        for (place, item) in items.iter().enumerate() {
            let Some((partition, offset)) = self.sent.get(item) else { continue };
            let Some(queue) = self.queues.get(partition) else { continue };
            let Some(ahead) = queue.ahead_of(*offset) else { continue };
            let moves = queue.moved_since(since);
            if moves {
                queued.push(place);
            }
            let longest = &mut longest[usize::from(moves)];
            if longest.as_ref().is_none_or(|longest| longest.ahead < ahead) {
                let group = group_of(&self.names, partition).unwrap_or_default();
                *longest = Some(Queued { ahead, partition: partition.clone(), group });
            }
        }
        let [stuck, behind] = longest;
        Seen {
            queued,
            behind: behind.map(|queued| queued.told("which", "gets through")),
            stuck: stuck.map(|queued| queued.told("where", "gets no further")),
        }
    }

    fn positions(
        &mut self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Option<Offset>>, OperatorError> {
        let asked = match self.groups.entry(group.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(GroupLag::new(&self.kafka, group)?),
        };
        Ok(asked.committed(partitions)?)
    }
}

impl Queued {
    fn told(&self, what: &str, does: &str) -> String {
        let Self { ahead, partition, group } = self;
        format!("behind {} in {partition}, {what} {group} {does}", counted(*ahead, "record", "records"))
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
    use std::time::Duration;

    use tidegate_domain::Partition;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_764_000_000_000);

    fn after(seconds: u64) -> UnixMillis {
        NOW.after(Duration::from_secs(seconds))
    }

    fn at(offset: i64) -> Option<Offset> {
        Some(Offset(offset))
    }

    /// Replays 0 to 2 stand at 10, 11 and 12 of one partition.
    fn queues() -> (Queues, Vec<TopicPartition>, Vec<ItemRef>) {
        let names = Names::new("shop");
        let partition = TopicPartition { topic: names.jobs("default"), partition: Partition(3) };
        let settings = KafkaSettings {
            bootstrap: "127.0.0.1:1".to_owned(),
            properties: Vec::new(),
            consumer_properties: Vec::new(),
            producer_properties: Vec::new(),
            session_timeout: Duration::from_secs(45),
            max_message_bytes: 1 << 20,
        };
        let mut queues = Queues::new(settings, names);
        let items: Vec<ItemRef> = (0..3).map(ItemRef).collect();
        for (item, offset) in items.iter().zip(10..) {
            queues.sent(*item, partition.clone(), Offset(offset));
        }
        (queues, vec![partition], items)
    }

    #[test]
    fn records_are_queued_while_their_group_gets_further_and_has_not_got_past_them() {
        let (mut queues, partitions, items) = queues();
        queues.seen(&partitions, &[at(3)], NOW);
        assert!(
            queues.behind(&items, UnixMillis(0)).queued.is_empty(),
            "nobody knows whether it gets further"
        );
        queues.seen(&partitions, &[at(11)], after(30));
        let seen = queues.behind(&items, NOW);
        assert_eq!(seen.queued, [1, 2], "the first one is settled, the second is the next");
        let told = "behind 1 record in shop.default.jobs/3, which shop.default.worker gets through";
        assert_eq!((seen.behind.as_deref(), seen.stuck), (Some(told), None));
    }

    #[test]
    fn what_moved_a_moment_ago_and_was_looked_at_since_still_moves() {
        let (mut queues, partitions, items) = queues();
        queues.seen(&partitions, &[None], NOW);
        queues.seen(&partitions, &[at(3)], after(30));
        queues.seen(&partitions, &[at(3)], after(31));
        assert_eq!(queues.behind(&items, after(1)).queued, [0, 1, 2]);
        let seen = queues.behind(&items, after(30));
        assert!(seen.queued.is_empty());
        let told = "behind 9 records in shop.default.jobs/3, where shop.default.worker gets no further";
        assert_eq!((seen.behind, seen.stuck.as_deref()), (None, Some(told)));
    }

    #[test]
    fn a_group_that_committed_nothing_or_is_not_known_holds_nothing_up() {
        let (mut queues, partitions, items) = queues();
        assert!(queues.behind(&items, UnixMillis(0)).queued.is_empty());
        queues.seen(&partitions, &[None], NOW);
        queues.seen(&partitions, &[None], after(1));
        let seen = queues.behind(&items, UnixMillis(0));
        assert!(seen.queued.is_empty() && seen.behind.is_none() && seen.stuck.is_none());
        assert!(queues.behind(&[ItemRef(77)], UnixMillis(0)).queued.is_empty(), "somebody else published it");
    }
}
