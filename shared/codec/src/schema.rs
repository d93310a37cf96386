//! A registered schema, ready to read with.

use std::sync::atomic::{AtomicU64, Ordering};

use apache_avro::Schema;
use apache_avro::rabin::Rabin;
use serde::Deserialize;
use serde_json::Value;

use crate::cursor::Cursor;
use crate::encode::{self, EncodeError};
use crate::error::{DecodeError, Limits, SchemaError};
use crate::field::{FieldPaths, FieldValue};
use crate::json;
use crate::locate;
use crate::outline::{self, OutlinedField};
use crate::plan::{Node, Plan};
use crate::select::Selection;
use crate::typed::ValueReader;
use crate::walk::{self, Picker};

/// A schema compiled for reading. Immutable; share it in an `Arc`.
#[derive(Debug)]
pub struct CompiledSchema {
    id: u32,
    raw: String,
    references: Vec<String>,
    fingerprint: u64,
    /// Tells this plan from every other one of the process, so that a selection can't be used with another.
    identity: u64,
    plan: Plan,
}

impl CompiledSchema {
    /// Compiles a schema's text. `references` are the texts of the schemas whose types it names, each once.
    pub fn parse(id: u32, raw: &str, references: &[String]) -> Result<Self, SchemaError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (plan, fingerprint) = contain_panics(|| {
            let (schema, references) = parse_texts(raw, references)?;
            let fingerprint = schema.fingerprint::<Rabin>().bytes;
            Ok((Plan::compile(&schema, &references)?, fingerprint))
        })?;
        let fingerprint = fingerprint.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        let (raw, references) = (raw.to_owned(), references.to_vec());
        Ok(Self { id, raw, references, fingerprint, identity, plan })
    }

    /// The registry's id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The full name of the event's type; of a schema that is no record, the type's name.
    pub fn full_name(&self) -> &str {
        self.plan.type_name(self.plan.root())
    }

    /// The CRC-64-AVRO of the schema's canonical form: equal for schemas that read the same bytes the same way.
    /// Types that come from references count by their names only.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The schema's text as registered.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The texts of the schemas whose types it names.
    pub(crate) fn references(&self) -> &[String] {
        &self.references
    }

    /// The event's top-level fields, in the writer's order; none if the schema is no record.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        let fields = match self.plan.node(self.plan.root()) {
            Node::Record { record, .. } => self.plan.record(record).fields.as_slice(),
            _ => &[],
        };
        fields.iter().map(|field| field.name.as_str())
    }

    /// Every field that a path can name, for people to choose from; none if the schema is no record.
    pub fn outline(&self) -> Vec<OutlinedField> {
        outline::outline(&self.plan)
    }

    /// Compiles field paths for this schema. Do it once per schema, not per record.
    pub fn select(&self, paths: &FieldPaths) -> Selection {
        Selection::compile(&self.plan, self.identity, paths)
    }

    /// Checks a datum from its first byte to its last and puts the selected fields into `out`, in the order of
    /// the paths. On an error `out` holds nothing of use.
    pub fn check<'a>(
        &'a self,
        body: &'a [u8],
        selection: &Selection,
        limits: &Limits,
        out: &mut Vec<FieldValue<'a>>,
    ) -> Result<(), DecodeError> {
        if selection.schema != self.identity {
            return Err(DecodeError::ForeignSelection);
        }
        out.clear();
        out.resize(selection.slots, FieldValue::Missing);
        let mut cursor = Cursor::new(body, limits)?;
        if selection.slots == 0 {
            walk::skip(&self.plan, &mut cursor, self.plan.root())?;
        } else {
            let mut picker = Picker { plan: &self.plan, cursor: &mut cursor, out };
            picker.pick(self.plan.root(), &selection.root)?;
        }
        cursor.finish()
    }

    /// The dotted path of the field at which [`CompiledSchema::check`] fails, for messages to people; empty if
    /// the event as a whole is at fault. Costs a second walk.
    pub fn locate(&self, body: &[u8], limits: &Limits) -> String {
        match Cursor::new(body, limits) {
            Ok(mut cursor) => locate::locate(&self.plan, &mut cursor),
            Err(_) => String::new(),
        }
    }

    /// Shows a datum as plain JSON: unions untagged, bytes in base64, decimals, UUIDs, dates and times as text.
    pub fn to_json(&self, body: &[u8], limits: &Limits) -> Result<Value, DecodeError> {
        let mut cursor = Cursor::new(body, limits)?;
        let value = json::read(&self.plan, &mut cursor, self.plan.root())?;
        cursor.finish().map(|()| value)
    }

    /// Reads a datum into a Rust type, by its fields' names. Fields that the type doesn't have are checked and
    /// left out; fields that the writer doesn't have are serde's to default.
    pub fn decode<'a, T: Deserialize<'a>>(
        &'a self,
        body: &'a [u8],
        limits: &Limits,
    ) -> Result<T, DecodeError> {
        let mut cursor = Cursor::new(body, limits)?;
        let value = T::deserialize(ValueReader::new(&self.plan, &mut cursor, self.plan.root()))?;
        cursor.finish().map(|()| value)
    }

    /// Writes a datum from plain JSON as [`CompiledSchema::to_json`] shows it. Missing fields take the schema's
    /// default; a union takes the branch that fits, or the one named as `{"branch": value}`.
    pub fn encode_json(&self, value: &Value) -> Result<Vec<u8>, EncodeError> {
        encode::encode(&self.plan, value)
    }
}

/// An event's bytes together with the schema that they were written with.
#[derive(Debug, Clone, Copy)]
pub struct Decoded<'a> {
    /// The writer's schema.
    pub schema: &'a CompiledSchema,
    /// The datum, without its frame.
    pub body: &'a [u8],
    /// The bounds to read within.
    pub limits: Limits,
}

impl<'a> Decoded<'a> {
    /// Reads the event into a Rust type.
    pub fn decode<T: Deserialize<'a>>(&self) -> Result<T, DecodeError> {
        self.schema.decode(self.body, &self.limits)
    }

    /// Shows the event as JSON.
    pub fn to_json(&self) -> Result<Value, DecodeError> {
        self.schema.to_json(self.body, &self.limits)
    }
}

pub(crate) fn parse_texts(raw: &str, references: &[String]) -> Result<(Schema, Vec<Schema>), SchemaError> {
    Schema::parse_str_with_list(raw, references).or_else(|error| {
        // Writers register defaults that this parser refuses (a decimal's, a logical type's) but their own
        // accepts. Reading doesn't need defaults, so such a schema is used without them.
        let bare: Option<Vec<String>> = references.iter().map(|text| without_defaults(text)).collect();
        let (Some(raw), Some(references)) = (without_defaults(raw), bare) else {
            return Err(SchemaError::Unparsable(error.to_string()));
        };
        Schema::parse_str_with_list(&raw, &references).map_err(|_| SchemaError::Unparsable(error.to_string()))
    })
}

fn without_defaults(text: &str) -> Option<String> {
    fn strip(schema: &mut Value) {
        match schema {
            Value::Array(branches) => branches.iter_mut().for_each(strip),
            Value::Object(object) => {
                for key in ["type", "items", "values"] {
                    object.get_mut(key).map(strip);
                }
                for field in object.get_mut("fields").and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Value::Object(field) = field {
                        field.remove("default");
                    }
                    strip(field);
                }
            }
            _ => {}
        }
    }
    let mut schema = serde_json::from_str(text).ok()?;
    strip(&mut schema);
    Some(schema.to_string())
}

/// The parser's own checks of odd schemas panic here and there; a schema from outside must not end the process.
pub(crate) fn contain_panics<T>(parse: impl FnOnce() -> Result<T, SchemaError>) -> Result<T, SchemaError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(parse))
        .unwrap_or_else(|_| Err(SchemaError::Unparsable("the parser panicked on it".to_owned())))
}

#[cfg(test)]
mod tests;
