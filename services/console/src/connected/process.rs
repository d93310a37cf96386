//! The whole life of the console's process.

use std::path::Path;
use std::sync::Arc;

use tidegate_bootstrap::telemetry::init_logs;
use tidegate_bootstrap::{Config, Shutdown};
use tokio::runtime::Handle;
use tracing::info;

use super::{Connected, KafkaBacklog};
use crate::figures::{Backlog, Figures};
use crate::{Console, ConsoleError, Server, Setup, may_listen};

/// Serves the inbox of a pipeline until SIGTERM or SIGINT. The index is in `index`; none: in the state folder. Whoever asks while
/// nobody has to say who they are is `local_user`. Kafka may be away at the start: pages say so, and fill up when it is back.
pub async fn run(config: Config, index: Option<&Path>, local_user: String) -> Result<(), ConsoleError> {
    // Before anything is asked of a server: this one needs no server to be known.
    may_listen(&config.console)?;
    init_logs(&config.observe)?;
    let shutdown = Shutdown::on_signals()?;
    let config = Arc::new(config);
    tokio::spawn(tidegate_service::registry::tell(config.clone()));
    let inbox = {
        let (config, runtime) = (config.clone(), Handle::current());
        let index = index.map(Path::to_owned);
        let started =
            tokio::task::spawn_blocking(move || Connected::start(config, index.as_deref(), runtime));
        Arc::new(started.await.map_err(|error| ConsoleError::Broken(error.to_string()))??)
    };
    let backlog: Arc<dyn Backlog> = Arc::new(KafkaBacklog::new(&config)?);
    let figures = Figures::follow(&config.console.scrape, Some(backlog), &shutdown)?;
    let console = Console::new(Setup {
        pipeline: config.pipeline.name.to_string(),
        settings: config.console.clone(),
        classes: config
            .classes
            .iter()
            .map(|(name, class)| (name.to_string(), class.tier.to_string()))
            .collect(),
        local_user,
        inbox: inbox.clone(),
        figures,
    })?;
    let server = Server::bind(console).await?;
    info!(address = %format!("http://{}", server.address()), "the console answers");
    if !config.console.asks_who_is_there() {
        info!("it asks nobody who they are: whoever can open a connection on this machine is an operator");
    }
    server.serve(&shutdown).await
}
