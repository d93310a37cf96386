//! The real `tidegate` binary as a child process, to be asked, stopped and killed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guard::{Exit, Guarded, Launch, Signal, tail};
use crate::servers::KEEP_VARIABLE;
use crate::wait::look_until;

/// Names the binary to test, instead of the one that cargo built beside this test.
pub const BINARY_VARIABLE: &str = "TIDEGATE_BIN";
const SHOWN_LINES: usize = 40;
/// Names the file of the authorities that OpenSSL trusts.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// A `tidegate` process to start: `Setup::new("worker", &["worker"]).config(&toml).env("RUST_LOG", "debug").start()`.
#[derive(Debug)]
pub struct Setup {
    name: String,
    program: Option<PathBuf>,
    arguments: Vec<String>,
    config: Option<String>,
    environment: Vec<(String, String)>,
}

impl Setup {
    /// The name is for messages only.
    pub fn new(name: &str, arguments: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            program: None,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            config: None,
            environment: Vec::new(),
        }
    }

    /// Another program than `tidegate`, such as `built_binary("own-worker")`.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// As a user whom missing rights stop, root included: without its capabilities, its files' modes count for it too.
    ///
    /// # Panics
    /// When nobody can tell who runs the tests.
    #[must_use]
    pub fn minding_rights(mut self) -> Self {
        let own = std::fs::metadata("/proc/self").expect("a process knows itself");
        if own.uid() == 0 {
            let program = self.program.take().unwrap_or_else(tidegate_binary).display().to_string();
            let words = ["--bounding-set=-all", "--inh-caps=-all", "--", &program].map(str::to_owned);
            self.arguments.splice(0..0, words);
            self.program = Some("setpriv".into());
        }
        self
    }

    /// Writes the text to `tidegate.toml` in the process's working directory and appends `--config tidegate.toml`.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.to_owned());
        self
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// # Panics
    /// When the binary hasn't been built.
    #[track_caller]
    pub fn start(self) -> Process {
        let directory = tempfile::Builder::new()
            .prefix(&format!("tidegate-{}-", self.name))
            .tempdir()
            .expect("a temporary directory can be created")
            .keep();
        let mut arguments = self.arguments;
        if let Some(config) = self.config {
            std::fs::write(directory.join("tidegate.toml"), config)
                .expect("the configuration can be written");
            arguments.extend(["--config".into(), "tidegate.toml".into()]);
        }
        let mut environment = self.environment;
        if environment.iter().all(|(name, _)| name != AUTHORITIES_VARIABLE) {
            // A client of HTTP reads all authorities that the machine trusts, a tenth of a second each; most tests speak no TLS.
            let none = directory.join("authorities.pem");
            std::fs::write(&none, "").expect("a file can be written");
            environment.push((AUTHORITIES_VARIABLE.into(), none.display().to_string()));
        }
        let launch = Launch {
            program: self.program.unwrap_or_else(tidegate_binary),
            arguments,
            environment,
            stdout: directory.join("stdout.log"),
            stderr: directory.join("stderr.log"),
            remove: std::env::var_os(KEEP_VARIABLE).is_none().then(|| directory.clone()),
            directory: Some(directory),
        };
        Process { name: self.name, child: Guarded::start(&launch), launch }
    }
}

/// A running (or ended) `tidegate`. Dropping it kills it; when the test is failing, its last lines are printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Guarded,
    launch: Launch,
}

impl Process {
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The working directory: configuration, logs, and whatever the process writes by a relative path.
    pub fn directory(&self) -> &Path {
        self.launch.directory.as_deref().expect("every process has a directory")
    }

    /// All that it has written so far.
    pub fn stdout(&self) -> String {
        read(&self.launch.stdout)
    }

    pub fn stderr(&self) -> String {
        read(&self.launch.stderr)
    }

    /// Waits until a GET of the URL answers 200 (`/readyz`).
    ///
    /// # Panics
    /// With the last lines of the log, when the deadline passes or the process ends first.
    #[track_caller]
    pub fn wait_for_url(&mut self, url: &str, deadline: Duration) {
        self.wait_until(&format!("{url} to answer 200"), deadline, || {
            matches!(crate::http::get(url), Ok((200, _)))
        });
    }

    /// Waits until standard output or error contains the text.
    #[track_caller]
    pub fn wait_for_output(&mut self, text: &str, deadline: Duration) {
        let (stdout, stderr) = (self.launch.stdout.clone(), self.launch.stderr.clone());
        self.wait_until(&format!("the output {text:?}"), deadline, || {
            read(&stdout).contains(text) || read(&stderr).contains(text)
        });
    }

    /// Asks for a clean end (SIGTERM); [`Process::wait`] tells how it went.
    pub fn sigterm(&mut self) {
        self.child.signal(Signal::Term);
    }

    /// What Ctrl-C sends.
    pub fn sigint(&mut self) {
        self.child.signal(Signal::Interrupt);
    }

    /// Kills it at whatever instruction it has reached, and waits for its end.
    pub fn sigkill(&mut self) {
        self.child.kill();
    }

    /// Freezes it: its sessions run out while it believes that it still owns its partitions.
    pub fn pause(&mut self) {
        self.child.freeze();
    }

    pub fn resume(&mut self) {
        self.child.signal(Signal::Continue);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.is_running()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it is still running at the deadline.
    #[track_caller]
    pub fn wait(&mut self, deadline: Duration) -> Exit {
        match self.child.wait(deadline) {
            Some(exit) => exit,
            None => panic!("{} still runs after {deadline:?}", self.name),
        }
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
        // The condition goes first: a process may do what was waited for and end.
        let found = look_until(deadline, || match condition() {
            true => Some(None),
            false => self.child.wait(Duration::ZERO).map(Some),
        });
        match found {
            Some(None) => {}
            Some(Some(_)) if condition() => {}
            Some(Some(Exit(code))) => panic!("{} ended with {code}; waited for {what}", self.name),
            None => panic!("{}: waited {deadline:?} for {what}", self.name),
        }
    }

    fn describe(&self) -> String {
        let part = |name: &str, path: &Path| {
            format!("--- {} ({}), last lines of {name}\n{}", self.name, self.pid(), tail(path, SHOWN_LINES))
        };
        part("stdout", &self.launch.stdout) + &part("stderr", &self.launch.stderr)
    }
}

impl Drop for Process {
    #[allow(clippy::print_stderr, reason = "a failed test must show what the process said")]
    fn drop(&mut self) {
        if self.child.is_running() {
            self.child.kill();
        }
        if std::thread::panicking() {
            eprint!("{}", self.describe());
        }
        if self.launch.remove.is_some() {
            // Nothing depends on it: a leftover in the temporary directory is only untidy.
            drop(std::fs::remove_dir_all(self.directory()));
        } else {
            eprintln!("kept {}", self.directory().display());
        }
    }
}

/// The `tidegate` to test: `TIDEGATE_BIN`, or what cargo built last.
#[track_caller]
pub fn tidegate_binary() -> PathBuf {
    let named = std::env::var_os(BINARY_VARIABLE).filter(|path| !path.is_empty());
    named.map_or_else(|| built_binary("tidegate"), PathBuf::from)
}

/// Where cargo put a binary of this workspace: beside this test's own directory (`target/debug/deps`), or beside this
/// program itself. `cargo test` alone doesn't build other packages' binaries, so it may be missing or old.
///
/// # Panics
/// When it isn't there.
#[track_caller]
pub fn built_binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a program knows its own path");
    let mut candidates = test.ancestors().skip(1).take(2).map(|directory| directory.join(name));
    candidates.find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "no {name} near {}: run `cargo build --workspace --all-targets`, as `./x test` does",
            test.display()
        )
    })
}

fn read(path: &Path) -> String {
    std::fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}
