//! `tidegate dev`, and the worker process that it starts.

use std::path::PathBuf;

use clap::Args;
use tidegate_bootstrap::ExitCode;
use tidegate_dev::{Addresses, End, HIGHEST_RATE, Load, Options, Play, Show, WorkerPlace};
use tidegate_service::ServiceError;

use crate::{Answer, number};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate dev                           a shop for a minute, and a sum in the end
  tidegate dev --kill-worker             the worker is killed amid its jobs
  tidegate dev --config tidegate.toml    your classes; it says where to publish

Nothing needs to be installed: broker and schema registry are embedded.
All is in memory and gone at the end.

Ctrl-C or a signal ends it in order, with its summary: what runs until then (--forever, --config) with exit
code 0, what has an end of its own with 128 and the signal's number (Ctrl-C: 130). The live view's key q is
no signal, and ends with 0. A second time ends it at once, with 128 and the signal's number (q: 130).")]
pub(crate) struct Dev {
    /// Run the classes of this file instead of the shop, until Ctrl-C
    // In place of the global one, which has a default.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
    /// How many records the shop publishes [default: a minute's]
    #[arg(long, value_name = "N", value_parser = number::some::<u64>, conflicts_with = "forever")]
    events: Option<u64>,
    /// How many records it publishes in a second, at most 500 [default: 200]
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<u32>,
    /// Publish until Ctrl-C
    #[arg(long)]
    forever: bool,
    /// Run the worker as a process of its own, kill it in the middle of its jobs, and tell what comes of it
    #[arg(long, conflicts_with = "forever")]
    kill_worker: bool,
    /// Plain lines, also on a terminal
    #[arg(long, conflicts_with = "kill_worker")]
    plain: bool,
}

fn rate(text: &str) -> Result<u32, String> {
    number::within(text, 1..=HIGHEST_RATE)
}

/// How many records the shop publishes in a second by default.
const RATE: u32 = 200;
/// How long the shop publishes by default, in seconds.
const SECONDS: u64 = 60;
/// How many records the story of the kill takes.
const STORY: u64 = 1500;

pub(crate) fn run(args: &Dev) -> Answer {
    let rate = args.rate.unwrap_or(RATE);
    let of = |default: u64| {
        let records = (!args.forever).then(|| args.events.unwrap_or(default));
        Load { rate, records }
    };
    let play = match args.config.clone() {
        Some(file) => {
            refuse_what_is_of_the_shop(args)?;
            Play::Own(file)
        }
        None if args.kill_worker => Play::KillWorker(of(STORY)),
        None => Play::Shop(of(SECONDS * u64::from(rate))),
    };
    let show = if args.plain { Show::Plain } else { Show::Auto };
    match tidegate_dev::run(&Options { play, show })? {
        End::InOrder => Ok(ExitCode::Ok),
        End::Interrupted { code } => tidegate_kafka::end_process(code),
    }
}

/// Told here and not by clap, which would not say that the file may come from the environment.
fn refuse_what_is_of_the_shop(args: &Dev) -> Result<(), ServiceError> {
    let of_the_shop = [
        ("--kill-worker", args.kill_worker),
        ("--events", args.events.is_some()),
        ("--rate", args.rate.is_some()),
        ("--forever", args.forever),
    ];
    match of_the_shop.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(ServiceError::Configuration(format!(
            "{option} is of the shop that `dev` brings along, and has no effect on a configuration of your own: leave it out, or \
             leave --config (or TIDEGATE_CONFIG) out"
        ))),
    }
}

/// What dev mode tells the worker process that it starts.
#[derive(Debug, Args)]
pub(crate) struct DevWorker {
    #[arg(long)]
    bootstrap: String,
    #[arg(long)]
    registry: String,
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    state: PathBuf,
}

pub(crate) fn work(args: DevWorker) -> Answer {
    let DevWorker { bootstrap, registry, endpoint, state } = args;
    tidegate_dev::work(&WorkerPlace { addresses: Addresses { bootstrap, registry }, endpoint, state })?;
    Ok(ExitCode::Ok)
}
