//! Does what a class depends on work at all? A class that fails altogether is parked: its jobs wait, without using attempts, and
//! one of them at a time is run as a probe, until one gets an answer.
//!
//! ```text
//!            enough of the latest runs failed
//!   closed ─────────────────────────────────────▶ parked ◀──────────┐
//!     ▲                                             │ probe is due  │ probe failed: the next one later
//!     │              the probe was answered         ▼               │
//!     └───────────────────────────────────────── probing ───────────┘
//! ```
//!
//! Times are durations since any fixed moment, by a clock that never goes back.

use std::time::Duration;

use crate::failure::{FailureKind, Outcome};

/// When a class is parked, and how often it is probed then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloodLimits {
    /// The share of failed runs, above 0 and at most 1, from which on the class is parked.
    pub failures: f64,
    /// Fewer runs than this within the window say nothing.
    pub of: u64,
    /// The sliding window in which runs are counted.
    pub within: Duration,
    /// How long after it was parked the class is probed first. Each probe that fails doubles the wait for the next.
    pub probe_after: Duration,
    /// The longest wait between two probes.
    pub probe_at_most: Duration,
}

/// Runs that say whether the dependency works: those that ended well, and those that failed in a way that may heal. What was
/// refused for good, and what was put off, says nothing about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Done.
    pub done: u64,
    /// Failed, and may heal.
    pub failed: u64,
}

impl Runs {
    /// What one run says.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self { done: 1, failed: 0 },
            Outcome::Failed(failure) if failure.kind.may_heal() => Self { done: 0, failed: 1 },
            Outcome::Failed(_) | Outcome::Snooze(_) => Self::default(),
        }
    }

    /// How many there are.
    pub fn count(self) -> u64 {
        self.done + self.failed
    }

    /// These and those.
    pub fn add(&mut self, other: Self) {
        self.done += other.done;
        self.failed += other.failed;
    }
}

/// What a probe found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The dependency answers again: the job is done, or was refused for good.
    Heals,
    /// It still fails; the dependency may have asked for a wait.
    Fails(Option<Duration>),
    /// The answer is none of the dependency's: the job was put off, or could not be read.
    Nothing,
}

impl Finding {
    /// What this outcome of a probe says.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Heals,
            Outcome::Failed(failure) if failure.kind == FailureKind::Permanent => Self::Heals,
            Outcome::Failed(failure) if failure.kind.may_heal() => Self::Fails(failure.retry_after),
            Outcome::Failed(_) | Outcome::Snooze(_) => Self::Nothing,
        }
    }
}

/// Whether jobs of the class may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// All of them.
    Closed,
    /// None before this time; then one, as a probe.
    ProbeAt(Duration),
    /// None: a probe is running.
    Probing,
}

/// Counts how often a class was parked. A run that began before the latest time says nothing about what came after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Parks a class that fails altogether, and lets it go when a probe was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct FloodGuard {
    limits: FloodLimits,
    generation: Generation,
    window: Window,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    Parked { since: Duration, probe_at: Duration, pause: Duration },
    Probing { since: Duration, probe_at: Duration, pause: Duration },
}

impl FloodGuard {
    /// A guard that lets everything pass until it knows better.
    pub fn new(limits: FloodLimits) -> Self {
        let window = Window::new(limits.within);
        Self { limits, generation: Generation::default(), window, state: State::Closed }
    }

    /// Which time this is; it changes whenever the class is parked.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether jobs may run.
    pub fn outlook(&self) -> Outlook {
        match self.state {
            State::Closed => Outlook::Closed,
            State::Parked { probe_at, .. } => Outlook::ProbeAt(probe_at),
            State::Probing { .. } => Outlook::Probing,
        }
    }

    /// Since when the class is parked, if it is.
    pub fn parked_since(&self) -> Option<Duration> {
        match self.state {
            State::Closed => None,
            State::Parked { since, .. } | State::Probing { since, .. } => Some(since),
        }
    }

    /// Counts runs that began in `generation`. When they lead to parking: what was counted in the window, with them.
    pub fn note(&mut self, generation: Generation, runs: Runs, now: Duration) -> Option<Runs> {
        if self.state != State::Closed || generation != self.generation {
            return None;
        }
        let counted = self.window.add(runs, now);
        let share = counted.failed as f64 / counted.count().max(1) as f64;
        if counted.failed == 0 || counted.count() < self.limits.of || share < self.limits.failures {
            return None;
        }
        self.generation.0 += 1;
        self.window = Window::new(self.limits.within);
        let pause = self.limits.probe_after;
        self.state = State::Parked { since: now, probe_at: now.saturating_add(pause), pause };
        Some(counted)
    }

    /// Whether the caller may run one job as a probe. It must tell [`Self::found`] what came of it, or [`Self::forget`] it.
    pub fn probe(&mut self, now: Duration) -> bool {
        match self.state {
            State::Parked { since, probe_at, pause } if probe_at <= now => {
                self.state = State::Probing { since, probe_at, pause };
                true
            }
            _ => false,
        }
    }

    /// The probe ended. For how long the class was parked, if it is no longer.
    pub fn found(&mut self, finding: Finding, now: Duration) -> Option<Duration> {
        let State::Probing { since, pause, .. } = self.state else { return None };
        let longest = self.limits.probe_at_most;
        let longer = pause.saturating_mul(2).min(longest);
        let parked =
            |wait: Duration, pause| State::Parked { since, probe_at: now.saturating_add(wait), pause };
        match finding {
            Finding::Heals => {
                self.state = State::Closed;
                return Some(now.saturating_sub(since));
            }
            Finding::Fails(asked) => {
                self.state = parked(longer.max(asked.unwrap_or_default().min(longest)), longer);
            }
            Finding::Nothing => self.state = parked(pause, pause),
        }
        None
    }

    /// The probe never ran, or was cancelled: another one may run at once.
    pub fn forget(&mut self) {
        if let State::Probing { since, probe_at, pause } = self.state {
            self.state = State::Parked { since, probe_at, pause };
        }
    }
}

/// Into how many parts a window is divided; the oldest leaves as a whole.
const PARTS: u32 = 10;

/// A sliding window of counts.
#[derive(Clone, Debug, PartialEq)]
struct Window {
    /// How long a part is.
    part: Duration,
    parts: [Runs; PARTS as usize],
    /// The number of the newest part, counted from time zero.
    newest: u128,
}

impl Window {
    fn new(within: Duration) -> Self {
        let part = (within / PARTS).max(Duration::from_millis(1));
        Self { part, parts: [Runs::default(); PARTS as usize], newest: 0 }
    }

    /// Adds runs that ended at `now`, and gives what is in the window then.
    fn add(&mut self, runs: Runs, now: Duration) -> Runs {
        // Threads look at the clock each by themselves: one that looked a moment earlier may come later.
        let number = (now.as_nanos() / self.part.as_nanos()).max(self.newest);
        let passed = (number - self.newest).min(u128::from(PARTS));
        for n in 1..=passed {
            self.parts[place(number - passed + n)] = Runs::default();
        }
        self.newest = number;
        self.parts[place(number)].add(runs);
        let mut all = Runs::default();
        self.parts.iter().for_each(|part| all.add(*part));
        all
    }
}

fn place(number: u128) -> usize {
    usize::try_from(number % u128::from(PARTS)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
