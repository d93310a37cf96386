//! Running handlers: polled once at once, and on the runtime if they must wait; and what their outcome leads to.

use std::any::Any;
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::task::noop_waker_ref;
use tidegate_domain::inbox::Answer;
use tidegate_domain::ladder::{LastStraw, Limits, Next};
use tidegate_domain::mark::{Mark, Phase};
use tidegate_domain::{Attempt, Failure, FailureKind, Outcome};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::in_hand::{Finished, State};
use super::job::Ordering;
use super::outcome::Told;
use super::stage::{JobStage, share};
use crate::keyed::Key;
use crate::ports::MarkEntry;
use crate::stage::Desk;

impl JobStage {
    /// Runs the handler. Most of what can end at once does so here, without a task of its own.
    pub(super) fn start(&mut self, key: Key, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        let slot = in_hand.slot;
        let job = in_hand.job.running_as(in_hand.round, in_hand.hop, in_hand.attempt);
        let class = self.class(job.class);
        class.metrics.wait.record(desk.wall.since(in_hand.due).as_secs_f64());
        let time_limit = class.time_limit;
        let started = Instant::now();
        let first = {
            // Timers and sockets that the handler makes belong to the runtime where it goes on.
            let _runtime = self.ports.runtime.enter();
            poll_once(|| self.ports.handlers[job.class.0].call(job.clone()))
        };
        let future = match first {
            First::Ended(outcome) => return self.conclude(key, outcome, started.elapsed(), desk),
            First::Waits(future) => future,
        };
        self.class(self.jobs[key].job.class).metrics.in_flight.increment(1.0);
        let finished = self.finished.clone();
        let task = self.ports.runtime.spawn(async move {
            let run = async {
                let ended = tokio::time::timeout(time_limit, future).await;
                ended.unwrap_or_else(|_| Outcome::Failed(overrun(time_limit)))
            };
            // Around it all: a handler may panic also when it is dropped at its limit.
            let outcome = AssertUnwindSafe(run).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|panic| Outcome::Failed(panicked(&*panic)));
            finished.push(Finished { key, outcome, took: started.elapsed() });
        });
        self.running += 1;
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.running += 1;
        }
        self.jobs[key].state = State::Running(task.abort_handle());
    }

    /// What follows from a handler's answer.
    pub(super) fn conclude(&mut self, key: Key, outcome: Outcome, took: Duration, desk: &mut Desk) {
        if matches!(self.jobs[key].state, State::Running(_)) {
            self.class(self.jobs[key].job.class).metrics.in_flight.decrement(1.0);
        }
        self.class(self.jobs[key].job.class).metrics.processing.record(took.as_secs_f64());
        self.weigh(key, &outcome, desk.now);
        match outcome {
            Outcome::Done => self.done(key, desk),
            Outcome::Failed(failure) => self.failed(key, failure, desk),
            Outcome::Snooze(wait) => self.snooze(key, wait, desk),
        }
    }

    fn done(&mut self, key: Key, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        let job = &in_hand.job;
        let step = job.step(in_hand.round, in_hand.hop, Phase::Tried, in_hand.attempt.0, desk.wall);
        let entry = MarkEntry { key: job.key, mark: Mark::done(step) };
        let (slot, known, share) = (in_hand.slot, in_hand.known, share(job));
        self.class(job.class).metrics.done.increment(1);
        let owed = self.owed(key, &Told::just(Answer::Resolved), desk.wall);
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.mark(entry, known);
            partition.settle_with_batch(share, owed);
        }
        self.leave(key);
    }

    fn failed(&mut self, key: Key, failure: Failure, desk: &mut Desk) {
        desk.refresh(&*self.ports.clock);
        let in_hand = &self.jobs[key];
        let class = self.class(in_hand.job.class);
        class.metrics.failed(failure.kind);
        if failure.code == OVERRUN {
            class.metrics.overruns.increment(1);
        }
        debug!(job = ?in_hand.job.header().map(|h| h.job_id()), attempt = in_hand.attempt.0, %failure, "attempt failed");
        if self.told_failures.allows(&in_hand.job.class) {
            // One of many is enough to know that something fails; the metric counts them all.
            warn!(class = class.name, %failure, "attempts of this class fail; told at most every ten seconds");
        }
        let limits = Limits {
            max_attempts: class.max_attempts,
            max_age: class.max_age,
            first_seen: in_hand.job.first_seen,
        };
        let draw = self.ports.clock.draw();
        let (attempt, ordering) = (in_hand.attempt, class.ordering);
        match class.ladder.after_failure(attempt, &failure, &limits, desk.wall, draw) {
            Next::Wait(_) if ordering == Ordering::Key => {
                let wait = class.ladder.in_place(attempt, &failure, draw);
                self.wait_in_place(key, Attempt(attempt.0 + 1), wait, desk);
            }
            Next::Wait(wait) => self.schedule(key, wait, Some(failure), desk),
            Next::DeadLetter(straw) => self.dead_letter(key, last_words(failure, straw, attempt), desk),
        }
    }

    fn snooze(&mut self, key: Key, wait: Duration, desk: &mut Desk) {
        desk.refresh(&*self.ports.clock);
        let in_hand = &self.jobs[key];
        let class = self.class(in_hand.job.class);
        class.metrics.snoozed.increment(1);
        let attempt = in_hand.attempt;
        if class.ordering == Ordering::Key {
            self.wait_in_place(key, attempt, wait, desk);
        } else {
            let wait = class.ladder.snooze(attempt, wait, desk.wall);
            self.schedule(key, wait, None, desk);
        }
    }

    /// The job stays at the head of its lane. The mark counts the attempts, so that a restart does not begin anew.
    fn wait_in_place(&mut self, key: Key, next: Attempt, wait: Duration, desk: &mut Desk) {
        let in_hand = &mut self.jobs[key];
        let tried = next.0 - 1;
        in_hand.attempt = next;
        in_hand.due = desk.wall.after(wait);
        in_hand.state = State::WaitingInPlace;
        if let Some((phase, n)) = in_hand.ended_in_place(tried) {
            let step = in_hand.job.step(in_hand.round, in_hand.hop, phase, n, desk.wall);
            let entry = MarkEntry { key: in_hand.job.key, mark: Mark::step(step) };
            let (slot, known) = (in_hand.slot, in_hand.known);
            if let Some(partition) = self.partitions.get_mut(&slot) {
                partition.mark(entry, known);
            }
        }
        let until = self.jobs[key].due;
        self.tell_meanwhile(key, &Told::just(Answer::WaitingUntil(until)), desk);
        if self.partitions.get(&self.jobs[key].slot).is_some_and(|p| p.draining) {
            // The next owner goes on with it; the mark tells how far it came.
            self.jobs.remove(key);
        } else {
            self.timers.push(Reverse((desk.now + wait, key)));
        }
    }
}

/// The code of failures by the time limit.
const OVERRUN: &str = "time-limit";

enum First {
    Ended(Outcome),
    Waits(BoxFuture<'static, Outcome>),
}

fn poll_once(call: impl FnOnce() -> BoxFuture<'static, Outcome>) -> First {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let mut future = call();
        // The runtime polls it again at once if it waits, so no wake is lost.
        match future.poll_unpin(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(outcome) => First::Ended(outcome),
            Poll::Pending => First::Waits(future),
        }
    }));
    polled.unwrap_or_else(|panic| First::Ended(Outcome::Failed(panicked(&*panic))))
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let message = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Failure::transient("panic", format!("the handler panicked: {message}"))
}

fn overrun(limit: Duration) -> Failure {
    let message = format!("the handler was cancelled at its time limit of {limit:?}");
    Failure::new(FailureKind::Timeout, OVERRUN, message)
}

fn last_words(mut failure: Failure, straw: LastStraw, attempt: Attempt) -> Failure {
    match straw {
        LastStraw::Hopeless => {}
        LastStraw::AttemptsUsedUp => {
            failure.message = format!("{} (after {} attempts)", failure.message, attempt.0);
        }
        LastStraw::TooOld => {
            failure.message =
                format!("{} (older than its class allows, attempt {})", failure.message, attempt.0);
        }
    }
    failure
}
