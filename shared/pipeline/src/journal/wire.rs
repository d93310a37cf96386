//! The JSON of the journal, and how it is read with suspicion.

mod outcomes;

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tidegate_domain::inbox::{ItemId, RampLimits, RunId};
use tidegate_domain::{Offset, Round, UnixMillis};

use self::outcomes::OutcomeJson;
use super::{Actions, Audit, Entry, Order, Ordered, RunEntry, RunPlan, RunStep, Unread, millis};

const VERSION: u64 = 1;

/// What every entry has.
#[derive(Deserialize)]
struct Head<'a> {
    v: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct ActionsJson<'a> {
    v: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    run: Cow<'a, str>,
    by: Cow<'a, str>,
    at: i64,
    #[serde(rename = "do")]
    order: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forced: bool,
    #[serde(default)]
    chunk: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    items: Vec<OrderedJson<'a>>,
}

#[derive(Serialize, Deserialize)]
struct OrderedJson<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    /// -1: none.
    seen: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    /// Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct RunJson<'a> {
    v: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    run: Cow<'a, str>,
    by: Cow<'a, str>,
    at: i64,
    #[serde(rename = "do")]
    step: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plan: Option<PlanJson<'a>>,
}

#[derive(Serialize, Deserialize)]
struct PlanJson<'a> {
    #[serde(borrow, rename = "do")]
    order: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forced: bool,
    total: u64,
    chunks: u32,
    selection: Cow<'a, str>,
    /// Records a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ramp: Option<RampJson>,
}

#[derive(Serialize, Deserialize)]
struct RampJson {
    first: u32,
    factor: u32,
    cap: u32,
    /// A share within 0 and 1.
    failures: f64,
    /// Milliseconds.
    timeout: u64,
}

#[derive(Serialize, Deserialize)]
struct AuditJson<'a> {
    v: u64,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    by: Cow<'a, str>,
    at: i64,
    what: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'a, str>>,
}

pub(super) fn read(value: &[u8]) -> Result<Entry, Unread> {
    let head: Head<'_> = parse(value)?;
    if head.v != VERSION {
        return Err(Unread::Version(head.v));
    }
    match &*head.kind {
        "actions" => actions(parse(value)?).map(Entry::Actions),
        "run" => run(parse(value)?).map(Entry::Run),
        "outcome" => outcomes::read(parse(value)?).map(Entry::Outcome),
        "audit" => audit(parse(value)?).map(Entry::Audit),
        other => Err(Unread::Kind(other.to_owned())),
    }
}

fn parse<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, Unread> {
    serde_json::from_slice(value).map_err(|error| Unread::Garbage(error.to_string()))
}

fn garbage(what: &str, value: &str) -> Unread {
    Unread::Garbage(format!("its {what} is `{value}`, which is not of its form"))
}

fn item_id(text: &str) -> Result<ItemId, Unread> {
    text.parse().map_err(|_| garbage("id", text))
}

fn run_id(text: &str) -> Result<RunId, Unread> {
    RunId::parse(text).ok_or_else(|| garbage("run", text))
}

fn owned(text: Option<Cow<'_, str>>) -> Option<String> {
    text.map(Cow::into_owned)
}

fn order(name: &str, forced: bool) -> Result<Order, Unread> {
    match name {
        "replay" => Ok(Order::Replay { forced }),
        "discard" => Ok(Order::Discard),
        "reopen" => Ok(Order::Reopen),
        other => Err(garbage("order", other)),
    }
}

fn actions(json: ActionsJson<'_>) -> Result<Actions, Unread> {
    let order = order(&json.order, json.forced)?;
    let reason = owned(json.reason).filter(|reason| !reason.trim().is_empty());
    if order == Order::Discard && reason.is_none() {
        return Err(Unread::Garbage("it discards without a reason".to_owned()));
    }
    let items: Result<Vec<_>, _> = json.items.into_iter().map(|item| ordered(item, order)).collect();
    Ok(Actions {
        run: run_id(&json.run)?,
        by: json.by.into_owned(),
        at: UnixMillis(json.at),
        chunk: json.chunk,
        order,
        reason,
        items: items?,
    })
}

fn ordered(json: OrderedJson<'_>, order: Order) -> Result<Ordered, Unread> {
    let round = match (order, json.round) {
        (Order::Replay { .. }, Some(round)) if round > 0 => round,
        (Order::Replay { .. }, _) => return Err(garbage("round", "none")),
        _ => 0,
    };
    let decoded = |text: Cow<'_, str>| STANDARD.decode(&*text).map_err(|_| garbage("value", "no base64"));
    Ok(Ordered {
        id: item_id(&json.id)?,
        seen: (json.seen >= 0).then_some(Offset(json.seen)),
        round: Round(round),
        edited: json.value.map(decoded).transpose()?,
    })
}

fn run(json: RunJson<'_>) -> Result<RunEntry, Unread> {
    let step = match (&*json.step, json.plan) {
        ("begin", Some(plan)) => RunStep::Begin(RunPlan {
            order: order(&plan.order, plan.forced)?,
            total: plan.total,
            chunks: plan.chunks,
            selection: plan.selection.into_owned(),
            rate: plan.rate.filter(|rate| *rate > 0.0),
            ramp: plan.ramp.map(|ramp| RampLimits {
                first: ramp.first,
                factor: ramp.factor,
                cap: ramp.cap,
                failures: ramp.failures,
                timeout: Duration::from_millis(ramp.timeout),
            }),
        }),
        ("begin", None) => return Err(Unread::Garbage("it begins a run without its plan".to_owned())),
        ("pause", _) => RunStep::Pause,
        ("resume", _) => RunStep::Resume,
        ("stop", _) => RunStep::Stop { why: owned(json.why).unwrap_or_default() },
        ("close", _) => RunStep::Close,
        ("climb", _) => RunStep::Climb { until: json.until.ok_or_else(|| garbage("until", "none"))? },
        ("finish", _) => RunStep::Finish,
        (other, _) => return Err(garbage("step", other)),
    };
    Ok(RunEntry { run: run_id(&json.run)?, by: json.by.into_owned(), at: UnixMillis(json.at), step })
}

fn audit(json: AuditJson<'_>) -> Result<Audit, Unread> {
    Ok(Audit {
        by: json.by.into_owned(),
        at: UnixMillis(json.at),
        what: json.what.into_owned(),
        id: json.id.map(|id| item_id(&id)).transpose()?,
        detail: owned(json.detail),
    })
}

pub(super) fn write(entry: &Entry) -> Vec<u8> {
    let json = match entry {
        Entry::Actions(actions) => serde_json::to_vec(&ActionsJson::from(actions)),
        Entry::Run(run) => serde_json::to_vec(&RunJson::from(run)),
        Entry::Outcome(outcome) => serde_json::to_vec(&OutcomeJson::from(outcome)),
        Entry::Audit(audit) => serde_json::to_vec(&AuditJson::from(audit)),
    };
    json.expect("names are text and a vector takes all bytes")
}

fn kind(name: &'static str) -> (u64, Cow<'static, str>) {
    (VERSION, Cow::Borrowed(name))
}

fn text(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

fn name(order: Order) -> (&'static str, bool) {
    match order {
        Order::Replay { forced } => ("replay", forced),
        Order::Discard => ("discard", false),
        Order::Reopen => ("reopen", false),
    }
}

impl<'a> From<&'a Actions> for ActionsJson<'a> {
    fn from(actions: &'a Actions) -> Self {
        let ((v, kind), (order, forced)) = (kind("actions"), name(actions.order));
        let is_replay = matches!(actions.order, Order::Replay { .. });
        let items = actions.items.iter().map(|item| OrderedJson {
            id: item.id.to_string().into(),
            seen: item.seen.map_or(-1, |seen| seen.0),
            round: is_replay.then_some(item.round.0),
            value: item.edited.as_ref().map(|value| STANDARD.encode(value).into()),
        });
        Self {
            v,
            kind,
            run: actions.run.to_string().into(),
            by: text(&actions.by),
            at: actions.at.0,
            order: text(order),
            forced,
            chunk: actions.chunk,
            reason: actions.reason.as_deref().map(text),
            items: items.collect(),
        }
    }
}

impl<'a> From<&'a RunEntry> for RunJson<'a> {
    fn from(run: &'a RunEntry) -> Self {
        let (v, kind) = kind("run");
        let (mut why, mut until, mut plan) = (None, None, None);
        let step = match &run.step {
            RunStep::Begin(of) => {
                plan = Some(PlanJson::from(of));
                "begin"
            }
            RunStep::Pause => "pause",
            RunStep::Resume => "resume",
            RunStep::Stop { why: reason } => {
                why = Some(text(reason));
                "stop"
            }
            RunStep::Close => "close",
            RunStep::Climb { until: many } => {
                until = Some(*many);
                "climb"
            }
            RunStep::Finish => "finish",
        };
        let (by, at) = (text(&run.by), run.at.0);
        Self { v, kind, run: run.run.to_string().into(), by, at, step: text(step), why, until, plan }
    }
}

impl<'a> From<&'a RunPlan> for PlanJson<'a> {
    fn from(plan: &'a RunPlan) -> Self {
        let (order, forced) = name(plan.order);
        let ramp = plan.ramp.map(|ramp| RampJson {
            first: ramp.first,
            factor: ramp.factor,
            cap: ramp.cap,
            failures: ramp.failures,
            timeout: millis(ramp.timeout),
        });
        Self {
            order: text(order),
            forced,
            total: plan.total,
            chunks: plan.chunks,
            selection: text(&plan.selection),
            rate: plan.rate,
            ramp,
        }
    }
}

impl<'a> From<&'a Audit> for AuditJson<'a> {
    fn from(audit: &'a Audit) -> Self {
        let (v, kind) = kind("audit");
        Self {
            v,
            kind,
            by: text(&audit.by),
            at: audit.at.0,
            what: text(&audit.what),
            id: audit.id.as_ref().map(|id| id.to_string().into()),
            detail: audit.detail.as_deref().map(text),
        }
    }
}
