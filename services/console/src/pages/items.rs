//! The list of items.

use axum::extract::State;
use maud::{Markup, html};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::fields::{Fields, Query, address, of_filter};
use crate::gate::Asker;
use crate::inbox::{Filter, ItemPage, ItemQuery, Row};
use crate::now;

use super::filters;
use super::format::{count, shortened, since};
use super::layout::{Page, Section};
use super::parts::{empty, kind, pager, shown_of, state};
use super::selection::{FORM, For, bar};

const PAGE: usize = 50;

pub(crate) fn query(fields: &Fields) -> Result<ItemQuery, Failure> {
    Ok(ItemQuery {
        filter: fields.filter()?,
        oldest_first: fields.get("order") == Some("oldest-first"),
        after: fields.get("after").map(str::to_owned),
        limit: PAGE,
    })
}

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    let (query, at) = (query(&fields)?, now());
    filters::check_search(&console, &asker, &query.filter)?;
    let asked = query.clone();
    let page = console.ask(move |inbox| inbox.items(&asked)).await?;
    let kept: Vec<_> = query.oldest_first.then(|| ("order", "oldest-first".to_owned())).into_iter().collect();
    let ticks = asker.may_act().then_some(FORM);
    let body = html! {
        header.over {
            h1 { "Items" }
            @if let Some(total) = page.total { p.lead.num { (count(total, "item", "items")) } }
        }
        (filters::form(&console, &asker, "/items", &query.filter, &[], order(&query)))
        @if page.items.is_empty() && page.next.is_none() {
            @if query.filter == Filter::default() {
                (empty("The inbox is empty", "No job has failed for good. When one does, it waits here for your decision.", Some(("/", "Overview"))))
            } @else {
                (empty("Nothing fits", "No item has all of these. Take a filter away to see more.", Some(("/items", "Clear all"))))
            }
        } @else {
            (table(&page, ticks, at))
            (pages(&page, &query, &kept))
            (bar(&asker, &For::List { filter: &query.filter, total: page.total }))
        }
    };
    Ok(Page { section: Section::Items, title: "Items", reload: None, body }.show(&console, &asker))
}

fn order(query: &ItemQuery) -> Markup {
    html! {
        label.choice {
            span.hidden { "Order" }
            select name="order" data-submit {
                option value="" { "Latest first" }
                option value="oldest-first" selected[query.oldest_first] { "Oldest first" }
            }
        }
    }
}

/// Items. With the name of a form, each has a tick that belongs to it.
pub(super) fn table(page: &ItemPage, ticks: Option<&str>, at: i64) -> Markup {
    html! {
        div.scroll {
            table.rows.items {
                thead { tr {
                    @if let Some(form) = ticks { th.tick { label { span.hidden { "Tick all of this page" } input type="checkbox" form=(form) data-tick-all; } } }
                    th scope="col" { "Failure" } th scope="col" { "Class" } th scope="col" { "State" }
                    th.num scope="col" { "Round" } th.num scope="col" { "Attempt" } th scope="col" { "Event" } th scope="col" { "Dead" }
                } }
                tbody { @for item in &page.items { (row(item, ticks, at)) } }
            }
        }
    }
}

fn row(item: &Row, ticks: Option<&str>, at: i64) -> Markup {
    let message = if item.message.is_empty() { "no message" } else { item.message.as_str() };
    let place = item.id.rsplit_once('/').map_or(item.id.as_str(), |(place, _)| place);
    html! {
        tr data-row {
            @if let Some(form) = ticks { td.tick { label { span.hidden { "Tick " (item.id) } input type="checkbox" name="item" value=(item.item) form=(form); } } }
            th scope="row" {
                a.title href={ "/items/" (item.item) } { (shortened(message, 120)) }
                div.under { (kind(item.kind.as_deref(), &item.code)) @if item.letters > 1 { span.tag { (item.letters) " letters" } } }
            }
            td data-label="Class" { @match &item.class { Some(class) => { span.tag { (class) } }, None => { span.none { "none" } } } }
            td data-label="State" { (state(&item.state)) }
            td.num data-label="Round" { (item.round) }
            td.num data-label="Attempt" { @match item.attempt { Some(attempt) => (attempt), None => { span.none { "–" } } } }
            td.place data-label="Event" { code { (place) } }
            td data-label="Dead" { (since(item.dead_at, at)) }
        }
    }
}

fn pages(page: &ItemPage, query: &ItemQuery, kept: &[(&'static str, String)]) -> Markup {
    let fields = || of_filter(&query.filter).into_iter().chain(kept.iter().cloned());
    let first = query.after.is_some().then(|| address("/items", fields()));
    let next = page.next.as_ref().map(|after| address("/items", fields().chain([("after", after.clone())])));
    let told = shown_of(page.items.len(), page.total, "item", "items");
    pager(first.as_deref(), next.as_deref(), &told)
}
