//! JSON to a datum, for `produce` and for tests: strict, and precise about what is wrong where.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::plan::{BytesKind, IntKind, LongKind, Node, NodeId, Plan, RecordPlan, Span, TimeUnit};
use crate::temporal::{self, Zone};
use crate::{decimal, uuid};

mod branch;

/// What is wrong with JSON that should become an event. Paths are dotted; the event itself is `event`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A value of another type, or out of its type's range.
    #[error("{path}: expected {expected}, found {found}")]
    WrongValue {
        /// Where.
        path: String,
        /// What the schema asks for.
        expected: String,
        /// What was given, cut short.
        found: String,
    },
    /// A field without a default is missing.
    #[error("{path}: missing, and the schema has no default for it")]
    MissingField {
        /// The field.
        path: String,
    },
    /// A field that the schema doesn't have.
    #[error("{path}: the schema has no such field{}", suggestion(.nearest.as_deref()))]
    UnknownField {
        /// The field.
        path: String,
        /// The known field with the most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// The values nest deeper than can be written, or unions in them leave too many possibilities.
    #[error("{path}: nested too deeply")]
    TooDeep {
        /// Where the limit was met.
        path: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// A default that leads to the same record again would nest for ever.
const MAX_DEPTH: u32 = 128;
const MAX_ATTEMPTS: u32 = 100_000;

/// Writes a value of the plan's root type.
pub(crate) fn encode(plan: &Plan, value: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder {
        plan,
        out: Vec::new(),
        path: Vec::new(),
        depth: 0,
        attempts: MAX_ATTEMPTS,
        notation: Notation::Plain,
    };
    encoder.value(plan.root(), value)?;
    Ok(encoder.out)
}

/// How JSON writes bytes: schemas' defaults have a notation of their own.
#[derive(Clone, Copy, PartialEq)]
enum Notation {
    /// Base64.
    Plain,
    /// A character for each byte, U+0000 to U+00FF.
    Default,
}

struct Encoder<'p> {
    plan: &'p Plan,
    out: Vec<u8>,
    path: Vec<String>,
    depth: u32,
    /// How many more branches of unions may be tried: unions within unions multiply their attempts.
    attempts: u32,
    notation: Notation,
}

impl<'p> Encoder<'p> {
    fn value(&mut self, node: NodeId, value: &Value) -> Result<(), EncodeError> {
        if self.depth == MAX_DEPTH {
            return Err(EncodeError::TooDeep { path: self.at() });
        }
        self.depth += 1;
        let done = self.any(node, value);
        self.depth -= 1;
        done
    }

    fn any(&mut self, node: NodeId, value: &Value) -> Result<(), EncodeError> {
        match (self.plan.node(node), value) {
            (Node::Union(branches), _) => return self.union(branches, value),
            (Node::Record { record, fields }, Value::Object(object)) => {
                return self.record(record, fields, object);
            }
            (Node::Array(item), Value::Array(items)) => return self.array(item, items),
            (Node::Map(inner), Value::Object(object)) => return self.map(inner, object),
            _ => {}
        }
        match self.scalar(node, value) {
            Some(()) => Ok(()),
            None => Err(EncodeError::WrongValue {
                path: self.at(),
                expected: self.describe(node),
                found: describe_value(value),
            }),
        }
    }

    fn scalar(&mut self, node: NodeId, value: &Value) -> Option<()> {
        match self.plan.node(node) {
            Node::Null => value.is_null().then_some(()),
            Node::Boolean => value.as_bool().map(|value| self.out.push(u8::from(value))),
            Node::Int(kind) => int(kind, value).map(|value| self.long(i64::from(value))),
            Node::Long(kind) => long(kind, value).map(|value| self.long(value)),
            Node::Float => float(value).map(|value| self.out.extend(value.to_le_bytes())),
            Node::Double => double(value).map(|value| self.out.extend(value.to_le_bytes())),
            Node::String(_) => value.as_str().map(|text| self.bytes(text.as_bytes())),
            Node::Enum(index) => {
                let symbol = value.as_str()?;
                let position = self.plan.symbols(index).iter().position(|known| known == symbol)?;
                self.long(i64::try_from(position).ok()?);
                Some(())
            }
            Node::Bytes(kind) => {
                let bytes = self.read_bytes(kind, value)?;
                self.bytes(&bytes);
                Some(())
            }
            Node::Fixed { size, kind, .. } => {
                let mut bytes = self.read_bytes(kind, value)?;
                if matches!(kind, BytesKind::Decimal { .. }) {
                    bytes = decimal::widen(&bytes, size)?;
                }
                (bytes.len() == size).then(|| self.out.extend_from_slice(&bytes))
            }
            Node::Array(_) | Node::Map(_) | Node::Union(_) | Node::Record { .. } => None,
        }
    }

    fn read_bytes(&self, kind: BytesKind, value: &Value) -> Option<Vec<u8>> {
        if self.notation == Notation::Default {
            return value.as_str()?.chars().map(|byte| u8::try_from(u32::from(byte)).ok()).collect();
        }
        match (kind, value) {
            (BytesKind::Decimal { precision, scale }, Value::String(text)) => {
                decimal::parse(text, precision, scale)
            }
            (BytesKind::Decimal { precision, scale }, Value::Number(number)) => {
                decimal::parse(&number.to_string(), precision, scale)
            }
            (BytesKind::BigDecimal, Value::String(text)) => big_decimal(text),
            (BytesKind::BigDecimal, Value::Number(number)) => big_decimal(&number.to_string()),
            (BytesKind::Uuid, Value::String(text)) => uuid::parse(text).map(Vec::from),
            (BytesKind::Duration, Value::Object(parts)) => duration(parts),
            (_, Value::String(text)) => STANDARD.decode(text).ok(),
            _ => None,
        }
    }

    fn record(&mut self, record: u32, fields: Span, object: &Map<String, Value>) -> Result<(), EncodeError> {
        let (record, nodes) = (self.plan.record(record), self.plan.children(fields));
        let mut given = vec![None; nodes.len()];
        for (name, value) in object {
            match record.position(name) {
                // A field that stands under its name and under an alias is meant by its name.
                Some(position) if given[position].is_none() || record.fields[position].name == *name => {
                    given[position] = Some(value);
                }
                Some(_) => {}
                None => {
                    self.path.push(name.clone());
                    return Err(EncodeError::UnknownField {
                        path: self.at(),
                        nearest: nearest(record, name),
                    });
                }
            }
        }
        for ((field, node), given) in record.fields.iter().zip(nodes).zip(given) {
            self.path.push(field.name.clone());
            match (given, &field.default) {
                (Some(value), _) => self.value(*node, value)?,
                (None, Some(default)) => {
                    let outer = std::mem::replace(&mut self.notation, Notation::Default);
                    self.value(*node, default)?;
                    self.notation = outer;
                }
                (None, None) => return Err(EncodeError::MissingField { path: self.at() }),
            }
            self.path.pop();
        }
        Ok(())
    }

    fn array(&mut self, item: NodeId, items: &[Value]) -> Result<(), EncodeError> {
        self.block(items.len());
        for (index, value) in items.iter().enumerate() {
            self.path.push(format!("[{index}]"));
            self.value(item, value)?;
            self.path.pop();
        }
        self.end_of_blocks(items.len());
        Ok(())
    }

    fn map(&mut self, inner: NodeId, object: &Map<String, Value>) -> Result<(), EncodeError> {
        self.block(object.len());
        for (key, value) in object {
            self.bytes(key.as_bytes());
            self.path.push(key.clone());
            self.value(inner, value)?;
            self.path.pop();
        }
        self.end_of_blocks(object.len());
        Ok(())
    }

    fn block(&mut self, count: usize) {
        self.long(count as i64);
    }

    fn end_of_blocks(&mut self, count: usize) {
        // An empty array has written its zero already.
        if count > 0 {
            self.long(0);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.long(bytes.len() as i64);
        self.out.extend_from_slice(bytes);
    }

    fn long(&mut self, value: i64) {
        write_long(&mut self.out, value);
    }

    fn at(&self) -> String {
        match self.path.as_slice() {
            [] => "event".to_owned(),
            path => path.join(".").replace(".[", "["),
        }
    }

    fn describe(&self, node: NodeId) -> String {
        let name = self.plan.type_name(node);
        match self.plan.node(node) {
            Node::Int(IntKind::Date) => "a date (YYYY-MM-DD)".to_owned(),
            Node::Int(IntKind::TimeMillis) | Node::Long(LongKind::TimeMicros) => {
                "a time (HH:MM:SS)".to_owned()
            }
            Node::Long(LongKind::Timestamp(_)) => "an instant (RFC 3339)".to_owned(),
            Node::Long(LongKind::LocalTimestamp(_)) => "a date and time without a zone".to_owned(),
            Node::Enum(index) => format!("one of {}", self.plan.symbols(index).join(", ")),
            Node::Bytes(BytesKind::Decimal { precision, scale })
            | Node::Fixed { kind: BytesKind::Decimal { precision, scale }, .. } => {
                format!("a decimal of {precision} digits, {scale} after the point")
            }
            Node::Bytes(BytesKind::Plain) => "bytes in base64".to_owned(),
            Node::Fixed { size, kind: BytesKind::Plain, .. } => format!("{size} bytes in base64"),
            Node::Bytes(BytesKind::Uuid) | Node::Fixed { kind: BytesKind::Uuid, .. } => "a uuid".to_owned(),
            Node::Union(branches) => {
                let names: Vec<_> =
                    self.plan.children(branches).iter().map(|branch| self.plan.type_name(*branch)).collect();
                format!("one of {}", names.join(", "))
            }
            _ => name.to_owned(),
        }
    }
}

fn write_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn int(kind: IntKind, value: &Value) -> Option<i32> {
    let number = match (kind, value) {
        (IntKind::Date, Value::String(text)) => temporal::parse_date(text)?,
        (IntKind::TimeMillis, Value::String(text)) => temporal::parse_time(text, TimeUnit::Millis)?,
        _ => value.as_i64()?,
    };
    i32::try_from(number).ok()
}

fn long(kind: LongKind, value: &Value) -> Option<i64> {
    match (kind, value) {
        (LongKind::TimeMicros, Value::String(text)) => temporal::parse_time(text, TimeUnit::Micros),
        (LongKind::Timestamp(unit), Value::String(text)) => temporal::parse_timestamp(text, unit, Zone::Utc),
        (LongKind::LocalTimestamp(unit), Value::String(text)) => {
            temporal::parse_timestamp(text, unit, Zone::Local)
        }
        _ => value.as_i64(),
    }
}

fn float(value: &Value) -> Option<f32> {
    let wide = double(value)?;
    let narrow = wide as f32;
    (narrow.is_finite() || !wide.is_finite()).then_some(narrow)
}

fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn big_decimal(text: &str) -> Option<Vec<u8>> {
    let scale = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let unscaled = decimal::parse(text, u32::MAX, u32::try_from(scale).ok()?)?;
    let mut out = Vec::new();
    write_long(&mut out, unscaled.len() as i64);
    out.extend_from_slice(&unscaled);
    write_long(&mut out, scale as i64);
    Some(out)
}

fn duration(parts: &Map<String, Value>) -> Option<Vec<u8>> {
    let names = ["months", "days", "millis"];
    if parts.keys().any(|key| !names.contains(&key.as_str())) {
        return None;
    }
    let mut out = Vec::with_capacity(12);
    for name in names {
        let part = parts.get(name).map_or(Some(0), Value::as_u64)?;
        out.extend(u32::try_from(part).ok()?.to_le_bytes());
    }
    Some(out)
}

fn nearest(record: &RecordPlan, name: &str) -> Option<String> {
    let similarity = |known: &str| strsim::normalized_damerau_levenshtein(known, name);
    record
        .fields
        .iter()
        .map(|field| (similarity(&field.name), &field.name))
        .filter(|(similarity, _)| *similarity > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known.clone())
}

/// A value in an error message: short, and on one line.
fn describe_value(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(fields) => format!("an object with {} fields", fields.len()),
        scalar => {
            let text = scalar.to_string();
            match text.char_indices().nth(60) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}

#[cfg(test)]
mod tests;
