//! What the documents say about the code, checked against the code: layers, tests that are named, links, settings, examples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_bootstrap::config::Problem;
use tidegate_bootstrap::{Config, ConfigError};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The layers, lowest first: a crate depends on crates of lower layers only.
const LAYERS: [&[&str]; 7] = [
    &["shared/domain"],
    &["shared/pipeline"],
    &["shared/bootstrap", "shared/codec", "shared/kafka", "shared/state"],
    &["shared/service"],
    &["services/demo", "services/ingest", "services/operator", "services/retry", "services/worker"],
    &["services/console"],
    &["cli", "examples/own-worker"],
];

/// The names in the `[dependencies]` of a member's manifest.
fn dependencies(member: &str) -> BTreeSet<String> {
    let manifest = read(&format!("{member}/Cargo.toml"));
    let (_, section) = manifest.split_once("\n[dependencies]\n").unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let name = |line: &str| line.split(['.', ' ', '=']).next().map(str::to_owned);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(name).collect()
}

fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let (_, list) = manifest.split_once("members = [").expect("the workspace has members");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split(',')
        .map(|member| member.trim().trim_matches('"').to_owned())
        .filter(|m| !m.is_empty())
        .collect()
}

#[test]
fn every_member_has_its_layer() {
    let layered: BTreeSet<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    let members = members();
    let known: BTreeSet<&str> =
        members.iter().map(String::as_str).filter(|member| *member != "tests").collect();
    assert_eq!(layered, known);
}

#[test]
fn dependencies_point_downwards_only() {
    let package = |member: &str| format!("tidegate-{}", member.rsplit('/').next().unwrap_or(member));
    let layer_of: BTreeMap<String, usize> = (0..)
        .zip(LAYERS)
        .flat_map(|(n, layer)| layer.iter().map(move |member| (package(member), n)))
        .collect();
    let mut checked = 0;
    for (layer, members) in LAYERS.iter().enumerate() {
        for member in *members {
            for dependency in dependencies(member).iter().filter(|name| name.starts_with("tidegate-")) {
                let below = layer_of.get(dependency).is_some_and(|&other| other < layer);
                assert!(below, "{member} depends on {dependency}, which is not in a lower layer");
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "only {checked} dependencies were found");
}

#[test]
fn only_one_crate_names_each_native_library() {
    for (library, owner) in
        [("rdkafka", "shared/kafka"), ("rocksdb", "shared/state"), ("apache-avro", "shared/codec")]
    {
        let members = members();
        let named: Vec<&String> =
            members.iter().filter(|m| *m != "tests" && dependencies(m).contains(library)).collect();
        assert_eq!(named, [owner], "{library}");
    }
}

#[test]
fn domain_depends_on_a_few_pure_crates_only() {
    let allowed = ["blake3", "itoa", "smallvec", "thiserror", "xxhash-rust"].map(str::to_owned);
    assert_eq!(dependencies("shared/domain"), allowed.into());
}

#[test]
fn unsafe_is_forbidden_everywhere_but_in_kafka() {
    assert!(read("Cargo.toml").contains("\nunsafe_code = \"forbid\"\n"));
    for member in members() {
        let inherits = read(&format!("{member}/Cargo.toml")).contains("\n[lints]\nworkspace = true\n");
        assert_eq!(inherits, member != "shared/kafka", "{member}: lints of the workspace");
    }
}

/// Every document of the repository.
fn documents() -> Vec<String> {
    let mut documents: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/own-worker/README.md"]
            .map(str::to_owned)
            .into();
    for folder in ["docs", "docs/adr"] {
        let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        documents.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
    }
    documents
}

/// The document without its code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect::<Vec<_>>().join("\n")
}

fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut named = 0;
    for document in documents() {
        let text = prose(&read(&document));
        for (file, test) in spans(&text).filter_map(|span| span.split_once(".rs::")) {
            let file = format!("{file}.rs");
            let exists = root().join(&file).is_file() && read(&file).contains(&format!("fn {test}("));
            assert!(exists, "{document} names the test `{test}` of {file}, which is not there");
            named += 1;
        }
    }
    assert!(named > 30, "only {named} tests were found in the documents");
}

#[test]
fn every_row_of_the_failure_table_names_its_test() {
    let text = read("ARCHITECTURE.md");
    let (_, table) =
        text.split_once("| fault | behaviour | tests |\n|---|---|---|\n").expect("the table is there");
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10);
    for row in rows {
        assert!(row.contains(".rs::"), "a row without a test: {row}");
    }
}

/// The anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut followed = 0;
    for document in documents() {
        let text = prose(&read(&document));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&document).parent().unwrap_or(Path::new(""));
            let target = if path.is_empty() { PathBuf::from(&document) } else { folder.join(path) };
            let file = root().join(&target);
            assert!(file.exists(), "{document} links to {link}, which is not there");
            if !heading.is_empty() {
                let text = fs::read_to_string(&file).expect("a document that is linked to can be read");
                let headings = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .map(|line| anchor(line.trim_start_matches(['#', ' '])));
                assert!(
                    headings.into_iter().any(|known| known == heading),
                    "{document} links to {link}: no such heading"
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 30, "only {followed} links were found");
}

fn parse(text: &str, env: &[(String, String)]) -> Result<Config, ConfigError> {
    Config::parse("a test", text, env.iter().cloned())
}

fn toml_blocks(text: &str) -> Vec<&str> {
    text.split("```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn the_configurations_that_are_shown_are_valid() {
    let readme = read("README.md");
    let blocks = toml_blocks(&readme);
    assert!(!blocks.is_empty());
    for block in blocks {
        if let Err(error) = parse(block, &[]) {
            panic!("README.md shows a configuration that is refused: {error}\n{block}");
        }
    }
    for file in ["tidegate.example.toml", "examples/own-worker/tidegate.toml"] {
        if let Err(error) = parse(&read(file), &[]) {
            panic!("{file} is refused: {error}");
        }
    }
}

#[test]
fn the_readme_shows_the_example_without_its_comments() {
    let example = read("tidegate.example.toml");
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim_end().to_owned();
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(bare).filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(lines(toml_blocks(&read("README.md"))[0]), lines(&example));
}

/// A configuration in which every optional setting is given.
const EVERYTHING: &str = r#"
[pipeline]
name = "p"
[kafka]
bootstrap = "k:9092"
replication = 3
properties = { "client.rack" = "a" }
consumer_properties = { "fetch.wait.max.ms" = "50" }
producer_properties = { "linger.ms" = "5" }
[registry]
url = "http://r:8081"
username = "u"
password = "p"
[sources.events]
start = "latest"
[tiers.default]
partitions = 6
[retry]
ladder = ["1s"]
[classes.fields]
source = "events"
record = "shop.Event"
when = { status = "NEW" }
key = ["a", "b"]
key_scope = "s"
key_window = { field = "at", every = "1h", tz = "UTC" }
partition_by = ["a"]
max_age = "1h"
handler = { type = "http", url = "http://h/", headers = { x = "y" } }
[classes.header]
source = "events"
key_header = "h"
handler = { type = "log" }
[classes.position]
source = "events"
key_by_position = true
handler = { type = "log" }
[[ignore]]
name = "i"
source = "events"
record = "shop.Other"
when = { status = "OLD" }
[console]
scrape = ["w:9600"]
masked = ["card.number"]
[console.users.ana]
role = "operator"
token_hash = "blake3:0000000000000000000000000000000000000000000000000000000000000000"
[console.proxy]
header = "x-forwarded-user"
addresses = ["10.0.0.5"]
"#;

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
"#;

/// Settings by (section, name), each with its value or default.
type Settings = BTreeMap<(String, String), String>;

/// The settings of docs/configuration.md, by the section that their table stands under, with the column `default`.
fn documented() -> Settings {
    let text = read("docs/configuration.md");
    let mut settings = Settings::new();
    let mut section = None;
    for line in text.lines() {
        if line.starts_with("## ") {
            section = line.strip_prefix("## `").and_then(|name| name.strip_suffix('`')).map(str::to_owned);
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        if let (Some(section), [name, default, ..]) = (&section, cells.as_slice())
            && let Some(name) = name.strip_prefix("| `").and_then(|name| name.strip_suffix('`'))
        {
            let before = settings.insert((section.clone(), name.to_owned()), default.trim().to_owned());
            assert_eq!(before, None, "{section}: {name} stands there twice");
        }
    }
    settings
}

/// The settings that the effective configuration prints, by the same names.
fn effective(text: &str) -> Settings {
    let config = parse(text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let mut settings = Settings::new();
    let mut section = Vec::new();
    for line in config.effective().lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).split('.').map(str::to_owned).collect();
        } else if let Some((name, value)) = line.split_once(" = ") {
            settings.insert(documented_name(&section, name), value.to_owned());
        }
    }
    settings
}

fn documented_name(section: &[String], name: &str) -> (String, String) {
    let parts: Vec<&str> = section.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["kafka", map] => ("[kafka]".to_owned(), format!("{map}.NAME")),
        ["sources", _] => ("[sources.\"TOPIC\"]".to_owned(), name.to_owned()),
        ["tiers", _] => ("[tiers.NAME]".to_owned(), name.to_owned()),
        ["classes", _] => ("[classes.NAME]".to_owned(), name.to_owned()),
        ["classes", _, "when"] => ("[classes.NAME]".to_owned(), "when.FIELD".to_owned()),
        ["classes", _, "handler"] => ("[classes.NAME.handler]".to_owned(), name.to_owned()),
        ["classes", _, "handler", "headers"] => {
            ("[classes.NAME.handler]".to_owned(), "headers.NAME".to_owned())
        }
        ["classes", _, inner] => ("[classes.NAME]".to_owned(), format!("{inner}.{name}")),
        ["console", "users", _] => ("[console.users.NAME]".to_owned(), name.to_owned()),
        ["console", "proxy"] => ("[console.proxy]".to_owned(), name.to_owned()),
        ["ignore"] => ("[[ignore]]".to_owned(), name.to_owned()),
        ["ignore", "when"] => ("[[ignore]]".to_owned(), "when.FIELD".to_owned()),
        [section] => (format!("[{section}]"), name.to_owned()),
        other => panic!("a section that the documentation has no name for: {other:?}"),
    }
}

#[test]
fn every_setting_is_documented_and_every_documented_setting_exists() {
    let mut known: BTreeSet<(String, String)> = effective(EVERYTHING).into_keys().collect();
    // The one that excludes another which is given above.
    known.insert(("[registry]".to_owned(), "bearer_token".to_owned()));
    let documented: BTreeSet<(String, String)> = documented().into_keys().collect();
    assert_eq!(documented, known, "left: docs/configuration.md, right: the code");
    assert!(documented.len() > 50);
}

#[test]
fn every_documented_default_is_the_codes() {
    let effective = effective(DEFAULTS);
    let mut compared = 0;
    for (setting, default) in documented() {
        // Others are told in words: `required`, `none`, `the class's name`.
        let Some(literal) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) else {
            continue;
        };
        let Some(value) = effective.get(&setting) else { continue };
        assert_eq!(literal.trim_matches('"'), value.trim_matches('"'), "the default of {setting:?}");
        compared += 1;
    }
    assert!(compared >= 30, "only {compared} defaults were compared");
}

#[test]
fn every_documented_setting_can_be_overridden_by_the_environment() {
    let mut tried = 0;
    for (section, setting) in documented().into_keys() {
        if section == "[[ignore]]" || setting.starts_with("when.") {
            continue;
        }
        let place = section
            .trim_matches(['[', ']'])
            .replace("sources.\"TOPIC\"", "sources.events")
            .replace("tiers.NAME", "tiers.default")
            .replace("console.users.NAME", "console.users.ana")
            .replace("classes.NAME", "classes.fields");
        let variable = format!("TIDEGATE_{place}__{setting}").replace('.', "__").to_uppercase();
        let problems = problems(&parse(EVERYTHING, &[(variable.clone(), "~".to_owned())]));
        let unknown = problems.iter().any(|problem| problem.wrong.contains("names no setting"));
        assert!(!unknown, "{variable}, for {setting} of {section}, is unknown to the code");
        tried += 1;
    }
    assert!(tried > 40, "only {tried} settings were tried");
}

fn problems(parsed: &Result<Config, ConfigError>) -> Vec<Problem> {
    match parsed {
        Err(ConfigError::Invalid(problems)) => problems.iter().cloned().collect(),
        _ => Vec::new(),
    }
}
