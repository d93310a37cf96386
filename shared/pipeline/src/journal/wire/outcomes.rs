//! The JSON of outcomes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tidegate_domain::inbox::{Answer, Outcome};
use tidegate_domain::{Round, UnixMillis};

use super::{garbage, item_id, kind, owned, text};
use crate::journal::{ErrorEntry, OutcomeEntry, ParkedEntry, Unread};

#[derive(Serialize, Deserialize)]
pub(super) struct OutcomeJson<'a> {
    v: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    id: Cow<'a, str>,
    round: u32,
    what: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parked: Option<ParkedJson<'a>>,
}

#[derive(Serialize, Deserialize)]
struct ParkedJson<'a> {
    #[serde(borrow)]
    class: Cow<'a, str>,
    since: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct ErrorJson<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    code: Cow<'a, str>,
    message: Cow<'a, str>,
    fingerprint: Cow<'a, str>,
}

pub(super) fn read(json: OutcomeJson<'_>) -> Result<OutcomeEntry, Unread> {
    let answer = match (&*json.what, json.until) {
        ("resolved", _) => Answer::Resolved,
        ("already-done", _) => Answer::AlreadyDone,
        ("superseded", _) => Answer::Superseded,
        ("coalesced", _) => Answer::Coalesced,
        ("waiting", Some(until)) => Answer::WaitingUntil(UnixMillis(until)),
        ("failed-again", _) => Answer::FailedAgain,
        (other, _) => return Err(garbage("outcome", other)),
    };
    if json.round == 0 {
        return Err(garbage("round", "0"));
    }
    Ok(OutcomeEntry {
        id: item_id(&json.id)?,
        outcome: Outcome { round: Round(json.round), answer },
        at: UnixMillis(json.at),
        worker: owned(json.worker),
        detail: owned(json.detail),
        error: json.error.map(|error| ErrorEntry {
            kind: error.kind.into_owned(),
            code: error.code.into_owned(),
            message: error.message.into_owned(),
            fingerprint: error.fingerprint.into_owned(),
        }),
        parked: json.parked.map(|parked| ParkedEntry {
            class: parked.class.into_owned(),
            since: UnixMillis(parked.since),
            probe: parked.probe.map(UnixMillis),
        }),
    })
}

impl<'a> From<&'a OutcomeEntry> for OutcomeJson<'a> {
    fn from(entry: &'a OutcomeEntry) -> Self {
        let (v, kind) = kind("outcome");
        let until = match entry.outcome.answer {
            Answer::WaitingUntil(until) => Some(until.0),
            _ => None,
        };
        Self {
            v,
            kind,
            id: entry.id.to_string().into(),
            round: entry.outcome.round.0,
            what: text(entry.outcome.answer.as_str()),
            until,
            at: entry.at.0,
            worker: entry.worker.as_deref().map(text),
            detail: entry.detail.as_deref().map(text),
            error: entry.error.as_ref().map(|error| ErrorJson {
                kind: text(&error.kind),
                code: text(&error.code),
                message: text(&error.message),
                fingerprint: text(&error.fingerprint),
            }),
            parked: entry.parked.as_ref().map(|parked| ParkedJson {
                class: text(&parked.class),
                since: parked.since.0,
                probe: parked.probe.map(|probe| probe.0),
            }),
        }
    }
}
