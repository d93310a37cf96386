//! Does what a page says: runs its commands in order, in a folder of its own, as a reader would.
//!
//! All blocks of a page are run in one place: what one exports, defines, or changes to, the next one finds. What they say about
//! ports and folders is replaced by what this test has. A block that fails, fails the test.
//!
//! Comments above a block say what to expect:
//!
//! - `shows: TEXT`: the block's output has this text. It is run again until it does, so it must only look.
//! - `terminals show: TEXT`: one of the terminals has this text by now, after the block.
//! - `listens: HOST:PORT`: what the terminals of the block start listens there. Services are waited for without being told.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::documents::{Block, blocks, root};
use crate::guard::{Exit, Guarded, Launch, Signal, tail};
use crate::http;
use crate::process::tidegate_binary;
use crate::wait::{look_until, wait_until};

/// How long a block may take, and how long what it is to show may take to appear.
const BLOCK: Duration = Duration::from_secs(180);
/// How long a service may take to end by SIGTERM.
const STOP: Duration = Duration::from_secs(40);
const LISTEN: &str = "TIDEGATE_OBSERVE__LISTEN";

/// A page that is being done.
#[derive(Debug)]
pub struct Walk {
    page: String,
    folder: tempfile::TempDir,
    replaced: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    terminals: Vec<Terminal>,
    cleanup: Option<PathBuf>,
    ran: usize,
}

#[derive(Debug)]
struct Terminal {
    line: String,
    is_service: bool,
    process: Guarded,
    output: PathBuf,
}

impl Walk {
    /// The page at this path, in an empty folder, with `tidegate` in the `PATH`.
    pub fn of(page: &str) -> Self {
        let folder =
            tempfile::Builder::new().prefix("tidegate-page-").tempdir().expect("a folder can be made");
        std::fs::create_dir(folder.path().join("here")).expect("a folder can be made");
        let binaries = tidegate_binary().parent().expect("a binary is in a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        let environment = [
            ("PATH", format!("{binaries}:{path}")),
            ("NO_PROXY", "127.0.0.1".to_owned()),
            ("no_proxy", "127.0.0.1".to_owned()),
        ];
        Self {
            page: page.to_owned(),
            folder,
            replaced: vec![("~/.cache/tidegate/target/debug".to_owned(), binaries)],
            environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
            terminals: Vec::new(),
            cleanup: None,
            ran: 0,
        }
    }

    /// Replaces a text wherever it stands: in blocks, in their comments, in files that are copied.
    #[must_use]
    pub fn replace(mut self, from: &str, to: &str) -> Self {
        self.replaced.push((from.to_owned(), to.to_owned()));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Puts a folder of programs before the others.
    #[must_use]
    pub fn path(mut self, folder: &Path) -> Self {
        for (_, value) in self.environment.iter_mut().filter(|(name, _)| name == "PATH") {
            *value = format!("{}:{value}", folder.display());
        }
        self
    }

    /// Copies a file or a folder of the repository to where the page is done.
    #[must_use]
    pub fn copy(self, path: &str) -> Self {
        self.copy_as(path, path)
    }

    /// The same, to another place.
    #[must_use]
    pub fn copy_as(self, path: &str, to: &str) -> Self {
        self.copy_to(&root().join(path), &self.here().join(to));
        self
    }

    /// A command that is run in the end, whatever happens: also when the test is killed.
    #[must_use]
    pub fn in_the_end(mut self, command: &str) -> Self {
        let script = self.folder.path().join("in-the-end.sh");
        std::fs::write(&script, self.prepared(command)).expect("a file can be written");
        self.cleanup = Some(script);
        self
    }

    fn copy_to(&self, from: &Path, to: &Path) {
        if from.is_dir() {
            for entry in std::fs::read_dir(from).expect("the folder can be read") {
                let entry = entry.expect("the folder can be read");
                self.copy_to(&entry.path(), &to.join(entry.file_name()));
            }
            return;
        }
        std::fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("a folder can be made");
        std::fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        // Only settings name ports; a binary file is left as it is.
        if to.extension().is_some_and(|extension| extension == "toml")
            && let Ok(text) = std::fs::read_to_string(to)
        {
            std::fs::write(to, self.prepared(&text)).expect("a file can be written");
        }
    }

    /// Where the page is done.
    pub fn here(&self) -> PathBuf {
        self.folder.path().join("here")
    }

    /// The text as it is run. What was put in is not looked at again: a port may look like another one.
    fn prepared(&self, text: &str) -> String {
        let (mut done, mut rest) = (String::new(), text);
        while let Some(next) = rest.chars().next() {
            match self.replaced.iter().find(|(from, _)| rest.starts_with(from)) {
                Some((from, to)) => {
                    done.push_str(to);
                    rest = &rest[from.len()..];
                }
                None => {
                    done.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        done
    }

    /// Runs all blocks of the page that are to be run, and ends what they started.
    ///
    /// # Panics
    /// When one fails, or the page has none.
    #[track_caller]
    pub fn run(mut self) {
        let _cleanup =
            self.cleanup.take().map(|script| Cleanup::of(&script, &self.here(), &self.environment));
        for block in blocks(&self.page).iter().filter(|block| block.is_run()) {
            if block.is("terminal") {
                self.open_terminals(block)
            } else {
                self.run_block(block)
            }
            for text in block.notes("terminals show") {
                let text = self.prepared(text);
                wait_until(&format!("a terminal to show {text:?}, after {}", block.place()), BLOCK, || {
                    self.terminals.iter().any(|terminal| read(&terminal.output).contains(&text))
                });
            }
            self.ran += 1;
        }
        assert!(self.ran > 0, "{} has no command that is run", self.page);
        self.close_terminals();
    }

    fn run_block(&self, block: &Block) {
        let expected: Vec<String> = block.notes("shows").map(|text| self.prepared(text)).collect();
        let began = Instant::now();
        loop {
            let (exit, output, errors) = self.run_once(block);
            let shown = expected.iter().all(|text| output.contains(text));
            if exit.is_success() && shown {
                return;
            }
            // A block without such a comment may change something: it is run once.
            let again = !expected.is_empty() && began.elapsed() < BLOCK;
            assert!(
                again,
                "{} ended with {exit:?}{}:\n{}--- it said\n{output}--- and on standard error\n{errors}{}",
                block.place(),
                if shown { String::new() } else { format!(" and does not show {expected:?}") },
                block.text,
                self.told(),
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn run_once(&self, block: &Block) -> (Exit, String, String) {
        let (stdout, stderr) = (self.folder.path().join("stdout"), self.folder.path().join("stderr"));
        for file in [&stdout, &stderr] {
            std::fs::write(file, "").expect("a file can be written");
        }
        let script = format!("{}{}", PRELUDE, self.prepared(&block.text));
        let mut process = self.bash(&script, &stdout, &stderr);
        let exit =
            process.wait(BLOCK).unwrap_or_else(|| panic!("{} still runs after {BLOCK:?}", block.place()));
        (exit, read(&stdout), read(&stderr))
    }

    fn bash(&self, script: &str, stdout: &Path, stderr: &Path) -> Guarded {
        let state = self.folder.path().join("state").display().to_string();
        let mut environment = self.environment.clone();
        environment.push(("WALK_STATE".to_owned(), state));
        Guarded::start(&Launch {
            program: "bash".into(),
            arguments: vec!["-ec".to_owned(), script.to_owned()],
            environment,
            directory: Some(self.here()),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            remove: None,
        })
    }

    fn open_terminals(&mut self, block: &Block) {
        for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
            let line = self.prepared(line);
            let output = self.folder.path().join(format!("terminal-{}.log", self.terminals.len()));
            std::fs::write(&output, "").expect("a file can be written");
            // `env` takes the variables that stand before the command; its end is the terminal's.
            let process = self.bash(&format!("{RESTORE}\nexec env {line}"), &output, &output);
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_service =
                words.iter().any(|word| matches!(*word, "ingest" | "retry" | "worker" | "own-worker"));
            self.terminals.push(Terminal { line, is_service, process, output });
            if is_service {
                self.wait_ready(block);
            }
        }
        for address in block.notes("listens") {
            let address = self.prepared(address);
            wait_until(&format!("{address} to be listened at ({})", block.place()), BLOCK, || {
                std::net::TcpStream::connect(&address).is_ok()
            });
        }
    }

    /// Waits until the service in the last terminal is ready.
    fn wait_ready(&mut self, block: &Block) {
        let inherited =
            self.environment.iter().rfind(|(name, _)| name == LISTEN).map(|(_, value)| value.clone());
        let Some(terminal) = self.terminals.last_mut() else { return };
        let own =
            terminal.line.split_whitespace().find_map(|word| word.strip_prefix(LISTEN)?.strip_prefix('='));
        let address = own.map(str::to_owned).or(inherited).unwrap_or_else(|| "127.0.0.1:9600".to_owned());
        let url = format!("http://{address}/readyz");
        let ready = look_until(BLOCK, || match terminal.process.wait(Duration::ZERO) {
            Some(exit) => Some(Err(exit)),
            None => matches!(http::get(&url), Ok((200, _))).then_some(Ok(())),
        });
        if !matches!(ready, Some(Ok(()))) {
            panic!(
                "{}: {} is not ready: {ready:?}\n{}",
                block.place(),
                terminal.line,
                tail(&terminal.output, 30)
            );
        }
    }

    /// What the terminals show, for a message.
    fn told(&self) -> String {
        let one = |terminal: &Terminal| format!("--- {}\n{}", terminal.line, tail(&terminal.output, 20));
        self.terminals.iter().map(one).collect()
    }

    /// Ends all terminals as Ctrl-C would. Services must end well.
    fn close_terminals(&mut self) {
        for terminal in self.terminals.iter_mut().rev() {
            terminal.process.signal(Signal::Term);
            let exit = terminal.process.wait(STOP);
            let well = exit.is_some_and(|exit| !terminal.is_service || exit.is_success());
            assert!(well, "{} ended with {exit:?}:\n{}", terminal.line, tail(&terminal.output, 20));
        }
    }
}

/// Brings back what the block before left, and keeps it for the next one, however this one ends.
const PRELUDE: &str = r#"set -o pipefail
if [ -e "$WALK_STATE" ]; then . "$WALK_STATE"; fi
trap '{ export -p; declare -f; printf "cd %q\n" "$PWD"; } >"$WALK_STATE"' EXIT
"#;
const RESTORE: &str = r#"if [ -e "$WALK_STATE" ]; then . "$WALK_STATE"; fi"#;

fn read(path: &Path) -> String {
    std::fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a script when it is dropped, or when the test process has ended in any other way: then its standard input is closed.
#[derive(Debug)]
struct Cleanup(std::process::Child);

impl Cleanup {
    fn of(script: &Path, folder: &Path, environment: &[(String, String)]) -> Self {
        let child = std::process::Command::new("setsid")
            .args(["sh", "-c", "cat >/dev/null; exec bash \"$0\" >/dev/null 2>&1"])
            .arg(script)
            .current_dir(folder)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh can be started");
        Self(child)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Its result is of no use any more; that it has ended is.
        drop(self.0.wait());
    }
}
