//! What became of each published event.

use std::collections::{BTreeMap, BTreeSet};

use super::Books;
use crate::history::{Key, Kind, Published, Script};

/// The fates, counted; those that break a rule are told.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// Run, and marked done.
    pub(crate) done: usize,
    /// Not run, because an equal one was done or dead.
    pub(crate) duplicates: usize,
    /// Dead-lettered as jobs, by the kind of their failure.
    pub(crate) dead: BTreeMap<String, usize>,
    /// Dead-lettered by ingest.
    pub(crate) dead_events: usize,
    /// Dropped by rule.
    pub(crate) ignored: usize,
    /// Neither done nor dead nor ever a job.
    pub(crate) lost: Vec<String>,
    /// A job that is settled and neither done nor dead, or marked done without an effect.
    pub(crate) skipped: Vec<String>,
    /// Dead or a job, and should not be.
    pub(crate) wrong: Vec<String>,
}

/// The kinds of failure that an outage may end in.
const OF_OUTAGES: [&str; 4] = ["transient", "timeout", "overload", "crash"];

impl Fates {
    pub(super) fn of(books: &Books<'_>) -> Self {
        let done: BTreeSet<Key> = books.history.done.iter().map(|mark| mark.key).collect();
        let mut origins: BTreeMap<(Kind, u64), Vec<&Published>> = BTreeMap::new();
        for event in &books.history.published {
            origins.entry((event.kind, event.id)).or_default().push(event);
        }
        let mut fates = Self::default();
        for event in &books.history.published {
            match event.kind {
                Kind::Noise => fates.noise(books, event),
                Kind::Garbage => fates.garbage(books, event),
                _ => fates.job(books, event, &done, &origins[&(event.kind, event.id)]),
            }
        }
        fates
    }

    fn noise(&mut self, books: &Books<'_>, event: &Published) {
        if books.jobs.contains_key(&event.origin) || !books.dead_of(event.origin).is_empty() {
            self.wrong.push(format!("{} is to be ignored", event.origin));
        } else {
            self.ignored += 1;
        }
    }

    fn garbage(&mut self, books: &Books<'_>, event: &Published) {
        let dead = books.dead_of(event.origin);
        if dead.is_empty() {
            self.lost.push(format!("{}, which is no event, is not in the DLQ", event.origin));
        } else if dead.iter().all(|dead| dead.kind.is_none() && dead.error == "malformed") {
            self.dead_events += 1;
        } else {
            self.wrong.push(format!("{} is no event, and dead as {dead:?}", event.origin));
        }
    }

    fn job(&mut self, books: &Books<'_>, event: &Published, done: &BTreeSet<Key>, equal: &[&Published]) {
        let name = format!("{} {} (event {})", event.kind.name(), event.origin, event.id);
        let dead = books.dead_of(event.origin);
        let reasonable = |error: &str| match event.script {
            Script::Reject => error == "permanent" || OF_OUTAGES.contains(&error),
            _ => OF_OUTAGES.contains(&error),
        };
        if let Some(other) = dead.iter().find(|dead| dead.kind.is_none() || !reasonable(&dead.error)) {
            self.wrong.push(format!("{name}: {other:?}"));
        }
        let Some(job) = books.jobs.get(&event.origin) else {
            if dead.is_empty() {
                self.lost.push(format!("{name} was never a job, and is not in the DLQ"));
            }
            return;
        };
        let calls = books.calls_by_key.get(&job.key).map_or(&[][..], Vec::as_slice);
        let has_effect = calls.iter().any(|call| call.is_effective());
        let is_done = done.contains(&job.key);
        let equal_is_dead = equal.iter().any(|other| !books.dead_of(other.origin).is_empty());
        if is_done && !has_effect {
            self.skipped.push(format!("{name} is marked done, and no call of it was answered by 2xx"));
        } else if is_done && books.calls_of(event.origin).iter().any(|call| call.is_effective()) {
            self.done += 1;
        } else if let Some(dead) = dead.first() {
            *self.dead.entry(dead.error.clone()).or_default() += 1;
        } else if is_done || equal_is_dead {
            self.duplicates += 1;
        } else {
            self.skipped.push(format!(
                "{name} was a job, and is neither done nor dead; {} calls of its key, with effect: {has_effect}",
                calls.len()
            ));
        }
    }
}
