//! Orders: what an operator wants done, the report before, and how fast it goes.

use std::time::Duration;

use serde::Serialize;

use super::Filter;

/// Which items an order is for: those that are named, or, where none is, all that fit the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Short names of items.
    pub items: Vec<String>,
    /// A filter.
    pub filter: Filter,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run them again.
    Replay {
        /// Also if their keys are done.
        forced: bool,
        /// With this event instead of the original one, as JSON; of one item only.
        edited: Option<String>,
        /// Why; needed where it is forced.
        reason: Option<String>,
    },
    /// Nothing is to be done.
    Discard {
        /// Why.
        reason: String,
    },
    /// Take back a discard, or no longer wait for a replay.
    Reopen {
        /// Why.
        reason: String,
    },
}

impl Order {
    /// The name in output.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Replay { .. } => "replay",
            Self::Discard { .. } => "discard",
            Self::Reopen { .. } => "reopen",
        }
    }
}

/// A prepared order: its items are fixed, and nothing has happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Its id, 16 hex digits.
    pub plan: String,
    /// `replay`, `discard` or `reopen`.
    pub order: String,
    /// Who prepared it.
    pub by: String,
    /// When, in milliseconds since the epoch.
    pub at: i64,
    /// The selection in words.
    pub selection: String,
    /// How many items it has.
    pub total: u64,
    /// Also those whose keys are done run again.
    pub forced: bool,
    /// Another value than the original one is sent.
    pub edited: bool,
    /// Why, of a discard or a reopening.
    pub reason: Option<String>,
    /// What was found, by class and target.
    pub parts: Vec<PlanPart>,
    /// How many have a key that is done, by the marks that workers go by: they skip them, unless the replay is forced.
    pub keys_done: u64,
    /// Of how many it is not known whether their key is done, each with why.
    pub keys_unchecked: Vec<(String, u64)>,
    /// How many have a key that another item is done with, by the inbox's own record. Workers may have forgotten it.
    pub keys_done_by_inbox: u64,
    /// How many will soon be gone from the dead-letter topic.
    pub expiring: u64,
    /// How many died longer ago than marks are remembered: whether a duplicate was done since, nobody knows.
    pub older_than_marks: u64,
    /// For how long marks are remembered, as the configuration says it.
    pub marks_kept: String,
    /// The first items that are in trouble.
    pub troubles: Vec<Trouble>,
    /// Items that fit the selection and are left out, with why and how many.
    pub left_out: Vec<(String, u64)>,
    /// The run that carries it out, once there is one.
    pub run: Option<String>,
}

/// An item that a replay would not help.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// Its short name.
    pub item: String,
    /// `undecodable`, `unfit`, `unread` or `gone`.
    pub trouble: String,
    /// Why.
    pub reason: String,
}

/// What a dry run found out about the items of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanPart {
    /// The class; `-` where there is none.
    pub class: String,
    /// The topic that they are sent to.
    pub target: String,
    /// How many they are.
    pub items: u64,
    /// How many do not decode.
    pub undecodable: u64,
    /// How many do not fit the schema that is the latest of their source today.
    pub unfit: u64,
    /// How many decode and were not checked against that schema, each with why: it is not known, or is of another type.
    pub unchecked: Vec<(String, u64)>,
    /// How many could not be looked at for want of their schema.
    pub unread: u64,
    /// How many are gone from the dead-letter topic.
    pub gone: u64,
    /// The configuration has no such class any more.
    pub unknown: bool,
}

/// How a replay climbs: `first` items, then `factor` times as many each step, while less than `failures` of a step fail again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ramp {
    /// How many items the first step has.
    pub first: u32,
    /// By how much each step is larger than the one before.
    pub factor: u32,
    /// From which share of a step on, that failed again, the replay stops: 0 to 1.
    pub failures: f64,
    /// How long an outcome may take.
    #[serde(skip)]
    pub timeout: Duration,
}

/// How an order is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Begin {
    /// How many records a second at most; none: as fast as it goes.
    pub rate: Option<f64>,
    /// How it climbs; none: all at once.
    pub ramp: Option<Ramp>,
}

/// What an operator did that changes no item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// What: `reveal`, `log-in`, `log-out`.
    pub what: &'static str,
    /// The item, where it was one.
    pub item: Option<String>,
    /// More for a person.
    pub detail: Option<String>,
}
