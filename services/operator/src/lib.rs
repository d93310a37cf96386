//! The operators' side: the dead-letter topic as an inbox that can be understood, and replayed safely.
//!
//! The CLI and the console are thin around [`Inbox`]. Reading order: [`letter`] (what a dead letter says), `index` (a local cache of
//! all of them, and of the journal), `query` (what it answers), [`Inbox`] (the whole). Everything here blocks; a server calls it
//! from threads that may.
#![deny(missing_docs)]

mod error;
mod event;
mod export;
mod fitness;
mod inbox;
mod index;
pub mod letter;
mod marks;
mod parked;
mod query;
mod reference;
mod replay;
mod runs;
mod whereis;

pub use error::OperatorError;
pub use event::{Event, hex};
pub use export::Exported;
pub use inbox::{Following, Inbox, Needed, Status};
pub use index::{LocalIndex, Progress};
pub use query::{
    By, ClassRow, Cursor, FailureFacts, Filter, FilterError, Group, GroupPage, GroupQuery, Item, ItemEntry,
    JobFacts, Letter, ListQuery, NONE, Order, Overview, Page, Row, Sort, Source, TrendStep,
};
pub use reference::{ItemRef, NoItemRef};
pub use replay::{
    ClassForecast, DryRun, Edited, Example, Ordering, Original, Outcome, Pace, RunEnd, RunProgress, Selected,
    Selection, Snapshot,
};
pub use runs::{HistoryEntry, Run, RunPlace, RunStatus};
pub use whereis::{FoundMark, Whereabouts};
