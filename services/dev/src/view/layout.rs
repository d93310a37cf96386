//! A snapshot on a screen of any size: what does not fit is left out, the least needed first.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Widget};
use tidegate_bootstrap::counted;

use crate::snapshot::{Cause, ClassFigures, Delayed, Snapshot, TierDelays};

/// Draws it all.
pub(super) fn draw(snapshot: &Snapshot, area: Rect, buffer: &mut Buffer) {
    let lines = lines(snapshot, usize::from(area.width), usize::from(area.height));
    Paragraph::new(Text::from(lines)).render(area, buffer);
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const RED: Style = Style::new().fg(Color::Red);

fn lines(snapshot: &Snapshot, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = head(snapshot, width);
    lines.push(Line::default());
    lines.extend(table(&snapshot.classes, width));
    if snapshot.unreadable > 0 {
        let events = counted(snapshot.unreadable, "event", "events");
        let text = format!("{events} dead-lettered by ingest: no jobs");
        lines.push(Line::styled(cut(&text, width), RED));
    }
    lines.push(Line::default());
    lines.extend(delays(&snapshot.delays, &snapshot.wait_only, width));
    // The way out is the last line of any screen.
    let room = height.saturating_sub(lines.len() + 3);
    let commands = how_to_begin(snapshot);
    // A command that is cut is of no use.
    if commands.len() < room && commands.iter().all(|line| line.chars().count() <= width) {
        lines.push(Line::default());
        lines.extend(commands.into_iter().map(Line::raw));
    }
    if room > 0 && !snapshot.causes.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled(cut("Failures, the last one first", width), BOLD));
        lines.extend(snapshot.causes.iter().take(room).map(|cause| failure(cause, width)));
    }
    lines.truncate(height.saturating_sub(1));
    while lines.len() + 1 < height {
        lines.push(Line::default());
    }
    let way_out = if width >= 70 { "q or Ctrl-C: end in order; a second time: at once" } else { "q: end" };
    lines.push(Line::styled(cut(way_out, width), DIM));
    lines
}

fn head(snapshot: &Snapshot, width: usize) -> Vec<Line<'static>> {
    let mut first = vec![Span::styled("tidegate dev", BOLD)];
    first.push(Span::raw(format!("  {} s", snapshot.elapsed.as_secs())));
    first.extend(snapshot.published.map(|published| Span::raw(format!("  {published} published"))));
    let used: usize = first.iter().map(|span| span.content.chars().count()).sum();
    let state = format!("  {}", snapshot.state);
    let mut lines = if used + state.chars().count() <= width {
        first.push(Span::raw(state));
        vec![Line::from(first)]
    } else {
        vec![Line::from(first), Line::raw(cut(state.trim_start(), width))]
    };
    let addresses: Vec<String> =
        snapshot.addresses.iter().map(|(name, address)| format!("{name} {address}")).collect();
    let together = addresses.join("   ");
    match together.chars().count() {
        0 => {}
        count if count <= width => lines.push(Line::styled(together, DIM)),
        _ => lines.extend(addresses.iter().map(|address| Line::styled(cut(address, width), DIM))),
    }
    lines
}

fn how_to_begin(snapshot: &Snapshot) -> Vec<String> {
    let [variables @ .., command] = &snapshot.how_to_begin[..] else { return Vec::new() };
    let exports = variables.iter().map(|variable| format!("export {variable}"));
    let title = "To publish, in another terminal:".to_owned();
    std::iter::once(title).chain(exports).chain([command.clone()]).collect()
}

/// A column of the table: its head, how wide it is, how much it is needed (0 the most), and what stands in it.
struct Column {
    head: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&ClassFigures) -> String,
}

const COLUMNS: [Column; 9] = [
    Column { head: "done/s", width: 7, rank: 0, cell: |class| format!("{:.0}", class.done_per_second) },
    Column { head: "done", width: 8, rank: 4, cell: |class| class.done.to_string() },
    Column { head: "wait", width: 6, rank: 1, cell: |class| class.waiting.to_string() },
    Column { head: "delay", width: 6, rank: 3, cell: |class| delayed(class.delayed) },
    Column { head: "dead", width: 6, rank: 2, cell: |class| class.dead.to_string() },
    Column { head: "dupl.", width: 7, rank: 5, cell: |class| class.duplicates.to_string() },
    Column { head: "retries", width: 8, rank: 8, cell: |class| class.retries.to_string() },
    Column { head: "wait p95", width: 10, rank: 6, cell: |class| duration(class.wait_p95) },
    Column { head: "run p95", width: 10, rank: 7, cell: |class| duration(class.run_p95) },
];

/// The least that names may have.
const NAME: usize = 9;

/// The columns that fit beside the names, in their order.
fn columns(width: usize) -> Vec<&'static Column> {
    static ALL: [Column; 9] = COLUMNS;
    let mut ranks: Vec<&Column> = ALL.iter().collect();
    ranks.sort_by_key(|column| column.rank);
    let mut used = NAME;
    let fits = |column: &&Column| {
        used += column.width;
        used <= width
    };
    let most = ranks.into_iter().take_while(fits).map(|column| column.rank).max();
    ALL.iter().filter(|column| most.is_some_and(|most| column.rank <= most)).collect()
}

fn table(classes: &[ClassFigures], width: usize) -> Vec<Line<'static>> {
    let columns = columns(width);
    let taken: usize = columns.iter().map(|column| column.width).sum();
    let longest = classes.iter().map(|class| class.name.chars().count() + 2).max().unwrap_or(0);
    let name_width = longest.max(NAME).min(width.saturating_sub(taken));
    let mut head = pad(&cut("class", name_width), name_width);
    for column in &columns {
        head.push_str(&format!("{:>width$}", column.head, width = column.width));
    }
    let mut lines = vec![Line::styled(head, BOLD)];
    for class in classes {
        let mut spans = vec![Span::raw(pad(&cut(&class.name, name_width), name_width))];
        for column in &columns {
            let cell = format!("{:>width$}", (column.cell)(class), width = column.width);
            let alarms = column.head == "dead" && class.dead > 0;
            spans.push(Span::styled(cell, if alarms { RED } else { Style::new() }));
        }
        lines.push(Line::from(spans));
    }
    lines
}

fn delays(tiers: &[TierDelays], wait_only: &[String], width: usize) -> Vec<Line<'static>> {
    let mut title = "Waiting for a retry, by delay".to_owned();
    let longer = format!("{title} ({}: for longer waits only)", wait_only.join(", "));
    if !wait_only.is_empty() && longer.chars().count() <= width {
        title = longer;
    }
    let mut lines = vec![Line::styled(cut(&title, width), BOLD)];
    let longest = tiers.iter().map(|tier| tier.tier.chars().count() + 2).max().unwrap_or(0);
    for tier in tiers {
        let told = |rungs: &[&(String, u64)]| {
            let rungs: Vec<String> = rungs.iter().map(|(rung, count)| format!("{rung}: {count}")).collect();
            format!("{}{}", pad(&tier.tier, longest.max(NAME)), rungs.join("   "))
        };
        let mut text = told(&tier.rungs.iter().collect::<Vec<_>>());
        if text.chars().count() > width {
            // What is empty is the first to go.
            text = told(&tier.rungs.iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>());
        }
        lines.push(Line::raw(cut(&text, width)));
    }
    lines
}

fn failure(cause: &Cause, width: usize) -> Line<'static> {
    let ago = match cause.ago.as_secs() {
        0 => "just now".to_owned(),
        seconds => format!("{seconds} s ago"),
    };
    let Cause { of, what, count, .. } = cause;
    let text = if width >= 60 {
        format!("{count:>6} x  {}  {}  {}", pad(of, 14), pad(&ago, 9), what)
    } else {
        format!("{count} x {of}: {what}")
    };
    Line::raw(cut(&text, width))
}

fn delayed(delayed: Delayed) -> String {
    match delayed {
        Delayed::Exactly(count) => count.to_string(),
        Delayed::Shared => "-".to_owned(),
    }
}

fn duration(duration: Option<Duration>) -> String {
    match duration.map(|duration| duration.as_secs_f64()) {
        None => "-".to_owned(),
        Some(seconds) if seconds < 0.01 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

/// The text in so many characters at most; what is left out is shown as left out.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 { kept } else { format!("{kept}…") }
}

fn pad(text: &str, width: usize) -> String {
    format!("{text:<width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let class = |name: &str, tier: &str, delayed| ClassFigures {
            name: name.to_owned(),
            tier: tier.to_owned(),
            done_per_second: 101.4,
            done: 12_345,
            waiting: 17,
            delayed,
            dead: 42,
            duplicates: 1234,
            retries: 617,
            wait_p95: Some(Duration::from_millis(12)),
            run_p95: Some(Duration::from_millis(1250)),
        };
        let delays = |tier: &str| TierDelays {
            tier: tier.to_owned(),
            rungs: [("1s", 3), ("4s", 1), ("16s", 0), ("1m", 0), ("10m", 7)]
                .map(|(rung, count)| (rung.to_owned(), count))
                .into(),
        };
        Snapshot {
            elapsed: Duration::from_secs(12),
            state: "publishing 200 records a second".to_owned(),
            addresses: vec![
                ("bootstrap", "127.0.0.1:34567".to_owned()),
                ("registry", "http://127.0.0.1:45678".to_owned()),
            ],
            how_to_begin: Vec::new(),
            published: Some(2400),
            classes: vec![
                class("charge", "critical", Delayed::Exactly(4)),
                class("a-class-with-a-long-name", "bulk", Delayed::Shared),
            ],
            delays: vec![delays("critical"), delays("bulk")],
            wait_only: vec!["1m".to_owned(), "10m".to_owned()],
            unreadable: 5,
            causes: vec![
                Cause {
                    of: "charge".to_owned(),
                    what: "tried again: transient".to_owned(),
                    count: 34,
                    ago: Duration::ZERO,
                },
                Cause {
                    of: "welcome".to_owned(),
                    what: "dead: http-422 HTTP 422: no such account".to_owned(),
                    count: 5,
                    ago: Duration::from_secs(9),
                },
            ],
        }
    }

    fn screen(width: u16, height: u16) -> Vec<String> {
        screen_of(&snapshot(), width, height)
    }

    /// The screen's rows, without the blanks at their ends.
    fn screen_of(snapshot: &Snapshot, width: u16, height: u16) -> Vec<String> {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(snapshot, area, &mut buffer);
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn a_wide_screen_shows_everything() {
        let screen = screen(110, 24);
        let all = screen.join("\n");
        for part in [
            "tidegate dev  12 s  2400 published  publishing 200 records a second",
            "bootstrap 127.0.0.1:34567   registry http://127.0.0.1:45678",
            "done/s    done  wait delay  dead  dupl. retries  wait p95   run p95",
            "101   12345    17     4    42   1234     617     12 ms     1.2 s",
            "5 events dead-lettered by ingest",
            "Waiting for a retry, by delay (1m, 10m: for longer waits only)",
            "critical  1s: 3   4s: 1   16s: 0   1m: 0   10m: 7",
            "Failures, the last one first",
            "34 x  charge          just now   tried again: transient",
            "9 s ago",
        ] {
            assert!(all.contains(part), "`{part}` is missing in\n{all}");
        }
        assert!(screen.iter().any(|row| row.starts_with("a-class-with-a-long-name")), "{all}");
        assert!(screen.last().is_some_and(|row| row.starts_with("q or Ctrl-C")), "{all}");
    }

    #[test]
    fn forty_columns_show_what_is_needed_most_in_whole_words() {
        let screen = screen(40, 24);
        let all = screen.join("\n");
        for part in [
            "done/s",
            "wait",
            "delay",
            "dead",
            "charge",
            "bootstrap 127.0.0.1:34567",
            "q: end",
            "critical  1s: 3   4s: 1   10m: 7",
            "34 x charge: tried again: transient",
        ] {
            assert!(all.contains(part), "`{part}` is missing in\n{all}");
        }
        assert!(!all.contains("p95") && !all.contains("dupl"), "{all}");
        assert!(all.contains("a-class-with-a…"), "{all}");
    }

    #[test]
    fn a_screen_of_any_size_is_drawn_and_keeps_its_way_out() {
        for width in [1, 2, 8, 20, 39, 80, 300] {
            for height in [1, 2, 5, 12, 60] {
                let screen = screen(width, height);
                assert!(
                    screen.last().is_some_and(|row| row.starts_with('q') || row.starts_with('…')),
                    "{width} x {height}"
                );
            }
        }
    }

    #[test]
    fn commands_to_begin_with_are_shown_whole_or_not_at_all() {
        let commands =
            ["A=127.0.0.1:1", "B=http://127.0.0.1:2", "tidegate produce --topic shop.orders --schema FILE"];
        let how_to_begin = commands.map(str::to_owned).into();
        let snapshot = Snapshot { how_to_begin, causes: Vec::new(), ..snapshot() };
        let wide = screen_of(&snapshot, 80, 24);
        let title = wide.iter().position(|row| row.starts_with("To publish")).unwrap();
        assert_eq!(
            wide[title + 1..title + 4],
            [
                "export A=127.0.0.1:1",
                "export B=http://127.0.0.1:2",
                "tidegate produce --topic shop.orders --schema FILE",
            ]
        );
        for (width, height) in [(46, 24), (80, 15), (1, 1)] {
            let small = screen_of(&snapshot, width, height).join("\n");
            assert!(
                !small.contains("publish, in") && !small.contains("export"),
                "{width} x {height}: {small}"
            );
        }
    }

    #[test]
    fn durations_are_told_in_the_unit_that_fits() {
        let told =
            [Some(0.0012), Some(0.35), Some(12.34), None].map(|d| duration(d.map(Duration::from_secs_f64)));
        assert_eq!(told, ["1.2 ms", "350 ms", "12.3 s", "-"]);
    }
}
