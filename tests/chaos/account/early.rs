//! No retry before it is due.

use std::collections::BTreeMap;

use super::Books;
use crate::config::{JITTER_PERCENT, LADDER};
use crate::history::{At, Call, Kind, Origin};

/// Retries, counted; those that broke the rule are told.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// Retries whose due time is known.
    pub(crate) checked: usize,
    pub(crate) early: Vec<String>,
    /// Retries that no record of a delay topic led to.
    pub(crate) unannounced: Vec<String>,
}

impl Early {
    pub(super) fn of(books: &Books<'_>) -> Self {
        let mut due: BTreeMap<(Origin, u32), At> = BTreeMap::new();
        for copy in &books.history.delayed {
            let first = due.entry((copy.origin, copy.attempt)).or_insert(copy.due);
            // A crash between copy and mark makes a second copy, whose wait is drawn anew.
            *first = copy.due.min(*first);
        }
        let mut early = Self::default();
        for call in books.history.calls.iter().filter(|call| call.attempt > 1) {
            match call.kind {
                Kind::Ordered => early.in_place(books, call),
                _ => match due.get(&(call.origin, call.attempt)) {
                    Some(due) => early.check(books, call, *due),
                    None => early.unannounced.push(books.describe(call)),
                },
            }
        }
        early
    }

    /// Its wait was drawn when the attempt before it failed, which was after it began.
    fn in_place(&mut self, books: &Books<'_>, call: &Call) {
        let before = books.calls_of(call.origin).iter().filter(|other| other.attempt + 1 == call.attempt);
        // An attempt that never reached the endpoint is unknown here, and one that was repeated after this call says nothing of it.
        let before = before.filter(|other| other.began < call.began);
        let Some(failed) = before.map(|other| other.began).min() else { return };
        let rung = LADDER[LADDER.len().min(call.attempt as usize - 1) - 1];
        let shortest = rung.as_millis() as i64 * (100 - JITTER_PERCENT) / 100;
        self.check(books, call, failed.plus_millis(shortest));
    }

    fn check(&mut self, books: &Books<'_>, call: &Call, due: At) {
        self.checked += 1;
        if call.began < due {
            self.early.push(format!("{} ms: {}", due.millis_after(call.began), books.describe(call)));
        }
    }
}
