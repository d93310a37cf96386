//! Showing snapshots: live on a terminal, line by line elsewhere.

mod layout;
mod live;
mod plain;

use std::io::IsTerminal;

use crate::leave::Leave;
use crate::snapshot::Snapshot;

pub(crate) use layout::cut;
pub(crate) use plain::{Told, say, write_error};

/// How to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Live where standard output is a terminal, plain elsewhere.
    Auto,
    /// Plain lines everywhere.
    Plain,
}

/// How wide the terminal is that standard output goes to; none: it goes elsewhere.
pub(crate) fn columns() -> Option<usize> {
    // The other ends of the process may be terminals where this one is none, and would be asked.
    let size = std::io::stdout().is_terminal().then(crossterm::terminal::size);
    size.and_then(Result::ok).map(|(columns, _)| usize::from(columns))
}

/// What snapshots are shown on.
pub(crate) enum View {
    Live(live::Live),
    Plain(plain::Plain),
    Nothing,
}

/// Whether a live view is possible and wanted.
pub(crate) fn is_live(show: Show) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    show == Show::Auto && !dumb && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

impl View {
    /// Begins to show: the terminal, if it is one, is taken until the view is dropped.
    pub(crate) fn begin(live: bool, leave: &Leave) -> std::io::Result<Self> {
        if live { live::Live::begin(leave).map(Self::Live) } else { Ok(Self::Plain(plain::Plain::default())) }
    }

    /// A view of nothing: what was shown before is over.
    pub(crate) fn nothing() -> Self {
        Self::Nothing
    }

    /// Shows a snapshot.
    pub(crate) fn show(&mut self, snapshot: &Snapshot) -> std::io::Result<()> {
        match self {
            Self::Live(live) => live.show(snapshot),
            Self::Plain(plain) => {
                plain.show(snapshot);
                Ok(())
            }
            Self::Nothing => Ok(()),
        }
    }
}
