//! A datum as serde sees it: read into a Rust type without anything in between.
//!
//! The type leads where it can say what it wants: a timestamp is a number to an integer type and RFC 3339 to a
//! string type, a decimal is its digits or its bytes, a union is an `Option` or an enum with a variant per branch.

use serde::de::value::{BorrowedStrDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Visitor};

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::json::{bytes_text, int_text, long_text};
use crate::plan::{BytesKind, Node, NodeId, Plan};
use crate::walk::skip;

mod access;

use access::{Branch, Entries, Fields, Items};

/// One value of a datum, not read yet.
pub(crate) struct ValueReader<'a, 'c> {
    plan: &'a Plan,
    cursor: &'c mut Cursor<'a>,
    node: NodeId,
}

impl<'a, 'c> ValueReader<'a, 'c> {
    pub(crate) fn new(plan: &'a Plan, cursor: &'c mut Cursor<'a>, node: NodeId) -> Self {
        Self { plan, cursor, node }
    }

    /// Reads a union's branch number, if this is a union; what is left is a value of the branch.
    fn resolve(mut self) -> Result<(Self, Node), DecodeError> {
        let mut node = self.plan.node(self.node);
        if let Node::Union(branches) = node {
            let branches = self.plan.children(branches);
            self.node = branches[self.cursor.branch(branches.len())?];
            node = self.plan.node(self.node);
        }
        Ok((self, node))
    }

    /// The bytes of a bytes or fixed value.
    fn raw_bytes(&mut self, node: Node) -> Result<Option<(&'a [u8], BytesKind)>, DecodeError> {
        Ok(match node {
            Node::Bytes(kind) => Some((self.cursor.bytes()?, kind)),
            Node::Fixed { size, kind, .. } => Some((self.cursor.take(size)?, kind)),
            _ => None,
        })
    }

    fn visit<V: Visitor<'a>>(mut self, node: Node, visitor: V) -> Result<V::Value, DecodeError> {
        match node {
            Node::Null => visitor.visit_unit(),
            Node::Boolean => visitor.visit_bool(self.cursor.boolean()?),
            Node::Int(_) => visitor.visit_i32(self.cursor.int()?),
            Node::Long(_) => visitor.visit_i64(self.cursor.long()?),
            Node::Float => visitor.visit_f32(self.cursor.float()?),
            Node::Double => visitor.visit_f64(self.cursor.double()?),
            Node::String(_) => visitor.visit_borrowed_str(self.cursor.string()?),
            Node::Enum(_) => visitor.visit_borrowed_str(self.symbol(node)?.unwrap_or_default()),
            Node::Array(item) => self.items(item, visitor),
            Node::Map(value) => self.entries(value, visitor),
            Node::Record { .. } => self.fields(node, &[], visitor),
            Node::Union(_) => Err(DecodeError::mismatch("a union stands directly in a union")),
            Node::Bytes(_) | Node::Fixed { .. } => match self.raw_bytes(node)? {
                Some((bytes, kind)) => match bytes_text(kind, bytes) {
                    Some(text) => visitor.visit_string(text),
                    None => visitor.visit_borrowed_bytes(bytes),
                },
                None => visitor.visit_unit(),
            },
        }
    }

    fn symbol(&mut self, node: Node) -> Result<Option<&'a str>, DecodeError> {
        let Node::Enum(index) = node else { return Ok(None) };
        let symbols = self.plan.symbols(index);
        Ok(Some(&symbols[self.cursor.symbol(symbols.len())?]))
    }

    fn items<V: Visitor<'a>>(self, item: NodeId, visitor: V) -> Result<V::Value, DecodeError> {
        self.cursor.enter()?;
        let blocks = self.cursor.blocks()?;
        let mut items = Items { plan: self.plan, cursor: self.cursor, item, blocks, index: 0 };
        let value = visitor.visit_seq(&mut items)?;
        items.finish()?;
        self.cursor.leave();
        Ok(value)
    }

    fn entries<V: Visitor<'a>>(self, value: NodeId, visitor: V) -> Result<V::Value, DecodeError> {
        self.cursor.enter()?;
        let blocks = self.cursor.blocks()?;
        let mut entries = Entries { plan: self.plan, cursor: self.cursor, value, blocks, key: "" };
        let value = visitor.visit_map(&mut entries)?;
        entries.finish()?;
        self.cursor.leave();
        Ok(value)
    }

    /// Reads a record; `known` are the names of the Rust type's fields, if it has told them.
    fn fields<V: Visitor<'a>>(
        self,
        node: Node,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Node::Record { record, fields } = node else { return self.visit(node, visitor) };
        let (plans, nodes) = (self.plan.record(record).fields.as_slice(), self.plan.children(fields));
        self.cursor.enter()?;
        self.cursor.charge(nodes.len() as u64)?;
        let mut fields = Fields { plan: self.plan, cursor: self.cursor, plans, nodes, known, next: 0 };
        let value = visitor.visit_map(&mut fields)?;
        fields.finish()?;
        self.cursor.leave();
        Ok(value)
    }

    fn bytes_as_items<V: Visitor<'a>>(self, bytes: &'a [u8], visitor: V) -> Result<V::Value, DecodeError> {
        let mut items = SeqDeserializer::<_, DecodeError>::new(bytes.iter().copied());
        let value = visitor.visit_seq(&mut items)?;
        items.end().map(|()| value)
    }
}

impl<'a> Deserializer<'a> for ValueReader<'a, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let (reader, node) = self.resolve()?;
        reader.visit(node, visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.resolve()? {
            (_, Node::Null) => visitor.visit_none(),
            (reader, _) => visitor.visit_some(reader),
        }
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let (reader, node) = self.resolve()?;
        match node {
            Node::Int(kind) => {
                let value = reader.cursor.int()?;
                match int_text(kind, value) {
                    Some(text) => visitor.visit_string(text),
                    None => visitor.visit_i32(value),
                }
            }
            Node::Long(kind) => {
                let value = reader.cursor.long()?;
                match long_text(kind, value) {
                    Some(text) => visitor.visit_string(text),
                    None => visitor.visit_i64(value),
                }
            }
            _ => reader.visit(node, visitor),
        }
    }

    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_f64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let (mut reader, node) = self.resolve()?;
        match reader.raw_bytes(node)? {
            None => reader.visit(node, visitor),
            Some((bytes, kind)) => match bytes_text(kind, bytes).and_then(|text| text.parse().ok()) {
                Some(number) => visitor.visit_f64(number),
                None => visitor.visit_borrowed_bytes(bytes),
            },
        }
    }

    fn deserialize_f32<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_bytes<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let (mut reader, node) = self.resolve()?;
        match reader.raw_bytes(node)? {
            Some((bytes, _)) => visitor.visit_borrowed_bytes(bytes),
            None => reader.visit(node, visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let (mut reader, node) = self.resolve()?;
        match reader.raw_bytes(node)? {
            Some((bytes, _)) => reader.bytes_as_items(bytes, visitor),
            None => reader.visit(node, visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let (reader, node) = self.resolve()?;
        reader.fields(node, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let (mut reader, node) = self.resolve()?;
        let name = match node {
            Node::String(_) => Some(reader.cursor.string()?),
            _ => reader.symbol(node)?,
        };
        match name {
            Some(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
            None => visitor.visit_enum(Branch { reader, variants }),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        skip(self.plan, self.cursor, self.node)?;
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char unit unit_struct map identifier
    }
}

#[cfg(test)]
mod tests;
