//! `tidegate demo`: what a demonstration needs besides tidegate.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use clap::Subcommand;
use tidegate_bootstrap::{Config, ConfigError, ExitCode, Shutdown};
use tidegate_demo::endpoint::Endpoint;
use tidegate_demo::sources;

use crate::{Answer, block_on, number, print};

#[derive(Debug, Subcommand)]
pub(crate) enum Demo {
    /// Create the demo's source topics and register their schemas
    Sources,
    /// Publish events with duplicates and garbage
    #[command(after_help = "Example:\n  tidegate demo events --events 7000 --rate 500")]
    Events {
        /// How many different events; every tenth is published twice
        #[arg(long, default_value_t = 2000, value_parser = number::some::<u64>)]
        events: u64,
        /// Records a second
        #[arg(long, default_value = "100", value_parser = rate)]
        rate: NonZeroU32,
    },
    /// Serve the endpoint that runs the jobs: most are done, some fail and heal, some are refused. GET / shows its sums
    Endpoint {
        /// Where to listen
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
        listen: SocketAddr,
    },
}

/// More than any broker takes from one publisher.
const HIGHEST_RATE: NonZeroU32 = NonZeroU32::new(1_000_000).expect("it is above 0");

fn rate(text: &str) -> Result<NonZeroU32, String> {
    number::within(text, NonZeroU32::MIN..=HIGHEST_RATE)
}

pub(crate) fn run(load: impl FnOnce() -> Result<Config, ConfigError>, command: &Demo) -> Answer {
    match command {
        Demo::Sources => {
            let created = block_on(sources::prepare(&load()?))??;
            created.iter().for_each(|topic| print(&format!("created {topic}")));
            print("the demo's source topics and schemas are there");
        }
        Demo::Events { events, rate } => {
            let (config, shutdown) = (load()?, Shutdown::on_signals()?);
            let published = block_on(sources::publish(&config, &shutdown, *events, *rate))??;
            let by_class: Vec<String> =
                published.iter().map(|(class, count)| format!("{class} {count}")).collect();
            print(&format!("published {}: {}", published.values().sum::<u64>(), by_class.join(", ")));
        }
        Demo::Endpoint { listen } => {
            let shutdown = Shutdown::on_signals()?;
            block_on(async {
                let endpoint = Endpoint::bind(*listen).await?;
                print(&format!("the demo's endpoint listens on {}", endpoint.address()));
                endpoint.serve(print, async move { shutdown.requested().await }).await?;
                anyhow::Ok(())
            })??;
        }
    }
    Ok(ExitCode::Ok)
}
