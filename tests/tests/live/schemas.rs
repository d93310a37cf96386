//! The schema registry as it is in life: ids that come late or never, a registry that is down, schemas that evolve.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_domain::{FailureKind, JobHeader};
use tidegate_tests::dead_letters::{self, Cause};
use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::events::Writer;
use tidegate_tests::http;
use tidegate_tests::kafka_io::{ReadRecord, Record};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::process::built_binary;
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::{look_until, wait_until};

use crate::standstill::keep_sessions;

const SOON: Duration = Duration::from_secs(60);

/// A record with the key `order_id` and these fields.
fn schema(name: &str, fields: &str) -> String {
    format!(
        r#"{{"type":"record","name":"{name}","namespace":"shop","fields":[{{"name":"order_id","type":"string"}}{fields}]}}"#
    )
}

/// Where the registry has Confluent's API.
const PATH: &str = "/apis/ccompat/v7";

/// A registry that replicates late: it answers as the real one behind it does, but knows one id only when told so.
struct LateRegistry {
    endpoint: Endpoint,
    hidden: Arc<Mutex<Option<u32>>>,
}

impl LateRegistry {
    fn start() -> Self {
        let hidden: Arc<Mutex<Option<u32>>> = Arc::default();
        let url = Registry::shared().url();
        let origin = url[..url.find(PATH).expect("the registry's path")].to_owned();
        let seen = hidden.clone();
        let endpoint = Endpoint::start(move |call| {
            let hidden = *seen.lock().expect("no call panics");
            let asked = |id: u32| {
                call.path.split('?').next().is_some_and(|path| path.ends_with(&format!("/schemas/ids/{id}")))
            };
            // An id that the real registry doesn't know either: its own words for that.
            let path = match hidden {
                Some(id) if asked(id) => call.path.replace(&format!("/ids/{id}"), "/ids/1999999999"),
                _ => call.path.clone(),
            };
            let (status, body) = http::get(&format!("{origin}{path}")).expect("the real registry answers");
            Answer::status(status).header("content-type", "application/json").body(body)
        });
        Self { endpoint, hidden }
    }

    fn url(&self) -> String {
        format!("{}{PATH}", self.endpoint.url())
    }

    fn hide(&self, id: u32) {
        *self.hidden.lock().expect("no call panics") = Some(id);
    }

    fn replicate(&self) {
        *self.hidden.lock().expect("no call panics") = None;
    }
}

/// A pipeline with one source of two partitions, the class `ship`, and ingest not started yet.
fn pipeline(prefix: &str, registry: &str, grace: &str) -> (Pipeline, String) {
    let mut pipeline = Pipeline::new(prefix, Kafka::shared(), registry);
    keep_sessions(&mut pipeline);
    pipeline.reconfigure("unknown_schema_grace = \"3s\"", &format!("unknown_schema_grace = \"{grace}\""));
    let source = pipeline.source("orders", 2, "earliest");
    pipeline.configure(&format!(
        "[classes.ship]\nsource = \"{source}\"\nkey = [\"order_id\"]\nhandler = {{ type = \"log\" }}\n"
    ));
    pipeline.apply_topics();
    (pipeline, source)
}

fn order(writer: &Writer, id: &str, partition: i32) -> Record {
    writer.record(&json!({"order_id": id})).partition(partition)
}

fn job_header(record: &ReadRecord) -> JobHeader<'_> {
    let header = record.header("job").expect("every job has the header");
    JobHeader::parse(header.as_bytes()).expect("it can be read")
}

/// Waits until so many jobs are there, and returns partition and offset of their events, sorted.
fn origins(pipeline: &Pipeline, count: usize) -> Vec<(i32, i64)> {
    let jobs = pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), count, SOON);
    let mut origins: Vec<_> =
        jobs.iter().map(job_header).map(|job| (job.partition.0, job.offset.0)).collect();
    origins.sort_unstable();
    origins
}

fn nothing_is_dead(pipeline: &Pipeline) {
    assert_eq!(pipeline.client.read_all(&pipeline.topic("dlq")), []);
}

#[test]
fn an_id_that_appears_within_the_grace_holds_up_its_partition_only_and_becomes_a_job() {
    let registry = LateRegistry::start();
    let (mut pipeline, source) = pipeline("late-id", &registry.url(), "1m");
    let known = Writer::register(Registry::shared(), &source, &schema("Known", ""));
    let late = Writer::register(Registry::shared(), &format!("{source}.late"), &schema("Late", ""));
    registry.hide(late.id());
    pipeline.start("ingest", &["ingest"]);
    pipeline.client.produce_all(
        &source,
        &[order(&late, "a", 0), order(&known, "b", 0), order(&known, "c", 1), order(&known, "d", 1)],
    );

    assert_eq!(origins(&pipeline, 2), [(1, 0), (1, 1)], "the other partition goes on");
    pipeline.wait_not_ready("ingest", &format!("doesn't know schema id {}", late.id()), SOON);
    assert!(pipeline.metric("ingest", "tidegate_registry_errors_total", &["reason=\"unknown_id\""]) > 0.0);
    let group = format!("{}.ingest", pipeline.name);
    assert!(pipeline.client.committed(&group, &source)[&0].unwrap_or(0) == 0, "nothing of it is settled");

    registry.replicate();
    assert_eq!(origins(&pipeline, 4), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    pipeline.wait_ready("ingest");
    pipeline.client.wait_for_no_lag(&group, &source, SOON);
    nothing_is_dead(&pipeline);
}

#[test]
fn an_id_that_never_appears_is_dead_lettered_after_the_grace_and_used_once_it_is_there() {
    let registry = LateRegistry::start();
    let (mut pipeline, source) = pipeline("never-id", &registry.url(), "2s");
    let known = Writer::register(Registry::shared(), &source, &schema("Known", ""));
    let late = Writer::register(Registry::shared(), &format!("{source}.late"), &schema("Never", ""));
    registry.hide(late.id());
    pipeline.start("ingest", &["ingest"]);
    pipeline.client.produce_all(&source, &[order(&late, "a", 0), order(&known, "b", 0)]);

    let dead = pipeline.wait_for_dead(1, SOON);
    let published = pipeline.client.read_all(&source);
    let cause = Cause { kind: FailureKind::Malformed, code: "unknown-schema-id" };
    dead_letters::check_event(&dead[0], &published[0], cause);
    let dead_at: i64 = dead[0].header("job-dead-at").and_then(|at| at.parse().ok()).expect("a time");
    let waited = dead_at - published[0].timestamp.expect("the record's time");
    assert!(waited >= 2000, "dead after {waited} ms of 2 s");
    assert_eq!(origins(&pipeline, 1), [(0, 1)], "what stands behind it goes on");
    pipeline.wait_ready("ingest");

    // Somebody registers it at last. What is published a moment later must not die of what was true before.
    registry.replicate();
    let group = format!("{}.ingest", pipeline.name);
    let next = look_until(SOON, || {
        pipeline.client.produce(&source, &order(&late, "c", 0));
        pipeline.client.wait_for_no_lag(&group, &source, SOON);
        let jobs = pipeline.client.read_all(&pipeline.topic("default.jobs"));
        jobs.iter().map(job_header).find(|job| job.offset.0 > 1).map(|job| job.offset.0)
    });
    let next = next.expect("an event becomes a job some time after its schema is there");
    let dead = pipeline.client.read_all(&pipeline.topic("dlq"));
    assert_eq!(dead.len() as i64, 1 + (next - 2), "what came before it is dead, and nothing else");

    // And the first one has another chance: sent round again, it becomes the job that it would have been.
    let letter = dead.iter().find(|letter| letter.value == published[0].value).expect("it is dead");
    pipeline.client.produce(&pipeline.topic("reingest"), &copy_of(letter));
    let jobs = pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 3, SOON);
    let again =
        jobs.iter().find(|job| job_header(job).offset.0 == 0).expect("a job of the event at offset 0");
    assert_eq!((job_header(again).topic, &again.value), (source.as_str(), &published[0].value));
}

/// The same record, to be published elsewhere.
fn copy_of(record: &ReadRecord) -> Record {
    let copy = Record::default().value(record.value.clone().unwrap_or_default());
    record.headers.iter().fold(copy, |copy, (name, value)| match value {
        Some(value) => copy.header(name, value.clone()),
        None => copy.null_header(name),
    })
}

#[test]
fn a_registry_that_is_down_holds_up_what_needs_it_and_nothing_is_dead_lettered() {
    let mut registry = Registry::start();
    let (mut pipeline, source) = pipeline("registry-down", registry.url(), "1s");
    let orders = Writer::register(&registry, &source, &schema("Order", ""));
    let rare = Writer::register(&registry, &format!("{source}.rare"), &schema("Rare", ""));

    registry.stop();
    pipeline.start("ingest", &["ingest"]);
    pipeline.client.produce_all(&source, &[order(&orders, "a", 0), order(&orders, "b", 1)]);
    pipeline.wait_not_ready("ingest", "schema registry can't be reached", SOON);
    assert_eq!(pipeline.client.read_all(&pipeline.topic("default.jobs")), []);
    registry.start_again();
    assert_eq!(origins(&pipeline, 2), [(0, 0), (1, 0)]);
    pipeline.wait_ready("ingest");

    registry.stop();
    pipeline.client.produce_all(
        &source,
        &[order(&rare, "c", 0), order(&orders, "d", 0), order(&orders, "e", 1), order(&orders, "f", 1)],
    );
    assert_eq!(origins(&pipeline, 4), [(0, 0), (1, 0), (1, 1), (1, 2)], "known schemas go on");
    // Longer than the grace: it is about ids that a registry in reach doesn't know.
    pipeline.wait_not_ready("ingest", "schema registry can't be reached", SOON);
    let unreachable = |pipeline: &mut Pipeline| {
        pipeline.metric("ingest", "tidegate_registry_errors_total", &["reason=\"unreachable\""])
    };
    let asked = unreachable(&mut pipeline);
    wait_until("six more attempts", SOON, || unreachable(&mut pipeline) >= asked + 6.0);
    assert_eq!(pipeline.readyz("ingest").0, 503);
    registry.start_again();
    assert_eq!(origins(&pipeline, 6), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
    pipeline.wait_ready("ingest");
    pipeline.client.wait_for_no_lag(&format!("{}.ingest", pipeline.name), &source, SOON);
    nothing_is_dead(&pipeline);
}

/// One event, as five generations of publishers write it, and the JSON that a handler gets of it.
fn generations() -> [(String, Value); 5] {
    let order = |fields: &str| schema("Order", fields);
    let renamed = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
        {"name":"id","aliases":["order_id"],"type":"string"},{"name":"amount","type":"int"}]}"#;
    [
        (
            order(r#",{"name":"amount","type":"int"},{"name":"legacy","type":"string"}"#),
            json!({"order_id": "o", "amount": 1, "legacy": "x"}),
        ),
        (
            order(
                r#",{"name":"amount","type":"int"},{"name":"legacy","type":"string"},{"name":"currency","type":"string","default":"EUR"}"#,
            ),
            json!({"order_id": "o", "amount": 2, "legacy": "x", "currency": "EUR"}),
        ),
        (
            order(r#",{"name":"amount","type":"int"},{"name":"currency","type":"string","default":"EUR"}"#),
            json!({"order_id": "o", "amount": 3, "currency": "USD"}),
        ),
        (
            order(
                r#",{"name":"amount","type":["null","long","string"]},{"name":"currency","type":"string","default":"EUR"}"#,
            ),
            json!({"order_id": "o", "amount": "4.50", "currency": "EUR"}),
        ),
        (renamed.to_owned(), json!({"id": "o", "amount": 5})),
    ]
}

#[test]
fn events_of_every_generation_of_a_schema_reach_the_handler_under_one_key() {
    let endpoint = Endpoint::start(|_| Answer::ok());
    let mut pipeline = Pipeline::new("evolved", Kafka::shared(), Registry::shared().url());
    keep_sessions(&mut pipeline);
    let source = pipeline.source("orders", 1, "earliest");
    // Two classes: of one every event is a job of its own, of the other equal orders are one job.
    pipeline.configure(&format!(
        "[classes.each]\nsource = \"{source}\"\nkey_by_position = true\nhandler = {{ type = \"http\", url = \"{}/each\" }}\n\n\
         [classes.once]\nsource = \"{source}\"\nkey = [\"order_id\"]\nhandler = {{ type = \"http\", url = \"{}/once\" }}\n",
        endpoint.url(),
        endpoint.url(),
    ));
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
    pipeline.start("worker", &["worker", "--tier", "default"]);
    let mut written = Vec::new();
    for (schema, event) in generations() {
        let writer = Writer::register(Registry::shared(), &source, &schema);
        pipeline.client.produce(&source, &writer.record(&event));
        written.push(event);
    }

    let calls = endpoint.wait_until(SOON, |calls| calls.len() > written.len());
    let mut posted: Vec<Value> =
        calls.iter().filter(|call| call.path == "/each").map(|call| call.json()).collect();
    posted.sort_by_key(|event| written.iter().position(|other| other == event));
    assert_eq!(posted, written);
    pipeline.client.wait_for_no_lag(
        &format!("{}.default.worker", pipeline.name),
        &pipeline.topic("default.jobs"),
        SOON,
    );
    let once: Vec<_> = endpoint.calls().into_iter().filter(|call| call.path == "/once").collect();
    assert_eq!(once.len(), 1, "five generations of one order are one job");
    let jobs = pipeline.client.read_all(&pipeline.topic("default.jobs"));
    let keys: Vec<_> =
        jobs.iter().map(job_header).filter(|job| job.class == "once").map(|job| job.key).collect();
    assert_eq!(keys.len(), 5);
    assert!(keys.iter().all(|key| Some(key.to_string().as_str()) == once[0].header("idempotency-key")));
    nothing_is_dead(&pipeline);
}

/// Generations of the example worker's event: the fields after `user_id`, and an event of each.
fn sign_ups() -> [(&'static str, Value); 4] {
    let plan = r#"{"name":"plan","type":{"type":"enum","name":"Plan","symbols":["FREE","TEAM"]}}"#;
    let more = r#"{"name":"plan","type":["null",{"type":"enum","name":"Plan","symbols":["FREE","COMPANY","TEAM"]}]}"#;
    let fields = |email: &str, rest: &str| -> &'static str {
        format!(r#"{{"name":{email},"type":"string"}},{rest}"#).leak()
    };
    let referrer = r#"{"name":"referrer","type":["null","string"],"default":null}"#;
    [
        (fields(r#""email""#, plan), json!({"user_id": "u-1", "email": "a@x", "plan": "FREE"})),
        // A field added with a default, and a union widened.
        (
            fields(r#""email""#, &format!("{more},{referrer}")),
            json!({"user_id": "u-2", "email": "b@x", "plan": "COMPANY", "referrer": "u-1"}),
        ),
        // A field renamed, with its old name as an alias; one removed that the handler can do without.
        (
            fields(r#""address","aliases":["email"]"#, more),
            json!({"user_id": "u-3", "address": "c@x", "plan": "TEAM"}),
        ),
        // One removed that it can't do without.
        (fields(r#""email""#, referrer), json!({"user_id": "u-4", "email": "d@x", "referrer": null})),
    ]
}

#[test]
fn a_handler_in_rust_reads_every_generation_that_has_what_it_needs() {
    let mut pipeline = Pipeline::new("own-worker", Kafka::shared(), Registry::shared().url());
    keep_sessions(&mut pipeline);
    let source = pipeline.source("sign-ups", 1, "earliest");
    pipeline.configure(&format!(
        "[classes.welcome]\nsource = \"{source}\"\nkey = [\"user_id\"]\nhandler = {{ type = \"rust\" }}\n"
    ));
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
    pipeline.launch_program("worker", &built_binary("own-worker"), &["--tier", "default"]);
    let outbox = pipeline.process("worker").directory().join("outbox");
    std::fs::create_dir(&outbox).expect("the outbox can be made");
    for (fields, event) in sign_ups() {
        let schema = format!(
            r#"{{"type":"record","name":"SignUp","namespace":"demo","fields":[{{"name":"user_id","type":"string"}},{fields}]}}"#
        );
        let writer = Writer::register(Registry::shared(), &source, &schema);
        pipeline.client.produce(&source, &writer.record(&event));
    }

    let dead = pipeline.wait_for_dead(1, SOON);
    let published = pipeline.client.read_all(&source);
    let cause = Cause { kind: FailureKind::Permanent, code: "type-mismatch" };
    dead_letters::check_job(&dead[0], &source, &published[3], cause);
    assert!(
        dead[0].header("job-error-message").is_some_and(|message| message.contains("plan")),
        "{}",
        dead[0]
    );
    let jobs = pipeline.topic("default.jobs");
    pipeline.client.wait_for_count(&jobs, 4, SOON);
    pipeline.client.wait_for_no_lag(&format!("{}.default.worker", pipeline.name), &jobs, SOON);
    let letters = std::fs::read_dir(&outbox).expect("the outbox is there");
    let mut letters: Vec<_> = letters
        .map(|letter| std::fs::read_to_string(letter.expect("a file").path()).expect("a text"))
        .collect();
    letters.sort_unstable();
    assert_eq!(
        letters,
        [
            "To: a@x\nWelcome u-1, you chose Free.\n",
            "To: b@x\nWelcome u-2, you chose Company and came by u-1.\n",
            "To: c@x\nWelcome u-3, you chose Team.\n",
        ]
    );
    pipeline.stop("worker");
}
