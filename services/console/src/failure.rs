//! What goes wrong with a request, as a page shows it and as RFC 9457 has it.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::access::Refusal;
use crate::inbox::InboxError;

/// Why a request is not answered as asked. The gate makes a page or a problem document of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    /// The last part of the problem's type, which stays the same for programs.
    pub(crate) name: &'static str,
    /// What it is, for people.
    pub(crate) title: &'static str,
    /// What to do.
    pub(crate) detail: String,
    retry_after: Option<Duration>,
}

/// What every handler answers with.
pub(crate) type Answer = Result<Response, Failure>;

impl Failure {
    fn new(status: StatusCode, name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, name, title, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "This can't be asked for", detail)
    }

    pub(crate) fn missing(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "There is nothing here", detail)
    }

    pub(crate) fn no_page() -> Self {
        Self::missing("No page has this address. The overview leads everywhere.")
    }

    pub(crate) fn wrong_method() -> Self {
        let detail =
            "This address does not take such a request. The documentation names those that it takes.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Not like this", detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "That is not possible now", detail)
    }

    pub(crate) fn not_json() -> Self {
        let detail = "The API takes JSON, and the request does not say that it is. Send `Content-Type: application/json`.";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "This is not sent as JSON", detail)
    }

    pub(crate) fn too_large() -> Self {
        let detail =
            "What was sent is larger than 2 MiB. Select by a filter or a group instead of one by one.";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "That is too much at once", detail)
    }

    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The inbox does not answer", detail)
    }

    pub(crate) fn stopping() -> Self {
        Self::unavailable("The console is stopping. Try again when it is back.")
    }

    pub(crate) fn broken() -> Self {
        let detail = "The console failed at this; its log says how. Nothing was changed that the history does not show.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The console is at fault", detail)
    }

    pub(crate) fn log_in_first() -> Self {
        let detail = "Send a token: `Authorization: Bearer tgc_…`. `tidegate console token` makes one.";
        Self::new(StatusCode::UNAUTHORIZED, "log-in-first", "Who are you?", detail)
    }

    pub(crate) fn not_for_readers() -> Self {
        let detail = "You are a reader: you may look at everything and change nothing. Ask an operator.";
        Self::new(StatusCode::FORBIDDEN, "not-for-readers", "This is for operators", detail)
    }

    pub(crate) fn not_from_here() -> Self {
        let detail = "This did not come from a page of this console, or the page is from before the console was started again. \
                      Reload the page, and do it again there.";
        Self::new(StatusCode::FORBIDDEN, "not-from-here", "Nothing was changed", detail)
    }
}

impl From<InboxError> for Failure {
    fn from(error: InboxError) -> Self {
        match error {
            InboxError::Request(detail) => Self::bad_request(detail),
            InboxError::Missing(detail) => Self::missing(detail),
            InboxError::Refused(detail) => Self::conflict(detail),
            InboxError::Unavailable(detail) => Self::unavailable(detail),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::UnknownToken => {
                Self::new(StatusCode::UNAUTHORIZED, "unknown-token", "This token opens nothing", detail)
            }
            Refusal::TooMany(wait) => Self {
                retry_after: Some(wait),
                ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-tries", "Too many tries", detail)
            },
            Refusal::UnknownUser(_) => {
                Self::new(StatusCode::FORBIDDEN, "unknown-user", "You have no access", detail)
            }
            Refusal::UnclearUser => {
                Self::new(StatusCode::BAD_REQUEST, "unclear-user", "It is not clear who you are", detail)
            }
            Refusal::ForeignHost(_) => {
                Self::new(StatusCode::MISDIRECTED_REQUEST, "foreign-host", "Open it as localhost", detail)
            }
        }
    }
}

impl Failure {
    /// As RFC 9457 has it.
    pub(crate) fn problem(&self) -> Response {
        let body = json!({
            "type": format!("urn:tidegate:problem:{}", self.name),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        self.add_retry_after(&mut response);
        response
    }

    pub(crate) fn add_retry_after(&self, response: &mut Response) {
        if let Some(wait) = self.retry_after {
            let seconds = HeaderValue::from(wait.as_secs().max(1));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
