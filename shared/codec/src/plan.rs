//! A schema as a flat arena: nodes refer to each other by index, so a recursive type is a cycle of numbers and
//! a walk follows no pointers and looks up no names.

use std::collections::HashMap;

use apache_avro::Schema;
use apache_avro::schema::{
    Aliases, DecimalSchema, EnumSchema, FixedSchema, InnerDecimalSchema, Name, RecordSchema, UuidSchema,
};
use serde_json::Value;

use crate::error::SchemaError;

pub(crate) type NodeId = u32;

/// One type of the schema. Logical types are a property of the type that carries them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Node {
    Null,
    Boolean,
    Int(IntKind),
    Long(LongKind),
    Float,
    Double,
    Bytes(BytesKind),
    String(StringKind),
    Fixed { size: usize, kind: BytesKind, name: u32 },
    Enum(u32),
    Array(NodeId),
    Map(NodeId),
    Union(Span),
    Record { record: u32, fields: Span },
}

/// A run of the arena's children: a record's fields or a union's branches, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

/// What one step of a time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// A thousandth of a second.
    Millis,
    /// A millionth.
    Micros,
    /// A milliardth.
    Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum IntKind {
    Plain,
    Date,
    TimeMillis,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LongKind {
    Plain,
    TimeMicros,
    Timestamp(TimeUnit),
    LocalTimestamp(TimeUnit),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BytesKind {
    Plain,
    Decimal { precision: u32, scale: u32 },
    BigDecimal,
    Uuid,
    Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StringKind {
    Plain,
    Uuid,
}

#[derive(Debug)]
pub(crate) struct RecordPlan {
    pub(crate) full_name: String,
    pub(crate) fields: Vec<FieldPlan>,
}

#[derive(Debug)]
pub(crate) struct FieldPlan {
    pub(crate) name: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) default: Option<Value>,
}

#[derive(Debug)]
pub(crate) struct EnumPlan {
    pub(crate) full_name: String,
    pub(crate) symbols: Vec<String>,
}

/// The arena. Every index in it was made by the compiler below, so indexing doesn't panic.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    nodes: Vec<Node>,
    children: Vec<NodeId>,
    records: Vec<RecordPlan>,
    enums: Vec<EnumPlan>,
    fixed_names: Vec<String>,
    root: NodeId,
}

/// A decimal with more digits than this is shown as the bytes it is: a scale of a milliard is a few characters
/// of schema and a gigabyte of zeros.
const MAX_PRECISION: usize = 1000;

impl Plan {
    /// Compiles a schema. `references` are the schemas whose types it may name.
    pub(crate) fn compile(schema: &Schema, references: &[Schema]) -> Result<Self, SchemaError> {
        let mut compiler = Compiler::default();
        for schema in references.iter().chain([schema]) {
            compiler.collect(schema)?;
        }
        compiler.plan.root = compiler.node(schema)?;
        for (id, schema) in std::mem::take(&mut compiler.order) {
            compiler.fill(id, schema)?;
        }
        Ok(compiler.plan)
    }

    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    #[inline]
    pub(crate) fn node(&self, id: NodeId) -> Node {
        self.nodes[id as usize]
    }

    #[inline]
    pub(crate) fn children(&self, span: Span) -> &[NodeId] {
        &self.children[span.start as usize..][..span.len as usize]
    }

    pub(crate) fn record(&self, record: u32) -> &RecordPlan {
        &self.records[record as usize]
    }

    #[inline]
    pub(crate) fn symbols(&self, index: u32) -> &[String] {
        &self.enums[index as usize].symbols
    }

    /// The type's name as a union's branch: the full name of a named type, else the type's own.
    pub(crate) fn type_name(&self, id: NodeId) -> &str {
        match self.node(id) {
            Node::Null => "null",
            Node::Boolean => "boolean",
            Node::Int(_) => "int",
            Node::Long(_) => "long",
            Node::Float => "float",
            Node::Double => "double",
            Node::Bytes(_) => "bytes",
            Node::String(_) => "string",
            Node::Fixed { name, .. } => &self.fixed_names[name as usize],
            Node::Enum(index) => &self.enums[index as usize].full_name,
            Node::Array(_) => "array",
            Node::Map(_) => "map",
            Node::Union(_) => "union",
            Node::Record { record, .. } => &self.record(record).full_name,
        }
    }
}

impl RecordPlan {
    /// The field's position, by its name or else by an alias that its writer declared.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.fields
            .iter()
            .position(|field| field.name == name)
            .or_else(|| self.fields.iter().position(|field| field.aliases.iter().any(|alias| alias == name)))
    }
}

/// Named types get their index first and their content later: that is what makes recursion a plain number, and
/// it keeps a long chain of references from becoming deep recursion here.
#[derive(Default)]
struct Compiler<'s> {
    plan: Plan,
    defined: HashMap<String, (NodeId, &'s Schema)>,
    aliases: HashMap<String, NodeId>,
    order: Vec<(NodeId, &'s Schema)>,
}

impl<'s> Compiler<'s> {
    fn collect(&mut self, schema: &'s Schema) -> Result<(), SchemaError> {
        match schema {
            Schema::Array(array) => self.collect(&array.items),
            Schema::Map(map) => self.collect(&map.types),
            Schema::Union(union) => union.variants().iter().try_for_each(|branch| self.collect(branch)),
            Schema::Record(RecordSchema { name, aliases, fields, .. }) => {
                self.define(name, aliases, schema)?;
                fields.iter().try_for_each(|field| self.collect(&field.schema))
            }
            Schema::Enum(EnumSchema { name, aliases, .. }) => self.define(name, aliases, schema),
            _ => match fixed_of(schema) {
                Some(fixed) => self.define(&fixed.name, &fixed.aliases, schema),
                None => Ok(()),
            },
        }
    }

    fn define(&mut self, name: &Name, aliases: &Aliases, schema: &'s Schema) -> Result<(), SchemaError> {
        let full_name = name.fullname(None);
        if let Some((_, earlier)) = self.defined.get(&full_name) {
            // The parser copies some definitions to where they are named; a copy is no second definition.
            return if *earlier == schema { Ok(()) } else { Err(SchemaError::DefinedTwice(full_name)) };
        }
        let id = self.push(Node::Null);
        for alias in aliases.iter().flatten() {
            self.aliases.entry(alias.fullname(name.namespace())).or_insert(id);
        }
        self.defined.insert(full_name, (id, schema));
        self.order.push((id, schema));
        Ok(())
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.plan.nodes.push(node);
        (self.plan.nodes.len() - 1) as NodeId
    }

    fn lookup(&self, name: &Name) -> Result<NodeId, SchemaError> {
        let full_name = name.fullname(None);
        match self.defined.get(&full_name) {
            Some((id, _)) => Ok(*id),
            None => self.aliases.get(&full_name).copied().ok_or(SchemaError::UndefinedType(full_name)),
        }
    }

    /// The node of a schema as it is used somewhere.
    fn node(&mut self, schema: &'s Schema) -> Result<NodeId, SchemaError> {
        if let Some(name) = schema.name() {
            return self.lookup(name);
        }
        let node = match schema {
            Schema::Array(array) => Node::Array(self.node(&array.items)?),
            Schema::Map(map) => Node::Map(self.node(&map.types)?),
            Schema::Union(union) => {
                let branches: Vec<_> =
                    union.variants().iter().map(|branch| self.node(branch)).collect::<Result<_, _>>()?;
                Node::Union(self.span(&branches))
            }
            _ => primitive(schema),
        };
        Ok(self.push(node))
    }

    fn span(&mut self, children: &[NodeId]) -> Span {
        let start = self.plan.children.len() as u32;
        self.plan.children.extend_from_slice(children);
        Span { start, len: children.len() as u32 }
    }

    /// Gives a named type its content.
    fn fill(&mut self, id: NodeId, schema: &'s Schema) -> Result<(), SchemaError> {
        let node = match schema {
            Schema::Record(record) => self.record(record)?,
            Schema::Enum(declared) => {
                self.plan.enums.push(EnumPlan {
                    full_name: declared.name.fullname(None),
                    symbols: declared.symbols.clone(),
                });
                Node::Enum((self.plan.enums.len() - 1) as u32)
            }
            _ => match fixed_of(schema) {
                Some(fixed) => {
                    self.plan.fixed_names.push(fixed.name.fullname(None));
                    let name = (self.plan.fixed_names.len() - 1) as u32;
                    Node::Fixed { size: fixed.size, kind: bytes_kind(schema), name }
                }
                None => primitive(schema),
            },
        };
        self.plan.nodes[id as usize] = node;
        Ok(())
    }

    fn record(&mut self, schema: &'s RecordSchema) -> Result<Node, SchemaError> {
        let children: Vec<_> =
            schema.fields.iter().map(|field| self.node(&field.schema)).collect::<Result<_, _>>()?;
        let fields = schema
            .fields
            .iter()
            .map(|field| FieldPlan {
                name: field.name.clone(),
                aliases: field.aliases.clone(),
                default: field.default.clone(),
            })
            .collect();
        self.plan.records.push(RecordPlan { full_name: schema.name.fullname(None), fields });
        let record = (self.plan.records.len() - 1) as u32;
        Ok(Node::Record { record, fields: self.span(&children) })
    }
}

/// The fixed type underneath, if the schema is one.
fn fixed_of(schema: &Schema) -> Option<&FixedSchema> {
    match schema {
        Schema::Fixed(fixed)
        | Schema::Duration(fixed)
        | Schema::Uuid(UuidSchema::Fixed(fixed))
        | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Fixed(fixed), .. }) => Some(fixed),
        _ => None,
    }
}

fn bytes_kind(schema: &Schema) -> BytesKind {
    match schema {
        Schema::Decimal(decimal) if decimal.precision <= MAX_PRECISION => {
            // The parser sees to scale <= precision.
            BytesKind::Decimal { precision: decimal.precision as u32, scale: decimal.scale as u32 }
        }
        Schema::BigDecimal => BytesKind::BigDecimal,
        Schema::Uuid(_) => BytesKind::Uuid,
        Schema::Duration(fixed) if fixed.size == 12 => BytesKind::Duration,
        _ => BytesKind::Plain,
    }
}

/// The node of a schema without a name and without children.
fn primitive(schema: &Schema) -> Node {
    match schema {
        Schema::Boolean => Node::Boolean,
        Schema::Int => Node::Int(IntKind::Plain),
        Schema::Date => Node::Int(IntKind::Date),
        Schema::TimeMillis => Node::Int(IntKind::TimeMillis),
        Schema::Long => Node::Long(LongKind::Plain),
        Schema::TimeMicros => Node::Long(LongKind::TimeMicros),
        Schema::TimestampMillis => Node::Long(LongKind::Timestamp(TimeUnit::Millis)),
        Schema::TimestampMicros => Node::Long(LongKind::Timestamp(TimeUnit::Micros)),
        Schema::TimestampNanos => Node::Long(LongKind::Timestamp(TimeUnit::Nanos)),
        Schema::LocalTimestampMillis => Node::Long(LongKind::LocalTimestamp(TimeUnit::Millis)),
        Schema::LocalTimestampMicros => Node::Long(LongKind::LocalTimestamp(TimeUnit::Micros)),
        Schema::LocalTimestampNanos => Node::Long(LongKind::LocalTimestamp(TimeUnit::Nanos)),
        Schema::Float => Node::Float,
        Schema::Double => Node::Double,
        Schema::String => Node::String(StringKind::Plain),
        Schema::Uuid(UuidSchema::String) => Node::String(StringKind::Uuid),
        Schema::Bytes | Schema::BigDecimal | Schema::Decimal(_) | Schema::Uuid(UuidSchema::Bytes) => {
            Node::Bytes(bytes_kind(schema))
        }
        // Types with a name or children are compiled elsewhere and don't come here.
        _ => Node::Null,
    }
}

#[cfg(test)]
mod tests;
