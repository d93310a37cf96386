//! Which entries of the journal count, and what they make of an item.

use std::fmt;

use super::item::{Item, Replay, RunId, State};
use crate::job::Round;
use crate::position::{Offset, UnixMillis};

/// What an operator orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Run it again.
    Replay {
        /// The round that the record gets: higher than every one that the author knew.
        round: Round,
        /// Also if its key is done.
        forced: bool,
        /// With another value.
        edited: bool,
    },
    /// Nothing is to be done.
    Discard,
    /// Take back a discard, or no longer wait for a replay.
    Reopen,
}

impl Action {
    /// The name in the journal and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replay { .. } => "replay",
            Self::Discard => "discard",
            Self::Reopen => "reopen",
        }
    }
}

/// What became of a record whose round is above 0, by who had it in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It ran and is done; or, of an event, its jobs are there.
    Resolved,
    /// It did not run: its key was done before, in another round or by another job.
    AlreadyDone,
    /// It did not run: a later copy of the same job exists, whose outcome comes.
    Superseded,
    /// It did not run: another job of the same key and payload is alive.
    Coalesced,
    /// It failed, or asked for a wait: a copy runs when this time has come.
    WaitingUntil(UnixMillis),
    /// It is in the dead-letter topic again.
    FailedAgain,
}

impl Answer {
    /// The name in the journal and in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::AlreadyDone => "already-done",
            Self::Superseded => "superseded",
            Self::Coalesced => "coalesced",
            Self::WaitingUntil(_) => "waiting",
            Self::FailedAgain => "failed-again",
        }
    }

    /// How it ends the replay, if it does: a copy that waits or is overtaken by a later one is still to come.
    pub fn end(self) -> Option<End> {
        match self {
            Self::Resolved | Self::AlreadyDone | Self::Coalesced => Some(End::Passed),
            Self::FailedAgain => Some(End::Failed),
            Self::Superseded | Self::WaitingUntil(_) => None,
        }
    }
}

/// How a replay ended, as far as its run is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It did not fail.
    Passed,
    /// It was dead-lettered again.
    Failed,
    /// It was given up: what comes of it says nothing.
    Withdrawn,
}

/// The outcome of one round of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The round. It may be higher than the replay's: a job that takes over its key from another one runs as a later round.
    pub round: Round,
    /// What became of it.
    pub answer: Answer,
}

/// An entry of the journal, as far as it concerns one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// An operator's order.
    Action {
        /// The last accepted entry of the item that its author knew; none: that there is none.
        seen: Option<Offset>,
        /// The run that it belongs to.
        run: RunId,
        /// The order.
        action: Action,
    },
    /// A fact.
    Outcome(Outcome),
    /// The run stopped before the item's replay was published; see [`super::RunState`].
    Release {
        /// The run.
        run: RunId,
    },
    /// The run goes on, and takes back what it released.
    Retake {
        /// The run.
        run: RunId,
    },
}

/// Whether an entry counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Folded {
    /// It does, and is the item's last accepted entry now.
    Accepted,
    /// It does not, and changed nothing.
    Void(Void),
}

/// Why an entry does not count: refusals of orders, and what is said of outcomes that tell nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Void {
    /// Something was accepted meanwhile that its author did not know.
    #[error("the item changed since its author read it: look at it again")]
    Stale,
    /// A replay of it is under way.
    #[error("a replay of it is under way: wait for its outcome, or reopen it to no longer wait")]
    UnderWay,
    /// It is done.
    #[error("it is done already: only a forced replay runs it again")]
    Done,
    /// It is discarded.
    #[error("it is discarded: reopen it first")]
    Discarded,
    /// It is neither discarded nor replaying.
    #[error("it is neither discarded nor replaying: there is nothing to reopen")]
    NothingToReopen,
    /// The round was used before.
    #[error("its round was used before: a replay's round must be higher than every one before")]
    RoundUsed,
    /// Everything that it says is known.
    #[error("it says nothing new")]
    Known,
    /// It is of an older round than the latest replay.
    #[error("it is of an older round than the latest replay")]
    OlderRound,
    /// The run that it belongs to takes no more orders.
    #[error("its run takes no more orders: it was stopped, or closed because its author fell silent")]
    RunClosed,
    /// The run does not hold the item, or released nothing that it could take back.
    #[error("the run does not hold it")]
    NotHeld,
    /// The item had it folded in already: the reader reads the journal again.
    #[error("it was read before")]
    ReadBefore,
}

impl Void {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::Stale,
        Self::UnderWay,
        Self::Done,
        Self::Discarded,
        Self::NothingToReopen,
        Self::RoundUsed,
        Self::Known,
        Self::OlderRound,
        Self::RunClosed,
        Self::NotHeld,
        Self::ReadBefore,
    ];

    /// The reason called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|void| void.as_str() == name)
    }

    /// What the reason called `name` says; a name that is not known stands for itself.
    pub fn words(name: &str) -> String {
        Self::from_name(name).map_or_else(|| name.to_owned(), |void| void.to_string())
    }

    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::UnderWay => "under-way",
            Self::Done => "done",
            Self::Discarded => "discarded",
            Self::NothingToReopen => "nothing-to-reopen",
            Self::RoundUsed => "round-used",
            Self::Known => "known",
            Self::OlderRound => "older-round",
            Self::RunClosed => "run-closed",
            Self::NotHeld => "not-held",
            Self::ReadBefore => "read-before",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Folds the entry that stands at `at` into `item`. Entries must come in the order of their offsets; what comes again is void,
/// so a reader may begin anywhere before the place that its items are from.
pub fn fold(item: &mut Item, at: Offset, entry: &Entry) -> Folded {
    if item.seen.is_some_and(|seen| at <= seen) {
        return Folded::Void(Void::ReadBefore);
    }
    let folded = match entry {
        Entry::Action { seen, .. } if *seen != item.seen => Err(Void::Stale),
        Entry::Action { run, action, .. } => order(item, at, *run, *action),
        Entry::Outcome(outcome) => fact(item, outcome),
        Entry::Release { run } => release(item, *run),
        Entry::Retake { run } => retake(item, *run),
    };
    match folded {
        Ok(changed) => {
            let is_release = matches!(entry, Entry::Release { .. });
            let is_same = changed.state == item.state && changed.answer == item.answer;
            let released = is_release || (changed.released && is_same);
            *item = Item { seen: Some(at), released, ..changed };
            Folded::Accepted
        }
        Err(void) => Folded::Void(void),
    }
}

/// What an order makes of the item.
fn order(item: &Item, at: Offset, run: RunId, action: Action) -> Result<Item, Void> {
    match (action, item.state) {
        (Action::Reopen, State::Discarded | State::Replaying) => {
            Ok(Item { state: State::Open, waiting_until: None, ..*item })
        }
        (Action::Reopen, _) => Err(Void::NothingToReopen),
        (_, State::Discarded) => Err(Void::Discarded),
        // Its record can't be called back: a discard would promise that nothing more happens.
        (_, State::Replaying) => Err(Void::UnderWay),
        (Action::Discard | Action::Replay { forced: false, .. }, State::Resolved | State::AlreadyDone) => {
            Err(Void::Done)
        }
        (Action::Discard, State::Open | State::FailedAgain) => Ok(Item { state: State::Discarded, ..*item }),
        (Action::Replay { round, .. }, _) if round <= item.round => Err(Void::RoundUsed),
        (Action::Replay { round, forced, edited }, _) => {
            let replay = Replay { at, run, round, forced, edited, before: item.state };
            Ok(Item { state: State::Replaying, round, replay: Some(replay), ..*item })
        }
    }
}

/// What the stop of a run makes of an item whose replay it has not published: what the item was before. An outcome says that it was
/// published all the same.
fn release(item: &Item, run: RunId) -> Result<Item, Void> {
    let replay = item.replay.filter(|replay| replay.run == run && item.state == State::Replaying);
    match replay {
        Some(replay) if item.answer.is_none_or(|answer| answer.round < replay.round) => {
            Ok(Item { state: replay.before, ..*item })
        }
        _ => Err(Void::NotHeld),
    }
}

/// What the resumption of a run makes of an item that it released.
fn retake(item: &Item, run: RunId) -> Result<Item, Void> {
    if item.released && item.replay.is_some_and(|replay| replay.run == run) {
        Ok(Item { state: State::Replaying, ..*item })
    } else {
        Err(Void::NotHeld)
    }
}

/// What an outcome makes of the item. Outcomes come late, twice, and of older rounds: they are true all the same, so what they
/// say is weighed, not refused.
fn fact(item: &Item, outcome: &Outcome) -> Result<Item, Void> {
    let is_older = item.replay.is_some_and(|replay| outcome.round < replay.round);
    let mut after = Item { round: item.round.max(outcome.round), ..*item };
    match outcome.answer {
        Answer::Resolved | Answer::AlreadyDone => done(&mut after, outcome, is_older),
        Answer::FailedAgain if !is_older => failed(&mut after, outcome),
        Answer::Coalesced if !is_older && item.state == State::Replaying => {
            after = Item { state: State::Open, waiting_until: None, answer: Some(*outcome), ..after };
        }
        Answer::WaitingUntil(until) if !is_older && item.state == State::Replaying => {
            // The copies of one round wait one after the other: what is due earlier was said earlier.
            if after.waiting_until < Some(until) {
                (after.waiting_until, after.answer) = (Some(until), Some(*outcome));
            }
        }
        Answer::FailedAgain | Answer::Coalesced | Answer::WaitingUntil(_) | Answer::Superseded => {}
    }
    match (after == *item, is_older) {
        (false, _) => Ok(after),
        (true, true) => Err(Void::OlderRound),
        (true, false) => Err(Void::Known),
    }
}

/// Done is done, whatever round it was, and whatever failed since. Only an order to run it although it is done looks further.
fn done(item: &mut Item, outcome: &Outcome, is_older: bool) {
    if item.done >= Some(outcome.round) {
        return;
    }
    item.done = Some(outcome.round);
    if is_older && item.replay.is_some_and(|replay| replay.forced) {
        return;
    }
    item.state = match (outcome.answer, item.state) {
        (Answer::Resolved, _) | (_, State::Resolved) => State::Resolved,
        _ => State::AlreadyDone,
    };
    (item.waiting_until, item.answer) = (None, Some(*outcome));
}

fn failed(item: &mut Item, outcome: &Outcome) {
    if item.done >= Some(outcome.round) || item.state.is_done() {
        return;
    }
    if item.state != State::Discarded {
        item.state = State::FailedAgain;
    }
    (item.waiting_until, item.answer) = (None, Some(*outcome));
}
