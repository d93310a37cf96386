//! Child processes that can't outlive the test process, however that ends. The how and why is in `servers/guard.sh`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::process::BINARY_VARIABLE;
use crate::servers::{BOOTSTRAP_VARIABLE, KEEP_VARIABLE, REGISTRY_VARIABLE};
use crate::wait::look_until;

const SCRIPT: &str = include_str!("../servers/guard.sh");

/// The tests' own variables. `tidegate` would take them for settings, and refuse to start because it has none of these names.
const OF_TESTS: [&str; 4] = [BOOTSTRAP_VARIABLE, REGISTRY_VARIABLE, KEEP_VARIABLE, BINARY_VARIABLE];

/// What to start.
#[derive(Debug, Default)]
pub struct Launch {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// Added to the environment of the test.
    pub environment: Vec<(String, String)>,
    pub directory: Option<PathBuf>,
    /// Output is appended, so a process that is started again continues its predecessor's log.
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    /// Deleted when the *test process* has ended, for what no destructor will delete.
    pub remove: Option<PathBuf>,
}

/// The signals that tests send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Kill,
    Term,
    Interrupt,
    /// Freezes the process, as a long pause of its machine would.
    Stop,
    Continue,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Term => "TERM",
            Self::Interrupt => "INT",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

/// How a process ended: its exit code, or 128 + n when signal n ended it, as a shell tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit(pub i32);

impl Exit {
    pub const KILLED: Self = Self(128 + 9);

    pub fn is_success(self) -> bool {
        self.0 == 0
    }
}

/// A child process under the guard. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct Guarded {
    guard: Child,
    commands: ChildStdin,
    pid: u32,
}

impl Guarded {
    /// # Panics
    /// When there is no `sh`, or the output files can't be written. That the *program* can't be started shows as its end with
    /// code 126 or 127.
    #[track_caller]
    pub fn start(launch: &Launch) -> Self {
        let mut command = Command::new("sh");
        command.arg("-c").arg(SCRIPT).arg("guard");
        command
            .arg(&launch.stdout)
            .arg(&launch.stderr)
            .arg(launch.remove.as_deref().unwrap_or(Path::new("")));
        command.arg(&launch.program).args(&launch.arguments);
        for variable in OF_TESTS {
            command.env_remove(variable);
        }
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &launch.directory {
            command.current_dir(directory);
        }
        let mut guard = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("sh can't be started to guard {}: {error}", launch.program.display())
            });
        let commands = guard.stdin.take().expect("stdin is piped");
        let mut line = String::new();
        let stdout = guard.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the guard's first line can be read");
        let pid = line.trim().parse().unwrap_or_else(|_| {
            panic!("{} did not start: are its output files writable?", launch.program.display())
        });
        Self { guard, commands, pid }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn is_running(&mut self) -> bool {
        self.try_exit().is_none()
    }

    /// Sends the signal; a process that has already ended doesn't mind.
    pub fn signal(&mut self, signal: Signal) {
        let line = format!("{}\n", signal.name());
        if let Err(error) = self.commands.write_all(line.as_bytes())
            && self.is_running()
        {
            panic!("the guard of process {} can't be told to send {signal:?}: {error}", self.pid);
        }
    }

    /// Freezes it, and waits until none of its threads runs: the signal is on its way for as long as the guard is not scheduled.
    ///
    /// # Panics
    /// When it doesn't stand still.
    pub fn freeze(&mut self) {
        self.signal(Signal::Stop);
        let stands = || self.is_stopped().then_some(());
        look_until(Duration::from_secs(60), stands).expect("a process stands still within 60 s of SIGSTOP");
    }

    fn is_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else { return true };
        // One that has ended meanwhile runs no more. The state stands behind the name, which may hold any character.
        let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with(['T', 'Z', 'X']));
        let stats =
            threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        stats.filter_map(state).all(|stopped| stopped)
    }

    /// Waits for the end; `None` when the process is still running at the deadline.
    pub fn wait(&mut self, deadline: Duration) -> Option<Exit> {
        look_until(deadline, || self.try_exit())
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&mut self) -> Exit {
        self.signal(Signal::Kill);
        self.wait(Duration::from_secs(60)).expect("a process ends within 60 s of SIGKILL")
    }

    fn try_exit(&mut self) -> Option<Exit> {
        let status = self.guard.try_wait().expect("a child can be waited for")?;
        // The guard itself has no code only if someone killed it.
        Some(Exit(status.code().unwrap_or(Exit::KILLED.0)))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.is_running() {
            self.kill();
        }
    }
}

/// The last lines of a log, for the message of a failure.
pub fn tail(path: &Path, lines: usize) -> String {
    let Ok(file) = File::open(path) else { return format!("(no {})\n", path.display()) };
    let mut last = std::collections::VecDeque::new();
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if last.len() == lines {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    last.into_iter().map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn start(directory: &Path, script: &str) -> Guarded {
        Guarded::start(&Launch {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            stdout: directory.join("out"),
            stderr: directory.join("err"),
            ..Launch::default()
        })
    }

    fn exists(pid: u32) -> bool {
        // A zombie that nobody reaps yet has ended too.
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn the_exit_code_and_the_output_are_those_of_the_command() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut child = start(directory.path(), "echo to-out; echo to-err >&2; exit 7");
        assert_eq!(child.wait(SOON), Some(Exit(7)));
        assert_eq!(tail(&directory.path().join("out"), 5), "to-out\n");
        assert_eq!(tail(&directory.path().join("err"), 5), "to-err\n");
    }

    #[test]
    fn a_signal_reaches_the_command_itself() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut child =
            start(directory.path(), "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done");
        let ready = || tail(&directory.path().join("out"), 1) == "ready\n";
        crate::wait::wait_until("the trap to be set", SOON, ready);
        child.signal(Signal::Term);
        assert_eq!(child.wait(SOON), Some(Exit(3)));
        child.signal(Signal::Term); // after its end: nothing happens
    }

    #[test]
    fn what_is_frozen_does_nothing_until_it_goes_on() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut child = start(directory.path(), "while :; do echo x; sleep 0.01; done");
        let written = || std::fs::metadata(directory.path().join("out")).map_or(0, |file| file.len());
        crate::wait::wait_until("it to write", SOON, || written() > 0);
        child.freeze();
        let then = written();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(written(), then);
        child.signal(Signal::Continue);
        crate::wait::wait_until("it to go on", SOON, || written() > then);
        child.freeze();
        child.kill();
        child.freeze(); // after its end: there is nothing to wait for
    }

    #[test]
    fn a_child_is_killed_and_its_directory_removed_when_the_owner_is_gone() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let remove = directory.path().join("data");
        std::fs::create_dir(&remove).expect("a directory");
        let mut child = Guarded::start(&Launch {
            program: "sleep".into(),
            arguments: vec!["600".into()],
            stdout: directory.path().join("out"),
            stderr: directory.path().join("err"),
            remove: Some(remove.clone()),
            ..Launch::default()
        });
        assert!(exists(child.pid));
        // What the kernel does when this process ends: the pipe's only writer is closed.
        let mut other = Command::new("true").stdin(Stdio::piped()).spawn().expect("true starts");
        let replacement = other.stdin.take().expect("stdin is piped");
        drop(std::mem::replace(&mut child.commands, replacement));
        crate::wait::wait_until("the child to be killed", SOON, || !exists(child.pid));
        crate::wait::wait_until("its directory to be removed", SOON, || !remove.exists());
        assert_eq!(child.wait(SOON), Some(Exit::KILLED));
        other.wait().expect("true ends");
    }

    #[test]
    fn a_dropped_child_is_dead() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let child = start(directory.path(), "exec sleep 600");
        let pid = child.pid();
        drop(child);
        assert!(!exists(pid));
    }
}
