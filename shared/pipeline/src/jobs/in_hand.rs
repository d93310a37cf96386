//! One job in hand: what it runs as, what is known of it, and what it waits for.

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::mark::{Phase, Starts, Step};
use tidegate_domain::{Attempt, Hop, Mark, Outcome, Round, UnixMillis};
use tokio::task::AbortHandle;

use super::follow_up::FollowUp;
use super::guard::Admission;
use super::job::Job;
use super::parked::Taken;
use crate::keyed::Key;
use crate::stage::Slot;

/// A job in hand.
#[derive(Debug)]
pub(super) struct InHand {
    pub(super) slot: Slot,
    pub(super) job: Arc<Job>,
    /// The round, hop and attempt that it runs as: the verdict may change the round, in-place retries the attempt.
    pub(super) round: Round,
    pub(super) hop: Hop,
    pub(super) attempt: Attempt,
    /// From when on it waits for its run: an in-place retry's back-off is no wait.
    pub(super) due: UnixMillis,
    /// What was known of the key when it was handed out.
    pub(super) known: Mark,
    /// What its partition had taken in before it.
    pub(super) place: Taken,
    /// What it runs as, while it does.
    pub(super) admission: Option<Admission>,
    /// It is marked as started: care was taken.
    pub(super) careful: bool,
    /// It ends its process, or an equal one did.
    pub(super) kills: bool,
    pub(super) state: State,
}

impl InHand {
    /// What the step says that this very run comes after, if it is `Started`.
    pub(super) fn starts(&self) -> Option<Starts> {
        self.own_step(Phase::Started).map(|step| Starts::of(step.n))
    }

    /// What a step that it is started is to go on counting from. That of an equal job stands before its own, and would hide it, were its
    /// own not greater: whoever comes after a death must find it.
    pub(super) fn starts_so_far(&self) -> Starts {
        let none = Starts { tried: self.tried(), ..Starts::default() };
        let after = |equal: Starts| Starts {
            tried: none.tried.max(equal.tried),
            given_back: equal.given_back + 1,
            ..Starts::default()
        };
        self.starts().or_else(|| self.equal_starts().map(after)).unwrap_or(none)
    }

    /// What the step of another job with its key and payload says, if that is `Started` and this run would be the same step.
    pub(super) fn equal_starts(&self) -> Option<Starts> {
        let equal = self.known.step.filter(|step| {
            step.phase == Phase::Started
                && (step.job != self.job.hash && step.payload == self.job.payload)
                && (step.round, step.hop) == (self.round, self.hop)
        });
        equal.map(|step| Starts::of(step.n))
    }

    /// The phase and `n` of the step that says that its run ended and another one follows in place, where there is anything to say.
    pub(super) fn ended_in_place(&self, tried: u32) -> Option<(Phase, u32)> {
        if !self.careful && self.starts().is_none() {
            return (tried > 0).then_some((Phase::Tried, tried));
        }
        // A later phase wins: what was started with care counts its tries in that phase. It survived this one, and so no later death
        // is its own: where no try is counted, for it snoozes, what was said of this turn is taken back.
        let before = self.starts().unwrap_or_default();
        let ended = if tried > before.tried {
            Starts { tried, ..Starts::default() }
        } else if before.crashes > 0 {
            Starts { given_back: before.given_back + 1, crashes: 0, ..before }
        } else {
            return None;
        };
        Some((Phase::Started, ended.number()))
    }

    /// How often it was tried in place already.
    pub(super) fn tried(&self) -> u32 {
        let started = self.starts().map_or(0, |starts| starts.tried);
        self.own_step(Phase::Tried).map_or(started, |step| step.n)
    }

    /// The known step of this job, if it is of this round, hop and phase.
    pub(super) fn own_step(&self, phase: Phase) -> Option<Step> {
        self.known.step.filter(|step| {
            step.phase == phase
                && step.job == self.job.hash
                && (step.round, step.hop) == (self.round, self.hop)
        })
    }
}

#[derive(Debug)]
pub(super) enum State {
    /// In its lane, or at its head.
    Queued,
    /// At the head of its lane, until its class is probed or heals.
    Parked,
    /// The handler runs on the runtime.
    Running(AbortHandle),
    /// Its `Started` is on its way: it runs when that is acknowledged.
    BeingMarked,
    /// It runs when nothing else does.
    WaitingToBeAlone,
    /// The handler runs again in place when the timer says so.
    WaitingInPlace,
    /// A copy is on its way, or waits to be published again.
    FollowingUp(FollowUp),
}

/// What a handler answered, and how long it took.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) key: Key,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}
