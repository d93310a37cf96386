//! What is published: three classes, each with its share of trouble.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_codec::{CompiledSchema, wire};

use crate::kafka_io::{Client, Record};
use crate::servers::Registry;

/// A class of the demo.
#[derive(Debug)]
pub(super) struct Class {
    /// Its name.
    pub(super) name: &'static str,
    /// Its tier.
    pub(super) tier: &'static str,
    /// Its source topic.
    pub(super) topic: &'static str,
    /// The fields of its key.
    pub(super) key: &'static str,
    schema: &'static str,
    events: u64,
    event: fn(u64) -> Value,
}

/// All of them.
pub(super) const CLASSES: [Class; 3] = [
    Class {
        name: "charge",
        tier: "critical",
        topic: "demo.payments",
        key: "payment_id",
        schema: include_str!("../../../schemas/payment.avsc"),
        events: 2000,
        event: |n| {
            json!({
                "payment_id": format!("pay-{n}"), "order_id": format!("ord-{n}"), "customer_id": format!("cus-{}", n % 100),
                "amount_cents": 100 + n, "currency": "EUR", "paid_at": "2026-01-31T12:00:00Z",
            })
        },
    },
    Class {
        name: "welcome",
        tier: "default",
        topic: "demo.sign-ups",
        key: "user_id",
        schema: include_str!("../../../schemas/sign_up.avsc"),
        events: 1000,
        event: |n| {
            json!({
                "user_id": format!("usr-{n}"), "email": format!("user{n}@example.org"), "plan": "TEAM", "referrer": null,
            })
        },
    },
    Class {
        name: "export",
        tier: "bulk",
        topic: "demo.exports",
        key: "export_id",
        schema: include_str!("../../../schemas/export_request.avsc"),
        events: 500,
        event: |n| json!({ "export_id": format!("exp-{n}"), "user_id": format!("usr-{n}"), "format": "csv", "rows": 10 + n }),
    },
];

/// How many events were published for each class, garbage and duplicates included.
pub(super) type Published = BTreeMap<&'static str, u64>;

/// Publishes everything; every tenth event twice, and some bytes that are no events.
pub(super) fn publish(client: &Client, registry: &Registry) -> Published {
    CLASSES.iter().map(|class| (class.name, publish_class(class, client, registry))).collect()
}

fn publish_class(class: &Class, client: &Client, registry: &Registry) -> u64 {
    let id = registry.register(&format!("{}-value", class.topic), class.schema);
    let schema = CompiledSchema::parse(id, class.schema, &[]).expect("the demo's schemas are valid");
    let mut records = Vec::new();
    for n in 0..class.events {
        let event = (class.event)(n);
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
