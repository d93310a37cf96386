//! How the items of each run stand, counted as the journal is folded: a run may have a million of them.

use rusqlite::{Connection, params};
use rustc_hash::FxHashMap;
use tidegate_domain::inbox::{Answer, Item, RunId, State};
use tidegate_pipeline::journal::Order;

/// Changes of the counts of runs that the tables lack.
#[derive(Debug, Default)]
pub(crate) struct RunCounts(FxHashMap<RunId, Change>);

#[derive(Debug, Default)]
struct Change {
    accepted: i64,
    refused: i64,
    /// The same of orders to reopen: a run of replays gives up with these what it can't publish, and they are not what it is for.
    reopened: i64,
    not_reopened: i64,
    /// Those that a run of replays gave up, less those that it ordered anew.
    released: i64,
    passed: i64,
    failed: i64,
    pending: i64,
}

impl RunCounts {
    /// An order of the run counted, or did not. `again`: the item's latest replay was of this run.
    pub(super) fn ordered(&mut self, run: RunId, order: Order, counts: bool, again: bool) {
        let change = self.0.entry(run).or_default();
        match (order, counts) {
            (Order::Reopen, true) => {
                change.reopened += 1;
                change.released += i64::from(again);
            }
            (Order::Reopen, false) => change.not_reopened += 1,
            (Order::Replay { .. }, true) if again => change.released -= 1,
            (_, true) => change.accepted += 1,
            (_, false) => change.refused += 1,
        }
    }

    /// What the journal says of an item changed. A replay that another one follows stays counted as it ended.
    pub(super) fn moved(&mut self, before: &Item, after: &Item) {
        let at = |item: &Item| item.replay.map(|replay| replay.at);
        if at(before) == at(after) {
            self.count(before, -1);
        }
        self.count(after, 1);
    }

    fn count(&mut self, item: &Item, by: i64) {
        let Some(replay) = item.replay else { return };
        let change = self.0.entry(replay.run).or_default();
        let answer = item.answer.filter(|answer| answer.round >= replay.round).map(|outcome| outcome.answer);
        match (item.state, answer) {
            (State::Replaying, _) => change.pending += by,
            (State::Resolved | State::AlreadyDone, _) | (State::Open, Some(Answer::Coalesced)) => {
                change.passed += by
            }
            (State::FailedAgain, _) | (State::Discarded, Some(Answer::FailedAgain)) => change.failed += by,
            (State::Open | State::Discarded, _) => {}
        }
    }

    /// Writes what has changed since the last time.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "UPDATE runs SET accepted = accepted + CASE WHEN what = 'reopen' THEN ?7 ELSE ?2 END,
             refused = refused + CASE WHEN what = 'reopen' THEN ?8 ELSE ?3 END,
             passed = passed + ?4, failed = failed + ?5, pending = pending + ?6, released = released + ?9 WHERE run = ?1",
        )?;
        for (run, change) in self.0.drain() {
            let Change { accepted, refused, reopened, not_reopened, released, passed, failed, pending } =
                change;
            let run = run.0.cast_signed();
            statement.execute(params![
                run,
                accepted,
                refused,
                passed,
                failed,
                pending,
                reopened,
                not_reopened,
                released
            ])?;
        }
        Ok(())
    }
}
