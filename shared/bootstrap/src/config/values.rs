//! From a raw value to the type a setting has: each function refuses with what is wrong and what to write.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};
use toml::Value;

use super::error::InvalidValue;
use super::reader::{Raw, kind_of};
use super::suggestion::suggest;

/// Longer than any retention that makes sense, and far from overflowing when added to the present.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A number of bytes. Written as `64MiB`, `1500B`, `2GB` or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// So many bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many times 1,048,576 bytes.
    pub const fn mebibytes(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

const BYTE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            InvalidValue::new(
                format!("`{text}` is no size"),
                "write it like \"64MiB\" or as a number of bytes",
            )
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| refuse())?;
        let factor = match unit.trim() {
            "" => 1,
            unit => {
                let known = BYTE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
                known.ok_or_else(refuse)?.1
            }
        };
        number.checked_mul(factor).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = BYTE_UNITS[..3].iter().find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        match binary {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

pub(super) fn text(raw: &Raw) -> Result<String, InvalidValue> {
    match &raw.value {
        Value::String(text) if text.trim().is_empty() => {
            Err(InvalidValue::new("it is empty", "write a value or remove it"))
        }
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong_kind(other, "text", "put it in quotes")),
    }
}

/// Text that is more than text.
pub(super) fn parsed<T: FromStr<Err = InvalidValue>>(raw: &Raw) -> Result<T, InvalidValue> {
    text(raw)?.parse()
}

/// One text, or a list of texts; a variable separates them by commas.
pub(super) fn one_or_many<T>(raw: &Raw) -> Result<Vec<T>, InvalidValue>
where
    T: FromStr<Err = InvalidValue> + PartialEq + fmt::Display,
{
    let texts: Vec<String> = match &raw.value {
        Value::Array(entries) => entries
            .iter()
            .map(|entry| text(&Raw { value: entry.clone(), variable: raw.variable.clone() }))
            .collect::<Result<_, _>>()?,
        _ if raw.is_from_environment() => text(raw)?.split(',').map(|part| part.trim().to_owned()).collect(),
        _ => vec![text(raw)?],
    };
    distinct(texts.iter().map(|text| text.parse()).collect::<Result<Vec<T>, _>>()?)
}

/// The same, if there is at least one.
pub(super) fn some<T>(raw: &Raw) -> Result<Vec<T>, InvalidValue>
where
    T: FromStr<Err = InvalidValue> + PartialEq + fmt::Display,
{
    let values = one_or_many(raw)?;
    if values.is_empty() {
        return Err(InvalidValue::new("the list is empty", "name at least one, or remove the setting"));
    }
    Ok(values)
}

fn distinct<T: PartialEq + fmt::Display>(values: Vec<T>) -> Result<Vec<T>, InvalidValue> {
    match values.iter().enumerate().find(|(index, value)| values[..*index].contains(value)) {
        Some((_, twice)) => {
            Err(InvalidValue::new(format!("`{twice}` stands there twice"), "keep one of them"))
        }
        None => Ok(values),
    }
}

pub(super) fn boolean(raw: &Raw) -> Result<bool, InvalidValue> {
    match &raw.value {
        Value::Boolean(value) => Ok(*value),
        Value::String(text) if raw.is_from_environment() => {
            text.trim().to_lowercase().parse().map_err(|_| {
                InvalidValue::new(format!("`{text}` is neither true nor false"), "write true or false")
            })
        }
        other => Err(wrong_kind(other, "true or false", "write it without quotes")),
    }
}

/// A whole number from 1 to `most`.
pub(super) fn count<T: TryFrom<NonZeroU64>>(most: u64) -> impl Fn(&Raw) -> Result<T, InvalidValue> {
    move |raw| {
        let number = whole(raw)?;
        u64::try_from(number)
            .ok()
            .filter(|number| *number <= most)
            .and_then(NonZeroU64::new)
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| out_of_range(&number, &1, &most))
    }
}

fn whole(raw: &Raw) -> Result<i64, InvalidValue> {
    match &raw.value {
        Value::Integer(number) => Ok(*number),
        Value::String(text) if raw.is_from_environment() => text.trim().parse().map_err(|_| {
            InvalidValue::new(format!("`{text}` is no whole number"), "write it in digits only")
        }),
        other => Err(wrong_kind(other, "a whole number", "write it in digits only, without quotes")),
    }
}

pub(super) fn fraction(range: RangeInclusive<f64>) -> impl Fn(&Raw) -> Result<f64, InvalidValue> {
    move |raw| {
        let number = match &raw.value {
            Value::Float(number) => *number,
            #[expect(clippy::cast_precision_loss, reason = "a number this large is out of any range anyway")]
            Value::Integer(number) => *number as f64,
            Value::String(text) if raw.is_from_environment() => text
                .trim()
                .parse()
                .map_err(|_| InvalidValue::new(format!("`{text}` is no number"), "write it like 0.2"))?,
            other => return Err(wrong_kind(other, "a number", "write it like 0.2, without quotes")),
        };
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(out_of_range(&number, range.start(), range.end()))
        }
    }
}

/// A duration above zero in whole milliseconds, as Kafka counts them.
pub(super) fn duration(raw: &Raw) -> Result<Duration, InvalidValue> {
    match &raw.value {
        Value::String(text) => parse_duration(text),
        other => Err(wrong_kind(other, "a duration", "write it with its unit, like \"30s\"")),
    }
}

pub(super) fn duration_within(
    range: RangeInclusive<Duration>,
) -> impl Fn(&Raw) -> Result<Duration, InvalidValue> {
    move |raw| {
        let value = duration(raw)?;
        if range.contains(&value) {
            return Ok(value);
        }
        Err(out_of_range(&duration_text(value), &duration_text(*range.start()), &duration_text(*range.end())))
    }
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, InvalidValue> {
    let refuse = |wrong: &str| {
        InvalidValue::new(
            format!("`{text}` {wrong}"),
            "write it with its unit, like \"30s\", \"1500ms\" or \"14d\"",
        )
    };
    let value = humantime::parse_duration(text.trim()).map_err(|_| refuse("is no duration"))?;
    if value.is_zero() {
        return Err(refuse("is no time at all"));
    }
    if value.subsec_nanos() % 1_000_000 != 0 {
        return Err(refuse("is not a whole number of milliseconds"));
    }
    if value > LONGEST {
        return Err(refuse("is longer than ten years"));
    }
    Ok(value)
}

pub(super) fn byte_size(range: RangeInclusive<ByteSize>) -> impl Fn(&Raw) -> Result<ByteSize, InvalidValue> {
    move |raw| {
        let size = match &raw.value {
            Value::String(text) => text.trim().parse()?,
            Value::Integer(number) => match u64::try_from(*number) {
                Ok(bytes) => ByteSize(bytes),
                Err(_) => return Err(out_of_range(number, range.start(), range.end())),
            },
            other => return Err(wrong_kind(other, "a size", "write it like \"64MiB\"")),
        };
        if range.contains(&size) { Ok(size) } else { Err(out_of_range(&size, range.start(), range.end())) }
    }
}

/// One of a few words.
pub(super) fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&Raw) -> Result<T, InvalidValue> {
    move |raw| {
        let given = text(raw)?;
        let known = words.iter().find(|(word, _)| *word == given);
        known.map(|(_, value)| *value).ok_or_else(|| {
            InvalidValue::new(
                format!("`{given}` is not an option"),
                suggest(&given, words.iter().map(|(word, _)| *word)),
            )
        })
    }
}

/// Any single value as text, for those who take text only: librdkafka, HTTP headers.
pub(super) fn as_text(raw: &Raw) -> Result<String, InvalidValue> {
    match &raw.value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(value) => Ok(value.to_string()),
        other => {
            Err(wrong_kind(other, "a single value", "write it in quotes; quote the name too if it has dots"))
        }
    }
}

pub(super) fn wrong_kind(found: &Value, needed: &str, remedy: &str) -> InvalidValue {
    InvalidValue::new(format!("it must be {needed}, not {}", kind_of(found)), remedy)
}

fn out_of_range(value: &dyn fmt::Display, least: &dyn fmt::Display, most: &dyn fmt::Display) -> InvalidValue {
    InvalidValue::new(format!("{value} is out of range"), format!("choose a value from {least} to {most}"))
}

const TIME_UNITS: [(&str, u128); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration as people write one in the file: `1m`, `90s`, `1h 25m 38s`. It reads back as itself.
pub fn duration_text(duration: Duration) -> String {
    let text = exact(duration);
    let (count, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    // As many as are easily compared with others: beyond that, `5138s` says less than what it is made of.
    let few = match unit {
        "d" => u64::MAX,
        "ms" => 1999,
        _ => 99,
    };
    if count.parse::<u64>().is_ok_and(|count| count <= few) {
        return text;
    }
    let mut left = duration.as_millis();
    let parts = TIME_UNITS.iter().filter_map(|(unit, factor)| {
        let count = left / factor;
        left %= factor;
        (count > 0).then(|| format!("{count}{unit}"))
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// A duration in the largest unit that gives a whole number, as topics are named by it.
pub(super) fn exact(duration: Duration) -> String {
    let millis = duration.as_millis();
    let unit = TIME_UNITS.iter().find(|(_, factor)| millis > 0 && millis.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{millis}ms"), |(unit, factor)| format!("{}{unit}", millis / factor))
}

pub(super) fn write_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&duration_text(*duration))
}

/// For fields that are skipped when absent.
pub(super) fn write_some_duration<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => write_duration(duration, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_in_its_largest_exact_unit() {
        for text in ["1s", "4s", "1m", "10m", "1500ms", "90s", "36h", "14d"] {
            assert_eq!(exact(parse_duration(text).unwrap()), text);
        }
        assert_eq!(exact(parse_duration("60s").unwrap()), "1m");
    }

    #[test]
    fn a_duration_is_worded_as_people_write_it_and_reads_back_as_itself() {
        for (written, worded) in [
            ("90s", "90s"),
            ("1500ms", "1500ms"),
            ("36h", "36h"),
            ("120s", "2m"),
            ("5138s", "1h 25m 38s"),
            ("9000s", "2h 30m"),
            ("86400500ms", "1d 500ms"),
            ("8400ms", "8s 400ms"),
            ("400d", "400d"),
        ] {
            let duration = parse_duration(written).unwrap();
            assert_eq!(duration_text(duration), worded);
            assert_eq!(parse_duration(worded).unwrap(), duration);
        }
        for millis in (1..200_000_u64).step_by(37).map(|n| n * n) {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&duration_text(duration)).unwrap(), duration);
        }
    }

    #[test]
    fn a_duration_that_kafka_cannot_express_is_refused() {
        for text in ["0s", "1500us", "30", "soon", "11y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_reads_what_it_writes() {
        for text in ["64MiB", "1KiB", "3GiB", "1500B", "0B"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        assert_eq!("2MB".parse::<ByteSize>().unwrap().get(), 2_000_000);
        assert_eq!("1114112".parse::<ByteSize>().unwrap().to_string(), "1088KiB");
        for text in ["", "MiB", "-1", "1.5GiB", "20000000000GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
