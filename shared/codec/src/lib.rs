//! Avro events with a Schema Registry: finds the schema, checks the bytes, hands out what was asked for.
//!
//! Invariants:
//! - A datum is accepted only as a whole: every value within bounds, no byte left over. What passes
//!   [`CompiledSchema::check`] can also be shown as JSON and be read into a fitting type.
//! - Bytes from outside never cause a panic, an unbounded loop or an unbounded allocation; [`Limits`] bounds them.
//! - A failure of the registry is never taken for a fault of the event, and is never remembered.
//!
//! Reading order: [`wire`] takes the frame apart; `plan` is a schema as an arena of nodes; `cursor` reads
//! primitives; `walk` checks a datum and picks fields; `json`, `encode` and `typed` are its other readers and
//! the writer; [`ContainerWriter`] puts data into files; [`SchemaRegistry`] fetches schemas; [`classify`] says what an error means
//! for the event; [`compatibility`] says whether one schema reads what another has written, [`Resolution`] whether one event can be
//! read so.

pub mod classify;
pub mod compatibility;
mod container;
mod cursor;
mod decimal;
mod encode;
mod error;
mod field;
mod json;
mod locate;
mod outline;
mod plan;
mod registry;
mod resolution;
mod schema;
mod select;
mod temporal;
mod typed;
mod uuid;
mod walk;
pub mod wire;

pub use container::ContainerWriter;
pub use encode::EncodeError;
pub use error::{DecodeError, Limits, Mismatch, SchemaError};
pub use field::{FieldPathError, FieldPaths, FieldValue, recycle};
pub use outline::OutlinedField;
pub use plan::TimeUnit;
pub use registry::{
    RegistryAuth, RegistryError, RegistryFault, RegistrySettings, RegistrySettingsError, SchemaRegistry,
    Weight, value_subject,
};
pub use resolution::{Resolution, Unresolvable};
pub use schema::{CompiledSchema, Decoded};
pub use select::Selection;
