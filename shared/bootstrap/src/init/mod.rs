//! From a few answers to a first, commented configuration: `tidegate init`.
//!
//! [`interview`] gets the [`Answers`]: from flags ([`Given`]), and for what they leave open from whoever is [`Asked`]: a person at
//! a terminal ([`Dialogue`]) or the defaults alone ([`Defaults`]). Field names are checked against the schema that the registry
//! has ([`Schemas`]), because a misspelt key field would dead-letter every event. [`Answers::text`] is the file.

mod answers;
mod asked;
mod error;
mod fields;
mod interview;
mod text;

pub use answers::{Answers, FromEnvironment, Given, Replace, check_place, write_new};
pub use asked::{Asked, Defaults, Dialogue, Question};
pub use error::InitError;
pub use fields::{Field, FieldKind, SchemaTrouble, Schemas};
pub use interview::{FieldCheck, interview};

#[cfg(test)]
mod tests;
