//! A page that somebody leaves open on a wall.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_tests::browser::Browser;
use tidegate_tests::events::Writer;
use tidegate_tests::jobs::SOON;
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::ports::free_port;
use tidegate_tests::servers::{Kafka, Registry};

use super::glance::{CAUSES, SCHEMA};

#[test]
fn an_overview_that_stays_open_shows_what_comes() {
    let (kafka, registry) = (Kafka::shared(), Registry::shared());
    let mut pipeline = Pipeline::new("wall", kafka, registry.url());
    let source = pipeline.source("payments", 1, "earliest");
    let class = format!("source = \"{source}\"\nkey = [\"payment_id\"]\nhandler = {{ type = \"log\" }}");
    pipeline.configure(&format!("[classes.charge]\n{class}"));
    pipeline.apply_topics();
    let address = format!("127.0.0.1:{}", free_port());
    pipeline.launch("console", &["console"], &[("TIDEGATE_CONSOLE__LISTEN", &address)]);
    let url = format!("http://{address}/");
    pipeline.process("console").wait_for_url(&format!("{url}livez"), SOON);

    let browser = Browser::start();
    browser.open(&url);
    browser.wait_for_text("Nothing waits for you");
    let writer = Writer::register(registry, &source, SCHEMA);
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    pipeline.client.produce(&pipeline.topic("dlq"), &CAUSES[0].record(&source, &writer, 1, now));
    browser.wait_for_text("1 item waits");
    browser.wait_for("(//table)[1]/tbody/tr[1]//a[contains(., 'currency')]");
}
