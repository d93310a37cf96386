//! `tidegate dlq replay`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_domain::inbox::{RampLimits, RunId};
use tidegate_operator::{
    DryRun, Edited, Needed, OperatorError, Ordering, Outcome, Pace, RunEnd, RunProgress, RunStatus,
};

use super::act::{Which, tell_outcome};
use super::history::run_id;
use super::opened::{Look, Opened, Teller};
use super::text;
use crate::{Answer, number, print};

/// What says which run a new one is, by the names of its arguments: a run that there is already keeps what it was ordered with, and
/// `--dry-run` beside `--resume` must not publish.
const OF_A_NEW_RUN: [&str; 25] = [
    "items",
    "states",
    "classes",
    "tiers",
    "kinds",
    "codes",
    "groups",
    "schemas",
    "handlers",
    "sources",
    "since",
    "until",
    "key",
    "search",
    "all",
    "dry_run",
    "rate",
    "first",
    "factor",
    "failures",
    "timeout",
    "no_ramp",
    "force_done",
    "edit",
    "detach",
];

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq replay --group 38f905dd99d28bba             tells what would happen\n  tidegate dlq replay --group 38f905dd99d28bba --yes       1, 5, 25, ... items, on only while they pass\n  tidegate dlq replay 3/128 --edit corrected.json --reason \"typo in the order\" --yes\n  tidegate dlq replay --resume 5f1d7a84db00d2fc            after a stop, or after its console died"
)]
pub(crate) struct Replay {
    #[command(flatten)]
    which: Which,
    /// At most so many records a second [default: as fast as it goes]
    #[arg(long, value_name = "RECORDS")]
    rate: Option<f64>,
    /// How many items the first step has; each next one has --factor times as many
    #[arg(long, default_value_t = RampLimits::CANARY.first, value_parser = number::some::<u32>)]
    first: u32,
    /// See --first
    #[arg(long, default_value_t = RampLimits::CANARY.factor, value_parser = number::some::<u32>)]
    factor: u32,
    /// From which share of a step's items on, that failed again, it stops: within 0 and 1
    #[arg(long, default_value_t = RampLimits::CANARY.failures, value_name = "SHARE")]
    failures: f64,
    /// How long an outcome may take, and how long none may come
    #[arg(long, default_value = "2m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// All in one step
    #[arg(long, conflicts_with_all = ["first", "factor"])]
    no_ramp: bool,
    /// Run items although they are done; needs --reason
    #[arg(long)]
    force_done: bool,
    /// Why: the journal keeps it
    #[arg(long)]
    reason: Option<String>,
    /// Replay one item with the JSON of this file as its event; needs --reason
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
    /// Go on with a run as it was ordered, whoever began it
    #[arg(long, value_name = "RUN", conflicts_with_all = ["pause", "stop"], conflicts_with_all = OF_A_NEW_RUN)]
    resume: Option<String>,
    /// Let a run publish nothing more for now
    #[arg(long, value_name = "RUN", conflicts_with = "stop", conflicts_with_all = OF_A_NEW_RUN)]
    pause: Option<String>,
    /// End a run before its end
    #[arg(long, value_name = "RUN", conflicts_with_all = OF_A_NEW_RUN)]
    stop: Option<String>,
    /// Order it, and leave it to a console, which takes it up within a minute, or to --resume
    #[arg(long)]
    detach: bool,
}

pub(crate) fn run(config: Config, replay: &Replay) -> Answer {
    let steered =
        [(&replay.resume, Steer::Resume), (&replay.pause, Steer::Pause), (&replay.stop, Steer::Stop)];
    for (named, steer) in steered {
        if let Some(named) = named {
            let (run, opened) = (run_id(named)?, replay.which.open(config, Needed::Items)?);
            return steered_run(&opened, replay, run, steer);
        }
    }
    // What is done already is told by keys.
    let opened = replay.which.open(config, Needed::Words)?;
    match &replay.edit {
        Some(file) => edited(&opened, replay, file),
        None => selected(&opened, replay),
    }
}

/// What is wanted of a run that there is already.
#[derive(Clone, Copy)]
enum Steer {
    Resume,
    Pause,
    Stop,
}

fn steered_run(opened: &Opened, replay: &Replay, run: RunId, steer: Steer) -> Answer {
    let Some(found) = opened.inbox.run(run)? else {
        crate::print_error(&format!("there is no run {run}: `tidegate dlq history --runs` lists them"));
        return Ok(ExitCode::NotOk);
    };
    if found.what != "replay" {
        let what = &found.what;
        crate::print_error(&format!(
            "run {run} is a {what}: its orders count as they are, there is nothing to steer"
        ));
        return Ok(ExitCode::NotOk);
    }
    let by = replay.which.by();
    let told = match (steer, found.status) {
        (Steer::Resume, status) => {
            if matches!(status, RunStatus::Paused | RunStatus::Stopped) {
                opened.inbox.resume(run, &by)?;
            }
            return see_through(opened, replay, run);
        }
        (Steer::Pause, RunStatus::Running | RunStatus::Paused) => {
            opened.inbox.pause(run, &by)?;
            format!("run {run} is paused: `tidegate dlq replay --resume {run}` goes on")
        }
        (Steer::Stop, RunStatus::Running | RunStatus::Paused) => {
            let why = replay.reason.as_deref().unwrap_or("an operator stopped it");
            opened.inbox.stop(run, &by, why)?;
            format!(
                "run {run} is stopped: what is published already goes on; what was about to be (with a rate: within ten seconds) stays \
                 `replaying`, and `tidegate dlq reopen --state replaying` lets go of it; the rest is as it was before"
            )
        }
        (Steer::Pause | Steer::Stop, RunStatus::Stopped | RunStatus::Finished) => {
            crate::print_error(&format!(
                "run {run} rests already: `tidegate dlq history --run {run}` tells how it ended"
            ));
            return Ok(ExitCode::NotOk);
        }
    };
    if replay.which.common.json {
        print(&serde_json::to_string_pretty(&json!({ "run": opened.inbox.run(run)? }))?);
    } else {
        print(&told);
    }
    Ok(ExitCode::Ok)
}

impl Replay {
    fn pace(&self) -> Result<Pace, OperatorError> {
        if self.rate.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err(OperatorError::Request("--rate must be above 0".to_owned()));
        }
        if !(0.0..=1.0).contains(&self.failures) {
            return Err(OperatorError::Request("--failures must be within 0 and 1".to_owned()));
        }
        if self.timeout.is_zero() {
            return Err(OperatorError::Request("--timeout must be above 0".to_owned()));
        }
        let climb = if self.no_ramp { RampLimits::ALL_AT_ONCE } else { RampLimits::CANARY };
        let (first, factor) =
            if self.no_ramp { (climb.first, climb.factor) } else { (self.first, self.factor) };
        let ramp = RampLimits { first, factor, failures: self.failures, timeout: self.timeout, ..climb };
        Ok(Pace { rate: self.rate, ramp })
    }
}

fn selected(opened: &Opened, replay: &Replay) -> Answer {
    let ordering = Ordering::Replay { forced: replay.force_done, pace: replay.pace()? };
    let snapshot = replay.which.snapshot(opened)?;
    if !replay.which.yes {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let mut teller = Teller::new();
        let dry = opened.inbox.dry_run(&snapshot, ordering, runtime.handle(), &mut |looked| {
            teller.tell(|| format!("looked at {looked} of {}", snapshot.items.len()));
            ControlFlow::Continue(())
        })?;
        if replay.which.common.json {
            print(&serde_json::to_string_pretty(&dry)?);
        } else {
            tell_dry_run(&dry, replay.force_done);
        }
        return Ok(if dry.fit == 0 { ExitCode::NotOk } else { ExitCode::Ok });
    }
    let (snapshot, left_out) = snapshot.only(|state| ordering.fits(state));
    if snapshot.items.is_empty() {
        let others: u64 = left_out.values().sum();
        if replay.which.common.json {
            print(&serde_json::to_string_pretty(&json!({ "fit": 0, "left_out": left_out }))?);
        } else {
            print(&format!(
                "nothing to replay: {} in another state, `tidegate dlq list` tells which",
                counted(others, "item is", "items are")
            ));
        }
        return Ok(ExitCode::NotOk);
    }
    let outcome = opened.inbox.order(&snapshot, ordering, &replay.which.by(), replay.reason.as_deref())?;
    carry_out(opened, replay, &outcome)
}

fn edited(opened: &Opened, replay: &Replay, file: &std::path::Path) -> Answer {
    let ordering = Ordering::Replay { forced: replay.force_done, pace: replay.pace()? };
    let snapshot = replay.which.snapshot(opened)?;
    let [only] = snapshot.items.as_slice() else {
        return Err(OperatorError::Request("--edit takes one item".to_owned()).into());
    };
    let Some(reason) = &replay.reason else {
        return Err(OperatorError::Request("--edit needs --reason: the journal keeps it".to_owned()).into());
    };
    let unreadable = |why: &dyn std::fmt::Display| {
        OperatorError::Request(format!("{} holds no JSON that can be read: {why}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(&error))?;
    let json = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    let edited: Edited = crate::block_on(opened.inbox.edit(only.item, &json))??;
    if !replay.which.yes {
        opened.note_look(&replay.which.by(), Look::At(&only.id().to_string()));
        let told = json!({ "item": edited.item, "before": edited.before, "after": edited.after });
        print(&serde_json::to_string_pretty(&told)?);
        return Ok(ExitCode::Ok);
    }
    let outcome = opened.inbox.order_edited(&edited, &snapshot, ordering, &replay.which.by(), reason)?;
    carry_out(opened, replay, &outcome)
}

fn carry_out(opened: &Opened, replay: &Replay, outcome: &Outcome) -> Answer {
    if outcome.accepted == 0 || replay.detach {
        tell_outcome("replay", outcome, replay.which.common.json)?;
        return Ok(if outcome.accepted == 0 { ExitCode::NotOk } else { ExitCode::Ok });
    }
    if !replay.which.common.json {
        tell_outcome("replay", outcome, false)?;
    }
    see_through(opened, replay, outcome.run)
}

fn see_through(opened: &Opened, replay: &Replay, run: RunId) -> Answer {
    let mut last = RunProgress::default();
    let mut teller = Teller::new();
    let end = opened.inbox.carry_out(run, &replay.which.by(), &mut |progress| {
        last = progress.clone();
        teller.tell(|| progress_line(progress));
        ControlFlow::Continue(())
    })?;
    let counts = opened.inbox.run(run)?;
    if replay.which.common.json {
        print(&serde_json::to_string_pretty(&json!({ "run": counts, "end": end, "progress": last }))?);
    } else {
        if let Some(counts) = &counts {
            print(&super::history::run_line(counts));
        }
        print(&match &end {
            RunEnd::Finished => format!("run {run} is finished"),
            RunEnd::Stopped(why) => {
                format!("run {run} stopped: {why}; `tidegate dlq replay --resume {run}` begins its ramp anew")
            }
            RunEnd::Left => format!("run {run} goes on with `tidegate dlq replay --resume {run}`"),
        });
    }
    // With a ramp of one step all of it may fail, and the run is at its end.
    let passed = counts.is_none_or(|counts| counts.passed > 0);
    Ok(if end == RunEnd::Finished && passed { ExitCode::Ok } else { ExitCode::NotOk })
}

fn progress_line(progress: &RunProgress) -> String {
    let RunProgress { items, passed, failed, outstanding, step, step_items, .. } = progress;
    let paused = if progress.paused { ", paused" } else { "" };
    let waits = match (progress.waiting, &progress.waits_for) {
        (0, _) => String::new(),
        (waiting, None) => format!(", {waiting} of them waiting"),
        (waiting, Some(reason)) => {
            format!(", {waiting} of them waiting ({}), and the run waits", text::line(reason, 200))
        }
    };
    format!(
        "{passed} of {items} passed, {failed} failed, {outstanding} under way{waits}; step {step} has {step_items}{paused}"
    )
}

fn tell_dry_run(dry: &DryRun, is_forced: bool) {
    let selected = counted(dry.selected, "item is selected", "items are selected");
    print(&format!("{selected}, {} would be replayed", dry.fit));
    for (state, items) in &dry.left_out {
        print(&format!("left out, since {state}: {items}"));
    }
    for class in &dry.classes {
        let unknown = if class.unknown { "  (the configuration has no such class)" } else { "" };
        let items = counted(class.items, "item", "items");
        print(&text::plain(&format!("  {} -> {}: {items}{unknown}", class.class, class.topic)));
        let counts = [
            ("decode", class.decodable),
            ("fit today's schema", class.fit_today),
            ("do not fit it", class.unfit()),
            ("do not decode", class.undecodable),
            ("could not be read for want of their schema", class.unread),
            ("are gone", class.gone),
        ];
        let counts = counts.iter().filter(|(_, count)| *count > 0);
        let counts: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
        print(&format!("    {}", counts.join(", ")));
        for (reason, items) in &class.unchecked {
            let reason = text::line(reason, 200);
            print(&format!("    not checked against today's schema: {items} ({reason})"));
        }
    }
    let then = if is_forced { "which runs again, by force" } else { "which a worker skips" };
    let notes = [
        (dry.keys_done, format!("with a key that is done by its mark, {then}")),
        (
            dry.keys_done_by_inbox,
            "with a key that another item is done with, as the inbox saw it (also counted by its mark, where that is known)"
                .to_owned(),
        ),
        (dry.near_end_of_retention, "soon gone from the dead-letter topic".to_owned()),
        (
            dry.beyond_dedup_retention,
            format!(
                "older than marks are remembered ({}), which runs again if it was done",
                dry.dedup_retention
            ),
        ),
    ];
    notes.iter().filter(|(count, _)| *count > 0).for_each(|(count, what)| print(&format!("{what}: {count}")));
    for (reason, items) in &dry.keys_unchecked {
        print(&format!(
            "with a key that was not checked for being done: {items} ({})",
            text::line(reason, 200)
        ));
    }
    for example in &dry.examples {
        print(&format!("  {} {}: {}", example.item, example.trouble, text::line(&example.reason, 200)));
    }
    if dry.fit > 0 {
        print("nothing was done: add --yes to do it");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        _replay: Replay,
    }

    fn refused(arguments: &[&str]) -> Option<ErrorKind> {
        Line::try_parse_from([&["replay"], arguments].concat()).err().map(|error| error.kind())
    }

    #[test]
    fn a_run_that_there_is_takes_nothing_that_a_new_one_is_ordered_with() {
        for steer in ["--resume=1", "--pause=1", "--stop=1"] {
            assert_eq!(refused(&[steer, "--yes", "--reason=late", "--as=ann", "--json", "--index=i"]), None);
            for other in ["--dry-run", "--timeout=2s", "--rate=5", "--group=1", "--all", "--detach", "0/7"] {
                assert_eq!(refused(&[steer, other]), Some(ErrorKind::ArgumentConflict), "{steer} {other}");
            }
        }
        assert_eq!(refused(&["--resume=1", "--stop=1"]), Some(ErrorKind::ArgumentConflict));
    }

    #[test]
    fn each_argument_belongs_to_a_new_run_unless_it_is_named_here() {
        let command = <Line as clap::CommandFactory>::command();
        let any = ["resume", "pause", "stop", "yes", "reason", "by", "index", "json"];
        let mut of_a_new_run: Vec<&str> =
            command.get_arguments().map(|argument| argument.get_id().as_str()).collect();
        of_a_new_run.retain(|name| !any.contains(name));
        of_a_new_run.sort_unstable();
        let mut told = OF_A_NEW_RUN;
        told.sort_unstable();
        assert_eq!(of_a_new_run, told);
    }
}
