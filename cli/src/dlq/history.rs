//! `tidegate dlq history`.

use clap::Args;
use serde::Serialize;
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_domain::inbox::RunId;
use tidegate_operator::{HistoryEntry, Needed, OperatorError, Run};

use super::opened::Opened;
use super::{Common, text};
use crate::{Answer, print, print_error, print_note};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq history\n  tidegate dlq history --runs\n  tidegate dlq history --run 5f1d7a84db00d2fc --json"
)]
pub(crate) struct History {
    /// Only runs: what was ordered together, and what came of it
    #[arg(long, conflicts_with = "run")]
    runs: bool,
    /// Only this run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

/// The run that a person names.
pub(crate) fn run_id(text: &str) -> Result<RunId, OperatorError> {
    RunId::parse(text).ok_or_else(|| {
        OperatorError::Request(format!(
            "`{text}` names no run: it has 16 hex digits, as `tidegate dlq history` prints them"
        ))
    })
}

pub(crate) fn run(config: Config, history: &History) -> Answer {
    let wanted = history.run.as_deref().map(run_id).transpose()?;
    let opened = Opened::open(config, history.common.index.as_deref(), Needed::Items)?;
    if let Some(wanted) = wanted {
        let Some(found) = opened.inbox.run(wanted)? else {
            print_error(&format!("there is no run {wanted}"));
            return Ok(ExitCode::NotOk);
        };
        print(&if history.common.json { serde_json::to_string_pretty(&found)? } else { run_line(&found) });
        return Ok(ExitCode::Ok);
    }
    if history.runs {
        tell(&opened.inbox.runs(history.limit)?, history.common.json, run_line)?;
    } else {
        tell(&opened.inbox.history(None, history.limit)?, history.common.json, line)?;
    }
    Ok(ExitCode::Ok)
}

fn tell<T: Serialize>(found: &[T], json: bool, line: fn(&T) -> String) -> anyhow::Result<()> {
    if found.is_empty() && !json {
        print_note("nothing was ordered here yet");
    }
    for entry in found {
        print(&if json { serde_json::to_string(entry)? } else { line(entry) });
    }
    Ok(())
}

pub(crate) fn run_line(run: &Run) -> String {
    let status = serde_json::to_value(run.status).ok();
    let status = status.as_ref().and_then(|status| status.as_str()).unwrap_or("running");
    let why = run.why.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let released = if run.released > 0 { format!(", {} released", run.released) } else { String::new() };
    let forced = if run.forced { "forced " } else { "" };
    text::line(
        &format!(
            "{}  run {}  {forced}{} by {}  {status}{why}  {} accepted, {} refused, {} passed, {} failed, {} pending{released}  ({})",
            text::time(run.time),
            run.run,
            run.what,
            run.by,
            run.accepted,
            run.refused,
            run.passed,
            run.failed,
            run.pending,
            run.selection
        ),
        600,
    )
}

fn line(entry: &HistoryEntry) -> String {
    let part = |before: &str, part: &Option<String>| {
        part.as_ref().map_or(String::new(), |part| format!("  {before}{part}"))
    };
    let items = match entry.items {
        0 => String::new(),
        items if entry.what == "begin" => format!("  {}", counted(items, "item", "items")),
        items => format!("  {} of {}", entry.accepted, counted(items, "item", "items")),
    };
    let (run, reason, id) = (part("run ", &entry.run), part("", &entry.reason), part("", &entry.id));
    text::line(
        &format!("{}  {}  {}{items}{run}{id}{reason}", text::time(entry.time), entry.by, entry.what),
        400,
    )
}
