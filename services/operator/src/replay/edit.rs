//! Editing a value: JSON is checked and written with the schema of the original.

use serde_json::Value;
use tidegate_codec::wire;
use tidegate_service::wiring;

use super::order::{Ordering, Outcome, Pace};
use super::selection::{Selection, Snapshot};
use crate::error::OperatorError;
use crate::inbox::Inbox;
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
    /// Writes `json` as the value of an item, with the schema that its original names. Nothing is ordered yet.
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
        let refused = |error: &dyn std::fmt::Display| {
            OperatorError::Request(format!(
                "the edited value does not fit: {error}; correct it and try again"
            ))
        };
        let framed =
            wire::parse(original.record.value().unwrap_or_default()).map_err(|error| refused(&error))?;
        let registry = self.registry()?;
        let schema = registry.fetch(framed.schema_id).await.map_err(|error| refused(&error))?;
        let limits = wiring::limits(&self.shared.config);
        let before = schema.to_json(framed.body, &limits).unwrap_or(Value::Null);
        let datum = schema.encode_json(json).map_err(|error| refused(&error))?;
        let after = schema.to_json(&datum, &limits).map_err(|error| refused(&error))?;
        Ok(Edited { item, before, after, value: wire::frame(framed.schema_id, &datum) })
    }

    /// Orders the replay of one item with an edited value. The original stays as it is.
    pub fn order_edited(&self, edited: &Edited, by: &str, reason: &str) -> Result<Outcome, OperatorError> {
        let snapshot: Snapshot = self.snapshot(&Selection::Items(vec![edited.item]))?;
        let ordering = Ordering::Replay { forced: false, pace: Pace::default() };
        self.order_with(&snapshot, ordering, by, Some(reason), Some(edited.value.clone()))
    }
}
