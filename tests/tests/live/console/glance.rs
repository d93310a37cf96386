//! A bad deploy at three in the morning: thousands of letters, of which most have one cause.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use tidegate_domain::{Attempt, Hop, IdempotencyKey, JobHeader, Lane, Offset, Partition, Round, UnixMillis};
use tidegate_tests::browser::Browser;
use tidegate_tests::events::Writer;
use tidegate_tests::jobs::SOON;
use tidegate_tests::kafka_io::Record;
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::ports::free_port;
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::wait_until;

use super::walk::shoot;

const HOUR: i64 = 60 * 60 * 1000;
pub(super) const SCHEMA: &str = r#"{"type":"record","name":"PaymentMade","namespace":"shop","fields":[
    {"name":"payment_id","type":"string"},{"name":"customer","type":{"type":"record","name":"Customer","fields":[
    {"name":"id","type":"string"},{"name":"iban","type":"string"}]}},{"name":"amount_cents","type":"long"}]}"#;

/// What fails for one cause.
pub(super) struct Cause {
    class: &'static str,
    tier: &'static str,
    kind: &'static str,
    code: &'static str,
    message: &'static str,
    letters: i64,
    /// From how long ago on.
    span: i64,
}

pub(super) const CAUSES: [Cause; 3] = [
    Cause {
        class: "charge",
        tier: "critical",
        kind: "permanent",
        code: "http-422",
        message: r#"HTTP 422 Unprocessable Entity: {"error":"field `currency` is missing"}"#,
        letters: 4812,
        span: 3 * HOUR,
    },
    Cause {
        class: "welcome",
        tier: "default",
        kind: "transient",
        code: "connect",
        message: "connection to http://mail.internal/send refused",
        letters: 212,
        span: 23 * HOUR,
    },
    Cause {
        class: "export",
        tier: "bulk",
        kind: "timeout",
        code: "time-limit",
        message: "the handler took longer than 30s",
        letters: 31,
        span: 14 * HOUR,
    },
];

impl Cause {
    /// Its letters: many at once in the beginning, fewer later.
    fn records(&self, source: &str, writer: &Writer, now: i64) -> Vec<Record> {
        let at = |n: i64| now - self.span + n * n / self.letters * (self.span - 60_000) / self.letters;
        (0..self.letters).map(|n| self.record(source, writer, n, at(n))).collect()
    }

    pub(super) fn record(&self, source: &str, writer: &Writer, n: i64, at: i64) -> Record {
        let id = format!("{}-{n}", self.class);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key[8..14].copy_from_slice(&self.class.as_bytes()[..6]);
        let job = JobHeader {
            class: self.class,
            tier: self.tier,
            topic: source,
            partition: Partition(0),
            offset: Offset(n),
            key: IdempotencyKey(key),
            lane: Lane(7),
            round: Round(0),
            hop: Hop(0),
            attempt: Attempt(1),
            due: UnixMillis(at),
            first_seen: UnixMillis(at - 900),
            origin: None,
            forced: false,
        };
        let event = json!({ "payment_id": id, "customer": { "id": "c-17", "iban": "DE89370400440532013000" }, "amount_cents": 4200 + n });
        let record = writer.record(&event).key(id).header("job", job.to_text());
        let trace = format!("00-4bf92f3577b34da6a3ce929d{n:08x}-00f067aa0ba902b7-01");
        let told = [
            ("job-error-kind", self.kind),
            ("job-error-code", self.code),
            ("job-error-message", self.message),
        ];
        let record = told.into_iter().fold(record, |record, (name, value)| record.header(name, value));
        record.header("job-dead-at", at.to_string()).header("traceparent", trace)
    }
}

#[test]
fn a_bad_deploy_is_one_cause_with_its_number_and_its_beginning() {
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let mut pipeline = Pipeline::new("shop", kafka, registry.url());
    let source = pipeline.source("payments", 1, "earliest");
    for cause in &CAUSES {
        let (class, tier) = (cause.class, cause.tier);
        let text = format!(
            "source = \"{source}\"\nkey = [\"payment_id\"]\ntier = \"{tier}\"\nhandler = {{ type = \"log\" }}"
        );
        pipeline.configure(&format!("[classes.{class}]\n{text}"));
    }
    pipeline.configure("[console]\nmasked = [\"customer.iban\"]");
    pipeline.apply_topics();
    let writer = Writer::register(registry, &source, SCHEMA);
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let dlq = pipeline.topic("dlq");
    // A night at once: only here the letters' own times count, and not when the broker got them.
    pipeline.client.delete_topic(&dlq);
    pipeline.client.create_topic_with(&dlq, 4, &[("message.timestamp.type", "CreateTime")]);
    for cause in &CAUSES {
        pipeline.client.produce_all(&dlq, &cause.records(&source, &writer, now));
    }
    let address = format!("127.0.0.1:{}", free_port());
    pipeline.launch("console", &["console"], &[("TIDEGATE_CONSOLE__LISTEN", &address), ("USER", "ana")]);
    let url = |path: &str| format!("http://{address}{path}");
    pipeline.process("console").wait_for_url(&url("/livez"), SOON);

    let browser = Browser::start();
    wait_until("all letters to be in the index", 3 * SOON, || {
        browser.open(&url("/"));
        browser.text().contains("5,055 items wait")
    });
    assert!(browser.text().contains("3 causes"), "{}", browser.text());
    let first = Timestamp::from_millisecond(now - CAUSES[0].span).unwrap().to_zoned(TimeZone::UTC);
    let clock = first.strftime("%H:%M").to_string();
    let row = "(//table)[1]/tbody/tr[1]";
    browser.wait_for(&format!("{row}//a[contains(., 'currency')]"));
    browser.wait_for(&format!("{row}/td[@data-label='Waiting' and text()='4,812']"));
    browser.wait_for(&format!("{row}/td[@data-label='Since']//time[contains(., '{clock}')]"));
    name_it_shop(&browser, "glance-overview");
    browser.click(&format!("{row}//a[contains(., 'currency')]"));
    browser.wait_for_text("4,812 items");
    name_it_shop(&browser, "glance-group");
    browser.click("//a[text()='All items of this group']");
    browser.wait_for("//a[@rel='next']");
    let first_page = browser.text();
    browser.click("//a[@rel='next']");
    browser.wait_for("//a[text()='First page']");
    assert_ne!(browser.text(), first_page);
    browser.click("//table//a[contains(@href, '/items/')]");
    browser.wait_for_text("masked");
    assert!(!browser.text().contains("DE89"), "{}", browser.text());
    name_it_shop(&browser, "glance-item");
    browser.click("//button[contains(., 'Reveal')]");
    browser.wait_for_text("DE89370400440532013000");
    wait_until("the reveal to be in the history", SOON, || {
        browser.open(&url("/history"));
        browser.has("//tr[.//a[text()='ana'] and .//a[text()='reveal']]")
    });
}

/// The pipeline of a test has a name of its own, which a picture need not have.
fn name_it_shop(browser: &Browser, name: &str) {
    browser.run("document.querySelector('.pipeline').textContent = 'shop'");
    shoot(browser, name);
}
