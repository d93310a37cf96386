//! Whether a reader's schema reads what a writer's schema has written: what registries check before they take a new version.

use apache_avro::Schema;
use apache_avro::schema_compatibility::{Compatibility, SchemaCompatibility};

use crate::error::SchemaError;
use crate::schema::contain_panics;

/// Why a schema does not read what another has written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// One of the two is no schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Some or all data of the writer can't be read.
    #[error("{0}")]
    Unreadable(String),
}

/// Checks that a reader with the schema `reader` reads *all* that was written with the schema `writer`.
pub fn check(reader: &str, writer: &str) -> Result<(), Incompatible> {
    let (reader, writer) = (parse(reader)?, parse(writer)?);
    let compared = contain_panics(|| Ok(SchemaCompatibility::can_read(&writer, &reader)))?;
    match compared {
        Ok(Compatibility::Full) => Ok(()),
        Ok(Compatibility::Partial) => Err(Incompatible::Unreadable(
            "a symbol of an enum or a branch of a union is missing in the reader's schema".to_owned(),
        )),
        Err(error) => Err(Incompatible::Unreadable(error.to_string())),
    }
}

fn parse(text: &str) -> Result<Schema, SchemaError> {
    contain_panics(|| Schema::parse_str(text).map_err(|error| SchemaError::Unparsable(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(fields: &str) -> String {
        format!(r#"{{"type": "record", "name": "Event", "fields": [{fields}]}}"#)
    }

    const ID: &str = r#"{"name": "id", "type": "string"}"#;

    #[test]
    fn a_field_may_come_with_a_default_and_may_go() {
        let more = event(&format!(r#"{ID}, {{"name": "more", "type": "int", "default": 0}}"#));
        assert_eq!(check(&more, &event(ID)), Ok(()));
        assert_eq!(check(&event(ID), &more), Ok(()));
    }

    #[test]
    fn a_field_without_a_default_and_another_type_are_refused() {
        for fields in [
            r#"{"name": "id", "type": "string"}, {"name": "more", "type": "int"}"#,
            r#"{"name": "id", "type": "int"}"#,
        ] {
            let refused = check(&event(fields), &event(ID));
            assert!(matches!(refused, Err(Incompatible::Unreadable(_))), "{fields}: {refused:?}");
        }
    }

    #[test]
    fn a_type_may_be_widened_and_not_narrowed() {
        let of = |r#type: &str| event(&format!(r#"{{"name": "n", "type": {type}}}"#));
        for (narrow, wide) in [("\"int\"", "\"long\""), ("\"int\"", "[\"null\", \"int\"]")] {
            assert_eq!(check(&of(wide), &of(narrow)), Ok(()), "{narrow} to {wide}");
            assert!(check(&of(narrow), &of(wide)).is_err(), "{wide} to {narrow}");
        }
    }

    #[test]
    fn a_symbol_may_come_and_not_go() {
        let of = |symbols: &str| {
            event(&format!(
                r#"{{"name": "e", "type": {{"type": "enum", "name": "E", "symbols": [{symbols}]}}}}"#
            ))
        };
        assert_eq!(check(&of(r#""A", "B""#), &of(r#""A""#)), Ok(()));
        assert!(check(&of(r#""A""#), &of(r#""A", "B""#)).is_err());
    }

    #[test]
    fn what_is_no_schema_is_told_as_that() {
        assert!(matches!(check("{", &event(ID)), Err(Incompatible::Schema(_))));
    }
}
