//! Parameters of an address. A program is told of one that is not understood: left out silently, it would get more than it asked for.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tidegate_bootstrap::config::suggest;

use crate::failure::Failure;
use crate::fields::{Fields, LISTS, SPAN};

/// The most entries of one page.
const LARGEST: usize = 1000;

/// The parameters that an address takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Whether it takes those of a filter.
    pub(super) filter: bool,
    /// The others, each of which may stand there once.
    pub(super) others: &'static [&'static str],
}

impl Known {
    /// Refuses a parameter that is not known here, and one that stands there again and may not.
    pub(super) fn check(self, fields: &Fields) -> Result<(), Failure> {
        let (lists, span): (&[&str], &[&str]) = if self.filter { (&LISTS, &SPAN) } else { (&[], &[]) };
        let mut seen = Vec::new();
        for name in fields.names().filter(|name| !lists.contains(name)) {
            if !self.others.contains(&name) && !span.contains(&name) {
                let known = lists.iter().chain(span).chain(self.others).copied();
                let hint = suggest(name, known);
                return Err(Failure::bad_request(format!(
                    "`{name}` is no parameter of this address: {hint}"
                )));
            }
            if seen.contains(&name) {
                return Err(Failure::bad_request(format!("`{name}` stands there twice: give it once")));
            }
            seen.push(name);
        }
        Ok(())
    }
}

/// For addresses that take no parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoParameters;

impl<S: Sync> FromRequestParts<S> for NoParameters {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let fields = Fields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        Known { filter: false, others: &[] }.check(&fields).map(|()| Self)
    }
}

/// Refuses a value that is none of these.
pub(super) fn check_choice(fields: &Fields, name: &str, choices: &[&str]) -> Result<(), Failure> {
    match fields.get(name) {
        Some(value) if !choices.contains(&value) => {
            Err(Failure::bad_request(format!("`{name}` is `{value}`: give one of {}", choices.join(", "))))
        }
        _ => Ok(()),
    }
}

/// How many entries are wanted at most.
pub(super) fn limit(fields: &Fields, default: usize) -> Result<usize, Failure> {
    let Some(text) = fields.get("limit") else { return Ok(default) };
    let limit = text.parse().ok().filter(|limit| (1..=LARGEST).contains(limit));
    limit.ok_or_else(|| {
        Failure::bad_request(format!("`limit` is `{text}`: give a number from 1 to {LARGEST}"))
    })
}
