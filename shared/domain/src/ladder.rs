//! Again when? The retry ladder: what follows a failure, which delay topic carries a wait, and how long a record stays there.

use std::time::Duration;

use crate::failure::Failure;
use crate::job::Attempt;
use crate::position::UnixMillis;

/// The waits between attempts. Every rung, wait-only ones included, is a delay topic named by its delay.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    rungs: Vec<Duration>,
    /// All delays that have a topic, shortest first.
    delays: Vec<Duration>,
    jitter: f64,
}

/// Why a ladder was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// There must be at least one rung.
    #[error("the retry ladder has no rung")]
    Empty,
    /// Delays must be whole milliseconds, at least one, and rise: a topic is named by its delay.
    #[error(
        "the retry ladder's delays must rise, and each must be a whole number of milliseconds, at least 1ms"
    )]
    NotRising,
    /// The jitter must lie within 0 and 0.5.
    #[error("the jitter must lie within 0 and 0.5")]
    Jitter,
}

/// What follows a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Publish a copy to the delay topic of `rung`, to be run at `due`.
    Wait(Wait),
    /// Dead-letter it: trying again can't help, or was tried often enough.
    DeadLetter(LastStraw),
}

/// A wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// Whose delay topic carries it first.
    pub rung: Duration,
    /// Not before.
    pub due: UnixMillis,
    /// The attempt that follows.
    pub attempt: Attempt,
}

/// Why nothing is tried any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStraw {
    /// The failure's kind does not heal.
    Hopeless,
    /// All attempts of the class are used.
    AttemptsUsedUp,
    /// The job is older than its class allows.
    TooOld,
}

/// What a delay topic does with a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hold {
    /// Keep it until it is due, then hand it to its job topic.
    ThenRun(UnixMillis),
    /// Keep it until then, and pass it on to the delay topic of `rung`: its wait is longer than this topic carries.
    ThenHop {
        /// How long it stays.
        until: UnixMillis,
        /// Where it goes then.
        rung: Duration,
    },
}

/// What a class allows, and how old the job is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How many attempts there may be.
    pub max_attempts: u32,
    /// How old a job may get, from its first forwarding.
    pub max_age: Option<Duration>,
    /// When it was first forwarded.
    pub first_seen: UnixMillis,
}

impl Ladder {
    /// A ladder of `rungs`, one for each retry, and `wait_only` rungs that carry longer waits. A delay of a record is the
    /// rung's, times a factor within [1-jitter, 1+jitter].
    pub fn new(rungs: &[Duration], wait_only: &[Duration], jitter: f64) -> Result<Self, LadderError> {
        if rungs.is_empty() {
            return Err(LadderError::Empty);
        }
        if !(0.0..=0.5).contains(&jitter) {
            return Err(LadderError::Jitter);
        }
        let rising = |delays: &[Duration]| delays.windows(2).all(|pair| pair[0] < pair[1]);
        let mut delays = [rungs, wait_only].concat();
        delays.sort_unstable();
        let named = |delay: &Duration| parse_rung_name(&rung_name(*delay)) == Some(*delay);
        if !rising(rungs) || !rising(&delays) || !delays.iter().all(named) {
            return Err(LadderError::NotRising);
        }
        Ok(Self { rungs: rungs.to_vec(), delays, jitter })
    }

    /// The rungs between attempts, shortest first.
    pub fn rungs(&self) -> &[Duration] {
        &self.rungs
    }

    /// Every delay that has a topic, shortest first.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// What follows `failure` of this `attempt`. `draw` lies within [0, 1) and is drawn for each record anew.
    pub fn after_failure(
        &self,
        attempt: Attempt,
        failure: &Failure,
        limits: &Limits,
        now: UnixMillis,
        draw: f64,
    ) -> Next {
        if !failure.kind.may_heal() {
            return Next::DeadLetter(LastStraw::Hopeless);
        }
        if attempt.0 >= limits.max_attempts {
            return Next::DeadLetter(LastStraw::AttemptsUsedUp);
        }
        let rung = self.rung(attempt);
        let wait = self.spread(rung, draw);
        let next = match failure.retry_after {
            // Never before the dependency asked for; spread to the late side only.
            Some(asked) if asked > wait => {
                let spread = scaled(asked, 1.0 + self.jitter * draw.clamp(0.0, 1.0)).max(asked);
                self.wait(now, spread, Attempt(attempt.0 + 1))
            }
            _ => Wait { rung, due: now.after(round_up(wait)), attempt: Attempt(attempt.0 + 1) },
        };
        match limits.max_age {
            Some(max_age) if next.due.since(limits.first_seen) > max_age => {
                Next::DeadLetter(LastStraw::TooOld)
            }
            _ => Next::Wait(next),
        }
    }

    /// A wait that uses no attempt.
    pub fn snooze(&self, attempt: Attempt, wait: Duration, now: UnixMillis) -> Wait {
        self.wait(now, wait, attempt)
    }

    /// The longest wait that one delay topic carries, and that uses no attempt.
    pub fn longest(&self, attempt: Attempt, now: UnixMillis, draw: f64) -> Wait {
        let rung = self.delays[self.delays.len() - 1];
        Wait { rung, due: now.after(round_up(self.spread(rung, draw))), attempt }
    }

    /// The time that a failed attempt waits when it is tried again in place.
    pub fn in_place(&self, attempt: Attempt, failure: &Failure, draw: f64) -> Duration {
        let wait = self.spread(self.rung(attempt), draw);
        failure.retry_after.map_or(wait, |asked| asked.max(wait))
    }

    /// What the delay topic of `delay` does with a record that it got at `appended` and that is due at `due`.
    pub fn hold(&self, delay: Duration, appended: UnixMillis, due: UnixMillis) -> Hold {
        if due <= appended.after(round_up(scaled(delay, 1.0 + self.jitter))) {
            return Hold::ThenRun(due);
        }
        let until = appended.after(delay);
        Hold::ThenHop { until, rung: self.carrier(due.since(until)) }
    }

    /// The longest that the delay topic of `delay` keeps a record.
    pub fn longest_hold(&self, delay: Duration) -> Duration {
        scaled(delay, 1.0 + self.jitter)
    }

    /// How long a step that promises a later copy is believed: the longest rung with its jitter, and an hour.
    pub fn belief(&self) -> Duration {
        let longest = self.delays.last().copied().unwrap_or_default();
        scaled(longest, 1.0 + self.jitter).saturating_add(Duration::from_secs(3600))
    }

    /// The shortest and the longest sum of all waits.
    pub fn total(&self) -> (Duration, Duration) {
        let sum = self.rungs.iter().fold(Duration::ZERO, |sum, rung| sum.saturating_add(*rung));
        (scaled(sum, 1.0 - self.jitter), scaled(sum, 1.0 + self.jitter))
    }

    fn wait(&self, now: UnixMillis, wait: Duration, attempt: Attempt) -> Wait {
        Wait { rung: self.carrier(wait), due: now.after(round_up(wait)), attempt }
    }

    /// The rung after this attempt; the last one serves all that follow it.
    fn rung(&self, attempt: Attempt) -> Duration {
        let index = usize::try_from(attempt.0.saturating_sub(1)).unwrap_or(usize::MAX);
        self.rungs[index.min(self.rungs.len() - 1)]
    }

    fn spread(&self, delay: Duration, draw: f64) -> Duration {
        scaled(delay, 1.0 - self.jitter + 2.0 * self.jitter * draw.clamp(0.0, 1.0))
    }

    /// The longest delay that a wait can fill, jitter considered, else the shortest there is.
    fn carrier(&self, wait: Duration) -> Duration {
        let fits = |delay: &&Duration| scaled(**delay, 1.0 - self.jitter) <= wait;
        self.delays.iter().rev().find(fits).copied().unwrap_or(self.delays[0])
    }
}

/// `delay` times `factor`, and the longest there is where that is too long: a `Retry-After` may say anything.
fn scaled(delay: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(delay.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

/// The next whole millisecond: a wait that is cut would end early.
fn round_up(wait: Duration) -> Duration {
    let cut = wait.subsec_nanos() % 1_000_000;
    if cut == 0 { wait } else { wait.saturating_add(Duration::from_nanos(u64::from(1_000_000 - cut))) }
}

/// A rung's name, and so its topic's: the delay in the largest unit that says it exactly.
pub fn rung_name(delay: Duration) -> String {
    let millis = delay.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if millis >= size && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}

/// The delay that a rung's name says.
pub fn parse_rung_name(name: &str) -> Option<Duration> {
    let digits = name.find(|c: char| !c.is_ascii_digit())?;
    let count: u64 = name[..digits].parse().ok()?;
    let unit = match &name[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    count.checked_mul(unit).filter(|&millis| millis > 0).map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
