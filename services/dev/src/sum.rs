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
        self.done + self.refused + self.unreadable + self.duplicates
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

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.is_final { "" } else { "  +  not finished" };
        writeln!(
            f,
            "  class     published  =   done  +  dead (refused + unreadable)  +  duplicates{open}     retries"
        )?;
        for (row, class) in self.rows.iter().zip(&CLASSES) {
            let dead = row.refused + row.unreadable;
            write!(
                f,
                "  {:<8}  {:>9}  =  {:>5}  +  {dead:>4} ({:>7} + {:>10})  +  {:>10}",
                class.name, row.published, row.done, row.refused, row.unreadable, row.duplicates
            )?;
            if !self.is_final {
                write!(f, "  +  {:>12}", row.published.saturating_sub(row.settled()))?;
            }
            writeln!(f, "  {:>10}", row.retries)?;
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
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("+             4 ")), "{text}");
    }
}
