//! The server: takes its port only where it may, and stops within a deadline.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tidegate_bootstrap::shutdown::SignalError;
use tidegate_bootstrap::telemetry::TelemetryError;
use tidegate_bootstrap::{ExitCode, Shutdown};
use tidegate_kafka::ConnectError;
use tidegate_operator::OperatorError;
use tokio::net::TcpListener;

use crate::access::{NoRandomness, NotForEverybody, may_listen};
use crate::{Console, routes};

/// How long answers that are under way may take when the console stops. Nothing that was ordered is lost: the journal has it.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Why the console does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// Whoever reaches it could do anything.
    #[error(transparent)]
    NotForEverybody(#[from] NotForEverybody),
    /// No secret can be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The port is not to be had.
    #[error(
        "cannot listen on {address}: {source}; set console.listen (TIDEGATE_CONSOLE__LISTEN) to another address or port"
    )]
    Bind {
        /// The address of `console.listen`.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The inbox can't be opened.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// Kafka refuses the client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Logs can't be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// Signals can't be heard.
    #[error(transparent)]
    Signals(#[from] SignalError),
    /// No client for the services' metrics can be made.
    #[error("services can't be asked for their metrics: {0}; empty console.scrape to do without")]
    Scrape(#[from] reqwest::Error),
    /// A thread ended by itself.
    #[error("the console broke at its start: {0}; start it again")]
    Broken(String),
    /// Serving failed.
    #[error("the console can't go on: {0}; start it again")]
    Serve(#[source] io::Error),
}

impl ConsoleError {
    /// The exit code of a process that ends with this.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::NotForEverybody(_) | Self::Bind { .. } => ExitCode::Usage,
            Self::Operator(error) => error.exit_code(),
            Self::Connect(error) if error.is_misconfiguration() => ExitCode::Usage,
            _ => ExitCode::Failed,
        }
    }
}

/// A console that has its port, and answers once [`Server::serve`] runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    console: Console,
}

impl Server {
    /// Takes the port of `console.listen`; with port 0 the system chooses one. Refused where everybody could do anything.
    pub async fn bind(console: Console) -> Result<Self, ConsoleError> {
        may_listen(console.settings())?;
        let address = console.settings().listen;
        let refuse = |source| ConsoleError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Self { listener, address, console })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until a stop is requested, and then for what is under way.
    pub async fn serve(self, shutdown: &Shutdown) -> Result<(), ConsoleError> {
        let router = routes::table().into_router(self.console);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let stop = shutdown.clone();
        let serving = axum::serve(self.listener, service)
            .with_graceful_shutdown(async move { stop.requested().await })
            .into_future();
        let deadline = async {
            shutdown.requested().await;
            // Pages that watch a run live would hold it up for ever.
            tokio::time::sleep(END_WITHIN).await;
        };
        tokio::select! {
            served = serving => served.map_err(ConsoleError::Serve),
            () = deadline => Ok(()),
        }
    }
}
