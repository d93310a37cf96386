//! Whether this process was cut off from the cluster: it lost its partitions, and lives.
//!
//! What cut it off may have cut off others, who live as well and could not say that they let go of theirs. So for a while, that an
//! owner did not say so is no sign of its death. Should one have died all the same, what killed it is suspected after the next death.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What the shards of a process share. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct CutOff(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    No,
    Lost,
    BackSince(Instant),
}

/// For how long after its first partitions are back others of an outage may come: one rebalance follows another, and each may wait for
/// jobs to end.
const AFTERMATH: Duration = Duration::from_secs(60);

impl CutOff {
    /// Partitions were lost.
    pub(super) fn lost(&self) {
        *self.0.lock() = State::Lost;
    }

    /// Partitions are assigned.
    pub(super) fn assigned(&self, now: Instant) {
        let mut state = self.0.lock();
        if matches!(*state, State::Lost) {
            *state = State::BackSince(now);
        }
    }

    /// Whether others may have been cut off as well.
    pub(super) fn casts_doubt(&self, now: Instant) -> bool {
        match *self.0.lock() {
            State::No => false,
            State::Lost => true,
            State::BackSince(at) => now.saturating_duration_since(at) < AFTERMATH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_lasts_from_the_loss_until_a_while_after_the_first_partitions_are_back() {
        let (cut_off, now) = (CutOff::default(), Instant::now());
        cut_off.assigned(now);
        assert!(!cut_off.casts_doubt(now));
        cut_off.lost();
        assert!(cut_off.casts_doubt(now + 10 * AFTERMATH), "however long it is away");
        let back = now + 10 * AFTERMATH;
        cut_off.assigned(back);
        cut_off.assigned(back + AFTERMATH / 2);
        assert!(cut_off.casts_doubt(back + AFTERMATH / 2));
        assert!(!cut_off.casts_doubt(back + AFTERMATH), "the first ones count");
    }
}
