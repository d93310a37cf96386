//! What programs may look at.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::fields::Query;
use crate::gate::Asker;
use crate::inbox::{By, Content, Event, Item, Sort};
use crate::mask::{Shown, mask};
use crate::now;
use crate::pages::{self, check_search};

use super::parameters::{Known, NoParameters, check_choice, limit};

const GROUPS: Known = Known { filter: true, others: &["by", "sort", "skip", "limit"] };
const ITEMS: Known = Known { filter: true, others: &["order", "after", "limit"] };
const RUNS: Known = Known { filter: false, others: &["limit"] };
const HISTORY: Known = Known { filter: false, others: &["by", "what", "after", "limit"] };

fn answer(value: impl serde::Serialize) -> Answer {
    Ok(Json(value).into_response())
}

pub(super) async fn overview(_: NoParameters, State(console): State<Console>) -> Answer {
    let at = now();
    let overview = console.ask(move |inbox| inbox.overview(at)).await?;
    let figures = console.figures().latest();
    answer(json!({ "inbox": overview, "figures": *figures }))
}

pub(super) async fn groups(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    GROUPS.check(&fields)?;
    check_choice(&fields, "by", &By::ALL.map(By::as_str))?;
    check_choice(&fields, "sort", &Sort::ALL.map(Sort::as_str))?;
    let mut query = pages::groups::query(&fields)?;
    query.limit = limit(&fields, query.limit)?;
    check_search(&console, &asker, &query.filter)?;
    answer(console.ask(move |inbox| inbox.groups(&query)).await?)
}

pub(super) async fn items(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    ITEMS.check(&fields)?;
    check_choice(&fields, "order", &["newest-first", "oldest-first"])?;
    let mut query = pages::items::query(&fields)?;
    query.limit = limit(&fields, query.limit)?;
    check_search(&console, &asker, &query.filter)?;
    answer(console.ask(move |inbox| inbox.items(&query)).await?)
}

pub(super) async fn item(
    _: NoParameters,
    State(console): State<Console>,
    Path(name): Path<String>,
) -> Answer {
    let (item, content) = pages::item::find(&console, name).await?;
    let (content, shown) = mask(content, &console.settings().masked);
    answer(whole(&item, &content, shown)?)
}

/// An item with what its latest letter holds.
pub(super) fn whole(item: &Item, content: &Content, much: Shown) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(item).map_err(|_| Failure::broken())?;
    let event = match &content.event {
        Event::Decoded { schema, json } => json!({ "schema": schema, "event": json }),
        Event::Undecodable { reason } => json!({ "undecodable": reason }),
        Event::Absent { reason } => json!({ "absent": reason }),
    };
    let headers = content.headers.iter().map(|header| {
        json!({ "name": String::from_utf8_lossy(&header.name), "value": super::body::bytes(header.value.as_deref()) })
    });
    let content = json!({
        "masked": much == Shown::Masked,
        "event": event,
        "key": super::body::bytes(content.key.as_deref()),
        "value": super::body::bytes(content.value.as_deref()),
        "headers": headers.collect::<Vec<_>>(),
    });
    if let Value::Object(fields) = &mut value {
        fields.insert("content".to_owned(), content);
    }
    Ok(value)
}

pub(super) async fn plan(_: NoParameters, State(console): State<Console>, Path(id): Path<String>) -> Answer {
    answer(pages::plan::find(&console, id).await?)
}

pub(super) async fn runs(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    RUNS.check(&fields)?;
    let limit = limit(&fields, 100)?;
    answer(json!({ "runs": pages::runs::all(&console, &asker, limit).await? }))
}

pub(super) async fn run(
    _: NoParameters,
    State(console): State<Console>,
    asker: Asker,
    Path(id): Path<String>,
) -> Answer {
    answer(pages::runs::find(&console, &asker, id).await?)
}

pub(super) async fn history(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    HISTORY.check(&fields)?;
    let mut query = pages::history::query(&fields);
    query.limit = limit(&fields, query.limit)?;
    answer(pages::history::read(&console, &asker, query).await?)
}
