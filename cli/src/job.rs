//! `tidegate job`: where one job is.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_domain::IdempotencyKey;
use tidegate_operator::{ItemEntry, Needed, OperatorError, Whereabouts};

use crate::dlq::Opened;
use crate::{Answer, print};

#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// Tell where a job is: its mark, its last step, its item in the inbox, and what was done about it; exit code 3 when nothing is
    /// known of it
    Where(Where),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate job where 3fa85f6457174562b3fc2c963f66afa6\n  tidegate job where --class charge --field payment_id=p-2"
)]
pub(crate) struct Where {
    /// The idempotency key, 32 hex digits
    #[arg(required_unless_present = "class", conflicts_with = "class")]
    key: Option<String>,
    /// The class, whose key is made of --field
    #[arg(long, requires = "fields")]
    class: Option<String>,
    /// A key field of the event and its value
    #[arg(long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// How many records at the end of each changelog to look through
    #[arg(long, default_value_t = 100_000)]
    scan: u64,
    /// The folder of the index [default: operator/PIPELINE in the state folder]
    #[arg(long, value_name = "DIR")]
    index: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(config: Config, command: &Job) -> Answer {
    let Job::Where(wanted) = command;
    let opened = Opened::open(config, wanted.index.as_deref(), Needed::Words)?;
    let keys = match (&wanted.key, &wanted.class) {
        (Some(key), _) => {
            let key = IdempotencyKey::parse(key).ok_or_else(|| {
                OperatorError::Request(format!("`{key}` is no idempotency key: it has 32 hex digits"))
            })?;
            vec![(key, None)]
        }
        (None, class) => {
            let class = class.as_deref().unwrap_or_default();
            let keys = opened.inbox.keys_of(class, &fields(&wanted.fields)?)?;
            keys.into_iter().map(|(key, lane)| (key, Some(lane))).collect()
        }
    };
    let mut found = Vec::new();
    for (key, lane) in keys {
        found.push(opened.inbox.whereabouts(key, lane, wanted.scan)?);
    }
    let is_known = |found: &Whereabouts| !found.marks.is_empty() || !found.items.is_empty();
    // Of several ways to read a field's value, the one counts that somebody knows.
    let best = found.iter().position(is_known).unwrap_or(0);
    let Some(best) = found.get(best) else { return Ok(ExitCode::NotOk) };
    if wanted.json {
        print(&serde_json::to_string_pretty(best)?);
    } else {
        tell(best);
    }
    Ok(if is_known(best) { ExitCode::Ok } else { ExitCode::NotOk })
}

fn fields(written: &[String]) -> Result<Vec<(String, String)>, OperatorError> {
    let field = |text: &String| {
        let parts = text.split_once('=');
        parts
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .ok_or_else(|| OperatorError::Request(format!("`--field {text}` is not NAME=VALUE")))
    };
    written.iter().map(field).collect()
}

fn tell(found: &Whereabouts) {
    print(&format!("key {}", found.key));
    for mark in &found.marks {
        let done = mark.done_round.map_or("not done".to_owned(), |round| format!("done in round {round}"));
        let step = match (mark.phase, mark.round, mark.hop) {
            (Some(phase), Some(round), Some(hop)) => {
                format!(", last step: {phase} in round {round}, hop {hop}")
            }
            _ => String::new(),
        };
        let forgotten =
            if mark.forgotten { "; older than marks are remembered, so workers forgot it" } else { "" };
        print(&format!(
            "  {}/{}: {done}{step} (changelog offset {}){forgotten}",
            mark.tier, mark.partition, mark.offset
        ));
    }
    if found.marks.is_empty() {
        print("  no mark: it was not done, or so long ago that it is forgotten");
    }
    for cut in &found.cut {
        print(&format!("  {cut} was not read whole: raise --scan to look further back"));
    }
    for item in &found.items {
        let error = &item.row.error;
        print(&crate::dlq::plain(&format!(
            "  item {} is {}: {}/{}: {} ({}, round {}, attempt {})",
            item.row.item,
            item.row.state,
            error.kind.as_deref().unwrap_or("-"),
            error.code,
            error.message,
            counted(item.row.letters.into(), "letter", "letters"),
            item.row.job.round,
            item.row.job.attempt.unwrap_or(0)
        )));
        for entry in &item.journal {
            print(&journal_line(entry));
        }
    }
}

fn journal_line(entry: &ItemEntry) -> String {
    let part = |before: &str, part: &Option<String>| {
        part.as_ref().map_or(String::new(), |part| format!("  {before}{part}"))
    };
    let (by, void) = (part("by ", &entry.by), part("void: ", &entry.void));
    let line =
        format!("{}  {}{by}{void}  (journal offset {})", crate::dlq::time(entry.time), entry.what, entry.at);
    format!("    {}", crate::dlq::line(&line, 400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_journal_is_told_with_its_time_and_with_what_is_known_of_it() {
        let bare = ItemEntry {
            at: 1,
            time: 1_764_000_000_000,
            what: "replay".to_owned(),
            void: None,
            round: None,
            run: None,
            by: None,
            detail: None,
        };
        assert_eq!(journal_line(&bare), "    2025-11-24T16:00:00Z  replay  (journal offset 1)");
        let void = Some("it was resolved".to_owned());
        let full = ItemEntry { by: Some("ann".to_owned()), void, ..bare };
        assert_eq!(
            journal_line(&full),
            "    2025-11-24T16:00:00Z  replay  by ann  void: it was resolved  (journal offset 1)"
        );
    }
}
