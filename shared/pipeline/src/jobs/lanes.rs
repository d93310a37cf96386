//! Order within a partition: jobs of one lane run one after the other, those of different lanes at the same time.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use tidegate_domain::Lane;

/// The lanes of a partition that hold anything. The first job of each is ready or at work; the others follow it.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    followers: FxHashMap<Lane, VecDeque<T>>,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self { followers: FxHashMap::default() }
    }
}

impl<T> Lanes<T> {
    /// Takes a job; gives it back when its lane is free, so that it is ready at once.
    pub(super) fn enter(&mut self, lane: Lane, job: T) -> Option<T> {
        match self.followers.entry(lane) {
            Entry::Occupied(mut occupied) => {
                occupied.get_mut().push_back(job);
                None
            }
            Entry::Vacant(vacant) => {
                vacant.insert(VecDeque::new());
                Some(job)
            }
        }
    }

    /// The first job of the lane left; gives the one that is ready now.
    pub(super) fn leave(&mut self, lane: Lane) -> Option<T> {
        let Entry::Occupied(mut occupied) = self.followers.entry(lane) else { return None };
        let next = occupied.get_mut().pop_front();
        if next.is_none() {
            occupied.remove();
        }
        next
    }

    /// Takes out everything that only follows.
    pub(super) fn take_followers(&mut self) -> impl Iterator<Item = T> + '_ {
        self.followers.values_mut().flat_map(|followers| followers.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_runs_in_order_and_does_not_hold_up_another() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.enter(Lane(1), 'a'), Some('a'));
        assert_eq!(lanes.enter(Lane(1), 'b'), None);
        assert_eq!(lanes.enter(Lane(2), 'x'), Some('x'));
        assert_eq!(lanes.enter(Lane(1), 'c'), None);
        assert_eq!(lanes.leave(Lane(1)), Some('b'));
        assert_eq!(lanes.leave(Lane(1)), Some('c'));
        assert_eq!(lanes.leave(Lane(1)), None);
        assert_eq!(lanes.enter(Lane(1), 'd'), Some('d'), "an empty lane is free again");
    }
}
