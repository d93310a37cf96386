//! The causes and states that a filter leaves: every list, count and snapshot begins with them.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params_from_iter};
use tidegate_domain::inbox::State;

use super::filter::{Filter, FilterError, NONE, Wanted};
use super::{Order, View, code, heap, of_heap, state};
use crate::error::OperatorError;
use crate::index::ID_BITS;

/// So many finds of a search are counted: more would take longer than a page may.
const MOST_COUNTED: usize = 5_000;

/// A cause in a state, with what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    pub(crate) cause: i64,
    pub(crate) state: State,
    pub(crate) items: u64,
    /// No item of it has a greater id.
    pub(crate) newest: i64,
}

impl Heap {
    /// The ranges of the index that are its items.
    pub(crate) fn ranges(&self) -> [i64; 2] {
        [false, true].map(|moved| heap(self.cause, self.state, moved))
    }
}

/// What a filter leaves.
#[derive(Clone, Debug)]
pub(crate) struct Picked {
    /// The heaps that hold its items, and no others.
    pub(crate) heaps: Vec<Heap>,
    /// The ids that its times leave: from, and up to but not with.
    pub(crate) ids: (i64, i64),
    pub(crate) wanted: Wanted,
    /// Its words, in the syntax of the full-text table.
    pub(crate) text: Option<String>,
}

impl Picked {
    /// How many items, where counts alone tell it.
    pub(crate) fn total(&self) -> Option<u64> {
        let by_counts = self.text.is_none() && self.wanted.key.is_none();
        by_counts.then(|| self.heaps.iter().map(|heap| heap.items).sum())
    }

    /// Gives each heap another count, and leaves out the empty ones.
    fn keep(&mut self, mut count: impl FnMut(&Heap) -> u64) {
        self.heaps.retain_mut(|heap| {
            heap.items = count(heap);
            heap.items > 0
        });
    }

    /// Whether an item of this cause and state, with this id, is of them.
    pub(crate) fn has(&self, id: i64, cause: i64, state: State) -> bool {
        let place = self.heaps.binary_search_by_key(&(cause, code(state)), |h| (h.cause, code(h.state)));
        (self.ids.0..self.ids.1).contains(&id) && place.is_ok()
    }
}

const EVERY: (i64, i64) = (i64::MIN, i64::MAX);

impl View<'_> {
    /// The heaps that a filter leaves, by cause and state.
    pub(crate) fn pick(&self, filter: &Filter) -> Result<Picked, OperatorError> {
        let wanted = filter.read().map_err(|error: FilterError| OperatorError::Request(error.to_string()))?;
        let (condition, values) = self.condition(filter, &wanted);
        let sql = format!(
            "SELECT tallies.cause, tallies.state, items, newest FROM tallies JOIN causes ON causes.id = tallies.cause
             WHERE items > 0{condition} ORDER BY tallies.cause, tallies.state"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let heaps = statement.query_map(params_from_iter(values), |row| {
            Ok(Heap {
                cause: row.get(0)?,
                state: state(row.get(1)?),
                items: row.get::<_, i64>(2)?.try_into().unwrap_or(0),
                newest: row.get(3)?,
            })
        })?;
        let heaps = heaps.collect::<rusqlite::Result<Vec<_>>>()?;
        let id = |time: i64| time.clamp(0, (1 << (62 - ID_BITS)) - 1) << ID_BITS;
        let ids = (filter.since.map_or(EVERY.0, id), filter.until.map_or(EVERY.1, id));
        let text = wanted.text.as_deref().map(|terms| self.expression(terms)).transpose()?;
        let mut picked = Picked { heaps, ids, wanted, text };
        if ids != EVERY {
            self.count_within(&mut picked)?;
        }
        Ok(picked)
    }

    /// The same, where words or a key leave some of a heap only: each heap with as many items as they leave. Of a word that very many
    /// have only the newest finds are counted; whether it was so.
    pub(crate) fn pick_exactly(&self, filter: &Filter) -> Result<(Picked, bool), OperatorError> {
        let mut picked = self.pick(filter)?;
        if picked.total().is_some() {
            return Ok((picked, false));
        }
        let mut counts: BTreeMap<(i64, State), u64> = BTreeMap::new();
        let mut statement = self.connection.prepare_cached("SELECT heap FROM items WHERE id = ?1")?;
        let (ids, next) = self.ids(&picked, Order::NewestFirst, None, MOST_COUNTED)?;
        for id in ids {
            *counts.entry(of_heap(statement.query_row([id], |row| row.get(0))?)).or_default() += 1;
        }
        picked.keep(|heap| counts.get(&(heap.cause, heap.state)).copied().unwrap_or(0));
        Ok((picked, next.is_some()))
    }

    /// Times leave some of a heap only. What is counted is what they leave or what they leave out, whichever seems to be less.
    fn count_within(&self, picked: &mut Picked) -> Result<(), OperatorError> {
        let (from, until) = picked.ids;
        let mut counts = Vec::with_capacity(picked.heaps.len());
        for heap in &picked.heaps {
            let oldest = self.oldest(heap)?;
            let (first, last) = (from.max(oldest), until.min(heap.newest.saturating_add(1)));
            let inside = i128::from(last) - i128::from(first);
            let all = i128::from(heap.newest) - i128::from(oldest) + 1;
            counts.push(if inside <= 0 {
                0
            } else if inside * 2 <= all {
                self.count(heap, first, last)?
            } else {
                let outside = self.count(heap, i64::MIN, first)? + self.count(heap, last, i64::MAX)?;
                heap.items.saturating_sub(outside)
            });
        }
        let mut counts = counts.into_iter();
        picked.keep(|_| counts.next().unwrap_or(0));
        Ok(())
    }

    fn oldest(&self, heap: &Heap) -> rusqlite::Result<i64> {
        let sql = "SELECT id FROM items WHERE heap = ?1 ORDER BY id LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut oldest = heap.newest;
        for range in heap.ranges() {
            let first: Option<i64> = statement.query_row([range], |row| row.get(0)).optional()?;
            oldest = oldest.min(first.unwrap_or(oldest));
        }
        Ok(oldest)
    }

    fn count(&self, heap: &Heap, from: i64, until: i64) -> rusqlite::Result<u64> {
        let sql = "SELECT count(*) FROM items WHERE heap = ?1 AND id >= ?2 AND id < ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut count = 0;
        for range in heap.ranges() {
            let of_range: i64 = statement.query_row([range, from, until], |row| row.get(0))?;
            count += u64::try_from(of_range).unwrap_or(0);
        }
        Ok(count)
    }

    fn condition(&self, filter: &Filter, wanted: &Wanted) -> (String, Vec<Value>) {
        let mut all = Condition::default();
        let named = |values: &[String]| -> Vec<Option<Value>> {
            values.iter().map(|name| (name != NONE).then(|| Value::from(name.clone()))).collect()
        };
        all.any_of("class", named(&filter.classes));
        all.any_of("tier", named(&filter.tiers));
        all.any_of("kind", named(&filter.kinds));
        all.any_of("code", filter.codes.iter().map(|name| Some(Value::from(name.clone()))).collect());
        all.any_of("source", filter.sources.iter().map(|name| Some(Value::from(name.clone()))).collect());
        all.any_of(
            "fingerprint",
            wanted.fingerprints.iter().map(|print| Some(Value::from(*print))).collect(),
        );
        all.any_of(
            "schema_id",
            wanted.schemas.iter().map(|id| id.map(|id| Value::from(i64::from(id)))).collect(),
        );
        all.any_of("state", wanted.states.iter().map(|state| Some(Value::from(code(*state)))).collect());
        if !filter.handlers.is_empty() {
            let of_handler = |(class, handler): (&String, &String)| {
                filter.handlers.contains(handler).then(|| Some(Value::from(class.clone())))
            };
            let mut classes: Vec<Option<Value>> = self.handlers.0.iter().filter_map(of_handler).collect();
            if filter.handlers.iter().any(|handler| handler == NONE) {
                classes.push(None);
            }
            // No class has such a handler: nothing fits.
            if classes.is_empty() {
                all.text.push_str(" AND 0");
            }
            all.any_of("class", classes);
        }
        (all.text, all.values)
    }
}

#[derive(Default)]
struct Condition {
    text: String,
    values: Vec<Value>,
}

impl Condition {
    /// `column` is one of these, of which none is null.
    fn any_of(&mut self, column: &str, values: Vec<Option<Value>>) {
        if values.is_empty() {
            return;
        }
        let mut parts = Vec::new();
        for value in values {
            match value {
                None => parts.push(format!("{column} IS NULL")),
                Some(value) => {
                    parts.push(format!("{column} = ?"));
                    self.values.push(value);
                }
            }
        }
        self.text.push_str(&format!(" AND ({})", parts.join(" OR ")));
    }
}
