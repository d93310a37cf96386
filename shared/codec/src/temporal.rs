//! Dates and times as text, and back: RFC 3339 in UTC. Years run from 0000 to 9999, as they do there; what lies
//! outside stays a number.

use crate::plan::TimeUnit;

const SECONDS_A_DAY: i64 = 86_400;
/// 0000-01-01 and 9999-12-31 in days since 1970-01-01.
const DAYS: std::ops::RangeInclusive<i64> = -719_528..=2_932_896;

impl TimeUnit {
    fn steps_a_second(self) -> i64 {
        10_i64.pow(self.digits() as u32)
    }

    fn digits(self) -> usize {
        match self {
            Self::Millis => 3,
            Self::Micros => 6,
            Self::Nanos => 9,
        }
    }
}

/// Whether a time stands for an instant or for what a clock on some wall shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    Utc,
    Local,
}

pub(crate) fn format_timestamp(value: i64, unit: TimeUnit, zone: Zone) -> Option<String> {
    let steps_a_day = unit.steps_a_second() * SECONDS_A_DAY;
    let date = format_date(value.div_euclid(steps_a_day))?;
    let time = format_time(value.rem_euclid(steps_a_day), unit)?;
    Some(format!("{date}T{time}{}", if zone == Zone::Utc { "Z" } else { "" }))
}

pub(crate) fn format_date(days: i64) -> Option<String> {
    if !DAYS.contains(&days) {
        return None;
    }
    let (year, month, day) = civil(days);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

/// A time of day.
pub(crate) fn format_time(value: i64, unit: TimeUnit) -> Option<String> {
    let seconds = value.div_euclid(unit.steps_a_second());
    if !(0..SECONDS_A_DAY).contains(&seconds) {
        return None;
    }
    let fraction = value.rem_euclid(unit.steps_a_second());
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    Some(format!("{hour:02}:{minute:02}:{second:02}.{fraction:0width$}", width = unit.digits()))
}

/// Reads what [`format_timestamp`] writes, and any other offset from UTC. Digits that the unit can't hold are
/// an error, not a loss.
pub(crate) fn parse_timestamp(text: &str, unit: TimeUnit, zone: Zone) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, offset) = match zone {
        Zone::Local => (rest, 0),
        Zone::Utc => split_offset(rest)?,
    };
    let steps_a_day = unit.steps_a_second() * SECONDS_A_DAY;
    let midnight = parse_date(date)?.checked_mul(steps_a_day)?;
    midnight.checked_add(parse_time(time, unit)?)?.checked_sub(offset * unit.steps_a_second())
}

/// Parts a time from its offset, in seconds.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let seconds = number(hours, 2)? * 3600 + Some(number(minutes, 2)?).filter(|minutes| *minutes < 60)? * 60;
    match offset.as_bytes()[0] {
        b'+' => Some((time, seconds)),
        b'-' => Some((time, -seconds)),
        _ => None,
    }
}

/// Days since 1970-01-01.
pub(crate) fn parse_date(text: &str) -> Option<i64> {
    let mut parts = text.split('-');
    let (year, month, day) =
        (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let days = days(year, month, day);
    // A day that the month doesn't have comes back as one of the next month.
    (civil(days) == (year, month, day)).then_some(days)
}

/// A time of day since midnight.
pub(crate) fn parse_time(text: &str, unit: TimeUnit) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = clock.split(':');
    let (hour, minute, second) =
        (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 || fraction.is_empty() {
        return None;
    }
    let kept = fraction.trim_end_matches('0');
    if kept.len() > unit.digits() || !kept.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let fraction: i64 = format!("{kept:0<width$}", width = unit.digits()).parse().ok()?;
    Some((hour * 3600 + minute * 60 + second) * unit.steps_a_second() + fraction)
}

fn number(text: &str, width: usize) -> Option<i64> {
    let sound = text.len() == width && text.bytes().all(|digit| digit.is_ascii_digit());
    sound.then(|| text.parse().ok())?
}

/// Days since 1970-01-01 of a date in the Gregorian calendar. The year is taken to start in March, so that the
/// leap day is its last; the months' lengths then follow a straight line.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12 + 1;
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_ten_thousand_years_is_read_back() {
        let mut previous = (-1, 12, 31);
        for day in DAYS {
            let date = civil(day);
            assert!(date > previous, "{date:?} follows {previous:?}");
            assert_eq!(days(date.0, date.1, date.2), day);
            previous = date;
        }
        assert_eq!(previous, (9999, 12, 31));
        assert_eq!(civil(*DAYS.start()), (0, 1, 1));
        assert_eq!(civil(0), (1970, 1, 1));
    }

    #[test]
    fn instants_are_written_with_their_units_digits() {
        let text = |value, unit| format_timestamp(value, unit, Zone::Utc);
        assert_eq!(text(0, TimeUnit::Millis).as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(text(-1, TimeUnit::Micros).as_deref(), Some("1969-12-31T23:59:59.999999Z"));
        assert_eq!(
            text(1_709_164_799_123_456_789, TimeUnit::Nanos).as_deref(),
            Some("2024-02-28T23:59:59.123456789Z")
        );
        assert_eq!(text(i64::MAX, TimeUnit::Millis), None);
        assert_eq!(text(i64::MIN, TimeUnit::Micros), None);
        let local = format_timestamp(0, TimeUnit::Millis, Zone::Local);
        assert_eq!(local.as_deref(), Some("1970-01-01T00:00:00.000"));
    }

    #[test]
    fn instants_are_read_back_in_any_offset() {
        let parse = |text| parse_timestamp(text, TimeUnit::Millis, Zone::Utc);
        assert_eq!(parse("2024-02-29T12:00:00.5Z"), Some(1_709_208_000_500));
        assert_eq!(parse("2024-02-29T13:30:00.500+01:30"), Some(1_709_208_000_500));
        assert_eq!(parse("2024-02-29T11:00:00.500-01:00"), Some(1_709_208_000_500));
        assert_eq!(parse("2024-02-29T12:00:00Z"), Some(1_709_208_000_000));
    }

    #[test]
    fn dates_and_times_that_do_not_exist_are_refused() {
        for date in ["2023-02-29", "2024-13-01", "2024-00-10", "2024-1-1", "2024-01-01-01", "+024-01-01"] {
            assert_eq!(parse_date(date), None, "{date}");
        }
        for time in ["24:00:00", "12:60:00", "12:00:60", "12:00", "12:00:00.", "12:00:00.1234", "12:00:00.x"]
        {
            assert_eq!(parse_time(time, TimeUnit::Millis), None, "{time}");
        }
        for text in
            ["2024-02-29", "2024-02-29T12:00:00", "2024-02-29T12:00:00+25", "é024-02-29T12:00:00Z", ""]
        {
            assert_eq!(parse_timestamp(text, TimeUnit::Millis, Zone::Utc), None, "{text}");
        }
    }
}
