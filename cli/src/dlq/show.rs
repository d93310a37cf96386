//! `tidegate dlq show`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Value, json};
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_operator::{Event, Needed, Original, hex};
use tidegate_pipeline::Record;

use super::act::Author;
use super::opened::{Look, Named, Opened};
use super::{Common, text};
use crate::{Answer, block_on, print, print_error};

/// How many bytes of a value that can't be decoded are shown.
const MOST_HEX: usize = 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq show 3/128\n  tidegate dlq show 9f86d081884c7d65 --json | jq .occurrences"
)]
pub(crate) struct Show {
    /// The item: its 16 hex digits, its id, or PARTITION/OFFSET of one of its records
    item: String,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(config: Config, show: &Show) -> Answer {
    let dlq = tidegate_service::wiring::names(&config).dlq();
    let opened = Opened::open(config, show.common.index.as_deref(), Needed::Items)?;
    let Named { item, record } = opened.item(&show.item)?;
    let found = item.map(|item| opened.inbox.item(item)).transpose()?.flatten();
    let (Some(item), Some(found)) = (item, found) else {
        let what = if record.is_some() { "record" } else { "item" };
        print_error(&format!("there is no {what} {} in {dlq}", show.item));
        return Ok(ExitCode::NotOk);
    };
    let original = match record {
        Some((partition, offset)) => opened.inbox.original(partition, offset)?,
        None => opened.inbox.original_of(item)?,
    };
    let mut shown = serde_json::to_value(&found)?;
    if let Some(original) = &original {
        opened.note_look(&show.author.name(), Look::At(&found.row.id));
        add_record(&mut shown, original, &block_on(opened.inbox.event(&original.record))?);
    }
    if show.common.json {
        print(&serde_json::to_string_pretty(&shown)?);
    } else {
        tell(&shown, original.as_ref());
    }
    Ok(ExitCode::Ok)
}

/// What stands in the record itself.
fn add_record(shown: &mut Value, original: &Original, event: &Event) {
    let record = &original.record;
    shown["record"] = json!(format!("{}/{}", original.partition, record.offset()));
    shown["headers"] = headers(record);
    shown["key"] = bytes(record.key());
    shown["value"] = bytes(record.value());
    shown["event"] = match event {
        Event::Null => Value::Null,
        Event::Decoded { json, .. } => json.clone(),
        Event::Undecodable { reason } => json!({ "undecodable": reason }),
    };
}

fn headers(record: &Record) -> Value {
    let header = |(name, value): (&[u8], Option<&[u8]>)| json!({ "name": String::from_utf8_lossy(name), "value": bytes(value) });
    record.headers().map(header).collect()
}

/// Text as text, other bytes as base64, null as null.
pub(crate) fn bytes(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => json!(text),
            _ => json!({ "base64": STANDARD.encode(bytes) }),
        },
    }
}

fn tell(shown: &Value, original: Option<&Original>) {
    let Value::Object(fields) = shown else { return };
    let names = [
        "item",
        "id",
        "state",
        "record",
        "letters",
        "error",
        "source",
        "job",
        "handler",
        "event",
        "key",
        "headers",
        "occurrences",
        "journal",
    ];
    for name in names {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(inner)) => tell_inner(name, inner),
            Some(Value::Array(items)) => tell_list(name, items),
            Some(value) => print(&format!("{name}: {}", text::value(value))),
        }
    }
    let undecodable = shown["event"]["undecodable"].is_string();
    match original.and_then(|original| original.record.value()) {
        Some(value) if undecodable => print(&format!("value:\n{}", hex(value, MOST_HEX).trim_end())),
        Some(_) => {}
        None if original.is_none() => {
            print("No record of it exists any more: the topic no longer holds any.")
        }
        None => print("value: null"),
    }
}

fn tell_inner(name: &str, inner: &Map<String, Value>) {
    print(&format!("{name}:"));
    for (field, value) in inner.iter().filter(|(_, value)| !value.is_null()) {
        print(&format!("  {field}: {}", text::value(value)));
    }
}

fn tell_list(name: &str, items: &[Value]) {
    if items.is_empty() {
        return;
    }
    print(&format!("{name}:"));
    for item in items {
        print(&match name {
            "headers" => format!("  {} = {}", text::value(&item["name"]), text::value(&item["value"])),
            "occurrences" => occurrence(item),
            _ => entry(item),
        });
    }
}

fn occurrence(letter: &Value) -> String {
    let time = text::time(letter["dead_at"].as_i64().unwrap_or(0));
    format!(
        "  {time}  record {}  round {}  attempt {}  {}/{}: {}",
        text::value(&letter["record"]),
        letter["round"],
        letter["attempt"],
        text::value(&letter["kind"]),
        text::value(&letter["code"]),
        text::line(letter["message"].as_str().unwrap_or_default(), 120),
    )
}

fn entry(entry: &Value) -> String {
    let time = text::time(entry["time"].as_i64().unwrap_or(0));
    let part = |name: &str, before: &str| match &entry[name] {
        Value::Null => String::new(),
        value => format!("  {before}{}", text::line(&text::value(value), 120)),
    };
    let (round, by, void) = (part("round", "round "), part("by", "by "), part("void", "void: "));
    format!("  {time}  {}{round}{by}{void}{}", text::value(&entry["what"]), part("detail", ""))
}
