//! The sum at the end: published = done + dead + duplicates, class by class, and whether the endpoint agrees.

use std::fmt;

use tidegate_pipeline::events;

use crate::demo::endpoint::Totals;
use crate::demo::events::CLASSES;
use crate::demo::producer::Published;
use crate::figures::Page;

/// The fates of one class's records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) published: u64,
    pub(crate) done: u64,
    /// Dead-lettered by the worker: the endpoint refused them.
    pub(crate) refused: u64,
    /// Dead-lettered by ingest: they were no events.
    pub(crate) unreadable: u64,
    pub(crate) duplicates: u64,
    /// Copies that waited for another attempt.
    pub(crate) retries: u64,
    /// What the endpoint saw.
    pub(crate) seen: Totals,
}

/// The fates of all records, by class, in the order of [`CLASSES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) rows: [Row; 3],
    /// Whether everything that was published must have its fate: not if the run was cut short.
    pub(crate) is_final: bool,
}

impl Row {
    pub(crate) fn settled(&self) -> u64 {
        self.done + self.dead() + self.duplicates
    }

    fn dead(&self) -> u64 {
        self.refused + self.unreadable
    }

    fn problem(&self, name: &str) -> Option<String> {
        let Self { published, done, refused, seen, .. } = self;
        let settled = self.settled();
        if settled != *published {
            return Some(format!("{name}: {published} published, and {settled} came to an end"));
        }
        if (seen.done, seen.refused) != (*done, *refused) {
            let Totals { done: seen_done, refused: seen_refused, .. } = seen;
            return Some(format!(
                "{name}: {done} done and {refused} refused, and the endpoint did {seen_done} and refused {seen_refused}"
            ));
        }
        None
    }
}

impl Sum {
    /// As the services' own metrics say it.
    pub(crate) fn of(page: &Page, published: &[Published; 3], seen: impl Fn(&str) -> Totals) -> Self {
        let mut sum = Self::default();
        for ((row, class), published) in sum.rows.iter_mut().zip(&CLASSES).zip(published) {
            let labels = [("class", class.name)];
            let jobs = |outcome| page.sum(events::JOBS, &[labels[0], ("outcome", outcome)]);
            *row = Row {
                published: published.records,
                done: jobs("done"),
                refused: jobs("dead"),
                unreadable: page.sum(events::EVENTS, &[("topic", class.topic), ("fate", "dead")]),
                duplicates: page.sum(events::DUPLICATES, &labels),
                retries: jobs("scheduled") + jobs("snoozed") + jobs("climbed"),
                seen: seen(class.name),
            };
        }
        sum
    }

    pub(crate) fn settled(&self) -> u64 {
        self.rows.iter().map(Row::settled).sum()
    }

    /// What does not add up; nothing if all does.
    pub(crate) fn problem(&self) -> Option<String> {
        self.rows.iter().zip(&CLASSES).find_map(|(row, class)| row.problem(class.name))
    }
}

/// The columns of a terminal that has room for the table.
const WIDE: usize = 80;

impl Sum {
    /// As a table; on a terminal that has no room for it, line by line.
    pub(crate) fn told(&self, columns: Option<usize>) -> String {
        if columns.is_none_or(|columns| columns >= WIDE) { self.to_string() } else { self.lines() }
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        for (row, class) in self.rows.iter().zip(&CLASSES) {
            text.push_str(&format!("  {}: {} published\n", class.name, row.published));
            text.push_str(&format!("    = {:>5} done\n    + {:>5} dead\n", row.done, row.dead()));
            text.push_str(&format!("    + {:>5} duplicates\n", row.duplicates));
            if !self.is_final {
                let open = row.published.saturating_sub(row.settled());
                text.push_str(&format!("    + {open:>5} not finished\n"));
            }
        }
        text
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dead, open) =
            if self.is_final { ("dead (refused + unreadable)", "") } else { ("dead", " + not finished") };
        writeln!(f, "  class   published =   done + {dead} + duplicates{open}  retries")?;
        for (row, class) in self.rows.iter().zip(&CLASSES) {
            write!(f, "  {:<7} {:>9} = {:>6} + {:>4}", class.name, row.published, row.done, row.dead())?;
            if self.is_final {
                write!(f, " ({:>7} + {:>10})", row.refused, row.unreadable)?;
            }
            write!(f, " + {:>10}", row.duplicates)?;
            if !self.is_final {
                write!(f, " + {:>12}", row.published.saturating_sub(row.settled()))?;
            }
            writeln!(f, "  {:>7}", row.retries)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum() -> Sum {
        let seen = Totals { done: 7, refused: 1, done_again: 0 };
        let row = Row { published: 11, done: 7, refused: 1, unreadable: 1, duplicates: 2, retries: 3, seen };
        Sum { rows: [row; 3], is_final: true }
    }

    #[test]
    fn a_sum_adds_up_only_if_every_record_has_one_end_and_the_endpoint_agrees() {
        assert_eq!(sum().problem(), None);
        let spoils: [fn(&mut Row); 5] = [
            |row| row.published += 1,
            |row| row.duplicates += 1,
            |row| row.unreadable -= 1,
            |row| row.seen.done -= 1,
            |row| row.seen.refused += 1,
        ];
        for (number, spoil) in spoils.into_iter().enumerate() {
            let mut sum = sum();
            spoil(&mut sum.rows[1]);
            assert!(sum.problem().is_some_and(|problem| problem.starts_with("welcome: ")), "{number}");
        }
    }

    #[test]
    fn a_sum_that_was_cut_short_tells_what_is_not_finished() {
        let mut sum = Sum { is_final: false, ..sum() };
        sum.rows[0].published = 15;
        let text = sum.to_string();
        assert!(text.contains("not finished"), "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("+            4 ")), "{text}");
    }

    #[test]
    fn a_terminal_without_room_for_the_table_gets_it_line_by_line() {
        let sum = sum();
        assert_eq!((sum.told(Some(80)), sum.told(None)), (sum.to_string(), sum.to_string()));
        let narrow = sum.told(Some(79));
        let first: Vec<&str> = narrow.lines().take(4).collect();
        assert_eq!(
            first,
            ["  charge: 11 published", "    =     7 done", "    +     2 dead", "    +     2 duplicates"]
        );
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(
            !narrow.contains("not finished")
                && Sum { is_final: false, ..sum }.told(Some(40)).contains("not finished")
        );
    }

    #[test]
    fn eighty_columns_hold_a_sum_whose_columns_stand_below_their_heads() {
        for is_final in [true, false] {
            let text = Sum { is_final, ..sum() }.to_string();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 4, "{text}");
            let ends: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
            assert!(ends.iter().all(|end| *end == ends[0] && *end <= WIDE), "{ends:?}\n{text}");
            let places =
                |line: &str, sign| line.match_indices(sign).map(|(place, _)| place).collect::<Vec<_>>();
            for sign in ["=", "+", ")"] {
                assert!(lines.iter().all(|line| places(line, sign) == places(lines[0], sign)), "{text}");
            }
        }
    }
}
