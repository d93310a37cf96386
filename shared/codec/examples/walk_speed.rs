//! What one record costs: `cargo run --release -p tidegate-codec --example walk_speed`.
#![allow(clippy::print_stdout, reason = "it prints a table and nothing else")]

use std::hint::black_box;
use std::time::Instant;

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_codec::{CompiledSchema, FieldPaths, Limits};

const SCHEMA: &str = r#"{"type":"record","name":"OrderPaid","namespace":"shop","fields":[
    {"name":"event_id","type":{"type":"string","logicalType":"uuid"}},
    {"name":"order_id","type":"long"},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID","VOID"]}},
    {"name":"customer","type":{"type":"record","name":"Customer","fields":[
        {"name":"email","type":"string"},
        {"name":"name","type":["null","string"],"default":null},
        {"name":"country","type":"string"}]}},
    {"name":"amount_cents","type":"long"},
    {"name":"currency","type":"string"},
    {"name":"note","type":["null","string"],"default":null},
    {"name":"skus","type":{"type":"array","items":"string"}},
    {"name":"attributes","type":{"type":"map","values":"string"}},
    {"name":"weight","type":"double"},
    {"name":"gift","type":"boolean"}]}"#;

/// The struct's name must be the record's for apache-avro.
#[derive(Debug, Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    order_id: i64,
    at: i64,
    state: State,
    customer: Customer,
    amount_cents: i64,
    currency: String,
    note: Option<String>,
    skus: Vec<String>,
    attributes: std::collections::HashMap<String, String>,
    weight: f64,
    gift: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum State {
    New,
    Paid,
    Void,
}

#[derive(Debug, Serialize, Deserialize)]
struct Customer {
    email: String,
    name: Option<String>,
    country: String,
}

/// Few fields of the same record.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "only read")]
struct Subset<'a> {
    #[serde(borrow)]
    event_id: &'a str,
    order_id: i64,
    amount_cents: i64,
    currency: &'a str,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = CompiledSchema::parse(1, SCHEMA, &[])?;
    let body = schema.encode_json(&json!({
        "event_id": "0189f7e8-3b1c-7abc-9def-00112233aaff", "order_id": 8_123_456, "at": "2026-11-29T12:00:00.123Z",
        "state": "PAID", "customer": {"email": "someone@example.com", "name": "Some One", "country": "NL"},
        "amount_cents": 12_950, "currency": "EUR", "note": "leave it at the neighbours' if nobody is at home",
        "skus": ["SKU-000000001", "SKU-000000002", "SKU-000000003", "SKU-000000004"],
        "attributes": {"channel": "web", "campaign": "november-sale", "warehouse": "rotterdam-2"},
        "weight": 2.75, "gift": true
    }))?;
    println!("record: {} bytes", body.len());
    let limits = Limits::default();

    let none = schema.select(&FieldPaths::default());
    let mut values = Vec::new();
    measure("check only", || schema.check(black_box(&body), &none, &limits, &mut values).is_ok());
    let four = schema.select(&FieldPaths::new(["order_id", "state", "customer.email", "at"])?);
    measure("check and select 4 fields", || {
        schema.check(black_box(&body), &four, &limits, &mut values).is_ok()
    });
    let uuid = schema.select(&FieldPaths::new(["event_id", "order_id", "state", "customer.email"])?);
    measure("check and select 4 fields, one a uuid", || {
        schema.check(black_box(&body), &uuid, &limits, &mut values).is_ok()
    });
    measure("to json", || schema.to_json(black_box(&body), &limits).is_ok());
    measure("decode, 4 borrowed fields", || schema.decode::<Subset<'_>>(black_box(&body), &limits).is_ok());
    measure("decode, whole owned struct", || schema.decode::<OrderPaid>(black_box(&body), &limits).is_ok());

    let avro = Schema::parse_str(SCHEMA)?;
    let reader = GenericDatumReader::builder(&avro).build()?;
    measure("apache-avro read_deser, whole owned struct", || {
        reader.read_deser::<OrderPaid>(&mut black_box(body.as_slice())).is_ok()
    });
    measure("apache-avro read_value", || reader.read_value(&mut black_box(body.as_slice())).is_ok());
    Ok(())
}

/// The best of several rounds: the machine's other work only ever adds.
fn measure(what: &str, mut once: impl FnMut() -> bool) {
    const ROUND: u32 = 500;
    assert!(once(), "{what} fails");
    let best = (0..1000)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUND {
                black_box(once());
            }
            start.elapsed() / ROUND
        })
        .min()
        .unwrap_or_default();
    println!("{what:45} {:>7} ns", best.as_nanos());
}
