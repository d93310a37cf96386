//! A prepared order: what would happen, and the question whether it should.

use std::time::Duration;

use axum::extract::{Path, State};
use maud::{Markup, html};

use crate::Console;
use crate::failure::{Answer, Failure};
use crate::fields::{Fields, Form};
use crate::gate::Asker;
use crate::inbox::{Begin, Order, Plan, PlanPart, Ramp, Selection, Trouble};
use crate::now;

use super::format::{count, number, selection, since};
use super::go_to;
use super::layout::{Page, Section};

const CANARY: Ramp = Ramp { first: 1, factor: 5, failures: 0.1, timeout: Duration::from_secs(120) };

/// What a form or a program orders, and for which items.
pub(crate) fn order(fields: &Fields) -> Result<(Order, Selection), Failure> {
    let reason = |what: &str| {
        let missing = || {
            Failure::bad_request(format!(
                "Say why you {what}: whoever looks at it later will want to know. Go back, and fill in the reason."
            ))
        };
        fields.get("reason").map(str::to_owned).ok_or_else(missing)
    };
    let order = match fields.get("order") {
        Some("replay") => Order::Replay {
            forced: fields.is_set("forced"),
            edited: fields.raw("event").map(str::to_owned),
            reason: match fields.is_set("forced") {
                true => Some(reason("force a replay")?),
                false => fields.get("reason").map(str::to_owned),
            },
        },
        Some("discard") => Order::Discard { reason: reason("discard")? },
        Some("reopen") => Order::Reopen { reason: reason("reopen")? },
        _ => return Err(Failure::bad_request("`order` must be replay, discard or reopen.")),
    };
    let selection = fields.selection()?;
    let selection = match fields.get("scope") {
        Some("filter") => Selection { items: Vec::new(), ..selection },
        _ if selection.items.is_empty() => {
            return Err(Failure::bad_request(
                "No item is ticked. Go back, and tick some, or choose all that fit.",
            ));
        }
        _ => selection,
    };
    Ok((order, selection))
}

/// How fast it goes, as a form says it.
pub(crate) fn begin(fields: &Fields) -> Result<Begin, Failure> {
    let rate = fields.number::<f64>("rate")?;
    if rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err(Failure::bad_request("The rate must be above 0, or empty for as fast as it goes."));
    }
    if fields.get("pace") != Some("canary") {
        return Ok(Begin { rate, ramp: None });
    }
    let first = fields.number("first")?.unwrap_or(CANARY.first);
    let factor = fields.number("factor")?.unwrap_or(CANARY.factor);
    let percent = fields.number("failures")?.unwrap_or(CANARY.failures * 100.0);
    let seconds = fields
        .number::<u32>("timeout")?
        .map_or(CANARY.timeout, |seconds| Duration::from_secs(seconds.into()));
    if first == 0 || factor == 0 || !(0.0..=100.0).contains(&percent) || seconds.is_zero() {
        return Err(Failure::bad_request(
            "A ramp begins with at least 1 item, grows at least by 1, and stops between 0 and 100 % failures.",
        ));
    }
    Ok(Begin { rate, ramp: Some(Ramp { first, factor, failures: percent / 100.0, timeout: seconds }) })
}

pub(crate) async fn prepare(State(console): State<Console>, asker: Asker, Form(fields): Form) -> Answer {
    let (order, selection) = order(&fields)?;
    let by = asker.visitor()?.name.clone();
    let plan = console.ask(move |inbox| inbox.prepare(&by, &order, &selection)).await?;
    Ok(go_to(&format!("/plans/{}", plan.plan)))
}

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Path(id): Path<String>) -> Answer {
    let plan = find(&console, id).await?;
    if let Some(run) = &plan.run {
        return Ok(go_to(&format!("/replays/{run}")));
    }
    let at = now();
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/replays" { "Runs" } span { "Dry run " (plan.plan) } }
        (head(&plan, at))
        (left_out(&plan))
        (report(&plan))
        @if plan.total == 0 { p.note { "There is nothing to do: no item of the selection allows it." } }
        @else if asker.may_act() { (confirm(&asker, &plan)) }
        @else { p.hint { "You are a reader: an operator has to confirm this." } }
    };
    Ok(Page { section: Section::Replays, title: "Dry run", reload: None, body }.show(&console, &asker))
}

pub(crate) async fn find(console: &Console, id: String) -> Result<Plan, Failure> {
    let missing = || Failure::missing("This dry run is not kept any more. Select the items again.");
    console.ask(move |inbox| inbox.prepared(&id)).await?.ok_or_else(missing)
}

pub(crate) async fn carry_out(
    State(console): State<Console>,
    asker: Asker,
    Path(id): Path<String>,
    Form(fields): Form,
) -> Answer {
    let begin = begin(&fields)?;
    let by = asker.visitor()?.name.clone();
    let run = console.ask(move |inbox| inbox.carry_out(&by, &id, &begin)).await?;
    Ok(go_to(&format!("/replays/{run}")))
}

/// `Replay`, `Discard`, `Reopen`.
fn verb(order: &str) -> &'static str {
    match order {
        "discard" => "Discard",
        "reopen" => "Reopen",
        _ => "Replay",
    }
}

fn head(plan: &Plan, at: i64) -> Markup {
    html! {
        header.subject {
            h1 { (verb(&plan.order)) " " span.num { (count(plan.total, "item", "items")) } "?" }
            p.lead {
                "Nothing has happened yet. These items were fixed " (since(plan.at, at)) " by " span.name { (plan.by) }
                ": what is dead-lettered from now on is not among them."
            }
            dl.facts {
                div { dt { "Selection" } dd { (selection(&plan.selection)) } }
                @if let Some(reason) = &plan.reason { div { dt { "Reason" } dd { (reason) } } }
                @if plan.forced { div { dt { "Forced" } dd { "Items whose keys are done run again. Their effect may happen twice." } } }
                @if plan.edited { div { dt { "Edited" } dd { "The record carries the edited event. The original stays in the dead-letter topic." } } }
            }
        }
    }
}

fn left_out(plan: &Plan) -> Markup {
    html! {
        @for (why, many) in &plan.left_out {
            p.note { span.num { (count(*many, "item is", "items are")) } " left out: " (why) }
        }
    }
}

fn report(plan: &Plan) -> Markup {
    if plan.order != "replay" || plan.parts.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="report" {
            header.over { h2 #report { "What the dry run found" } }
            div.scroll {
                table.rows {
                    thead { tr {
                        th scope="col" { "Class" } th scope="col" { "Goes to" } th.num scope="col" { "Items" }
                        th.num scope="col" { "Don’t decode" } th.num scope="col" { "Don’t fit today" }
                        th.num scope="col" { "Fit not checked" } th.num scope="col" { "Not looked at" } th.num scope="col" { "Gone" }
                    } }
                    tbody { @for part in &plan.parts { (part_row(part)) } }
                }
            }
            ul.findings {
                @for (why, many) in plan.parts.iter().flat_map(|part| &part.unchecked) {
                    li.warn { strong.num { (number(*many)) } " " (if *many == 1 { "was" } else { "were" }) " not checked against today’s schema: " (why) "." }
                }
                (keys(plan))
                (finding(plan.expiring, "will soon be gone from the dead-letter topic", "will soon be gone from the dead-letter topic", "It is now or never."))
                (finding(plan.older_than_marks, "is older than marks are kept", "are older than marks are kept",
                    &format!("Marks are kept for {}. What was done meanwhile, only handlers know, by the idempotency key.", plan.marks_kept)))
                @if plan.keys_unchecked.is_empty() && plan.keys_done + plan.keys_done_by_inbox + plan.expiring + plan.older_than_marks == 0 { li.fine-one { "No key is done already, nothing expires soon, and all are young enough for their duplicates to be known." } }
            }
            (troubles(plan))
        }
    }
}

fn part_row(part: &PlanPart) -> Markup {
    let figure =
        |label: &str, value: u64| html! { td.num.bad[value > 0] data-label=(label) { (number(value)) } };
    html! {
        tr {
            th scope="row" { (if part.class == "-" { "no class" } else { part.class.as_str() }) @if part.unknown { " " span.state.failed { "Not configured" } } }
            td data-label="Goes to" { code { (part.target) } }
            td.num data-label="Items" { (number(part.items)) }
            (figure("Don’t decode", part.undecodable))
            (figure("Don’t fit today", part.unfit))
            td.num data-label="Fit not checked" { (number(part.unchecked.iter().map(|(_, many)| many).sum())) }
            (figure("Not looked at", part.unread))
            (figure("Gone", part.gone))
        }
    }
}

/// What is known of keys that are done.
fn keys(plan: &Plan) -> Markup {
    let then = if plan.forced { "They run again, by force." } else { "Workers skip them." };
    html! {
        (finding(plan.keys_done, "has a key that is done already, by its mark", "have keys that are done already, by their marks", then))
        (finding(plan.keys_done_by_inbox, "has a key that another item is done with", "have keys that other items are done with",
            "So says the inbox; workers may have forgotten it. What has a mark of it too is in both numbers."))
        @for (why, many) in &plan.keys_unchecked {
            li.warn { strong.num { (number(*many)) } " " (if *many == 1 { "key was" } else { "keys were" }) " not checked for being done: " (why) "." }
        }
    }
}

fn finding(many: u64, one: &str, more: &str, then: &str) -> Markup {
    html! {
        @if many > 0 { li.warn { strong.num { (number(many)) } " " (if many == 1 { one } else { more }) ". " (then) } }
    }
}

fn troubles(plan: &Plan) -> Markup {
    html! {
        @if !plan.troubles.is_empty() {
            details {
                summary { "The first that a replay would not help" }
                ul.plainly {
                    @for Trouble { item, trouble, reason } in &plan.troubles {
                        li { a href={ "/items/" (item) } { code { (item) } } " " span.tag { (trouble) } " " (reason) }
                    }
                }
            }
        }
    }
}

fn confirm(asker: &Asker, plan: &Plan) -> Markup {
    let is_replay = plan.order == "replay";
    html! {
        form.confirm.card method="post" action={ "/plans/" (plan.plan) "/run" } {
            input type="hidden" name="csrf" value=(asker.csrf());
            @if is_replay && plan.total > 1 { (pace()) }
            div.orders {
                button.primary.grave[plan.order == "discard"] type="submit" { (verb(&plan.order)) " " (count(plan.total, "item", "items")) }
                a.button.plain href="/items" { "Cancel" }
            }
        }
    }
}

fn pace() -> Markup {
    html! {
        fieldset {
            legend { "How fast" }
            label.radio { input type="radio" name="pace" value="canary" checked; span { strong { "Canary" } " 1, 5, 25, 125 … and on only while few fail again" } }
            label.radio { input type="radio" name="pace" value="at-once"; span { strong { "All at once" } " when you are sure" } }
        }
        div.fields {
            label { span { "First step" } input type="number" name="first" value=(CANARY.first) min="1" max="100000" inputmode="numeric"; }
            label { span { "Times as many each step" } input type="number" name="factor" value=(CANARY.factor) min="1" max="100" inputmode="numeric"; }
            label { span { "Stop at failures, %" } input type="number" name="failures" value="10" min="0" max="100" step="any" inputmode="decimal"; }
            label { span { "Outcome within, s" } input type="number" name="timeout" value="120" min="1" max="86400" inputmode="numeric"; }
            label { span { "At most a second" } input type="number" name="rate" min="0.1" step="any" placeholder="no limit" inputmode="decimal"; }
        }
    }
}
