//! docs/configuration.md: its tables are what the code that reads the configuration says.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_bootstrap::config::{Presence, Problem, Setting, reference};
use tidegate_bootstrap::{Config, ConfigError};
use tidegate_tests::documents::{read, spans};

use crate::table::Table;

const DOCUMENT: &str = "docs/configuration.md";

/// A configuration in which only what is required is given, and what else is needed to see a default.
const DEFAULTS: &str = r#"
[kafka]
bootstrap = "k:9092"
[registry]
url = "http://r:8081"
[sources.events]
start = "latest"
[classes.some]
source = "events"
key = ["a"]
key_window = { field = "at" }
handler = { type = "http", url = "http://h/" }
[console.proxy]
header = "x-user"
addresses = ["::1"]
"#;

/// Defaults that are no fixed value: they follow another setting, or the machine.
const IN_WORDS: [(&str, &str); 15] = [
    ("kafka.replication", "the broker's"),
    ("consume.shards", "one a core, at most 4"),
    ("classes.NAME.record", "any"),
    ("classes.NAME.when.FIELD", "any"),
    ("ignore.record", "any"),
    ("ignore.when.FIELD", "any"),
    ("classes.NAME.key", "one of the three is required"),
    ("classes.NAME.key_header", "-"),
    ("classes.NAME.key_scope", "the class's name"),
    ("classes.NAME.key_window.field", "no window"),
    ("classes.NAME.partition_by", "all of `key`"),
    ("classes.NAME.ladder", "all of `retry.ladder`"),
    ("classes.NAME.max_attempts", "rungs of `ladder` + 1"),
    ("classes.NAME.handler.timeout", "the class's `time_limit`"),
    ("classes.NAME.key_by_position", "`false`"),
];

/// The table that a setting is in, and its name there.
fn placed(setting: &Setting) -> (String, String) {
    let path: Vec<&str> = setting.path.iter().map(String::as_str).collect();
    let length = match path.as_slice() {
        ["classes", _, "handler", ..] | ["console", "users", ..] => 3,
        ["sources" | "tiers" | "classes", ..] | ["console", "proxy", ..] => 2,
        _ => 1,
    };
    (path[..length].join("."), path[length..].join("."))
}

/// What the effective configuration says where only the required is given, by the same places.
fn defaults() -> BTreeMap<String, String> {
    let config = parse(DEFAULTS, &[]).unwrap_or_else(|error| panic!("{error}"));
    let names = [
        ("sources.events", "sources.TOPIC"),
        ("tiers.default", "tiers.NAME"),
        ("classes.some", "classes.NAME"),
    ];
    let mut section = String::new();
    let mut defaults = BTreeMap::new();
    for line in config.effective().lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            for (name, general) in names {
                section = section.replace(name, general);
            }
        } else if let Some((name, value)) = line.split_once(" = ") {
            defaults.insert(format!("{section}.{name}"), value.to_owned());
        }
    }
    defaults
}

fn default(setting: &Setting, effective: &BTreeMap<String, String>) -> String {
    let path = setting.path.join(".");
    if let Some((_, words)) = IN_WORDS.iter().find(|(known, _)| *known == path) {
        return (*words).to_owned();
    }
    match effective.get(&path) {
        _ if setting.presence == Presence::Required => "required".to_owned(),
        None => "none".to_owned(),
        // Texts stand without their quotes, as in sentences; lists as they are written.
        Some(value) => format!("`{}`", value.trim_matches('"')),
    }
}

/// The rows of each table.
fn tables() -> BTreeMap<String, Vec<Vec<String>>> {
    let effective = defaults();
    let mut tables: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for setting in reference() {
        let (table, name) = placed(&setting);
        let row =
            vec![format!("`{name}`"), setting.accepts.clone(), default(&setting, &effective), String::new()];
        tables.entry(table).or_default().push(row);
    }
    tables
}

#[test]
fn the_tables_of_settings_are_what_the_code_reads() {
    let tables = tables();
    let settings: usize = tables.values().map(Vec::len).sum();
    assert!(settings > 50, "only {settings} settings");
    let names: Vec<&str> = tables.keys().map(String::as_str).collect();
    let expected = "classes.NAME classes.NAME.handler console console.proxy console.users.NAME consume ignore kafka observe pipeline registry retry sources.TOPIC state \
                    tiers.NAME topics";
    assert_eq!(names.join(" "), expected);
    for (name, rows) in tables.clone() {
        Table { document: DOCUMENT, name: &name, header: &["setting", "type", "default", "meaning"], rows }
            .check();
    }
}

#[test]
fn every_default_in_words_is_one_of_a_setting_that_exists() {
    let known: BTreeSet<String> = reference().iter().map(|setting| setting.path.join(".")).collect();
    for (path, _) in IN_WORDS {
        assert!(known.contains(path), "{path} is no setting");
    }
}

/// A configuration in which every table has an entry.
const EVERYTHING: &str = r#"
[kafka]
bootstrap = "k:9092"
[registry]
url = "http://r:8081"
[sources.events]
start = "latest"
[tiers.default]
[classes.fields]
source = "events"
key = ["a", "b"]
key_window = { field = "at" }
handler = { type = "http", url = "http://h/" }
[[ignore]]
name = "i"
source = "events"
[console.users.ana]
role = "reader"
"#;

#[test]
fn every_setting_can_be_overridden_by_the_environment() {
    let mut tried = 0;
    for setting in reference() {
        if setting.path[0] == "ignore" || setting.path.iter().any(|name| name == "when") {
            continue;
        }
        let mut path = setting.path.clone();
        match path[0].as_str() {
            "sources" => path[1] = "events".to_owned(),
            "tiers" => path[1] = "default".to_owned(),
            "classes" => path[1] = "fields".to_owned(),
            "console" if path[1] == "users" => path[2] = "ana".to_owned(),
            _ => {}
        }
        let variable = format!("TIDEGATE_{}", path.join("__")).to_uppercase();
        let problems = problems(&parse(EVERYTHING, &[(variable.clone(), "~".to_owned())]));
        let unknown = problems.iter().any(|problem| problem.wrong.contains("names no setting"));
        assert!(!unknown, "{variable} is unknown to the code");
        tried += 1;
    }
    assert!(tried > 40, "only {tried} settings were tried");
}

pub(crate) fn parse(text: &str, env: &[(String, String)]) -> Result<Config, ConfigError> {
    Config::parse("a test", text, env.iter().cloned())
}

fn problems(parsed: &Result<Config, ConfigError>) -> Vec<Problem> {
    match parsed {
        Err(ConfigError::Invalid(problems)) => problems.iter().cloned().collect(),
        _ => Vec::new(),
    }
}

/// The names in the paragraph that begins so.
fn named_after(begin: &str) -> BTreeSet<String> {
    let text = read(DOCUMENT);
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{DOCUMENT} has no `{begin}`"));
    let (paragraph, _) = rest.split_once("\n\n").expect("the paragraph ends");
    spans(paragraph).map(str::to_owned).collect()
}

#[test]
fn the_properties_that_are_refused_are_those_that_the_page_names() {
    let source = read("shared/bootstrap/src/config/kafka.rs");
    let (_, body) = source.split_once("fn refusal(name: &str)").expect("the function is there");
    let (body, _) = body.split_once("_ => return None").expect("it ends so");
    let is_property = |text: &&str| text.chars().all(|c| c.is_ascii_lowercase() || c == '.');
    let texts = body.split('"').skip(1).step_by(2).filter(is_property);
    // The settings to use instead are named there too, each as a part of a sentence.
    let refused: BTreeSet<String> = texts.map(str::to_owned).collect();
    let named = named_after("or they have a setting of their own:");
    assert_eq!(named, refused, "left: {DOCUMENT}, right: the code");
    for name in &named {
        let text = format!("{DEFAULTS}\n[kafka.properties]\n\"{name}\" = \"x\"\n");
        assert!(!problems(&parse(&text, &[])).is_empty(), "{name} is not refused");
    }
}
