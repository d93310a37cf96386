//! Families of causes: all that have one class, kind and code. Where one has very many causes, its letters are one group.

use rusqlite::params;

use super::causes::{Belongs, MOST_OF_A_FAMILY};
use super::writer::Writer;
use crate::letter::Letter;

/// A cause that becomes a part of another one.
struct Merging {
    id: i64,
    hash: i64,
    into: i64,
}

impl Writer {
    /// Where a letter belongs. The causes of its family are merged where there are too many with it.
    pub(super) fn belongs(&mut self, letter: &Letter<'_>) -> rusqlite::Result<Belongs> {
        if let Some(belongs) = self.causes.of(&self.connection, letter)? {
            return Ok(belongs);
        }
        self.merge_family(letter)?;
        // Of a family that was merged, no cause is one too many.
        self.causes.of(&self.connection, letter)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    fn merge_family(&mut self, letter: &Letter<'_>) -> rusqlite::Result<()> {
        self.causes.write(&self.connection)?;
        let family = letter.family().cast_signed();
        let coarse = letter.coarse();
        // One for each that differs in what is no part of the family.
        self.connection.execute(
            "INSERT INTO causes (hash, fingerprint, class, tier, kind, code, schema_id, source, message, first_dead, last_dead,
             letters, family, merged)
             SELECT min(-id), ?2, class, tier, kind, code, schema_id, source, ?3, min(first_dead), max(last_dead), sum(letters),
             family, 1 FROM causes WHERE family = ?1 GROUP BY tier, schema_id, source",
            params![family, coarse.fingerprint.0.cast_signed(), coarse.message],
        )?;
        self.name_merged(family, &coarse)?;
        for merging in self.merging(family)? {
            self.merge(&merging)?;
        }
        self.connection.execute(
            "UPDATE letters SET own = merging.hash, cause = merging.into_cause FROM merging WHERE merging.cause = letters.cause",
            [],
        )?;
        self.connection.execute_batch("DROP TABLE merging")?;
        self.connection.execute("DELETE FROM causes WHERE family = ?1 AND NOT merged", [family])?;
        self.causes.merged(&self.connection)?;
        self.tell_lives_anew(family)
    }

    /// Gives each merged cause of the family the hash by which its letters find it.
    fn name_merged(&self, family: i64, coarse: &Letter<'_>) -> rusqlite::Result<()> {
        let sql = "SELECT id, tier, schema_id, source FROM causes WHERE family = ?1 AND merged";
        let mut statement = self.connection.prepare(sql)?;
        let named = statement.query_map([family], |row| {
            let tier: Option<String> = row.get(1)?;
            let hash = coarse.hash_with(tier.as_deref(), row.get(2)?, &row.get::<_, String>(3)?);
            Ok([row.get(0)?, hash.cast_signed()])
        })?;
        for values in named.collect::<rusqlite::Result<Vec<[i64; 2]>>>()? {
            self.connection.execute("UPDATE causes SET hash = ?2 WHERE id = ?1", values)?;
        }
        Ok(())
    }

    /// What becomes of each cause of the family, which the table `merging` has as well.
    fn merging(&self, family: i64) -> rusqlite::Result<Vec<Merging>> {
        self.connection.execute_batch(
            "CREATE TEMP TABLE merging (cause INTEGER PRIMARY KEY, hash INTEGER NOT NULL, into_cause INTEGER NOT NULL)",
        )?;
        self.connection.execute(
            "INSERT INTO merging SELECT one.id, one.hash, coarse.id FROM causes AS one JOIN causes AS coarse
             ON coarse.family = one.family AND coarse.merged AND coarse.tier IS one.tier
             AND coarse.schema_id IS one.schema_id AND coarse.source = one.source
             WHERE one.family = ?1 AND NOT one.merged",
            [family],
        )?;
        let mut statement = self.connection.prepare("SELECT cause, hash, into_cause FROM merging")?;
        let merging = statement
            .query_map([], |row| Ok(Merging { id: row.get(0)?, hash: row.get(1)?, into: row.get(2)? }))?;
        merging.collect()
    }

    /// Everything but letters that are not the latest of their item: those have no index by cause.
    fn merge(&self, Merging { id, hash, into }: &Merging) -> rusqlite::Result<()> {
        let run = |sql: &str, values: &[i64]| -> rusqlite::Result<()> {
            self.connection.prepare_cached(sql)?.execute(rusqlite::params_from_iter(values)).map(drop)
        };
        run(
            "UPDATE items SET own = ?2, heap = (?3 << 4) | (heap & 15) WHERE heap >= ?1 << 4 AND heap < (?1 + 1) << 4",
            &[*id, *hash, *into],
        )?;
        run(
            "INSERT INTO tallies SELECT ?2, state, items, newest FROM tallies WHERE cause = ?1 ON CONFLICT DO UPDATE
             SET items = items + excluded.items, newest = max(newest, excluded.newest)",
            &[*id, *into],
        )?;
        run(
            "INSERT INTO trend SELECT ?2, quarter, letters FROM trend WHERE cause = ?1 ON CONFLICT DO UPDATE
             SET letters = letters + excluded.letters",
            &[*id, *into],
        )?;
        run("DELETE FROM tallies WHERE cause = ?1", &[*id])?;
        run("DELETE FROM trend WHERE cause = ?1", &[*id])?;
        run("UPDATE lives SET cause = ?2 WHERE cause = ?1", &[*id, *into])?;
        run("UPDATE late SET cause = ?2 WHERE cause = ?1", &[*id, *into])
    }

    /// What was of several groups is of one now: an item with several letters may have begun to be of it earlier.
    fn tell_lives_anew(&mut self, family: i64) -> rusqlite::Result<()> {
        let sql =
            "SELECT items.id FROM causes JOIN items ON heap >= causes.id << 4 AND heap < (causes.id + 1) << 4
                   WHERE family = ?1 AND items.letters > 1";
        let mut statement = self.connection.prepare(sql)?;
        let items =
            statement.query_map([family], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
        drop(statement);
        for item in items {
            let (_, row) = self.item_by_id(item)?;
            self.now_of(&row, row.cause, row.latest.dead_at, row.letters)?;
        }
        Ok(())
    }

    /// Whether the letters of a merged family that are left are of so few causes that they would be told apart. Then the index must be
    /// built anew: how these letters are grouped must not depend on those that are gone.
    pub(super) fn has_merged_too_much(&self) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare(
            "WITH merged AS (SELECT id, family FROM causes WHERE merged)
             SELECT count(DISTINCT own) FROM (
             SELECT family, own FROM merged JOIN items ON heap >= merged.id << 4 AND heap < (merged.id + 1) << 4
             UNION ALL SELECT family, own FROM letters JOIN merged ON merged.id = letters.cause) GROUP BY family",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if usize::try_from(row.get::<_, i64>(0)?).unwrap_or(usize::MAX) <= MOST_OF_A_FAMILY {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
