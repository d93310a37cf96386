//! How a replayed job that waits for its class is told.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_domain::UnixMillis;
use tidegate_pipeline::journal::ParkedEntry;

/// What it waits for, in words: times are in UTC. When it is probed next is left out: that has passed long before the next word comes.
pub(crate) fn words(parked: &ParkedEntry) -> String {
    format!(
        "class {} is parked since {} and runs when a probe of it passes",
        parked.class,
        clock(parked.since)
    )
}

fn clock(at: UnixMillis) -> String {
    let time = Timestamp::from_millisecond(at.0).map(|time| time.to_zoned(TimeZone::UTC));
    // Times are within what a calendar knows, unless a worker's clock is not.
    time.map_or_else(|_| at.to_string(), |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_which_class_is_parked_and_since_when() {
        let since = UnixMillis(1_764_432_012_345);
        let entry = ParkedEntry { class: "charge".to_owned(), since, probe: None };
        let told = "class charge is parked since 2025-11-29 16:00:12 UTC and runs when a probe of it passes";
        assert_eq!(words(&entry), told);
        assert!(words(&ParkedEntry { since: UnixMillis(i64::MAX), ..entry }).contains("9223372036854775807"));
    }
}
