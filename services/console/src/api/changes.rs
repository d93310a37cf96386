//! What programs may change.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::gate::Asker;
use crate::inbox::{Begin, Filter, Order, Ramp, Selection, Steer};
use crate::mask::Shown;
use crate::pages;

use super::body::Body;
use super::parameters::NoParameters;
use super::reads::whole;

/// The body of `POST /plans`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    order: OrderName,
    /// Short names of items.
    #[serde(default)]
    items: Vec<String>,
    /// All that fit.
    filter: Option<WantedFilter>,
    #[serde(default)]
    forced: bool,
    /// Another event, of one item.
    event: Option<Value>,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderName {
    Replay,
    Discard,
    Reopen,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WantedFilter {
    states: Vec<String>,
    classes: Vec<String>,
    tiers: Vec<String>,
    kinds: Vec<String>,
    groups: Vec<String>,
    schemas: Vec<String>,
    handlers: Vec<String>,
    sources: Vec<String>,
    since: Option<i64>,
    until: Option<i64>,
    text: Option<String>,
}

impl From<WantedFilter> for Filter {
    fn from(wanted: WantedFilter) -> Self {
        let WantedFilter {
            states,
            classes,
            tiers,
            kinds,
            groups,
            schemas,
            handlers,
            sources,
            since,
            until,
            text,
        } = wanted;
        Self {
            states,
            classes,
            tiers,
            kinds,
            fingerprints: groups,
            schemas,
            handlers,
            sources,
            since,
            until,
            text,
        }
    }
}

impl Wanted {
    fn read(self) -> Result<(Order, Selection), Failure> {
        let reason = self.reason.map(|reason| reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        let missing = || Failure::bad_request("`reason` is missing: say why.");
        let order = match self.order {
            OrderName::Replay if self.forced && reason.is_none() => return Err(missing()),
            OrderName::Replay => Order::Replay {
                forced: self.forced,
                edited: self.event.map(|event| event.to_string()),
                reason,
            },
            OrderName::Discard => Order::Discard { reason: reason.ok_or_else(missing)? },
            OrderName::Reopen => Order::Reopen { reason: reason.ok_or_else(missing)? },
        };
        match (self.items.is_empty(), self.filter) {
            (false, None) => Ok((order, Selection { items: self.items, filter: Filter::default() })),
            (true, Some(filter)) => Ok((order, Selection { items: Vec::new(), filter: filter.into() })),
            _ => Err(Failure::bad_request("Give either `items` or `filter`; an empty filter is all items.")),
        }
    }
}

pub(super) async fn prepare(
    _: NoParameters,
    State(console): State<Console>,
    asker: Asker,
    Body(wanted): Body<Wanted>,
) -> Answer {
    let (order, selection) = wanted.read()?;
    let by = asker.visitor()?.name.clone();
    let plan = console.ask(move |inbox| inbox.prepare(&by, &order, &selection)).await?;
    Ok((StatusCode::CREATED, Json(plan)).into_response())
}

/// The body of `POST /plans/{plan}/run`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pace {
    rate: Option<f64>,
    ramp: Option<WantedRamp>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WantedRamp {
    first: u32,
    factor: u32,
    failures: f64,
    timeout_seconds: u64,
}

impl Default for WantedRamp {
    fn default() -> Self {
        Self { first: 1, factor: 5, failures: 0.1, timeout_seconds: 120 }
    }
}

impl Pace {
    fn read(self) -> Result<Begin, Failure> {
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return Err(Failure::bad_request("`rate` must be above 0."));
        }
        let ramp = self.ramp.map(|ramp| {
            let fits = ramp.first > 0
                && ramp.factor > 0
                && ramp.timeout_seconds > 0
                && (0.0..=1.0).contains(&ramp.failures);
            let WantedRamp { first, factor, failures, timeout_seconds } = ramp;
            let timeout = Duration::from_secs(timeout_seconds);
            fits.then_some(Ramp { first, factor, failures, timeout }).ok_or_else(|| {
                Failure::bad_request(
                    "`ramp` needs first, factor and timeout_seconds above 0, and failures from 0 to 1.",
                )
            })
        });
        Ok(Begin { rate: self.rate, ramp: ramp.transpose()? })
    }
}

pub(super) async fn carry_out(
    _: NoParameters,
    State(console): State<Console>,
    asker: Asker,
    Path(id): Path<String>,
    Body(pace): Body<Pace>,
) -> Answer {
    let begin = pace.read()?;
    let by = asker.visitor()?.name.clone();
    let run = console.ask(move |inbox| inbox.carry_out(&by, &id, &begin)).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "run": run }))).into_response())
}

/// The body of `POST /runs/{run}/steer`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedSteer {
    steer: SteerName,
    why: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SteerName {
    Pause,
    Resume,
    Stop,
}

pub(super) async fn steer(
    _: NoParameters,
    State(console): State<Console>,
    asker: Asker,
    Path(id): Path<String>,
    Body(wanted): Body<WantedSteer>,
) -> Answer {
    let steer = match wanted.steer {
        SteerName::Pause => Steer::Pause,
        SteerName::Resume => Steer::Resume,
        SteerName::Stop => {
            Steer::Stop { why: wanted.why.unwrap_or_else(|| "an operator stopped it".to_owned()) }
        }
    };
    let by = asker.visitor()?.name.clone();
    console.ask(move |inbox| inbox.steer(&by, &id, &steer)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The whole content of an item, after that is written down.
pub(super) async fn reveal(
    _: NoParameters,
    State(console): State<Console>,
    asker: Asker,
    Path(name): Path<String>,
) -> Answer {
    let (item, content) = pages::item::revealed(&console, &asker, name).await?;
    Ok(Json(whole(&item, &content, Shown::Whole)?).into_response())
}
