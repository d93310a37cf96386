//! `[retry]`: how long to wait between attempts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::error::InvalidValue;
use super::reader::{Raw, Section};
use super::values::{self, ByteSize, duration_text, exact, parse_duration};

/// One step of a ladder: a delay, and the name that its topic has from it (`1s`, `4s`, `1m`, `1500ms`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rung(Duration);

impl Rung {
    /// The delay before jitter.
    pub fn delay(self) -> Duration {
        self.0
    }
}

impl FromStr for Rung {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&exact(self.0))
    }
}

impl Serialize for Rung {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How far a wait is drawn from its rung: a factor in [1-j, 1+j], drawn for each record.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Jitter(f64);

impl Jitter {
    /// The fraction j, from 0 to 0.5.
    pub fn fraction(self) -> f64 {
        self.0
    }

    /// The longest wait that a delay can become.
    pub fn longest(self, delay: Duration) -> Duration {
        delay.mul_f64(1.0 + self.0)
    }

    /// The shortest wait that a delay can become.
    pub fn shortest(self, delay: Duration) -> Duration {
        delay.mul_f64(1.0 - self.0)
    }
}

/// The delay topics and what is drawn around them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Retry {
    /// Waits before the second, third, … attempt, ascending. Each is a topic per tier. Default 1s, 4s, 16s.
    pub ladder: Vec<Rung>,
    /// Delay topics for waits that use no attempt (`Snooze`, a parked class), hop by hop. Default 1m, 10m.
    pub wait_only: Vec<Rung>,
    /// Waits differ from their rung by up to this fraction, 0 to 0.5. Default 0.2.
    pub jitter: Jitter,
    /// What a retry process holds in memory until it is due, of all its partitions together. Default 256MiB.
    pub heap_bytes: ByteSize,
}

impl Retry {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let ladder = section.or("ladder", seconds(&[1, 4, 16]), rungs);
        let wait_only = section.or("wait_only", seconds(&[60, 600]), rungs);
        if let Some(both) = wait_only.iter().find(|rung| ladder.contains(rung)) {
            let wrong = format!("{both} is in `ladder` too");
            section.problem("wait_only", wrong, "keep it in one of them: each rung is a topic of its own");
        }
        let jitter = section.or("jitter", 0.2, values::fraction(0.0..=0.5));
        let memory = ByteSize::mebibytes(1)..=ByteSize::mebibytes(64 << 10);
        let heap_bytes = section.or("heap_bytes", ByteSize::mebibytes(256), values::byte_size(memory));
        Self { ladder, wait_only, jitter: Jitter(jitter), heap_bytes }
    }

    /// All rungs that have a topic, ascending.
    pub fn rungs(&self) -> Vec<Rung> {
        let mut rungs: Vec<Rung> = self.ladder.iter().chain(&self.wait_only).copied().collect();
        rungs.sort_unstable();
        rungs
    }

    /// The longest time that a record can stand in one delay topic.
    pub fn longest_wait(&self) -> Duration {
        let longest = self.rungs().last().map_or(Duration::ZERO, |rung| rung.delay());
        self.jitter.longest(longest)
    }

    /// The longest time that a record waits when it passes every delay topic once.
    pub fn total_wait(&self) -> Duration {
        self.jitter.longest(self.rungs().iter().map(|rung| rung.delay()).sum())
    }

    /// What a ladder amounts to in words: `4 attempts; waits 1s + 4s + 16s = 21s (17s to 25s with jitter)`.
    ///
    /// With more attempts than rungs + 1, the last rung repeats.
    pub fn summary(&self, ladder: &[Rung], max_attempts: u32) -> String {
        let noun = if max_attempts == 1 { "attempt" } else { "attempts" };
        let waits: Vec<Rung> = (1..max_attempts as usize)
            .filter_map(|attempt| ladder.get(attempt - 1).or(ladder.last()).copied())
            .collect();
        if waits.is_empty() {
            return format!("{max_attempts} {noun}; no retry");
        }
        let total: Duration = waits.iter().map(|rung| rung.delay()).sum();
        let jitter = self.jitter;
        format!(
            "{max_attempts} {noun}; waits {} = {} ({} to {} with jitter)",
            sum_of(&waits),
            duration_text(total),
            rounded(jitter.shortest(total)),
            rounded(jitter.longest(total)),
        )
    }
}

/// `1s + 4s + 16s`, and `1s + 5 x 4s` where a rung repeats.
fn sum_of(waits: &[Rung]) -> String {
    let groups = waits.chunk_by(|one, next| one == next).map(|group| match group {
        [once] => once.to_string(),
        many => format!("{} x {}", many.len(), many[0]),
    });
    groups.collect::<Vec<_>>().join(" + ")
}

/// Precise enough to plan with: whole seconds from ten seconds on.
fn rounded(wait: Duration) -> String {
    match wait.as_millis() {
        millis @ 0..10_000 => duration_text(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))),
        _ => duration_text(Duration::from_secs(wait.as_secs_f64().round() as u64)),
    }
}

fn seconds(delays: &[u64]) -> Vec<Rung> {
    delays.iter().map(|seconds| Rung(Duration::from_secs(*seconds))).collect()
}

/// A list of rungs, strictly ascending. An empty one is meant: no retries.
pub(super) fn rungs(raw: &Raw) -> Result<Vec<Rung>, InvalidValue> {
    let rungs: Vec<Rung> = values::one_or_many(raw)?;
    match rungs.windows(2).find(|pair| pair[0] > pair[1]) {
        Some(pair) => Err(InvalidValue::new(
            format!("{} stands before {}", pair[0], pair[1]),
            "write the delays from short to long",
        )),
        None => Ok(rungs),
    }
}
