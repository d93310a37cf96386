//! Names and keys, by which items are found. Their order is random, so they are gathered while a batch is applied, and written in
//! their own order with its commit: a place of a table that is at hand costs a fraction of one that is not.

use rusqlite::{Connection, OptionalExtension};
use rustc_hash::FxHashMap;

use crate::reference::ItemRef;

/// Below so many letters it isn't worth while to prepare for them.
const MANY: u64 = 5000;
/// How many bits of the sieve an item has.
const BITS: u64 = 16;

/// What was gathered since the last commit.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    names: FxHashMap<u64, i64>,
    keys: Vec<(i64, i64)>,
    sieve: Option<Sieve>,
}

/// Tells of most items that aren't there that they aren't, without a look into a table.
#[derive(Debug)]
struct Sieve {
    bits: Vec<u64>,
    /// How many items it is made for, and has.
    room: u64,
    items: u64,
}

impl Lookups {
    /// So many letters are about to come.
    pub(super) fn expect(&mut self, connection: &Connection, letters: u64) -> rusqlite::Result<()> {
        if letters < MANY {
            return Ok(());
        }
        let is_full = |sieve: &Sieve| sieve.items + letters > sieve.room;
        if !self.sieve.as_ref().is_none_or(is_full) {
            return Ok(());
        }
        let sql = "SELECT coalesce(sum(items), 0) FROM tallies";
        let items: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        let items = u64::try_from(items).unwrap_or(0);
        // All items have to be read for it.
        if items > letters.saturating_mul(10) {
            return Ok(());
        }
        let mut sieve = Sieve::with_room(2 * (items + letters));
        let mut statement = connection.prepare("SELECT hash FROM names")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            sieve.insert(row.get::<_, i64>(0)?.cast_unsigned());
        }
        self.names.keys().for_each(|hash| sieve.insert(*hash));
        self.sieve = Some(sieve);
        Ok(())
    }

    /// The id of an item, if there is one.
    pub(super) fn item(&self, connection: &Connection, item: ItemRef) -> rusqlite::Result<Option<i64>> {
        if let Some(id) = self.names.get(&item.0) {
            return Ok(Some(*id));
        }
        if self.sieve.as_ref().is_some_and(|sieve| !sieve.may_have(item.0)) {
            return Ok(None);
        }
        let mut statement = connection.prepare_cached("SELECT item FROM names WHERE hash = ?1")?;
        statement.query_row([item.0.cast_signed()], |row| row.get(0)).optional()
    }

    /// There is a new item.
    pub(super) fn name(&mut self, item: ItemRef, id: i64) {
        self.names.insert(item.0, id);
        if let Some(sieve) = &mut self.sieve {
            sieve.insert(item.0);
        }
    }

    /// An item is gone.
    pub(super) fn forget(&mut self, connection: &Connection, item: ItemRef) -> rusqlite::Result<()> {
        self.names.remove(&item.0);
        let mut statement = connection.prepare_cached("DELETE FROM names WHERE hash = ?1")?;
        statement.execute([item.0.cast_signed()]).map(drop)
    }

    /// An item is found by this key.
    pub(super) fn key(&mut self, key: i64, item: i64) {
        self.keys.push((key, item));
    }

    /// Writes what was gathered since the last time.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut names: Vec<(i64, i64)> =
            self.names.drain().map(|(hash, item)| (hash.cast_signed(), item)).collect();
        names.sort_unstable();
        let mut statement = connection.prepare_cached("INSERT INTO names (hash, item) VALUES (?1, ?2)")?;
        for (hash, item) in names {
            statement.execute([hash, item])?;
        }
        self.keys.sort_unstable();
        let mut statement =
            connection.prepare_cached("INSERT OR IGNORE INTO search_keys (key, item) VALUES (?1, ?2)")?;
        for (key, item) in self.keys.drain(..) {
            statement.execute([key, item])?;
        }
        Ok(())
    }
}

impl Sieve {
    fn with_room(items: u64) -> Self {
        let words = (items * BITS / 64).max(1).next_power_of_two();
        Self { bits: vec![0; usize::try_from(words).unwrap_or(1)], room: items, items: 0 }
    }

    /// A hash is random in all of its bits: two of its parts are two places.
    fn places(&self, hash: u64) -> [(usize, u64); 2] {
        let words = self.bits.len() as u64;
        [hash, hash.rotate_left(29)]
            .map(|part| (usize::try_from((part >> 6) % words).unwrap_or(0), 1 << (part % 64)))
    }

    fn insert(&mut self, hash: u64) {
        for (word, bit) in self.places(hash) {
            if let Some(word) = self.bits.get_mut(word) {
                *word |= bit;
            }
        }
        self.items += 1;
    }

    fn may_have(&self, hash: u64) -> bool {
        self.places(hash).iter().all(|(word, bit)| self.bits.get(*word).is_some_and(|word| word & bit != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sieve_knows_all_that_it_has_and_few_others() {
        let mut sieve = Sieve::with_room(10_000);
        let hash = |n: u64| xxhash_rust::xxh3::xxh3_64(&n.to_be_bytes());
        (0..10_000).for_each(|n| sieve.insert(hash(n)));
        assert!((0..10_000).all(|n| sieve.may_have(hash(n))));
        let taken = (10_000..110_000).filter(|n| sieve.may_have(hash(*n))).count();
        assert!(taken < 5000, "{taken} of 100000");
    }
}
