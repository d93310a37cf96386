//! The groups: what breaks, the worst first.

use axum::extract::State;
use maud::{Markup, html};

use crate::Console;
use crate::failure::Answer;
use crate::fields::{Fields, Query, address, of_filter};
use crate::gate::Asker;
use crate::inbox::{By, Filter, Group, GroupPage, GroupQuery, Sort};
use crate::now;

use super::filters;
use super::format::{clock, count, number, shortened, since, when};
use super::layout::{Page, Section};
use super::parts::{empty, kind, names, pager, shown_of, sparkline, state};

const PAGE: usize = 50;

/// Items that wait for a decision.
pub(super) fn waiting() -> Filter {
    Filter { states: vec!["open".to_owned(), "failed-again".to_owned()], ..Filter::default() }
}

pub(crate) fn query(fields: &Fields) -> Result<GroupQuery, crate::failure::Failure> {
    Ok(GroupQuery {
        filter: fields.filter()?,
        by: fields.get("by").and_then(By::from_name).unwrap_or_default(),
        sort: fields.get("sort").and_then(Sort::from_name).unwrap_or_default(),
        skip: fields.number("skip")?.unwrap_or(0),
        limit: PAGE,
        now: now(),
    })
}

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    let query = query(&fields)?;
    filters::check_search(&console, &asker, &query.filter)?;
    let asked = query.clone();
    let page = console.ask(move |inbox| inbox.groups(&asked)).await?;
    let kept = kept(&query);
    let body = html! {
        header.over {
            h1 { "Groups" }
            p.lead { (told(&page, &query)) }
        }
        (filters::form(&console, &asker, "/groups", &query.filter, &[], choices(&query)))
        @if page.groups.is_empty() {
            @if query.filter == Filter::default() {
                (empty("Nothing is dead-lettered here", "When a job fails for good, its cause shows up here, with all that share it.", Some(("/", "Overview"))))
            } @else {
                (empty("Nothing fits", "No item has all of these. Take a filter away to see more.", Some(("/groups", "Clear all"))))
            }
        } @else if query.by == By::Fingerprint {
            (table(&page, query.now))
        } @else {
            (table_by(&page, query.by, query.now))
        }
        (pages(&page, &query, &kept))
    };
    Ok(Page { section: Section::Groups, title: "Groups", reload: None, body }.show(&console, &asker))
}

fn kept(query: &GroupQuery) -> Vec<(&'static str, String)> {
    vec![("by", query.by.as_str().to_owned()), ("sort", query.sort.as_str().to_owned())]
}

/// A bad deploy at a glance: `4,812 items, 1 cause, since 02:14`.
fn told(page: &GroupPage, query: &GroupQuery) -> String {
    let items = count(page.items, "item", "items");
    let items = if page.partly { format!("The latest {items} of more") } else { items };
    let what = if query.by == By::Fingerprint { ("cause", "causes") } else { ("group", "groups") };
    let groups = count(page.total as u64, what.0, what.1);
    let whole = page.groups.len() == page.total;
    let first = page.groups.iter().map(|group| group.since()).min().filter(|_| whole);
    let since = first.map(|first| format!(", since {}", clock(first, query.now))).unwrap_or_default();
    format!("{items}, {groups}{since}")
}

fn choices(query: &GroupQuery) -> Markup {
    const BY: [(&str, &str); 7] = [
        ("fingerprint", "By cause"),
        ("class", "By class"),
        ("tier", "By tier"),
        ("kind", "By kind"),
        ("schema", "By schema"),
        ("handler", "By handler"),
        ("source", "By source topic"),
    ];
    const SORT: [(&str, &str); 3] =
        [("waiting", "Most waiting first"), ("latest", "Latest first"), ("items", "Largest first")];
    let choice = |name: &str, label: &str, options: &[(&str, &str)], chosen: &str| {
        html! {
            label.choice {
                span.hidden { (label) }
                select name=(name) data-submit {
                    @for (value, label) in options { option value=(value) selected[*value == chosen] { (label) } }
                }
            }
        }
    };
    html! {
        (choice("by", "Group by", &BY, query.by.as_str()))
        (choice("sort", "Order", &SORT, query.sort.as_str()))
    }
}

/// Groups by cause.
pub(super) fn table(page: &GroupPage, at: i64) -> Markup {
    html! {
        div.scroll {
            table.rows.groups {
                thead { tr {
                    th scope="col" { "Cause" } th scope="col" { "Classes" }
                    th.num scope="col" { "Waiting" } th.num scope="col" { "Items" }
                    th scope="col" { "Last 24 h" } th scope="col" { "Since" } th scope="col" { "Last" }
                } }
                tbody { @for group in &page.groups { (row(group, at)) } }
            }
        }
    }
}

fn row(group: &Group, at: i64) -> Markup {
    let title = if group.message.is_empty() { "no message" } else { group.message.as_str() };
    let codes = group.codes.first().map(String::as_str).unwrap_or_default();
    html! {
        tr data-row {
            th scope="row" {
                a.title href={ "/groups/" (group.key) } { (shortened(title, 140)) }
                div.under {
                    (kind(group.kinds.first().map(String::as_str), codes))
                    @if group.state.as_deref() == Some("regressed") { (state("regressed")) }
                    @if group.late > 0 { span { (late(group)) } }
                }
            }
            td data-label="Classes" { (names(&group.classes)) @if group.classes.is_empty() { span.none { "none" } } }
            td.num.bad[group.waiting > 0] data-label="Waiting" { (number(group.waiting)) }
            td.num data-label="Items" { (number(group.items)) }
            td data-label="Last 24 h" { (sparkline(&group.sparkline, &spark_label(group))) }
            td data-label="Since" { (when(group.since(), at)) }
            td data-label="Last" { (since(group.last_dead_at, at)) }
        }
    }
}

/// What failed although it had ended: nothing of it waits, so that no count of those that wait tells it.
pub(super) fn late(group: &Group) -> String {
    format!("{} failed again after the end", count(group.late, "item", "items"))
}

pub(super) fn spark_label(group: &Group) -> String {
    format!("{} in 24 hours", count(group.sparkline.iter().sum(), "letter", "letters"))
}

/// Groups by anything else: each leads to its causes.
fn table_by(page: &GroupPage, by: By, at: i64) -> Markup {
    html! {
        div.scroll {
            table.rows.groups {
                thead { tr {
                    th scope="col" { (heading(by)) } th.num scope="col" { "Causes" }
                    th.num scope="col" { "Waiting" } th.num scope="col" { "Items" }
                    th scope="col" { "Last 24 h" } th scope="col" { "Since" } th scope="col" { "Last" }
                } }
                tbody {
                    @for group in &page.groups {
                        tr data-row {
                            th scope="row" { a.title href=(address("/groups", [(by.as_str(), group.key.clone())])) { (if group.key == "-" { "none" } else { group.key.as_str() }) } }
                            td.num data-label="Causes" { (number(group.causes as u64)) }
                            td.num.bad[group.waiting > 0] data-label="Waiting" { (number(group.waiting)) }
                            td.num data-label="Items" { (number(group.items)) }
                            td data-label="Last 24 h" { (sparkline(&group.sparkline, &spark_label(group))) }
                            td data-label="Since" { (when(group.since(), at)) }
                            td data-label="Last" { (since(group.last_dead_at, at)) }
                        }
                    }
                }
            }
        }
    }
}

fn heading(by: By) -> &'static str {
    match by {
        By::Fingerprint => "Cause",
        By::Class => "Class",
        By::Tier => "Tier",
        By::Kind => "Kind",
        By::Schema => "Schema",
        By::Handler => "Handler",
        By::Source => "Source topic",
    }
}

fn pages(page: &GroupPage, query: &GroupQuery, kept: &[(&'static str, String)]) -> Markup {
    let fields = || of_filter(&query.filter).into_iter().chain(kept.iter().cloned());
    let behind = query.skip + page.groups.len();
    let first = (query.skip > 0).then(|| address("/groups", fields()));
    let next =
        (behind < page.total).then(|| address("/groups", fields().chain([("skip", behind.to_string())])));
    if first.is_none() && next.is_none() {
        return html! {};
    }
    let told = shown_of(page.groups.len(), Some(page.total as u64), "group", "groups");
    pager(first.as_deref(), next.as_deref(), &told)
}
