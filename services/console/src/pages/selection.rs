//! The bar of orders under a list, a group or an item.

use maud::{Markup, html};

use crate::fields::of_filter;
use crate::gate::Asker;
use crate::inbox::Filter;

use super::format::{count, number};

/// What the orders of a bar are for.
pub(super) enum For<'a> {
    /// The ticked items of a list, or all that the filter leaves.
    List { filter: &'a Filter, total: Option<u64> },
    /// All that the filter leaves.
    All { filter: &'a Filter, total: u64 },
    /// One item.
    Item { item: &'a str, state: &'a str },
}

/// The form's name, by which ticks in a table belong to it.
pub(super) const FORM: &str = "act";

/// The bar; readers see none, since each of its buttons would refuse them.
pub(super) fn bar(asker: &Asker, what: &For<'_>) -> Markup {
    if !asker.may_act() {
        return html! { p.hint { "You are a reader: operators replay and discard." } };
    }
    let (may_replay, may_discard, may_reopen) = match what {
        For::Item { state, .. } => (
            !matches!(*state, "replaying" | "discarded"),
            matches!(*state, "open" | "failed-again"),
            matches!(*state, "discarded" | "replaying"),
        ),
        _ => (true, true, true),
    };
    let is_done = matches!(what, For::Item { state: "resolved" | "already-done", .. });
    html! {
        form.act id=(FORM) method="post" action="/plans" {
            input type="hidden" name="csrf" value=(asker.csrf());
            (scope(what))
            @if is_done { input type="hidden" name="forced" value="yes"; }
            div.orders {
                @if may_replay {
                    button.primary type="submit" name="order" value="replay" { @if is_done { "Run it again although it is done…" } @else { "Replay…" } }
                }
                @if may_discard || may_reopen || is_done {
                    label.reason { span.hidden { "Reason" } input type="text" name="reason" maxlength="500" placeholder=(reason_for(may_discard, is_done)) autocomplete="off"; }
                }
                @if may_discard { button.plain type="submit" name="order" value="discard" { "Discard…" } }
                @if may_reopen { button.plain type="submit" name="order" value="reopen" { "Reopen…" } }
                @if !matches!(what, For::Item { .. }) {
                    label.tick { input type="checkbox" name="forced" value="yes"; " also those that are done" }
                }
            }
            p.hint { "Nothing happens yet: the next page shows what would, and asks." }
        }
    }
}

fn reason_for(may_discard: bool, is_done: bool) -> &'static str {
    match (may_discard, is_done) {
        (_, true) => "Why it has to run again",
        (true, false) => "Reason, to discard or reopen",
        (false, false) => "Reason, to reopen",
    }
}

fn scope(what: &For<'_>) -> Markup {
    let hidden = |filter: &Filter| {
        html! { @for (name, value) in of_filter(filter) { input type="hidden" name=(name) value=(value); } }
    };
    match what {
        For::Item { item, .. } => html! {
            input type="hidden" name="item" value=(item);
            input type="hidden" name="scope" value="items";
        },
        For::All { filter, total } => html! {
            (hidden(filter))
            input type="hidden" name="scope" value="filter";
            p.scope { "All " strong.num { (count(*total, "item", "items")) } " of this group" }
        },
        For::List { filter, total } => html! {
            (hidden(filter))
            fieldset.scope {
                legend.hidden { "For which items" }
                label { input type="radio" name="scope" value="items" checked; " The ticked ones" span.ticked data-ticked {} }
                label {
                    input type="radio" name="scope" value="filter";
                    @match total {
                        Some(total) => { " All " span.num { (number(*total)) } " that fit" },
                        None => { " All that fit" },
                    }
                }
            }
        },
    }
}
