//! Ingest and input that is not as it should be: everything becomes a job, is ignored by a rule, or is dead-lettered with its
//! bytes, and what stands behind it goes on.

use std::time::Duration;

use serde_json::json;
use tidegate_domain::{FailureKind, JobHeader};
use tidegate_tests::dead_letters::{self, Cause};
use tidegate_tests::events::Writer;
use tidegate_tests::kafka_io::{ReadRecord, Record};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::servers::{Kafka, Registry};

use crate::standstill::keep_sessions;

const SOON: Duration = Duration::from_secs(60);

const ORDER: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
    {"name":"order_id","type":["null","string"],"default":null},
    {"name":"note","type":["null","string"],"default":null}]}"#;

/// A pipeline with one source of one partition, so that order shows.
fn pipeline(prefix: &str) -> (Pipeline, String) {
    let mut pipeline = Pipeline::new(prefix, Kafka::shared(), Registry::shared().url());
    keep_sessions(&mut pipeline);
    let source = pipeline.source("orders", 1, "earliest");
    (pipeline, source)
}

/// Adds the class `ship`, applies topics and starts ingest.
fn start_shipping(pipeline: &mut Pipeline, source: &str, key: &str) {
    pipeline.configure(&format!(
        "[classes.ship]\nsource = \"{source}\"\nkey = [\"{key}\"]\nhandler = {{ type = \"log\" }}\n"
    ));
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
}

fn malformed(code: &str) -> Cause<'_> {
    Cause { kind: FailureKind::Malformed, code }
}

/// What `shop` publishers may get wrong: the reason that it must have in the DLQ, and the record.
fn no_events(orders: &Writer) -> Vec<(&'static str, Record)> {
    let event = orders.value(&json!({"order_id": "o-1", "note": "a longer text"}));
    let value = |bytes: &[u8]| Record::default().value(bytes);
    let with_more = [event.as_slice(), b"\x07"].concat();
    vec![
        ("datum-truncated", value(&event[..event.len() - 3])),
        ("datum-truncated", value(&event[..5])),
        ("datum-trailing-bytes", value(&with_more)),
        ("wrong-magic-byte", value(br#"{"order_id": "o-1"}"#)),
        ("frame-too-short", value(&event[..4])),
        ("null-value", Record::default()),
        ("empty-value", value(b"")),
        ("guid-format-unsupported", value(&[&[1; 17], &event[5..]].concat())),
        ("guid-format-unsupported", value(&event[5..]).header("__value_schema_id", [7; 17])),
        ("datum-invalid", value(&orders.frame(b"\x02\x04\xff\xfe\x00"))), // a string that is not UTF-8
        ("datum-invalid", value(&orders.frame(b"\x02\x05\x00"))),         // of a negative length
        ("datum-invalid", value(&orders.frame(b"\x08\x00"))),             // branch 4 of 2
        ("datum-truncated", value(&orders.frame(b"\x02\xfe\xff\xff\xff\x0f"))), // 2 GiB long, it says
    ]
}

#[test]
fn bytes_that_are_no_event_are_dead_lettered_each_with_its_reason_and_its_bytes() {
    let (mut pipeline, source) = pipeline("no-event");
    let orders = Writer::register(Registry::shared(), &source, ORDER);
    start_shipping(&mut pipeline, &source, "order_id");
    let cases = no_events(&orders);
    let mut records = Vec::new();
    for (number, (_, bad)) in cases.iter().enumerate() {
        records.push(
            bad.clone().key("k").header("case", number.to_string()).header("case", "again").null_header("n"),
        );
        records.push(orders.record(&json!({"order_id": format!("good-{number}")})));
    }
    pipeline.client.produce_all(&source, &records);

    let dead = pipeline.wait_for_dead(cases.len(), SOON);
    pipeline.client.wait_for_no_lag(&format!("{}.ingest", pipeline.name), &source, SOON);
    let published = pipeline.client.read_all(&source);
    for letter in &dead {
        let origin = dead_letters::origin(letter, &source, &published);
        let number: usize =
            letter.header("case").and_then(|number| number.parse().ok()).expect("the case's number");
        assert_eq!(origin.offset, 2 * number as i64);
        dead_letters::check_event(letter, origin, malformed(cases[number].0));
    }
    assert_eq!(
        pipeline.client.read_all(&pipeline.topic("dlq")).len(),
        cases.len(),
        "each is dead-lettered once"
    );
    let jobs = pipeline.client.read_all(&pipeline.topic("default.jobs"));
    let good: Vec<_> = published.iter().filter(|record| record.offset % 2 == 1).collect();
    assert_eq!(values(&jobs), values(good), "what stands between them becomes jobs");
    let kind = [format!("topic=\"{source}\""), "fate=\"dead\"".to_owned()];
    let kind: Vec<_> = kind.iter().map(String::as_str).collect();
    assert_eq!(pipeline.metric("ingest", "tidegate_events_total", &kind), cases.len() as f64);
}

fn values<'a>(records: impl IntoIterator<Item = &'a ReadRecord>) -> Vec<Vec<u8>> {
    let mut values: Vec<_> = records.into_iter().filter_map(|record| record.value.clone()).collect();
    values.sort_unstable();
    values
}

/// A list of so many nodes, one inside the other: each has the id `a`.
fn nested_records(levels: usize) -> Vec<u8> {
    let mut datum = b"\x02a\x02".repeat(levels);
    datum.extend(b"\x02a\x00\x00");
    datum
}

/// The same by arrays of one node: block of one item, and at the end the ends of all blocks.
fn nested_arrays(levels: usize) -> Vec<u8> {
    let mut datum = b"\x02a\x00\x02".repeat(levels);
    datum.extend(b"\x02a\x00\x00");
    datum.extend(vec![0; levels]);
    datum
}

#[test]
fn nesting_of_ten_thousand_levels_is_refused_and_not_a_stack_overflow() {
    const NODE: &str = r#"{"type":"record","name":"Node","namespace":"deep","fields":[{"name":"id","type":"string"},
        {"name":"next","type":["null","Node"]},{"name":"children","type":{"type":"array","items":"Node"}}]}"#;
    let (mut pipeline, source) = pipeline("deep");
    let nodes = Writer::register(Registry::shared(), &source, NODE);
    start_shipping(&mut pipeline, &source, "id");
    // `next` ends before `children` begins: so many empty arrays follow a nest of records.
    let records = |levels: usize| [nested_records(levels), vec![0; levels]].concat();
    let value = |datum: Vec<u8>| Record::default().value(nodes.frame(&datum));
    let shallow = [value(records(50)), value(nested_arrays(25))];
    let deep = [value(records(10_000)), value(nested_arrays(10_000)), value(nested_records(10_000))];
    pipeline.client.produce_all(&source, &[deep.as_slice(), shallow.as_slice()].concat());

    let dead = pipeline.wait_for_dead(3, SOON);
    let published = pipeline.client.read_all(&source);
    for letter in &dead {
        let origin = dead_letters::origin(letter, &source, &published);
        dead_letters::check_event(letter, origin, malformed("datum-too-deep"));
    }
    let jobs = pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 2, SOON);
    assert_eq!(values(&jobs), values(&published[3..]), "what nests less becomes a job");
    assert!(pipeline.process("ingest").is_running());
}

#[test]
fn an_event_without_its_key_is_dead_lettered_as_malformed_missing_key() {
    const NAMELESS: &str = r#"{"type":"record","name":"Nameless","namespace":"shop","fields":[
        {"name":"note","type":"string"}]}"#;
    const NESTED: &str = r#"{"type":"record","name":"Nested","namespace":"shop","fields":[
        {"name":"order_id","type":{"type":"record","name":"Id","fields":[{"name":"x","type":"string"}]}}]}"#;
    let (mut pipeline, source) = pipeline("no-key");
    let orders = Writer::register(Registry::shared(), &source, ORDER);
    let nameless = Writer::register(Registry::shared(), &format!("{source}.nameless"), NAMELESS);
    let nested = Writer::register(Registry::shared(), &format!("{source}.nested"), NESTED);
    start_shipping(&mut pipeline, &source, "order_id");
    pipeline.client.produce_all(
        &source,
        &[
            orders.record(&json!({"order_id": null})),
            orders.record(&json!({"order_id": ""})),
            nameless.record(&json!({"note": "a schema without the field"})),
            nested.record(&json!({"order_id": {"x": "a record is no key"}})),
            orders.record(&json!({"order_id": "o-1"})),
        ],
    );

    let dead = pipeline.wait_for_dead(4, SOON);
    pipeline.client.wait_for_no_lag(&format!("{}.ingest", pipeline.name), &source, SOON);
    let published = pipeline.client.read_all(&source);
    for letter in &dead {
        let origin = dead_letters::origin(letter, &source, &published);
        dead_letters::check_event(letter, origin, malformed("missing-key"));
        let message = letter.header("job-error-message").expect("it says why");
        assert!(message.contains("`order_id`") && message.contains("`ship`"), "{message}");
    }
    let jobs = pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 1, SOON);
    assert_eq!(values(&jobs), values([&published[4]]));
}

#[test]
fn a_header_can_be_the_key_and_its_absence_is_a_missing_key() {
    let (mut pipeline, source) = pipeline("header-key");
    let orders = Writer::register(Registry::shared(), &source, ORDER);
    pipeline.configure(&format!(
        "[classes.ship]\nsource = \"{source}\"\nkey_header = \"request-id\"\nhandler = {{ type = \"log\" }}\n"
    ));
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
    let event = orders.record(&json!({"order_id": "o-1"}));
    let records = [
        event.clone().header("request-id", "r-1"),
        event.clone().header("request-id", ""),
        event.clone().null_header("request-id"),
        event.clone().header("request-id", "r-1"),
        event,
    ];
    pipeline.client.produce_all(&source, &records);

    let dead = pipeline.wait_for_dead(3, SOON);
    let published = pipeline.client.read_all(&source);
    for letter in &dead {
        let origin = dead_letters::origin(letter, &source, &published);
        dead_letters::check_event(letter, origin, malformed("missing-key"));
        assert!([1, 2, 4].contains(&origin.offset));
    }
    let jobs = pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 2, SOON);
    let keys: Vec<_> = jobs.iter().map(|job| job_header(job).key).collect();
    assert_eq!(keys[0], keys[1], "equal headers are one job");
}

fn job_header(record: &ReadRecord) -> JobHeader<'_> {
    let header = record.header("job").expect("every job has the header");
    JobHeader::parse(header.as_bytes()).expect("it can be read")
}

/// Three classes and two ignore rules over one source.
fn routes(source: &str) -> String {
    format!(
        "[classes.invoice]\nsource = \"{source}\"\nrecord = \"shop.Placed\"\nkey = [\"order_id\"]\nhandler = {{ type = \"log\" }}\n\n\
         [classes.notify]\nsource = \"{source}\"\ntier = \"bulk\"\nkey = [\"order_id\"]\nhandler = {{ type = \"log\" }}\n\
         when = {{ country = [\"DE\", \"AT\"], express = true }}\n\n\
         [classes.refund]\nsource = \"{source}\"\ntier = \"critical\"\nrecord = \"shop.Cancelled\"\nkey = [\"order_id\"]\n\
         handler = {{ type = \"log\" }}\n\n\
         [[ignore]]\nname = \"pings\"\nsource = \"{source}\"\nrecord = \"shop.Ping\"\n\n\
         [[ignore]]\nname = \"tests\"\nsource = \"{source}\"\nwhen = {{ country = \"XX\" }}\n"
    )
}

/// Class and offset of every job of a tier.
fn jobs_of(pipeline: &Pipeline, tier: &str) -> Vec<(String, i64)> {
    let jobs = pipeline.client.read_all(&pipeline.topic(&format!("{tier}.jobs")));
    let job = |record: &ReadRecord| (job_header(record).class.to_owned(), job_header(record).offset.0);
    let mut jobs: Vec<_> = jobs.iter().map(job).collect();
    jobs.sort_by_key(|(_, offset)| *offset);
    jobs
}

#[test]
fn an_event_is_a_job_of_every_route_that_matches_it_or_ignored_by_a_rule_or_unroutable() {
    let (mut pipeline, source) = pipeline("routes");
    pipeline.configure(&routes(&source));
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
    let writer = |name: &str| {
        let schema = format!(
            r#"{{"type":"record","name":"{name}","namespace":"shop","fields":[{{"name":"order_id","type":"string"}},
            {{"name":"country","type":"string"}},{{"name":"express","type":"boolean"}}]}}"#
        );
        Writer::register(Registry::shared(), &format!("{source}.{name}"), &schema)
    };
    let event = |name: &str, country: &str, express: bool| {
        let id = format!("{name}-{country}-{express}");
        writer(name).record(&json!({"order_id": id, "country": country, "express": express}))
    };
    let records = [
        event("Placed", "DE", true),    // 0: two jobs
        event("Placed", "DE", false),   // 1: `when` holds by half
        event("Placed", "XX", true),    // 2: a route wins over a rule
        event("Cancelled", "AT", true), // 3: two jobs
        event("Cancelled", "FR", true), // 4: by its record alone
        event("Ping", "FR", true),      // 5: ignored by its record
        event("Packed", "XX", false),   // 6: ignored by a field
        event("Packed", "FR", false),   // 7: nothing names it
        event("Packed", "AT", true),    // 8: by its fields alone
    ];
    pipeline.client.produce_all(&source, &records);
    pipeline.client.wait_for_no_lag(&format!("{}.ingest", pipeline.name), &source, SOON);

    let job = |class: &str, offset| (class.to_owned(), offset);
    assert_eq!(jobs_of(&pipeline, "default"), [job("invoice", 0), job("invoice", 1), job("invoice", 2)]);
    assert_eq!(jobs_of(&pipeline, "bulk"), [job("notify", 0), job("notify", 3), job("notify", 8)]);
    assert_eq!(jobs_of(&pipeline, "critical"), [job("refund", 3), job("refund", 4)]);
    let dead = pipeline.wait_for_dead(1, SOON);
    let published = pipeline.client.read_all(&source);
    dead_letters::check_event(
        &dead[0],
        &published[7],
        Cause { kind: FailureKind::Unroutable, code: "no-route" },
    );
    let message = dead[0].header("job-error-message").expect("it says why");
    assert!(message.contains("`shop.Packed`") && message.contains("[[ignore]]"), "{message}");
    assert_eq!(dead.len(), 1);

    let mut events = |fate: &str| {
        let fate = format!("fate=\"{fate}\"");
        pipeline.metric("ingest", "tidegate_events_total", &[&format!("topic=\"{source}\""), &fate])
    };
    assert_eq!([events("forwarded"), events("ignored"), events("dead")], [6.0, 2.0, 1.0]);
    let mut jobs = |class: &str| {
        pipeline.metric("ingest", "tidegate_event_jobs_total", &[&format!("class=\"{class}\"")])
    };
    assert_eq!([jobs("invoice"), jobs("notify"), jobs("refund")], [3.0, 3.0, 2.0]);
}
