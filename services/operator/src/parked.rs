//! How a replayed job that waits for its class is told.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_domain::UnixMillis;
use tidegate_pipeline::journal::ParkedEntry;

/// What it waits for, in words: times are in UTC.
pub(crate) fn words(parked: &ParkedEntry) -> String {
    let ParkedEntry { class, since, probe } = parked;
    let since = clock(*since);
    match probe {
        Some(probe) => {
            format!("class {class} is parked since {since}, and its next probe is due at {}", clock(*probe))
        }
        None => format!("class {class} is parked since {since}, and a probe of it was running"),
    }
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
    fn it_says_which_class_is_parked_and_since_when_and_when_it_is_probed() {
        let since = UnixMillis(1_764_432_012_345);
        let entry = |probe| ParkedEntry { class: "charge".to_owned(), since, probe };
        let told = words(&entry(Some(UnixMillis(1_764_432_042_000))));
        assert_eq!(
            told,
            "class charge is parked since 2025-11-29 16:00:12 UTC, and its next probe is due at 2025-11-29 16:00:42 UTC"
        );
        assert!(words(&entry(None)).ends_with("12 UTC, and a probe of it was running"));
        assert!(
            words(&ParkedEntry { since: UnixMillis(i64::MAX), ..entry(None) })
                .contains("9223372036854775807")
        );
    }
}
