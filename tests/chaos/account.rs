//! The accounting: what must hold of a history, rule by rule. Pure, so that each rule is shown to fail when it is broken.

mod early;
mod fates;
mod lives;
mod order;
mod repeats;

use std::collections::BTreeMap;

use crate::history::{Call, Copy, DeadLetter, History, Key, Origin};

pub(crate) use early::Early;
pub(crate) use fates::Fates;
pub(crate) use order::Order;
pub(crate) use repeats::{Cause, Repeats};

/// A history, with what the rules look up.
pub(crate) struct Books<'a> {
    pub(crate) history: &'a History,
    /// In the order in which they began.
    calls_by_key: BTreeMap<Key, Vec<&'a Call>>,
    calls_by_origin: BTreeMap<Origin, Vec<&'a Call>>,
    /// The first copy of each event in its job topic.
    jobs: BTreeMap<Origin, &'a Copy>,
    dead: BTreeMap<Origin, Vec<&'a DeadLetter>>,
}

impl<'a> Books<'a> {
    fn of(history: &'a History) -> Self {
        let mut books = Self {
            history,
            calls_by_key: BTreeMap::new(),
            calls_by_origin: BTreeMap::new(),
            jobs: BTreeMap::new(),
            dead: BTreeMap::new(),
        };
        for call in &history.calls {
            books.calls_by_key.entry(call.key).or_default().push(call);
            books.calls_by_origin.entry(call.origin).or_default().push(call);
        }
        for copy in &history.jobs {
            books.jobs.entry(copy.origin).or_insert(copy);
        }
        for dead in &history.dead {
            books.dead.entry(dead.origin).or_default().push(dead);
        }
        books
    }

    fn calls_of(&self, origin: Origin) -> &[&'a Call] {
        self.calls_by_origin.get(&origin).map_or(&[], Vec::as_slice)
    }

    fn dead_of(&self, origin: Origin) -> &[&'a DeadLetter] {
        self.dead.get(&origin).map_or(&[], Vec::as_slice)
    }

    fn describe(&self, call: &Call) -> String {
        let life = self.history.lives.get(call.life).map_or("?", |life| life.service.as_str());
        let Call { kind, origin, key, attempt, began, ended, end, .. } = call;
        format!(
            "{} {origin} key {key:?} attempt {attempt} by {life} (life {}) from {} to {}: {end:?}",
            kind.name(),
            call.life,
            began.0,
            ended.0
        )
    }
}

/// The verdict on a history.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) fates: Fates,
    pub(crate) repeats: Repeats,
    pub(crate) early: Early,
    pub(crate) order: Order,
    /// Events that Kafka acknowledged and does not have.
    pub(crate) gone: usize,
    /// Offsets that were not committed in the end.
    pub(crate) lag: i64,
}

impl Account {
    pub(crate) fn of(history: &History) -> Self {
        let books = Books::of(history);
        Self {
            fates: Fates::of(&books),
            repeats: Repeats::of(&books),
            early: Early::of(&books),
            order: Order::of(&books),
            gone: history.gone,
            lag: history.lag.values().sum(),
        }
    }

    /// The rules that were broken: each with its name, and what broke it.
    pub(crate) fn broken(&self) -> Vec<(&'static str, Vec<String>)> {
        let lag = if self.lag == 0 { Vec::new() } else { vec![format!("{} offsets", self.lag)] };
        let gone = if self.gone == 0 { Vec::new() } else { vec![format!("{} events", self.gone)] };
        let rules = [
            ("acknowledged by Kafka and not in the source topic", &gone),
            ("lost", &self.fates.lost),
            ("skipped although not done", &self.fates.skipped),
            ("dead-lettered or forwarded for no reason", &self.fates.wrong),
            ("run again after its `Done` was visible", &self.repeats.after_done),
            ("repeated outside of every fault's window", &self.repeats.unexplained),
            ("early retries", &self.early.early),
            ("retries that no copy announced", &self.early.unannounced),
            ("out of order", &self.order.broken),
            ("not committed in the end", &lag),
        ];
        rules
            .into_iter()
            .filter(|(_, found)| !found.is_empty())
            .map(|(name, found)| (name, found.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;
