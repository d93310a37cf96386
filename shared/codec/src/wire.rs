//! The frame that Schema Registry serialisers put around a datum: a zero byte, the schema's id as four
//! big-endian bytes, the Avro datum.

/// The record header that announces the newer format, which carries the schema's GUID outside the frame.
pub const VALUE_SCHEMA_ID_HEADER: &str = "__value_schema_id";

const MAGIC_ID: u8 = 0;
const MAGIC_GUID: u8 = 1;
const PREFIX: usize = 5;

/// A frame taken apart; the body borrows from the record's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed<'a> {
    /// The registry's id of the schema that the body was written with.
    pub schema_id: u32,
    /// The Avro datum.
    pub body: &'a [u8],
}

/// Why bytes are not a frame. None of these heals by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No bytes at all (a tombstone has no value and is not asked about here).
    #[error("the value is empty, where a zero byte and a schema id were expected")]
    Empty,
    /// The first byte says that another serialiser wrote this.
    #[error("the value starts with byte 0x{0:02x}, not with the zero byte of a Schema Registry serialiser")]
    WrongMagicByte(u8),
    /// The value ends inside the schema id.
    #[error("the value has {0} bytes, too few for a zero byte and a schema id")]
    TooShort(usize),
    /// The schema is named by GUID, in the frame or in a record header.
    #[error(
        "the schema is named by a guid, in the frame or in the header __value_schema_id: use ids in the payload"
    )]
    GuidFormatUnsupported,
}

/// Takes a record's value apart. Ask [`refuse_guid_header`] first if the record's headers are at hand.
pub fn parse(value: &[u8]) -> Result<Framed<'_>, WireError> {
    match value.first() {
        None => Err(WireError::Empty),
        Some(&MAGIC_GUID) => Err(WireError::GuidFormatUnsupported),
        Some(&MAGIC_ID) => match value.split_first_chunk::<PREFIX>() {
            Some(([_, id @ ..], body)) => Ok(Framed { schema_id: u32::from_be_bytes(*id), body }),
            None => Err(WireError::TooShort(value.len())),
        },
        Some(&other) => Err(WireError::WrongMagicByte(other)),
    }
}

/// Refuses a record whose headers carry the schema's GUID: its value is a bare datum without a frame, and one
/// that starts with a zero byte would be mistaken for a frame.
pub fn refuse_guid_header(has_header: impl FnOnce(&str) -> bool) -> Result<(), WireError> {
    if has_header(VALUE_SCHEMA_ID_HEADER) { Err(WireError::GuidFormatUnsupported) } else { Ok(()) }
}

/// Puts a datum into a frame.
pub fn frame(schema_id: u32, datum: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(PREFIX + datum.len());
    framed.push(MAGIC_ID);
    framed.extend_from_slice(&schema_id.to_be_bytes());
    framed.extend_from_slice(datum);
    framed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back() {
        let bytes = frame(0x0102_0304, b"datum");
        assert_eq!(parse(&bytes), Ok(Framed { schema_id: 0x0102_0304, body: b"datum" }));
    }

    #[test]
    fn an_empty_datum_is_a_frame() {
        assert_eq!(parse(&[0, 0, 0, 0, 7]), Ok(Framed { schema_id: 7, body: b"" }));
    }

    #[test]
    fn an_empty_value_is_refused() {
        assert_eq!(parse(&[]), Err(WireError::Empty));
    }

    #[test]
    fn another_serialiser_is_named_by_its_first_byte() {
        assert_eq!(parse(b"{\"a\":1}"), Err(WireError::WrongMagicByte(b'{')));
    }

    #[test]
    fn a_cut_schema_id_is_refused() {
        for length in 1..5 {
            assert_eq!(parse(&[0; 5][..length]), Err(WireError::TooShort(length)));
        }
    }

    #[test]
    fn a_guid_is_refused_in_the_frame_and_in_the_header() {
        assert_eq!(parse(&[1; 17]), Err(WireError::GuidFormatUnsupported));
        assert_eq!(
            refuse_guid_header(|name| name == "__value_schema_id"),
            Err(WireError::GuidFormatUnsupported)
        );
        assert_eq!(refuse_guid_header(|_| false), Ok(()));
    }
}
