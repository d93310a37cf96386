//! The worker as a process of its own: the same binary, started by dev mode, and ended by it in one way or another.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tidegate_bootstrap::telemetry::{Metrics, init_logs};
use tidegate_bootstrap::{ObserveServer, Shutdown};
use tidegate_pipeline::events;
use tidegate_service::Process;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::demo;
use crate::error::DevError;
use crate::figures::Page;
use crate::kill::SESSION;
use crate::servers::{Addresses, Source, config, with_session};
use crate::services::used_tiers;
use crate::view::say;

/// Where a worker process finds everything.
#[derive(Debug, Clone)]
pub struct WorkerPlace {
    /// The embedded servers.
    pub addresses: Addresses,
    /// The URL of the endpoint.
    pub endpoint: String,
    /// The folder of its marks.
    pub state: PathBuf,
}

/// The hidden command that runs such a worker.
pub(crate) const COMMAND: &str = "dev-worker";

/// The whole life of a worker process that dev mode started: it works until its standard input is closed, and prints the address of
/// its metrics first. Blocks.
///
/// # Errors
/// When the worker does not work.
pub fn work(place: &WorkerPlace) -> Result<(), DevError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let text = demo::config(&place.endpoint);
        let config = with_session(config(Source::Text(&text), &place.addresses, &place.state)?, SESSION);
        init_logs(&config.observe)?;
        let metrics = Metrics::install()?;
        events::describe();
        let shutdown = Shutdown::new();
        let process = Process::within(config.clone(), shutdown.clone());
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let observe = ObserveServer::bind(any_port, process.health.clone(), metrics).await;
        let observe = observe.map_err(|error| std::io::Error::other(error.to_string()))?;
        say(&format!("http://{}", observe.address()))?;
        tokio::spawn(observe.serve(std::future::pending()));
        end_with_stdin(shutdown)?;
        let tiers = used_tiers(&config);
        tidegate_worker::run(&process, &tiers, &Default::default())
            .await
            .map_err(|source| DevError::Service { service: "the worker".to_owned(), source })
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

/// It ends with whoever started it, even if that was killed itself.
fn end_with_stdin(shutdown: Shutdown) -> std::io::Result<()> {
    let wait = move || {
        if let Err(error) = std::io::copy(&mut std::io::stdin(), &mut std::io::sink()) {
            tracing::warn!(%error, "standard input can't be read");
        }
        shutdown.request();
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(wait).map(drop)
}

/// A running worker process; it is killed when dropped.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    pid: u32,
    url: String,
    log: PathBuf,
    /// It ends when this is closed.
    _stdin: Option<ChildStdin>,
    client: reqwest::Client,
}

/// What a worker process said last, in words of an error: whoever reads it has no file to look into, since the log goes with the run.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    match text.lines().rfind(|line| !line.trim().is_empty()) {
        Some(line) => format!("it said last: {}", line.trim()),
        None => "it said nothing: the system may have ended it, for want of memory for one".to_owned(),
    }
}

/// How long it may take to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

impl WorkerProcess {
    /// Starts one; what it logs goes to a file.
    pub(crate) async fn start(place: &WorkerPlace, log: &Path) -> Result<Self, DevError> {
        let to = std::fs::File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(COMMAND)
            .args(["--bootstrap", &place.addresses.bootstrap, "--registry", &place.addresses.registry])
            .args(["--endpoint", &place.endpoint, "--state"])
            .arg(&place.state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(to)
            // Ctrl-C is for the one that started it.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| DevError::Worker("has no output".to_owned()))?;
        let mut lines = BufReader::new(stdout).lines();
        let said = tokio::time::timeout(BEGINS_WITHIN, lines.next_line()).await;
        let Ok(Ok(Some(url))) = said else {
            return Err(DevError::Worker(format!("ended before it had begun; {}", last_words(log))));
        };
        let (pid, stdin) = (child.id().unwrap_or_default(), child.stdin.take());
        let log = log.to_owned();
        Ok(Self { child, pid, url, log, _stdin: stdin, client: reqwest::Client::new() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills it at whatever instruction it has reached.
    pub(crate) async fn kill(mut self) -> Result<(), DevError> {
        Ok(self.child.kill().await?)
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), DevError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) if status.signal().is_some() => {
                Err(DevError::Worker(format!("was ended by a signal ({status}): start dev mode again")))
            }
            Some(status) => {
                Err(DevError::Worker(format!("ended by itself ({status}); {}", last_words(&self.log))))
            }
        }
    }

    /// Whether its tiers are joined.
    pub(crate) async fn is_ready(&self) -> bool {
        let answer = self.client.get(format!("{}/readyz", self.url)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// What it says of itself.
    pub(crate) async fn page(&self) -> Result<Page, DevError> {
        let unreadable =
            |error: reqwest::Error| DevError::Worker(format!("does not show its metrics: {error}"));
        let answer = self.client.get(format!("{}/metrics", self.url)).send().await.map_err(unreadable)?;
        Ok(Page::parse(&answer.text().await.map_err(unreadable)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_does_not_begin_is_told_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("worker.log");
        let addresses =
            Addresses { bootstrap: "127.0.0.1:1".to_owned(), registry: "http://127.0.0.1:1".to_owned() };
        let place = WorkerPlace {
            addresses,
            endpoint: "http://127.0.0.1:1".to_owned(),
            state: folder.path().to_owned(),
        };
        // The binary of this process is the one of its tests, which knows no such command.
        let error = WorkerProcess::start(&place, &log).await.unwrap_err().to_string();
        let said = std::fs::read_to_string(&log).unwrap();
        let last = said.lines().rfind(|line| !line.is_empty()).unwrap();
        assert!(!last.is_empty() && error.ends_with(&format!("it said last: {last}")), "{error}\n{said}");
        std::fs::write(&log, "\n").unwrap();
        assert!(last_words(&log).starts_with("it said nothing"));
    }
}
