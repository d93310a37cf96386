//! What a record is made of survives every hop: source, job topic, delay topic, job topic again, DLQ.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use tidegate_domain::{
    Attempt, FailureKind, Hop, IdempotencyKey, JobHeader, Lane, Offset, Partition, Round, Topic, UnixMillis,
};
use tidegate_kafka::single::{publish_one, read_topic};
use tidegate_kafka::{Fatal, KafkaSettings, Publisher};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_tests::dead_letters::{self, Cause};
use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::events::Writer;
use tidegate_tests::kafka_io::{ReadRecord, Record};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::wait_until;

use crate::standstill::keep_sessions;

const SOON: Duration = Duration::from_secs(60);
const FILE: &str = r#"{"type":"record","name":"File","namespace":"store","fields":[
    {"name":"file_id","type":"string"},{"name":"content","type":"bytes"}]}"#;
/// What the handler says of every second attempt.
const REFUSED: Cause<'_> = Cause { kind: FailureKind::Permanent, code: "http-422" };

/// A pipeline whose handler, which gets the event's bytes, answers 503 to a first attempt and 422 to a second one: so each record
/// goes all the way.
struct AllTheWay {
    pipeline: Pipeline,
    source: String,
    files: Writer,
    endpoint: Endpoint,
}

impl AllTheWay {
    fn start(prefix: &str, more: &str) -> Self {
        let endpoint = Endpoint::start(|call| match call.header("tidegate-attempt") {
            Some("1") => Answer::status(503).body("y".repeat(1000)),
            _ => Answer::status(422).body("x".repeat(2000)),
        });
        let mut pipeline = Pipeline::new(prefix, Kafka::shared(), Registry::shared().url());
        keep_sessions(&mut pipeline);
        let source = pipeline.source("files", 1, "earliest");
        pipeline.configure(&format!(
            "[classes.scan]\nsource = \"{source}\"\nkey = [\"file_id\"]\n\
             handler = {{ type = \"http\", url = \"{}\", format = \"avro\" }}\n\n{more}",
            endpoint.url()
        ));
        pipeline.apply_topics();
        let files = Writer::register(Registry::shared(), &source, FILE);
        for (name, arguments) in [
            ("ingest", vec!["ingest"]),
            ("worker", vec!["worker", "--tier", "default"]),
            ("retry", vec!["retry"]),
        ] {
            pipeline.launch(name, &arguments, &[]);
        }
        ["ingest", "worker", "retry"].iter().for_each(|name| pipeline.wait_ready(name));
        Self { pipeline, source, files, endpoint }
    }

    fn file(&self, id: &str, content: &[u8]) -> Record {
        // Avro by hand: encoding a megabyte through JSON takes a debug build long.
        let long = |n: usize| {
            let (mut n, mut bytes) = (n << 1, Vec::new());
            while n >= 0x80 {
                bytes.push((n as u8) | 0x80);
                n >>= 7;
            }
            bytes.push(n as u8);
            bytes
        };
        let datum = [&long(id.len()), id.as_bytes(), &long(content.len()), content].concat();
        Record::default().value(self.files.frame(&datum))
    }

    /// The records of the job topic, of the delay topic and of the DLQ, when all that was published is dead.
    fn hops(&self, published: usize) -> [Vec<ReadRecord>; 3] {
        let dead = self.pipeline.wait_for_dead(published, SOON);
        let read = |suffix: &str| self.pipeline.client.read_all(&self.pipeline.topic(suffix));
        [read("default.jobs"), read("default.retry-200ms"), dead]
    }
}

/// Bytes that don't get smaller by compression.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_value_of_900_kilobytes_survives_every_hop_byte_for_byte() {
    let way = AllTheWay::start("large", "");
    way.pipeline.client.produce(&way.source, &way.file("f-1", &noise(900_000)).key("f-1"));
    let [jobs, delayed, dead] = way.hops(1);
    let published = way.pipeline.client.read_all(&way.source);
    assert_eq!((jobs.len(), delayed.len(), dead.len()), (2, 1, 1));
    assert!(published[0].value.as_ref().is_some_and(|value| value.len() > 900_000));
    for record in jobs.iter().chain(&delayed) {
        assert_eq!((&record.key, &record.value), (&published[0].key, &published[0].value));
    }
    dead_letters::check_job(&dead[0], &way.source, &published[0], REFUSED);
    for call in way.endpoint.calls() {
        assert_eq!(Some(&call.body), published[0].value.as_ref());
    }
}

type RawHeaders = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The headers of each record of the topic, names as bytes: rdkafka's own types have room for UTF-8 only.
fn raw_headers(settings: &KafkaSettings, topic: &str) -> Vec<RawHeaders> {
    let mut all = Vec::new();
    let read = read_topic(settings, topic, |found| {
        let header = |(name, value): (&[u8], Option<&[u8]>)| (name.to_vec(), value.map(<[u8]>::to_vec));
        all.push(found.record.headers().map(header).collect());
        ControlFlow::Continue(())
    });
    read.expect("the topic can be read");
    all
}

#[test]
fn a_header_whose_name_is_not_utf_8_survives_every_hop() {
    let way = AllTheWay::start("odd-names", "");
    let settings = KafkaSettings {
        bootstrap: Kafka::shared().bootstrap().to_owned(),
        properties: Vec::new(),
        consumer_properties: Vec::new(),
        producer_properties: Vec::new(),
        session_timeout: SOON,
        max_message_bytes: 1_000_000,
    };
    let publisher = Publisher::new(&settings, Fatal::default()).expect("a producer");
    let event = way.files.frame(b"\x02a\x00");
    let odd: [(&[u8], Option<&[u8]>); 3] =
        [(b"\xff\xfe", Some(b"1")), (b"caf\xe9", None), (b"plain", Some(b"2"))];
    let topic = Topic::new(way.source.as_str());
    let record =
        OutboundRecord { topic: &topic, partition: None, key: None, value: Some(&event), headers: &odd };
    publish_one(&publisher, &record).expect("it is published");

    let dead = way.pipeline.topic("dlq");
    wait_until("the dead letter", SOON, || !raw_headers(&settings, &dead).is_empty());
    let odd: RawHeaders =
        odd.iter().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec))).collect();
    assert_eq!(raw_headers(&settings, &way.source), std::slice::from_ref(&odd));
    for (suffix, count) in [("default.jobs", 2), ("default.retry-200ms", 1), ("dlq", 1)] {
        let records = raw_headers(&settings, &way.pipeline.topic(suffix));
        assert_eq!(records.len(), count, "{suffix}");
        for headers in records {
            assert_eq!(headers[..odd.len()], odd, "{suffix}");
        }
    }
    // And they can be looked at.
    let (exit, shown, _) =
        way.pipeline.run(&["dlq", "show", &place_of_the_only_letter(&way.pipeline), "--json"]);
    assert!(exit.is_success() && shown.contains("caf\u{fffd}"), "{shown}");
}

fn place_of_the_only_letter(pipeline: &Pipeline) -> String {
    let ends = pipeline.client.offsets(&pipeline.topic("dlq"));
    let filled = ends.iter().find(|(_, (first, next))| next > first);
    filled.map(|(partition, (first, _))| format!("{partition}/{first}")).expect("there is one")
}

/// The headers that tidegate adds, and takes away again.
fn is_ours(name: &str) -> bool {
    name == "job" || name.starts_with("job-") || name.starts_with("__connect.errors.")
}

type Header = (String, Option<Vec<u8>>);

fn theirs(record: &ReadRecord) -> Vec<Header> {
    record.headers.iter().filter(|(name, _)| !is_ours(name)).cloned().collect()
}

fn with_odd_headers(record: Record) -> Record {
    record
        .header("twice", "1")
        .header("between", "")
        .header("twice", "2")
        .null_header("null")
        .header("bytes", b"\xff\x00\xfe")
        .header("", "no name")
        .header("job", "theirs, not ours")
        .null_header("job")
}

#[test]
fn null_and_empty_keys_and_all_headers_survive_every_hop_and_a_job_header_of_the_source_is_renamed() {
    let way = AllTheWay::start("headers", "");
    let file = |id: &str| with_odd_headers(way.file(id, id.as_bytes()));
    way.pipeline.client.produce_all(&way.source, &[file("a"), file("b").key(""), file("c").key(b"\xff\x00")]);
    let [jobs, delayed, dead] = way.hops(3);
    let published = way.pipeline.client.read_all(&way.source);
    let keys: Vec<_> = published.iter().map(|record| record.key.clone()).collect();
    assert_eq!(keys, [None, Some(vec![]), Some(vec![0xff, 0])]);
    assert_eq!((jobs.len(), delayed.len(), dead.len()), (6, 3, 3));
    for record in jobs.iter().chain(&delayed).chain(&dead) {
        let origin = published.iter().find(|origin| origin.value == record.value).expect("an event's bytes");
        assert_eq!(record.key, origin.key, "{record}");
        let renamed = |(name, value): &Header| match name.as_str() {
            "job" => ("src-job".to_owned(), value.clone()),
            _ => (name.clone(), value.clone()),
        };
        let expected: Vec<Header> = origin.headers.iter().map(renamed).collect();
        assert_eq!(theirs(record), expected, "{record}");
        assert_eq!(
            record.headers.iter().filter(|(name, _)| name == "job").count(),
            1,
            "one job header is ours"
        );
    }
    for letter in &dead {
        dead_letters::check_job(
            letter,
            &way.source,
            dead_letters::origin(letter, &way.source, &published),
            REFUSED,
        );
        let first = letter.header("job-first-error").expect("the first failure is kept");
        assert!(first.starts_with("transient/http-503"), "{first}");
        assert!(
            letter.header("job-error-message").is_some_and(|message| message.len() < 1300),
            "the first KiB of an answer"
        );
        assert_eq!((letter.header("job-attempt"), letter.header("job-hop")), (Some("2"), Some("1")));
    }
}

#[test]
fn null_and_empty_values_of_jobs_survive_every_hop() {
    // Ingest makes no jobs of them, but a class of raw bytes may one day; the workers carry whatever the job topic holds.
    let way = AllTheWay::start("no-value", "");
    let job = |offset: i64, record: Record| {
        let header = JobHeader {
            class: "scan",
            tier: "default",
            topic: &way.source,
            partition: Partition(0),
            offset: Offset(offset),
            key: IdempotencyKey([offset as u8; 16]),
            lane: Lane(offset as u64),
            round: Round(0),
            hop: Hop(0),
            attempt: Attempt(1),
            due: UnixMillis(0),
            first_seen: UnixMillis(1),
            origin: None,
            forced: false,
        };
        with_no_job(record).header("job", header.to_text())
    };
    let records = [
        job(1, Record::default()),
        job(2, Record::default().key("").value("")),
        job(3, Record::default().key("k")),
        job(4, Record::default().value("")),
    ];
    let topic = way.pipeline.topic("default.jobs");
    way.pipeline.client.produce_all(&topic, &records);
    let [jobs, delayed, dead] = way.hops(4);
    let shape = |record: &ReadRecord| (record.key.clone(), record.value.clone(), theirs(record));
    let published: BTreeSet<_> = jobs
        .iter()
        .filter(|job| job.header("job").is_some_and(|text| text.contains("hop=0")))
        .map(shape)
        .collect();
    assert_eq!(published.len(), 4);
    assert_eq!((jobs.len(), delayed.len(), dead.len()), (8, 4, 4));
    assert_eq!(jobs.iter().map(shape).collect::<BTreeSet<_>>(), published);
    assert_eq!(delayed.iter().map(shape).collect::<BTreeSet<_>>(), published);
    assert_eq!(dead.iter().map(shape).collect::<BTreeSet<_>>(), published);
    assert!(way.endpoint.calls().iter().all(|call| call.body.is_empty()));
}

fn with_no_job(record: Record) -> Record {
    record.header("twice", "1").null_header("null").header("twice", "2").header("bytes", b"\xff\x00\xfe")
}

#[test]
fn a_trace_goes_on_at_the_handler_and_the_idempotency_key_is_one_for_all_attempts() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let way = AllTheWay::start("trace", "");
    let event = |id: &str| way.file(id, b"same").header("traceparent", TRACE);
    way.pipeline
        .client
        .produce_all(&way.source, &[event("a"), event("b"), way.file("c", b"").header("traceparent", "no")]);
    let dead = way.pipeline.wait_for_dead(3, SOON);
    let calls = way.endpoint.calls();
    assert_eq!(calls.len(), 6);
    let mut spans = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for letter in &dead {
        let key = letter.header("job-key").expect("its key");
        let attempts: Vec<_> =
            calls.iter().filter(|call| call.header("idempotency-key") == Some(key)).collect();
        let numbers: Vec<_> = attempts.iter().filter_map(|call| call.header("tidegate-attempt")).collect();
        assert_eq!(numbers, ["1", "2"], "both attempts have the key {key}");
        assert!(keys.insert(key.to_owned()));
        let traced = letter.header("traceparent") == Some(TRACE);
        for call in attempts {
            assert_eq!(call.header("tidegate-class"), Some("scan"));
            assert_eq!(call.header("tidegate-job-id"), letter.header("job-id"));
            assert_eq!(call.header("traceparent").is_some(), traced, "what is no trace is not sent on");
            let Some(trace) = call.header("traceparent") else { continue };
            assert_eq!((&trace[..36], &trace[52..]), (&TRACE[..36], &TRACE[52..]));
            assert_ne!(&trace[36..52], &TRACE[36..52]);
            assert!(spans.insert(trace.to_owned()), "each request is a span of its own");
        }
    }
    assert_eq!((keys.len(), spans.len()), (3, 4));
}

#[test]
fn a_dead_letter_that_is_too_large_loses_the_sources_headers_first_and_its_bytes_last() {
    let way = AllTheWay::start("too-large", "[topics]\nmax_message_bytes = \"70000B\"\n");
    let filler = |length: usize| noise(length);
    let records = [
        // No event, and with the reasons beside its headers too large: the headers go.
        Record::default().key("0").value("no event").header("big", filler(69_900)),
        // No event, and too large without any header: a stub stays.
        Record::default().key("1").value([b"x".as_slice(), &filler(69_500)].concat()),
        // An event that fits its source, but not its job topic with the job header.
        way.file("f-2", b"small").key("2").header("big", filler(69_800)),
        // An event that fits the job topic, but not the DLQ.
        way.file("f-3", &filler(60_000)).key("3").header("big", filler(8_000)),
        // An event that fits the job topic, but not with the first failure beside it in the delay topic.
        way.file("f-4", b"small").key("4").header("big", filler(69_380)),
        // And one that is small.
        way.file("f-5", b"small").key("5"),
    ];
    way.pipeline.client.produce_all(&way.source, &records);
    let dead = way.pipeline.wait_for_dead(records.len(), SOON);
    let published = way.pipeline.client.read_all(&way.source);
    let letter = |offset: i64| {
        let is_it =
            |letter: &&ReadRecord| dead_letters::origin(letter, &way.source, &published).offset == offset;
        dead.iter().find(is_it).unwrap_or_else(|| panic!("offset {offset} is not dead"))
    };
    let code = |offset: i64| letter(offset).header("job-error-code").unwrap_or("none").to_owned();
    let codes: Vec<_> = (0..6).map(code).collect();
    assert_eq!(
        codes,
        ["wrong-magic-byte", "wrong-magic-byte", "too-large", "http-422", "too-large", "http-422"]
    );
    for offset in [0, 2, 3, 4] {
        let (letter, origin) = (letter(offset), &published[offset as usize]);
        assert_eq!((&letter.key, &letter.value), (&origin.key, &origin.value), "the bytes are there");
        assert!(letter.headers.iter().all(|(name, _)| name != "big"), "offset {offset}: its headers are not");
        let reason = letter.header("job-stub").unwrap_or_default();
        assert!(reason.contains("headers are left out"), "offset {offset}: {reason}");
    }
    let stub = letter(1);
    assert_eq!((&stub.key, &stub.value), (&None, &None), "{stub}");
    assert!(stub.header("job-stub").is_some_and(|reason| reason.contains("too large")));
    assert_eq!(letter(5).header("job-stub"), None);
    at_risk_is_what_left_a_stub(way, dead.len());
}

fn at_risk_is_what_left_a_stub(mut way: AllTheWay, published: usize) {
    let at_risk = "tidegate_at_risk_total";
    assert_eq!(way.pipeline.metric("ingest", at_risk, &[]), 1.0);
    assert_eq!(way.pipeline.metric("worker", at_risk, &[]), 0.0);
    way.pipeline.client.wait_for_no_lag(&format!("{}.ingest", way.pipeline.name), &way.source, SOON);
    let jobs = way.pipeline.topic("default.jobs");
    way.pipeline.client.wait_for_no_lag(&format!("{}.default.worker", way.pipeline.name), &jobs, SOON);
    let dead = way.pipeline.client.read_all(&way.pipeline.topic("dlq"));
    assert_eq!(dead.len(), published, "each is dead-lettered once");
}
