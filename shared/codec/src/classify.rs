//! What this crate's errors mean for the event at hand. The one place that says so.

use std::time::Duration;

use tidegate_domain::failure::{Failure, FailureKind};

use crate::encode::EncodeError;
use crate::error::{DecodeError, SchemaError};
use crate::registry::RegistryError;
use crate::wire::WireError;

/// What to do about an event whose schema is not at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaVerdict {
    /// The event is not at fault: keep it, pause its partition, ask again.
    Wait,
    /// The event can't be decoded, and waiting won't change that.
    Fail(Failure),
}

/// A value that is no frame.
pub fn wire(error: &WireError) -> Failure {
    let code = match error {
        WireError::Empty => "empty-value",
        WireError::WrongMagicByte(_) => "wrong-magic-byte",
        WireError::TooShort(_) => "frame-too-short",
        WireError::GuidFormatUnsupported => "guid-format-unsupported",
    };
    malformed(code, error)
}

/// A datum that its schema doesn't fit, or that doesn't fit the type it is read into. The bytes stay the same,
/// so no retry heals it; a release with another type may, and then an operator replays it.
pub fn decode(error: &DecodeError) -> Failure {
    let code = match error {
        DecodeError::Truncated { .. } => "datum-truncated",
        DecodeError::TrailingBytes { .. } => "datum-trailing-bytes",
        DecodeError::TooDeep { .. } => "datum-too-deep",
        DecodeError::TooManyItems { .. } => "datum-too-many-items",
        DecodeError::TooLarge { .. } => "datum-too-large",
        DecodeError::Mismatch(_) => return Failure::permanent("type-mismatch", error.to_string()),
        DecodeError::ForeignSelection => return Failure::permanent("foreign-selection", error.to_string()),
        DecodeError::VarintOverflow { .. }
        | DecodeError::BadBoolean { .. }
        | DecodeError::BadBranch { .. }
        | DecodeError::BadSymbol { .. }
        | DecodeError::NegativeLength { .. }
        | DecodeError::InvalidUtf8 { .. }
        | DecodeError::BlockSize { .. } => "datum-invalid",
    };
    malformed(code, error)
}

/// A schema whose text can't be used.
pub fn schema(error: &SchemaError) -> Failure {
    malformed("schema-invalid", error)
}

/// JSON that doesn't become an event.
pub fn encode(error: &EncodeError) -> Failure {
    malformed("json-invalid", error)
}

/// An answer of the registry. `grace` is for how long an unknown id is waited for
/// ([`crate::SchemaRegistry::unknown_schema_grace`]).
pub fn registry(error: &RegistryError, grace: Duration) -> SchemaVerdict {
    match error {
        RegistryError::Unreachable { .. } | RegistryError::Unauthorized { .. } => SchemaVerdict::Wait,
        RegistryError::UnknownId { waited, .. } if *waited < grace => SchemaVerdict::Wait,
        RegistryError::UnknownId { .. } => SchemaVerdict::Fail(malformed("unknown-schema-id", error)),
        RegistryError::Invalid { .. } => SchemaVerdict::Fail(malformed("schema-invalid", error)),
        RegistryError::UnknownSubject { .. } | RegistryError::Refused { .. } => {
            SchemaVerdict::Fail(Failure::permanent("schema-refused", error.to_string()))
        }
    }
}

fn malformed(code: &'static str, error: &impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Malformed, code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    #[test]
    fn a_registry_that_is_down_is_never_the_events_fault() {
        for error in [
            RegistryError::Unreachable { reason: "connection refused".to_owned() },
            RegistryError::Unauthorized { reason: "status 401".to_owned() },
        ] {
            assert_eq!(registry(&error, GRACE), SchemaVerdict::Wait);
        }
    }

    #[test]
    fn an_unknown_id_is_waited_for_until_the_grace_is_over() {
        let unknown = |waited| RegistryError::UnknownId { id: 7, waited };
        assert_eq!(registry(&unknown(GRACE - Duration::from_millis(1)), GRACE), SchemaVerdict::Wait);
        let SchemaVerdict::Fail(failure) = registry(&unknown(GRACE), GRACE) else { panic!("still waiting") };
        assert_eq!((failure.kind, failure.code.as_ref()), (FailureKind::Malformed, "unknown-schema-id"));
    }

    #[test]
    fn bytes_that_can_never_be_read_are_malformed() {
        assert_eq!(wire(&WireError::Empty).kind, FailureKind::Malformed);
        assert_eq!(decode(&DecodeError::Truncated { offset: 1 }).kind, FailureKind::Malformed);
        assert_eq!(schema(&SchemaError::UndefinedType("a.B".to_owned())).kind, FailureKind::Malformed);
        let invalid = RegistryError::Invalid { id: 7, reason: "protobuf".to_owned() };
        assert!(
            matches!(registry(&invalid, GRACE), SchemaVerdict::Fail(failure) if !failure.kind.may_heal())
        );
    }

    #[test]
    fn a_type_that_cannot_hold_the_event_is_a_permanent_failure() {
        let mismatch = <DecodeError as serde::de::Error>::custom("missing field `id`");
        assert_eq!(decode(&mismatch).kind, FailureKind::Permanent);
    }
}
