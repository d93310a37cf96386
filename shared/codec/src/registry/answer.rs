//! What an error of the client library says about the registry.

use std::error::Error;

use schema_registry_converter::error::SRCError;
use schema_registry_converter::schema_registry_common::RawError;

use super::RegistryError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// No answer, or none that a registry gives.
    Unreachable { reason: String },
    /// The credentials are missing, wrong or insufficient.
    Unauthorized { reason: String },
    /// The thing asked for is not there. `by_registry`: the answer carries a registry's own code for that.
    NotFound { by_registry: bool, reason: String },
    /// The request itself is refused.
    Refused { reason: String },
}

/// The client library keeps the HTTP status in its message only. A test goes through all statuses, so a
/// library that words it differently fails there.
const STATUS_PREFIX: &str = "HTTP request to schema registry failed with status ";

impl Answer {
    pub(super) fn of(error: &SRCError) -> Self {
        let raw = error.source().and_then(|source| source.downcast_ref::<RawError>());
        let code = raw.map_or(0, |raw| raw.error_code);
        let reason = reason(error, raw);
        match status(error) {
            Some(401 | 403) => Self::Unauthorized { reason },
            Some(404) => Self::NotFound { by_registry: (40_400..40_500).contains(&code), reason },
            // A time-out or too many requests pass; of a refusal they only share the hundreds.
            Some(408 | 425 | 429) => Self::Unreachable { reason },
            Some(400..500) => Self::Refused { reason },
            _ => Self::Unreachable { reason },
        }
    }

    /// The error if nothing more specific is known. A refused question says nothing about the thing asked for.
    pub(super) fn into_error(self) -> RegistryError {
        match self {
            Self::Unauthorized { reason } => RegistryError::Unauthorized { reason },
            Self::Unreachable { reason } | Self::NotFound { reason, .. } | Self::Refused { reason } => {
                RegistryError::Unreachable { reason }
            }
        }
    }
}

fn status(error: &SRCError) -> Option<u16> {
    error.error.strip_prefix(STATUS_PREFIX)?.get(..3)?.parse().ok()
}

/// The message with the causes that it hides: "connection refused" is the useful part.
fn reason(error: &SRCError, raw: Option<&RawError>) -> String {
    if let (Some(status), Some(raw)) = (error.error.strip_prefix(STATUS_PREFIX), raw) {
        return match raw.error_code {
            0 => format!("status {status}"),
            code => format!("status {status}, code {code}: {}", raw.message),
        };
    }
    let mut chain = vec![error.error.clone()];
    let mut source = error.source();
    while let Some(cause) = source {
        chain.push(cause.to_string());
        source = cause.source();
    }
    unanswered(&chain).unwrap_or_else(|| chain.join(": "))
}

/// Of a call without an answer: where it went, and the innermost cause, which is what happened. What lies between says only that it was
/// a call.
fn unanswered(chain: &[String]) -> Option<String> {
    let place = chain.iter().position(|cause| cause.contains("for url ("))?;
    let (_, rest) = chain[place].split_once("for url (")?;
    let (url, _) = rest.split_once(')')?;
    let innermost = chain[place + 1..].last()?;
    Some(format!("{url}: {}", without_library(innermost)))
}

/// An error of OpenSSL's without its number and its place in a library: `TLS: wrong version number`. Any other text stays as it is.
pub(super) fn without_library(cause: &str) -> String {
    let Some(rest) = cause.strip_prefix("error:") else { return cause.to_owned() };
    // Number, library, function, reason, file, line; and what a certificate lacks.
    match rest.split(':').nth(3) {
        Some(reason) if !reason.is_empty() => {
            let detail = rest.rsplit_once(" (").map_or_else(String::new, |(_, detail)| format!(" ({detail}"));
            format!("TLS: {reason}{detail}")
        }
        _ => cause.to_owned(),
    }
}
