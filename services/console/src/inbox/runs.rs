//! Runs, and the history.

use serde::Serialize;

use super::Ramp;

/// One act of an operator, of however many items, and how far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// Its id, 16 hex digits.
    pub run: String,
    /// `replay`, `discard` or `reopen`.
    pub order: String,
    /// Who ordered it.
    pub by: String,
    /// When, in milliseconds since the epoch.
    pub begun_at: i64,
    /// The selection in words.
    pub selection: String,
    /// Why, where there is a reason.
    pub reason: Option<String>,
    /// Also items whose keys are done run again.
    pub forced: bool,
    /// How many items were selected.
    pub total: u64,
    /// For how many of them the order counts.
    pub accepted: u64,
    /// For how many it does not, because something else came first.
    pub refused: u64,
    /// How many records a second at most.
    pub rate: Option<f64>,
    /// How it climbs.
    pub ramp: Option<Ramp>,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it stopped.
    pub why: Option<String>,
    /// Who changed that last, and when.
    pub changed_by: String,
    /// In milliseconds since the epoch.
    pub changed_at: i64,
    /// How many of its replays passed: done, or done before.
    pub passed: u64,
    /// How many were dead-lettered again.
    pub failed: u64,
    /// How many have no outcome yet.
    pub pending: u64,
    /// How many were let go of by a stop before they were sent, and nothing became of their items since.
    pub released: u64,
    /// How many of those are sent and their outcome is to come; none: this console does not see to the run.
    pub under_way: Option<u64>,
    /// How many of those wait, by what a worker said of them last: the run waits with them.
    pub waiting: u64,
    /// What was said last of one that waits.
    pub waits_for: Option<String>,
    /// The steps of its ramp so far; the last one is under way.
    pub steps: Vec<Step>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// It goes on.
    #[default]
    Running,
    /// An operator paused it.
    Paused,
    /// It stopped, by itself or by an operator.
    Stopped,
    /// All of its items have an end.
    Finished,
}

impl RunStatus {
    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }
}

/// A step of a ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// How many items it has.
    pub items: u64,
    /// How many of them ended well.
    pub passed: u64,
    /// How many failed again.
    pub failed: u64,
}

impl Run {
    /// How many replays were given up. Of another order, for how many items it counts.
    pub fn settled(&self) -> u64 {
        self.accepted.saturating_sub(self.passed + self.failed + self.pending + self.released)
    }

    /// How many items have an end.
    pub fn ended(&self) -> u64 {
        (self.passed + self.failed + self.refused + self.settled()).min(self.total)
    }

    /// Whether it should go on, and this console does not see to it.
    pub fn is_left(&self) -> bool {
        self.order == "replay" && self.status == RunStatus::Running && self.under_way.is_none()
    }

    /// Whether nothing more will happen, unless an operator resumes it.
    pub fn rests(&self) -> bool {
        matches!(self.status, RunStatus::Stopped | RunStatus::Finished)
    }
}

/// What an operator wants of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steer {
    /// Send nothing more until it is resumed.
    Pause,
    /// Go on after a pause or a stop.
    Resume,
    /// Do not go on.
    Stop {
        /// Why.
        why: String,
    },
}

/// Which part of the history is asked for.
#[derive(Clone, Debug, Default)]
pub struct HistoryQuery {
    /// Only of this person.
    pub by: Option<String>,
    /// Only such acts: `replay`, `discard`, `reopen`, `reveal`, …
    pub what: Option<String>,
    /// Before this place: [`HistoryPage::next`] of the page before.
    pub after: Option<String>,
    /// So many at most.
    pub limit: usize,
}

/// A page of the history.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HistoryPage {
    /// Its entries, the latest first.
    pub entries: Vec<History>,
    /// The place behind the last one, where there is more.
    pub next: Option<String>,
}

/// What an operator did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct History {
    /// Its offset in the journal.
    pub at: i64,
    /// When, in milliseconds since the epoch, by the broker's clock.
    pub time: i64,
    /// Who.
    pub by: String,
    /// What: `replay`, `discard`, `reopen`, `pause`, `resume`, `stop`, `finish`, `reveal`, `log-in`, …
    pub what: String,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// Why, or more for a person.
    pub reason: Option<String>,
    /// For how many items.
    pub items: u64,
    /// For how many of them it counts.
    pub accepted: u64,
    /// The short name of the item, where it was one.
    pub item: Option<String>,
}
