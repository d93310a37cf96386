//! What may be held against a process: faults that explain why a run of it was not remembered.

use std::collections::BTreeMap;

use super::Books;
use crate::history::{
    At, Call, Ending, History, Injected, LifeNumber, LogPartition, OpenedMark, OpenerName, Said,
};

/// How long a process may take to learn that it was deposed, in milliseconds: until its next heartbeat is answered, on a busy
/// machine.
pub(super) const LEARNS_WITHIN: i64 = 15_000;

/// How long after the end of a process, or after it knew that it lost partitions, the endpoint may still see a run of its begin, in
/// milliseconds: a request may be on its way, and a shard hears of a loss at its next turn.
const ON_ITS_WAY: i64 = 500;

/// How long it takes at most, on a busy machine and with well servers, until the end of a run is marked, in milliseconds.
const MARKED_WITHIN: i64 = 10_000;
/// How long servers take to be well again, in milliseconds.
const WELL_WITHIN: i64 = 15_000;

/// What befell a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    Killed,
    EndedItself,
    Frozen,
    Lost,
    Left,
}

/// Whether the end of a run may have been unmarked still at that time.
fn was_unmarked(history: &History, run: &Call, at: At) -> bool {
    let marked = run.ended.plus_millis(MARKED_WITHIN);
    let unwell = |fault: &Injected| fault.from <= marked && fault.until.plus_millis(WELL_WITHIN) >= run.ended;
    at <= marked || history.faults.iter().any(|fault| fault.of_servers && unwell(fault))
}

/// What befell the process of a run before the key was run again, and while the run could be unmarked.
pub(super) fn trouble_of_run(history: &History, run: &Call, again: At) -> Option<Trouble> {
    let troubles = troubles(history, run.life, run.began, again);
    troubles.into_iter().find(|(at, _)| was_unmarked(history, run, *at)).map(|(_, trouble)| trouble)
}

/// What befell the process of that number between two moments, and when.
pub(super) fn troubles(history: &History, life: LifeNumber, from: At, until: At) -> Vec<(At, Trouble)> {
    let Some(life) = history.lives.get(life) else { return Vec::new() };
    let within = |at: At| from <= at && at <= until;
    let on_its_way = |at: At| ON_ITS_WAY + history.stalled_within(at, from);
    let arrives = |at: At| from <= at.plus_millis(on_its_way(at)) && at <= until;
    let mut found = Vec::new();
    match life.ended {
        Some((at, Ending::Killed)) if arrives(at) => found.push((at, Trouble::Killed)),
        Some((at, Ending::Itself(_))) if arrives(at) => found.push((at, Trouble::EndedItself)),
        _ => {}
    }
    let frozen = |&&(began, ended): &&(At, At)| began <= until && ended.plus_millis(LEARNS_WITHIN) >= from;
    found.extend(life.frozen.iter().filter(frozen).map(|&(began, _)| (began, Trouble::Frozen)));
    for &(at, what) in &life.said {
        match what {
            // Another may own the partition for a while before the process hears of it.
            Said::Lost
                if from <= at.plus_millis(on_its_way(at)) && at <= until.plus_millis(LEARNS_WITHIN) =>
            {
                found.push((at.plus_millis(-LEARNS_WITHIN), Trouble::Lost));
            }
            Said::Left if within(at) => found.push((at, Trouble::Left)),
            _ => {}
        }
    }
    found
}

/// Who owned which partition, as the changelogs tell it.
pub(super) struct Owners {
    opened: BTreeMap<LogPartition, Vec<OpenedMark>>,
    openers: BTreeMap<LifeNumber, OpenerName>,
}

/// What a process was to a partition when it ran something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The owner, since the record of that offset, which was appended then.
    Owner { since: i64, opened: At },
    /// Another had opened the partition at that time.
    Deposed { since: At },
    /// The changelog doesn't tell.
    Unknown,
}

impl Owners {
    pub(super) fn of(books: &Books<'_>) -> Self {
        let mut opened: BTreeMap<LogPartition, Vec<OpenedMark>> = BTreeMap::new();
        for mark in &books.history.opened {
            opened.entry(mark.at).or_default().push(*mark);
        }
        opened.values_mut().for_each(|marks| marks.sort_by_key(|mark| mark.offset));
        Self { opened, openers: openers(books) }
    }

    pub(super) fn opener_of(&self, life: LifeNumber) -> Option<OpenerName> {
        self.openers.get(&life).copied()
    }

    /// What `life` was to the partition at that time.
    pub(super) fn standing(&self, life: LifeNumber, log: LogPartition, at: At) -> Standing {
        let (Some(opener), Some(opened)) = (self.openers.get(&life), self.opened.get(&log)) else {
            return Standing::Unknown;
        };
        let until_then: Vec<&OpenedMark> = opened.iter().take_while(|mark| mark.appended <= at).collect();
        let Some(mine) = until_then.iter().rposition(|mark| mark.opener == *opener) else {
            return Standing::Unknown;
        };
        match until_then.get(mine + 1) {
            Some(next) => Standing::Deposed { since: next.appended },
            None => Standing::Owner { since: until_then[mine].offset, opened: until_then[mine].appended },
        }
    }
}

/// Each process writes its marks under a name of its own. Whose name it is tells the calls that the marks are of: the votes of
/// all marks, since one alone may be of a run that two processes did.
fn openers(books: &Books<'_>) -> BTreeMap<LifeNumber, OpenerName> {
    let mut votes: BTreeMap<OpenerName, BTreeMap<LifeNumber, usize>> = BTreeMap::new();
    for done in &books.history.done {
        let calls = books.calls_by_key.get(&done.key).map_or(&[][..], Vec::as_slice);
        let mut lives = calls.iter().filter(|call| call.is_effective()).map(|call| call.life);
        if let (Some(life), None) = (lives.next(), lives.next()) {
            *votes.entry(done.opener).or_default().entry(life).or_default() += 1;
        }
    }
    let most = |votes: BTreeMap<LifeNumber, usize>| votes.into_iter().max_by_key(|&(_, count)| count);
    votes.into_iter().filter_map(|(opener, votes)| Some((most(votes)?.0, opener))).collect()
}
