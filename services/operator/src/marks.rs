//! Marks of jobs as the changelogs hold them, read as workers do: what was appended about a key is joined, and forgotten when the
//! retention has passed since the last of it. One scan for all who ask.

use std::ops::ControlFlow;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Offset, UnixMillis};
use tidegate_kafka::{LogReader, ReadError};
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_pipeline::{Record, TopicPartition};

use crate::inbox::{Inbox, now};

/// For how long marks are remembered, and from when that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    retention: Duration,
    now: UnixMillis,
}

impl Memory {
    /// That of a pipeline's workers, now.
    pub(crate) fn of(inbox: &Inbox) -> Self {
        Self { retention: inbox.shared.config.state.retention, now: UnixMillis(now()) }
    }

    /// Whether what was appended `at` is still remembered at the time `then`. What has no time is.
    fn remembers(&self, at: Option<UnixMillis>, then: Option<UnixMillis>) -> bool {
        at.zip(then).is_none_or(|(at, then)| at.after(self.retention) >= then)
    }
}

/// What a changelog says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// All of it, joined.
    pub(crate) mark: Mark,
    /// Where the last of it stands.
    pub(crate) offset: Offset,
    /// When that was appended.
    pub(crate) at: Option<UnixMillis>,
    /// Workers know nothing of it any more.
    pub(crate) is_forgotten: bool,
}

impl Found {
    /// Whether workers skip its job as done.
    pub(crate) fn is_done(&self) -> bool {
        self.mark.done.is_some() && !self.is_forgotten
    }
}

/// How much of a changelog partition was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Older records stand before those that were read.
    pub(crate) is_cut: bool,
    /// It was read to its end, or to where nothing more was sought.
    pub(crate) is_enough: bool,
}

/// The keys that are sought in one partition of a changelog, and what was found of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    sought: FxHashMap<IdempotencyKey, Option<Found>>,
    /// How many of them are not known to be done.
    open: usize,
}

impl Marks {
    /// These keys are sought.
    pub(crate) fn of(keys: impl IntoIterator<Item = IdempotencyKey>) -> Self {
        let sought: FxHashMap<_, _> = keys.into_iter().map(|key| (key, None)).collect();
        Self { open: sought.len(), sought }
    }

    /// What was found of a key.
    pub(crate) fn get(&self, key: &IdempotencyKey) -> Option<&Found> {
        self.sought.get(key)?.as_ref()
    }

    /// Whether each of the keys is done, by what was read until now. Only a record whose time is ahead of this clock, and further than
    /// marks are remembered, could change that.
    pub(crate) fn are_all_done(&self) -> bool {
        self.open == 0
    }

    /// Reads a partition: of its last `most` records, or all of them. `goes_on` is asked after each batch.
    pub(crate) fn read(
        &mut self,
        logs: &LogReader,
        log: &TopicPartition,
        most: Option<u64>,
        memory: &Memory,
        goes_on: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<Extent, ReadError> {
        let (first, end) = logs.bounds(log)?;
        let most = most.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
        let from = first.0.max(end.0.saturating_sub(most));
        let mut is_enough = true;
        logs.read(log, CommitPosition(from), end, &mut |records| {
            records.iter().for_each(|record| self.look(record, memory));
            is_enough = goes_on(self);
            if is_enough { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(Extent { is_cut: from > first.0, is_enough })
    }

    /// What one record says. What is no entry says nothing of any key: workers pass it over too.
    fn look(&mut self, record: &Record, memory: &Memory) {
        let Ok((_, Entry::Marks(entries))) = format::read(record.value().unwrap_or_default()) else { return };
        for entry in &entries {
            let Some(known) = self.sought.get_mut(&entry.key) else { continue };
            let was_done = known.is_some_and(|known| known.is_done());
            let at = record.timestamp();
            let before = known.filter(|before| memory.remembers(before.at, at));
            let found = Found {
                mark: before.map_or(entry.mark, |before| before.mark.join(entry.mark)),
                offset: record.offset(),
                // A broker's clock that went back shortens nothing.
                at: at.max(before.and_then(|before| before.at)),
                is_forgotten: false,
            };
            let found = Found { is_forgotten: !memory.remembers(found.at, Some(memory.now)), ..found };
            // Open again, where what made it done was forgotten by the time of this record.
            self.open += usize::from(was_done);
            self.open -= usize::from(found.is_done());
            *known = Some(found);
        }
    }
}

#[cfg(test)]
mod tests;
