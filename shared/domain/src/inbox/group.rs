//! What a group of items is: open, closed, or open again.

use crate::position::UnixMillis;

/// When an item began to need attention, and when it ended to. Both by the brokers' clocks: the append times of its dead
/// letter and of the journal's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Life {
    /// Its first dead letter; of an item that was done and died again, the one after that.
    pub failed_at: UnixMillis,
    /// When it was done or discarded; none while it is not.
    pub ended_at: Option<UnixMillis>,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// Some of its items are not done, and that has been so since the first one.
    Open,
    /// All of its items were done or discarded once, and it failed again since.
    Regressed,
    /// All of its items are done or discarded.
    Closed,
}

impl GroupState {
    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Regressed => "regressed",
            Self::Closed => "closed",
        }
    }
}

/// Where the group of these items stands. Their order says nothing.
pub fn group_state(lives: impl IntoIterator<Item = Life>) -> GroupState {
    let mut lives: Vec<Life> = lives.into_iter().collect();
    lives.sort_unstable();
    // Until when some item of those so far is open; none: still.
    let mut open_until = lives.first().and_then(|first| first.ended_at);
    let mut had_a_rest = false;
    for life in lives.iter().skip(1) {
        let Some(until) = open_until else { break };
        if life.failed_at > until {
            had_a_rest = true;
        }
        open_until = life.ended_at.map(|ended| ended.max(until));
    }
    match (open_until.is_some() || lives.is_empty(), had_a_rest) {
        (true, _) => GroupState::Closed,
        (false, true) => GroupState::Regressed,
        (false, false) => GroupState::Open,
    }
}
