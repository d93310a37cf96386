//! `[classes.NAME.flood]`: when a class that fails altogether is parked.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

use super::reader::Section;
use super::values::{self, duration_text, write_duration};

/// When a class is parked because what it depends on is away, and how often it is probed then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Flood {
    /// Whether the class is guarded at all. Default true.
    pub enabled: bool,
    /// The share of runs that must have failed, above 0 to 1. Default 0.8: what still works in part is better tried again.
    pub failures: f64,
    /// Fewer runs than this within the window say nothing. Default 50.
    pub of: NonZeroU32,
    /// The sliding window in which runs are counted. Default 10s.
    #[serde(serialize_with = "write_duration")]
    pub within: Duration,
    /// How long after parking the first probe is run; each that fails doubles the wait for the next. Default 1s.
    #[serde(serialize_with = "write_duration")]
    pub probe_after: Duration,
    /// The longest wait between two probes. Default 30s.
    #[serde(serialize_with = "write_duration")]
    pub probe_at_most: Duration,
}

impl Flood {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let seconds = Duration::from_secs;
        let enabled = section.or("enabled", true, values::boolean);
        let failures = section.or("failures", 0.8, values::fraction(0.01..=1.0));
        let of = section.or("of", NonZeroU32::MIN.saturating_add(49), values::count(1_000_000));
        let window = Duration::from_millis(100)..=seconds(60 * 60);
        let within = section.or("within", seconds(10), values::duration_within(window));
        let waits = Duration::from_millis(10)..=seconds(60 * 60);
        let probe_after = section.or("probe_after", seconds(1), values::duration_within(waits.clone()));
        let probe_at_most =
            section.or("probe_at_most", seconds(30).max(probe_after), values::duration_within(waits));
        if probe_at_most < probe_after {
            let wrong = format!(
                "{} is less than probe_after = {}",
                duration_text(probe_at_most),
                duration_text(probe_after)
            );
            section.problem("probe_at_most", wrong, "raise it, or lower probe_after");
        }
        Self { enabled, failures, of, within, probe_after, probe_at_most }
    }
}
