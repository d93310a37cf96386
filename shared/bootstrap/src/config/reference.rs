//! The reference of all settings: what the code asks for, and what it accepts, told by that code itself.
//!
//! A sample is read by a reader that keeps each question. What a setting accepts is found by offering its parser values that it
//! must refuse: the refusals say what to write instead.

use std::num::NonZeroUsize;

use toml::{Table, Value};

use super::Config;
use super::error::InvalidValue;
use super::reader::{Raw, Reader};

/// Stands for the name of a key that the user chooses.
pub(super) const ANY: &str = "NAME";

/// Whether a setting has to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Where its table is, it must be.
    Required,
    /// It has a default, or none is needed.
    Optional,
}

/// One setting that the code asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its place; `TOPIC`, `NAME` and `FIELD` stand for names that the user chooses: `["classes", "NAME", "time_limit"]`.
    pub path: Vec<String>,
    /// Whether it has to be given.
    pub presence: Presence,
    /// What may be written, with its bounds: `duration, 10ms to 1m`.
    pub accepts: String,
}

/// A configuration with one of each table, so that the code that reads them is run.
const SAMPLE: &str = r#"
[kafka]
bootstrap = "k:9092"
[registry]
url = "http://r:8081"
[sources.topic]
start = "latest"
[tiers.default]
[classes.sample]
source = "topic"
key = ["a"]
key_window = { field = "at" }
handler = { type = "http", url = "http://h/" }
[[ignore]]
name = "sample"
source = "topic"
[console.users.sample]
role = "reader"
[console.proxy]
header = "x-user"
addresses = ["::1"]
"#;

/// Every setting that there is, in the order in which the code asks for them.
pub fn reference() -> Vec<Setting> {
    let reader = Reader::describing();
    let sample: Table = SAMPLE.parse().unwrap_or_default();
    // What is read is of no use; that it is valid is checked by a test.
    drop(reader.document(sample, |root| Config::read(root, NonZeroUsize::MIN)));
    let settings = reader.described().into_iter();
    settings.map(|setting| Setting { path: generic(setting.path), ..setting }).collect()
}

/// The path with the sample's names taken out of it.
fn generic(mut path: Vec<String>) -> Vec<String> {
    let name = match path.first().map(String::as_str) {
        Some("sources") => "TOPIC",
        Some("tiers" | "classes") => ANY,
        Some(list) if list.ends_with(']') => {
            path[0] = list.trim_end_matches("[0]").to_owned();
            ""
        }
        _ => "",
    };
    if let (false, Some(second)) = (name.is_empty(), path.get_mut(1)) {
        *second = name.to_owned();
    }
    if let [console, users, user, ..] = path.as_mut_slice()
        && (console.as_str(), users.as_str()) == ("console", "users")
    {
        *user = ANY.to_owned();
    }
    // Here the user's names are those of fields.
    if let [.., when, last] = path.as_mut_slice()
        && when == "when"
    {
        *last = "FIELD".to_owned();
    }
    path
}

/// What a parser accepts, from what it says to values that it must refuse.
pub(super) fn accepted_by<T>(parse: &dyn Fn(&Raw) -> Result<T, InvalidValue>) -> String {
    let refusal = |value: Value| parse(&Raw { value, variable: None }).err();
    let word = refusal(Value::String("?".to_owned()));
    if let Some(words) = word.as_ref().and_then(listed) {
        return words;
    }
    let is_duration = word.as_ref().is_some_and(|invalid| invalid.wrong == "`?` is no duration");
    let kind = if is_duration { Some("duration".to_owned()) } else { kind(&refusal) };
    let mut accepts = kind.unwrap_or_else(|| "text".to_owned());
    if takes_lists(&refusal) {
        accepts.push_str(", or a list");
    }
    if let Some((_, word)) = word.as_ref().and_then(|invalid| invalid.remedy.rsplit_once(", or \"")) {
        accepts.push_str(&format!(", or `{}`", word.trim_end_matches('"')));
    }
    if let Some(bounds) = bounds(&refusal) {
        accepts.push_str(&format!(", {bounds}"));
    }
    accepts
}

/// The words that may be written, if the parser knows a few only.
fn listed(invalid: &InvalidValue) -> Option<String> {
    let known = invalid
        .wrong
        .ends_with("is not an option")
        .then_some(())
        .and_then(|()| invalid.remedy.strip_prefix("known here: "))?;
    let words: Vec<String> = known.split(", ").map(|word| format!("`{word}`")).collect();
    Some(words.join(" or "))
}

type Refusal<'a> = &'a dyn Fn(Value) -> Option<InvalidValue>;

/// A value that no setting is made of, but for one that may be a time.
fn time() -> Value {
    "1979-05-27".parse().map_or(Value::Boolean(true), Value::Datetime)
}

fn kind(refusal: Refusal<'_>) -> Option<String> {
    let said = |value| refusal(value).and_then(|invalid| needed(&invalid.wrong));
    said(time()).or_else(|| said(Value::Boolean(true)))
}

/// `a size` of "it must be a size, not a time".
fn needed(wrong: &str) -> Option<String> {
    let (needed, _) = wrong.strip_prefix("it must be ")?.rsplit_once(", not ")?;
    Some(needed.strip_prefix("a ").unwrap_or(needed).to_owned())
}

fn takes_lists(refusal: Refusal<'_>) -> bool {
    refusal(Value::Array(vec![time()])).is_some_and(|invalid| invalid.wrong.ends_with(", not a time"))
}

fn bounds(refusal: Refusal<'_>) -> Option<String> {
    let text = |text: &str| Value::String(text.to_owned());
    let beyond =
        [Value::Integer(0), Value::Integer(i64::MAX), Value::Float(-1.0), text("1ms"), text("3650d")];
    beyond
        .into_iter()
        .find_map(|value| refusal(value)?.remedy.strip_prefix("choose a value from ").map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(path: &str) -> String {
        let all = reference();
        let found = all.iter().find(|setting| setting.path.join(".") == path);
        found.unwrap_or_else(|| panic!("no {path}")).accepts.clone()
    }

    #[test]
    fn the_sample_is_a_valid_configuration() {
        Config::parse("sample", SAMPLE, std::iter::empty()).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn parsers_tell_what_they_accept() {
        for (path, expected) in [
            ("pipeline.name", "text"),
            ("kafka.bootstrap", "text, or a list"),
            ("kafka.properties.NAME", "single value"),
            ("sources.TOPIC.start", "text"),
            ("tiers.NAME.partitions", "whole number, 1 to 10000"),
            ("tiers.NAME.window_bytes", "size, 1MiB to 64GiB"),
            ("retry.ladder", "duration, or a list"),
            ("retry.jitter", "number, 0 to 0.5"),
            ("classes.NAME.when.FIELD", "text, a whole number or true or false, or a list"),
            ("classes.NAME.key_by_position", "true or false"),
            ("classes.NAME.ordering", "`key` or `none`"),
            ("classes.NAME.time_limit", "duration"),
            ("classes.NAME.flood.within", "duration, 100ms to 1h"),
            ("ignore.when.FIELD", "text, a whole number or true or false, or a list"),
            ("topics.dlq_retention", "duration, or `unlimited`"),
            ("consume.drain_deadline", "duration, 1ms to 4m"),
        ] {
            assert_eq!(accepts(path), expected, "{path}");
        }
    }

    #[test]
    fn what_has_to_be_given_is_told() {
        let required: Vec<String> = reference()
            .iter()
            .filter(|setting| setting.presence == Presence::Required)
            .map(|setting| setting.path.join("."))
            .collect();
        assert_eq!(
            required,
            [
                "kafka.bootstrap",
                "registry.url",
                "sources.TOPIC.start",
                "classes.NAME.source",
                "classes.NAME.key_window.field",
                "classes.NAME.handler.type",
                "classes.NAME.handler.url",
                "ignore.name",
                "ignore.source",
                "console.users.NAME.role",
                "console.proxy.header",
                "console.proxy.addresses",
            ]
        );
    }
}
