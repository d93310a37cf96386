//! Records that may have killed a process: after the owner before us died, what it may have had in hand is run with care.
//!
//! The first time, a packed `Started` is acknowledged before the handler runs, which else costs nothing. What is still `Started`
//! after a second death runs alone in the process. What was alone when a process died is dead-lettered: nothing else ran.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use tidegate_domain::mark::{Phase, Starts};
use tidegate_domain::{Attempt, Failure, FailureKind, Mark};
use tracing::{info, warn};

use super::in_hand::{InHand, State};
use super::job::Ordering;
use super::stage::JobStage;
use crate::keyed::Key;
use crate::ports::MarkEntry;
use crate::stage::Desk;

/// How a job is to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// As usual.
    None,
    /// After its `Started` is acknowledged.
    MarkFirst,
    /// After that, and while nothing else runs.
    Alone,
    /// Not at all.
    NotAtAll,
}

/// How many jobs of a shard wait for the acknowledgement of their `Started` at most, for each that may run: enough that handlers need
/// not wait for it, and few enough to run alone, one by one, should another death follow.
const MARKED_AHEAD: usize = 2;
const MARKED_AHEAD_BOUNDS: RangeInclusive<usize> = 32..=512;

/// The jobs that are to run alone, one after the other.
#[derive(Debug, Default)]
pub(super) struct Loners {
    waiting: VecDeque<Key>,
    /// Whose turn it is.
    current: Option<Key>,
}

impl JobStage {
    /// Starts the job, with as much care as what is known of it asks for.
    pub(super) fn start_with_care(&mut self, key: Key, desk: &mut Desk) {
        match self.care_for(key) {
            // No guard stands in its way: what is marked as alone must run, or a later death is blamed on it.
            Care::None if self.loners.current == Some(key) && self.jobs[key].careful => self.start(key, desk),
            Care::None => self.start_or_park(key, desk),
            Care::MarkFirst => self.mark_started(key, 1, desk),
            // It was judged anew when its turn came.
            Care::Alone if self.loners.current == Some(key) => {
                // Should it end the process, what is settled must not come back with it.
                desk.commit_now();
                self.mark_started(key, 2, desk);
            }
            Care::Alone => {
                self.jobs[key].state = State::WaitingToBeAlone;
                self.loners.waiting.push_back(key);
                desk.again();
            }
            Care::NotAtAll => {
                let message = "its handler ended the process while nothing else ran in it, after it had been \
                               in hand when another process died";
                self.dead_letter_crash(key, message, desk);
            }
        }
    }

    /// Its mark says so: an equal job need not kill three processes more, one of which could bring this one back.
    pub(super) fn dead_letter_crash(&mut self, key: Key, message: &'static str, desk: &mut Desk) {
        warn!(job = ?self.jobs[key].job.header().map(|header| header.job_id()), "a job kills its process: it is dead-lettered");
        self.jobs[key].kills = true;
        self.dead_letter(key, Failure::new(FailureKind::Crash, "crashed-alone", message), desk);
    }

    fn care_for(&mut self, key: Key) -> Care {
        let in_hand = &self.jobs[key];
        let Some(partition) = self.partitions.get_mut(&in_hand.slot) else { return Care::None };
        if !partition.after_death || in_hand.careful {
            return Care::None;
        }
        // While its class is parked it does not run, and what does not run must not be marked as if it did.
        if self.settings.classes[in_hand.job.class.0].guard.is_parked() {
            return Care::None;
        }
        match in_hand.starts().map_or(0, |starts| starts.crashes) {
            0 if partition.suspects == 0 => Care::None,
            // What an equal job did to its process, this one would.
            0 if in_hand.equal_starts().is_some_and(|equal| equal.crashes > 0) => Care::Alone,
            0 => {
                partition.suspects -= 1;
                Care::MarkFirst
            }
            1 => Care::Alone,
            _ => Care::NotAtAll,
        }
    }

    /// Starts the job when this mark is acknowledged.
    fn mark_started(&mut self, key: Key, crashes: u32, desk: &mut Desk) {
        let in_order = self.class(self.jobs[key].job.class).ordering == Ordering::Key;
        let in_hand = &mut self.jobs[key];
        in_hand.careful = true;
        in_hand.state = State::BeingMarked;
        self.being_marked += 1;
        let so_far = in_hand.starts_so_far();
        if in_order {
            // What its mark counts as tried may be an equal job's. Were this attempt not the next one, it would be taken for one that
            // is over, whose back-off is to be waited for: under a mark that says that it runs.
            in_hand.attempt = in_hand.attempt.max(Attempt(so_far.tried.saturating_add(1)));
        }
        self.note_starts(key, Starts { crashes, ..so_far }, desk);
        if let Some(partition) = self.partitions.get_mut(&self.jobs[key].slot) {
            partition.pending.starts.push(key);
        }
    }

    fn note_starts(&mut self, key: Key, starts: Starts, desk: &Desk) {
        let in_hand = &self.jobs[key];
        let step = in_hand.job.step(in_hand.round, in_hand.hop, Phase::Started, starts.number(), desk.wall);
        let entry = MarkEntry { key: in_hand.job.key, mark: Mark::step(step) };
        if let Some(partition) = self.partitions.get_mut(&in_hand.slot) {
            partition.mark(entry, in_hand.known);
        }
    }

    /// The marks of these jobs are acknowledged: they may run.
    pub(super) fn may_start(&mut self, keys: &[Key], desk: &mut Desk) {
        for &key in keys {
            if !self.jobs.get(key).is_some_and(|in_hand| matches!(in_hand.state, State::BeingMarked)) {
                continue;
            }
            self.being_marked -= 1;
            if self.loners.current == Some(key) {
                info!(job = ?self.jobs[key].job.header().map(|header| header.job_id()), "a suspect runs alone");
                self.judge_anew(key, desk);
            } else {
                self.ready_again(key);
            }
        }
    }

    /// Judges a job that waited for its turn outside of the queue: meanwhile, a deposed owner may have done it.
    fn judge_anew(&mut self, key: Key, desk: &mut Desk) {
        let (slot, mut known) = (self.jobs[key].slot, Vec::new());
        // A copy that is being restored may answer, and does not know everything.
        if self.can_go_on(key, desk) && self.look_up(slot, &[key], &mut known, desk) {
            self.jobs[key].state = State::Queued;
            self.judge(key, known[0], desk);
        } else if self.jobs[key].careful {
            self.give_turn_back(key, desk);
        } else {
            self.jobs[key].state = State::WaitingToBeAlone;
        }
    }

    /// The job does not run alone now: others of the process go on, and it is judged again when its partition does. That it runs alone
    /// is in the changelog or on its way there, so that it does not is said after it: a death meanwhile is not its own.
    fn give_turn_back(&mut self, key: Key, desk: &mut Desk) {
        let in_hand = &mut self.jobs[key];
        info!(job = ?in_hand.job.header().map(|header| header.job_id()), "a suspect can't run alone now, because its partition can't go on: others do meanwhile");
        in_hand.careful = false;
        let so_far = in_hand.starts_so_far();
        self.note_starts(key, Starts { given_back: so_far.given_back + 1, crashes: 1, ..so_far }, desk);
        self.ready_again(key);
    }

    /// Whether nothing holds up the job's partition.
    fn can_go_on(&mut self, key: Key, desk: &mut Desk) -> bool {
        let slot = self.jobs[key].slot;
        self.partitions.get_mut(&slot).is_some_and(|partition| {
            partition.may_look_up_again(desk);
            partition.goes_on() && !partition.runs_ahead(desk.now)
        })
    }

    /// How many more jobs of the partition may be handed out: of what may have killed a process, not much more is marked as started
    /// than can be, because whatever is after a second death must run alone.
    pub(super) fn room_for_care(&self, after_death: bool) -> usize {
        if !after_death {
            return usize::MAX;
        }
        let (least, most) = MARKED_AHEAD_BOUNDS.into_inner();
        let ahead = self.settings.concurrency.saturating_mul(MARKED_AHEAD).clamp(least, most);
        ahead.saturating_sub(self.being_marked)
    }

    /// Lets the next one be alone that has to be; true when handlers may be handed out otherwise.
    pub(super) fn see_to_loners(&mut self, desk: &mut Desk) -> bool {
        if let Some(key) = self.loners.current
            && !self.keeps_its_turn(key, desk)
        {
            self.loners.current = None;
            self.solitude.give_up();
        }
        if self.loners.current.is_none()
            && let Some(next) = self.next_loner(desk)
            && self.solitude.ask()
        {
            self.loners.current = self.loners.waiting.remove(next);
        }
        if !self.solitude.is_wanted() {
            return true;
        }
        if self.running == 0 {
            self.solitude.is_quiet();
        }
        if let Some(key) = self.loners.current
            && matches!(self.jobs[key].state, State::WaitingToBeAlone)
            && self.solitude.is_alone()
        {
            // Marked only now: a mark that says "alone" before it is would blame it for another's crash.
            self.judge_anew(key, desk);
        }
        false
    }

    /// Whether the job whose turn it is still needs it. The process must not stand still for one whose own partition can't go on.
    fn keeps_its_turn(&mut self, key: Key, desk: &mut Desk) -> bool {
        match self.jobs.get(key).map(|in_hand| &in_hand.state) {
            Some(State::WaitingToBeAlone) => {
                let goes_on = self.can_go_on(key, desk);
                if !goes_on {
                    self.loners.waiting.push_back(key);
                }
                goes_on
            }
            Some(State::BeingMarked) => {
                let goes_on = self.can_go_on(key, desk);
                if !goes_on {
                    self.being_marked -= 1;
                    self.give_turn_back(key, desk);
                } else if let Some(at) = self.partitions[&self.jobs[key].slot].late_at() {
                    desk.wake_at(at);
                }
                goes_on
            }
            Some(State::Running(_)) => true,
            _ => false,
        }
    }

    /// The place of the first one that waits for its turn and could use it.
    fn next_loner(&mut self, desk: &mut Desk) -> Option<usize> {
        let jobs = &self.jobs;
        let waits = |key: &Key| matches!(jobs.get(*key), Some(InHand { state: State::WaitingToBeAlone, .. }));
        self.loners.waiting.retain(waits);
        (0..self.loners.waiting.len()).find(|&place| self.can_go_on(self.loners.waiting[place], desk))
    }
}
