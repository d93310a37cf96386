//! Writing the index: letters as they come, batch by batch, each batch with its positions in one transaction.

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, params};
use tidegate_domain::Partition;
use tidegate_domain::inbox::State;

use super::causes::{Belongs, Causes};
use super::folded;
use super::lives::Now;
use super::lookups::Lookups;
use super::run_counts::RunCounts;
use crate::letter::Letter;
use crate::query::{heap, of_heap};
use crate::reference::ItemRef;

/// How many bits of an id tell items of the same millisecond apart.
pub(crate) const ID_BITS: u32 = 20;

const FOLDED: &str = "SELECT EXISTS (SELECT 1 FROM folded)";

/// The one that writes. Dropped without [`Writer::commit`], it leaves nothing of its batch.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(super) connection: Connection,
    pub(super) causes: Causes,
    pub(super) runs: RunCounts,
    pub(super) lookups: Lookups,
    under_way: bool,
    /// The journal names an item: a new one may be among those.
    pub(super) has_folded: bool,
}

/// An item as its row says.
#[derive(Clone, Debug)]
pub(super) struct ItemRow {
    pub(super) name: ItemRef,
    pub(super) id: i64,
    pub(super) cause: i64,
    pub(super) state: State,
    pub(super) letters: i64,
    pub(super) latest: Latest,
}

impl ItemRow {
    /// What it is, if nothing changes it.
    pub(super) fn now(&self) -> Now {
        Now { cause: self.cause, state: self.state, dead_at: self.latest.dead_at, letters: self.letters }
    }
}

/// The order of an item's letters: the same in whichever order they are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Latest {
    pub(super) round: u32,
    pub(super) dead_at: i64,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

impl Latest {
    fn of(letter: &Letter<'_>) -> Self {
        Self {
            round: letter.round,
            dead_at: letter.dead_at.0,
            partition: letter.partition.0,
            offset: letter.record.offset().0,
        }
    }
}

/// A log that the index follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// The dead-letter topic.
    Dlq,
    /// The journal.
    Journal,
    /// The dead-letter topic again, for full text.
    Search,
}

impl Log {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dlq => "dlq",
            Self::Journal => "journal",
            Self::Search => "search",
        }
    }
}

impl Writer {
    pub(super) fn new(connection: Connection) -> rusqlite::Result<Self> {
        let causes = Causes::load(&connection)?;
        let has_folded = connection.query_row(FOLDED, [], |row| row.get(0))?;
        let (runs, lookups) = Default::default();
        Ok(Self { connection, causes, runs, lookups, under_way: false, has_folded })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// What is in memory is what the tables hold again.
    pub(super) fn reload(&mut self) -> rusqlite::Result<()> {
        self.under_way = false;
        self.causes = Causes::load(&self.connection)?;
        (self.runs, self.lookups) = Default::default();
        self.has_folded = self.connection.query_row(FOLDED, [], |row| row.get(0))?;
        Ok(())
    }

    /// Begins a batch, unless one is under way.
    pub(crate) fn begin(&mut self) -> rusqlite::Result<()> {
        if !self.under_way {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            self.under_way = true;
        }
        Ok(())
    }

    /// Ends a batch: `log` is applied below `next` in these partitions.
    pub(crate) fn commit(&mut self, log: Log, next: &[(Partition, i64)]) -> rusqlite::Result<()> {
        if !self.under_way && next.is_empty() {
            return Ok(());
        }
        self.begin()?;
        self.causes.write(&self.connection)?;
        self.runs.write(&self.connection)?;
        self.lookups.write(&self.connection)?;
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO positions (log, partition, next) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET next = excluded.next",
        )?;
        for (partition, next) in next {
            statement.execute(params![log.as_str(), partition.0, next])?;
        }
        drop(statement);
        self.connection.execute_batch("COMMIT")?;
        self.under_way = false;
        Ok(())
    }

    /// Up to where a partition of `log` is applied.
    pub(crate) fn position(&self, log: Log, partition: Partition) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT next FROM positions WHERE log = ?1 AND partition = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row(params![log.as_str(), partition.0], |row| row.get(0)).optional()
    }

    /// So many letters are about to come.
    pub(crate) fn expect(&mut self, letters: u64) -> rusqlite::Result<()> {
        self.lookups.expect(&self.connection, letters)
    }

    /// Applies a letter.
    pub(crate) fn letter(&mut self, letter: &Letter<'_>) -> rusqlite::Result<()> {
        self.begin()?;
        let belongs = self.belongs(letter)?;
        let item = letter.item();
        let is_new = match self.item(item)? {
            None => self.add_item(letter, item, belongs).map(|()| true)?,
            Some(row) => self.add_letter(&row, letter, belongs)?,
        };
        if is_new {
            self.causes.saw(belongs.cause, letter.dead_at.0);
        }
        Ok(())
    }

    /// The item's row.
    pub(super) fn item(&self, item: ItemRef) -> rusqlite::Result<Option<ItemRow>> {
        let Some(id) = self.lookups.item(&self.connection, item)? else { return Ok(None) };
        let sql = "SELECT heap, round, dead_at, partition, \"offset\", letters FROM items WHERE id = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let latest =
            Latest { round: row.get(1)?, dead_at: row.get(2)?, partition: row.get(3)?, offset: row.get(4)? };
        let (cause, state) = of_heap(row.get(0)?);
        Ok(Some(ItemRow { name: item, id, cause, state, letters: row.get(5)?, latest }))
    }

    fn add_item(&mut self, letter: &Letter<'_>, item: ItemRef, belongs: Belongs) -> rusqlite::Result<()> {
        let cause = belongs.cause;
        // The journal may have been read further than the dead-letter topic.
        let folded = if self.has_folded { folded::read(&self.connection, item)? } else { None };
        let state = folded.map_or(State::Open, |(folded, _)| folded.state);
        let id = self.insert_item(letter, item, belongs, state)?;
        self.lookups.name(item, id);
        self.causes.enter(cause, state, id);
        if folded.is_some() {
            let row = ItemRow { name: item, id, cause, state, letters: 1, latest: Latest::of(letter) };
            self.place(&row, row.now(), folded.as_ref())?;
        }
        Ok(())
    }

    fn insert_item(
        &self,
        letter: &Letter<'_>,
        item: ItemRef,
        belongs: Belongs,
        state: State,
    ) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO items (partition, \"offset\", round, attempt, forced, dead_at, first_seen, key_bytes, value_bytes,
             message, first_error, stub, trace, own, id, hash, heap, source_partition, source_offset, key, letters, failed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, 1, ?6)",
        )?;
        bind(&mut statement, letter, belongs)?;
        let key = letter.key();
        statement.raw_bind_parameter(16, item.0.cast_signed())?;
        statement.raw_bind_parameter(18, letter.source.1)?;
        statement.raw_bind_parameter(19, letter.source.2)?;
        statement.raw_bind_parameter(20, key.as_ref().map(|key| &key.0[..]))?;
        let mut id = first_id(letter);
        loop {
            statement.raw_bind_parameter(15, id)?;
            statement
                .raw_bind_parameter(17, heap(belongs.cause, state, is_moved(id, Some(letter.dead_at.0))))?;
            match statement.raw_execute() {
                // The id is taken: `item` itself was looked up before.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => id += 2,
                other => return other.map(|_| id),
            }
        }
    }

    /// Another letter of an item that is known; whether it was not there before.
    fn add_letter(&mut self, row: &ItemRow, letter: &Letter<'_>, belongs: Belongs) -> rusqlite::Result<bool> {
        let latest = Latest::of(letter);
        let sql = "SELECT 1 FROM all_letters WHERE item = ?1 AND partition = ?2 AND \"offset\" = ?3";
        let place = params![row.id, latest.partition, latest.offset];
        if self.connection.prepare_cached(sql)?.exists(place)? {
            return Ok(false);
        }
        if latest < row.latest {
            let mut statement = self.connection.prepare_cached(
                "INSERT INTO letters (partition, \"offset\", round, attempt, forced, dead_at, first_seen, key_bytes,
                 value_bytes, message, first_error, stub, trace, own, item, cause)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )?;
            bind(&mut statement, letter, belongs)?;
            statement.raw_bind_parameter(15, row.id)?;
            statement.raw_bind_parameter(16, belongs.cause)?;
            statement.raw_execute()?;
            drop(statement);
            return self.now_of(row, row.cause, row.latest.dead_at, row.letters + 1).map(|()| true);
        }
        let sql = "INSERT INTO letters SELECT * FROM all_letters WHERE item = ?1 AND partition = ?2 AND \"offset\" = ?3";
        let place = params![row.id, row.latest.partition, row.latest.offset];
        self.connection.prepare_cached(sql)?.execute(place)?;
        let mut statement = self.connection.prepare_cached(
            "UPDATE items SET partition = ?1, \"offset\" = ?2, round = ?3, attempt = ?4, forced = ?5, dead_at = ?6,
             first_seen = ?7, key_bytes = ?8, value_bytes = ?9, message = ?10, first_error = ?11, stub = ?12, trace = ?13,
             own = ?14 WHERE id = ?15",
        )?;
        bind(&mut statement, letter, belongs)?;
        statement.raw_bind_parameter(15, row.id)?;
        statement.raw_execute()?;
        drop(statement);
        self.now_of(row, belongs.cause, latest.dead_at, row.letters + 1).map(|()| true)
    }
}

/// Binds what a row has of its letter to the parameters from 1 to 14.
fn bind(statement: &mut CachedStatement<'_>, letter: &Letter<'_>, belongs: Belongs) -> rusqlite::Result<()> {
    let job = letter.job.as_ref();
    statement.raw_bind_parameter(1, letter.partition.0)?;
    statement.raw_bind_parameter(2, letter.record.offset().0)?;
    statement.raw_bind_parameter(3, letter.round)?;
    statement.raw_bind_parameter(4, job.map(|job| job.attempt.0))?;
    statement.raw_bind_parameter(5, job.is_some_and(|job| job.forced))?;
    statement.raw_bind_parameter(6, letter.dead_at.0)?;
    statement.raw_bind_parameter(7, job.map(|job| job.first_seen.0))?;
    statement.raw_bind_parameter(8, size(letter.record.key()))?;
    statement.raw_bind_parameter(9, size(letter.record.value()))?;
    statement.raw_bind_parameter(10, letter.message)?;
    statement.raw_bind_parameter(11, letter.first_error)?;
    statement.raw_bind_parameter(12, letter.stub)?;
    statement.raw_bind_parameter(13, letter.trace)?;
    statement.raw_bind_parameter(14, belongs.own)
}

/// Whether an item began to be of its cause at another time than its id says.
pub(super) fn is_moved(id: i64, failed_at: Option<i64>) -> bool {
    Some(id >> ID_BITS) != failed_at
}

fn size(bytes: Option<&[u8]>) -> Option<i64> {
    bytes.map(|bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

/// The first id to try for an item of this letter. Those of a partition and a millisecond are in their order, so that a row stands behind
/// the one before; and far from those of other partitions, so that few are taken. Items have even ids; the odd ones are for words of later
/// letters.
pub(super) fn first_id(letter: &Letter<'_>) -> i64 {
    const FAR: i64 = 0x9e37_79b1;
    let place = i64::from(letter.partition.0).wrapping_mul(FAR).wrapping_add(letter.record.offset().0);
    let within = (place << 1) & ((1 << ID_BITS) - 2);
    (letter.dead_at.0.clamp(0, (1 << (62 - ID_BITS)) - 1) << ID_BITS) | within
}
