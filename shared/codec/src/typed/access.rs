//! What a visitor steps through: the items of an array, the entries of a map, the fields of a record, the branch
//! of a union. Each reads to its end whatever the visitor does, so that the bytes behind it are found.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::ValueReader;
use crate::cursor::{Blocks, Cursor};
use crate::error::DecodeError;
use crate::plan::{FieldPlan, NodeId, Plan};
use crate::walk::skip;

pub(super) struct Items<'a, 'c> {
    pub(super) plan: &'a Plan,
    pub(super) cursor: &'c mut Cursor<'a>,
    pub(super) item: NodeId,
    pub(super) blocks: Blocks,
    pub(super) index: usize,
}

impl Items<'_, '_> {
    /// A tuple stops after its last place; what the array has beyond would be lost silently.
    pub(super) fn finish(&mut self) -> Result<(), DecodeError> {
        match self.cursor.next_item(&mut self.blocks)? {
            true => Err(DecodeError::mismatch(format_args!("the array has more than {} items", self.index))),
            false => Ok(()),
        }
    }
}

impl<'a> SeqAccess<'a> for &mut Items<'a, '_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        if !self.cursor.next_item(&mut self.blocks)? {
            return Ok(None);
        }
        let item = seed.deserialize(ValueReader::new(self.plan, self.cursor, self.item));
        let item = item.map_err(|error| error.inside(&format!("[{}]", self.index)))?;
        self.index += 1;
        Ok(Some(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.blocks.left())
    }
}

pub(super) struct Entries<'a, 'c> {
    pub(super) plan: &'a Plan,
    pub(super) cursor: &'c mut Cursor<'a>,
    pub(super) value: NodeId,
    pub(super) blocks: Blocks,
    pub(super) key: &'a str,
}

impl Entries<'_, '_> {
    pub(super) fn finish(&mut self) -> Result<(), DecodeError> {
        while self.cursor.next_item(&mut self.blocks)? {
            self.cursor.string()?;
            skip(self.plan, self.cursor, self.value)?;
        }
        Ok(())
    }
}

impl<'a> MapAccess<'a> for &mut Entries<'a, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        if !self.cursor.next_item(&mut self.blocks)? {
            return Ok(None);
        }
        self.key = self.cursor.string()?;
        seed.deserialize(BorrowedStrDeserializer::new(self.key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        seed.deserialize(ValueReader::new(self.plan, self.cursor, self.value))
            .map_err(|error| error.inside(self.key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.blocks.left())
    }
}

pub(super) struct Fields<'a, 'c> {
    pub(super) plan: &'a Plan,
    pub(super) cursor: &'c mut Cursor<'a>,
    pub(super) plans: &'a [FieldPlan],
    pub(super) nodes: &'a [NodeId],
    pub(super) known: &'static [&'static str],
    pub(super) next: usize,
}

impl<'a> Fields<'a, '_> {
    pub(super) fn finish(&mut self) -> Result<(), DecodeError> {
        for node in self.nodes.get(self.next..).unwrap_or_default() {
            skip(self.plan, self.cursor, *node)?;
        }
        Ok(())
    }

    /// A field goes by its name, or by an alias if that is what the Rust type knows it as.
    fn name(&self, field: &'a FieldPlan) -> &'a str {
        let knows = |name: &str| self.known.contains(&name);
        match field.aliases.iter().find(|alias| knows(alias)) {
            Some(alias) if !knows(&field.name) => alias,
            _ => &field.name,
        }
    }
}

impl<'a> MapAccess<'a> for &mut Fields<'a, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        match self.plans.get(self.next) {
            Some(field) => seed.deserialize(BorrowedStrDeserializer::new(self.name(field))).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let (Some(field), Some(node)) = (self.plans.get(self.next), self.nodes.get(self.next)) else {
            return Err(DecodeError::mismatch("a value was asked for without a key"));
        };
        self.next += 1;
        seed.deserialize(ValueReader::new(self.plan, self.cursor, *node))
            .map_err(|error| error.inside(&field.name))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.plans.len().saturating_sub(self.next))
    }
}

/// A value whose type's name picks the variant: the branch of a union, for a Rust enum with a variant per branch.
pub(super) struct Branch<'a, 'c> {
    pub(super) reader: ValueReader<'a, 'c>,
    pub(super) variants: &'static [&'static str],
}

impl<'a> EnumAccess<'a> for Branch<'a, '_> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), DecodeError> {
        let full_name = self.reader.plan.type_name(self.reader.node);
        let name = match full_name.rsplit_once('.') {
            Some((_, short)) if !self.variants.contains(&full_name) => short,
            _ => full_name,
        };
        let variant = seed.deserialize(BorrowedStrDeserializer::<DecodeError>::new(name))?;
        Ok((variant, self))
    }
}

impl<'a> VariantAccess<'a> for Branch<'a, '_> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        skip(self.reader.plan, self.reader.cursor, self.reader.node)
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, DecodeError> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'a>>(self, length: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.reader.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.reader.deserialize_struct("", fields, visitor)
    }
}
