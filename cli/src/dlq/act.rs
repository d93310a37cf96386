//! `tidegate dlq discard` and `reopen`, and what they share with `replay`.

use clap::Args;
use serde_json::json;
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_domain::inbox::Void;
use tidegate_operator::{Needed, OperatorError, Ordering, Outcome, Selection, Snapshot};

use super::filter::FilterArgs;
use super::opened::{Named, Opened};
use super::{Common, text};
use crate::{Answer, print};

/// Which items, and whether to act at all.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Items: 16 hex digits, an id, or PARTITION/OFFSET of a record; without any, the filters choose
    items: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// All items, where no filter is given
    #[arg(long)]
    all: bool,
    /// Do it; without this, only tell what would happen
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Only tell what would happen, as without --yes
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// In whose name something is done.
#[derive(Debug, Args)]
pub(crate) struct Author {
    /// Who does it, for the journal [default: the user's name]
    #[arg(long = "as", value_name = "NAME", env = "TIDEGATE_OPERATOR")]
    by: Option<String>,
}

impl Author {
    /// The name that the journal gets.
    pub(crate) fn name(&self) -> String {
        let user = || std::env::var("USER").ok().filter(|name| !name.is_empty());
        self.by.clone().or_else(user).unwrap_or_else(|| "unnamed".to_owned())
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq discard --group 38f905dd99d28bba --reason \"test orders\"          tells which\n  tidegate dlq discard --group 38f905dd99d28bba --reason \"test orders\" --yes    does it"
)]
pub(crate) struct Discard {
    #[command(flatten)]
    which: Which,
    /// Why nothing is to be done: the journal keeps it
    #[arg(long, required = true)]
    reason: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq reopen 9f86d081884c7d65 --yes\n  tidegate dlq reopen --state replaying --until 1h --yes"
)]
pub(crate) struct Reopen {
    #[command(flatten)]
    which: Which,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

impl Which {
    pub(crate) fn open(&self, config: Config, needed: Needed) -> Result<Opened, OperatorError> {
        let needed = if needed == Needed::Words { needed } else { self.filter.needed() };
        Opened::open(config, self.common.index.as_deref(), needed)
    }

    /// The name that the journal gets.
    pub(crate) fn by(&self) -> String {
        self.author.name()
    }

    pub(crate) fn snapshot(&self, opened: &Opened) -> Result<Snapshot, OperatorError> {
        let filter = self.filter.filter()?;
        let nothing_said = filter == tidegate_operator::Filter::default();
        let selection = match (self.items.is_empty(), nothing_said) {
            (true, true) if !self.all => {
                return Err(OperatorError::Request(
                    "name items, or filters such as --group, or --all for everything".to_owned(),
                ));
            }
            (true, _) => Selection::Filter(filter),
            (false, true) => Selection::Items(self.named(opened)?),
            (false, false) => {
                return Err(OperatorError::Request("name either items or filters, not both".to_owned()));
            }
        };
        opened.inbox.snapshot(&selection)
    }

    fn named(&self, opened: &Opened) -> Result<Vec<tidegate_operator::ItemRef>, OperatorError> {
        let item = |named: &String| {
            let Named { item, record } = opened.item(named)?;
            let found = item.map(|item| opened.inbox.item(item)).transpose()?.flatten();
            item.filter(|_| found.is_some()).ok_or_else(|| {
                let what = if record.is_some() { "record" } else { "item" };
                OperatorError::Nothing(format!(
                    "there is no {what} {named}: it may be gone from the dead-letter topic"
                ))
            })
        };
        self.items.iter().map(item).collect()
    }
}

pub(crate) fn discard(config: Config, discard: &Discard) -> Answer {
    order(config, &discard.which, Ordering::Discard, Some(&discard.reason))
}

pub(crate) fn reopen(config: Config, reopen: &Reopen) -> Answer {
    order(config, &reopen.which, Ordering::Reopen, reopen.reason.as_deref())
}

fn order(config: Config, which: &Which, ordering: Ordering, reason: Option<&str>) -> Answer {
    let opened = which.open(config, Needed::Items)?;
    let (snapshot, left_out) = which.snapshot(&opened)?.only(|state| ordering.fits(state));
    let name = if ordering == Ordering::Discard { "discard" } else { "reopen" };
    if snapshot.items.is_empty() || !which.yes {
        let told = json!({ "order": name, "fit": snapshot.items.len(), "left_out": left_out });
        if which.common.json {
            print(&serde_json::to_string_pretty(&told)?);
        } else {
            tell_selection(name, &snapshot, &left_out);
        }
        return Ok(if snapshot.items.is_empty() { ExitCode::NotOk } else { ExitCode::Ok });
    }
    let outcome = opened.inbox.order(&snapshot, ordering, &which.by(), reason)?;
    tell_outcome(name, &outcome, which.common.json)?;
    Ok(if outcome.accepted > 0 { ExitCode::Ok } else { ExitCode::NotOk })
}

fn tell_selection(name: &str, snapshot: &Snapshot, left_out: &std::collections::BTreeMap<&'static str, u64>) {
    let items = counted(snapshot.items.len() as u64, "item", "items");
    print(&format!("{name} would be ordered for {items}"));
    for item in snapshot.items.iter().take(10) {
        print(&text::plain(&format!("  {}  {}", item.item, item.id())));
    }
    if snapshot.items.len() > 10 {
        print(&format!("  and {} more", snapshot.items.len() - 10));
    }
    for (state, items) in left_out {
        let (left_out, are) = (counted(*items, "is", "are"), if *items == 1 { "it is" } else { "they are" });
        print(&format!("{left_out} left out: {are} {state}"));
    }
    if !snapshot.items.is_empty() {
        print("nothing was done: add --yes to do it");
    }
}

pub(crate) fn tell_outcome(name: &str, outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    if json {
        print(&serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    print(&format!("{name}: {}, run {}", counted(outcome.accepted, "item", "items"), outcome.run));
    for (reason, items) in &outcome.refused {
        print(&format!("{} refused: {}", counted(*items, "was", "were"), Void::words(reason)));
    }
    Ok(())
}
