//! What is due next, a queue ordered by due time; and how much may wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::position::UnixMillis;

/// Items that wait for their due time. Items due at the same time leave in the order they came.
#[derive(Debug)]
pub struct DueQueue<T> {
    heap: BinaryHeap<Reverse<Waiting<T>>>,
    pushed: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    due: UnixMillis,
    sequence: u64,
    item: T,
}

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<T> DueQueue<T> {
    /// Adds an item.
    pub fn push(&mut self, due: UnixMillis, item: T) {
        self.heap.push(Reverse(Waiting { due, sequence: self.pushed, item }));
        self.pushed += 1;
    }

    /// The due time of the next item.
    pub fn next_due(&self) -> Option<UnixMillis> {
        self.heap.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Takes the next item, with its due time, if it is due at `now`. Never before.
    pub fn pop_due(&mut self, now: UnixMillis) -> Option<(UnixMillis, T)> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(waiting) = self.heap.pop()?;
        Some((waiting.due, waiting.item))
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

/// How many bytes of records may be held by all partitions of a process, and who may have them.
///
/// Half of it is kept free for each partition's own share, in equal parts; the rest goes to whoever asks first. So a flood of
/// one partition leaves room for the others, and a partition alone has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBudget(pub usize);

impl SharedBudget {
    /// How many more bytes a partition may fetch that holds `own` of the `all` bytes that `partitions` hold together. One that
    /// holds nothing may always fetch a record, however large it is: else that record would wait for ever.
    pub fn room(self, own: usize, all: usize, partitions: usize) -> usize {
        let partitions = partitions.max(1);
        let share = self.0 / partitions / 2;
        let common = self.0 - (partitions - 1) * share;
        let room = share.saturating_sub(own).max(common.saturating_sub(all));
        room.max(usize::from(own == 0))
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.sequence) == (other.due, other.sequence)
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Call {
        Push { due: i64 },
        Pop { now: i64 },
    }

    fn calls() -> impl Strategy<Value = Call> {
        prop_oneof![
            3 => (0..20_i64).prop_map(|due| Call::Push { due }),
            2 => (-1..25_i64).prop_map(|now| Call::Pop { now }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_pushed_leaves_once_in_order_and_never_early(calls in vec(calls(), 1..200)) {
            let mut queue = DueQueue::default();
            // Sorted by due time; equal ones stand in the order they came, because the sort is stable.
            let mut naive: Vec<(i64, usize)> = Vec::new();
            for (id, call) in calls.iter().enumerate() {
                match *call {
                    Call::Push { due } => {
                        queue.push(UnixMillis(due), id);
                        naive.push((due, id));
                        naive.sort_by_key(|waiting| waiting.0);
                    }
                    Call::Pop { now } => {
                        let due = naive.first().is_some_and(|first| first.0 <= now).then(|| naive.remove(0));
                        let popped = queue.pop_due(UnixMillis(now));
                        prop_assert_eq!(popped, due.map(|(due, id)| (UnixMillis(due), id)));
                    }
                }
                prop_assert_eq!((queue.len(), queue.is_empty()), (naive.len(), naive.is_empty()));
                prop_assert_eq!(queue.next_due(), naive.first().map(|first| UnixMillis(first.0)));
            }
            let rest: Vec<usize> = std::iter::from_fn(|| queue.pop_due(UnixMillis(i64::MAX))).map(|(_, id)| id).collect();
            prop_assert_eq!(rest, naive.iter().map(|waiting| waiting.1).collect::<Vec<_>>());
            prop_assert_eq!(queue.len(), 0);
        }

        #[test]
        fn partitions_hold_no_more_than_the_budget_and_each_gets_its_share(
            budget in 0..10_000_usize, asking in vec((0..8_usize, 1..2000_usize, any::<bool>()), 1..300),
        ) {
            let mut held = [0; 8];
            for (partition, wanted, frees) in asking {
                if frees {
                    held[partition] = 0;
                    continue;
                }
                let all: usize = held.iter().sum();
                let room = SharedBudget(budget).room(held[partition], all, held.len());
                prop_assert!(room > 0 || held[partition] > 0, "a partition without a record stands still");
                prop_assert!(room + held[partition] >= budget / held.len() / 2);
                held[partition] += wanted.min(room);
                // A record that is let in although there is no room counts one byte here.
                prop_assert!(held.iter().sum::<usize>() <= budget + held.len(), "{held:?}");
            }
        }
    }

    #[test]
    fn items_due_at_the_same_time_leave_in_the_order_they_came() {
        let mut queue = DueQueue::default();
        for id in 0..100 {
            queue.push(UnixMillis(5), id);
        }
        let left: Vec<i32> = std::iter::from_fn(|| queue.pop_due(UnixMillis(5))).map(|(_, id)| id).collect();
        assert_eq!(left, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_partition_alone_has_the_whole_budget_and_one_of_many_its_share_of_a_half() {
        for (own, all, partitions, room) in [
            (0, 0, 1, 100),
            (60, 60, 1, 40),
            (100, 100, 1, 0),
            (0, 0, 10, 55),
            (55, 55, 10, 0),
            (0, 55, 10, 5),
            (3, 100, 10, 2),
            (5, 100, 10, 0),
            (0, 1_000_000, 1000, 1),
            (0, 0, 0, 100),
        ] {
            assert_eq!(SharedBudget(100).room(own, all, partitions), room, "{own} of {all}, {partitions}");
        }
    }

    #[test]
    fn what_is_due_is_told_without_taking_it() {
        let mut queue = DueQueue::default();
        assert_eq!(queue.next_due(), None);
        queue.push(UnixMillis(9), 'b');
        queue.push(UnixMillis(4), 'a');
        assert_eq!(queue.next_due(), Some(UnixMillis(4)));
        assert_eq!(queue.len(), 2);
    }
}
