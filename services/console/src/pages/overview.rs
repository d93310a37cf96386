//! The first page: what waits for a decision, and how the classes do.

use axum::extract::State;
use maud::{Markup, html};

use crate::Console;
use crate::failure::Answer;
use crate::figures::{ClassFigures, Snapshot, TierFigures};
use crate::gate::Asker;
use crate::inbox::{ClassRow, GroupPage, GroupQuery, Overview};
use crate::now;

use super::format::{clock, count, number, percent, rough, since};
use super::groups;
use super::layout::{Page, Section};
use super::parts::{chart, empty};

/// So many groups are shown here.
const WORST: usize = 5;

pub(crate) async fn show(State(console): State<Console>, asker: Asker) -> Answer {
    let at = now();
    let query = GroupQuery { limit: WORST, now: at, filter: groups::waiting(), ..GroupQuery::default() };
    let (overview, worst) =
        console.ask(move |inbox| Ok((inbox.overview(at)?, inbox.groups(&query)?))).await?;
    let figures = console.figures().latest();
    let body = html! {
        (headline(&overview, at))
        (trend(&overview, at))
        (causes(&worst, at))
        (classes(&console, &overview, &figures, at))
        (sources(&overview, &figures, at))
    };
    // Somebody may wait in front of it for what it can't show yet.
    let reload = if overview.behind > 0 || overview.problem.is_some() { 3 } else { 15 };
    let page = Page { section: Section::Overview, title: "Overview", reload: Some(reload), body };
    Ok(page.show(&console, &asker))
}

fn headline(overview: &Overview, at: i64) -> Markup {
    let state = |name: &str| overview.states.get(name).copied().unwrap_or(0);
    let today: u64 = overview.trend.iter().map(|step| step.letters).sum();
    let last = overview.classes.iter().filter_map(|class| class.last_dead_at).max();
    html! {
        div.headline {
            @if overview.waiting > 0 {
                h1 { span.num { (count(overview.waiting, "item waits", "items wait")) } " for a decision" }
                p.lead {
                    span.num { (count(overview.open_groups as u64, "cause", "causes")) }
                    @if let Some(last) = last { ", the last failure " (since(last, at)) }
                    "."
                }
            } @else if overview.problem.is_some() {
                h1 { "The inbox can’t be read now" }
                p.lead { "What waits for you is not known. This page fills up when Kafka answers again." }
            } @else if overview.behind > 0 {
                h1 { "The inbox is being read" }
                p.lead { "The index is filled from Kafka, which takes a moment the first time." }
            } @else {
                h1 { "Nothing waits for you" }
                p.lead {
                    "Every dead letter has an end."
                    @if let Some(last) = last { " The last one came " (since(last, at)) "." }
                }
            }
            @if let Some(problem) = &overview.problem { p.note { "What is shown gets old: " (problem) } }
            @if overview.behind > 0 {
                p.note { "The index is " span.num { (number(overview.behind)) } " records behind the dead-letter topic: figures still grow." }
            }
            dl.tiles {
                (tile("Waiting", overview.waiting, "/items?state=open&state=failed-again", "open"))
                (tile("Replaying", state("replaying"), "/items?state=replaying", "moving"))
                (tile("Resolved", state("resolved") + state("already-done"), "/items?state=resolved&state=already-done", "done"))
                (tile("Discarded", state("discarded"), "/items?state=discarded", "away"))
                (tile("Letters, 24 h", today, "/groups?sort=latest", "none"))
            }
        }
    }
}

fn tile(name: &str, value: u64, address: &str, class: &str) -> Markup {
    html! {
        div.tile.(class) {
            dt { (name) }
            dd { a.num href=(address) { (number(value)) } }
        }
    }
}

fn trend(overview: &Overview, at: i64) -> Markup {
    let values: Vec<u64> = overview.trend.iter().map(|step| step.letters).collect();
    let total: u64 = values.iter().sum();
    if total == 0 {
        return html! {};
    }
    let most = overview.trend.iter().max_by_key(|step| step.letters);
    let peak = most.map(|step| format!("{} at {}", number(step.letters), clock(step.from, at)));
    let label = format!(
        "{} in 24 hours, most in a quarter of an hour: {}",
        count(total, "letter", "letters"),
        peak.as_deref().unwrap_or("none")
    );
    html! {
        section.card.trend aria-labelledby="trend" {
            header { h2 #trend { "Dead letters, last 24 hours" } p { (label) } }
            (chart(&values, &label))
            div.axis { span { "24 h ago" } span { "12 h ago" } span { "now" } }
        }
    }
}

fn causes(worst: &GroupPage, at: i64) -> Markup {
    if worst.groups.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="causes" {
            header.over { h2 #causes { "What breaks" } a href="/groups" { "All groups" } }
            (groups::table(worst, at))
        }
    }
}

/// Classes by tier: what waits belongs to the tier, since its topics do.
fn classes(console: &Console, overview: &Overview, figures: &Snapshot, at: i64) -> Markup {
    let tier_of = |row: &ClassRow| console.classes().get(&row.class).cloned();
    let rows = with_silent(console, overview);
    let mut tiers: Vec<Option<String>> = rows.iter().map(tier_of).collect();
    tiers.sort_by_key(|tier| (tier.is_none(), tier.clone()));
    tiers.dedup();
    html! {
        section aria-labelledby="classes" {
            header.over { h2 #classes { "Classes" } }
            @if rows.is_empty() {
                (empty("No classes yet", "Name one in the configuration: a class says which events become which jobs.", None))
            } @else {
                div.scroll {
                    table.rows.classes {
                        thead { tr {
                            th scope="col" { "Class" }
                            th.num scope="col" { "Waiting" } th.num scope="col" { "Delayed" } th.num scope="col" { "Running" }
                            th.num scope="col" { "Done/s" } th.num scope="col" { "Failing" } th.num scope="col" { "Dead" } th scope="col" { "Last dead" }
                        } }
                        @for tier in &tiers {
                            tbody {
                                (tier_row(tier.as_deref(), figures))
                                @for row in rows.iter().filter(|row| tier_of(row) == *tier) {
                                    (class_row(row, figures.classes.get(&row.class), at))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// All classes that died or are configured: the index names a class only once something of it is there.
fn with_silent(console: &Console, overview: &Overview) -> Vec<ClassRow> {
    let is_named = |class: &String| overview.classes.iter().any(|row| row.class == *class);
    let silent = console.classes().keys().filter(|class| !is_named(class));
    let silent = silent.map(|class| ClassRow { class: class.clone(), ..ClassRow::default() });
    let mut rows: Vec<ClassRow> = silent.chain(overview.classes.iter().cloned()).collect();
    rows.sort_by(|a, b| (a.class == "-", &a.class).cmp(&(b.class == "-", &b.class)));
    rows
}

fn tier_row(tier: Option<&str>, figures: &Snapshot) -> Markup {
    let Some(tier) = tier else {
        return html! { tr.tier { th scope="rowgroup" colspan="8" { "Not configured" } } };
    };
    let known = figures.tiers.get(tier).copied().unwrap_or_default();
    let TierFigures { waiting, delayed } = known;
    html! {
        tr.tier {
            th scope="rowgroup" { (tier) }
            td.num data-label="Waiting" { (told(waiting.map(number))) }
            td.num data-label="Delayed" { (told(delayed.map(number))) }
            td colspan="5" {}
        }
    }
}

fn class_row(row: &ClassRow, figures: Option<&ClassFigures>, at: i64) -> Markup {
    let name = if row.class == "-" { "no class" } else { row.class.as_str() };
    let address = crate::fields::address("/groups", [("class", row.class.clone())]);
    let failing = figures.and_then(|figures| figures.failing);
    html! {
        tr {
            th scope="row" {
                a href=(address) { (name) }
                @if figures.is_some_and(|figures| figures.parked) { " " span.state.failed { "Parked" } }
            }
            td.num.blank {} td.num.blank {}
            td.num data-label="Running" { (told(figures.map(|f| number(f.running)))) }
            td.num data-label="Done/s" { (told(figures.and_then(|f| f.done_per_second).map(rough))) }
            td.num.bad[failing.is_some_and(|share| share >= 0.1)] data-label="Failing" { (told(failing.map(percent))) }
            td.num.bad[row.waiting > 0] data-label="Dead" { (number(row.waiting)) }
            td data-label="Last dead" { @match row.last_dead_at { Some(time) => (since(time, at)), None => { span.none { "never" } } } }
        }
    }
}

fn told(value: Option<String>) -> Markup {
    html! { @match value { Some(value) => (value), None => { span.none title="not known" { "–" } } } }
}

/// Where the figures come from, and who does not answer.
fn sources(overview: &Overview, figures: &Snapshot, at: i64) -> Markup {
    html! {
        section.sources {
            @if figures.scraped.is_empty() {
                p.hint { "Rates come from the services' metrics. Name their addresses in " code { "console.scrape" } " to see them here; what waits comes from Kafka." }
            } @else {
                p.hint {
                    "From " (count(figures.scraped.len() as u64, "service", "services"))
                    @if let Some(time) = figures.at { ", " (since(time, at)) }
                    "."
                }
                @for (address, trouble) in figures.scraped.iter().filter_map(|(address, trouble)| Some((address, trouble.as_ref()?))) {
                    p.note { code { (address) } " does not answer: " (trouble) }
                }
            }
            @if let (Some(trouble), None) = (&figures.kafka_trouble, &overview.problem) { p.note { "Kafka does not tell what waits: " (trouble) } }
        }
    }
}
