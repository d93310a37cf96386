//! What operators did, and who looked at what is masked.

use axum::extract::State;
use maud::{Markup, html};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::fields::{Fields, Query, address};
use crate::gate::Asker;
use crate::inbox::{History, HistoryPage, HistoryQuery};
use crate::now;

use super::filters::hide_search;
use super::format::{count, number, selection, when};
use super::layout::{Page, Section};
use super::parts::{empty, pager};

const PAGE: usize = 100;

pub(crate) fn query(fields: &Fields) -> HistoryQuery {
    HistoryQuery {
        by: fields.get("by").map(str::to_owned),
        what: fields.get("what").map(str::to_owned),
        after: fields.get("after").map(str::to_owned),
        limit: PAGE,
    }
}

pub(crate) async fn read(
    console: &Console,
    asker: &Asker,
    query: HistoryQuery,
) -> Result<HistoryPage, Failure> {
    let mut page = console.ask(move |inbox| inbox.history(&query)).await?;
    page.entries
        .iter_mut()
        .filter_map(|entry| entry.reason.as_mut())
        .for_each(|why| hide_search(console, asker, why));
    Ok(page)
}

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    let (query, at) = (query(&fields), now());
    let page = read(&console, &asker, query.clone()).await?;
    let kept = || {
        let by = query.by.clone().map(|by| ("by", by));
        by.into_iter().chain(query.what.clone().map(|what| ("what", what)))
    };
    let first = query.after.is_some().then(|| address("/history", kept()));
    let next = page.next.as_ref().map(|after| address("/history", kept().chain([("after", after.clone())])));
    let is_filtered = query.by.is_some() || query.what.is_some();
    let body = html! {
        header.over { h1 { "History" } p.lead { "Everything that operators did, and every look at what is masked. Kept for ever, in the journal." } }
        @if is_filtered { p { a.button.plain href="/history" { "Show all" } } }
        @if page.entries.is_empty() {
            (empty("Nobody has done anything yet", "Replays, discards and reveals show up here, each with a name.", Some(("/groups", "Groups"))))
        } @else {
            div.scroll {
                table.rows.history {
                    thead { tr {
                        th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "What" }
                        th.num scope="col" { "Items" } th scope="col" { "Why" } th scope="col" { "Of" }
                    } }
                    tbody { @for entry in &page.entries { (row(entry, at)) } }
                }
            }
            (pager(first.as_deref(), next.as_deref(), &count(page.entries.len() as u64, "entry", "entries")))
        }
    };
    Ok(Page { section: Section::History, title: "History", reload: None, body }.show(&console, &asker))
}

fn row(entry: &History, at: i64) -> Markup {
    html! {
        tr data-row {
            th scope="row" { (when(entry.time, at)) }
            td data-label="Who" { a href=(address("/history", [("by", entry.by.clone())])) { (entry.by) } }
            td data-label="What" { a.tag href=(address("/history", [("what", entry.what.clone())])) { (entry.what) } }
            td.num data-label="Items" {
                @if entry.items > 0 {
                    (number(entry.items))
                    @if is_order(&entry.what) && entry.accepted < entry.items { span.fine { ", " (number(entry.accepted)) " count" } }
                } @else { span.none { "–" } }
            }
            td.long data-label="Why" { @match &entry.reason { Some(reason) => (selection(reason)), None => { span.none { "–" } } } }
            td.long data-label="Of" {
                @if let Some(run) = &entry.run { a href={ "/replays/" (run) } { "run " code { (run) } } }
                @if let Some(item) = &entry.item { div.fine { code { (item) } } }
                @if entry.run.is_none() && entry.item.is_none() { span.none { "–" } }
            }
        }
    }
}

/// Whether it is an order about items, which counts for some of them: the others are about a run.
fn is_order(what: &str) -> bool {
    matches!(what, "replay" | "forced replay" | "discard" | "reopen")
}
