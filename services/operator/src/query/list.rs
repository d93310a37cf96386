//! Lists of items, page by page: by keys that never change, so nothing comes twice and nothing is missed while letters arrive.

use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

use rusqlite::{CachedStatement, OptionalExtension, params};
use serde::{Deserialize, Serialize};

use super::pick::{Heap, Picked};
use super::{Filter, Handlers, View, of_heap};
use crate::error::OperatorError;
use crate::reference::ItemRef;

/// The most items of one page.
pub(super) const LARGEST_PAGE: usize = 1000;

/// A list that is asked for.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Of these items.
    pub filter: Filter,
    /// In which order.
    pub order: Order,
    /// Behind this place; none: from the beginning.
    pub after: Option<Cursor>,
    /// So many at most; none: 50.
    pub limit: Option<usize>,
}

/// The order of a list: by the time of an item's first letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The latest first.
    #[default]
    NewestFirst,
    /// The earliest first.
    OldestFirst,
}

/// A place in a list. It stays what it is while letters arrive, in this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(pub(crate) i64);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = OperatorError;

    fn from_str(text: &str) -> Result<Self, OperatorError> {
        let place = i64::from_str_radix(text, 16);
        place.map(Self).map_err(|_| {
            OperatorError::Request(format!("`{text}` is no place in a list: take it from the page before"))
        })
    }
}

impl Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A page of a list.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Its items.
    pub items: Vec<Row>,
    /// The place behind its last item, where there is more. A page of a search may have fewer items than were asked for and have
    /// more behind it all the same.
    pub next: Option<Cursor>,
    /// How many items the whole list has; none where that can't be told at once, as with a search.
    pub total: Option<u64>,
}

/// An item in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its short name.
    pub item: ItemRef,
    /// Its id: `topic/partition/offset/class`.
    pub id: String,
    /// Where it stands.
    pub state: &'static str,
    /// Its latest letter: `partition/offset` in the dead-letter topic.
    pub record: String,
    /// When that was dead-lettered, in milliseconds since the epoch.
    pub at: i64,
    /// When its first letter was.
    pub first_at: i64,
    /// How many letters there are of it.
    pub letters: u32,
    /// Its latest failure.
    pub error: FailureFacts,
    /// Where its event stands.
    pub source: Source,
    /// Its job.
    pub job: JobFacts,
    /// The id of the schema that its value names.
    pub schema_id: Option<u32>,
    /// The handler of its class, as the configuration has it.
    pub handler: Option<String>,
    /// Its id in this index.
    #[serde(skip)]
    pub(crate) local: i64,
}

/// A failure, as a letter tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureFacts {
    /// Its kind; none where another tool wrote the letter.
    pub kind: Option<String>,
    /// Its code.
    pub code: String,
    /// What it says.
    pub message: String,
    /// Its group.
    pub fingerprint: String,
}

/// A job, as a letter tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobFacts {
    /// The class; none where the event never became a job.
    pub class: Option<String>,
    /// The tier.
    pub tier: Option<String>,
    /// The idempotency key.
    pub key: Option<String>,
    /// The round that it died in: how often it was replayed.
    pub round: u32,
    /// The attempt that failed.
    pub attempt: Option<u32>,
}

/// Where an event stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

const ROW: &str = "SELECT items.id, items.hash, items.heap, causes.class, causes.tier, causes.kind, causes.code,
     causes.fingerprint, items.message, causes.schema_id, items.letters, items.round, items.attempt, items.dead_at,
     items.partition, items.\"offset\", items.key, causes.source, items.source_partition, items.source_offset
     FROM items JOIN causes ON causes.id = items.heap >> 4 WHERE items.id = ?1";

fn read_row(row: &rusqlite::Row<'_>, handlers: &Handlers) -> rusqlite::Result<Row> {
    let local: i64 = row.get(0)?;
    let class: Option<String> = row.get(3)?;
    let key: Option<[u8; 16]> = row.get(16)?;
    let source = Source { topic: row.get(17)?, partition: row.get(18)?, offset: row.get(19)? };
    let Source { topic, partition, offset } = &source;
    Ok(Row {
        item: ItemRef(row.get::<_, i64>(1)?.cast_unsigned()),
        id: format!("{topic}/{partition}/{offset}/{}", class.as_deref().unwrap_or_default()),
        state: of_heap(row.get(2)?).1.as_str(),
        record: format!("{}/{}", row.get::<_, i32>(14)?, row.get::<_, i64>(15)?),
        at: row.get(13)?,
        first_at: local >> crate::index::ID_BITS,
        letters: row.get(10)?,
        error: FailureFacts {
            kind: row.get(5)?,
            code: row.get(6)?,
            fingerprint: format!("{:016x}", row.get::<_, i64>(7)?),
            message: row.get(8)?,
        },
        source,
        schema_id: row.get(9)?,
        handler: handlers.of(class.as_deref()).map(str::to_owned),
        job: JobFacts {
            class,
            tier: row.get(4)?,
            key: key.map(|key| tidegate_domain::IdempotencyKey(key).to_string()),
            round: row.get(11)?,
            attempt: row.get(12)?,
        },
        local,
    })
}

impl View<'_> {
    /// A page of a list.
    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, OperatorError> {
        let limit = query.limit.unwrap_or(50).clamp(1, LARGEST_PAGE);
        let picked = self.pick(&query.filter)?;
        let (ids, next) = self.ids(&picked, query.order, query.after, limit)?;
        let rows = ids.into_iter().map(|id| self.row(id));
        let items = rows.filter_map(Result::transpose).collect::<rusqlite::Result<_>>()?;
        Ok(Page { items, next, total: picked.total() })
    }

    /// An item by its id in this index.
    pub(super) fn row(&self, local: i64) -> rusqlite::Result<Option<Row>> {
        let mut statement = self.connection.prepare_cached(ROW)?;
        statement.query_row([local], |row| read_row(row, self.handlers)).optional()
    }

    /// The ids of a page, and the place behind it where there may be more.
    pub(crate) fn ids(
        &self,
        picked: &Picked,
        order: Order,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<i64>, Option<Cursor>), OperatorError> {
        if picked.wanted.key.is_some() {
            return self.ids_of_key(picked, order, after, limit);
        }
        if picked.text.is_some() {
            return self.ids_of_text(picked, order, after, limit);
        }
        let mut ids = self.merge(picked, order, after, limit + 1)?;
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().filter(|_| more).map(|id| Cursor(*id));
        Ok((ids, next))
    }

    /// The first `limit` ids of all heaps behind `after`. Each heap is an index range in order of ids, so few are read of any.
    fn merge(
        &self,
        picked: &Picked,
        order: Order,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<i64>, OperatorError> {
        let (from, until) = bounds(picked, order, after);
        let mut heaps: Vec<&Heap> = picked.heaps.iter().collect();
        heaps.sort_unstable_by_key(|heap| std::cmp::Reverse(heap.newest));
        let sql = match order {
            Order::NewestFirst => {
                "SELECT id FROM items WHERE heap = ?1 AND id >= ?2 AND id < ?3 ORDER BY id DESC LIMIT ?4"
            }
            Order::OldestFirst => {
                "SELECT id FROM items WHERE heap = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?4"
            }
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        // The worst of the best so far is on top; ids count downwards where the newest come first.
        let mut best: BinaryHeap<i64> = BinaryHeap::with_capacity(limit + 1);
        let rank = |id: i64| if order == Order::NewestFirst { -id } else { id };
        for heap in heaps {
            let full = best.len() >= limit;
            if full
                && order == Order::NewestFirst
                && best.peek().is_some_and(|worst| rank(heap.newest) > *worst)
            {
                break;
            }
            for range in heap.ranges() {
                take_best(&mut statement, range, (from, until), limit, rank, &mut best)?;
            }
        }
        Ok(best.into_sorted_vec().into_iter().map(|ranked| ranked.abs()).collect())
    }
}

fn take_best(
    statement: &mut CachedStatement<'_>,
    range: i64,
    (from, until): (i64, i64),
    limit: usize,
    rank: impl Fn(i64) -> i64,
    best: &mut BinaryHeap<i64>,
) -> rusqlite::Result<()> {
    let limit_of_heap = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![range, from, until, limit_of_heap])?;
    while let Some(row) = rows.next()? {
        let id = rank(row.get(0)?);
        if best.len() < limit {
            best.push(id);
        } else if best.peek().is_some_and(|worst| id < *worst) {
            best.pop();
            best.push(id);
        } else {
            break;
        }
    }
    Ok(())
}

/// The ids that are left behind `after`: from, and up to but not with.
pub(super) fn bounds(picked: &Picked, order: Order, after: Option<Cursor>) -> (i64, i64) {
    let (from, until) = picked.ids;
    match (order, after) {
        (_, None) => (from, until),
        (Order::NewestFirst, Some(Cursor(at))) => (from, until.min(at)),
        (Order::OldestFirst, Some(Cursor(at))) => (from.max(at.saturating_add(1)), until),
    }
}
