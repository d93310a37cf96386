//! The request to stop: from SIGTERM, SIGINT or the code itself, to everyone who listens.

use std::io;
use std::process;
use std::thread;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// A request to stop that is made once and never taken back. Clones share it.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// A shutdown that only [`Shutdown::request`] requests.
    pub fn new() -> Self {
        Self { requested: watch::Sender::new(false) }
    }

    /// A shutdown that SIGTERM and SIGINT request too. A second signal ends the process at once, with 143 or 130:
    /// whoever sends it has stopped believing in the orderly way.
    pub fn on_signals() -> Result<Self, SignalError> {
        let shutdown = Self::new();
        let listening = shutdown.clone();
        // A runtime of its own: the second signal must work when the process's own threads are stuck.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(SignalError)?;
        let mut signals = {
            let _guard = runtime.enter();
            Signals::listen().map_err(SignalError)?
        };
        let body = move || {
            runtime.block_on(async {
                let first = signals.next().await;
                tracing::info!(signal = first.name, "stopping; a second signal ends the process at once");
                listening.request();
                let second = signals.next().await;
                process::exit(second.exit_code);
            });
        };
        thread::Builder::new().name("signals".to_owned()).spawn(body).map_err(SignalError)?;
        Ok(shutdown)
    }

    /// Requests the stop. Requesting it again changes nothing.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Whether the stop is requested: for threads that look now and then.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Returns once the stop is requested; at once if it already is.
    pub async fn requested(&self) {
        let mut receiver = self.requested.subscribe();
        // It can't fail: `self` holds a sender for as long as this waits.
        drop(receiver.wait_for(|requested| *requested).await);
    }
}

/// The process can't listen for signals.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for SIGTERM and SIGINT: {0}; raise the limits on threads and open files")]
pub struct SignalError(#[source] io::Error);

#[derive(Debug)]
struct Received {
    name: &'static str,
    exit_code: i32,
}

#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> Received {
        tokio::select! {
            _ = self.terminate.recv() => Received { name: "SIGTERM", exit_code: 143 },
            _ = self.interrupt.recv() => Received { name: "SIGINT", exit_code: 130 },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn every_clone_hears_a_request_even_one_made_before_it_listened() {
        let shutdown = Shutdown::new();
        let waiting = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        assert!(!shutdown.is_requested());
        shutdown.clone().request();
        waiting.await.unwrap();
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }

    const CHILD: &str = "SHUTDOWN_TEST_CHILD";

    /// Not a test of its own: the process that the tests below send signals to. It never stops by itself.
    #[test]
    fn a_process_that_hears_a_signal_says_so() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let shutdown = Shutdown::on_signals().unwrap();
        let mut out = std::io::stderr();
        writeln!(out, "listening").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(shutdown.requested());
        writeln!(out, "requested").unwrap();
        // Blocks the thread like a hung worker would.
        loop {
            thread::park();
        }
    }

    fn expect_line(child: &mut BufReader<impl std::io::Read>, expected: &str) {
        let found = child.lines().map(|line| line.unwrap()).any(|line| line.ends_with(expected));
        assert!(found, "the child never said {expected}");
    }

    fn send(child: &Child, signal: &str) {
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    }

    #[track_caller]
    fn check(first: &str, second: &str, code: i32) {
        let this_binary = std::env::current_exe().unwrap();
        let mut child = Command::new(this_binary)
            .args(["--exact", "shutdown::tests::a_process_that_hears_a_signal_says_so", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        expect_line(&mut lines, "listening");
        send(&child, first);
        expect_line(&mut lines, "requested");
        send(&child, second);
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }

    #[test]
    fn the_second_signal_ends_a_hung_process_at_once() {
        check("-TERM", "-INT", 130);
        check("-INT", "-TERM", 143);
    }
}
