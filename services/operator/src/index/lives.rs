//! When items failed and when they ended, of which the state of a group is told.

use rusqlite::params;
use tidegate_domain::UnixMillis;
use tidegate_domain::inbox::{Death, Ending, Entry, Item, Lives, State, lives};

use super::folded::{self, Folded};
use super::writer::{ItemRow, Writer, is_moved};
use crate::query::heap;
use crate::reference::ItemRef;

/// What an item's row becomes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) cause: i64,
    pub(super) state: State,
    /// Of its latest letter.
    pub(super) dead_at: i64,
    pub(super) letters: i64,
}

impl Writer {
    /// When the item ended, that was `before` and is `after` an accepted entry. An earlier time that still counts is kept.
    pub(super) fn ended(
        &self,
        item: ItemRef,
        (before, ended_at): (&Item, Option<i64>),
        after: &Item,
        (entry, time): (&Entry, i64),
    ) -> rusqlite::Result<Option<i64>> {
        match (before.state.is_end(), after.state.is_end()) {
            (false, false) => Ok(None),
            // It did not run: it is done since it was.
            (false, true) if matches!(entry, Entry::Release { .. }) => {
                let sql = "SELECT max(at) FROM endings WHERE hash = ?1";
                self.connection.prepare_cached(sql)?.query_row([item.0.cast_signed()], |row| row.get(0))
            }
            (false, true) => Ok(Some(time)),
            (true, true) if after.done <= before.done => Ok(ended_at),
            (true, is_end) => {
                let Some(ended_at) = ended_at else { return Ok(is_end.then_some(time)) };
                let taken_back_at = (before.state == State::Discarded && !is_end).then_some(time);
                let sql = "INSERT OR REPLACE INTO endings (hash, at, taken_back_at) VALUES (?1, ?2, ?3)";
                let values = params![item.0.cast_signed(), ended_at, taken_back_at];
                self.connection.prepare_cached(sql)?.execute(values)?;
                Ok(is_end.then_some(time))
            }
        }
    }

    /// What was folded shows in lists and counts, where the item was dead-lettered.
    pub(super) fn move_item(&mut self, item: ItemRef, folded: &Folded) -> rusqlite::Result<()> {
        let Some(row) = self.item(item)? else { return Ok(()) };
        let now = Now { state: folded.0.state, ..row.now() };
        self.place(&row, now, Some(folded))
    }

    /// The item whose row was this has so many letters now, of which the latest is of `cause`, and from `dead_at`.
    pub(super) fn now_of(
        &mut self,
        row: &ItemRow,
        cause: i64,
        dead_at: i64,
        letters: i64,
    ) -> rusqlite::Result<()> {
        let folded = if self.has_folded { folded::read(&self.connection, row.name)? } else { None };
        let now = Now { cause, dead_at, letters, ..row.now() };
        self.place(row, now, folded.as_ref())
    }

    /// Writes what the item is now to its row and to the counts.
    pub(super) fn place(&mut self, row: &ItemRow, now: Now, folded: Option<&Folded>) -> rusqlite::Result<()> {
        let failed_at = self.note_lives(row, now, folded.and_then(|(_, ended_at)| *ended_at))?;
        let sql = "UPDATE items SET letters = ?2, heap = ?3, failed_at = ?4 WHERE id = ?1";
        let heap = heap(now.cause, now.state, is_moved(row.id, failed_at));
        self.connection.prepare_cached(sql)?.execute(params![row.id, now.letters, heap, failed_at])?;
        if (now.cause, now.state) != (row.cause, row.state) {
            self.causes.leave(row.cause, row.state);
            self.causes.enter(now.cause, now.state, row.id);
        }
        Ok(())
    }

    /// Notes the lives of an item that ended once; when the one that it has now began.
    fn note_lives(&self, row: &ItemRow, now: Now, ended_at: Option<i64>) -> rusqlite::Result<Option<i64>> {
        let endings = self.endings(row.name, ended_at)?;
        let deaths = self.deaths(row, now)?;
        if endings.is_empty() {
            let of_cause = deaths.iter().filter(|death| death.is_of_group);
            return Ok(of_cause.map(|death| death.at.0).min());
        }
        self.forget_lives(row.id)?;
        let Lives { all, late } = lives(deaths, endings, now.state);
        let mut statement = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO lives (cause, failed_at, item, ended_at) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for life in &all {
            if let Some(ended_at) = life.ended_at {
                statement.execute(params![now.cause, life.failed_at.0, row.id, ended_at.0])?;
            }
        }
        if let Some(at) = late {
            let sql = "INSERT OR REPLACE INTO late (item, cause, failed_at) VALUES (?1, ?2, ?3)";
            self.connection.prepare_cached(sql)?.execute([row.id, now.cause, at.0])?;
        }
        let last = all.last().filter(|life| life.ended_at.is_none() || now.state.is_end());
        Ok(late.or(last.map(|life| life.failed_at)).map(|at| at.0))
    }

    /// The item is gone.
    pub(super) fn forget_lives(&self, item: i64) -> rusqlite::Result<()> {
        self.connection.prepare_cached("DELETE FROM lives WHERE item = ?1")?.execute([item])?;
        self.connection.prepare_cached("DELETE FROM late WHERE item = ?1")?.execute([item]).map(drop)
    }

    fn endings(&self, item: ItemRef, ended_at: Option<i64>) -> rusqlite::Result<Vec<Ending>> {
        if !self.has_folded {
            return Ok(Vec::new());
        }
        let sql = "SELECT at, taken_back_at FROM endings WHERE hash = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let past = statement.query_map([item.0.cast_signed()], |row| {
            let taken_back_at = row.get::<_, Option<i64>>(1)?.map(UnixMillis);
            Ok(Ending { at: UnixMillis(row.get(0)?), taken_back_at })
        })?;
        let current = ended_at.map(|at| Ok(Ending { at: UnixMillis(at), taken_back_at: None }));
        past.chain(current).collect()
    }

    /// All letters of the item, each with whether it is of the group that the item is of. A group is told by its fingerprint, so a class
    /// that changed its tier, or an event that has another schema since it was edited, is of its group all the same.
    /// The latest letter may not be in the tables yet.
    fn deaths(&self, row: &ItemRow, now: Now) -> rusqlite::Result<Vec<Death>> {
        let mut deaths = vec![Death { at: UnixMillis(now.dead_at), is_of_group: true }];
        if now.letters > 1 {
            let sql = "SELECT dead_at, cause FROM letters WHERE item = ?1";
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut rows = statement.query([row.id])?;
            while let Some(letter) = rows.next()? {
                let (at, cause): (i64, i64) = (letter.get(0)?, letter.get(1)?);
                let is_of_group = self.causes.are_of_one_group(cause, now.cause);
                deaths.push(Death { at: UnixMillis(at), is_of_group });
            }
        }
        Ok(deaths)
    }
}
