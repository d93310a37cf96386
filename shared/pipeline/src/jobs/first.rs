//! Whether a process that just started has what it needs to work on the partitions that it got first: their marks.
//!
//! A deployment takes the next process away when this one says that it is ready. What comes later, in a rebalance, is restored beside
//! the partitions that are at work, and makes nothing unready.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;

use crate::record::TopicPartition;

/// The first partitions of a group's member, as its shards tell. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct FirstPartitions(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    any: bool,
    /// Those whose marks are not there yet.
    opening: BTreeSet<TopicPartition>,
    over: bool,
}

/// How long a member that joined may have no partitions before it counts as one that needs none. Others hand theirs over in a second
/// rebalance, which follows the first at once, or when what they run has ended.
const NONE_AFTER: Duration = Duration::from_secs(5);

impl FirstPartitions {
    /// Ends when the marks of all partitions of the member are there for the first time, or when it has none. To be asked once it has
    /// joined.
    pub async fn restored(&self) {
        let mut changes = self.0.subscribe();
        let some = async { while !self.is(|state| state.any) && changes.changed().await.is_ok() {} };
        if tokio::time::timeout(NONE_AFTER, some).await.is_ok() {
            while !self.is(|state| state.opening.is_empty()) && changes.changed().await.is_ok() {}
        }
        self.0.send_modify(|state| state.over = true);
    }

    fn is(&self, so: impl FnOnce(&State) -> bool) -> bool {
        so(&self.0.borrow())
    }

    /// A partition came.
    pub(super) fn assigned(&self, partition: &TopicPartition) {
        self.0.send_if_modified(|state| {
            if !state.over {
                state.any = true;
                state.opening.insert(partition.clone());
            }
            !state.over
        });
    }

    /// Its marks are there, or it left.
    pub(super) fn needs_nothing(&self, partition: &TopicPartition) {
        self.0.send_if_modified(|state| state.opening.remove(partition));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tidegate_domain::{Partition, Topic};

    use super::*;

    fn partition(number: i32) -> TopicPartition {
        TopicPartition { topic: Topic::new("tg.default.jobs"), partition: Partition(number) }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_all_first_partitions_have_their_marks_or_left() {
        let first = FirstPartitions::default();
        (0..3).for_each(|number| first.assigned(&partition(number)));
        let waits = first.clone();
        let mut over = tokio::spawn(async move { waits.restored().await });
        first.needs_nothing(&partition(0));
        first.needs_nothing(&partition(2));
        tokio::time::sleep(NONE_AFTER * 100).await;
        assert!((&mut over).now_or_never().is_none(), "one is being restored");
        first.needs_nothing(&partition(1));
        over.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_come_in_a_second_rebalance_count_and_those_that_come_later_do_not() {
        let first = FirstPartitions::default();
        let waits = first.clone();
        let mut over = tokio::spawn(async move { waits.restored().await });
        tokio::time::sleep(NONE_AFTER / 2).await;
        first.assigned(&partition(0));
        tokio::time::sleep(NONE_AFTER).await;
        assert!((&mut over).now_or_never().is_none());
        first.needs_nothing(&partition(0));
        over.await.unwrap();
        first.assigned(&partition(1));
        first.restored().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_without_partitions_needs_none() {
        let began = tokio::time::Instant::now();
        FirstPartitions::default().restored().await;
        assert_eq!(began.elapsed(), NONE_AFTER);
    }
}
