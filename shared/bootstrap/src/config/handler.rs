//! `[classes.NAME.handler]`: what runs a job.

use std::time::Duration;

use axum::http::{HeaderName as HttpHeaderName, HeaderValue};
use serde::Serialize;

use super::error::InvalidValue;
use super::names::HttpUrl;
use super::reader::{Raw, Section};
use super::secret::MaskedMap;
use super::values::{self, write_duration};

/// What runs a class's jobs; `type` in the file says which.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Handler {
    /// An HTTP request for each job.
    Http(HttpHandler),
    /// A log line for each job: to try out routes.
    Log,
    /// Code that the user's own worker binary registers under the class's name.
    Rust,
}

/// A handler that sends each job to a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HttpHandler {
    /// Where each job is sent by POST. Required.
    pub url: HttpUrl,
    /// `json`: the event as JSON; `avro`: its bytes as they came. Default json.
    pub format: BodyFormat,
    /// Headers of each request. Values whose name sounds confidential are masked wherever they are printed.
    #[serde(skip_serializing_if = "MaskedMap::is_empty")]
    pub headers: MaskedMap,
    /// How long one request may take, at most the class's `time_limit`, which is also the default.
    #[serde(serialize_with = "write_duration")]
    pub timeout: Duration,
}

/// How an event is written into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyFormat {
    /// As JSON.
    Json,
    /// As the bytes that were in Kafka, with the schema's id in front.
    Avro,
}

#[derive(Debug, Clone, Copy)]
enum HandlerType {
    Http,
    Log,
    Rust,
}

impl Handler {
    /// `section` is the class's.
    pub(super) fn read(class: &Section<'_>, time_limit: Duration) -> Option<Self> {
        if !class.has("handler") {
            let remedy = "write handler = { type = \"http\", url = \"http://host/path\" }, or type \"log\" or \"rust\"";
            class.problem("handler", "it is missing", remedy);
        }
        let types = [("http", HandlerType::Http), ("log", HandlerType::Log), ("rust", HandlerType::Rust)];
        class.section("handler", |section| {
            if !class.has("handler") {
                return None;
            }
            let remedy = "choose \"http\", \"log\" or \"rust\"";
            let Some(handler_type) = section.required("type", remedy, values::one_of(&types)) else {
                section.tolerate_rest();
                return None;
            };
            match handler_type {
                HandlerType::Http => HttpHandler::read(section, time_limit).map(Self::Http),
                HandlerType::Log => Some(Self::Log),
                HandlerType::Rust => Some(Self::Rust),
            }
        })
    }
}

impl HttpHandler {
    fn read(section: &Section<'_>, time_limit: Duration) -> Option<Self> {
        let url = section.required("url", "write url = \"http://host/path\"", values::parsed);
        let formats = [("json", BodyFormat::Json), ("avro", BodyFormat::Avro)];
        let format = section.or("format", BodyFormat::Json, values::one_of(&formats));
        let headers =
            section.open("headers", Some(|rest| rest.replace('_', "-")), header).into_iter().collect();
        let timeout = section.or("timeout", time_limit, values::duration);
        if timeout > time_limit {
            let wrong =
                format!("it is longer than the class's time_limit, {}", values::duration_text(time_limit));
            section.problem("timeout", wrong, "shorten it, or raise time_limit");
        }
        Some(Self { url: url?, format, headers, timeout })
    }
}

fn header(name: &str, raw: &Raw) -> Result<String, InvalidValue> {
    const OURS: [&str; 5] = ["idempotency-key", "content-length", "host", "connection", "transfer-encoding"];
    let value = values::as_text(raw)?;
    if HttpHeaderName::try_from(name).is_err() {
        return Err(InvalidValue::new(
            format!("`{name}` is no header's name"),
            "use letters, digits and `-`",
        ));
    }
    if OURS.contains(&name.to_lowercase().as_str()) {
        return Err(InvalidValue::new("tidegate sets this header for each job", "remove it"));
    }
    if HeaderValue::try_from(&value).is_err() {
        // The value may be confidential: it is not repeated.
        return Err(InvalidValue::new(
            "the value contains a control character",
            "remove line breaks from it",
        ));
    }
    Ok(value)
}
