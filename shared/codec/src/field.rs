//! The values that ingest asks for by path, borrowed from the record's bytes.

use crate::plan::TimeUnit;

/// One field's value. Logical types that matter for a canonical form keep their meaning: the same instant in
/// milliseconds or in microseconds, or the same UUID as text or as bytes, can be told to be the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FieldValue<'a> {
    /// Null, or below a null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An int or a long.
    Int(i64),
    /// A float or a double.
    Float(f64),
    /// A string.
    Str(&'a str),
    /// Bytes or fixed.
    Bytes(&'a [u8]),
    /// An enum's symbol.
    Enum(&'a str),
    /// A UUID, whether it was written as text or as 16 bytes. Text that is no UUID stays a string.
    Uuid([u8; 16]),
    /// Days since 1970-01-01.
    Date(i32),
    /// A time of day since midnight.
    TimeOfDay {
        /// Steps since midnight.
        value: i64,
        /// What one step is.
        unit: TimeUnit,
    },
    /// An instant.
    Timestamp {
        /// Steps since 1970-01-01T00:00:00Z.
        value: i64,
        /// What one step is.
        unit: TimeUnit,
    },
    /// A date and time of day without a time zone.
    LocalTimestamp {
        /// Steps since 1970-01-01T00:00:00.
        value: i64,
        /// What one step is.
        unit: TimeUnit,
    },
    /// A decimal number: `unscaled` × 10^-`scale`.
    Decimal {
        /// Two's complement, big-endian.
        unscaled: &'a [u8],
        /// Digits after the point.
        scale: u32,
    },
    /// The schema, or the branch that this record has, doesn't have the path.
    Missing,
    /// A record, array or map stands at the path.
    NotScalar,
}

/// Empties the values and keeps their memory for the next record, whose bytes live in another place.
pub fn recycle<'b>(mut values: Vec<FieldValue<'_>>) -> Vec<FieldValue<'b>> {
    values.clear();
    // Collecting a vector's own iterator reuses its allocation; nothing is left to map.
    values.into_iter().map(|_| FieldValue::Null).collect()
}

/// Dotted paths of fields, as configuration names them: `id`, `customer.address.city`. A path leads through
/// records and through unions, not into arrays or maps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldPaths {
    paths: Vec<String>,
}

/// A path that can't lead anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field path \"{path}\" has an empty part")]
pub struct FieldPathError {
    /// The path as it was given.
    pub path: String,
}

impl FieldPaths {
    /// The paths in this order; values come back in the same order. A path may stand in it twice.
    pub fn new(paths: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, FieldPathError> {
        let paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        match paths.iter().find(|path| path.split('.').any(str::is_empty)) {
            Some(path) => Err(FieldPathError { path: path.clone() }),
            None => Ok(Self { paths }),
        }
    }

    /// The paths as given.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_part_of_a_path_is_refused() {
        for path in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(FieldPaths::new([path]), Err(FieldPathError { path: path.to_owned() }));
        }
        assert_eq!(FieldPaths::new(["a", "a.b.c"]).expect("sound").len(), 2);
    }

    #[test]
    fn recycled_values_keep_their_memory() {
        let values = vec![FieldValue::Int(1); 16];
        let (place, room) = (values.as_ptr() as usize, values.capacity());
        let again = recycle(values);
        assert_eq!((again.as_ptr() as usize, again.capacity(), again.len()), (place, room, 0));
    }
}
