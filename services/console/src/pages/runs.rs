//! Runs: what was ordered, and how far it is.

use axum::extract::{Path, State};
use maud::{Markup, html};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::fields::{Fields, Form};
use crate::gate::Asker;
use crate::inbox::{Run, RunStatus, Steer, Step};
use crate::now;

use super::filters::hide_search;
use super::format::{count, number, percent, rough, selection, since, when};
use super::go_to;
use super::layout::{Page, Section};
use super::parts::{empty, meter, state};

/// So many runs are listed.
const LATEST: usize = 100;

pub(crate) async fn list(State(console): State<Console>, asker: Asker) -> Answer {
    let at = now();
    let runs = all(&console, &asker, LATEST).await?;
    let goes_on = runs.iter().any(|run| !run.rests());
    let body = html! {
        header.over { h1 { "Runs" } @if !runs.is_empty() { p.lead { "What was ordered together, the latest first." } } }
        @if runs.is_empty() {
            (empty("No run yet", "Select items or a group, and replay or discard them. What comes of it shows up here.", Some(("/groups", "Groups"))))
        } @else {
            div.scroll {
                table.rows.runs {
                    thead { tr {
                        th scope="col" { "Order" } th scope="col" { "State" } th scope="col" { "Progress" }
                        th.num scope="col" { "Items" } th.num scope="col" { "Failed again" } th scope="col" { "By" } th scope="col" { "Begun" }
                    } }
                    tbody { @for run in &runs { (row(run, at)) } }
                }
            }
        }
    };
    let page =
        Page { section: Section::Replays, title: "Runs", reload: Some(if goes_on { 5 } else { 15 }), body };
    Ok(page.show(&console, &asker))
}

fn row(run: &Run, at: i64) -> Markup {
    html! {
        tr data-row {
            th scope="row" { a.title href={ "/replays/" (run.run) } { (run.order) } div.under { (selection(&run.selection)) } }
            td data-label="State" { (state(run.status.as_str())) }
            td data-label="Progress" { (bar(run)) }
            td.num data-label="Items" { (number(run.total)) }
            td.num.bad[run.failed > 0] data-label="Failed again" { (number(run.failed)) }
            td data-label="By" { (run.by) }
            td data-label="Begun" { (since(run.begun_at, at)) }
        }
    }
}

pub(crate) async fn all(console: &Console, asker: &Asker, limit: usize) -> Result<Vec<Run>, Failure> {
    let mut runs = console.ask(move |inbox| inbox.runs(limit)).await?;
    runs.iter_mut().for_each(|run| hide_search(console, asker, &mut run.selection));
    Ok(runs)
}

pub(crate) async fn find(console: &Console, asker: &Asker, id: String) -> Result<Run, Failure> {
    let missing = || Failure::missing("No run has this id. The list of runs has all of them.");
    let mut run = console.ask(move |inbox| inbox.run(&id)).await?.ok_or_else(missing)?;
    hide_search(console, asker, &mut run.selection);
    Ok(run)
}

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Path(id): Path<String>) -> Answer {
    let (run, at) = (find(&console, &asker, id).await?, now());
    let reload = (!run.rests()).then_some(2);
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/replays" { "Runs" } span { (run.run) } }
        header.subject {
            h1 { (heading(&run)) }
            p.lead { (selection(&run.selection)) ", ordered by " span.name { (run.by) } " " (since(run.begun_at, at)) "." }
        }
        div data-live=[(!run.rests()).then(|| format!("/replays/{}/events", run.run))] { (progress(&run, &asker)) }
        (settings(&run, at))
    };
    Ok(Page { section: Section::Replays, title: "Run", reload, body }.show(&console, &asker))
}

fn heading(run: &Run) -> String {
    let verb = match run.order.as_str() {
        "discard" => "Discard",
        "reopen" => "Reopen",
        _ => "Replay",
    };
    format!("{verb} {}", count(run.total, "item", "items"))
}

/// What changes while it goes on; sent anew by the server when it does.
pub(crate) fn progress(run: &Run, asker: &Asker) -> Markup {
    html! {
        section.card.progress aria-live="polite" aria-label="Progress" data-rests[run.rests()] {
            p.status {
                (state(run.status.as_str()))
                span { strong.num { (number(run.ended())) } " of " span.num { (number(run.total)) } " have an end" }
                span.share.num { (percent(share(run))) }
            }
            (bar(run))
            @if let Some(why) = &run.why { p.note { (why) } }
            @if let Some(waits) = waits(run) { p.note { (waits) } }
            @if let Some(note) = note(run) { p.note { (note) } }
            dl.tiles.small {
                @if run.order == "replay" {
                    (tile("Passed", run.passed, "done"))
                    (tile("Failed again", run.failed, "failed"))
                    (tile("Under way", run.under_way.unwrap_or(run.pending), "moving"))
                    (tile("Given up", run.settled(), "away"))
                    @if run.released > 0 { (tile("Let go of", run.released, "away")) }
                } @else {
                    (tile("Done", run.settled(), "done"))
                }
                (tile("Did not count", run.refused, "away"))
            }
            @if !run.steps.is_empty() { (steps(run)) }
            (steering(run, asker))
        }
    }
}

/// That it waits for its workers, and for what those wait.
fn waits(run: &Run) -> Option<String> {
    let waits = (run.status == RunStatus::Running && run.waiting > 0).then(|| {
        format!("{} with a worker, and the run with them", count(run.waiting, "replay waits", "replays wait"))
    })?;
    Some(match &run.waits_for {
        Some(reason) => format!("{waits}: {reason}."),
        None => format!("{waits}."),
    })
}

/// What a person should know who wonders why nothing happens.
fn note(run: &Run) -> Option<&'static str> {
    match run.status {
        RunStatus::Stopped if run.order == "replay" => Some(
            "What it had not sent is as it was before, and may be decided anew. What nobody decided meanwhile comes back to the run when it goes on.",
        ),
        RunStatus::Running if run.is_left() => Some(
            "This console does not carry it out. If nobody else does, it takes it over after half a minute in which nothing comes of it, or at once if you carry on.",
        ),
        _ => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for the eye")]
fn share(run: &Run) -> f64 {
    run.ended() as f64 / run.total.max(1) as f64
}

fn tile(name: &str, value: u64, class: &str) -> Markup {
    html! { div.tile.(class) { dt { (name) } dd.num { (number(value)) } } }
}

fn bar(run: &Run) -> Markup {
    let is_replay = run.order == "replay";
    let done = if is_replay { run.passed } else { run.settled() };
    let away = if is_replay { run.refused + run.settled() } else { run.refused };
    let parts = [
        ("done", "done", done),
        ("failed", "failed again", run.failed),
        ("away", "did not count", away),
        ("moving", "under way", run.under_way.unwrap_or(0)),
    ];
    meter(&parts, run.total)
}

fn steps(run: &Run) -> Markup {
    let last = run.steps.len();
    let name = |step: &Step, is_last: bool| {
        if step.failed > 0 && is_last && run.status == RunStatus::Stopped {
            "failed"
        } else if step.passed + step.failed >= step.items {
            "done"
        } else {
            "moving"
        }
    };
    html! {
        ol.steps aria-label="Steps of the ramp" {
            @for (place, step) in run.steps.iter().enumerate() {
                li.(name(step, place + 1 == last)) {
                    span.num.size { (number(step.items)) }
                    span.fine { span.num { (number(step.passed)) } " ok" @if step.failed > 0 { ", " span.num { (number(step.failed)) } " failed" } }
                }
            }
        }
    }
}

fn steering(run: &Run, asker: &Asker) -> Markup {
    let button = |steer: &str, label: &str, class: &str| {
        html! { button.(class) type="submit" name="steer" value=(steer) { (label) } }
    };
    html! {
        @if asker.may_act() && run.status != RunStatus::Finished {
            form.steer method="post" action={ "/replays/" (run.run) "/steer" } {
                input type="hidden" name="csrf" value=(asker.csrf());
                @match run.status {
                    RunStatus::Running => {
                        @if run.is_left() { (button("resume", "Carry on", "primary")) }
                        (button("pause", "Pause", "plain")) (button("stop", "Stop", "plain"))
                    },
                    RunStatus::Paused => { (button("resume", "Resume", "primary")) (button("stop", "Stop", "plain")) },
                    _ => { (button("resume", "Go on from its first step", "primary")) },
                }
            }
        }
    }
}

fn settings(run: &Run, at: i64) -> Markup {
    let ramp = run.ramp.map(|ramp| {
        format!(
            "begins with {}, {} times as many each step, stops at {} failures",
            ramp.first,
            ramp.factor,
            percent(ramp.failures)
        )
    });
    html! {
        dl.facts {
            div { dt { "Run" } dd { code { (run.run) } } }
            @if let Some(reason) = &run.reason { div { dt { "Reason" } dd { (reason) } } }
            @if let Some(ramp) = ramp { div { dt { "Ramp" } dd { (ramp) } } }
            @if let Some(rate) = run.rate { div { dt { "At most" } dd { (rough(rate)) " a second" } } }
            @if run.forced { div { dt { "Forced" } dd { "items whose keys are done run again" } } }
            div { dt { "Last change" } dd { "by " span.name { (run.changed_by) } " at " (when(run.changed_at, at)) } }
        }
    }
}

/// What a form or a program wants of a run.
pub(crate) fn wanted(fields: &Fields) -> Result<Steer, Failure> {
    match fields.get("steer") {
        Some("pause") => Ok(Steer::Pause),
        Some("resume") => Ok(Steer::Resume),
        Some("stop") => {
            Ok(Steer::Stop { why: fields.get("why").unwrap_or("an operator stopped it").to_owned() })
        }
        _ => Err(Failure::bad_request("`steer` must be pause, resume or stop.")),
    }
}

pub(crate) async fn steer(
    State(console): State<Console>,
    asker: Asker,
    Path(id): Path<String>,
    Form(fields): Form,
) -> Answer {
    let steer = wanted(&fields)?;
    let by = asker.visitor()?.name.clone();
    let address = format!("/replays/{id}");
    console.ask(move |inbox| inbox.steer(&by, &id, &steer)).await?;
    Ok(go_to(&address))
}
