//! One item: all of its letters, and what the journal says of it.

use rusqlite::{OptionalExtension, params};
use serde::Serialize;

use super::View;
use super::list::Row;
use crate::error::OperatorError;
use crate::reference::ItemRef;

/// An item with its letters.
#[derive(Clone, Debug, Serialize)]
pub struct Item {
    /// As in a list.
    #[serde(flatten)]
    pub row: Row,
    /// Its letters, the latest first.
    pub occurrences: Vec<Letter>,
    /// What operators ordered of it, and what came of it, in the order of the journal.
    pub journal: Vec<ItemEntry>,
    /// The last accepted entry of the journal: an action on it must name it.
    pub seen: Option<i64>,
    /// While it is replaying: when the copy in a delay topic is due, in milliseconds since the epoch.
    pub waiting_until: Option<i64>,
    /// When it was dead-lettered again after it was done or discarded, as which it stays; none: it was not.
    pub late: Option<i64>,
}

/// One dead letter of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Letter {
    /// Its place in the dead-letter topic: `partition/offset`.
    pub record: String,
    /// The partition there.
    pub partition: i32,
    /// The offset there.
    pub offset: i64,
    /// The kind of its failure.
    pub kind: Option<String>,
    /// The code of its failure.
    pub code: String,
    /// Its group.
    pub fingerprint: String,
    /// What its failure says.
    pub message: String,
    /// The first failure of its round, where that was another.
    pub first_error: Option<String>,
    /// The round that it died in.
    pub round: u32,
    /// The attempt that failed.
    pub attempt: Option<u32>,
    /// It ran although its key was done.
    pub forced: bool,
    /// When it was dead-lettered.
    pub dead_at: i64,
    /// When ingest first forwarded its event.
    pub first_seen: Option<i64>,
    /// The size of its key; none: it is null.
    pub key_bytes: Option<u64>,
    /// The size of its value; none: it is null.
    pub value_bytes: Option<u64>,
    /// Why it is not whole.
    pub stub: Option<String>,
    /// The id of its trace.
    pub trace: Option<String>,
}

/// An entry of the journal about an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ItemEntry {
    /// Its offset in the journal.
    pub at: i64,
    /// When it was written, in milliseconds since the epoch, by the broker's clock.
    pub time: i64,
    /// `replay`, `discard`, `reopen`, or what became of a replay: `resolved`, `already-done`, `superseded`, `coalesced`, `waiting`,
    /// `failed-again`.
    pub what: String,
    /// Why it does not count; none: it does.
    pub void: Option<String>,
    /// The round that it is about.
    pub round: Option<u32>,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// Who: an operator, or the group of a service.
    pub by: Option<String>,
    /// More for a person.
    pub detail: Option<String>,
}

impl View<'_> {
    /// An item by its short name.
    pub(crate) fn item(&self, item: ItemRef) -> Result<Option<Item>, OperatorError> {
        let sql = "SELECT item FROM names WHERE hash = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<i64> = statement.query_row([item.0.cast_signed()], |row| row.get(0)).optional()?;
        let Some(local) = found else { return Ok(None) };
        let Some(row) = self.row(local)? else { return Ok(None) };
        let (seen, waiting_until) = self.folded(item)?;
        Ok(Some(Item {
            occurrences: self.letters(local)?,
            journal: self.journal(item)?,
            seen,
            waiting_until,
            late: self.late_since(local)?,
            row,
        }))
    }

    fn late_since(&self, local: i64) -> rusqlite::Result<Option<i64>> {
        let mut statement = self.connection.prepare_cached("SELECT failed_at FROM late WHERE item = ?1")?;
        statement.query_row([local], |row| row.get(0)).optional()
    }

    fn folded(&self, item: ItemRef) -> rusqlite::Result<(Option<i64>, Option<i64>)> {
        let sql = "SELECT seen, waiting_until FROM folded WHERE hash = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found = statement.query_row([item.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(found.optional()?.unwrap_or_default())
    }

    /// The letters of an item by its short name, the latest first.
    pub(crate) fn letters_of(&self, item: ItemRef) -> Result<Vec<Letter>, OperatorError> {
        let sql = "SELECT item FROM names WHERE hash = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let found: Option<i64> = statement.query_row([item.0.cast_signed()], |row| row.get(0)).optional()?;
        Ok(found.map(|local| self.letters(local)).transpose()?.unwrap_or_default())
    }

    /// The letters of an item, the latest first.
    pub(crate) fn letters(&self, local: i64) -> rusqlite::Result<Vec<Letter>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT partition, \"offset\", causes.kind, causes.code, causes.fingerprint, all_letters.message,
             first_error, round, attempt, forced, dead_at, first_seen, key_bytes, value_bytes, stub, trace
             FROM all_letters CROSS JOIN causes ON causes.id = all_letters.cause WHERE item = ?1
             ORDER BY round DESC, dead_at DESC, partition DESC, \"offset\" DESC LIMIT 1000",
        )?;
        let letters = statement.query_map([local], |row| {
            let (partition, offset): (i32, i64) = (row.get(0)?, row.get(1)?);
            let size = |place: usize| -> rusqlite::Result<Option<u64>> {
                Ok(row.get::<_, Option<i64>>(place)?.and_then(|size| u64::try_from(size).ok()))
            };
            Ok(Letter {
                record: format!("{partition}/{offset}"),
                partition,
                offset,
                kind: row.get(2)?,
                code: row.get(3)?,
                fingerprint: format!("{:016x}", row.get::<_, i64>(4)?),
                message: row.get(5)?,
                first_error: row.get(6)?,
                round: row.get(7)?,
                attempt: row.get(8)?,
                forced: row.get(9)?,
                dead_at: row.get(10)?,
                first_seen: row.get(11)?,
                key_bytes: size(12)?,
                value_bytes: size(13)?,
                stub: row.get(14)?,
                trace: row.get(15)?,
            })
        })?;
        letters.collect()
    }

    /// What the journal has of an item, whether it was dead-lettered or not.
    pub(crate) fn journal(&self, item: ItemRef) -> rusqlite::Result<Vec<ItemEntry>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT at, time, what, void, round, run, author, detail FROM entries WHERE hash = ?1 ORDER BY at, place LIMIT 1000",
        )?;
        let entries = statement.query_map(params![item.0.cast_signed()], |row| {
            Ok(ItemEntry {
                at: row.get(0)?,
                time: row.get(1)?,
                what: row.get(2)?,
                void: row.get(3)?,
                round: row.get(4)?,
                run: row.get::<_, Option<i64>>(5)?.map(|run| format!("{run:016x}")),
                by: row.get(6)?,
                detail: row.get(7)?,
            })
        })?;
        entries.collect()
    }
}
