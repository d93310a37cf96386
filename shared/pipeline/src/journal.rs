//! The operators' journal: what its records look like.
//!
//! One record of `P.dlq-journal` is one JSON object with a version `v` and a `kind`: `actions` (what an operator orders, for up to
//! 5,000 items), `run` (how what was ordered together goes on), `outcome` (what a worker says of a replayed record) and `audit`
//! (what an operator did that changes nothing, such as a look at masked fields). What counts of it is decided by
//! [`tidegate_domain::inbox::fold`] alone, by each record's offset.
//!
//! Part of the format: readers pass over kinds and versions that they do not know, and fields too.

mod wire;

use std::time::Duration;

use tidegate_domain::inbox::{self, Action, ItemId, Outcome, RampLimits, RunId};
use tidegate_domain::{Failure, Offset, Round, UnixMillis};

use crate::dead_letter::cut;

/// How many items one record orders about at most.
pub const CHUNK: usize = 5000;
/// How many bytes of a failure's message an outcome has.
pub const MESSAGE_BUDGET: usize = 512;

/// What one record of the journal says.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Orders about items.
    Actions(Actions),
    /// How a run goes on.
    Run(RunEntry),
    /// What came of a replayed record.
    Outcome(OutcomeEntry),
    /// What an operator did that changes no item.
    Audit(Audit),
}

/// The same order for several items, each of which is judged alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    /// The run that it belongs to.
    pub run: RunId,
    /// Who ordered it.
    pub by: String,
    /// When, by the author's clock.
    pub at: UnixMillis,
    /// Which of the run's records this is, from 0.
    pub chunk: u32,
    /// What is ordered.
    pub order: Order,
    /// Why; a discard has a reason.
    pub reason: Option<String>,
    /// For which items.
    pub items: Vec<Ordered>,
}

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run them again.
    Replay {
        /// Also if their keys are done.
        forced: bool,
    },
    /// Nothing is to be done.
    Discard,
    /// Take back a discard, or no longer wait for a replay.
    Reopen,
}

/// One item of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The item.
    pub id: ItemId,
    /// Its last accepted entry that the author knew; none: that there is none.
    pub seen: Option<Offset>,
    /// The round that its replay gets; 0 where the order is no replay.
    pub round: Round,
    /// The value that its replay carries instead of the original one.
    pub edited: Option<Vec<u8>>,
}

impl Actions {
    /// Its items in order, each with what is to be folded at the record's offset.
    pub fn entries(&self) -> impl Iterator<Item = (&Ordered, inbox::Entry)> {
        self.items.iter().map(|item| {
            let action = match self.order {
                Order::Replay { forced } => {
                    Action::Replay { round: item.round, forced, edited: item.edited.is_some() }
                }
                Order::Discard => Action::Discard,
                Order::Reopen => Action::Reopen,
            };
            (item, inbox::Entry::Action { seen: item.seen, run: self.run, action })
        })
    }
}

/// Cuts the items of a run into chunks, each of which goes into one record of about `most` bytes, unless one item alone has
/// more.
pub fn chunks(items: Vec<Ordered>, most: usize) -> Vec<Vec<Ordered>> {
    let mut chunks: Vec<Vec<Ordered>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        let size = item.size();
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK && bytes + size <= most => chunk.push(item),
            _ => {
                chunks.push(vec![item]);
                bytes = 0;
            }
        }
        bytes += size;
    }
    chunks
}

impl Ordered {
    /// About how many bytes it takes in its record.
    fn size(&self) -> usize {
        let class = self.id.class.as_ref().map_or(0, |class| class.len());
        let edited = self.edited.as_ref().map_or(0, |value| value.len() * 4 / 3 + 16);
        self.id.topic.as_str().len() + class + edited + 96
    }
}

/// How a run goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEntry {
    /// The run.
    pub run: RunId,
    /// Who says so; of a stop by itself, whose console saw to it.
    pub by: String,
    /// When, by the author's clock.
    pub at: UnixMillis,
    /// What happens.
    pub step: RunStep,
}

/// What happens to a run. Which of them count is decided by [`tidegate_domain::inbox::RunState`].
#[derive(Clone, Debug, PartialEq)]
pub enum RunStep {
    /// It is ordered; its actions follow, in as many records as the plan says. Without a ramp it acts on its items by the actions alone.
    Begin(RunPlan),
    /// Nothing more is published until it is resumed.
    Pause,
    /// It goes on after a pause, or, with a ramp from its first step on, after a stop.
    Resume,
    /// It does not go on, and releases the items whose replays it did not climb to.
    Stop {
        /// Why.
        why: String,
    },
    /// Its author fell silent before all of its orders were there: no more of them count.
    Close,
    /// So many of its accepted replays, in their order, may be published from now on.
    Climb {
        /// How many, from the first on.
        until: u64,
    },
    /// All of its items have an end.
    Finish,
}

impl RunStep {
    /// What it is to a run that is begun.
    pub fn step(&self) -> Option<inbox::Step> {
        match self {
            Self::Begin(_) => None,
            Self::Pause => Some(inbox::Step::Pause),
            Self::Resume => Some(inbox::Step::Resume),
            Self::Stop { .. } => Some(inbox::Step::Stop),
            Self::Close => Some(inbox::Step::Close),
            Self::Climb { until } => Some(inbox::Step::Climb(*until)),
            Self::Finish => Some(inbox::Step::Finish),
        }
    }
}

/// What a run is to do, as it was confirmed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// What is ordered.
    pub order: Order,
    /// How many items its author selected.
    pub total: u64,
    /// How many records of actions follow.
    pub chunks: u32,
    /// The selection, as text for a person: ids, a group, or a filter.
    pub selection: String,
    /// How many records a second are published at most.
    pub rate: Option<f64>,
    /// How it climbs.
    pub ramp: Option<RampLimits>,
}

/// What came of a replayed record.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeEntry {
    /// The item.
    pub id: ItemId,
    /// Its round, and what became of it.
    pub outcome: Outcome,
    /// When, by the author's clock.
    pub at: UnixMillis,
    /// Who says so: a service's consumer group.
    pub worker: Option<String>,
    /// More for a person, such as that an event is ignored by a rule.
    pub detail: Option<String>,
    /// What failed, where something did.
    pub error: Option<ErrorEntry>,
    /// What parked it, where it waits for that: then the outcome says until when the worker's word holds, which it renews before that.
    pub parked: Option<ParkedEntry>,
}

impl OutcomeEntry {
    /// An outcome without more words.
    pub fn new(id: ItemId, outcome: Outcome, at: UnixMillis, worker: String) -> Self {
        Self { id, outcome, at, worker: Some(worker), detail: None, error: None, parked: None }
    }

    /// What is to be folded at the record's offset.
    pub fn entry(&self) -> inbox::Entry {
        inbox::Entry::Outcome(self.outcome)
    }
}

/// Why a replayed job stays with its worker, unsettled: its class is parked, or that of the job that stands before it in its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEntry {
    /// The class that is parked.
    pub class: String,
    /// Since when, by the worker's clock.
    pub since: UnixMillis,
    /// When the next probe may run, by the worker's clock; none: one was running.
    pub probe: Option<UnixMillis>,
}

/// A failure, as far as an outcome tells it. The dead letter has all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Its kind, by name.
    pub kind: String,
    /// Its code.
    pub code: String,
    /// Its message, cut to [`MESSAGE_BUDGET`].
    pub message: String,
    /// The fingerprint of the whole one, as 16 hexadecimal digits.
    pub fingerprint: String,
}

impl ErrorEntry {
    /// What is told of `failure`.
    pub fn of(failure: &Failure) -> Self {
        Self {
            kind: failure.kind.as_str().to_owned(),
            code: failure.code.to_string(),
            message: cut(&failure.message, MESSAGE_BUDGET),
            fingerprint: failure.fingerprint().to_string(),
        }
    }
}

/// What an operator did that changes no item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Who.
    pub by: String,
    /// When, by the author's clock.
    pub at: UnixMillis,
    /// What, as a name: `reveal`, `log-in`.
    pub what: String,
    /// The item, where it was one.
    pub id: Option<ItemId>,
    /// More for a person.
    pub detail: Option<String>,
}

/// Why a record of the journal was passed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// A later version of tidegate wrote it.
    #[error("it has version {0}, this version of tidegate reads version 1: update it to see this entry")]
    Version(u64),
    /// It is of a kind that this version does not know.
    #[error("its kind `{0}` is unknown: a later version of tidegate may read it")]
    Kind(String),
    /// Something else than tidegate wrote it.
    #[error("it is no entry of a journal: {0}")]
    Garbage(String),
}

impl Entry {
    /// Reads a record's value. What is not of its form is passed over as a whole, so that all readers judge the same.
    pub fn read(value: Option<&[u8]>) -> Result<Self, Unread> {
        wire::read(value.unwrap_or_default())
    }

    /// The record's value.
    pub fn write(&self) -> Vec<u8> {
        wire::write(self)
    }

    /// The record's key. It is there for those who look at the topic: the journal has one partition.
    pub fn key(&self) -> String {
        match self {
            Self::Actions(Actions { run, .. }) | Self::Run(RunEntry { run, .. }) => run.to_string(),
            Self::Outcome(OutcomeEntry { id, .. }) => id.to_string(),
            Self::Audit(Audit { by, .. }) => by.clone(),
        }
    }
}

/// A duration as the journal has it.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
