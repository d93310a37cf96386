//! A record as a person reads it: the event as JSON, or why it can't be decoded.

use serde::Serialize;
use serde_json::Value;
use tidegate_bootstrap::counted;
use tidegate_codec::{SchemaRegistry, wire};
use tidegate_pipeline::Record;
use tidegate_service::wiring;

use crate::error::OperatorError;
use crate::inbox::Inbox;

/// What a record's value says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// There is no value: a tombstone, or a stub.
    Null,
    /// It decodes.
    Decoded {
        /// The id of its schema.
        schema_id: u32,
        /// The full name of its type.
        name: String,
        /// The event.
        json: Value,
    },
    /// It does not, or its schema is not to be had now.
    Undecodable {
        /// Why.
        reason: String,
    },
}

impl Inbox {
    /// The registry that schemas are fetched from.
    pub(crate) fn registry(&self) -> Result<&SchemaRegistry, OperatorError> {
        self.shared.registry.as_ref().ok_or_else(|| {
            OperatorError::Request(
                "registry.url is not set: events can't be read without their schemas".to_owned(),
            )
        })
    }

    /// Decodes a record's value with the schema that it names. Must be called on a runtime.
    pub async fn event(&self, record: &Record) -> Event {
        let Some(value) = record.value() else { return Event::Null };
        let failed = |error: &dyn std::fmt::Display| Event::Undecodable { reason: error.to_string() };
        if let Err(error) =
            wire::refuse_guid_header(|name| record.headers().any(|(n, _)| n == name.as_bytes()))
        {
            return failed(&error);
        }
        let framed = match wire::parse(value) {
            Ok(framed) => framed,
            Err(error) => return failed(&error),
        };
        let registry = match self.registry() {
            Ok(registry) => registry,
            Err(error) => return failed(&error),
        };
        match registry.fetch(framed.schema_id).await {
            Ok(schema) => match schema.to_json(framed.body, &wiring::limits(&self.shared.config)) {
                Ok(json) => {
                    Event::Decoded { schema_id: schema.id(), name: schema.full_name().to_owned(), json }
                }
                Err(error) => failed(&error),
            },
            Err(error) => failed(&error),
        }
    }
}

/// Bytes as hex, sixteen a line, each line with its place and with what of it is text; at most `most` bytes.
pub fn hex(bytes: &[u8], most: usize) -> String {
    let mut out = String::new();
    for (number, line) in bytes[..bytes.len().min(most)].chunks(16).enumerate() {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line
            .iter()
            .map(|&byte| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' })
            .collect();
        out.push_str(&format!("{:08x}  {:<47}  {text}\n", number * 16, digits.join(" ")));
    }
    if bytes.len() > most {
        out.push_str(&format!("... {} more\n", counted((bytes.len() - most) as u64, "byte", "bytes")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_shows_place_digits_and_text_and_how_much_is_left_out() {
        assert_eq!(
            hex(b"\x00tide\xffgate 0123456789", 20),
            "00000000  00 74 69 64 65 ff 67 61 74 65 20 30 31 32 33 34  .tide.gate 01234\n\
             00000010  35 36 37 38                                      5678\n... 1 byte more\n"
        );
        assert_eq!(hex(b"", 10), "");
    }
}
