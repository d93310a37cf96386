//! Filters as options.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use tidegate_operator::{Filter, Needed, OperatorError};

/// Which items are meant. Options that are given several times mean any of their values; different options must all fit.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// open, replaying, resolved, already-done, failed-again or discarded
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<String>,
    /// Only of this class; `-`: of none
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// Only of this tier; `-`: of none
    #[arg(long = "tier", value_name = "TIER")]
    tiers: Vec<String>,
    /// Only of this kind of failure (transient, timeout, overload, permanent, malformed, unroutable, conflict, crash)
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only with this code of failure, such as http-503
    #[arg(long = "code", value_name = "CODE")]
    codes: Vec<String>,
    /// Only of the group with this fingerprint, as `dlq groups` prints it
    #[arg(long = "group", value_name = "FINGERPRINT")]
    groups: Vec<String>,
    /// Only with this schema id
    #[arg(long = "schema", value_name = "ID")]
    schemas: Vec<String>,
    /// Only of classes with this handler, as `dlq groups --by handler` prints it
    #[arg(long = "handler", value_name = "HANDLER")]
    handlers: Vec<String>,
    /// Only of this source topic
    #[arg(long = "source", value_name = "TOPIC")]
    sources: Vec<String>,
    /// Only dead-lettered since: a time in UTC like 2026-01-31T02:00:00Z, or how long ago, like 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only dead-lettered before: as for --since
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only with this idempotency key, 32 hex digits
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only with these words in message, key or payload; the last may be a beginning: refus*
    #[arg(long, value_name = "WORDS")]
    search: Option<String>,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> Result<Filter, OperatorError> {
        let time = |text: &Option<String>| text.as_deref().map(time).transpose();
        let filter = Filter {
            states: self.states.clone(),
            classes: self.classes.clone(),
            tiers: self.tiers.clone(),
            kinds: self.kinds.clone(),
            codes: self.codes.clone(),
            fingerprints: self.groups.clone(),
            schemas: self.schemas.clone(),
            handlers: self.handlers.clone(),
            sources: self.sources.clone(),
            since: time(&self.since)?,
            until: time(&self.until)?,
            key: self.key.clone(),
            text: self.search.clone(),
        };
        filter.check().map_err(|error| OperatorError::Request(error.to_string()))?;
        Ok(filter)
    }

    /// Words and keys take time to index, and are needed for these only.
    pub(crate) fn needed(&self) -> Needed {
        if self.key.is_some() || self.search.is_some() { Needed::Words } else { Needed::Items }
    }
}

/// Milliseconds since the epoch.
fn time(text: &str) -> Result<i64, OperatorError> {
    let ago = |ago: Duration| SystemTime::now().checked_sub(ago);
    let at = match humantime::parse_rfc3339_weak(text) {
        Ok(at) => Some(at),
        Err(_) => humantime::parse_duration(text).ok().and_then(ago),
    };
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_millis()).ok()).ok_or_else(|| {
        OperatorError::Request(format!(
            "`{text}` is no time: write one in UTC like 2026-01-31T02:00:00Z, or how long ago, like 2h"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_how_long_ago() {
        assert_eq!(time("2026-01-31T02:00:00Z").ok(), Some(1_769_824_800_000));
        let ago = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64 - 7_200_000;
        let (before, at, after) = (ago(), time("2h").unwrap(), ago());
        assert!((before..=after).contains(&at), "{at} is not from {before} to {after}");
        assert!(time("yesterday").is_err());
    }
}
