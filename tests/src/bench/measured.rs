//! What a process used, and the median of rounds.

use std::fs;

/// What a process has used until now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// Seconds of CPU, user and system.
    pub(super) cpu_seconds: f64,
    /// The most memory that it ever had resident, in MiB.
    pub(super) peak_mib: f64,
}

/// Asks the kernel.
pub(super) fn used(pid: u32) -> Used {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks = |place: usize| fields.get(place).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0);
    // Linux counts CPU time in hundredths of a second.
    Used { cpu_seconds: (ticks(11) + ticks(12)) / 100.0, peak_mib: kib / 1024.0 }
}

/// The middle one.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// The figure that this share of all lie below.
pub(super) fn percentile(sorted: &[i64], share: f64) -> i64 {
    let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(0)
}
