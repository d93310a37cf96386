//! How many catch-ups go on at once, and that those which read little wait for none that reads much.

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many partitions are restored at once that miss much: each takes a processor, and memory for sorting.
const LARGE_AT_ONCE: usize = 2;
/// How many are that miss little. Each is read in about a second.
const SMALL_AT_ONCE: usize = 2;
/// How many records of the changelog are little: some hundred marks each, where a partition is busy.
const SMALL: i64 = 2_000;

/// How much is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// No more than is soon read.
    Small,
    /// Any number of records.
    Large,
}

impl Extent {
    /// Of so many records.
    pub(super) fn of(records: i64) -> Self {
        if records <= SMALL { Self::Small } else { Self::Large }
    }
}

/// Whose turn it is. Each kind is served in the order of asking.
#[derive(Debug)]
pub(super) struct Turns {
    large: Semaphore,
    small: Semaphore,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { large: Semaphore::new(LARGE_AT_ONCE), small: Semaphore::new(SMALL_AT_ONCE) }
    }

    /// Waits for a turn, which lasts until it is dropped.
    pub(super) async fn wait(&self, extent: Extent) -> Option<SemaphorePermit<'_>> {
        let turns = match extent {
            Extent::Small => &self.small,
            Extent::Large => &self.large,
        };
        // They are never closed.
        turns.acquire().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_misses_little_waits_for_no_restore_that_misses_much() {
        let turns = Turns::new();
        let much = Extent::of(SMALL + 1);
        let first = turns.wait(much).await;
        let _second = turns.wait(much).await;
        assert!(turns.wait(much).now_or_never().is_none(), "each takes a processor");
        assert!(turns.wait(Extent::of(SMALL)).now_or_never().is_some());
        drop(first);
        assert!(turns.wait(much).now_or_never().is_some(), "one ended");
    }

    #[tokio::test]
    async fn no_more_of_a_kind_go_on_at_once_than_the_machine_bears() {
        let turns = Turns::new();
        let _small = (turns.wait(Extent::Small).await, turns.wait(Extent::Small).await);
        assert!(turns.wait(Extent::Small).now_or_never().is_none());
        assert!(turns.wait(Extent::Large).now_or_never().is_some());
    }
}
