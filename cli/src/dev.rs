//! `tidegate dev`, and the worker process that it starts.

use std::path::PathBuf;

use clap::Args;
use tidegate_bootstrap::ExitCode;
use tidegate_dev::{Addresses, End, HIGHEST_RATE, Load, Options, Play, Show, WorkerPlace};
use tidegate_service::ServiceError;

use crate::{Answer, INTERRUPTED, number};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tidegate dev                           a shop for a minute, and a sum in the end
  tidegate dev --kill-worker             the worker is killed amid its jobs
  tidegate dev --config tidegate.toml    your classes; it says where to publish

Nothing needs to be installed: broker and schema registry are embedded.
All is in memory and gone at the end.")]
pub(crate) struct Dev {
    /// Run the classes of this file instead of the shop, until Ctrl-C
    // In place of the global one, which has a default.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
    /// How many records the shop publishes [default: a minute's]
    #[arg(long, value_name = "N", value_parser = number::some, conflicts_with = "forever")]
    events: Option<u64>,
    /// How many records it publishes in a second, at most 500
    #[arg(long, value_name = "R", default_value_t = 200, value_parser = rate)]
    rate: u32,
    /// Publish until Ctrl-C
    #[arg(long)]
    forever: bool,
    /// Run the worker as a process of its own, kill it in the middle of its jobs, and tell what comes of it
    #[arg(long, conflicts_with = "forever")]
    kill_worker: bool,
    /// Plain lines, also on a terminal
    #[arg(long)]
    plain: bool,
}

fn rate(text: &str) -> Result<u32, String> {
    number::within(text, 1..=HIGHEST_RATE)
}

/// How long the shop publishes by default, in seconds.
const SECONDS: u64 = 60;
/// How many records the story of the kill takes.
const STORY: u64 = 1500;

pub(crate) fn run(args: &Dev) -> Answer {
    let of = |default: u64| {
        let records = (!args.forever).then(|| args.events.unwrap_or(default));
        Load { rate: args.rate, records }
    };
    let play = match args.config.clone() {
        Some(_) if args.kill_worker => {
            let reason =
                "--kill-worker tells a story of its own shop: leave --config (or TIDEGATE_CONFIG) out";
            return Err(ServiceError::Configuration(reason.to_owned()).into());
        }
        Some(_) if args.events.is_some() => {
            let reason = "--events is of the shop that `dev` brings along: leave it out, or --config (or TIDEGATE_CONFIG)";
            return Err(ServiceError::Configuration(reason.to_owned()).into());
        }
        Some(file) => Play::Own(file),
        None if args.kill_worker => Play::KillWorker(of(STORY)),
        None => Play::Shop(of(SECONDS * u64::from(args.rate))),
    };
    let show = if args.plain { Show::Plain } else { Show::Auto };
    match tidegate_dev::run(&Options { play, show })? {
        End::InOrder => Ok(ExitCode::Ok),
        End::AtOnce => tidegate_kafka::end_process(INTERRUPTED),
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
