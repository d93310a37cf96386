//! Letters that the dead-letter topic no longer holds leave the index, so that an index of any age shows the same.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, params};
use tidegate_domain::Partition;

use super::writer::{ItemRow, Writer};
use crate::reference::ItemRef;

/// What an index of the letters that are left would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an index that would have other groups must be built anew"]
pub(crate) enum Left {
    /// This one.
    AsIndexed,
    /// One with other groups: this one must be built anew.
    OtherGroups,
}

impl Writer {
    /// Takes out the letters of a partition below `first`, the first offset that it still holds. Looks through all letters, and
    /// does nothing where that was done for `first` already.
    pub(crate) fn prune(&mut self, partition: Partition, first: i64) -> rusqlite::Result<Left> {
        let name = format!("first {partition}");
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let known: Option<String> = self.connection.query_row(sql, [&name], |row| row.get(0)).optional()?;
        if known.and_then(|first| first.parse().ok()).unwrap_or(0) >= first {
            return Ok(Left::AsIndexed);
        }
        self.begin()?;
        let mut statement = self.connection.prepare(
            "SELECT item, \"offset\", cause, dead_at FROM all_letters WHERE partition = ?1 AND \"offset\" < ?2",
        )?;
        let gone = statement
            .query_map(params![partition.0, first], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?
            .collect::<rusqlite::Result<Vec<(i64, i64, i64, i64)>>>()?;
        drop(statement);
        let mut items = BTreeSet::new();
        for (item, offset, cause, dead_at) in gone {
            let sql = "DELETE FROM letters WHERE item = ?1 AND partition = ?2 AND \"offset\" = ?3";
            self.connection.prepare_cached(sql)?.execute(params![item, partition.0, offset])?;
            self.causes.lost(cause, dead_at);
            items.insert(item);
        }
        for item in items {
            self.look_again(item, (partition, first))?;
        }
        self.causes.drop_empty(&self.connection)?;
        let sql = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
        self.connection.execute(sql, params![name, first.to_string()])?;
        Ok(if self.has_merged_too_much()? { Left::OtherGroups } else { Left::AsIndexed })
    }

    /// An item lost letters below `first`: it is of the latest of those that are left, or it is gone.
    fn look_again(&mut self, item: i64, (partition, first): (Partition, i64)) -> rusqlite::Result<()> {
        let (name, row) = self.item_by_id(item)?;
        let sql = "SELECT count(*) FROM letters WHERE item = ?1";
        let left: i64 = self.connection.prepare_cached(sql)?.query_row([item], |row| row.get(0))?;
        if row.latest.partition != partition.0 || row.latest.offset >= first {
            self.spend_own_id(item)?;
            return self.now_of(&row, row.cause, row.latest.dead_at, left + 1);
        }
        let sql = "SELECT cause, dead_at, partition, \"offset\" FROM letters WHERE item = ?1
                   ORDER BY round DESC, dead_at DESC, partition DESC, \"offset\" DESC LIMIT 1";
        type Latest = (i64, i64, i64, i64);
        let latest: Option<Latest> = self
            .connection
            .prepare_cached(sql)?
            .query_row([item], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .optional()?;
        let Some((cause, dead_at, partition, offset)) = latest else {
            self.forget_lives(item)?;
            self.causes.leave(row.cause, row.state);
            self.connection.prepare_cached("DELETE FROM items WHERE id = ?1")?.execute([item])?;
            return self.lookups.forget(&self.connection, name);
        };
        self.spend_own_id(item)?;
        const LETTER: &str =
            "round, attempt, forced, dead_at, first_seen, key_bytes, value_bytes, message, first_error,
                              stub, trace, own, partition, \"offset\"";
        let place = params![item, partition, offset];
        let sql = format!(
            "UPDATE items SET ({LETTER}) = (SELECT {LETTER} FROM letters WHERE item = ?1 AND partition = ?2
             AND \"offset\" = ?3) WHERE id = ?1"
        );
        self.connection.prepare_cached(&sql)?.execute(place)?;
        let sql = "DELETE FROM letters WHERE item = ?1 AND partition = ?2 AND \"offset\" = ?3";
        self.connection.prepare_cached(sql)?.execute(place)?;
        self.now_of(&row, cause, dead_at, left)
    }

    pub(super) fn item_by_id(&self, item: i64) -> rusqlite::Result<(ItemRef, ItemRow)> {
        let sql = "SELECT hash FROM items WHERE id = ?1";
        let hash: i64 = self.connection.prepare_cached(sql)?.query_row([item], |row| row.get(0))?;
        let name = ItemRef(hash.cast_unsigned());
        Ok((name, self.item(name)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?))
    }
}
