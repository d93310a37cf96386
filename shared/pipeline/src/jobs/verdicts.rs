//! Hand-out: verdicts over the jobs that are ready, one look-up for many of them.

use std::time::Duration;

use tidegate_domain::mark::{Phase, Skip};
use tidegate_domain::{
    Attempt, Failure, FailureKind, Hop, IdempotencyKey, JobHash, Mark, Round, UnixMillis, Verdict, mark,
};
use tokio::time::Instant;
use tracing::debug;

use super::in_hand::State;
use super::job::{Conflicts, Ordering};
use super::outcome::Told;
use super::stage::{JobStage, share};
use crate::events;
use crate::keyed::Key;
use crate::ports::{MarkStoreError, RETRY_PAUSE};
use crate::stage::{Desk, Slot};

/// How many verdicts share one look-up.
const LOOK_UP: usize = 512;

impl JobStage {
    /// Hands out what is ready, as far as handlers may run; true when anything was. The partitions take turns: one with much to do
    /// does not keep the places from the others.
    pub(super) fn hand_out(&mut self, desk: &mut Desk) -> bool {
        let mut handed_out = false;
        let mut slots: Vec<Slot> = self.partitions.keys().copied().collect();
        let served = slots.iter().position(|&slot| Some(slot) > self.last_served).unwrap_or(0);
        slots.rotate_left(served);
        for slot in slots {
            while self.running < self.settings.concurrency && self.hand_out_some(slot, desk) {
                handed_out = true;
                self.last_served = Some(slot);
            }
        }
        handed_out
    }

    fn hand_out_some(&mut self, slot: Slot, desk: &mut Desk) -> bool {
        let free = self.settings.concurrency - self.running;
        let Some(partition) = self.partitions.get_mut(&slot) else { return false };
        partition.may_look_up_again(desk);
        if !partition.goes_on() || partition.ready.is_empty() || partition.runs_ahead(desk.now) {
            return false;
        }
        // No more than may run: what is looked up and put back is looked up again.
        let (ready, after_death) = (partition.ready.len(), partition.after_death);
        let count = ready.min(LOOK_UP).min(free).min(self.room_for_care(after_death));
        let Some(partition) = self.partitions.get_mut(&slot).filter(|_| count > 0) else { return false };
        let batch: Vec<Key> = partition.ready.drain(..count).collect();
        let mut known = Vec::with_capacity(batch.len());
        if !self.look_up(slot, &batch, &mut known, desk) {
            self.put_back(slot, &batch);
            return false;
        }
        for (done, (&key, &known)) in batch.iter().zip(&known).enumerate() {
            if !self.may_hand_out(slot, desk.now) {
                self.put_back(slot, &batch[done..]);
                break;
            }
            self.judge(key, known, desk);
        }
        true
    }

    fn may_hand_out(&self, slot: Slot, now: Instant) -> bool {
        self.partitions.get(&slot).is_some_and(|partition| partition.goes_on() && !partition.runs_ahead(now))
    }

    fn put_back(&mut self, slot: Slot, keys: &[Key]) {
        let Some(partition) = self.partitions.get_mut(&slot) else { return };
        for &key in keys.iter().rev() {
            partition.ready.push_front(key);
        }
    }

    /// What the store knows of the batch's keys; a mark on its way is laid over it.
    pub(super) fn look_up(
        &mut self,
        slot: Slot,
        batch: &[Key],
        known: &mut Vec<Mark>,
        desk: &mut Desk,
    ) -> bool {
        let Some(partition) = self.partitions.get_mut(&slot) else { return false };
        let keys: Vec<IdempotencyKey> = batch.iter().map(|&key| self.jobs[key].job.key).collect();
        let answer = self.ports.marks.look_up(&partition.at, &keys, known);
        debug_assert!(answer.is_err() || known.len() == keys.len(), "one mark for each key");
        let Err(error) = answer else {
            partition.trouble_over(slot, desk);
            return true;
        };
        events::mark_error();
        if matches!(error, MarkStoreError::NotOpen(_)) {
            partition.open_again(desk);
        }
        desk.trouble(slot, error.to_string());
        desk.wake_after(RETRY_PAUSE);
        partition.look_up_again_at = Some(desk.now + RETRY_PAUSE);
        false
    }

    pub(super) fn judge(&mut self, key: Key, stored: Mark, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        let Some(partition) = self.partitions.get(&in_hand.slot) else { return };
        let job = &in_hand.job;
        // Both: a deposed owner's mark may have come into the store while ours is on its way.
        let known = partition.overlay.get(&job.key).map_or(stored, |on_its_way| on_its_way.join(stored));
        let mut arrival = job.arrival();
        (arrival.round, arrival.hop) = (in_hand.round, in_hand.hop);
        let verdict = mark::verdict(&known, &arrival, desk.wall, self.settings.belief);
        if verdict != Verdict::Run {
            debug!(?verdict, job = ?job.header().map(|h| h.job_id()), "verdict");
        }
        self.jobs[key].known = known;
        match verdict {
            Verdict::Run => self.run(key, desk),
            Verdict::RunOrphaned => {
                let class = self.jobs[key].job.class;
                self.run(key, desk);
                // What is parked is judged again before it runs.
                if !self.jobs.get(key).is_some_and(|in_hand| matches!(in_hand.state, State::Parked)) {
                    self.class(class).metrics.orphaned.increment(1);
                }
            }
            Verdict::RunAsRound(_) if known.killed_by_an_equal(&arrival).is_some() => {
                self.dead_letter_crash(
                    key,
                    "an equal job of its key ended its process while nothing else ran",
                    desk,
                );
            }
            Verdict::RunAsRound(round) => {
                let in_hand = &mut self.jobs[key];
                (in_hand.round, in_hand.hop, in_hand.attempt) = (round, Hop(0), Attempt(1));
                self.run(key, desk);
            }
            Verdict::Skip(skip) => self.skip(key, Some(skip), desk),
            Verdict::Conflict { first, done } => self.conflict(key, first, done, desk),
        }
    }

    fn run(&mut self, key: Key, desk: &mut Desk) {
        if let Some(failure) = self.too_old(key, desk.wall) {
            return self.dead_letter(key, failure, desk);
        }
        match self.wait_left_in_place(key, desk) {
            Some(wait) => {
                let in_hand = &mut self.jobs[key];
                (in_hand.state, in_hand.due) = (State::WaitingInPlace, desk.wall.after(wait));
                self.timers.push(std::cmp::Reverse((desk.now + wait, key)));
            }
            None => self.start_with_care(key, desk),
        }
    }

    /// What a class says of jobs that come too late to be of use. An operator's replay is an order to run it all the same.
    fn too_old(&self, key: Key, now: UnixMillis) -> Option<Failure> {
        let in_hand = &self.jobs[key];
        let max_age = self.class(in_hand.job.class).max_age?;
        let age = now.since(in_hand.job.first_seen);
        let too_old = in_hand.job.round == Round(0) && age > max_age;
        too_old.then(|| {
            Failure::permanent("too-old", format!("the job is {age:?} old and its class allows {max_age:?}"))
        })
    }

    /// A job that was tried in place by an owner before us goes on counting, and waits from that try's time.
    fn wait_left_in_place(&mut self, key: Key, desk: &Desk) -> Option<Duration> {
        let in_hand = &self.jobs[key];
        let class = self.class(in_hand.job.class);
        let step = in_hand.own_step(Phase::Tried).or(in_hand.own_step(Phase::Started))?;
        let tried = Attempt(in_hand.tried());
        if class.ordering != Ordering::Key || tried < in_hand.attempt {
            return None;
        }
        let any = Failure::transient("tried-in-place", "");
        let wait = class.ladder.in_place(tried, &any, self.ports.clock.draw());
        // No longer than the wait itself, where the clock was set back since.
        let left = step.written_at.after(wait).since(desk.wall).min(wait);
        self.jobs[key].attempt = Attempt(tried.0 + 1);
        (!left.is_zero()).then_some(left)
    }

    /// The record needs no run.
    pub(super) fn skip(&mut self, key: Key, skip: Option<Skip>, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        self.class(in_hand.job.class).metrics.duplicate(skip);
        let (slot, (offset, bytes)) = (in_hand.slot, share(&in_hand.job));
        let key_of_job = in_hand.job.key;
        let owed = self.owed(key, &Told::skipped(skip), desk.wall);
        if let Some(partition) = self.partitions.get_mut(&slot) {
            match owed {
                owed if partition.settles_with_batch(&key_of_job) => {
                    partition.settle_with_batch((offset, bytes), owed);
                }
                Some(owed) => self.reports.report(slot, Some(owed.share), *owed.entry, desk),
                None => desk.settle(slot, offset, bytes),
            }
        }
        self.leave(key);
    }

    fn conflict(&mut self, key: Key, first: JobHash, done: bool, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        if done && self.class(in_hand.job.class).on_conflict == Conflicts::Skip {
            return self.skip(key, None, desk);
        }
        let state = if done { "done" } else { "alive" };
        let message =
            format!("another job with this key and another payload is {state}: its hash is {:08x}", first.0);
        self.dead_letter(key, Failure::new(FailureKind::Conflict, format!("key-{state}"), message), desk);
    }
}
