//! Showing snapshots: live on a terminal, line by line elsewhere.

mod layout;
mod live;
mod plain;

use std::io::IsTerminal;

use crate::error::DevError;
use crate::leave::Leave;
use crate::snapshot::Snapshot;

pub(crate) use layout::cut;
pub(crate) use plain::{Told, say, tell, write_error};

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
    std::io::stdout().is_terminal().then(|| usize::from(size().unwrap_or(SIZE_OF_OLD).0))
}

/// The size that a terminal has which does not say, in columns and rows: some serial lines and containers tell 0 x 0.
const SIZE_OF_OLD: (u16, u16) = (80, 24);

/// What the terminal says of its size; none: nothing that could be true.
fn size() -> Option<(u16, u16)> {
    crossterm::terminal::size().ok().filter(|&(columns, rows)| columns > 0 && rows > 0)
}

/// Whether it is what a terminal says that is closed, or that another session has got since.
pub(crate) fn is_of_closed_terminal(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENXIO))
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
    ///
    /// # Errors
    /// [`DevError::Draw`] when the terminal can't be taken.
    pub(crate) fn begin(live: bool, leave: &Leave) -> Result<Self, DevError> {
        if live {
            live::Live::begin(leave).map(Self::Live).map_err(DevError::Draw)
        } else {
            Ok(Self::Plain(plain::Plain::default()))
        }
    }

    /// A view of nothing: what was shown before is over.
    pub(crate) fn nothing() -> Self {
        Self::Nothing
    }

    /// Shows a snapshot.
    pub(crate) fn show(&mut self, snapshot: &Snapshot) -> Result<(), DevError> {
        match self {
            Self::Live(live) => live.show(snapshot).map_err(DevError::Draw),
            Self::Plain(plain) => plain.show(snapshot),
            Self::Nothing => Ok(()),
        }
    }
}
