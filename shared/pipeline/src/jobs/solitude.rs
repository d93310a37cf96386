//! How one job runs alone in its process: every shard stops starting handlers, and says when none of its own runs any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::inbox::Wake;

/// What the shards of a process share. Clones are the same; while nobody wants to be alone, it costs one atomic read a turn.
#[derive(Clone, Debug, Default)]
pub struct Solitude(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    wanted: AtomicBool,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    wakes: BTreeMap<u64, Wake>,
    holder: Option<u64>,
    quiet: BTreeSet<u64>,
}

impl Seats {
    fn wake_all(&self) {
        self.wakes.values().for_each(Wake::wake);
    }
}

/// One shard's part.
#[derive(Debug)]
pub(super) struct Seat {
    solitude: Solitude,
    number: u64,
}

impl Solitude {
    /// The part of the shard that `wake` wakes.
    pub(super) fn seat(&self, wake: &Wake) -> Seat {
        let mut seats = self.0.seats.lock();
        seats.last += 1;
        let number = seats.last;
        seats.wakes.insert(number, wake.clone());
        Seat { solitude: self.clone(), number }
    }
}

impl Seat {
    /// Whether nothing may be started here: some shard wants to be alone, or is.
    pub(super) fn is_wanted(&self) -> bool {
        self.solitude.0.wanted.load(Ordering::Acquire)
    }

    /// Asks to be alone; true when it is this shard's turn now.
    pub(super) fn ask(&self) -> bool {
        let mut seats = self.solitude.0.seats.lock();
        if seats.holder.is_none() {
            seats.holder = Some(self.number);
            seats.quiet.clear();
            self.solitude.0.wanted.store(true, Ordering::Release);
            seats.wake_all();
        }
        seats.holder == Some(self.number)
    }

    /// Nothing runs here, and nothing will be started.
    pub(super) fn is_quiet(&self) {
        let mut seats = self.solitude.0.seats.lock();
        if seats.holder.is_some()
            && seats.quiet.insert(self.number)
            && let Some(holder) = seats.holder.and_then(|holder| seats.wakes.get(&holder))
        {
            holder.wake();
        }
    }

    /// Whether nothing runs in the whole process.
    pub(super) fn is_alone(&self) -> bool {
        let seats = self.solitude.0.seats.lock();
        seats.holder == Some(self.number) && seats.wakes.keys().all(|seat| seats.quiet.contains(seat))
    }

    /// Others may go on.
    pub(super) fn give_up(&self) {
        self.solitude.release(self.number);
    }
}

impl Solitude {
    fn release(&self, number: u64) {
        let mut seats = self.0.seats.lock();
        if seats.holder == Some(number) {
            seats.holder = None;
            seats.quiet.clear();
            self.0.wanted.store(false, Ordering::Release);
            seats.wake_all();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.solitude.release(self.number);
        let mut seats = self.solitude.0.seats.lock();
        seats.wakes.remove(&self.number);
        seats.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_alone_when_all_are_quiet_and_the_next_after_it() {
        let solitude = Solitude::default();
        let (a, b) = (solitude.seat(&Wake::default()), solitude.seat(&Wake::default()));
        a.is_quiet();
        assert!(!a.is_wanted() && a.ask() && a.is_wanted() && b.is_wanted());
        assert!(!b.ask(), "one at a time");
        a.is_quiet();
        assert!(!a.is_alone(), "what was quiet before it was asked for does not count");
        b.is_quiet();
        assert!(a.is_alone() && !b.is_alone());
        b.give_up();
        assert!(a.is_alone(), "only its holder gives it up");
        a.give_up();
        assert!(!a.is_wanted() && !a.is_alone());
        assert!(b.ask());
        drop(a);
        b.is_quiet();
        assert!(b.is_alone(), "a shard that is gone is quiet");
        drop(b);
        assert!(!solitude.seat(&Wake::default()).is_wanted());
    }
}
