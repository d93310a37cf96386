//! Bodies of requests, and bytes in answers.

use axum::extract::{FromRequest, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::Failure;

/// A body of JSON. An empty one is an empty object.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        // The gate has read it, and refused one that is too large.
        let bytes =
            axum::body::to_bytes(request.into_body(), usize::MAX).await.map_err(|_| Failure::too_large())?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let read = serde_json::from_slice(text);
        read.map(Self).map_err(|error| Failure::bad_request(format!("the body can't be read: {error}")))
    }
}

/// Text as text, other bytes as base64, null as null.
pub(super) fn bytes(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => json!(text),
            _ => json!({ "base64": STANDARD.encode(bytes) }),
        },
    }
}
