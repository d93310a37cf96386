//! Writing the index: letters as they come, batch by batch, each batch with its positions in one transaction.

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use tidegate_domain::Partition;
use tidegate_domain::inbox::State;

use super::causes::Causes;
use super::folded;
use super::run_counts::RunCounts;
use crate::letter::Letter;
use crate::query::{code, state};
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
    under_way: bool,
    /// The journal names an item: a new one may be among those.
    pub(super) has_folded: bool,
}

/// An item as its row says.
#[derive(Clone, Debug)]
pub(super) struct ItemRow {
    pub(super) id: i64,
    pub(super) cause: i64,
    pub(super) state: State,
    /// When it began to be of its cause.
    pub(super) failed_at: i64,
    latest: Latest,
}

/// The order of an item's letters: the same in whichever order they are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Latest {
    round: u32,
    dead_at: i64,
    partition: i32,
    offset: i64,
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
        Ok(Self { connection, causes, runs: RunCounts::default(), under_way: false, has_folded })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// What is in memory is what the tables hold again.
    pub(super) fn reload(&mut self) -> rusqlite::Result<()> {
        self.under_way = false;
        self.causes = Causes::load(&self.connection)?;
        self.runs = RunCounts::default();
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

    /// Applies a letter.
    pub(crate) fn letter(&mut self, letter: &Letter<'_>) -> rusqlite::Result<()> {
        self.begin()?;
        let cause = self.causes.of(&self.connection, letter)?;
        let item = letter.item();
        let latest = Latest {
            round: letter.round,
            dead_at: letter.dead_at.0,
            partition: letter.partition.0,
            offset: letter.record.offset().0,
        };
        let is_new = match self.item(item)? {
            None => {
                let (state, ended_at) = self.state_of_new(item)?;
                let id = self.insert_item(letter, item, cause, state)?;
                if ended_at.is_some() {
                    self.note_end(id, cause, letter.dead_at.0, ended_at)?;
                }
                self.insert_letter(letter, id, cause)?;
                self.causes.enter(cause, state, id);
                true
            }
            Some(row) => {
                self.insert_letter(letter, row.id, cause)? && self.add_letter(&row, cause, latest)?
            }
        };
        if is_new {
            self.causes.saw(cause, letter.dead_at.0);
        }
        Ok(())
    }

    /// The item's row.
    pub(super) fn item(&self, item: ItemRef) -> rusqlite::Result<Option<ItemRow>> {
        let sql = "SELECT id, cause, state, round, dead_at, partition, \"offset\", failed_at
                   FROM items WHERE hash = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([item.0.cast_signed()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let latest =
            Latest { round: row.get(3)?, dead_at: row.get(4)?, partition: row.get(5)?, offset: row.get(6)? };
        Ok(Some(ItemRow {
            id: row.get(0)?,
            cause: row.get(1)?,
            state: state(row.get(2)?),
            failed_at: row.get(7)?,
            latest,
        }))
    }

    fn insert_item(
        &self,
        letter: &Letter<'_>,
        item: ItemRef,
        cause: i64,
        state: State,
    ) -> rusqlite::Result<i64> {
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO items (id, hash, cause, state, source_partition, source_offset, key, letters, failed_at,
             round, dead_at, partition, \"offset\") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?9, ?8, ?9, ?10, ?11)",
        )?;
        let key = letter.key();
        let mut id = first_id(letter.dead_at.0, item);
        loop {
            let inserted = statement.execute(params![
                id,
                item.0.cast_signed(),
                cause,
                code(state),
                letter.source.1,
                letter.source.2,
                key.as_ref().map(|key| &key.0[..]),
                letter.round,
                letter.dead_at.0,
                letter.partition.0,
                letter.record.offset().0,
            ]);
            match inserted {
                // The id is taken: `item` itself was looked up before.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => id += 2,
                other => return other.map(|_| id),
            }
        }
    }

    /// Whether it was not there before.
    fn insert_letter(&self, letter: &Letter<'_>, item: i64, cause: i64) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(
            "INSERT OR IGNORE INTO letters (item, partition, \"offset\", cause, round, attempt, forced, dead_at,
             first_seen, key_bytes, value_bytes, message, first_error, stub, trace)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        let job = letter.job.as_ref();
        let inserted = statement.execute(params![
            item,
            letter.partition.0,
            letter.record.offset().0,
            cause,
            letter.round,
            job.map(|job| job.attempt.0),
            job.is_some_and(|job| job.forced),
            letter.dead_at.0,
            job.map(|job| job.first_seen.0),
            size(letter.record.key()),
            size(letter.record.value()),
            letter.message,
            letter.first_error,
            letter.stub,
            letter.trace,
        ])?;
        Ok(inserted > 0)
    }

    /// Another letter of an item that is known; always true.
    fn add_letter(&mut self, row: &ItemRow, cause: i64, latest: Latest) -> rusqlite::Result<bool> {
        let (cause, latest) = if latest < row.latest { (row.cause, row.latest) } else { (cause, latest) };
        let failed_at = self.failed_at(row.id, cause)?;
        let mut statement = self.connection.prepare_cached(
            "UPDATE items SET letters = letters + 1, cause = ?2, failed_at = ?3, round = ?4, dead_at = ?5,
             partition = ?6, \"offset\" = ?7 WHERE id = ?1",
        )?;
        let Latest { round, dead_at, partition, offset } = latest;
        statement.execute(params![row.id, cause, failed_at, round, dead_at, partition, offset])?;
        drop(statement);
        self.now_of(row, cause, failed_at)?;
        Ok(true)
    }

    /// When an item began to be of a cause.
    pub(super) fn failed_at(&self, item: i64, cause: i64) -> rusqlite::Result<i64> {
        let sql = "SELECT min(dead_at) FROM letters WHERE item = ?1 AND cause = ?2";
        self.connection.prepare_cached(sql)?.query_row([item, cause], |row| row.get(0))
    }

    /// The item whose row was this is of `cause` now, since `failed_at`.
    pub(super) fn now_of(&mut self, row: &ItemRow, cause: i64, failed_at: i64) -> rusqlite::Result<()> {
        if (cause, failed_at) == (row.cause, row.failed_at) {
            return Ok(());
        }
        if cause != row.cause {
            self.causes.leave(row.cause, row.state);
            self.causes.enter(cause, row.state, row.id);
        }
        let sql =
            "UPDATE ends SET cause = ?1, failed_at = ?2 WHERE cause = ?3 AND failed_at = ?4 AND item = ?5";
        let values = params![cause, failed_at, row.cause, row.failed_at, row.id];
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// The journal may have been read further than the dead-letter topic.
    fn state_of_new(&self, item: ItemRef) -> rusqlite::Result<(State, Option<i64>)> {
        if !self.has_folded {
            return Ok((State::Open, None));
        }
        let known = folded::read(&self.connection, item)?;
        Ok(known.map_or((State::Open, None), |(folded, ended_at)| (folded.state, ended_at)))
    }
}

fn size(bytes: Option<&[u8]>) -> Option<i64> {
    bytes.map(|bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
}

/// The first id to try for an item whose letter has this time. Which of a millisecond's ids it is does not matter, so its hash
/// scatters them. Items have even ids; the odd ones are for words of later letters.
pub(super) fn first_id(dead_at: i64, item: ItemRef) -> i64 {
    let within = (item.0 & ((1 << ID_BITS) - 2)).cast_signed();
    (dead_at.clamp(0, (1 << (62 - ID_BITS)) - 1) << ID_BITS) | within
}
