//! Editing a value: JSON is checked and written with the schema of the original.

use serde_json::Value;
use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::KeySource;
use tidegate_codec::{CompiledSchema, FieldPaths, Limits, wire};
use tidegate_service::wiring;

use super::order::{Ordering, Outcome};
use super::selection::Snapshot;
use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::letter::Letter;
use crate::reference::ItemRef;

/// A value that an operator made of an item's.
#[derive(Clone, Debug, PartialEq)]
pub struct Edited {
    /// The item.
    pub item: ItemRef,
    /// The original, as JSON.
    pub before: Value,
    /// What it is now, read back from the bytes.
    pub after: Value,
    /// The bytes, in the frame of a schema registry.
    pub value: Vec<u8>,
}

impl Inbox {
    /// Writes `json` as the value of an item, with the schema that its original names. Nothing is ordered yet. A job keeps its key and
    /// its lane, so what they are made from can't be edited; an event that never became a job gets them afterwards.
    pub async fn edit(&self, item: ItemRef, json: &Value) -> Result<Edited, OperatorError> {
        let inbox = self.clone();
        let original = tokio::task::spawn_blocking(move || inbox.original_of(item))
            .await
            .map_err(|error| OperatorError::Request(error.to_string()))??;
        let Some(original) = original else {
            return Err(OperatorError::Request(format!(
                "no record of item {item} exists any more: there is nothing to edit"
            )));
        };
        let framed =
            wire::parse(original.record.value().unwrap_or_default()).map_err(|error| refused(&error))?;
        let registry = self.registry()?;
        let schema = registry.fetch(framed.schema_id).await.map_err(|error| refused(&error))?;
        let limits = wiring::limits(&self.shared.config);
        let before = schema.to_json(framed.body, &limits).unwrap_or(Value::Null);
        let datum = schema.encode_json(json).map_err(|error| refused(&error))?;
        let after = schema.to_json(&datum, &limits).map_err(|error| refused(&error))?;
        let letter = Letter::read("", original.partition, &original.record);
        if let Some(class) = letter.class() {
            keeps_key(&self.shared.config, class, (&schema, &limits), (framed.body, &datum))?;
        }
        Ok(Edited { item, before, after, value: wire::frame(framed.schema_id, &datum) })
    }

    /// Orders the replay of one item with an edited value. The original stays as it is. The snapshot must be of that item alone, as it was
    /// when the operator looked at it.
    pub fn order_edited(
        &self,
        edited: &Edited,
        snapshot: &Snapshot,
        ordering: Ordering,
        by: &str,
        reason: &str,
    ) -> Result<Outcome, OperatorError> {
        if !matches!(snapshot.items.as_slice(), [only] if only.item == edited.item) {
            return Err(OperatorError::Request(format!(
                "an edited value is for item {} alone: select that one, in a state that allows a replay",
                edited.item
            )));
        }
        self.order_with(snapshot, ordering, by, Some(reason), Some(edited.value.clone()))
    }
}

fn refused(error: &dyn std::fmt::Display) -> OperatorError {
    OperatorError::Request(format!("the edited value does not fit: {error}; correct it and try again"))
}

/// Refuses a value that has other fields of the class's key than the original: the record goes out with the key and the lane of its job,
/// so a job of another key would run unnoticed under this one.
fn keeps_key(
    config: &Config,
    class: &str,
    (schema, limits): (&CompiledSchema, &Limits),
    (before, after): (&[u8], &[u8]),
) -> Result<(), OperatorError> {
    let Some(class) = config.classes.values().find(|known| known.name.as_str() == class) else {
        return Ok(());
    };
    let mut names: Vec<&str> = class.partition_by.iter().map(|path| path.as_str()).collect();
    if let KeySource::Fields(paths) = &class.key {
        names.extend(paths.iter().map(|path| path.as_str()));
    }
    names.extend(class.key_window.iter().map(|window| window.field.as_str()));
    names.sort_unstable();
    names.dedup();
    let paths = FieldPaths::new(names.iter().copied()).map_err(|error| refused(&error))?;
    let selection = schema.select(&paths);
    let (mut old, mut new) = (Vec::new(), Vec::new());
    schema.check(before, &selection, limits, &mut old).map_err(|error| refused(&error))?;
    schema.check(after, &selection, limits, &mut new).map_err(|error| refused(&error))?;
    match names.iter().zip(old.iter().zip(&new)).find(|(_, (old, new))| old != new) {
        None => Ok(()),
        Some((name, _)) => Err(OperatorError::Request(format!(
            "`{name}` is part of the key of class `{}` and can't be edited: the job would run under the key of another one; publish a \
             corrected event to its source, and discard this item",
            class.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(key: &str) -> Config {
        let text = format!(
            "[pipeline]\nname = \"test\"\n[kafka]\nbootstrap = \"127.0.0.1:1\"\n[registry]\nurl = \"http://127.0.0.1:1\"\n\
             [sources.orders]\nstart = \"earliest\"\n\
             [classes.charge]\nsource = \"orders\"\n{key}\nhandler = {{ type = \"log\" }}\n"
        );
        Config::parse("test", &text, std::iter::empty()).unwrap()
    }

    fn refusal(key: &str, before: &Value, after: &Value) -> Option<String> {
        let raw = r#"{"type":"record","name":"o","fields":[{"name":"id","type":"string"},{"name":"lane","type":"string"},
                      {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"text","type":"string"}]}"#;
        let schema = CompiledSchema::parse(1, raw, &[]).unwrap();
        let bytes = |json| schema.encode_json(json).unwrap();
        let config = config(key);
        let limits = wiring::limits(&config);
        keeps_key(&config, "charge", (&schema, &limits), (&bytes(before), &bytes(after)))
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn a_value_with_another_key_lane_or_window_is_refused_and_names_the_field() {
        let event = |id: &str, lane: &str, at: i64, text: &str| json!({ "id": id, "lane": lane, "at": at, "text": text });
        let before = event("7", "a", 5, "wrogn");
        let key = "key = [\"id\", \"lane\"]\npartition_by = [\"lane\"]\nkey_window = { field = \"at\", every = \"1d\" }";
        assert_eq!(refusal(key, &before, &event("7", "a", 5, "right")), None);
        for (name, after) in
            [("id", event("8", "a", 5, "")), ("lane", event("7", "b", 5, "")), ("at", event("7", "a", 6, ""))]
        {
            let told = refusal(key, &before, &after).unwrap();
            assert!(told.starts_with(&format!("`{name}` is part of the key of class `charge`")), "{told}");
        }
        assert_eq!(refusal("key_by_position = true", &before, &event("8", "b", 6, "")), None);
    }
}
