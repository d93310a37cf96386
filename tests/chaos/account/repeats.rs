//! Handlers that ran more than once: never after a visible `Done`, else only where a fault explains it.

use std::collections::BTreeMap;

use super::Books;
use super::lives::{LEARNS_WITHIN, Owners, Standing, Trouble, trouble_of_run, troubles};
use crate::config::{JITTER_PERCENT, LADDER, TIME_LIMIT};
use crate::history::{At, Call, Copy, DoneMark, Key, LifeNumber};

/// How often an owner looks for a deposed owner's marks, and how late a busy machine may make it, in milliseconds.
const LOOKS_EVERY: i64 = 3000 + 2000;
/// How long before a cut of all connections an answer may have been given that never arrived, in milliseconds.
const ON_THE_WAY: i64 = 500;

/// How long an attempt may take, in milliseconds.
const TIMEOUT: i64 = TIME_LIMIT.as_millis() as i64;
/// For how long a copy waits at most, in milliseconds.
const LONGEST_WAIT: i64 = LADDER[LADDER.len() - 1].as_millis() as i64 * (100 + JITTER_PERCENT) / 100;

/// Why a run was repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its process was killed before the mark was visible.
    Killed,
    /// Its process ended by itself.
    EndedItself,
    /// Its process was frozen, and perhaps deposed.
    Frozen,
    /// Its process lost the partition.
    Lost,
    /// It was cancelled at the drain deadline.
    Drained,
    /// The endpoint cut the connection, perhaps before the answer arrived.
    Cut,
    /// The endpoint stood still, and its caller gave up meanwhile: the next attempt followed.
    Stalled,
    /// A worker died between a copy of the record, of the same attempt, and its mark: both were run.
    Copied,
    /// It was not its process that was in trouble, but the one that ran it once more, and did not know yet that it was deposed.
    ByDeposed,
}

impl Cause {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Killed => "its process was killed",
            Self::EndedItself => "its process ended by itself",
            Self::Frozen => "its process was frozen",
            Self::Lost => "its process lost the partition",
            Self::Drained => "it was cancelled at the drain deadline",
            Self::Cut => "the endpoint cut the connection",
            Self::Stalled => "the endpoint stood still past the timeout",
            Self::Copied => "a worker died between a copy and its mark",
            Self::ByDeposed => "run again by a deposed process",
        }
    }
}

/// Repeats, counted; those that break a rule are told.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Calls after one with effect, by what explains them.
    pub(crate) of_effects: BTreeMap<Cause, usize>,
    /// Calls of an attempt that had been made without effect.
    pub(crate) of_attempts: BTreeMap<Cause, usize>,
    /// Nothing explains them.
    pub(crate) unexplained: Vec<String>,
    /// Runs after a `Done` that their process had to know.
    pub(crate) after_done: Vec<String>,
    /// Runs after a `Done`, by a process that was deposed.
    pub(crate) by_deposed: usize,
    /// Runs within a check interval after a deposed owner's `Done`.
    pub(crate) before_the_look: usize,
    /// Calls of which it was asked whether they came after a `Done`.
    pub(crate) asked: usize,
}

impl Repeats {
    pub(super) fn of(books: &Books<'_>) -> Self {
        let owners = Owners::of(books);
        let mut done: BTreeMap<Key, &DoneMark> = BTreeMap::new();
        for mark in &books.history.done {
            let first = done.entry(mark.key).or_insert(mark);
            if mark.visible < first.visible {
                *first = mark;
            }
        }
        let mut repeats = Self::default();
        for (key, calls) in &books.calls_by_key {
            for (place, call) in calls.iter().enumerate() {
                if let Some(done) = done.get(key) {
                    repeats.look_after_done(books, &owners, done, call);
                }
                repeats.look_before(books, &owners, &calls[..place], call);
            }
        }
        repeats
    }

    /// Whether the call began although its key was known to be done.
    fn look_after_done(&mut self, books: &Books<'_>, owners: &Owners, done: &DoneMark, call: &Call) {
        self.asked += 1;
        if call.began <= done.visible {
            return;
        }
        let history = books.history;
        let frozen = || {
            let troubles = troubles(history, call.life, done.visible, call.began);
            troubles.iter().any(|(_, trouble)| *trouble == Trouble::Frozen)
        };
        let looked = || {
            let late = LOOKS_EVERY + history.stalled_within(done.visible, call.began);
            call.began > done.visible.plus_millis(late) && !frozen()
        };
        let had_to_know = match owners.standing(call.life, done.at, call.began) {
            Standing::Owner { since, opened } => {
                since > done.offset
                    || (owners.opener_of(call.life) == Some(done.opener) && ran_since(books, call, opened))
                    || looked()
            }
            Standing::Deposed { since } => !learns_late(books, call, since),
            Standing::Unknown => looked(),
        };
        if had_to_know {
            let late = call.began.millis_after(done.visible);
            self.after_done.push(format!("{late} ms after: {}", books.describe(call)));
        } else if matches!(owners.standing(call.life, done.at, call.began), Standing::Deposed { .. }) {
            self.by_deposed += 1;
        } else {
            self.before_the_look += 1;
        }
    }

    /// Whether the call repeats one before it, and what explains that.
    fn look_before(&mut self, books: &Books<'_>, owners: &Owners, before: &[&Call], call: &Call) {
        let effects: Vec<&&Call> = before.iter().filter(|other| other.is_effective()).collect();
        let same_attempt = before.iter().rfind(|other| {
            (other.origin, other.attempt) == (call.origin, call.attempt) && !other.is_effective()
        });
        let (repeated, counted) = match (effects.last(), same_attempt) {
            (Some(_), _) => (effects, &mut self.of_effects),
            (None, Some(attempt)) => (vec![attempt], &mut self.of_attempts),
            (None, None) => return,
        };
        if is_by_deposed(books, owners, call) {
            *counted.entry(Cause::ByDeposed).or_default() += 1;
            return;
        }
        let mut last = None;
        for other in repeated {
            let cause = cause(books, other, call.began)
                .or_else(|| gave_up(books, other, call))
                .or_else(|| died_after_a_copy(books, other, call));
            match cause {
                Some(cause) => last = Some(cause),
                None => {
                    let (other, call) = (books.describe(other), books.describe(call));
                    self.unexplained.push(format!("{other}\n      was repeated: {call}"));
                    return;
                }
            }
        }
        if let Some(cause) = last {
            *counted.entry(cause).or_default() += 1;
        }
    }
}

/// Whether its process had run the key since it opened the partition. What it ran before it lost the partition, and marked late, is
/// a deposed owner's to it: another of its shards may own the partition now.
fn ran_since(books: &Books<'_>, call: &Call, opened: At) -> bool {
    let calls = books.calls_by_key.get(&call.key).map_or(&[][..], Vec::as_slice);
    let before = calls.iter().filter(|other| other.began < call.began);
    before.filter(|other| other.life == call.life && other.is_effective()).any(|other| other.began >= opened)
}

/// Whether a deposed process could not know yet that it was. A frozen one learns it when it goes on.
fn learns_late(books: &Books<'_>, call: &Call, since: At) -> bool {
    let Some(life) = books.history.lives.get(call.life) else { return false };
    let thawed = life.frozen.iter().filter(|(began, _)| *began <= call.began).map(|(_, ended)| *ended).max();
    let learns = thawed.unwrap_or_default().max(since);
    call.began <= learns.plus_millis(LEARNS_WITHIN)
}

fn is_by_deposed(books: &Books<'_>, owners: &Owners, call: &Call) -> bool {
    let Some(job) = books.jobs.get(&call.origin) else { return false };
    match owners.standing(call.life, job.log, call.began) {
        Standing::Deposed { since } => learns_late(books, call, since),
        Standing::Owner { .. } | Standing::Unknown => false,
    }
}

/// Whether the caller can't have waited for the answer, and so made the next attempt: the endpoint began or answered late, because
/// the machine had other things to do.
fn gave_up(books: &Books<'_>, run: &Call, again: &Call) -> Option<Cause> {
    let sent = run.began.plus_millis(-TIMEOUT);
    let stood_still = |(from, until): &(At, At)| *from <= run.ended && sent <= *until;
    let follows = again.origin == run.origin && again.attempt == run.attempt + 1;
    (follows && books.history.stalls.iter().any(stood_still)).then_some(Cause::Stalled)
}

/// Whether the attempt had no effect, more than one record asked for it, and a worker died after such a copy and before it was run.
/// A class that is parked has many copies of one attempt.
fn died_after_a_copy(books: &Books<'_>, run: &Call, again: &Call) -> Option<Cause> {
    let history = books.history;
    let asks = |copy: &&Copy| (copy.origin, copy.attempt) == (again.origin, again.attempt);
    let copies: Vec<&Copy> = history.delayed.iter().filter(asks).collect();
    let records = copies.len() + usize::from(again.attempt == 1);
    if run.is_effective() || records < 2 {
        return None;
    }
    let deadly = |life: LifeNumber, copy: &Copy| {
        let published = copy.due.plus_millis(-LONGEST_WAIT);
        let troubles = troubles(history, life, published, again.began);
        troubles.iter().any(|(at, trouble)| *at >= published && *trouble != Trouble::Left)
    };
    let died = copies.iter().any(|copy| (0..history.lives.len()).any(|life| deadly(life, copy)));
    died.then_some(Cause::Copied)
}

/// Why the run was not remembered when the key was run again.
fn cause(books: &Books<'_>, run: &Call, again: At) -> Option<Cause> {
    if let Some(trouble) = trouble_of_run(books.history, run, again) {
        return Some(match trouble {
            Trouble::Killed => Cause::Killed,
            Trouble::EndedItself => Cause::EndedItself,
            Trouble::Frozen => Cause::Frozen,
            Trouble::Lost => Cause::Lost,
            Trouble::Left => Cause::Drained,
        });
    }
    let cut = |at: &At| run.ended <= *at && *at <= run.ended.plus_millis(ON_THE_WAY);
    books.history.cuts.iter().any(cut).then_some(Cause::Cut)
}
