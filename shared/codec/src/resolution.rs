//! Avro's schema resolution: reading what one schema has written as a reader with another one does.

use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;

use crate::error::SchemaError;
use crate::schema::{CompiledSchema, contain_panics, parse_texts};

/// A writer's schema and a reader's, each with the schemas whose types it names.
#[derive(Debug)]
pub struct Resolution {
    writer: (Schema, Vec<Schema>),
    reader: (Schema, Vec<Schema>),
}

/// Why a reader can't make anything of a datum, in words for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unresolvable(pub String);

impl Resolution {
    /// Reads what `writer` has written as `reader` has it.
    pub fn between(writer: &CompiledSchema, reader: &CompiledSchema) -> Result<Self, SchemaError> {
        contain_panics(|| {
            let parse = |schema: &CompiledSchema| parse_texts(schema.raw(), schema.references());
            let (mut writer, reader) = (parse(writer)?, parse(reader)?);
            rename(&mut writer.0, &reader.0);
            Ok(Self { writer, reader })
        })
    }

    /// Whether the reader can read this datum, which must be a whole one of the writer's schema: see [`CompiledSchema::check`].
    pub fn check(&self, body: &[u8]) -> Result<(), Unresolvable> {
        let resolved = contain_panics(|| {
            let all = |(schema, references): &'_ (Schema, Vec<Schema>)| -> Vec<Schema> {
                references.iter().chain([schema]).cloned().collect()
            };
            let (writers, readers) = (all(&self.writer), all(&self.reader));
            let read = || {
                GenericDatumReader::builder(&self.writer.0)
                    .writer_schemata(writers.iter().collect())?
                    .reader_schema(&self.reader.0)
                    .reader_schemata(readers.iter().collect())?
                    .build()?
                    .read_value(&mut &*body)
            };
            read().map(drop).map_err(|error| SchemaError::Unparsable(error.to_string()))
        });
        resolved.map_err(|error| match error {
            SchemaError::Unparsable(reason) => Unresolvable(reason),
            other => Unresolvable(other.to_string()),
        })
    }
}

/// A reader's field may say by which names it was called before. The library does not look at that, so the writer's fields are called
/// as the reader's are; those of the event itself, not of records within it.
fn rename(writer: &mut Schema, reader: &Schema) {
    let (Schema::Record(writer), Schema::Record(reader)) = (writer, reader) else { return };
    for field in &reader.fields {
        if writer.fields.iter().any(|written| written.name == field.name) {
            continue;
        }
        let former = writer.fields.iter_mut().find(|written| field.aliases.contains(&written.name));
        if let Some(former) = former {
            former.name.clone_from(&field.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(id: u32, fields: &str) -> CompiledSchema {
        let text = format!(r#"{{"type": "record", "name": "Event", "fields": [{fields}]}}"#);
        CompiledSchema::parse(id, &text, &[]).unwrap()
    }

    fn read(writer: &str, event: &serde_json::Value, reader: &str) -> Result<(), String> {
        let (writer, reader) = (schema(1, writer), schema(2, reader));
        let datum = writer.encode_json(event).unwrap();
        Resolution::between(&writer, &reader).unwrap().check(&datum).map_err(|error| error.0)
    }

    const ID: &str = r#"{"name": "id", "type": "string"}"#;

    #[test]
    fn fields_come_with_a_default_and_go_and_are_called_anew_and_grow() {
        let event = json!({"id": "a", "n": 1});
        let writer = format!(r#"{ID}, {{"name": "n", "type": "int"}}"#);
        for reader in [
            ID.to_owned(),
            format!(r#"{ID}, {{"name": "more", "type": "int", "default": 0}}"#),
            format!(r#"{ID}, {{"name": "n", "type": ["null", "long"], "default": null}}"#),
            format!(r#"{ID}, {{"name": "many", "aliases": ["n"], "type": "double"}}"#),
        ] {
            assert_eq!(read(&writer, &event, &reader), Ok(()), "{reader}");
        }
    }

    #[test]
    fn a_field_without_a_default_another_type_and_a_symbol_that_is_gone_are_told() {
        let writer = format!(
            r#"{ID}, {{"name": "kind", "type": {{"type": "enum", "name": "Kind", "symbols": ["A", "B"]}}}}"#
        );
        let event = |kind: &str| json!({"id": "a", "kind": kind});
        let missing = read(&writer, &event("A"), &format!(r#"{ID}, {{"name": "more", "type": "int"}}"#));
        assert!(missing.is_err_and(|reason| reason.contains("more")));
        let other = read(&writer, &event("A"), r#"{"name": "id", "type": "int"}"#);
        assert!(other.is_err());
        let reader = format!(
            r#"{ID}, {{"name": "kind", "type": {{"type": "enum", "name": "Kind", "symbols": ["A"]}}}}"#
        );
        assert_eq!(read(&writer, &event("A"), &reader), Ok(()), "this one can be read");
        assert!(read(&writer, &event("B"), &reader).is_err(), "this one can't");
    }
}
