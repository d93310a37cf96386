//! A frozen selection: which items, and what was known of each when it was made.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, params};
use rustc_hash::FxHashMap;
use tidegate_bootstrap::counted;
use tidegate_domain::inbox::{ItemId, State};
use tidegate_domain::{Offset, Partition, Round, Topic};

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::index::read_folded;
use crate::query::{Filter, Order, View, of_heap};
use crate::reference::ItemRef;

/// Which items are meant.
#[expect(clippy::large_enum_variant, reason = "there is one for each order")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// These.
    Items(Vec<ItemRef>),
    /// All that a filter leaves; a group is the filter of its fingerprint.
    Filter(Filter),
}

impl Selection {
    /// As text for a person: the journal keeps it.
    pub fn text(&self) -> String {
        match self {
            Self::Items(items) if items.len() <= 10 => {
                format!("items {}", items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            }
            Self::Items(items) => counted(items.len() as u64, "item", "items"),
            Self::Filter(filter) => match serde_json::to_value(filter) {
                Ok(serde_json::Value::Object(parts)) => {
                    let said = |value: &serde_json::Value| {
                        !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
                    };
                    let parts: Vec<String> = parts
                        .iter()
                        .filter(|(_, value)| said(value))
                        .map(|(name, value)| format!("{name} {value}"))
                        .collect();
                    if parts.is_empty() { "all items".to_owned() } else { parts.join(", ") }
                }
                _ => "a filter".to_owned(),
            },
        }
    }
}

/// What is selected, frozen: what comes later is not in it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The selection.
    pub selection: Selection,
    /// Its items, in the order of their events: of each lane in the original order.
    pub items: Vec<Selected>,
}

/// A selected item, as it was known then.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Its short name.
    pub item: ItemRef,
    /// Its event's topic, its class, tier, and so on: the same for all items of one cause.
    pub facts: Arc<Facts>,
    /// Its event's partition there.
    pub partition: i32,
    /// Its event's offset there.
    pub offset: i64,
    /// Where it stood.
    pub state: State,
    /// The last accepted entry of the journal that was known.
    pub seen: Option<Offset>,
    /// The round that its next replay gets.
    pub next_round: Round,
    /// Its latest letter: partition and offset in the dead-letter topic.
    pub letter: (i32, i64),
    /// When its first letter came, in milliseconds since the epoch.
    pub first_dead_at: i64,
    /// When its latest one came.
    pub dead_at: i64,
    /// Its idempotency key.
    pub key: Option<[u8; 16]>,
    /// Its id in the index.
    pub(crate) local: i64,
}

/// What all items of one cause have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The source topic.
    pub topic: String,
    /// The class; none where it never became a job.
    pub class: Option<Arc<str>>,
    /// The tier.
    pub tier: Option<String>,
    /// The id of the schema that values name.
    pub schema_id: Option<u32>,
}

impl Selected {
    /// Its id.
    pub fn id(&self) -> ItemId {
        ItemId {
            topic: Topic::new(self.facts.topic.as_str()),
            partition: Partition(self.partition),
            offset: Offset(self.offset),
            class: self.facts.class.clone(),
        }
    }
}

impl Snapshot {
    /// Splits it into those that an order may be given for, by their state, and counts the others.
    pub fn only(mut self, fits: impl Fn(State) -> bool) -> (Self, BTreeMap<&'static str, u64>) {
        let mut others = BTreeMap::new();
        self.items.retain(|item| {
            let fits = fits(item.state);
            if !fits {
                *others.entry(item.state.as_str()).or_default() += 1;
            }
            fits
        });
        (self, others)
    }
}

impl Inbox {
    /// Freezes a selection, of one moment of the index.
    pub fn snapshot(&self, selection: &Selection) -> Result<Snapshot, OperatorError> {
        let items = self.view(|view| {
            let mut reading = Reading { view, facts: FxHashMap::default(), items: Vec::new() };
            match selection {
                Selection::Items(items) => {
                    for item in items {
                        reading.add_item(*item)?;
                    }
                }
                Selection::Filter(filter) => reading.add_all(filter)?,
            }
            Ok(reading.items)
        })?;
        let mut items = items.unwrap_or_default();
        // Offsets of a partition are its order; those of others are about of the same age.
        items.sort_by(|a, b| {
            (a.offset, a.partition, &a.facts.topic, a.item).cmp(&(
                b.offset,
                b.partition,
                &b.facts.topic,
                b.item,
            ))
        });
        items.dedup_by_key(|item| item.item);
        Ok(Snapshot { selection: selection.clone(), items })
    }
}

struct Reading<'a> {
    view: &'a View<'a>,
    facts: FxHashMap<i64, Arc<Facts>>,
    items: Vec<Selected>,
}

const COLUMNS: &str =
    "SELECT id, hash, heap, source_partition, source_offset, key, round, partition, \"offset\",
     dead_at FROM items WHERE";

impl Reading<'_> {
    fn add_item(&mut self, item: ItemRef) -> Result<(), OperatorError> {
        let mut statement = self
            .view
            .connection
            .prepare_cached(&format!("{COLUMNS} id = (SELECT item FROM names WHERE hash = ?1)"))?;
        let mut rows = statement.query([item.0.cast_signed()])?;
        match rows.next()? {
            Some(row) => self.add(row),
            None => Err(OperatorError::Request(format!(
                "there is no item {item}: it may be gone from the dead-letter topic"
            ))),
        }
    }

    fn add_all(&mut self, filter: &Filter) -> Result<(), OperatorError> {
        let picked = self.view.pick(filter)?;
        let mut statement = self.view.connection.prepare_cached(&format!("{COLUMNS} id = ?1"))?;
        let mut after = None;
        loop {
            let (ids, next) = self.view.ids(&picked, Order::OldestFirst, after, 10_000)?;
            for id in ids {
                let mut rows = statement.query([id])?;
                if let Some(row) = rows.next()? {
                    self.add(row)?;
                }
            }
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn add(&mut self, row: &Row<'_>) -> Result<(), OperatorError> {
        let local: i64 = row.get(0)?;
        let item = ItemRef(row.get::<_, i64>(1)?.cast_unsigned());
        let folded = read_folded(self.view.connection, item)?.map(|(folded, _)| folded).unwrap_or_default();
        let (cause, state) = of_heap(row.get(2)?);
        let selected = Selected {
            item,
            facts: self.facts(cause)?,
            state,
            partition: row.get(3)?,
            offset: row.get(4)?,
            key: row.get(5)?,
            seen: folded.seen,
            next_round: folded.next_round(Round(row.get(6)?)),
            letter: (row.get(7)?, row.get(8)?),
            first_dead_at: local >> crate::index::ID_BITS,
            dead_at: row.get(9)?,
            local,
        };
        self.items.push(selected);
        Ok(())
    }

    fn facts(&mut self, cause: i64) -> rusqlite::Result<Arc<Facts>> {
        if let Some(facts) = self.facts.get(&cause) {
            return Ok(facts.clone());
        }
        let sql = "SELECT source, class, tier, schema_id FROM causes WHERE id = ?1";
        let facts = self
            .view
            .connection
            .prepare_cached(sql)?
            .query_row(params![cause], |row| {
                Ok(Facts {
                    topic: row.get(0)?,
                    class: row.get::<_, Option<String>>(1)?.map(Into::into),
                    tier: row.get(2)?,
                    schema_id: row.get(3)?,
                })
            })
            .optional()?;
        let facts = Arc::new(facts.unwrap_or(Facts {
            topic: String::new(),
            class: None,
            tier: None,
            schema_id: None,
        }));
        self.facts.insert(cause, facts.clone());
        Ok(facts)
    }
}
