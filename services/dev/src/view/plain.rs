//! Plain lines: where nobody watches a terminal.

use std::io::Write;
use std::time::Duration;

use tidegate_bootstrap::counted;

use super::{columns, is_of_closed_terminal};
use crate::error::DevError;
use crate::snapshot::{ClassFigures, Delayed, Snapshot};

/// One line a second, when something has changed.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    last: Option<(Duration, String)>,
}

const EVERY: Duration = Duration::from_secs(1);

impl Plain {
    pub(super) fn show(&mut self, snapshot: &Snapshot) -> Result<(), DevError> {
        self.line(snapshot).map_or(Ok(()), |line| tell(&line))
    }

    fn line(&mut self, snapshot: &Snapshot) -> Option<String> {
        let figures = figures(snapshot);
        if let Some((at, shown)) = &self.last
            && (snapshot.elapsed < *at + EVERY || *shown == figures)
        {
            return None;
        }
        let line = format!("{:>6.1} s  {figures}", snapshot.elapsed.as_secs_f64());
        self.last = Some((snapshot.elapsed, figures));
        Some(line)
    }
}

fn figures(snapshot: &Snapshot) -> String {
    let mut parts = vec![snapshot.state.clone()];
    parts.extend(snapshot.published.map(|published| format!("{published} published")));
    parts.extend(snapshot.classes.iter().map(class));
    if snapshot.unreadable > 0 {
        parts.push(format!("{} dead-lettered by ingest", snapshot.unreadable));
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" | ")
}

fn class(class: &ClassFigures) -> String {
    let mut text = format!("{} {} done", class.name, class.done);
    let mut add = |count: u64, one: &str, more: &str| {
        if count > 0 {
            text.push_str(&format!(", {}", counted(count, one, more)));
        }
    };
    add(class.waiting, "waiting", "waiting");
    if let Delayed::Exactly(delayed) = class.delayed {
        add(delayed, "delayed", "delayed");
    }
    add(class.dead, "dead", "dead");
    add(class.duplicates, "duplicate skipped", "duplicates skipped");
    text
}

/// Says a line on standard output as it is: a table, or what somebody is to copy.
///
/// # Errors
/// [`DevError::Unread`] where a pipe (`| head`) or the terminal is closed, and [`DevError::Output`] where it can't be written otherwise.
pub(crate) fn say(line: &str) -> Result<(), DevError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => DevError::Unread,
        _ if is_of_closed_terminal(&error) => DevError::Unread,
        _ => DevError::Output(error),
    })
}

/// Says a sentence on standard output; on a terminal, no word of it is cut at the end of a line.
///
/// # Errors
/// As of [`say`].
pub(crate) fn tell(sentence: &str) -> Result<(), DevError> {
    match columns() {
        Some(columns) => say(&wrapped(sentence, columns)),
        None => say(sentence),
    }
}

/// The text in lines of so many characters at most, broken between words; lines after the first one are indented as that one. A word that
/// is longer than a line has one for itself.
fn wrapped(text: &str, columns: usize) -> String {
    let blanks = text.len() - text.trim_start().len();
    let indent = if blanks < columns / 2 { &text[..blanks] } else { "" };
    let (mut lines, mut line) = (Vec::new(), String::new());
    // Blanks within are kept, since columns may stand below each other.
    for word in text[blanks..].split_inclusive(' ') {
        let used = indent.chars().count() + line.chars().count();
        if !line.is_empty() && used + word.trim_end().chars().count() > columns {
            lines.push(format!("{indent}{}", line.trim_end()));
            line.clear();
        }
        line.push_str(word);
    }
    lines.push(format!("{indent}{}", line.trim_end()));
    lines.join("\n")
}

/// Whether somebody can have read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was written.
    Yes,
    /// The terminal is closed, or the disk is full: nobody has.
    No,
}

/// Says a line on standard error.
pub(crate) fn write_error(line: &str) -> Told {
    match writeln!(std::io::stderr().lock(), "{line}") {
        Ok(()) => Told::Yes,
        Err(_) => Told::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(millis: u64, done: u64) -> Snapshot {
        Snapshot {
            elapsed: Duration::from_millis(millis),
            state: "publishing".to_owned(),
            published: Some(9),
            classes: vec![ClassFigures {
                name: "charge".to_owned(),
                done,
                dead: 1,
                delayed: Delayed::Exactly(2),
                ..ClassFigures::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn lines_are_broken_between_words_and_stand_below_each_other() {
        let text = "  Killed process 4711 (SIGKILL) with 8 jobs in hand";
        assert_eq!(wrapped(text, 31), "  Killed process 4711 (SIGKILL)\n  with 8 jobs in hand");
        assert_eq!(wrapped(text, 80), text);
        assert_eq!(wrapped("a http://127.0.0.1:40123/metrics b", 20), "a\nhttp://127.0.0.1:40123/metrics\nb");
        assert_eq!(wrapped("", 1), "");
        for columns in 1..60 {
            let told = wrapped(text, columns);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&told), words(text), "{columns}");
            let fits = |line: &str| line.chars().count() <= columns || line.split_whitespace().count() == 1;
            assert!(told.lines().all(fits), "{columns}: {told}");
        }
    }

    #[test]
    fn one_duplicate_is_one_and_two_are_some() {
        let told = |duplicates| class(&ClassFigures { duplicates, ..ClassFigures::default() });
        assert!(told(1).ends_with(", 1 duplicate skipped"), "{}", told(1));
        assert!(told(2).ends_with(", 2 duplicates skipped"), "{}", told(2));
    }

    #[test]
    fn a_line_comes_once_a_second_and_only_when_something_changed() {
        let mut plain = Plain::default();
        let expected = "   1.0 s  publishing | 9 published | charge 5 done, 2 delayed, 1 dead";
        assert_eq!(plain.line(&snapshot(1000, 5)).as_deref(), Some(expected));
        assert_eq!(plain.line(&snapshot(1500, 6)), None);
        assert!(plain.line(&snapshot(2000, 6)).is_some());
        assert_eq!(plain.line(&snapshot(4000, 6)), None);
    }
}
