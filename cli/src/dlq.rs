//! `tidegate dlq`: enough to look; the inbox with replay is another command's work.

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_codec::{SchemaRegistry, wire};
use tidegate_kafka::single::{Found, read_topic};
use tidegate_pipeline::Record;
use tidegate_pipeline::dead_letter::ERROR_KIND;
use tidegate_service::{ServiceError, wiring};

use crate::{Answer, block_on, print, print_error, print_note};

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// List dead-lettered records, oldest first within a partition
    List(List),
    /// Show one record whole: the event, its headers, and why it failed
    #[command(after_help = "Example:\n  tidegate dlq show 3/128")]
    Show {
        /// The record: PARTITION/OFFSET, as `dlq list` prints it
        record: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq list --class charge\n  tidegate dlq list --kind malformed --limit 20\n  tidegate dlq list --json | jq -r .error.fingerprint | sort | uniq -c"
)]
pub(crate) struct List {
    /// Only of this class
    #[arg(long)]
    class: Option<String>,
    /// Only of this kind of failure (transient, timeout, overload, permanent, malformed, unroutable, conflict, crash)
    #[arg(long)]
    kind: Option<String>,
    /// At most this many; how many there are is told on standard error then
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(config: &Config, command: &Dlq) -> Answer {
    match command {
        Dlq::List(list) => run_list(config, list),
        Dlq::Show { record, json } => run_show(config, record, *json),
    }
}

fn run_list(config: &Config, list: &List) -> Answer {
    let mut found_so_far = 0;
    let topic = wiring::names(config).dlq();
    if !list.json {
        print(&format!(
            "{:<12} {:<14} {:<16} {:<20} {:<34} MESSAGE",
            "RECORD", "KIND", "CODE", "CLASS", "SOURCE"
        ));
    }
    read_topic(&wiring::kafka(config), topic.as_str(), |found| {
        let wanted = |filter: &Option<String>, header| {
            filter.as_deref().is_none_or(|f| found.record.header(header) == Some(f.as_bytes()))
        };
        if wanted(&list.class, "job-class") && wanted(&list.kind, ERROR_KIND) {
            found_so_far += 1;
            if found_so_far <= list.limit {
                let item = item(&found);
                print(&if list.json { item.to_string() } else { line(&item) });
            }
        }
        ControlFlow::Continue(())
    })?;
    if found_so_far == 0 && !list.json {
        print("nothing is dead-lettered here");
    }
    if found_so_far > list.limit {
        let limit = list.limit;
        print_note(&format!("listed {limit} of {found_so_far}: `--limit {found_so_far}` lists all"));
    }
    Ok(ExitCode::Ok)
}

fn run_show(config: &Config, record: &str, as_json: bool) -> Answer {
    let (partition, offset) = record
        .split_once('/')
        .and_then(|(partition, offset)| Some((partition.parse::<i32>().ok()?, offset.parse::<i64>().ok()?)))
        .ok_or_else(|| {
            ServiceError::Configuration(format!(
                "`{record}` is not PARTITION/OFFSET, as `tidegate dlq list` prints it"
            ))
        })?;
    let mut wanted = None;
    let topic = wiring::names(config).dlq();
    read_topic(&wiring::kafka(config), topic.as_str(), |found| {
        if (found.partition.0, found.record.offset().0) == (partition, offset) {
            wanted = Some(found);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let Some(found) = wanted else {
        print_error(&format!("there is no record {record} in {topic}"));
        return Ok(ExitCode::NotOk);
    };
    let mut item = item(&found);
    item["headers"] = headers(&found.record);
    item["key"] = bytes(found.record.key());
    item["value"] = bytes(found.record.value());
    item["event"] = match wiring::registry(config) {
        Ok(registry) => block_on(event(&registry, &found.record, config))?,
        Err(_) => Value::Null,
    };
    if as_json {
        print(&serde_json::to_string_pretty(&item)?);
    } else {
        show(&item);
    }
    Ok(ExitCode::Ok)
}

fn item(found: &Found) -> Value {
    let record = &found.record;
    let text = |name: &str| record.header(name).map_or(Value::Null, |v| json!(String::from_utf8_lossy(v)));
    let number = |name: &str| {
        let value =
            record.header(name).and_then(|v| std::str::from_utf8(v).ok()).and_then(|v| v.parse::<i64>().ok());
        json!(value)
    };
    json!({
        "record": format!("{}/{}", found.partition, record.offset()),
        "at": record.timestamp().map(|t| t.0),
        "error": {
            "kind": text(ERROR_KIND),
            "code": text("job-error-code"),
            "message": text("job-error-message"),
            "fingerprint": text("job-error-fingerprint"),
            "first": text("job-first-error"),
        },
        "source": {
            "topic": text("__connect.errors.topic"),
            "partition": number("__connect.errors.partition"),
            "offset": number("__connect.errors.offset"),
        },
        "job": {
            "class": text("job-class"),
            "tier": text("job-tier"),
            "id": text("job-id"),
            "key": text("job-key"),
            "round": number("job-round"),
            "attempt": number("job-attempt"),
        },
        "stub": text("job-stub"),
    })
}

fn line(item: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let source = format!(
        "{}/{}/{}",
        text(&item["source"]["topic"]),
        item["source"]["partition"],
        item["source"]["offset"]
    );
    let message: String =
        text(&item["error"]["message"]).replace(['\n', '\r'], " ").chars().take(120).collect();
    format!(
        "{:<12} {:<14} {:<16} {:<20} {:<34} {message}",
        text(&item["record"]),
        text(&item["error"]["kind"]),
        text(&item["error"]["code"]),
        text(&item["job"]["class"]),
        source,
    )
}

fn headers(record: &Record) -> Value {
    let header = |(name, value): (&[u8], Option<&[u8]>)| json!({ "name": String::from_utf8_lossy(name), "value": bytes(value) });
    record.headers().map(header).collect()
}

/// Text as text, other bytes as base64, null as null.
fn bytes(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => json!(text),
            _ => json!({ "base64": STANDARD.encode(bytes) }),
        },
    }
}

async fn event(registry: &SchemaRegistry, record: &Record, config: &Config) -> Value {
    let Some(value) = record.value() else { return Value::Null };
    let failed = |error: &dyn std::fmt::Display| json!({ "undecodable": error.to_string() });
    let framed = match wire::parse(value) {
        Ok(framed) => framed,
        Err(error) => return failed(&error),
    };
    match registry.fetch(framed.schema_id).await {
        Ok(schema) => {
            schema.to_json(framed.body, &wiring::limits(config)).unwrap_or_else(|error| failed(&error))
        }
        Err(error) => failed(&error),
    }
}

fn show(item: &Value) {
    let Value::Object(fields) = item else { return };
    for name in ["record", "error", "source", "job", "stub", "event", "key", "headers", "value"] {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(inner)) => show_inner(name, inner),
            Some(Value::Array(items)) => {
                print(&format!("{name}:"));
                items.iter().for_each(|item| {
                    print(&format!("  {} = {}", plain(&item["name"]), plain(&item["value"])))
                });
            }
            Some(value) => print(&format!("{name}: {}", plain(value))),
        }
    }
}

fn show_inner(name: &str, inner: &Map<String, Value>) {
    print(&format!("{name}:"));
    for (field, value) in inner.iter().filter(|(_, value)| !value.is_null()) {
        print(&format!("  {field}: {}", plain(value)));
    }
}

/// A value as a terminal may show it: control characters of a payload must not drive it.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
