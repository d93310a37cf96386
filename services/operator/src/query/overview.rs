//! The inbox at a glance.

use std::collections::BTreeMap;

use rusqlite::params;
use serde::Serialize;

use super::{Filter, View};
use crate::error::OperatorError;
use crate::index::{ALL, QUARTER_MS};

/// The inbox at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// How many items there are in each state.
    pub states: BTreeMap<&'static str, u64>,
    /// How many wait for a decision.
    pub waiting: u64,
    /// Each class that has an item or is configured; the last one, `-`, is of events that became no job.
    pub classes: Vec<ClassRow>,
    /// How many letters came in each quarter of an hour of the last day, the latest last.
    pub trend: Vec<TrendStep>,
    /// How many groups have items that wait for a decision.
    pub open_groups: usize,
}

/// A class at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassRow {
    /// Its name; `-` where there is none.
    pub class: String,
    /// How many of its items are in each state.
    pub states: BTreeMap<&'static str, u64>,
    /// How many of them wait for a decision.
    pub waiting: u64,
    /// When it was dead-lettered last.
    pub last_dead_at: Option<i64>,
}

/// A step of the trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrendStep {
    /// When it begins, in milliseconds since the epoch.
    pub from: i64,
    /// How many letters came in it.
    pub letters: u64,
}

impl View<'_> {
    /// The inbox at a glance, as of `now`.
    pub(crate) fn overview(&self, now: i64) -> Result<Overview, OperatorError> {
        let mut overview = Overview { trend: self.trend(now)?, ..Overview::default() };
        let mut classes: BTreeMap<Option<String>, ClassRow> =
            self.handlers.0.keys().map(|class| (Some(class.clone()), ClassRow::default())).collect();
        let mut open_groups = std::collections::BTreeSet::new();
        let mut statement = self
            .connection
            .prepare_cached("SELECT class, last_dead, fingerprint FROM causes WHERE id = ?1")?;
        for heap in self.pick(&Filter::default())?.heaps {
            let (class, last_dead, fingerprint): (Option<String>, i64, i64) =
                statement.query_row([heap.cause], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            let row = classes.entry(class).or_default();
            for states in [&mut row.states, &mut overview.states] {
                *states.entry(heap.state.as_str()).or_default() += heap.items;
            }
            row.last_dead_at = row.last_dead_at.max(Some(last_dead));
            if heap.state.needs_attention() {
                row.waiting += heap.items;
                overview.waiting += heap.items;
                open_groups.insert(fingerprint);
            }
        }
        overview.open_groups = open_groups.len();
        let without = classes.remove(&None);
        let named = |(class, row): (Option<String>, ClassRow)| ClassRow {
            class: class.unwrap_or_else(|| super::NONE.to_owned()),
            ..row
        };
        overview.classes = classes.into_iter().chain(without.map(|row| (None, row))).map(named).collect();
        Ok(overview)
    }

    fn trend(&self, now: i64) -> Result<Vec<TrendStep>, OperatorError> {
        let end = now.div_euclid(QUARTER_MS) + 1;
        let begin = end - 96;
        let mut steps: Vec<TrendStep> =
            (begin..end).map(|quarter| TrendStep { from: quarter * QUARTER_MS, letters: 0 }).collect();
        let mut statement = self.connection.prepare_cached(
            "SELECT quarter, letters FROM trend WHERE cause = ?1 AND quarter >= ?2 AND quarter < ?3",
        )?;
        let mut rows = statement.query(params![ALL, begin, end])?;
        while let Some(row) = rows.next()? {
            let place = usize::try_from(row.get::<_, i64>(0)? - begin).unwrap_or(0);
            if let Some(step) = steps.get_mut(place) {
                step.letters = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
            }
        }
        Ok(steps)
    }
}
