//! Groups of items, by their cause or by anything else that causes are told apart by.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, OptionalExtension, params, params_from_iter};
use serde::{Deserialize, Serialize};
use tidegate_domain::inbox::{GroupState, State};

use super::pick::Heap;
use super::{Filter, View, heap};
use crate::error::OperatorError;
use crate::index::{ID_BITS, QUARTER_MS};

/// How often it is gone back to an earlier life for whether a group regressed. One that never rested for so long counts as open.
const MOST_STEPS: usize = 2000;
/// How many steps a sparkline has.
const SPARKS: usize = 24;

/// What items are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The cause of the latest failure.
    #[default]
    Fingerprint,
    /// The class.
    Class,
    /// The tier.
    Tier,
    /// The kind of failure.
    Kind,
    /// The schema of the value.
    Schema,
    /// The handler of the class, as the configuration has it.
    Handler,
    /// The source topic.
    Source,
}

/// The order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Those with the most items that wait for a decision first.
    #[default]
    Waiting,
    /// Those that failed last first.
    Latest,
    /// Those with the most items first.
    Items,
}

/// Groups that are asked for.
#[derive(Clone, Debug, Default)]
pub struct GroupQuery {
    /// Of these items.
    pub filter: Filter,
    /// By what.
    pub by: By,
    /// In which order.
    pub sort: Sort,
    /// How many of the first groups to leave out.
    pub skip: usize,
    /// So many at most; none: 50.
    pub limit: Option<usize>,
    /// The time that a sparkline ends at, in milliseconds since the epoch.
    pub now: i64,
}

/// Groups, and how many there are.
#[derive(Clone, Debug, Serialize)]
pub struct GroupPage {
    /// The groups of this page.
    pub groups: Vec<Group>,
    /// How many groups there are in all.
    pub total: usize,
    /// How many items are in all groups.
    pub items: u64,
    /// A search found so many that only the newest ones were counted.
    pub partly: bool,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What its items have in common: a fingerprint, or the name of a class, tier and so on; `-` where there is none.
    pub key: String,
    /// An example of what its failures say.
    pub message: String,
    /// Its kinds, codes, classes, tiers, schemas, handlers and source topics, each once; at most eight of each.
    pub kinds: Vec<String>,
    /// See [`Group::kinds`].
    pub codes: Vec<String>,
    /// See [`Group::kinds`].
    pub classes: Vec<String>,
    /// See [`Group::kinds`].
    pub tiers: Vec<String>,
    /// See [`Group::kinds`].
    pub schemas: Vec<u32>,
    /// See [`Group::kinds`].
    pub handlers: Vec<String>,
    /// See [`Group::kinds`].
    pub sources: Vec<String>,
    /// How many different causes are in it.
    pub causes: usize,
    /// How many items it has.
    pub items: u64,
    /// How many of them are in each state, by its name; those without any are left out.
    pub states: BTreeMap<&'static str, u64>,
    /// How many of them wait for a decision.
    pub waiting: u64,
    /// When its first letter came, in milliseconds since the epoch.
    pub first_dead_at: i64,
    /// When the first of its items failed that are not done; none where all are.
    pub waiting_since: Option<i64>,
    /// When its last one came.
    pub last_dead_at: i64,
    /// How many of its items were dead-lettered again after they were done or discarded, and are it still: nothing of them waits.
    pub late: u64,
    /// Whether it is `open`, `closed`, or `regressed`: all of it was done or discarded once, and something of it failed again and waits or
    /// is replayed. Told of groups by fingerprint only.
    pub state: Option<&'static str>,
    /// How many letters came in each of the last 24 hours, the latest last.
    pub sparkline: Vec<u64>,
    #[serde(skip)]
    members: Vec<i64>,
}

/// What a cause's row says.
struct Cause {
    fingerprint: i64,
    class: Option<String>,
    tier: Option<String>,
    kind: Option<String>,
    code: String,
    schema_id: Option<u32>,
    source: String,
    message: String,
    first_dead: i64,
    last_dead: i64,
}

impl View<'_> {
    /// Groups of the items that a filter leaves.
    pub(crate) fn groups(&self, query: &GroupQuery) -> Result<GroupPage, OperatorError> {
        let (picked, partly) = self.pick_exactly(&query.filter)?;
        let mut groups = self.gather(query.by, &picked.heaps)?;
        groups.sort_by(|a, b| {
            let key = |group: &Group| match query.sort {
                Sort::Waiting => (group.waiting, group.items, group.last_dead_at),
                Sort::Latest => (0, 0, group.last_dead_at),
                Sort::Items => (0, group.items, group.last_dead_at),
            };
            key(b).cmp(&key(a)).then_with(|| a.key.cmp(&b.key))
        });
        let (total, items) = (groups.len(), groups.iter().map(|group| group.items).sum());
        let limit = query.limit.unwrap_or(50).clamp(1, super::list::LARGEST_PAGE);
        let mut groups: Vec<Group> = groups.into_iter().skip(query.skip).take(limit).collect();
        for group in &mut groups {
            group.sparkline = self.sparkline(&group.members, query.now)?;
            group.waiting_since = self.first_open(group)?;
            group.late = self.late(group)?;
            if query.by == By::Fingerprint {
                group.state = Some(self.state_of(group)?.as_str());
            }
        }
        Ok(GroupPage { groups, total, items, partly })
    }

    /// One group by its fingerprint, whatever its items' states.
    pub(crate) fn group(&self, fingerprint: &str, now: i64) -> Result<Option<Group>, OperatorError> {
        let filter = Filter::of_group(fingerprint);
        let page = self.groups(&GroupQuery { filter, now, ..GroupQuery::default() })?;
        Ok(page.groups.into_iter().next())
    }

    fn gather(&self, by: By, heaps: &[Heap]) -> Result<Vec<Group>, OperatorError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT fingerprint, class, tier, kind, code, schema_id, source, message, first_dead, last_dead
             FROM causes WHERE id = ?1",
        )?;
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for of_cause in heaps.chunk_by(|a, b| a.cause == b.cause) {
            let Some(Heap { cause: id, .. }) = of_cause.first() else { continue };
            let cause = statement.query_row([id], read_cause)?;
            let handler = self.handlers.of(cause.class.as_deref());
            let key = cause.key(by, handler);
            let group = groups.entry(key).or_insert_with_key(|key| Group::begin(key, &cause));
            group.add(*id, &cause, handler);
            of_cause.iter().for_each(|heap| group.count(heap));
        }
        Ok(groups.into_values().collect())
    }

    fn sparkline(&self, causes: &[i64], now: i64) -> Result<Vec<u64>, OperatorError> {
        const STEP: i64 = 4;
        let end = now.div_euclid(QUARTER_MS) + 1;
        let begin = end - STEP * SPARKS as i64;
        let mut statement = self.connection.prepare_cached(
            "SELECT quarter, letters FROM trend WHERE cause = ?1 AND quarter >= ?2 AND quarter < ?3",
        )?;
        let mut sparks = vec![0; SPARKS];
        for cause in causes {
            let mut rows = statement.query(params![cause, begin, end])?;
            while let Some(row) = rows.next()? {
                let place = usize::try_from((row.get::<_, i64>(0)? - begin) / STEP).unwrap_or(0);
                if let Some(spark) = sparks.get_mut(place) {
                    *spark += u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
                }
            }
        }
        Ok(sparks)
    }

    /// Whether all of its items had ended at some moment before the first one failed that is open since. From that one it is gone back
    /// from life to life, as long as there is an earlier one that reaches to where the last one began: so few lives are looked at of
    /// those that there are.
    fn state_of(&self, group: &Group) -> Result<GroupState, OperatorError> {
        let Some(open_since) = group.waiting_since else { return Ok(GroupState::Closed) };
        let mut first =
            self.connection.prepare_cached("SELECT min(failed_at) FROM lives WHERE cause = ?1")?;
        let mut reaching = self.connection.prepare_cached(
            "SELECT min(failed_at) FROM lives INDEXED BY lives_by_end
             WHERE cause = ?1 AND ended_at >= ?2 AND ended_at < ?3",
        )?;
        let earliest = |statement: &mut CachedStatement<'_>, window: &[i64]| -> rusqlite::Result<i64> {
            let mut earliest = i64::MAX;
            for cause in &group.members {
                let values = std::iter::once(cause).chain(window);
                let found: Option<i64> = statement.query_row(params_from_iter(values), |row| row.get(0))?;
                earliest = earliest.min(found.unwrap_or(i64::MAX));
            }
            Ok(earliest)
        };
        let first = earliest(&mut first, &[])?;
        let (mut until, mut since) = (i64::MAX, open_since);
        for _ in 0..MOST_STEPS {
            if first >= since {
                break;
            }
            let before = earliest(&mut reaching, &[since, until])?;
            if before >= since {
                return Ok(GroupState::Regressed);
            }
            (until, since) = (since, before);
        }
        Ok(GroupState::Open)
    }

    fn late(&self, group: &Group) -> rusqlite::Result<u64> {
        let mut statement = self.connection.prepare_cached("SELECT count(*) FROM late WHERE cause = ?1")?;
        let mut late = 0;
        for cause in &group.members {
            late += statement.query_row([cause], |row| row.get::<_, i64>(0))?.unsigned_abs();
        }
        Ok(late)
    }

    fn first_open(&self, group: &Group) -> Result<Option<i64>, OperatorError> {
        // Items that began to be of their cause when they began to be are in that order already.
        let mut began =
            self.connection.prepare_cached("SELECT id FROM items WHERE heap = ?1 ORDER BY id LIMIT 1")?;
        let mut moved = self.connection.prepare_cached(
            "SELECT failed_at FROM items INDEXED BY items_by_failure WHERE heap = ?1 AND heap & 1
             AND failed_at IS NOT NULL ORDER BY failed_at LIMIT 1",
        )?;
        let mut first: Option<i64> = None;
        for cause in &group.members {
            for state in [State::Open, State::FailedAgain, State::Replaying] {
                let at = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
                let began = began.query_row([heap(*cause, state, false)], at).optional()?;
                let moved = moved.query_row([heap(*cause, state, true)], at).optional()?;
                first = [first, began.map(|id| id >> ID_BITS), moved].into_iter().flatten().min();
            }
        }
        Ok(first)
    }
}

fn read_cause(row: &rusqlite::Row<'_>) -> rusqlite::Result<Cause> {
    Ok(Cause {
        fingerprint: row.get(0)?,
        class: row.get(1)?,
        tier: row.get(2)?,
        kind: row.get(3)?,
        code: row.get(4)?,
        schema_id: row.get(5)?,
        source: row.get(6)?,
        message: row.get(7)?,
        first_dead: row.get(8)?,
        last_dead: row.get(9)?,
    })
}

impl Cause {
    fn key(&self, by: By, handler: Option<&str>) -> String {
        let name = |name: Option<&str>| name.unwrap_or(super::NONE).to_owned();
        match by {
            By::Fingerprint => format!("{:016x}", self.fingerprint),
            By::Class => name(self.class.as_deref()),
            By::Tier => name(self.tier.as_deref()),
            By::Kind => name(self.kind.as_deref()),
            By::Schema => self.schema_id.map_or_else(|| name(None), |id| id.to_string()),
            By::Handler => name(handler),
            By::Source => self.source.clone(),
        }
    }
}

impl Group {
    /// Since when it needs attention; of one that needs none, since when it is known.
    pub fn since(&self) -> i64 {
        self.waiting_since.unwrap_or(self.first_dead_at)
    }

    fn begin(key: &str, cause: &Cause) -> Self {
        Self {
            key: key.to_owned(),
            message: cause.message.clone(),
            first_dead_at: cause.first_dead,
            last_dead_at: cause.last_dead,
            ..Self::default()
        }
    }

    fn add(&mut self, id: i64, cause: &Cause, handler: Option<&str>) {
        self.causes += 1;
        self.members.push(id);
        self.first_dead_at = self.first_dead_at.min(cause.first_dead);
        self.last_dead_at = self.last_dead_at.max(cause.last_dead);
        let code = Some(&cause.code).filter(|code| !code.is_empty());
        note(&mut self.kinds, cause.kind.clone());
        note(&mut self.codes, code.cloned());
        note(&mut self.classes, cause.class.clone());
        note(&mut self.tiers, cause.tier.clone());
        note(&mut self.handlers, handler.map(str::to_owned));
        note(&mut self.sources, Some(cause.source.clone()));
        note(&mut self.schemas, cause.schema_id);
    }

    fn count(&mut self, heap: &Heap) {
        self.items += heap.items;
        *self.states.entry(heap.state.as_str()).or_default() += heap.items;
        if heap.state.needs_attention() {
            self.waiting += heap.items;
        }
    }
}

/// How many names of one sort a group tells.
const MOST_NAMES: usize = 8;

/// In their order, so that all indexes tell the same ones.
fn note<T: Ord>(names: &mut Vec<T>, name: Option<T>) {
    if let Some(name) = name
        && let Err(place) = names.binary_search(&name)
    {
        names.insert(place, name);
        names.truncate(MOST_NAMES);
    }
}

#[cfg(test)]
mod tests;
