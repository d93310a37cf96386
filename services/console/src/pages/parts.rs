//! Pieces that several pages are made of.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::format::{count, number};

/// A state as a word with a colour; the colour is never all that tells it.
pub(super) fn state(name: &str) -> Markup {
    let (class, label) = match name {
        "open" => ("open", "Open"),
        "replaying" => ("moving", "Replaying"),
        "resolved" => ("done", "Resolved"),
        "already-done" => ("done", "Already done"),
        "failed-again" => ("failed", "Failed again"),
        "discarded" => ("away", "Discarded"),
        "regressed" => ("failed", "Regressed"),
        "closed" => ("done", "Closed"),
        "running" => ("moving", "Running"),
        "paused" => ("open", "Paused"),
        "stopped" => ("failed", "Stopped"),
        "finished" => ("done", "Finished"),
        other => ("away", other),
    };
    html! { span.state.(class) { (label) } }
}

/// The failure's kind and code: `permanent/http-422`.
pub(super) fn kind(kind: Option<&str>, code: &str) -> Markup {
    html! {
        span.kind { (kind.unwrap_or("unknown")) @if !code.is_empty() { span.code-of { "/" (code) } } }
    }
}

/// Names, a few at most.
pub(super) fn names(names: &[String]) -> Markup {
    html! {
        @for name in names.iter().take(3) { span.tag { (name) } }
        @if names.len() > 3 { span.tag.more { "+" (names.len() - 3) } }
    }
}

/// A small line of how many came when; the last step is marked. `label` says it in words.
pub(super) fn sparkline(values: &[u64], label: &str) -> Markup {
    bars(values, label, "spark")
}

/// A larger one.
pub(super) fn chart(values: &[u64], label: &str) -> Markup {
    bars(values, label, "chart")
}

/// Bars on a grid of 4 by 100 for each value; the style sheet gives them their size on the page.
fn bars(values: &[u64], label: &str, class: &str) -> Markup {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let width = values.len().max(1) * 4;
    html! {
        svg.(class) viewBox={ "0 0 " (width) " 100" } preserveAspectRatio="none" role="img" aria-label=(label) {
            title { (label) }
            @for (place, value) in values.iter().enumerate() {
                @let height = if *value == 0 { 2 } else { (value.saturating_mul(92) / most + 8).min(100) };
                rect.nothing[*value == 0] x=(place * 4) y=(100 - height) width="3" height=(height) {}
            }
        }
    }
}

/// How parts of a whole relate, as one bar: `(class, label, how many)`.
pub(super) fn meter(parts: &[(&str, &str, u64)], whole: u64) -> Markup {
    let whole = whole.max(1);
    let shown = || parts.iter().filter(|(_, _, many)| *many > 0);
    let label =
        shown().map(|(_, label, many)| format!("{} {label}", number(*many))).collect::<Vec<_>>().join(", ");
    let mut begin = 0;
    let placed: Vec<(&str, u64, u64)> = shown()
        .map(|(class, _, many)| {
            let place = (*class, begin * 1000 / whole, many * 1000 / whole);
            begin += many;
            place
        })
        .collect();
    html! {
        svg.meter viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label=(label) {
            title { (label) }
            @for (class, x, width) in placed { rect.(class) x=(x) y="0" width=(width.max(4)) height="10" {} }
        }
    }
}

/// The states of items as a meter with its legend.
pub(super) fn states(states: &BTreeMap<String, u64>) -> Markup {
    const ORDER: [(&str, &str, &str); 6] = [
        ("open", "open", "open"),
        ("failed-again", "failed", "failed again"),
        ("replaying", "moving", "replaying"),
        ("resolved", "done", "resolved"),
        ("already-done", "done", "already done"),
        ("discarded", "away", "discarded"),
    ];
    let parts: Vec<(&str, &str, u64)> =
        ORDER.iter().filter_map(|(name, class, label)| Some((*class, *label, *states.get(*name)?))).collect();
    let whole = parts.iter().map(|(_, _, many)| many).sum();
    html! {
        div.states {
            (meter(&parts, whole))
            ul.legend { @for (class, label, many) in &parts { li.(class) { span.num { (number(*many)) } " " (label) } } }
        }
    }
}

/// What is shown where a list has nothing.
pub(super) fn empty(title: &str, text: &str, link: Option<(&str, &str)>) -> Markup {
    html! {
        div.empty {
            svg viewBox="0 0 120 40" width="120" height="40" aria-hidden="true" {
                path d="M4 24c9 0 9-8 18-8s9 8 18 8 9-8 18-8 9 8 18 8 9-8 18-8 9 8 18 8" {}
                path.faint d="M4 34c9 0 9-8 18-8s9 8 18 8 9-8 18-8 9 8 18 8 9-8 18-8 9 8 18 8" {}
            }
            h2 { (title) }
            p { (text) }
            @if let Some((address, name)) = link { p { a.button.plain href=(address) { (name) } } }
        }
    }
}

/// Links to the pages around this one.
pub(super) fn pager(first: Option<&str>, next: Option<&str>, told: &str) -> Markup {
    html! {
        nav.pager aria-label="Pages" {
            span.told { (told) }
            @if let Some(first) = first { a.button.plain href=(first) { "First page" } }
            @if let Some(next) = next { a.button.plain href=(next) rel="next" { "Next page" } }
        }
    }
}

/// `1,204 of 4,812 items`.
pub(super) fn shown_of(shown: usize, total: Option<u64>, one: &str, many: &str) -> String {
    match total {
        Some(total) if total > shown as u64 => {
            format!("{} of {}", number(shown as u64), count(total, one, many))
        }
        _ => count(shown as u64, one, many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_says_in_words_what_it_draws_and_is_safe_with_nothing_and_with_much() {
        let drawn = sparkline(&[0, 3, u64::MAX / 100], "letters").into_string();
        assert!(drawn.contains("aria-label=\"letters\"") && drawn.matches("<rect").count() == 3, "{drawn}");
        assert!(!sparkline(&[], "none").into_string().contains("<rect"));
    }

    #[test]
    fn a_meter_names_its_parts_and_leaves_out_what_is_not_there() {
        let drawn =
            meter(&[("done", "done", 30), ("failed", "failed", 0), ("open", "open", 70)], 100).into_string();
        assert!(drawn.contains("30 done, 70 open") && !drawn.contains("0 failed"), "{drawn}");
        assert!(drawn.contains("x=\"300\""), "{drawn}");
    }
}
