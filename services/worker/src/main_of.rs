//! The main function of a worker binary: of tidegate's own, and of a user's with handlers in Rust.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use tidegate_bootstrap::config::process_environment;
use tidegate_bootstrap::{Config, ExitCode as Code};
use tidegate_pipeline::ports::Handler as HandlerPort;
use tidegate_service::process;

use crate::handler::{Adapter, Handler};
use crate::job::Events;

/// What a worker binary takes on its command line.
#[derive(Clone, Debug, Parser)]
#[command(about = "Run the jobs of one or more tiers", version)]
pub struct Options {
    /// The configuration file [default: tidegate.toml]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub config: Option<PathBuf>,
    /// A tier to serve; may be given several times. In production: one tier for each deployment
    #[arg(long = "tier", value_name = "TIER", required = true)]
    pub tiers: Vec<String>,
}

type Maker = Box<dyn Fn(&Arc<Events>) -> Arc<dyn HandlerPort> + Send + Sync>;

/// Handlers that a binary registered, by class.
#[derive(Default)]
pub struct Registered(BTreeMap<String, Maker>);

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Registered {
    pub(crate) fn get(&self, class: &str, events: &Arc<Events>) -> Option<Arc<dyn HandlerPort>> {
        self.0.get(class).map(|make| make(events))
    }
}

/// A worker with handlers of your own.
#[derive(Debug, Default)]
pub struct Worker {
    registered: Registered,
}

impl Worker {
    /// A worker that knows the built-in handlers only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the handler of a class whose configuration says `handler = { type = "rust" }`.
    #[must_use]
    pub fn handler(mut self, class: &str, handler: impl Handler) -> Self {
        let handler = Arc::new(handler);
        let make: Maker = Box::new(move |events| Arc::new(Adapter::new(handler.clone(), events.clone())));
        self.registered.0.insert(class.to_owned(), make);
        self
    }

    /// The whole main function: reads the command line and the configuration, works until SIGTERM, and tells errors on stderr. It
    /// ends the process and does not return.
    #[expect(clippy::print_stderr, reason = "the last words of a process, also when logging could not start")]
    pub fn main(self) -> ExitCode {
        let options = Options::parse();
        let code = match self.run(&options) {
            Ok(()) => Code::Ok,
            Err((code, message)) => {
                eprintln!("error: {message}");
                code
            }
        };
        tidegate_kafka::end_process(code as u8)
    }

    /// Works until SIGTERM; errors come with the exit code that they mean.
    pub fn run(self, options: &Options) -> Result<(), (Code, String)> {
        let usage = |message: String| (Code::Usage, message);
        let config = Config::load(options.config.as_deref(), process_environment())
            .map_err(|e| usage(e.to_string()))?;
        let tiers = crate::tiers(&config, &options.tiers).map_err(|e| usage(e.to_string()))?;
        process::serve(config, async |process| crate::run(process, &tiers, &self.registered).await)
            .map_err(|error| (error.exit_code(), error.to_string()))
    }
}
