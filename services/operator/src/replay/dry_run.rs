//! What a replay would meet: every record is read and decoded, nothing is written.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rusqlite::params;
use rustc_hash::FxHashMap;
use serde::Serialize;
use tidegate_bootstrap::config::Retention;
use tokio::runtime::Handle;

use super::fit::{Decoder, Fate};
use super::keys::{KeysDone, PlannedKeys, READ_WITHIN};
use super::order::Ordering;
use super::originals::Original;
use super::selection::{Selected, Snapshot};
use crate::error::OperatorError;
use crate::inbox::{Inbox, now};
use crate::letter::Letter;
use crate::query::key_prefix;
use crate::reference::ItemRef;

/// How many examples of each trouble are told.
const EXAMPLES: usize = 10;
/// So many records are read at a time.
const SLICE: usize = 10_000;

/// What an order would do, and what is in its way.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DryRun {
    /// How many items were selected.
    pub selected: u64,
    /// For how many of them the order can be given.
    pub fit: u64,
    /// How many others there are, by their state.
    pub left_out: BTreeMap<&'static str, u64>,
    /// What would go where.
    pub classes: Vec<ClassForecast>,
    /// How many have a key that is done, by the marks that workers go by: a worker skips them, unless the replay is forced.
    pub keys_done: u64,
    /// Of how many it is not known whether their key is done, by the reason.
    pub keys_unchecked: BTreeMap<String, u64>,
    /// How many have a key that another item is done with, by the inbox's own record. Workers may have forgotten it; where they have not,
    /// the item is in [`DryRun::keys_done`] as well.
    pub keys_done_by_inbox: u64,
    /// How many will soon be gone from the dead-letter topic.
    pub near_end_of_retention: u64,
    /// How many were dead-lettered longer ago than marks of done jobs are remembered: a duplicate of theirs that was done before is
    /// not recognised any more.
    pub beyond_dedup_retention: u64,
    /// For how long marks are remembered.
    pub dedup_retention: String,
    /// Records that can't be decoded, that do not fit today's schema, or that are gone: the first of each.
    pub examples: Vec<Example>,
}

/// What would happen to the items of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassForecast {
    /// The class; `-` where there is none.
    pub class: String,
    /// The topic that its records would go to.
    pub topic: String,
    /// The configuration has no such class any more: a worker can't run it.
    pub unknown: bool,
    /// How many items.
    pub items: u64,
    /// How many decode with the schema that they name.
    pub decodable: u64,
    /// How many of those a reader can read that has the schema which is the latest of their source today, by Avro's schema resolution.
    pub fit_today: u64,
    /// How many decode and were not checked against today's schema, by the reason: the latest schema is not known, or is of another
    /// type.
    pub unchecked: BTreeMap<String, u64>,
    /// How many do not decode.
    pub undecodable: u64,
    /// How many could not be decoded for want of their schema: the registry does not answer, or does not know it.
    pub unread: u64,
    /// How many are gone: no record of theirs is left.
    pub gone: u64,
}

impl ClassForecast {
    /// How many decode and do not fit today's schema.
    pub fn unfit(&self) -> u64 {
        self.decodable.saturating_sub(self.fit_today).saturating_sub(self.unchecked.values().sum())
    }
}

/// An item that is in trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The item.
    pub item: ItemRef,
    /// Which trouble: `undecodable`, `unfit`, `unread` or `gone`.
    pub trouble: &'static str,
    /// Why.
    pub reason: String,
}

/// What each record is looked at with.
struct Look<'a> {
    inbox: &'a Inbox,
    decoder: Decoder<'a>,
    keys: PlannedKeys,
}

impl Look<'_> {
    fn at(&mut self, item: &Selected, original: &Original) -> Fate {
        let dlq = self.inbox.shared.names.dlq();
        let letter = Letter::read(dlq.as_str(), original.partition, &original.record);
        self.keys.add(letter.job.as_ref());
        self.decoder.fate(item, original)
    }
}

impl Inbox {
    /// Looks at what an order about a snapshot would meet. Only a replay's records are read. Schemas are fetched on `runtime`, which
    /// this thread must not be a worker of. `each` is told how many records were looked at, and may break it off.
    pub fn dry_run(
        &self,
        snapshot: &Snapshot,
        ordering: Ordering,
        runtime: &Handle,
        each: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<DryRun, OperatorError> {
        let selected = snapshot.items.len() as u64;
        let (fitting, left_out) = snapshot.clone().only(|state| ordering.fits(state));
        let mut dry = DryRun { selected, fit: fitting.items.len() as u64, left_out, ..DryRun::default() };
        self.ages(&fitting, &mut dry);
        let mut classes: BTreeMap<String, ClassForecast> = BTreeMap::new();
        for item in &fitting.items {
            self.forecast(item, &mut classes).items += 1;
        }
        if matches!(ordering, Ordering::Replay { .. }) {
            dry.keys_done_by_inbox = self.keys_done_by_inbox(&fitting)?;
            let mut look =
                Look { inbox: self, decoder: Decoder::new(self, runtime), keys: PlannedKeys::default() };
            let (mut looked, mut is_whole) = (0, true);
            for slice in fitting.items.chunks(SLICE) {
                for (item, fate) in self.fates(slice, &mut look)? {
                    let forecast = self.forecast(item, &mut classes);
                    note(item, fate, forecast, &mut dry.examples);
                }
                looked += slice.len();
                if each(looked).is_break() {
                    is_whole = false;
                    break;
                }
            }
            let KeysDone { done, unchecked } =
                if is_whole { look.keys.look_up(self, READ_WITHIN) } else { look.keys.not_looked_up() };
            (dry.keys_done, dry.keys_unchecked) = (done, unchecked);
        }
        dry.classes = classes.into_values().collect();
        Ok(dry)
    }

    fn forecast<'a>(
        &self,
        item: &Selected,
        classes: &'a mut BTreeMap<String, ClassForecast>,
    ) -> &'a mut ClassForecast {
        let class = item.facts.class.as_deref();
        let name = class.unwrap_or(crate::NONE);
        if !classes.contains_key(name) {
            let topic = match &item.facts.tier {
                Some(tier) => self.shared.names.jobs(tier),
                None => self.shared.names.reingest(),
            };
            let known = |class: &str| self.shared.config.classes.keys().any(|known| known.as_str() == class);
            let forecast = ClassForecast {
                class: name.to_owned(),
                topic: topic.to_string(),
                unknown: class.is_some_and(|class| !known(class)),
                ..ClassForecast::default()
            };
            classes.insert(name.to_owned(), forecast);
        }
        classes.entry(name.to_owned()).or_default()
    }

    fn ages(&self, fitting: &Snapshot, dry: &mut DryRun) {
        let config = &self.shared.config;
        let millis = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let (now, remembered) = (now(), millis(config.state.retention));
        dry.dedup_retention = tidegate_bootstrap::config::duration_text(config.state.retention).to_string();
        let is_old = |item: &&Selected| item.first_dead_at < now.saturating_sub(remembered);
        dry.beyond_dedup_retention = fitting.items.iter().filter(is_old).count() as u64;
        if let Retention::For(retention) = config.topics.dlq_retention {
            let soon = millis(retention / 10).min(24 * 3600 * 1000);
            let ends = |item: &&Selected| item.dead_at.saturating_add(millis(retention)) < now + soon;
            dry.near_end_of_retention = fitting.items.iter().filter(ends).count() as u64;
        }
    }

    /// How many of the items have a key that another item is done with.
    fn keys_done_by_inbox(&self, fitting: &Snapshot) -> Result<u64, OperatorError> {
        let count = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT 1 FROM search_keys JOIN items ON items.id = search_keys.item
                 WHERE search_keys.key = ?1 AND items.key = ?2 AND items.id <> ?3 AND (items.heap >> 1) & 7 IN (2, 3)",
            )?;
            let mut count = 0;
            for item in &fitting.items {
                if let Some(key) = item.key {
                    count += u64::from(statement.exists(params![key_prefix(&key), &key[..], item.local])?);
                }
            }
            Ok(count)
        })?;
        Ok(count.unwrap_or(0))
    }

    fn fates<'a>(
        &self,
        slice: &'a [Selected],
        look: &mut Look<'_>,
    ) -> Result<Vec<(&'a Selected, Fate)>, OperatorError> {
        let places: Vec<(i32, i64)> = slice.iter().map(|item| item.letter).collect();
        let by_place: FxHashMap<(i32, i64), &Selected> =
            slice.iter().map(|item| (item.letter, item)).collect();
        let mut fates: FxHashMap<ItemRef, Fate> = FxHashMap::default();
        self.originals(&places, &mut |original| {
            let place = (original.partition.0, original.record.offset().0);
            if let Some(item) = by_place.get(&place)
                && (original.record.value().is_some() || original.record.header("job-stub").is_none())
            {
                fates.insert(item.item, look.at(item, &original));
            }
            Ok(())
        })?;
        let mut all = Vec::with_capacity(slice.len());
        for item in slice {
            let fate = match fates.remove(&item.item) {
                Some(fate) => fate,
                // The latest one is gone or a stub; an older one may do.
                None => match self.original_of(item.item)? {
                    Some(original) => look.at(item, &original),
                    None => Fate::Gone,
                },
            };
            all.push((item, fate));
        }
        Ok(all)
    }
}

fn note(item: &Selected, fate: Fate, forecast: &mut ClassForecast, examples: &mut Vec<Example>) {
    let (trouble, reason) = match fate {
        Fate::Fits => {
            forecast.decodable += 1;
            forecast.fit_today += 1;
            return;
        }
        Fate::Unchecked(reason) => {
            forecast.decodable += 1;
            *forecast.unchecked.entry(reason).or_default() += 1;
            return;
        }
        Fate::Unfit(reason) => {
            forecast.decodable += 1;
            ("unfit", reason)
        }
        Fate::Undecodable(reason) => {
            forecast.undecodable += 1;
            ("undecodable", reason)
        }
        Fate::Unread(reason) => {
            forecast.unread += 1;
            ("unread", reason)
        }
        Fate::Gone => {
            forecast.gone += 1;
            ("gone", "no record of it exists any more".to_owned())
        }
    };
    if examples.iter().filter(|example| example.trouble == trouble).count() < EXAMPLES {
        examples.push(Example { item: item.item, trouble, reason });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_domain::Round;
    use tidegate_domain::inbox::State;

    use super::super::selection::Facts;
    use super::*;

    fn item() -> Selected {
        let facts = Facts { topic: "shop".to_owned(), class: None, tier: None, schema_id: None };
        Selected {
            item: ItemRef(7),
            facts: Arc::new(facts),
            partition: 0,
            offset: 0,
            state: State::Open,
            seen: None,
            next_round: Round(1),
            letter: (0, 0),
            first_dead_at: 0,
            dead_at: 0,
            key: None,
            local: 0,
        }
    }

    #[test]
    fn what_was_not_checked_against_todays_schema_neither_fits_nor_is_unfit() {
        let (mut forecast, mut examples) = (ClassForecast::default(), Vec::new());
        let away = || Fate::Unchecked("the registry is away".to_owned());
        for fate in [Fate::Fits, away(), away(), Fate::Unfit("no `id`".to_owned()), Fate::Gone] {
            note(&item(), fate, &mut forecast, &mut examples);
        }
        assert_eq!((forecast.decodable, forecast.fit_today, forecast.unfit()), (4, 1, 1));
        assert_eq!(forecast.unchecked, BTreeMap::from([("the registry is away".to_owned(), 2)]));
        let troubles: Vec<&str> = examples.iter().map(|example| example.trouble).collect();
        assert_eq!(troubles, ["unfit", "gone"], "what was not checked is in no trouble");
    }
}
