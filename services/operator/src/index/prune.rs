//! Letters that the dead-letter topic no longer holds leave the index, so that an index of any age shows the same.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, params};
use tidegate_domain::Partition;

use super::writer::{ItemRow, Writer};
use crate::reference::ItemRef;

impl Writer {
    /// Takes out the letters of a partition below `first`, the first offset that it still holds. Looks through all letters, and
    /// does nothing where that was done for `first` already.
    pub(crate) fn prune(&mut self, partition: Partition, first: i64) -> rusqlite::Result<()> {
        let name = format!("first {partition}");
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let known: Option<String> = self.connection.query_row(sql, [&name], |row| row.get(0)).optional()?;
        if known.and_then(|first| first.parse().ok()).unwrap_or(0) >= first {
            return Ok(());
        }
        self.begin()?;
        let mut statement = self.connection.prepare(
            "SELECT item, \"offset\", cause, dead_at FROM letters WHERE partition = ?1 AND \"offset\" < ?2",
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
            self.look_again(item)?;
        }
        let sql = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
        self.connection.execute(sql, params![name, first.to_string()])?;
        Ok(())
    }

    /// An item lost letters: it is of the latest of those that are left, or it is gone.
    fn look_again(&mut self, item: i64) -> rusqlite::Result<()> {
        let row = self.item_by_id(item)?;
        let sql = "SELECT cause, round, dead_at, partition, \"offset\", count(*) OVER () FROM letters WHERE item = ?1
                   ORDER BY round DESC, dead_at DESC, partition DESC, \"offset\" DESC LIMIT 1";
        type Latest = (i64, i64, i64, i64, i64, i64);
        let latest: Option<Latest> = self
            .connection
            .prepare_cached(sql)?
            .query_row([item], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
            })
            .optional()?;
        let Some((now, round, dead_at, partition, offset, letters)) = latest else {
            self.note_end(item, row.cause, row.failed_at, None)?;
            self.causes.leave(row.cause, row.state);
            self.connection.prepare_cached("DELETE FROM items WHERE id = ?1")?.execute([item])?;
            return Ok(());
        };
        self.spend_own_id(item)?;
        let failed_at = self.failed_at(item, now)?;
        let sql = "UPDATE items SET letters = ?2, cause = ?3, failed_at = ?4, round = ?5, dead_at = ?6, partition = ?7,
                   \"offset\" = ?8 WHERE id = ?1";
        let values = params![item, letters, now, failed_at, round, dead_at, partition, offset];
        self.connection.prepare_cached(sql)?.execute(values)?;
        self.now_of(&row, now, failed_at)
    }

    fn item_by_id(&self, item: i64) -> rusqlite::Result<ItemRow> {
        let sql = "SELECT hash FROM items WHERE id = ?1";
        let hash: i64 = self.connection.prepare_cached(sql)?.query_row([item], |row| row.get(0))?;
        self.item(ItemRef(hash.cast_unsigned()))?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }
}
