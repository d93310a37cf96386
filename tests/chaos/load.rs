//! The events: a steady stream, whose acknowledged ones are the truth that everything is held against.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer};
use serde_json::json;
use tidegate_tests::background::block_on;
use tidegate_tests::events::Writer;
use tidegate_tests::servers::Registry;

use crate::config::SOURCE;
use crate::dice::Dice;
use crate::endpoint::script_text;
use crate::history::{Kind, Origin, Published, Script};

/// Events a second.
pub(crate) const RATE: u64 = 200;
const TICK: Duration = Duration::from_millis(20);
/// Lanes of the class whose order is kept.
const LANES: u64 = 32;
/// How many schemas there are, and how long each is used: services have to ask the registry again and again.
const SCHEMAS: usize = 60;
const SCHEMA_EVERY: Duration = Duration::from_secs(10);

/// Registers one version of the schema after the other.
pub(crate) fn schemas(registry: &Registry) -> Vec<Writer> {
    (0..SCHEMAS).map(|version| Writer::register(registry, SOURCE, &schema(version))).collect()
}

fn schema(version: usize) -> String {
    format!(
        r#"{{"type":"record","name":"Event","namespace":"chaos","fields":[{{"name":"id","type":"string"}},{{"name":"kind","type":"string"}},
        {{"name":"lane","type":"string"}},{{"name":"script","type":"string"}},{{"name":"v{version}","type":["null","int"],"default":null}}]}}"#
    )
}

/// An event to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    kind: Kind,
    id: u64,
    lane: u32,
    script: Script,
}

/// An event that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    event: Event,
    pub(crate) is_acknowledged: bool,
}

impl Sending {
    /// The event at its place in the source topic.
    pub(crate) fn at(&self, origin: Origin) -> Published {
        let Event { kind, id, lane, script } = self.event;
        Published { origin, kind, id, lane, script }
    }
}

/// Draws events.
#[derive(Debug)]
struct Source {
    dice: Dice,
    next: u64,
    recent: VecDeque<Event>,
}

impl Source {
    fn draw(&mut self) -> Event {
        if self.dice.chance(5) && !self.recent.is_empty() {
            let place = self.dice.within(0, self.recent.len() as u64 - 1) as usize;
            return self.recent[place];
        }
        self.next += 1;
        let kind = match self.dice.within(0, 99) {
            0..=54 => Kind::Plain,
            55..=74 => Kind::Ordered,
            75..=94 => Kind::Flaky,
            95..=97 => Kind::Noise,
            _ => Kind::Garbage,
        };
        let lane = self.dice.within(0, LANES - 1) as u32;
        let event = Event { kind, id: self.next, lane, script: self.script(kind) };
        if kind == Kind::Plain {
            self.recent.push_back(event);
            // Some seconds' worth: an event is repeated while its job runs, waits, or is done.
            if self.recent.len() > 3000 {
                self.recent.pop_front();
            }
        }
        event
    }

    fn script(&mut self, kind: Kind) -> Script {
        let chance = self.dice.within(0, 99);
        match kind {
            Kind::Ordered => match chance {
                0..=3 => Script::Fail(1),
                4 => Script::Fail(2),
                5 => Script::Reject,
                _ => Script::Fine,
            },
            Kind::Flaky => match chance {
                0..=39 => Script::Fail(1),
                40..=54 => Script::Fail(2),
                55..=59 => Script::Fail(3),
                60..=62 => Script::Fail(9),
                63..=72 => Script::Busy(1),
                73..=74 => Script::Hang(1),
                75..=79 => Script::Reject,
                _ => Script::Fine,
            },
            _ => Script::Fine,
        }
    }
}

/// The publisher, at work until it is told to stop.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    publisher: JoinHandle<()>,
    collector: JoinHandle<Vec<Sending>>,
}

impl Load {
    pub(crate) fn start(
        bootstrap: &str,
        schemas: Vec<Writer>,
        dice: Dice,
        ledger: &Path,
    ) -> std::io::Result<Self> {
        let ledger = BufWriter::new(File::create(ledger)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let producer = producer(bootstrap);
        let source = Source { dice, next: 0, recent: VecDeque::new() };
        let publisher = std::thread::spawn({
            let stop = stop.clone();
            move || publish(&producer, &schemas, source, &sender, &stop)
        });
        let collector = std::thread::spawn(move || collect(&receiver, ledger));
        Ok(Self { stop, publisher, collector })
    }

    /// Ends it. The place of an event in what is returned is its number.
    pub(crate) fn finish(self) -> Vec<Sending> {
        self.stop.store(true, Ordering::Relaxed);
        self.publisher.join().expect("the publisher ends well");
        self.collector.join().expect("the collector ends well")
    }
}

fn producer(bootstrap: &str) -> FutureProducer {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        // Brokers come and go: it tries until it is acknowledged.
        .set("message.timeout.ms", "0")
        .set("linger.ms", "5")
        .set_log_level(RDKafkaLogLevel::Emerg)
        .create()
        .expect("a producer can be created")
}

type Sent = (Event, DeliveryFuture);

/// The header that numbers the records: an acknowledgement doesn't always tell the offset.
pub(crate) const NUMBER: &str = "n";

fn publish(
    producer: &FutureProducer,
    schemas: &[Writer],
    mut source: Source,
    sent: &mpsc::Sender<Sent>,
    stop: &AtomicBool,
) {
    let began = Instant::now();
    let (mut published, mut sent_so_far) = (0, 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let due = began.elapsed().as_millis() as u64 * RATE / 1000;
        // What an outage held up is not made up for at once.
        published = published.max(due.saturating_sub(RATE));
        let version = (began.elapsed().as_secs() / SCHEMA_EVERY.as_secs()) as usize % schemas.len();
        for _ in published..due {
            let event = source.draw();
            let (key, value) = record(event, version, &schemas[version], &mut source.dice);
            let number = sent_so_far.to_string();
            let headers = OwnedHeaders::new().insert(Header { key: NUMBER, value: Some(&number) });
            let record = FutureRecord::to(SOURCE).key(&key).payload(&value).headers(headers);
            match producer.send_result(record) {
                Ok(delivery) => drop(sent.send((event, delivery))),
                // The queue is full: what was not sent was not published.
                Err(_) => break,
            }
            sent_so_far += 1;
        }
        published = due;
        std::thread::sleep(TICK);
    }
    // What is on its way is acknowledged, or counted as unsure.
    drop(producer.flush(Duration::from_secs(120)));
}

/// Key and value of an event's record.
fn record(event: Event, version: usize, schema: &Writer, dice: &mut Dice) -> (String, Vec<u8>) {
    let Event { kind, id, lane, script } = event;
    let lane = format!("lane-{lane}");
    let mut json =
        json!({ "id": format!("e-{id}"), "kind": kind.name(), "lane": lane, "script": script_text(script) });
    json[format!("v{version}")] = serde_json::Value::Null;
    let key = if kind == Kind::Ordered { lane } else { format!("e-{id}") };
    let value = match (kind, dice.within(0, 2)) {
        (Kind::Garbage, 0) => b"no Avro at all".to_vec(),
        (Kind::Garbage, 1) => schema.frame(&[6]),
        (Kind::Garbage, _) => {
            (json["id"], json["kind"]) = ("".into(), "plain".into());
            schema.value(&json)
        }
        _ => schema.value(&json),
    };
    (key, value)
}

fn collect(sent: &mpsc::Receiver<Sent>, mut ledger: BufWriter<File>) -> Vec<Sending> {
    let mut sendings = Vec::new();
    for (event, delivery) in sent {
        let is_acknowledged = matches!(block_on(delivery), Ok(Ok(_)));
        let Event { kind, id, lane, script } = event;
        let (number, script) = (sendings.len(), script_text(script));
        writeln!(ledger, "{number} {} {id} {lane} acknowledged={is_acknowledged} {script}", kind.name())
            .expect("the ledger can be written");
        sendings.push(Sending { event, is_acknowledged });
    }
    ledger.flush().expect("the ledger can be written");
    sendings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_events_of_a_seed_are_the_same_and_of_all_kinds() {
        let draw = || {
            let mut source = Source { dice: Dice::new(9), next: 0, recent: VecDeque::new() };
            (0..5000).map(|_| source.draw()).collect::<Vec<_>>()
        };
        let events = draw();
        assert_eq!(events, draw());
        let mut counts: BTreeMap<Kind, usize> = BTreeMap::new();
        events.iter().for_each(|event| *counts.entry(event.kind).or_default() += 1);
        assert_eq!(counts.len(), 5);
        let mut ids: Vec<u64> = events.iter().map(|event| event.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert!((4500..4950).contains(&ids.len()), "some are published twice: {}", ids.len());
    }
}
