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
    let may = May::of(what);
    html! {
        form.act id=(FORM) method="post" action="/plans" {
            input type="hidden" name="csrf" value=(asker.csrf());
            (scope(what))
            @if may.again { input type="hidden" name="forced" value="yes"; }
            div.orders {
                @if may.replay {
                    button.primary type="submit" name="order" value="replay" { @if may.again { "Run it again although it is done…" } @else { "Replay…" } }
                }
                @if let Some(reason) = may.reason() {
                    label.reason { span.hidden { "Reason" } input type="text" name="reason" maxlength="500" placeholder=(reason) autocomplete="off"; }
                }
                @if may.discard { button.plain type="submit" name="order" value="discard" { "Discard…" } }
                @if may.reopen { button.plain type="submit" name="order" value="reopen" { "Reopen…" } }
                @if matches!(what, For::List { .. }) {
                    label.tick { input type="checkbox" name="forced" value="yes"; " also those that are done" }
                }
            }
            p.hint { "Nothing happens yet: the next page shows what would, and asks." }
        }
    }
}

/// Which orders a bar offers.
struct May {
    replay: bool,
    discard: bool,
    reopen: bool,
    /// It is done: only a forced replay runs it again.
    again: bool,
}

impl May {
    fn of(what: &For<'_>) -> Self {
        match what {
            For::Item { state, .. } => Self {
                replay: !matches!(*state, "replaying" | "discarded"),
                discard: matches!(*state, "open" | "failed-again"),
                reopen: matches!(*state, "discarded" | "replaying"),
                again: matches!(*state, "resolved" | "already-done"),
            },
            // Those of a group that wait: none of them is discarded, or done.
            For::All { .. } => Self { replay: true, discard: true, reopen: false, again: false },
            For::List { .. } => Self { replay: true, discard: true, reopen: true, again: false },
        }
    }

    /// What the field for a reason says; none: no order that is offered needs one.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self { again: true, .. } => Some("Why it has to run again"),
            Self { discard: true, reopen: true, .. } => Some("Reason, to discard or reopen"),
            Self { discard: true, .. } => Some("Reason, to discard"),
            Self { reopen: true, .. } => Some("Reason, to reopen"),
            _ => None,
        }
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
