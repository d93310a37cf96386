//! How fast dead letters are indexed, by hand and from Kafka, and how long lists of the inbox take then.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tidegate_bootstrap::Config;
use tidegate_domain::failure::fingerprint;
use tidegate_domain::{FailureKind, Offset, Partition, UnixMillis};
use tidegate_operator::{By, Filter, GroupQuery, Inbox, ListQuery, LocalIndex, Needed, Order, Sort};
use tidegate_pipeline::Record;
use tidegate_pipeline::record::RecordBuilder;

use super::fill::{VALUE, job, now};
use super::measured::used;
use super::scenes::Stage;
use crate::kafka_io::{Client, unique};

const PARTITIONS: usize = 4;
const CLASSES: [&str; 5] = ["charge", "mail", "export", "refund", "index"];
const KINDS: [FailureKind; 4] =
    [FailureKind::Transient, FailureKind::Timeout, FailureKind::Permanent, FailureKind::Malformed];
/// How many records are handed over at a time.
const BATCH: usize = 50_000;

/// The headers of a letter, and its value: 300 causes, within two days.
fn letter(number: usize, all: usize) -> (Vec<(&'static str, String)>, Vec<u8>) {
    let class = CLASSES[number % 7 % 5];
    let kind = KINDS[number % 11 % 4];
    let message = format!(
        "the endpoint answered {} for order {number}: {}",
        400 + number % 5,
        ["no such user", "balance too low", "shop closed"][number % 13 % 3]
    );
    let dead_at = now().0 - 172_800_000 + (number as f64 / all as f64 * 172_800_000.0) as i64;
    let (_, header) = job(class, "critical", number, 6, UnixMillis(dead_at));
    let headers = vec![
        ("job", header),
        ("job-class", class.to_owned()),
        ("job-tier", "critical".to_owned()),
        ("job-id", format!("bench.source/0/{number}/{class}")),
        ("job-key", format!("{number:032x}")),
        ("job-round", "0".to_owned()),
        ("job-hop", "0".to_owned()),
        ("job-attempt", "4".to_owned()),
        ("job-first-seen", dead_at.to_string()),
        ("__connect.errors.topic", "bench.source".to_owned()),
        ("__connect.errors.partition", "0".to_owned()),
        ("__connect.errors.offset", number.to_string()),
        ("__connect.errors.exception.class.name", format!("{kind}/http")),
        ("__connect.errors.exception.message", message.clone()),
        ("job-error-kind", kind.to_string()),
        ("job-error-code", "http".to_owned()),
        ("job-error-fingerprint", fingerprint(kind, "http", &message).to_string()),
        ("job-error-message", message),
        ("job-dead-at", dead_at.to_string()),
    ];
    let mut value = vec![0, 0, 0, 0, 7];
    value.extend(format!("\x12order-{number}\x0ccus-{}", number % 1000).bytes());
    value.resize(VALUE, 1);
    (headers, value)
}

/// Both scenes.
pub(super) fn index(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let say = |error: tidegate_operator::OperatorError| error.to_string();
    println!("\nindex ({records} dead letters)");
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    by_hand(dir.path(), records).map_err(say)?;
    let inbox = inbox(stage.kafka.bootstrap(), "bench-by-hand", dir.path()).map_err(say)?;
    pages(&inbox).map_err(say)?;
    from_kafka(stage, records).map_err(say)
}

fn inbox(bootstrap: &str, name: &str, dir: &Path) -> Result<Inbox, tidegate_operator::OperatorError> {
    let text = format!("[pipeline]\nname = \"{name}\"\n[kafka]\nbootstrap = \"{bootstrap}\"\n");
    let config = Config::parse("bench", &text, std::iter::empty()).expect("it is valid");
    Inbox::open(Arc::new(config), Some(dir))
}

/// Without Kafka: what the index itself takes.
fn by_hand(dir: &Path, records: usize) -> Result<(), tidegate_operator::OperatorError> {
    let mut index = LocalIndex::open(dir, "bench-by-hand.dlq")?;
    let (mut spent, mut words) = ((Duration::ZERO, 0.0), (Duration::ZERO, 0.0));
    for (number, from) in (0..records).step_by(BATCH).enumerate() {
        let partition = Partition((number % PARTITIONS) as i32);
        let batch: Vec<Record> =
            (from..records.min(from + BATCH)).map(|number| record(number, records)).collect();
        let began = (Instant::now(), cpu());
        index.letters(partition, &batch)?;
        spent = (spent.0 + began.0.elapsed(), spent.1 + cpu() - began.1);
        let began = (Instant::now(), cpu());
        index.words(partition, &batch)?;
        words = (words.0 + began.0.elapsed(), words.1 + cpu() - began.1);
    }
    let size: u64 = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .map(|file| file.len())
        .sum();
    println!(
        "  by hand      {}, and words {}   {} MiB on disk   peak {:.0} MiB",
        rate(records, spent),
        rate(records, words),
        size >> 20,
        used(std::process::id()).peak_mib
    );
    Ok(())
}

/// Seconds of CPU that this process has used.
fn cpu() -> f64 {
    used(std::process::id()).cpu_seconds
}

fn rate(records: usize, (time, cpu): (Duration, f64)) -> String {
    let (records, seconds) = (records as f64, time.as_secs_f64());
    format!("{:>9.0}/s ({:.1} us CPU each)", records / seconds, cpu * 1e6 / records)
}

fn record(number: usize, all: usize) -> Record {
    let (headers, value) = letter(number, all);
    let key = format!("k{number}");
    let offset = Offset(number as i64);
    let size = headers
        .iter()
        .map(|(name, value)| RecordBuilder::header_size(name.as_bytes(), Some(value.as_bytes())))
        .sum();
    let mut builder = RecordBuilder::new(offset, None, Some(key.as_bytes()), Some(&value), size);
    for (name, value) in &headers {
        builder.header(name.as_bytes(), Some(value.as_bytes()));
    }
    builder.build()
}

/// Through a broker: reading, the index, then words.
fn from_kafka(stage: &Stage<'_>, records: usize) -> Result<(), tidegate_operator::OperatorError> {
    let name = unique("bench-index");
    let topic = format!("{name}.dlq");
    let client = Client::new(stage.kafka.bootstrap());
    client.create_topic(&topic, PARTITIONS as i32);
    client.create_topic(&format!("{name}.dlq-journal"), 1);
    fill(stage.kafka.bootstrap(), &topic, records);
    let dir = tempfile::tempdir().expect("a folder");
    let inbox = inbox(stage.kafka.bootstrap(), &name, dir.path())?;
    let measured = |needed: Needed| {
        let began = (Instant::now(), cpu());
        inbox.catch_up(needed, &mut |_| ControlFlow::Continue(()))?;
        Ok::<_, tidegate_operator::OperatorError>(rate(records, (began.0.elapsed(), cpu() - began.1)))
    };
    let (items, words) = (measured(Needed::Items)?, measured(Needed::Words)?);
    let peak = used(std::process::id()).peak_mib;
    println!("  from Kafka   {items}, and words {words}   peak {peak:.0} MiB");
    pages(&inbox)
}

pub(super) fn fill(bootstrap: &str, topic: &str, records: usize) {
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "20")
        .set("compression.type", "lz4")
        .create()
        .expect("a producer can be made");
    for number in 0..records {
        let (headers, value) = letter(number, records);
        let headers = headers.iter().fold(OwnedHeaders::new(), |all, (name, value)| {
            all.insert(Header { key: name, value: Some(value) })
        });
        let key = format!("k{number}");
        let mut outgoing = BaseRecord::to(topic)
            .partition((number % PARTITIONS) as i32)
            .key(&key)
            .payload(&value)
            .headers(headers);
        while let Err((error, back)) = producer.send(outgoing) {
            assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            std::thread::sleep(Duration::from_millis(5));
            outgoing = back;
        }
    }
    producer.flush(Duration::from_secs(300)).expect("everything is delivered");
}

/// The slowest of ten looks at each page.
fn pages(inbox: &Inbox) -> Result<(), tidegate_operator::OperatorError> {
    let one = |text: &str| vec![text.to_owned()];
    let filters = [
        ("everything", Filter::default()),
        ("a class", Filter { classes: one("charge"), ..Filter::default() }),
        ("a class and a kind", Filter { classes: one("mail"), kinds: one("timeout"), ..Filter::default() }),
        ("nothing fits", Filter { classes: one("mail"), states: one("discarded"), ..Filter::default() }),
        ("the last hour", Filter { since: Some(now().0 - 3_600_000), ..Filter::default() }),
        ("all but an hour", Filter { until: Some(now().0 - 3_600_000), ..Filter::default() }),
        ("a frequent word", Filter { text: Some("endpoint".to_owned()), ..Filter::default() }),
        ("a rare word", Filter { text: Some("order-4711".to_owned()), ..Filter::default() }),
        ("a frequent beginning", Filter { text: Some("ord*".to_owned()), ..Filter::default() }),
        ("a rare beginning", Filter { text: Some("471*".to_owned()), ..Filter::default() }),
    ];
    for (name, filter) in filters {
        let mut slowest = Duration::ZERO;
        let mut query = ListQuery { filter, ..ListQuery::default() };
        for look in 0..10 {
            // The second half comes from the other end, and all go deeper.
            if look == 5 {
                (query.order, query.after) = (Order::OldestFirst, None);
            }
            let began = Instant::now();
            let page = inbox.list(&query)?;
            slowest = slowest.max(began.elapsed());
            query.after = page.next.or(query.after);
        }
        println!("    page, {name:<20} {:>7.1} ms", slowest.as_secs_f64() * 1000.0);
    }
    for by in [By::Fingerprint, By::Class, By::Handler] {
        let began = Instant::now();
        let page =
            inbox.groups(&GroupQuery { by, sort: Sort::Waiting, now: now().0, ..GroupQuery::default() })?;
        println!("    {} groups by {by:?} {:>7.1} ms", page.total, began.elapsed().as_secs_f64() * 1000.0);
    }
    let began = Instant::now();
    inbox.overview()?;
    println!("    overview {:>7.1} ms", began.elapsed().as_secs_f64() * 1000.0);
    let first = inbox.list(&ListQuery { limit: Some(1), ..ListQuery::default() })?;
    if let Some(row) = first.items.first() {
        let began = Instant::now();
        inbox.item(row.item)?;
        println!("    item {:>7.1} ms", began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(())
}
