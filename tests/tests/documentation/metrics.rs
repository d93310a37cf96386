//! docs/operations.md: every metric that the code has is in its table, and no document names one that it has not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
};
use serde_json::Value;
use tidegate_bootstrap::Config;
use tidegate_tests::documents::{blocks, documents, read, spans};

use crate::table::Table;

/// Keeps what is described, in order.
#[derive(Default)]
struct Described(Mutex<Vec<(String, &'static str, String)>>);

impl Described {
    fn note(&self, name: &KeyName, kind: &'static str, description: &SharedString) {
        let row = (name.as_str().to_owned(), kind, description.to_string());
        self.0.lock().expect("no test panics with it").push(row);
    }
}

impl Recorder for Described {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.note(&name, "counter", &description);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.note(&name, "gauge", &description);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, description: SharedString) {
        self.note(&name, "histogram", &description);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn described() -> Vec<(String, &'static str, String)> {
    let recorder = Described::default();
    with_local_recorder(&recorder, || {
        tidegate_pipeline::events::describe();
        tidegate_state::events::describe();
    });
    recorder.0.into_inner().expect("no test panics with it")
}

#[test]
fn the_table_of_metrics_is_what_the_code_describes() {
    let row = |(name, kind, description): (String, &str, String)| {
        vec![format!("`{name}`"), kind.to_owned(), String::new(), description]
    };
    let rows: Vec<Vec<String>> = described().into_iter().map(row).collect();
    assert!(rows.len() > 30);
    let header = ["metric", "type", "labels", "meaning"];
    Table { document: "docs/operations.md", name: "metrics", header: &header, rows }.check();
}

/// Names that are constants in the sources, described or not.
fn constants() -> BTreeSet<String> {
    let sources = ["shared/pipeline/src/events.rs", "shared/state/src/events.rs"].map(read);
    let texts = sources.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
    texts.filter(|text| text.starts_with("tidegate_")).map(str::to_owned).collect()
}

#[test]
fn every_metric_is_described() {
    let described: BTreeSet<String> = described().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(described, constants());
}

#[test]
fn every_metric_that_a_document_names_exists() {
    let known = constants();
    let mut named = 0;
    for document in documents() {
        let text = read(&document);
        // In blocks too: rules of alerts, and commands.
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for word in words.filter(|word| word.starts_with("tidegate_") && !is_crate(word)) {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
            let exists = known.contains(word) || family.is_some_and(|family| known.contains(family));
            assert!(exists, "{document} names the metric {word}, which there is not");
            named += 1;
        }
    }
    assert!(named > 50, "only {named} metrics were found in the documents");
    assert!(spans(&read("docs/operations.md")).count() > 0);
}

/// The rules of alerts in the documentation, by name.
fn alerts() -> BTreeMap<String, String> {
    let blocks = blocks("docs/operations.md");
    let block = blocks.iter().find(|block| block.text.starts_with("groups:")).expect("there are rules");
    let rules: Value = serde_saphyr::from_str(&block.text).unwrap_or_else(|error| panic!("{error}"));
    let rules = rules["groups"][0]["rules"].as_array().expect("a list of rules").iter();
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    rules.map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect()
}

/// The labels of each metric in the documentation's table.
fn labels() -> BTreeMap<String, String> {
    let text = read("docs/operations.md");
    let rows = text.lines().filter(|line| line.starts_with("| `tidegate_"));
    let cell = |row: &str, at: usize| row.split('|').nth(at).expect("it has four cells").trim().to_owned();
    rows.map(|row| (cell(row, 1).replace('`', ""), cell(row, 3))).collect()
}

#[test]
fn a_rule_of_alerts_groups_and_selects_by_labels_that_its_metric_has() {
    let labels = labels();
    let mut used = 0;
    for (alert, rule) in alerts() {
        let metric = labels.keys().filter(|name| rule.contains(name.as_str())).max_by_key(|name| name.len());
        let Some(metric) = metric else {
            assert!(rule.starts_with("up{"), "{alert} names no metric: {rule}");
            continue;
        };
        let grouped = rule.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        let selected = rule.split('{').skip(1).filter_map(|rest| rest.split('=').next());
        for label in grouped.flat_map(|labels| labels.split(", ")).chain(selected) {
            let exists = label == "le" || labels[metric].contains(&format!("`{label}`"));
            assert!(exists, "{alert}: {metric} has no label {label}");
            used += 1;
        }
    }
    assert!(used > 8, "only {used} labels were found");
}

#[test]
fn that_nobody_reads_a_topic_is_told_of_the_topics_of_every_tier_by_their_own_names() {
    let rule = &alerts()["TidegateNobodyReads"];
    let watched: BTreeSet<&str> = rule
        .split("absent(tidegate_partition_lag{topic=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let config = Config::parse("the defaults", "[kafka]\nbootstrap = \"b:1\"", std::iter::empty());
    let topics = tidegate_service::plan::topics(&config.expect("it is valid"));
    let planned: BTreeSet<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    assert!(watched.is_subset(&planned), "{watched:?} are not all among {planned:?}");
    let jobs: BTreeSet<&str> = planned.iter().copied().filter(|name| name.ends_with(".jobs")).collect();
    assert!(jobs.len() == 3 && jobs.is_subset(&watched), "{jobs:?} are not all among {watched:?}");
    assert!(watched.iter().any(|topic| topic.contains(".retry-")), "nothing watches retry: {watched:?}");
}

/// Crates are named in the same way.
fn is_crate(word: &str) -> bool {
    [
        "bootstrap",
        "codec",
        "domain",
        "ingest",
        "kafka",
        "pipeline",
        "retry",
        "service",
        "state",
        "tests",
        "worker",
    ]
    .iter()
    .any(|name| word == format!("tidegate_{name}"))
}
