//! What the console needs of the inbox: four ports. Everything here blocks for some milliseconds, an order for as long as the
//! journal takes to give it back; so it is called on threads that may wait.

mod item;
mod lists;
mod orders;
mod runs;

pub use item::{Attempted, Bytes, Content, Event, Header, Item, JournalEntry, Letter, Source};
pub use lists::{
    By, ClassRow, Filter, Group, GroupPage, GroupQuery, ItemPage, ItemQuery, Overview, Row, Sort, TrendStep,
};
pub use orders::{Audit, Begin, Order, Plan, PlanPart, Ramp, Selection, Trouble};
pub use runs::{History, HistoryPage, HistoryQuery, Run, RunStatus, Steer, Step};

/// Why the inbox does not answer, or does not act. Each text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    /// What was asked for is not of its form.
    #[error("{0}")]
    Request(String),
    /// What was asked for does not exist, or does no longer.
    #[error("{0}")]
    Missing(String),
    /// The state of things does not allow it.
    #[error("{0}")]
    Refused(String),
    /// Kafka, the registry or the index does not answer.
    #[error("{0}")]
    Unavailable(String),
}

/// The result of every call.
pub type Answer<T> = Result<T, InboxError>;

/// Lists and items, from the index.
pub trait Letters: Send + Sync {
    /// The inbox at a glance, as of `now` in milliseconds since the epoch.
    fn overview(&self, now: i64) -> Answer<Overview>;
    /// Groups of items.
    fn groups(&self, query: &GroupQuery) -> Answer<GroupPage>;
    /// A page of items.
    fn items(&self, query: &ItemQuery) -> Answer<ItemPage>;
    /// One item by its short name of 16 hex digits, whose content is read from Kafka.
    fn item(&self, item: &str) -> Answer<Option<(Item, Content)>>;
}

/// Runs, and what operators did.
pub trait Runs: Send + Sync {
    /// The latest runs, the latest first.
    fn runs(&self, limit: usize) -> Answer<Vec<Run>>;
    /// One run by its id of 16 hex digits.
    fn run(&self, run: &str) -> Answer<Option<Run>>;
    /// Pauses, resumes or stops a run.
    fn steer(&self, by: &str, run: &str, steer: &Steer) -> Answer<()>;
    /// What operators did, the latest first.
    fn history(&self, query: &HistoryQuery) -> Answer<HistoryPage>;
}

/// Orders: first prepared, which changes nothing, then carried out.
pub trait Orders: Send + Sync {
    /// Freezes the selection, and tries out what the order would meet.
    fn prepare(&self, by: &str, order: &Order, selection: &Selection) -> Answer<Plan>;
    /// A prepared order by its id, as long as it is kept.
    fn prepared(&self, plan: &str) -> Answer<Option<Plan>>;
    /// Does it; answers with the run's id. Done twice, it is one run.
    fn carry_out(&self, by: &str, plan: &str, begin: &Begin) -> Answer<String>;
    /// Writes down what an operator did that changes no item. It is in the journal when this returns.
    fn note(&self, by: &str, audit: &Audit) -> Answer<()>;
}

/// The whole of it.
pub trait Inbox: Letters + Runs + Orders {}

impl<T: Letters + Runs + Orders> Inbox for T {}
