//! With `ordering = "key"`, an event's call begins when the one before it is finished.

use std::collections::BTreeMap;

use super::Books;
use super::lives::troubles;
use crate::history::{At, Call, Kind, Published};

/// Pairs of followers, counted; those that broke the rule are told.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Calls that were held against what came before them.
    pub(crate) checked: usize,
    /// Overlaps in the window of a kill, a freeze or a loss.
    pub(crate) excused: usize,
    pub(crate) broken: Vec<String>,
}

/// The latest end of what came before, and the call that it is of, if it is one's.
#[derive(Clone, Copy)]
struct Finished<'a> {
    at: At,
    began: At,
    call: Option<&'a Call>,
}

impl Order {
    pub(super) fn of(books: &Books<'_>) -> Self {
        let mut lanes: BTreeMap<u32, Vec<&Published>> = BTreeMap::new();
        for event in books.history.published.iter().filter(|event| event.kind == Kind::Ordered) {
            lanes.entry(event.lane).or_default().push(event);
        }
        let mut order = Self::default();
        for lane in lanes.values_mut() {
            lane.sort_by_key(|event| event.origin);
            let mut before: Option<Finished<'_>> = None;
            for event in lane.iter() {
                if let Some(before) = before {
                    books.calls_of(event.origin).iter().for_each(|call| order.check(books, before, call));
                }
                let finished = finished(books, event);
                if let Some(finished) = finished
                    && before.is_none_or(|before| before.at < finished.at)
                {
                    before = Some(finished);
                }
            }
        }
        order
    }

    fn check(&mut self, books: &Books<'_>, before: Finished<'_>, call: &Call) {
        self.checked += 1;
        if call.began >= before.at {
            return;
        }
        let troubled = |life| !troubles(books.history, life, before.began, before.at).is_empty();
        let other = before.call.filter(|other| other.life != call.life);
        if troubled(call.life) || other.is_some_and(|other| troubled(other.life)) {
            self.excused += 1;
        } else {
            let ms = before.at.millis_after(call.began);
            let other = before.call.map_or("a dead letter".to_owned(), |call| books.describe(call));
            self.broken
                .push(format!("{}\n      began {ms} ms before the end of {other}", books.describe(call)));
        }
    }
}

/// When the event was done for the first time, or dead.
fn finished<'a>(books: &Books<'a>, event: &Published) -> Option<Finished<'a>> {
    let calls = books.calls_of(event.origin);
    let began = calls.first().map(|call| call.began);
    let effect = calls.iter().filter(|call| call.is_effective()).min_by_key(|call| call.ended);
    match effect {
        Some(call) => Some(Finished { at: call.ended, began: began.unwrap_or(call.began), call: Some(call) }),
        None => {
            let at = books.dead_of(event.origin).iter().map(|dead| dead.at).min()?;
            Some(Finished { at, began: began.unwrap_or(at), call: calls.last().copied() })
        }
    }
}
