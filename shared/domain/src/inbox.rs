//! The operators' inbox: what is known of a dead-lettered job, and which orders count.
//!
//! Operators' actions and workers' outcomes stand in one journal of one partition. Kafka knows no compare-and-set, so every
//! reader decides by the same pure function, [`fold`], in the order of the offsets: an action names the last accepted entry of
//! the item that its author knew of, and counts only if there is none later and the step is legal. All readers agree on that,
//! because nothing but the journal goes into it: not what the dead-letter topic holds, and no clock.
//!
//! Reading order: [`ItemId`] and [`Item`], [`fold`], [`RunState`] (how a run stands), [`Ramp`] (how
//! fast it may go on), [`lives`] and [`group_state`].

mod fold;
mod group;
mod item;
mod ramp;
mod run;

pub use fold::{Action, Answer, End, Entry, Folded, Outcome, Void, fold};
pub use group::{Death, Ending, GroupState, Life, Lives, group_state, lives};
pub use item::{Item, ItemId, ItemIdError, Replay, ReplayHeader, ReplayHeaderError, RunId, State};
pub use ramp::{Ends, Move, Ramp, RampLimits, Stop};
pub use run::{Effect, RunState, Stage, Step};

/// The header of a record that an operator sends to ingest again: which item it is, and its round; see [`ReplayHeader`].
pub const REPLAY_HEADER: &str = "job-replay";

#[cfg(test)]
mod tests;
