//! One group: what its items have in common, and the latest of them.

use axum::extract::{Path, State};
use maud::{Markup, html};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::fields::{address, of_filter};
use crate::gate::Asker;
use crate::inbox::{Filter, Group, GroupQuery, ItemPage, ItemQuery};
use crate::now;

use super::format::{count, since, when};
use super::groups::{late, spark_label};
use super::items;
use super::layout::{Page, Section};
use super::parts::{chart, kind, state, states};
use super::selection::{For, bar};

/// So many items are shown here.
const LATEST: usize = 10;

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Path(key): Path<String>) -> Answer {
    let at = now();
    let filter = Filter { fingerprints: vec![key], ..Filter::default() };
    let asked = filter.clone();
    let (groups, latest) = console
        .ask(move |inbox| {
            let query = GroupQuery { filter: asked.clone(), limit: 1, now: at, ..GroupQuery::default() };
            let items = ItemQuery { filter: asked, limit: LATEST, ..ItemQuery::default() };
            Ok((inbox.groups(&query)?, inbox.items(&items)?))
        })
        .await?;
    let Some(group) = groups.groups.into_iter().next() else {
        return Err(Failure::missing(
            "No group has this fingerprint. Perhaps its letters are no longer in the dead-letter topic.",
        ));
    };
    let waiting = Filter { states: super::groups::waiting().states, ..filter.clone() };
    let body = html! {
        (head(&group, at))
        (facts(&group))
        section aria-labelledby="act-heading" {
            h2.hidden #act-heading { "Act" }
            @if group.waiting > 0 { (bar(&asker, &For::All { filter: &waiting, total: group.waiting })) }
            @else { p.hint { "No item of this group waits for a decision." } }
            @if group.late > 0 {
                p.hint { (late(&group)) ": it was done or discarded before. It is left so until somebody decides otherwise." }
            }
        }
        (list(&latest, &filter, at))
    };
    Ok(Page { section: Section::Groups, title: "Group", reload: None, body }.show(&console, &asker))
}

fn head(group: &Group, at: i64) -> Markup {
    let title = if group.message.is_empty() { "no message" } else { group.message.as_str() };
    html! {
        nav.crumbs aria-label="Where you are" { a href="/groups" { "Groups" } span { (group.key) } }
        header.subject {
            h1.message { (title) }
            p.under {
                @for (place, name) in group.kinds.iter().enumerate() {
                    (kind(Some(name), group.codes.get(place).map(String::as_str).unwrap_or_default()))
                }
                @if let Some(name) = &group.state { (state(name)) }
            }
            p.lead {
                strong.num { (count(group.items, "item", "items")) }
                ", since " (when(group.since(), at)) ", the last " (since(group.last_dead_at, at)) "."
            }
            (states(&group.states))
        }
        section.card.trend { header { h2 { "Last 24 hours" } p { (spark_label(group)) } } (chart(&group.sparkline, &spark_label(group))) }
    }
}

/// What the group's items have in common, each value with a link to the groups that share it.
fn facts(group: &Group) -> Markup {
    let schemas: Vec<String> = group.schemas.iter().map(u32::to_string).collect();
    let rows: [(&str, &'static str, &[String]); 6] = [
        ("Classes", "class", &group.classes),
        ("Tiers", "tier", &group.tiers),
        ("Kinds", "kind", &group.kinds),
        ("Source topics", "source", &group.sources),
        ("Schemas", "schema", &schemas),
        ("Handlers", "handler", &group.handlers),
    ];
    html! {
        dl.facts {
            @for (label, field, values) in rows {
                @if !values.is_empty() {
                    div { dt { (label) } dd { @for value in values { a.tag href=(address("/groups", [(field, value.clone())])) { (value) } } } }
                }
            }
            div { dt { "Fingerprint" } dd { code { (group.key) } } }
        }
    }
}

fn list(latest: &ItemPage, filter: &Filter, at: i64) -> Markup {
    let all = address("/items", of_filter(filter));
    html! {
        section aria-labelledby="latest" {
            header.over { h2 #latest { "Latest items" } a href=(all) { "All items of this group" } }
            (items::table(latest, None, at))
        }
    }
}
