//! What the index answers: lists, groups, items, and the overview. Everything here is read from one connection, and blocks for some
//! milliseconds.

mod filter;
mod groups;
mod item;
mod list;
mod overview;
mod pick;
mod search;

use rusqlite::Connection;
use tidegate_domain::inbox::State;

pub use filter::{Filter, FilterError, NONE};
pub use groups::{By, Group, GroupPage, GroupQuery, Sort};
pub use item::{Item, ItemEntry, Letter};
pub use list::{Cursor, FailureFacts, JobFacts, ListQuery, Order, Page, Row, Source};
pub use overview::{ClassRow, Overview, TrendStep};
pub(crate) use search::key_prefix;

/// Reads the index. One thread at a time has it.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) handlers: &'a Handlers,
}

/// The handler of each class, as the configuration has it: the index does not hold it, so that a changed configuration changes what
/// is shown at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handlers(pub(crate) std::collections::BTreeMap<String, String>);

impl Handlers {
    pub(crate) fn of(&self, class: Option<&str>) -> Option<&str> {
        self.0.get(class?).map(String::as_str)
    }
}

/// How a state stands in the index.
pub(crate) fn code(state: State) -> i64 {
    State::ALL.iter().position(|other| *other == state).map_or(0, |place| place as i64)
}

/// How cause, state, and whether it began to be of its cause later than it began to be, stand in the row of an item.
pub(crate) fn heap(cause: i64, state: State, moved: bool) -> i64 {
    cause << 4 | code(state) << 1 | i64::from(moved)
}

/// The cause and the state that stand there.
pub(crate) fn of_heap(heap: i64) -> (i64, State) {
    (heap >> 4, state(heap >> 1 & 7))
}

/// The state that stands there.
pub(crate) fn state(code: i64) -> State {
    usize::try_from(code).ok().and_then(|place| State::ALL.get(place)).copied().unwrap_or_default()
}
