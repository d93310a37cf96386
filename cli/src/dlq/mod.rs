//! `tidegate dlq`: the inbox of what could not be done.

mod act;
mod export;
mod filter;
mod groups;
mod history;
mod list;
mod opened;
mod replay;
mod show;
mod text;

use clap::Subcommand;
use tidegate_bootstrap::Config;

use crate::Answer;

pub(crate) use opened::Opened;
pub(crate) use text::{line, plain, time};

/// What all commands of the inbox share.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The folder of the index, a cache that may be deleted at any time [default: operator/PIPELINE in the state folder]
    #[arg(long, value_name = "DIR")]
    index: Option<std::path::PathBuf>,
    /// Print JSON, as docs/inbox.md describes it
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// List items, the latest first
    List(list::List),
    /// Group items by what they died of
    Groups(groups::Groups),
    /// Show one item whole: the event, its headers, why it failed, and what was done about it
    Show(show::Show),
    /// Run items again; without --yes only tell what would happen
    Replay(replay::Replay),
    /// Decide that nothing is to be done about items; without --yes only tell about which
    Discard(act::Discard),
    /// Take a discard back, or no longer wait for a replay; without --yes only tell of which
    Reopen(act::Reopen),
    /// Write the original records to a file
    Export(export::Export),
    /// List what operators did, the latest first
    History(history::History),
}

pub(crate) fn run(config: Config, command: &Dlq) -> Answer {
    match command {
        Dlq::List(list) => list::run(config, list),
        Dlq::Groups(groups) => groups::run(config, groups),
        Dlq::Show(show) => show::run(config, show),
        Dlq::Replay(replay) => replay::run(config, replay),
        Dlq::Discard(discard) => act::discard(config, discard),
        Dlq::Reopen(reopen) => act::reopen(config, reopen),
        Dlq::Export(export) => export::run(config, export),
        Dlq::History(history) => history::run(config, history),
    }
}
