//! How things of the inbox look on a terminal.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

/// A time, to the second.
pub(crate) fn time(millis: i64) -> String {
    let since = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}

/// Text as a terminal may show it: control characters of a payload must not drive it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The same, on one line of at most so many characters.
pub(crate) fn line(text: &str, most: usize) -> String {
    plain(&text.replace(['\n', '\r', '\t'], " ")).chars().take(most).collect()
}

/// A value: text as it is, other JSON as JSON.
pub(crate) fn value(value: &Value) -> String {
    plain(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// Letters of the last hours, as a row of bars.
pub(crate) fn sparkline(steps: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = steps.iter().copied().max().unwrap_or(0).max(1);
    let bar = |step: &u64| match step {
        0 => ' ',
        step => BARS[usize::try_from(step * 7 / most).unwrap_or(7).min(7)],
    };
    steps.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_payload_holds_can_not_drive_the_terminal() {
        assert_eq!(plain("a\x1b[31mb\u{9b}c"), "a\u{fffd}[31mb\u{fffd}c");
        assert_eq!(line("a\nb\tc", 4), "a b ");
    }

    #[test]
    fn the_most_is_the_highest_bar_and_nothing_is_blank() {
        assert_eq!(sparkline(&[0, 1, 7, 14]), " ▁▄█");
        assert_eq!(sparkline(&[0, 0]), "  ");
    }
}
