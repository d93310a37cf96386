//! docs/operations.md: every metric that the code has is in its table, and no document names one that it has not.

use std::collections::BTreeSet;
use std::sync::Mutex;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder,
};
use tidegate_tests::documents::{documents, read, spans};

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
