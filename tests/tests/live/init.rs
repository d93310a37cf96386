//! `tidegate init` with the schemas of a real registry.

use std::time::Duration;

use tidegate_tests::process::{Process, Setup};
use tidegate_tests::servers::Registry;
use tidegate_tests::unique;

const SOON: Duration = Duration::from_secs(30);
const SCHEMA: &str = r#"{"type":"record","name":"Order","namespace":"init","fields":[
    {"name":"order_id","type":"string"},
    {"name":"customer","type":{"type":"record","name":"Customer","fields":[{"name":"id","type":"long"}]}},
    {"name":"note","type":["null","string"],"default":null}]}"#;

fn init(topic: &str, key: &str) -> (i32, Process) {
    let registry = format!("--registry={}", Registry::shared().url());
    let (topic, key) = (format!("--topic={topic}"), format!("--key={key}"));
    let words =
        ["init", &registry, &topic, &key, "--start=earliest", "--url=http://127.0.0.1:8000/order", "--yes"];
    let mut process = Setup::new("init", &words).start();
    (process.wait(SOON).0, process)
}

/// A topic whose values have the schema. (Only its subject: init does not look at Kafka.)
fn topic() -> String {
    let topic = unique("init");
    Registry::shared().register(&format!("{topic}-value"), SCHEMA);
    topic
}

#[test]
fn fields_of_the_registered_schema_make_a_key() {
    let topic = topic();
    let (code, process) = init(&topic, "order_id,customer.id");
    assert_eq!(code, 0, "{}", process.stderr());
    assert!(process.stderr().contains("Its events have order_id, customer, customer.id, note."));
    let written = std::fs::read_to_string(process.directory().join("tidegate.toml")).expect("it is written");
    assert!(written.contains("key = [\"order_id\", \"customer.id\"]"), "{written}");
    let mut check = Setup::new("check", &["config", "check"]).config(&written).start();
    assert_eq!(check.wait(SOON).0, 0, "{}", check.stderr());
}

#[test]
fn a_field_that_the_registered_schema_lacks_is_refused_with_the_nearest_name() {
    let topic = topic();
    for (key, told) in [
        ("oder_id", "--key: the schema has no field `oder_id`; did you mean `order_id`?"),
        ("customer", "name a field within it: customer.id"),
    ] {
        let (code, process) = init(&topic, key);
        assert_eq!(code, 2, "{}", process.stderr());
        assert!(process.stderr().contains(told), "{}", process.stderr());
        assert!(!process.directory().join("tidegate.toml").exists());
    }
}

#[test]
fn a_topic_without_a_registered_schema_is_refused_with_the_nearest_subject() {
    let topic = topic();
    let (code, process) = init(&format!("{topic}s"), "order_id");
    let said = process.stderr();
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains(&format!("no schema for the subject {topic}s-value (it has {topic}-value)")),
        "{said}"
    );
}
