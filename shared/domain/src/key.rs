//! When two events are the same job: the idempotency key, and the lane that keeps equal keys in order.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::position::{Partition, UnixMillis};

/// A scalar of an event, as keys and routes see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// The schema has no such field.
    Missing,
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An int, a long, or a date.
    Int(i64),
    /// A float or a double.
    Float(f64),
    /// A string, an enum's symbol, or a UUID.
    Str(&'a str),
    /// Bytes or a fixed.
    Bytes(&'a [u8]),
    /// A timestamp of any unit, in nanoseconds since the epoch, so that changing the unit keeps the key.
    Timestamp(i128),
    /// A record, an array or a map.
    NotScalar,
}

/// Why an event has no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The field at this place of the key is null, missing or empty: that is no key, not an empty one.
    #[error("key field number {0} is null, missing or empty")]
    NoValue(usize),
    /// The field at this place of the key is a record, an array or a map.
    #[error("key field number {0} is not a scalar")]
    NotScalar(usize),
}

/// 128 bits that are equal for equal keys. BLAKE3, cut: a publisher who chooses field values can't make two keys meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyKey(pub [u8; 16]);

impl IdempotencyKey {
    /// The key of `fields` within `scope`, in an optional window of event time.
    pub fn derive(
        scope: &str,
        fields: &[FieldValue<'_>],
        window: Option<WindowIndex>,
    ) -> Result<Self, KeyError> {
        let mut canonical = Canonical::new();
        push(&mut canonical, b'k', scope.as_bytes());
        for (place, field) in fields.iter().enumerate() {
            push_field(&mut canonical, place, field)?;
        }
        if let Some(WindowIndex(index)) = window {
            push(&mut canonical, b'w', &index.to_be_bytes());
        }
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(&canonical).as_bytes()[..16]);
        Ok(Self(key))
    }

    /// The key written as 32 hex digits.
    pub fn parse(hex: &str) -> Option<Self> {
        if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(hex, 16).ok().map(|n| Self(n.to_be_bytes()))
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Records of one lane run one after the other, in the order of the job topic. A hash of the partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(pub u64);

impl Lane {
    /// The lane of the partition fields within `scope`. Equal keys share a lane, because these fields are a part of the key.
    pub fn derive(scope: &str, fields: &[FieldValue<'_>]) -> Result<Self, KeyError> {
        IdempotencyKey::derive(scope, fields, None).map(Self::of_key)
    }

    /// The lane of events whose partition key is the whole key, without a window: what [`Lane::derive`] says of the same fields.
    pub fn of_key(IdempotencyKey(bytes): IdempotencyKey) -> Self {
        Self(xxh3_64(&bytes))
    }

    /// The job partition of this lane among `count`. Part of the format: equal keys meet there, also after an upgrade.
    pub fn partition(self, count: u32) -> Partition {
        let index = self.0 % u64::from(count.max(1));
        Partition(i32::try_from(index).unwrap_or(0))
    }
}

/// The number of a window of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowIndex(pub i64);

impl WindowIndex {
    /// The window that holds `at`, where windows are `every` long and `utc_offset` seconds are added for local days.
    /// Times before 1970 count downwards without a double window at zero.
    pub fn of(at: UnixMillis, utc_offset_seconds: i32, every: Duration) -> Self {
        let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
        Self((at.0.saturating_add(i64::from(utc_offset_seconds) * 1000)).div_euclid(every))
    }
}

/// Scope and fields as they are hashed: in one call, which is much faster for a few bytes than to feed a hasher.
type Canonical = SmallVec<[u8; 256]>;

fn push(canonical: &mut Canonical, tag: u8, bytes: &[u8]) {
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    let mut prefix = [0; 9];
    prefix[0] = tag;
    prefix[1..].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
    canonical.extend_from_slice(&prefix);
    canonical.extend_from_slice(bytes);
}

fn push_field(canonical: &mut Canonical, place: usize, field: &FieldValue<'_>) -> Result<(), KeyError> {
    match *field {
        FieldValue::Missing | FieldValue::Null | FieldValue::Str("") | FieldValue::Bytes([]) => {
            return Err(KeyError::NoValue(place));
        }
        FieldValue::NotScalar => return Err(KeyError::NotScalar(place)),
        FieldValue::Bool(b) => push(canonical, b'b', &[u8::from(b)]),
        FieldValue::Int(n) => push(canonical, b'i', &n.to_be_bytes()),
        FieldValue::Float(x) => push_float(canonical, x),
        // Avro lets a field change between string and bytes: the key must not change with it.
        FieldValue::Str(s) => push(canonical, b's', s.as_bytes()),
        FieldValue::Bytes(b) => push(canonical, b's', b),
        FieldValue::Timestamp(nanos) => push(canonical, b't', &nanos.to_be_bytes()),
    }
    Ok(())
}

fn push_float(canonical: &mut Canonical, x: f64) {
    let whole = x as i64;
    // A field that was widened from long to double keeps the keys of its whole numbers; -0.0 is 0.
    if whole as f64 == x && whole.unsigned_abs() < (1 << 53) {
        push(canonical, b'i', &whole.to_be_bytes());
    } else {
        let bits = if x.is_nan() { f64::NAN } else { x }.to_bits();
        push(canonical, b'f', &bits.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
