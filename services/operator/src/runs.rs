//! Runs, and the history of what operators did.

use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use tidegate_domain::inbox::{RampLimits, RunId};

use crate::error::OperatorError;
use crate::inbox::Inbox;

/// What was ordered together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Its name, 16 hex digits.
    pub run: String,
    /// `replay`, `discard` or `reopen`.
    pub what: String,
    /// It runs items although they are done.
    pub forced: bool,
    /// The offset in the journal that it begins at.
    pub begun_at: i64,
    /// When, in milliseconds since the epoch, by the broker's clock.
    pub time: i64,
    /// Who ordered it.
    pub by: String,
    /// What was selected, for a person.
    pub selection: String,
    /// How many items were.
    pub total: u64,
    /// How far it is.
    pub status: RunStatus,
    /// Why it stopped.
    pub why: Option<String>,
    /// Since when it is so.
    pub changed_at: i64,
    /// By whom.
    pub changed_by: String,
    /// How many items a second it publishes at most.
    pub rate: Option<f64>,
    /// For how many items the order counts.
    pub accepted: u64,
    /// For how many it does not.
    pub refused: u64,
    /// How many replays it gave up before they were sent: their items are open again.
    pub released: u64,
    /// How many of its replays passed, failed again, or have no outcome yet.
    pub passed: u64,
    /// See [`Run::passed`].
    pub failed: u64,
    /// See [`Run::passed`].
    pub pending: u64,
    /// How it climbs.
    #[serde(skip)]
    pub ramp: Option<RampLimits>,
    /// The offset in the journal that its ramp begins at, where it was resumed.
    #[serde(skip)]
    pub(crate) from_at: Option<i64>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// It goes on, as long as somebody carries it out.
    Running,
    /// An operator paused it.
    Paused,
    /// It stopped, by itself or by an operator.
    Stopped,
    /// All of its items have an end.
    Finished,
}

/// What an operator did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryEntry {
    /// Its offset in the journal.
    pub at: i64,
    /// When, in milliseconds since the epoch, by the broker's clock.
    pub time: i64,
    /// Who.
    pub by: String,
    /// `begin`, `pause`, `resume`, `stop`, `finish` of a run; `replay`, `forced replay`, `discard`, `reopen` of items; or what was
    /// audited, such as `reveal`.
    pub what: String,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// Why, or of what.
    pub reason: Option<String>,
    /// How many items it is about.
    pub items: u64,
    /// For how many of them it counts.
    pub accepted: u64,
    /// The item, where it is one.
    pub id: Option<String>,
}

const RUN: &str = "SELECT run, what, forced, begun, time, author, selection, total, status, why, changed_at, changed_by, rate,
     ramp, from_at, accepted, refused, passed, failed, pending, released FROM runs";

impl Inbox {
    /// A run by its name.
    pub fn run(&self, run: RunId) -> Result<Option<Run>, OperatorError> {
        let found = self.view(|view| {
            let mut statement = view.connection.prepare_cached(&format!("{RUN} WHERE run = ?1"))?;
            Ok(statement.query_row([run.0.cast_signed()], read_run).optional()?)
        })?;
        Ok(found.flatten())
    }

    /// The latest runs, the latest first.
    pub fn runs(&self, limit: usize) -> Result<Vec<Run>, OperatorError> {
        let limit = i64::try_from(limit.clamp(1, 1000)).unwrap_or(50);
        let runs = self.view(|view| {
            let mut statement =
                view.connection.prepare_cached(&format!("{RUN} ORDER BY begun DESC LIMIT ?1"))?;
            Ok(statement.query_map([limit], read_run)?.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        Ok(runs.unwrap_or_default())
    }

    /// What operators did, the latest first, before the journal's offset `before`.
    pub fn history(&self, before: Option<i64>, limit: usize) -> Result<Vec<HistoryEntry>, OperatorError> {
        let limit = i64::try_from(limit.clamp(1, 1000)).unwrap_or(50);
        let entries = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT at, time, author, what, run, reason, items, accepted, id FROM history WHERE at < ?1
                 ORDER BY at DESC LIMIT ?2",
            )?;
            let rows = statement.query_map(params![before.unwrap_or(i64::MAX), limit], |row| {
                Ok(HistoryEntry {
                    at: row.get(0)?,
                    time: row.get(1)?,
                    by: row.get(2)?,
                    what: row.get(3)?,
                    run: row.get::<_, Option<i64>>(4)?.map(|run| format!("{run:016x}")),
                    reason: row.get(5)?,
                    items: unsigned(row.get(6)?),
                    accepted: unsigned(row.get(7)?),
                    id: row.get(8)?,
                })
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        Ok(entries.unwrap_or_default())
    }

    /// The items that an order of a run was given for, in its order: short name, and why it does not count.
    pub fn run_items(
        &self,
        run: RunId,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(crate::ItemRef, Option<String>)>, OperatorError> {
        let (skip, limit) =
            (i64::try_from(skip).unwrap_or(0), i64::try_from(limit.clamp(1, 1000)).unwrap_or(50));
        let items = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT hash, void FROM entries WHERE run = ?1 AND what IN ('replay', 'discard', 'reopen')
                 ORDER BY at, place LIMIT ?2 OFFSET ?3",
            )?;
            let rows = statement.query_map(params![run.0.cast_signed(), limit, skip], |row| {
                Ok((crate::ItemRef(row.get::<_, i64>(0)?.cast_unsigned()), row.get(1)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        Ok(items.unwrap_or_default())
    }
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let status: String = row.get(8)?;
    Ok(Run {
        run: format!("{:016x}", row.get::<_, i64>(0)?),
        what: row.get(1)?,
        forced: row.get(2)?,
        begun_at: row.get(3)?,
        time: row.get(4)?,
        by: row.get(5)?,
        selection: row.get(6)?,
        total: unsigned(row.get(7)?),
        status: match status.as_str() {
            "paused" => RunStatus::Paused,
            "stopped" => RunStatus::Stopped,
            "finished" => RunStatus::Finished,
            _ => RunStatus::Running,
        },
        why: row.get(9)?,
        changed_at: row.get(10)?,
        changed_by: row.get(11)?,
        rate: row.get(12)?,
        ramp: row.get::<_, Option<String>>(13)?.and_then(|text| ramp_of(&text)),
        from_at: row.get(14)?,
        accepted: unsigned(row.get(15)?),
        refused: unsigned(row.get(16)?),
        passed: unsigned(row.get(17)?),
        failed: unsigned(row.get(18)?),
        pending: unsigned(row.get(19)?),
        released: unsigned(row.get(20)?),
    })
}

/// A ramp's limits, for a person and for the index.
pub(crate) fn ramp_text(ramp: &RampLimits) -> String {
    let RampLimits { first, factor, cap, failures, timeout } = ramp;
    format!("first={first} factor={factor} cap={cap} failures={failures} timeout={}", timeout.as_millis())
}

/// The limits that stand in the index.
pub(crate) fn ramp_of(text: &str) -> Option<RampLimits> {
    let value = |name: &str| {
        text.split(' ')
            .find_map(|pair| pair.split_once('=').filter(|(found, _)| *found == name))
            .map(|(_, value)| value)
    };
    Some(RampLimits {
        first: value("first")?.parse().ok()?,
        factor: value("factor")?.parse().ok()?,
        cap: value("cap")?.parse().ok()?,
        failures: value("failures")?.parse().ok()?,
        timeout: std::time::Duration::from_millis(value("timeout")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_is_read_back_from_its_text() {
        for ramp in [RampLimits::CANARY, RampLimits::ALL_AT_ONCE] {
            assert_eq!(ramp_of(&ramp_text(&ramp)), Some(ramp));
        }
    }
}
