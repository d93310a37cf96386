//! What is due next: a queue ordered by due time and bounded in bytes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::position::UnixMillis;

/// Items that wait for their due time. Items due at the same time leave in the order they came.
#[derive(Debug)]
pub struct DueQueue<T> {
    heap: BinaryHeap<Reverse<Waiting<T>>>,
    bytes: usize,
    bound: usize,
    pushed: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    due: UnixMillis,
    sequence: u64,
    bytes: usize,
    item: T,
}

impl<T> DueQueue<T> {
    /// A queue that has room until its items hold `bound` bytes.
    pub fn new(bound: usize) -> Self {
        Self { heap: BinaryHeap::new(), bytes: 0, bound, pushed: 0 }
    }

    /// Whether another item may be pushed. One item larger than the bound still fits into an empty queue.
    pub fn has_room(&self) -> bool {
        self.bytes < self.bound || self.heap.is_empty()
    }

    /// Adds an item that holds `bytes`. The caller asks [`Self::has_room`] before it fetches; what was fetched is kept.
    pub fn push(&mut self, due: UnixMillis, bytes: usize, item: T) {
        self.bytes += bytes;
        self.heap.push(Reverse(Waiting { due, sequence: self.pushed, bytes, item }));
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
        self.bytes -= waiting.bytes;
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

    /// How many bytes the waiting items hold.
    pub fn bytes(&self) -> usize {
        self.bytes
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
        Push { due: i64, bytes: usize },
        Pop { now: i64 },
    }

    fn calls() -> impl Strategy<Value = Call> {
        prop_oneof![
            3 => (0..20_i64, 0..50_usize).prop_map(|(due, bytes)| Call::Push { due, bytes }),
            2 => (-1..25_i64).prop_map(|now| Call::Pop { now }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_pushed_leaves_once_in_order_and_never_early(calls in vec(calls(), 1..200), bound in 0..300_usize) {
            let mut queue = DueQueue::new(bound);
            // Sorted by due time; equal ones stand in the order they came, because the sort is stable.
            let mut naive: Vec<(i64, usize, usize)> = Vec::new();
            for (id, call) in calls.iter().enumerate() {
                match *call {
                    Call::Push { due, bytes } => {
                        queue.push(UnixMillis(due), bytes, id);
                        naive.push((due, bytes, id));
                        naive.sort_by_key(|waiting| waiting.0);
                    }
                    Call::Pop { now } => {
                        let due = naive.first().is_some_and(|first| first.0 <= now).then(|| naive.remove(0));
                        let popped = queue.pop_due(UnixMillis(now));
                        prop_assert_eq!(popped, due.map(|(due, _, id)| (UnixMillis(due), id)));
                    }
                }
                let bytes: usize = naive.iter().map(|waiting| waiting.1).sum();
                prop_assert_eq!((queue.len(), queue.bytes()), (naive.len(), bytes));
                prop_assert_eq!(queue.is_empty(), naive.is_empty());
                prop_assert_eq!(queue.next_due(), naive.first().map(|first| UnixMillis(first.0)));
                prop_assert_eq!(queue.has_room(), bytes < bound || naive.is_empty());
            }
            let rest: Vec<usize> = std::iter::from_fn(|| queue.pop_due(UnixMillis(i64::MAX))).map(|(_, id)| id).collect();
            prop_assert_eq!(rest, naive.iter().map(|waiting| waiting.2).collect::<Vec<_>>());
            prop_assert_eq!((queue.len(), queue.bytes()), (0, 0));
        }
    }

    #[test]
    fn items_due_at_the_same_time_leave_in_the_order_they_came() {
        let mut queue = DueQueue::new(1);
        for id in 0..100 {
            queue.push(UnixMillis(5), 1, id);
        }
        let left: Vec<i32> = std::iter::from_fn(|| queue.pop_due(UnixMillis(5))).map(|(_, id)| id).collect();
        assert_eq!(left, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn one_item_larger_than_the_bound_fits_into_an_empty_queue() {
        for bound in [0, 10] {
            let mut queue = DueQueue::new(bound);
            assert!(queue.has_room());
            queue.push(UnixMillis(1), 1_000_000, "large");
            assert!(!queue.has_room());
            assert_eq!(queue.pop_due(UnixMillis(0)), None);
            assert_eq!(queue.pop_due(UnixMillis(1)), Some((UnixMillis(1), "large")));
            assert!(queue.has_room());
        }
    }

    #[test]
    fn what_is_due_is_told_without_taking_it() {
        let mut queue = DueQueue::new(10);
        assert_eq!(queue.next_due(), None);
        queue.push(UnixMillis(9), 3, 'b');
        queue.push(UnixMillis(4), 3, 'a');
        assert_eq!(queue.next_due(), Some(UnixMillis(4)));
        assert_eq!(queue.len(), 2);
    }
}
