//! One item: its event, why it failed, and all that happened to it.

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use tidegate_domain::inbox::Void;

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::gate::Asker;
use crate::inbox::{Audit, Content, Event, Header, Item, JournalEntry, Letter};
use crate::mask::{Shown, is_ours, mask};
use crate::now;

use super::format::{count, exact, hex_dump, readable, since, size, when};
use super::layout::{Page, Section};
use super::parts::{kind, state};
use super::selection::{For, bar};

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Path(name): Path<String>) -> Answer {
    let (item, content) = find(&console, name).await?;
    let (content, shown) = mask(content, &console.settings().masked);
    Ok(page(&console, &asker, &item, &content, shown))
}

/// Shows what is masked, after that is written down.
pub(crate) async fn reveal(State(console): State<Console>, asker: Asker, Path(name): Path<String>) -> Answer {
    let (item, content) = revealed(&console, &asker, name).await?;
    Ok(page(&console, &asker, &item, &content, Shown::Whole))
}

/// The whole content of an item. The journal has who looked at it before it is shown.
pub(crate) async fn revealed(
    console: &Console,
    asker: &Asker,
    name: String,
) -> Result<(Item, Content), Failure> {
    let (item, content) = find(console, name).await?;
    let by = asker.visitor()?.name.clone();
    let audit = Audit { what: "reveal", item: Some(item.row.id.clone()), detail: None };
    console.ask(move |inbox| inbox.note(&by, &audit)).await?;
    Ok((item, content))
}

pub(crate) async fn find(console: &Console, name: String) -> Result<(Item, Content), Failure> {
    let missing = || {
        Failure::missing("No item has this name. Perhaps its letters are no longer in the dead-letter topic.")
    };
    console.ask(move |inbox| inbox.item(&name)).await?.ok_or_else(missing)
}

fn page(console: &Console, asker: &Asker, item: &Item, content: &Content, much: Shown) -> Response {
    let at = now();
    let body = html! {
        (head(item, at))
        (bar(asker, &For::Item { item: &item.row.item, state: &item.row.state }))
        div.columns {
            div.wide {
                (event(asker, item, content, much))
                (failures(&item.occurrences, at))
                (happened(&item.journal, at))
            }
            aside { (facts(item, at)) (headers(content)) }
        }
    };
    Page { section: Section::Items, title: "Item", reload: None, body }.show(console, asker)
}

fn head(item: &Item, at: i64) -> Markup {
    let row = &item.row;
    let message = if row.message.is_empty() { "no message" } else { row.message.as_str() };
    html! {
        nav.crumbs aria-label="Where you are" {
            a href="/groups" { "Groups" }
            a href={ "/groups/" (row.fingerprint) } { (row.fingerprint) }
            span { (row.id) }
        }
        header.subject {
            h1.message { (message) }
            p.under {
                (state(&row.state)) (kind(row.kind.as_deref(), &row.code))
                @if let Some(class) = &row.class { span.tag { (class) } }
                span { "dead-lettered " (since(row.dead_at, at)) }
                @if let Some(until) = item.waiting_until { span { "next attempt at " (when(until, at)) } }
            }
            @if let Some(late) = item.late {
                p.hint {
                    "It failed again at " (when(late, at)) ", after its end, and is left as it is. "
                    @if row.state == "discarded" { "Reopen it to decide anew." }
                    @else { "If its effect is not there, a forced replay runs it again." }
                }
            }
        }
    }
}

fn event(asker: &Asker, item: &Item, content: &Content, much: Shown) -> Markup {
    html! {
        section.card aria-labelledby="event" {
            header {
                h2 #event { "Event" }
                @if let Event::Decoded { schema, .. } = &content.event { p { code { (schema) } @if let Some(id) = item.row.schema_id { ", schema " (id) } } }
            }
            @match &content.event {
                Event::Decoded { json, .. } => { pre.json tabindex="0" { (pretty(json)) } },
                Event::Undecodable { reason } => { p.note { "It can't be decoded: " (reason) } },
                Event::Absent { reason } => { p.note { (reason) } },
            }
            @if much == Shown::Masked { (masked(asker, item)) } @else { (bytes(content)) }
            @if let (Event::Decoded { json, .. }, Shown::Whole, true) = (&content.event, much, may_edit(asker, item)) { (edit(asker, item, json)) }
        }
    }
}

fn pretty(json: &serde_json::Value) -> String {
    serde_json::to_string_pretty(json).unwrap_or_else(|error| error.to_string())
}

fn masked(asker: &Asker, item: &Item) -> Markup {
    html! {
        div.masked {
            p { "Parts of this event are masked, and so are its bytes." }
            @if asker.may_act() {
                form method="post" action={ "/items/" (item.row.item) "/reveal" } {
                    input type="hidden" name="csrf" value=(asker.csrf());
                    button.plain type="submit" { "Reveal, and write that down" }
                }
            } @else { p.hint { "An operator can reveal them." } }
        }
    }
}

fn bytes(content: &Content) -> Markup {
    let undecodable = !matches!(content.event, Event::Decoded { .. });
    html! {
        @if let Some(value) = &content.value {
            details open[undecodable] {
                summary { "Bytes of the value, " (size(value.len() as u64)) }
                pre.hex tabindex="0" { (hex_dump(value)) }
            }
        }
    }
}

fn may_edit(asker: &Asker, item: &Item) -> bool {
    asker.may_act() && matches!(item.row.state.as_str(), "open" | "failed-again")
}

fn edit(asker: &Asker, item: &Item, json: &serde_json::Value) -> Markup {
    html! {
        details {
            summary { "Edit and replay" }
            form method="post" action="/plans" {
                input type="hidden" name="csrf" value=(asker.csrf());
                input type="hidden" name="scope" value="items";
                input type="hidden" name="item" value=(item.row.item);
                label { span { "The event as it should have been. The original is kept; the replay is marked as edited." }
                    textarea name="event" rows="14" spellcheck="false" autocomplete="off" { (pretty(json)) }
                }
                button.primary type="submit" name="order" value="replay" { "Replay the edited event…" }
            }
        }
    }
}

fn failures(letters: &[Letter], at: i64) -> Markup {
    html! {
        section.card aria-labelledby="attempts" {
            header { h2 #attempts { "Attempts" } p { (count(letters.len() as u64, "dead letter", "dead letters")) } }
            ol.line {
                @for letter in letters {
                    li.failed {
                        p.what {
                            strong { "Round " (letter.round) @if let Some(attempt) = letter.attempt { ", attempt " (attempt) } }
                            " " (kind(letter.failure.kind.as_deref(), &letter.failure.code))
                            @if letter.forced { span.tag { "forced" } }
                            span.time { (when(letter.dead_at, at)) }
                        }
                        p.said { (letter.failure.message) }
                        @if let Some(first) = &letter.first_error { p.said.first { span.label { "First failure" } (first) } }
                        @if let Some(stub) = &letter.stub { p.note { (stub) } }
                        p.fine {
                            "Letter " code { (letter.record) }
                            @if let Some(bytes) = letter.value_bytes { ", " (size(bytes)) }
                            @if let Some(first) = letter.first_seen { ", first seen " (when(first, at)) }
                        }
                    }
                }
            }
        }
    }
}

fn happened(journal: &[JournalEntry], at: i64) -> Markup {
    html! {
        section.card aria-labelledby="journal" {
            header { h2 #journal { "What was done" } }
            @if journal.is_empty() { p.hint { "Nobody has done anything with it yet." } }
            @else {
                ol.line {
                    @for entry in journal {
                        li.void[entry.void.is_some()] {
                            p.what {
                                strong { (entry.what) }
                                @if let Some(round) = entry.round { " round " (round) }
                                @if let Some(by) = &entry.by { " by " span.name { (by) } }
                                @if let Some(run) = &entry.run { " " a href={ "/replays/" (run) } { "run " (run) } }
                                span.time { (when(entry.time, at)) }
                            }
                            @if let Some(detail) = &entry.detail { p.said { (detail) } }
                            @if let Some(void) = &entry.void { p.note { "It does not count: " (Void::words(void)) } }
                        }
                    }
                }
            }
        }
    }
}

fn facts(item: &Item, at: i64) -> Markup {
    let trace = item.occurrences.iter().find_map(|letter| letter.trace.as_deref());
    let plain: [(&str, Option<String>); 7] = [
        ("Source topic", Some(item.source.topic.clone())),
        ("Partition, offset", Some(format!("{} / {}", item.source.partition, item.source.offset))),
        ("Class", item.row.class.clone()),
        ("Tier", item.row.tier.clone()),
        ("Handler", item.handler.clone()),
        ("Idempotency key", item.row.key.clone()),
        ("Trace", trace.map(str::to_owned)),
    ];
    html! {
        section.card aria-labelledby="facts" {
            header { h2 #facts { "Facts" } }
            dl.facts.stacked {
                @for (label, value) in plain {
                    @if let Some(value) = value { div { dt { (label) } dd { code { (value) } } } }
                }
                div { dt { "First dead" } dd { time title=(exact(item.row.first_dead_at)) { (when(item.row.first_dead_at, at)) } } }
                div { dt { "Item" } dd { code { (item.row.item) } } }
            }
        }
    }
}

fn headers(content: &Content) -> Markup {
    let (ours, of_source): (Vec<&Header>, Vec<&Header>) =
        content.headers.iter().partition(|header| is_ours(&header.name));
    html! {
        section.card aria-labelledby="headers" {
            header { h2 #headers { "Key and headers" } }
            dl.facts.stacked {
                div { dt { "key" } dd { (shown(content.key.as_deref())) } }
                @for header in of_source { (one(header)) }
            }
            @if !ours.is_empty() {
                details {
                    summary { (count(ours.len() as u64, "header", "headers")) " of tidegate’s own" }
                    dl.facts.stacked { @for header in ours { (one(header)) } }
                }
            }
        }
    }
}

fn one(header: &Header) -> Markup {
    html! { div { dt { (String::from_utf8_lossy(&header.name)) } dd { (shown(header.value.as_deref())) } } }
}

/// Text as text, other bytes as hex, null as null.
fn shown(bytes: Option<&[u8]>) -> Markup {
    html! {
        @match bytes {
            None => { span.none { "null" } },
            Some([]) => { span.none { "empty" } },
            Some(bytes) => @match readable(bytes) {
                Some(text) => { code { (text) } },
                None => { pre.hex { (hex_dump(bytes)) } },
            },
        }
    }
}
