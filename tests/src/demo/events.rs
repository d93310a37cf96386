//! What is published: three classes, each with its share of trouble.

use std::collections::BTreeMap;

use tidegate_codec::{CompiledSchema, wire};
pub(super) use tidegate_demo::classes::CLASSES;
use tidegate_demo::classes::DemoClass;

use crate::kafka_io::{Client, Record};
use crate::servers::Registry;

/// How many different events are published for each share of a class: 2000, 1000 and 500.
const EVENTS: u64 = 500;

/// How many events were published for each class, garbage and duplicates included.
pub(super) type Published = BTreeMap<&'static str, u64>;

/// Publishes everything; every tenth event twice, and some bytes that are no events.
pub(super) fn publish(client: &Client, registry: &Registry) -> Published {
    CLASSES.iter().map(|class| (class.name, publish_class(class, client, registry))).collect()
}

fn publish_class(class: &DemoClass, client: &Client, registry: &Registry) -> u64 {
    let id = registry.register(&format!("{}-value", class.topic), class.schema);
    let schema = CompiledSchema::parse(id, class.schema, &[]).expect("the demo's schemas are valid");
    let mut records = Vec::new();
    for n in 0..class.share * EVENTS {
        let event = class.event(n);
        let datum = schema.encode_json(&event).expect("the demo's events fit their schemas");
        let record = Record::default().key(event[class.key].to_string()).value(wire::frame(id, &datum));
        if n % 10 == 0 {
            records.push(record.clone());
        }
        records.push(record);
        if n % 250 == 0 {
            records.push(Record::default().value(b"this is not Avro".to_vec()));
        }
    }
    client.produce_all(class.topic, &records);
    records.len() as u64
}
