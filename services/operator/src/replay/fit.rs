//! Whether a record decodes, and whether a reader with today's schema can read it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tidegate_codec::{CompiledSchema, FieldPaths, Limits, Resolution, SchemaRegistry, value_subject, wire};
use tidegate_service::wiring;
use tokio::runtime::Handle;

use super::originals::Original;
use super::selection::Selected;
use crate::inbox::Inbox;

/// How a record fared.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A reader with today's schema can read it.
    Fits,
    /// It decodes, and such a reader can't read it.
    Unfit(String),
    /// It decodes, and what today's schema of its type is can't be told.
    Unchecked(String),
    /// It does not decode.
    Undecodable(String),
    /// Its schema is not to be had.
    Unread(String),
    /// There is no record.
    Gone,
}

/// Decodes records, and remembers schemas meanwhile.
pub(super) struct Decoder<'a> {
    registry: Result<SchemaRegistry, String>,
    limits: Limits,
    runtime: &'a Handle,
    schemas: FxHashMap<u32, Result<Arc<CompiledSchema>, String>>,
    /// Of each source topic, or why it is not known.
    latest: FxHashMap<String, Result<Arc<CompiledSchema>, String>>,
    /// From the writer's to the reader's.
    resolutions: FxHashMap<(u32, u32), Result<Resolution, String>>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(inbox: &Inbox, runtime: &'a Handle) -> Self {
        Self {
            registry: inbox.registry().cloned().map_err(|error| error.to_string()),
            limits: wiring::limits(&inbox.shared.config),
            runtime,
            schemas: FxHashMap::default(),
            latest: FxHashMap::default(),
            resolutions: FxHashMap::default(),
        }
    }

    pub(super) fn fate(&mut self, item: &Selected, original: &Original) -> Fate {
        let framed = match wire::parse(original.record.value().unwrap_or_default()) {
            Ok(framed) => framed,
            Err(error) => return Fate::Undecodable(error.to_string()),
        };
        let schema = match self.schema(framed.schema_id) {
            Ok(schema) => schema,
            Err(reason) => return Fate::Unread(reason),
        };
        let selection = schema.select(&FieldPaths::default());
        if let Err(error) = schema.check(framed.body, &selection, &self.limits, &mut Vec::new()) {
            return Fate::Undecodable(error.to_string());
        }
        self.fits_today(&item.facts.topic, &schema, framed.body)
    }

    /// Whether a reader can read it that has the latest schema of its source.
    fn fits_today(&mut self, topic: &str, written: &CompiledSchema, body: &[u8]) -> Fate {
        let latest = match self.latest(topic) {
            Ok(latest) => latest,
            Err(reason) => return Fate::Unchecked(format!("the latest schema is not known: {reason}")),
        };
        if latest.id() == written.id() {
            return Fate::Fits;
        }
        if latest.full_name() != written.full_name() {
            // Several types may share a topic, and the subjects be named otherwise: the latest one here says nothing of the others.
            return Fate::Unchecked(format!(
                "the latest schema of {} is of {}, these are of {}",
                value_subject(topic),
                latest.full_name(),
                written.full_name()
            ));
        }
        let resolution = self.resolutions.entry((written.id(), latest.id()));
        let resolution = resolution
            .or_insert_with(|| Resolution::between(written, &latest).map_err(|error| error.to_string()));
        let unreadable = match resolution {
            Ok(resolution) => resolution.check(body).err().map(|error| error.to_string()),
            Err(reason) => Some(reason.clone()),
        };
        match unreadable {
            None => Fate::Fits,
            Some(reason) => {
                Fate::Unfit(format!("a reader with schema {} can't read it: {reason}", latest.id()))
            }
        }
    }

    fn schema(&mut self, id: u32) -> Result<Arc<CompiledSchema>, String> {
        let Self { registry, runtime, schemas, .. } = self;
        let fetch = || {
            let registry = registry.as_ref().map_err(Clone::clone)?;
            runtime.block_on(registry.fetch(id)).map_err(|error| error.to_string())
        };
        schemas.entry(id).or_insert_with(fetch).clone()
    }

    fn latest(&mut self, topic: &str) -> Result<Arc<CompiledSchema>, String> {
        if let Some(known) = self.latest.get(topic) {
            return known.clone();
        }
        let latest = match &self.registry {
            Ok(registry) => {
                let asked = self.runtime.block_on(registry.latest(&value_subject(topic)));
                asked.map_err(|error| error.to_string())
            }
            Err(reason) => Err(reason.clone()),
        };
        self.latest.insert(topic.to_owned(), latest.clone());
        latest
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = r#"{"name": "id", "type": "string"}"#;
    const MORE: &str = r#"{"name": "id", "type": "string"}, {"name": "more", "type": "int"}"#;

    fn schema(id: u32, name: &str, fields: &str) -> Arc<CompiledSchema> {
        let text = format!(r#"{{"type": "record", "name": "{name}", "fields": [{fields}]}}"#);
        Arc::new(CompiledSchema::parse(id, &text, &[]).unwrap())
    }

    /// How an event of schema 1 fares where this is the latest schema of its source.
    pub(super) fn fate(latest: Option<Arc<CompiledSchema>>) -> Fate {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut decoder = Decoder {
            registry: Err("the registry is away".to_owned()),
            limits: Limits::default(),
            runtime: runtime.handle(),
            schemas: FxHashMap::default(),
            latest: latest.into_iter().map(|latest| ("shop".to_owned(), Ok(latest))).collect(),
            resolutions: FxHashMap::default(),
        };
        let written = schema(1, "Event", ID);
        let body = written.encode_json(&json!({ "id": "a" })).unwrap();
        decoder.fits_today("shop", &written, &body)
    }

    #[test]
    fn a_record_fits_the_schema_that_it_was_written_with_and_one_that_can_read_it() {
        assert_eq!(fate(Some(schema(1, "Event", ID))), Fate::Fits);
        let with_default = format!(r#"{ID}, {{"name": "more", "type": "int", "default": 0}}"#);
        assert_eq!(fate(Some(schema(2, "Event", &with_default))), Fate::Fits);
    }

    #[test]
    fn a_record_that_the_latest_schema_of_its_type_can_not_read_does_not_fit() {
        let found = fate(Some(schema(2, "Event", MORE)));
        assert!(matches!(&found, Fate::Unfit(reason) if reason.contains("schema 2")), "{found:?}");
    }

    #[test]
    fn a_record_whose_latest_schema_is_unknown_or_of_another_type_counts_as_not_checked() {
        let unknown = Fate::Unchecked("the latest schema is not known: the registry is away".to_owned());
        assert_eq!(fate(None), unknown);
        let other =
            Fate::Unchecked("the latest schema of shop-value is of Refund, these are of Event".to_owned());
        assert_eq!(fate(Some(schema(2, "Refund", MORE))), other);
    }
}
