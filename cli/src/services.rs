//! `tidegate ingest`, `worker` and `retry`.

use clap::Args;
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_service::{Process, ServiceError, process};

use crate::Answer;

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// A tier to serve; may be given several times. In production: one tier for each deployment
    #[arg(long = "tier", value_name = "TIER", required = true)]
    tiers: Vec<String>,
}

pub(crate) fn ingest(config: Config) -> Answer {
    serve(config, async |process| tidegate_ingest::run(process).await)
}

pub(crate) fn retry(config: Config) -> Answer {
    serve(config, async |process| tidegate_retry::run(process).await)
}

pub(crate) fn worker(config: Config, args: &WorkerArgs) -> Answer {
    let tiers = tidegate_worker::tiers(&config, &args.tiers)?;
    serve(config, async |process| tidegate_worker::run(process, &tiers, &Default::default()).await)
}

fn serve(config: Config, service: impl AsyncFnOnce(&Process) -> Result<(), ServiceError>) -> Answer {
    process::serve(config, service)?;
    Ok(ExitCode::Ok)
}
