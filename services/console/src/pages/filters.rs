//! The form that filters a list, and what is filtered by now.

use maud::{Markup, html};

use crate::Console;
use crate::failure::Failure;
use crate::fields::{address, of_filter};
use crate::gate::Asker;
use crate::inbox::Filter;
use crate::mask;

const STATES: [(&str, &str); 6] = [
    ("open", "Open"),
    ("failed-again", "Failed again"),
    ("replaying", "Replaying"),
    ("resolved", "Resolved"),
    ("already-done", "Already done"),
    ("discarded", "Discarded"),
];
const KINDS: [&str; 8] =
    ["transient", "timeout", "overload", "permanent", "malformed", "unroutable", "conflict", "crash"];
/// Those that have a choice of their own.
const CHOICES: [&str; 4] = ["state", "class", "kind", "q"];

/// Words are looked for in payloads too, so a search would tell a reader what is masked for them.
pub(crate) fn check_search(console: &Console, asker: &Asker, filter: &Filter) -> Result<(), Failure> {
    if filter.text.is_some() && !may_search(console, asker) {
        return Err(Failure::bad_request(
            "Search looks into payloads too, and parts of them are masked for you. Use the other filters, or ask an operator.",
        ));
    }
    Ok(())
}

/// Hides what operators searched for from readers who may not search.
pub(crate) fn hide_search(console: &Console, asker: &Asker, text: &mut String) {
    if !may_search(console, asker) {
        *text = mask::searched(text).into_owned();
    }
}

pub(super) fn may_search(console: &Console, asker: &Asker) -> bool {
    asker.may_act() || console.settings().masked.is_empty()
}

/// The form. `kept` are fields of the address that are no filter, such as the order.
pub(super) fn form(
    console: &Console,
    asker: &Asker,
    path: &str,
    filter: &Filter,
    kept: &[(&'static str, String)],
    more: Markup,
) -> Markup {
    let others: Vec<_> = of_filter(filter).into_iter().filter(|(name, _)| !CHOICES.contains(name)).collect();
    let classes = console.classes().keys().map(|class| (class.as_str(), class.as_str()));
    let classes: Vec<_> = classes.chain([("-", "no class")]).collect();
    let kinds: Vec<_> = KINDS.iter().map(|kind| (*kind, *kind)).chain([("-", "unknown")]).collect();
    html! {
        form.filters method="get" action=(path) role="search" {
            @if may_search(console, asker) {
                label.search {
                    span.hidden { "Search in messages, keys and payloads" }
                    input type="search" name="q" value=[filter.text.as_deref()] placeholder="Search messages and payloads" autocomplete="off" data-search;
                }
            }
            (choice("state", "Any state", &STATES, &filter.states))
            (choice("class", "Any class", &classes, &filter.classes))
            (choice("kind", "Any kind", &kinds, &filter.kinds))
            (more)
            @for (name, value) in others.iter().chain(kept) { input type="hidden" name=(name) value=(value); }
            button.plain type="submit" data-filter { "Filter" }
        }
        (chips(path, filter, kept))
    }
}

/// A choice of one value; of several, which an address may have, the first is shown.
fn choice(name: &str, any: &str, options: &[(&str, &str)], chosen: &[String]) -> Markup {
    let chosen = chosen.first().map(String::as_str);
    let is_listed = chosen.is_none_or(|chosen| options.iter().any(|(value, _)| *value == chosen));
    html! {
        label.choice {
            span.hidden { (any) }
            select name=(name) data-submit {
                option value="" { (any) }
                @if !is_listed { option value=[chosen] selected { (chosen.unwrap_or_default()) } }
                @for (value, label) in options {
                    option value=(value) selected[chosen == Some(*value)] { (label) }
                }
            }
        }
    }
}

/// What is filtered by, each with a link that takes it away.
fn chips(path: &str, filter: &Filter, kept: &[(&'static str, String)]) -> Markup {
    let all = of_filter(filter);
    if all.is_empty() {
        return html! {};
    }
    let without = |place: usize| {
        let left = all.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, pair)| pair.clone());
        address(path, left.chain(kept.iter().cloned()))
    };
    html! {
        ul.chips aria-label="Filtered by" {
            @for (place, (name, value)) in all.iter().enumerate() {
                li { a href=(without(place)) title="Take this filter away" { span.what { (name) } " " (shown(name, value)) span.x aria-hidden="true" { "×" } } }
            }
            li { a.clear href=(address(path, kept.iter().cloned())) { "Clear all" } }
        }
    }
}

fn shown(name: &str, value: &str) -> String {
    match (name, value.parse::<i64>()) {
        ("since" | "until", Ok(time)) => super::format::exact(time),
        _ => value.to_owned(),
    }
}
