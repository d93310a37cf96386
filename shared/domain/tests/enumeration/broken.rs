//! Tables that are wrong in one place each, with a scenario in which that place matters.

use std::time::Duration;

use tidegate_domain::mark::{Arrival, Phase, Skip, Step, Verdict, verdict};
use tidegate_domain::{Hop, Mark, UnixMillis};

use crate::model::{Budget, Ordering, Scenario, Table, Takeover};
use crate::scenarios::{ONE, OTHER, SAME};

type Case = (&'static str, Table, Scenario, &'static str);

const LOST: &str = "a job is lost";
const AGAIN: &str = "a run after a visible done";
const FORK: &str = "two copies of a job, and both would run";
const RUNS: &str = "more runs than faults account for: a fork";

const fn wrong(verdict: fn(&Mark, &Arrival, UnixMillis, Duration) -> Verdict) -> Table {
    Table { verdict, join: Mark::join }
}

const fn joins(join: fn(Mark, Mark) -> Mark) -> Table {
    Table { verdict, join }
}

const fn faults(scenario: Scenario, budget: Budget) -> Scenario {
    Scenario { budget, ..scenario }
}

const NO_FAULT: Budget = ONE.budget;
const CRASH: Budget = Budget { crash: 1, ..NO_FAULT };
const DOUBLE: Budget = Budget { double: 1, ..NO_FAULT };
const REPLAY: Budget = Budget { replay: 1, ..NO_FAULT };
const DEPOSE: Budget = Budget { depose: 1, ..NO_FAULT };
const BOUNDED: Scenario = Scenario { attempts: 3, max_runs: Some(3), ..ONE };

pub(crate) const BROKEN: [Case; 16] = [
    ("an equal step supersedes", wrong(equal_is_superseded), ONE, LOST),
    ("any scheduled step supersedes", wrong(scheduled_is_superseded), ONE, LOST),
    ("nothing is superseded", wrong(nothing_is_superseded), faults(BOUNDED, DOUBLE), FORK),
    ("the second run of a dead job", wrong(dead_runs_again), faults(BOUNDED, DOUBLE), FORK),
    ("done is not asked", wrong(done_is_ignored), faults(ONE, CRASH), AGAIN),
    ("dead is for ever", wrong(dead_is_for_ever), faults(ONE, REPLAY), LOST),
    ("a job is left to a dead one", wrong(dead_coalesces), SAME, LOST),
    ("another payload is left to a job", wrong(conflict_is_coalesced), OTHER, LOST),
    ("a dead job conflicts without the DLQ", wrong(dead_conflict_is_skipped), OTHER, LOST),
    ("what began as a round is superseded", wrong(begun_is_superseded), faults(IN_PLACE, CRASH), LOST),
    ("what is suspected is superseded", wrong(begun_is_superseded), faults(SUSPECTED, CRASH), LOST),
    ("force knows no step", wrong(force_always_runs), faults(OTHER, FORCE), FORK),
    ("force knows no round", wrong(force_is_ignored), faults(OTHER, FORCE), LOST),
    ("two jobs are left to each other", wrong(coalesces_both_ways), faults(GOES_ON, MUTUAL), LOST),
    ("the last mark wins", joins(last_wins), faults(ONE, DEPOSE), AGAIN),
    ("the first step wins", joins(first_wins), faults(BOUNDED, DOUBLE), RUNS),
];

const FORCE: Budget = Budget { force: 1, double: 1, ..NO_FAULT };
const MUTUAL: Budget = Budget { jump: 1, ..DEPOSE };
const IN_PLACE: Scenario = Scenario { ordering: Ordering::Key, ..SAME };
const SUSPECTED: Scenario = Scenario { takeover: Takeover::Suspicious, ..SAME };
const GOES_ON: Scenario = Scenario { deposed_takes: 1, ..SAME };

fn own_step(mark: &Mark, arrival: &Arrival) -> Option<Step> {
    mark.step.filter(|step| mark.done.is_none() && step.job == arrival.job)
}

fn other_step(mark: &Mark, arrival: &Arrival) -> Option<Step> {
    mark.step.filter(|step| mark.done.is_none() && step.job != arrival.job)
}

fn equal_is_superseded(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match own_step(mark, arrival) {
        Some(step) if (step.round, step.hop) == (arrival.round, arrival.hop) => {
            Verdict::Skip(Skip::Superseded)
        }
        _ => verdict(mark, arrival, now, belief),
    }
}

fn scheduled_is_superseded(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match own_step(mark, arrival) {
        Some(step) if step.phase == Phase::Scheduled => Verdict::Skip(Skip::Superseded),
        _ => verdict(mark, arrival, now, belief),
    }
}

fn nothing_is_superseded(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match verdict(mark, arrival, now, belief) {
        Verdict::Skip(Skip::Superseded) => Verdict::Run,
        sound => sound,
    }
}

fn dead_runs_again(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match verdict(mark, arrival, now, belief) {
        Verdict::Skip(Skip::AlreadyDead) => Verdict::Run,
        sound => sound,
    }
}

fn done_is_ignored(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    verdict(&Mark { done: None, ..*mark }, arrival, now, belief)
}

fn dead_is_for_ever(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match own_step(mark, arrival) {
        Some(step) if step.phase == Phase::Dead => Verdict::Skip(Skip::AlreadyDead),
        _ => verdict(mark, arrival, now, belief),
    }
}

fn dead_coalesces(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match other_step(mark, arrival) {
        Some(step) if step.payload == arrival.payload => Verdict::Skip(Skip::Coalesced),
        _ => verdict(mark, arrival, now, belief),
    }
}

fn conflict_is_coalesced(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match verdict(mark, arrival, now, belief) {
        Verdict::Conflict { .. } => Verdict::Skip(Skip::Coalesced),
        sound => sound,
    }
}

fn dead_conflict_is_skipped(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match other_step(mark, arrival) {
        Some(step) if step.phase == Phase::Dead => Verdict::Skip(Skip::AlreadyDead),
        _ => verdict(mark, arrival, now, belief),
    }
}

fn begun_is_superseded(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match own_step(mark, arrival) {
        Some(step) if step.phase != Phase::Dead && step.hop == Hop(0) && step.round > arrival.round => {
            Verdict::Skip(Skip::Superseded)
        }
        _ => verdict(mark, arrival, now, belief),
    }
}

fn force_always_runs(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match mark.done {
        Some(done) if arrival.forced && arrival.round > done.round => Verdict::Run,
        _ => verdict(mark, arrival, now, belief),
    }
}

fn force_is_ignored(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match verdict(mark, &Arrival { forced: false, ..*arrival }, now, belief) {
        Verdict::Conflict { done: true, .. } => Verdict::Skip(Skip::AlreadyDone),
        sound => sound,
    }
}

fn coalesces_both_ways(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    match (verdict(mark, arrival, now, belief), other_step(mark, arrival)) {
        (Verdict::Run, Some(step)) if step.phase != Phase::Dead && now <= step.written_at.after(belief) => {
            Verdict::Skip(Skip::Coalesced)
        }
        (sound, _) => sound,
    }
}

fn last_wins(old: Mark, new: Mark) -> Mark {
    if new == Mark::default() { old } else { new }
}

fn first_wins(old: Mark, new: Mark) -> Mark {
    Mark { done: old.done.max(new.done), step: old.step.or(new.step) }
}
