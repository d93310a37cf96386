//! What may be wrong with a datum or a schema.

/// Bounds on the work that one datum may cause, whatever its bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How deeply records, arrays and maps may nest; more than 256 counts as 256.
    pub max_depth: u32,
    /// How many values (record fields, array items, map entries) a datum may hold. Values of no bytes, such as
    /// nulls, cost their writer nothing, so the datum's length doesn't bound them.
    pub max_items: u64,
    /// How many bytes a datum may have.
    pub max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_depth: 64, max_items: 1 << 20, max_bytes: 16 << 20 }
    }
}

/// Why a datum can't be read with its schema. The same bytes fail the same way for ever: nothing here heals by a
/// retry. Offsets count from the start of the datum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The datum ends inside a value.
    #[error("the datum ends inside the value at byte {offset}")]
    Truncated {
        /// Where the value starts.
        offset: usize,
    },
    /// The schema is satisfied before the datum ends, so another schema wrote it.
    #[error("{left} bytes are left over after the value's end at byte {offset}")]
    TrailingBytes {
        /// Where the value ends.
        offset: usize,
        /// How many bytes follow.
        left: usize,
    },
    /// A number doesn't fit the int or long that the schema declares.
    #[error("the number at byte {offset} is out of range")]
    VarintOverflow {
        /// Where the number starts.
        offset: usize,
    },
    /// A boolean is neither 0 nor 1.
    #[error("the boolean at byte {offset} is {found}, neither 0 nor 1")]
    BadBoolean {
        /// Where the boolean is.
        offset: usize,
        /// The byte.
        found: u8,
    },
    /// A union names a branch that it doesn't have.
    #[error("the union at byte {offset} names branch {found} of {known}")]
    BadBranch {
        /// Where the union starts.
        offset: usize,
        /// The branch's number.
        found: i64,
        /// How many branches the union has.
        known: usize,
    },
    /// An enum names a symbol that it doesn't have.
    #[error("the enum at byte {offset} names symbol {found} of {known}")]
    BadSymbol {
        /// Where the enum is.
        offset: usize,
        /// The symbol's number.
        found: i64,
        /// How many symbols the enum has.
        known: usize,
    },
    /// A string or bytes value has a negative length.
    #[error("the length at byte {offset} is negative")]
    NegativeLength {
        /// Where the length starts.
        offset: usize,
    },
    /// A string is not UTF-8.
    #[error("the string at byte {offset} is not utf-8")]
    InvalidUtf8 {
        /// Where the string's text starts.
        offset: usize,
    },
    /// A block of an array or a map states another size than it has.
    #[error("the array or map block at byte {offset} is not as long as it says")]
    BlockSize {
        /// Where the block starts.
        offset: usize,
    },
    /// The values nest deeper than allowed.
    #[error("the value at byte {offset} nests deeper than {limit} levels")]
    TooDeep {
        /// Where the limit was met.
        offset: usize,
        /// The limit.
        limit: u32,
    },
    /// The datum holds more values than allowed.
    #[error("the datum holds more than {limit} values")]
    TooManyItems {
        /// The limit.
        limit: u64,
    },
    /// The datum has more bytes than allowed.
    #[error("the datum has {length} bytes, more than {limit}")]
    TooLarge {
        /// The datum's length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The datum may be sound, but the Rust type that was asked for can't hold it.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The selection was compiled for another schema.
    #[error("the field selection belongs to another schema")]
    ForeignSelection,
}

/// A value that the requested Rust type can't hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mismatch {
    /// The field, as a dotted path; empty for the whole datum.
    pub path: String,
    /// What the type refused.
    pub reason: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "the event doesn't fit the type it is read into: {}", self.reason),
            path => write!(f, "the field {path} doesn't fit the type it is read into: {}", self.reason),
        }
    }
}

impl DecodeError {
    /// A mismatch without a path yet; [`DecodeError::inside`] adds it on the way out.
    pub(crate) fn mismatch(reason: impl std::fmt::Display) -> Self {
        Self::Mismatch(Box::new(Mismatch { path: String::new(), reason: reason.to_string() }))
    }

    /// Puts the name of the enclosing field before a mismatch's path.
    pub(crate) fn inside(mut self, name: &str) -> Self {
        if let Self::Mismatch(mismatch) = &mut self {
            mismatch.path = match mismatch.path.as_str() {
                "" => name.to_owned(),
                path if path.starts_with('[') => format!("{name}{path}"),
                path => format!("{name}.{path}"),
            };
        }
        self
    }
}

impl serde::de::Error for DecodeError {
    fn custom<T: std::fmt::Display>(reason: T) -> Self {
        Self::mismatch(reason)
    }
}

/// Why a schema's text can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The text is not an Avro schema, or one that the parser refuses.
    #[error("the schema doesn't parse: {0}")]
    Unparsable(String),
    /// A type is used that neither the schema nor its references define.
    #[error("the schema names the type {0}, which nothing defines")]
    UndefinedType(String),
    /// One name stands for two different types.
    #[error("the schema defines the type {0} twice, differently")]
    DefinedTwice(String),
}
