//! What a group of items is: open, closed, or open again.

use super::item::State;
use crate::position::UnixMillis;

/// When an item began to need attention, and when it ended to: by its dead letter, and by the journal's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Life {
    /// Its first dead letter; of an item that was done or discarded and died again, the one after that.
    pub failed_at: UnixMillis,
    /// When it was done or discarded; none while it is not.
    pub ended_at: Option<UnixMillis>,
}

/// A dead letter of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Death {
    /// When it was dead-lettered.
    pub at: UnixMillis,
    /// It belongs to the group that is asked about: an item fails of one thing now and of another thing later.
    pub is_of_group: bool,
}

/// That an item was done or discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ending {
    /// When.
    pub at: UnixMillis,
    /// When it was taken back, as a discard is by a reopening. What is run again although it is done is done all the same.
    pub taken_back_at: Option<UnixMillis>,
}

/// The lives of an item in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// In order: those that ended, and the one that it has now, if it has one.
    pub all: Vec<Life>,
    /// When it was dead-lettered again although it was done or discarded, and nobody ordered anything about it since. It has no life for
    /// it: nothing waits for a decision, and the group is as it was.
    pub late: Option<UnixMillis>,
}

/// The lives of an item in a group. `state` is what the item is now: what is done or discarded has ended, whatever came since.
pub fn lives(mut deaths: Vec<Death>, mut endings: Vec<Ending>, state: State) -> Lives {
    deaths.sort_unstable();
    endings.sort_unstable();
    let began = |deaths: &[Death]| deaths.iter().find(|death| death.is_of_group).map(|death| death.at);
    let mut all = Vec::new();
    let mut rest = deaths.as_slice();
    for ending in &endings {
        let (before, after) = rest.split_at(rest.partition_point(|death| death.at <= ending.at));
        let in_time = |back: UnixMillis| after.first().is_none_or(|death| death.at > back);
        if before.is_empty() || ending.taken_back_at.is_some_and(in_time) {
            continue;
        }
        all.extend(began(before).map(|failed_at| Life { failed_at, ended_at: Some(ending.at) }));
        rest = after;
    }
    if state.is_end() {
        return Lives { all, late: began(rest) };
    }
    all.extend(began(rest).map(|failed_at| Life { failed_at, ended_at: None }));
    if let Some(last) = all.last_mut()
        && (state.needs_attention() || !rest.is_empty())
    {
        // Somebody gave up a run of what was done.
        last.ended_at = None;
    }
    Lives { all, late: None }
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// Some of its items are not done, and that has been so since the first one.
    Open,
    /// All of its items were done or discarded once, and it failed again since: something of it waits, or is replayed.
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
