//! `tidegate health`: what a container's health check calls.

use std::time::Duration;

use clap::Args;
use tidegate_bootstrap::config::HttpUrl;
use tidegate_bootstrap::probe::{probe, reachable};
use tidegate_bootstrap::{Config, ConfigError, ExitCode};

use crate::{Answer, block_on, print, print_error};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate health\n  tidegate health --url http://127.0.0.1:9600/livez\n\nExit codes: 0 it is well; 1 it is not, or does not answer."
)]
pub(crate) struct Health {
    /// What to ask [default: /readyz at observe.listen of the configuration]
    #[arg(long)]
    url: Option<HttpUrl>,
    /// How long an answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    within: u64,
}

pub(crate) fn run(load: impl FnOnce() -> Result<Config, ConfigError>, args: &Health) -> Answer {
    let url = match &args.url {
        Some(url) => url.clone(),
        None => format!("http://{}/readyz", reachable(load()?.observe.listen)).parse()?,
    };
    Ok(match block_on(probe(&url, Duration::from_secs(args.within.max(1))))? {
        Ok(()) => {
            print(&format!("{url} is well"));
            ExitCode::Ok
        }
        Err(error) => {
            print_error(&error.to_string());
            ExitCode::Failed
        }
    })
}
