//! A datum as JSON, for people: the console, the CLI, `http` handlers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::plan::{BytesKind, IntKind, LongKind, Node, NodeId, Plan, TimeUnit};
use crate::temporal::{self, Zone};
use crate::{decimal, uuid};

/// Reads one value.
pub(crate) fn read(plan: &Plan, cursor: &mut Cursor<'_>, node: NodeId) -> Result<Value, DecodeError> {
    Ok(match plan.node(node) {
        Node::Null => Value::Null,
        Node::Boolean => Value::Bool(cursor.boolean()?),
        Node::Int(kind) => int(kind, cursor.int()?),
        Node::Long(kind) => long(kind, cursor.long()?),
        Node::Float => float(cursor.float()?),
        Node::Double => double(cursor.double()?),
        Node::Bytes(kind) => bytes(kind, cursor.bytes()?),
        Node::Fixed { size, kind, .. } => bytes(kind, cursor.take(size)?),
        Node::String(_) => Value::from(cursor.string()?),
        Node::Enum(index) => {
            let symbols = plan.symbols(index);
            Value::from(symbols[cursor.symbol(symbols.len())?].as_str())
        }
        Node::Union(branches) => {
            let branches = plan.children(branches);
            let branch = branches[cursor.branch(branches.len())?];
            read(plan, cursor, branch)?
        }
        Node::Array(item) => array(plan, cursor, item)?,
        Node::Map(value) => map(plan, cursor, value)?,
        Node::Record { record, fields } => {
            let (names, fields) = (&plan.record(record).fields, plan.children(fields));
            cursor.enter()?;
            cursor.charge(fields.len() as u64)?;
            let mut object = Map::new();
            for (field, node) in names.iter().zip(fields) {
                object.insert(field.name.clone(), read(plan, cursor, *node)?);
            }
            cursor.leave();
            Value::Object(object)
        }
    })
}

fn array(plan: &Plan, cursor: &mut Cursor<'_>, item: NodeId) -> Result<Value, DecodeError> {
    cursor.enter()?;
    let (mut items, mut blocks) = (Vec::new(), cursor.blocks()?);
    while cursor.next_item(&mut blocks)? {
        items.push(read(plan, cursor, item)?);
    }
    cursor.leave();
    Ok(Value::Array(items))
}

fn map(plan: &Plan, cursor: &mut Cursor<'_>, value: NodeId) -> Result<Value, DecodeError> {
    cursor.enter()?;
    let (mut entries, mut blocks) = (Map::new(), cursor.blocks()?);
    while cursor.next_item(&mut blocks)? {
        let key = cursor.string()?.to_owned();
        entries.insert(key, read(plan, cursor, value)?);
    }
    cursor.leave();
    Ok(Value::Object(entries))
}

fn int(kind: IntKind, value: i32) -> Value {
    int_text(kind, value).map_or(Value::from(value), Value::String)
}

fn long(kind: LongKind, value: i64) -> Value {
    long_text(kind, value).map_or(Value::from(value), Value::String)
}

/// The text of an int that stands for a date or a time of day.
pub(crate) fn int_text(kind: IntKind, value: i32) -> Option<String> {
    match kind {
        IntKind::Plain => None,
        IntKind::Date => temporal::format_date(i64::from(value)),
        IntKind::TimeMillis => temporal::format_time(i64::from(value), TimeUnit::Millis),
    }
}

/// The text of a long that stands for a time.
pub(crate) fn long_text(kind: LongKind, value: i64) -> Option<String> {
    match kind {
        LongKind::Plain => None,
        LongKind::TimeMicros => temporal::format_time(value, TimeUnit::Micros),
        LongKind::Timestamp(unit) => temporal::format_timestamp(value, unit, Zone::Utc),
        LongKind::LocalTimestamp(unit) => temporal::format_timestamp(value, unit, Zone::Local),
    }
}

/// The text of bytes that stand for a number or a UUID.
pub(crate) fn bytes_text(kind: BytesKind, bytes: &[u8]) -> Option<String> {
    match kind {
        BytesKind::Plain | BytesKind::Duration => None,
        BytesKind::Decimal { scale, .. } => decimal::format(bytes, scale),
        BytesKind::BigDecimal => {
            decimal::split_big(bytes).and_then(|(unscaled, scale)| decimal::format(unscaled, scale))
        }
        BytesKind::Uuid => bytes.try_into().ok().map(uuid::format),
    }
}

fn bytes(kind: BytesKind, bytes: &[u8]) -> Value {
    if let (BytesKind::Duration, [months, days, millis]) = (kind, bytes.as_chunks::<4>().0) {
        let part = |bytes: &[u8; 4]| Value::from(u32::from_le_bytes(*bytes));
        let parts = [("months", months), ("days", days), ("millis", millis)];
        return Value::Object(
            parts.map(|(name, bytes)| (name.to_owned(), part(bytes))).into_iter().collect(),
        );
    }
    Value::String(bytes_text(kind, bytes).unwrap_or_else(|| STANDARD.encode(bytes)))
}

/// A float by its own shortest digits: 0.1 and not 0.10000000149011612.
fn float(value: f32) -> Value {
    value.to_string().parse().map_or(Value::Null, double)
}

/// Whether a float holds all digits of the number.
pub(crate) fn same_as_float(number: &Value) -> bool {
    number.as_f64().is_some_and(|wide| (wide as f32).to_string().parse() == Ok(wide))
}

fn double(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| Value::from(non_finite(value)), Value::Number)
}

fn non_finite(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

#[cfg(test)]
mod tests;
