//! What letters are grouped by, and the counts that are kept of it: in memory while a batch is applied, in the tables with its
//! commit.

use rusqlite::{Connection, params};
use rustc_hash::FxHashMap;
use tidegate_domain::FailureKind;
use tidegate_domain::inbox::State;

use crate::letter::Letter;
use crate::query::code;

/// How much of a message is kept as a group's example.
const EXAMPLE: usize = 500;
/// So many causes of one class, kind and code are told apart. A handler whose messages differ without end would make a group of every
/// letter: where there are more, all letters of that class, kind and code are one group. How many there are depends on which letters
/// the topic holds, and not on the order in which they are read, so all indexes agree.
pub(super) const MOST_OF_A_FAMILY: usize = 1000;
/// How long one step of the trend is.
pub(crate) const QUARTER_MS: i64 = 15 * 60 * 1000;
/// The cause that stands for all of them in the trend.
pub(crate) const ALL: i64 = 0;

/// The causes that are known, and the changes of their counts that the tables lack.
#[derive(Debug)]
pub(crate) struct Causes {
    ids: FxHashMap<u64, i64>,
    /// The fingerprint of each cause by its id: the group that it belongs to.
    groups: FxHashMap<i64, i64>,
    families: FxHashMap<u64, Family>,
    next: i64,
    tallies: FxHashMap<(i64, State), Tally>,
    seen: FxHashMap<i64, Seen>,
    trend: FxHashMap<(i64, i64), i64>,
}

/// The causes of one class, kind and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// So many, each told apart.
    Apart(usize),
    /// More than are told apart.
    Merged,
}

/// Where a letter belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Belongs {
    /// The cause that it is counted for.
    pub(super) cause: i64,
    /// The hash of its own one, where that is merged with others.
    pub(super) own: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct Tally {
    items: i64,
    newest: i64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    letters: i64,
    first: i64,
    last: i64,
}

impl Seen {
    const NOTHING: Self = Self { letters: 0, first: i64::MAX, last: i64::MIN };
}

impl Causes {
    /// What the tables hold.
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let (mut ids, mut groups) = (FxHashMap::default(), FxHashMap::default());
        let mut statement = connection.prepare("SELECT hash, id, fingerprint FROM causes")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(1)?;
            ids.insert(row.get::<_, i64>(0)?.cast_unsigned(), id);
            groups.insert(id, row.get(2)?);
        }
        let next = ids.values().max().map_or(ALL, |id| *id) + 1;
        let families = families(connection)?;
        let (tallies, seen, trend) = Default::default();
        Ok(Self { ids, groups, families, next, tallies, seen, trend })
    }

    /// Whether two causes have the same fingerprint: they differ in class, tier, schema or source at most.
    pub(crate) fn are_of_one_group(&self, one: i64, other: i64) -> bool {
        one == other || self.groups.get(&one).is_some_and(|group| self.groups.get(&other) == Some(group))
    }

    /// Where a letter belongs; a new cause is written. None: its cause would be one too many of its family, whose causes must be merged
    /// first.
    pub(super) fn of(
        &mut self,
        connection: &Connection,
        letter: &Letter<'_>,
    ) -> rusqlite::Result<Option<Belongs>> {
        let hash = letter.cause_hash();
        if let Some(id) = self.ids.get(&hash) {
            return Ok(Some(Belongs { cause: *id, own: None }));
        }
        let family = letter.family();
        match self.families.get(&family).copied().unwrap_or(Family::Apart(0)) {
            Family::Apart(causes) if causes < MOST_OF_A_FAMILY => {
                let cause = self.add(connection, letter, hash, family, false)?;
                self.families.insert(family, Family::Apart(causes + 1));
                Ok(Some(Belongs { cause, own: None }))
            }
            Family::Apart(_) => Ok(None),
            Family::Merged => {
                let coarse = letter.coarse();
                let coarse_hash = coarse.cause_hash();
                let cause = match self.ids.get(&coarse_hash) {
                    Some(id) => *id,
                    None => self.add(connection, &coarse, coarse_hash, family, true)?,
                };
                Ok(Some(Belongs { cause, own: Some(hash.cast_signed()) }))
            }
        }
    }

    /// The causes of a family were merged: the tables have it.
    pub(super) fn merged(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        *self = Self::load(connection)?;
        Ok(())
    }

    fn add(
        &mut self,
        connection: &Connection,
        letter: &Letter<'_>,
        hash: u64,
        family: u64,
        merged: bool,
    ) -> rusqlite::Result<i64> {
        let id = self.next;
        let mut statement = connection.prepare_cached(
            "INSERT INTO causes (id, hash, fingerprint, class, tier, kind, code, schema_id, source, message,
             first_dead, last_dead, letters, family, merged)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, ?13, ?14)",
        )?;
        statement.execute(params![
            id,
            hash.cast_signed(),
            letter.fingerprint.0.cast_signed(),
            letter.class(),
            letter.tier(),
            letter.kind.map(FailureKind::as_str),
            letter.code,
            letter.schema_id,
            letter.source.0,
            tidegate_pipeline::dead_letter::cut(letter.message, EXAMPLE),
            i64::MAX,
            i64::MIN,
            family.cast_signed(),
            merged,
        ])?;
        self.next += 1;
        self.ids.insert(hash, id);
        self.groups.insert(id, letter.fingerprint.0.cast_signed());
        Ok(id)
    }

    /// A letter of `cause` came.
    pub(crate) fn saw(&mut self, cause: i64, dead_at: i64) {
        let seen = self.seen.entry(cause).or_insert(Seen::NOTHING);
        seen.letters += 1;
        seen.first = seen.first.min(dead_at);
        seen.last = seen.last.max(dead_at);
        let quarter = dead_at.div_euclid(QUARTER_MS);
        for cause in [cause, ALL] {
            *self.trend.entry((cause, quarter)).or_default() += 1;
        }
    }

    /// A letter of `cause` is gone from the topic.
    pub(crate) fn lost(&mut self, cause: i64, dead_at: i64) {
        self.seen.entry(cause).or_insert(Seen::NOTHING).letters -= 1;
        let quarter = dead_at.div_euclid(QUARTER_MS);
        for cause in [cause, ALL] {
            *self.trend.entry((cause, quarter)).or_default() -= 1;
        }
    }

    /// Causes without a letter make room for others. Nothing is of them any more.
    pub(super) fn drop_empty(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(connection)?;
        let mut statement = connection.prepare("SELECT hash, id FROM causes WHERE letters <= 0")?;
        let empty = statement
            .query_map([], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))?
            .collect::<rusqlite::Result<Vec<(u64, i64)>>>()?;
        for (hash, id) in empty {
            for of_cause in ["causes WHERE id", "tallies WHERE cause", "trend WHERE cause"] {
                connection.prepare_cached(&format!("DELETE FROM {of_cause} = ?1"))?.execute([id])?;
            }
            self.ids.remove(&hash);
            self.groups.remove(&id);
        }
        self.families = families(connection)?;
        Ok(())
    }

    /// An item is of `cause` and in `state` now.
    pub(crate) fn enter(&mut self, cause: i64, state: State, item: i64) {
        let tally = self.tallies.entry((cause, state)).or_insert(Tally { items: 0, newest: item });
        tally.items += 1;
        tally.newest = tally.newest.max(item);
    }

    /// An item is it no longer.
    pub(crate) fn leave(&mut self, cause: i64, state: State) {
        self.tallies.entry((cause, state)).or_insert(Tally { items: 0, newest: i64::MIN }).items -= 1;
    }

    /// Writes what has changed since the last time.
    pub(crate) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO tallies (cause, state, items, newest) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE
             SET items = items + excluded.items, newest = max(newest, excluded.newest)",
        )?;
        for ((cause, state), tally) in self.tallies.drain() {
            statement.execute(params![cause, code(state), tally.items, tally.newest])?;
        }
        let mut statement = connection.prepare_cached(
            "UPDATE causes SET letters = letters + ?2, first_dead = min(first_dead, ?3),
             last_dead = max(last_dead, ?4) WHERE id = ?1",
        )?;
        for (cause, seen) in self.seen.drain() {
            statement.execute(params![cause, seen.letters, seen.first, seen.last])?;
        }
        let mut statement = connection.prepare_cached(
            "INSERT INTO trend (cause, quarter, letters) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE
             SET letters = letters + excluded.letters",
        )?;
        for ((cause, quarter), letters) in self.trend.drain() {
            statement.execute(params![cause, quarter, letters])?;
        }
        Ok(())
    }
}

/// How many causes each family has.
fn families(connection: &Connection) -> rusqlite::Result<FxHashMap<u64, Family>> {
    let mut statement =
        connection.prepare("SELECT family, count(*), max(merged) FROM causes GROUP BY family")?;
    let families = statement.query_map([], |row| {
        let (causes, is_merged) = (row.get::<_, i64>(1)?, row.get(2)?);
        let apart = Family::Apart(usize::try_from(causes).unwrap_or(usize::MAX));
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), if is_merged { Family::Merged } else { apart }))
    })?;
    families.collect()
}
