//! One pass over a datum: everything is checked, wanted fields are picked up on the way.

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::field::FieldValue;
use crate::plan::{BytesKind, IntKind, LongKind, Node, NodeId, Plan, Span, StringKind, TimeUnit};
use crate::select::{Fields, Pick};
use crate::{decimal, uuid};

/// Checks a value and goes past it.
pub(crate) fn skip(plan: &Plan, cursor: &mut Cursor<'_>, node: NodeId) -> Result<(), DecodeError> {
    match plan.node(node) {
        Node::Null => Ok(()),
        Node::Boolean => cursor.boolean().map(drop),
        Node::Int(_) => cursor.int().map(drop),
        Node::Long(_) => cursor.long().map(drop),
        Node::Float => cursor.take(4).map(drop),
        Node::Double => cursor.take(8).map(drop),
        Node::Bytes(_) => cursor.bytes().map(drop),
        Node::String(_) => cursor.skip_string(),
        Node::Fixed { size, .. } => cursor.take(size).map(drop),
        Node::Enum(index) => cursor.symbol(plan.symbols(index).len()).map(drop),
        Node::Array(item) => skip_items(plan, cursor, item, Keys::Absent),
        Node::Map(value) => skip_items(plan, cursor, value, Keys::Present),
        Node::Union(branches) => {
            let branches = plan.children(branches);
            let branch = branches[cursor.branch(branches.len())?];
            skip(plan, cursor, branch)
        }
        Node::Record { fields, .. } => skip_record(plan, cursor, fields),
    }
}

fn skip_record(plan: &Plan, cursor: &mut Cursor<'_>, fields: Span) -> Result<(), DecodeError> {
    let fields = plan.children(fields);
    cursor.enter()?;
    cursor.charge(fields.len() as u64)?;
    for field in fields {
        skip(plan, cursor, *field)?;
    }
    cursor.leave();
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Present,
    Absent,
}

fn skip_items(plan: &Plan, cursor: &mut Cursor<'_>, item: NodeId, keys: Keys) -> Result<(), DecodeError> {
    cursor.enter()?;
    let mut blocks = cursor.blocks()?;
    while cursor.next_item(&mut blocks)? {
        if keys == Keys::Present {
            cursor.skip_string()?;
        }
        skip(plan, cursor, item)?;
    }
    cursor.leave();
    Ok(())
}

/// The same pass with fields to pick up.
pub(crate) struct Picker<'p, 'c, 'o> {
    pub(crate) plan: &'p Plan,
    pub(crate) cursor: &'c mut Cursor<'p>,
    pub(crate) out: &'o mut Vec<FieldValue<'p>>,
}

impl<'p> Picker<'p, '_, '_> {
    pub(crate) fn pick(&mut self, node: NodeId, pick: &Pick) -> Result<(), DecodeError> {
        let Node::Union(branches) = self.plan.node(node) else { return self.pick_branch(node, pick, 0) };
        let branches = self.plan.children(branches);
        let index = self.cursor.branch(branches.len())?;
        self.pick_branch(branches[index], pick, index)
    }

    fn pick_branch(&mut self, node: NodeId, pick: &Pick, branch: usize) -> Result<(), DecodeError> {
        match self.plan.node(node) {
            Node::Null => {
                self.put(&pick.all, FieldValue::Null);
                Ok(())
            }
            Node::Record { fields, .. } => {
                self.put(&pick.here, FieldValue::NotScalar);
                self.record(fields, &pick.within[branch])
            }
            Node::Array(_) | Node::Map(_) => {
                self.put(&pick.here, FieldValue::NotScalar);
                skip(self.plan, self.cursor, node)
            }
            scalar if pick.here.is_empty() => {
                debug_assert!(!matches!(scalar, Node::Union(_)), "a union is never directly in a union");
                skip(self.plan, self.cursor, node)
            }
            scalar => {
                let value = read_scalar(self.plan, self.cursor, scalar)?;
                self.put(&pick.here, value);
                Ok(())
            }
        }
    }

    fn record(&mut self, fields: Span, picked: &Fields) -> Result<(), DecodeError> {
        let fields = self.plan.children(fields);
        self.cursor.enter()?;
        self.cursor.charge(fields.len() as u64)?;
        let mut picked = picked.iter().peekable();
        for (position, field) in fields.iter().enumerate() {
            match picked.next_if(|(wanted, _)| *wanted == position) {
                Some((_, pick)) => self.pick(*field, pick)?,
                None => skip(self.plan, self.cursor, *field)?,
            }
        }
        self.cursor.leave();
        Ok(())
    }

    fn put(&mut self, slots: &[usize], value: FieldValue<'p>) {
        for slot in slots {
            self.out[*slot] = value;
        }
    }
}

/// Reads a value that is neither a record nor a collection nor a union.
fn read_scalar<'p>(
    plan: &'p Plan,
    cursor: &mut Cursor<'p>,
    node: Node,
) -> Result<FieldValue<'p>, DecodeError> {
    Ok(match node {
        Node::Boolean => FieldValue::Bool(cursor.boolean()?),
        Node::Int(kind) => int_value(kind, cursor.int()?),
        Node::Long(kind) => long_value(kind, cursor.long()?),
        Node::Float => FieldValue::Float(f64::from(cursor.float()?)),
        Node::Double => FieldValue::Float(cursor.double()?),
        Node::Bytes(kind) => bytes_value(kind, cursor.bytes()?),
        Node::Fixed { size, kind, .. } => bytes_value(kind, cursor.take(size)?),
        Node::String(kind) => string_value(kind, cursor.string()?),
        Node::Enum(index) => {
            let symbols = plan.symbols(index);
            FieldValue::Enum(&symbols[cursor.symbol(symbols.len())?])
        }
        Node::Null => FieldValue::Null,
        Node::Array(_) | Node::Map(_) | Node::Union(_) | Node::Record { .. } => FieldValue::NotScalar,
    })
}

fn int_value<'a>(kind: IntKind, value: i32) -> FieldValue<'a> {
    match kind {
        IntKind::Plain => FieldValue::Int(i64::from(value)),
        IntKind::Date => FieldValue::Date(value),
        IntKind::TimeMillis => FieldValue::TimeOfDay { value: i64::from(value), unit: TimeUnit::Millis },
    }
}

fn long_value<'a>(kind: LongKind, value: i64) -> FieldValue<'a> {
    match kind {
        LongKind::Plain => FieldValue::Int(value),
        LongKind::TimeMicros => FieldValue::TimeOfDay { value, unit: TimeUnit::Micros },
        LongKind::Timestamp(unit) => FieldValue::Timestamp { value, unit },
        LongKind::LocalTimestamp(unit) => FieldValue::LocalTimestamp { value, unit },
    }
}

fn string_value(kind: StringKind, text: &str) -> FieldValue<'_> {
    match kind {
        StringKind::Plain => FieldValue::Str(text),
        StringKind::Uuid => uuid::parse(text).map_or(FieldValue::Str(text), FieldValue::Uuid),
    }
}

fn bytes_value(kind: BytesKind, bytes: &[u8]) -> FieldValue<'_> {
    match kind {
        BytesKind::Plain | BytesKind::Duration => FieldValue::Bytes(bytes),
        BytesKind::Decimal { scale, .. } => FieldValue::Decimal { unscaled: bytes, scale },
        BytesKind::BigDecimal => match decimal::split_big(bytes) {
            Some((unscaled, scale)) => FieldValue::Decimal { unscaled, scale },
            None => FieldValue::Bytes(bytes),
        },
        BytesKind::Uuid => bytes.try_into().map_or(FieldValue::Bytes(bytes), FieldValue::Uuid),
    }
}

#[cfg(test)]
mod tests;
