//! Events for tests: a schema registered as its publishers would, and records of it.

use serde_json::Value;
use tidegate_codec::{CompiledSchema, wire};

use crate::kafka_io::Record;
use crate::servers::Registry;

/// Writes events of one schema.
#[derive(Debug)]
pub struct Writer {
    schema: CompiledSchema,
}

impl Writer {
    /// Registers the schema for the values of the topic.
    ///
    /// # Panics
    /// When the registry or the codec refuses the schema.
    #[track_caller]
    pub fn register(registry: &Registry, topic: &str, schema: &str) -> Self {
        Self::with_id(registry.register(&format!("{topic}-value"), schema), schema)
    }

    /// Writes with an id that the caller answers for: perhaps nobody has registered it yet.
    #[track_caller]
    pub fn with_id(id: u32, schema: &str) -> Self {
        Self { schema: CompiledSchema::parse(id, schema, &[]).expect("the test's schema is valid") }
    }

    /// The schema's id.
    pub fn id(&self) -> u32 {
        self.schema.id()
    }

    /// The event as a record's value: magic byte, schema id, Avro.
    ///
    /// # Panics
    /// When the event doesn't fit the schema.
    #[track_caller]
    pub fn value(&self, event: &Value) -> Vec<u8> {
        let datum = self.schema.encode_json(event).unwrap_or_else(|error| panic!("{error}: {event}"));
        self.frame(&datum)
    }

    /// Any bytes as a record's value under this schema's id: for events that are none.
    pub fn frame(&self, datum: &[u8]) -> Vec<u8> {
        wire::frame(self.id(), datum)
    }

    /// A record with the event and nothing else.
    #[track_caller]
    pub fn record(&self, event: &Value) -> Record {
        Record::default().value(self.value(event))
    }
}
