//! Dev mode on a terminal: util-linux's `script` gives it one. What the terminal was before and is afterwards is compared by `stty`.

use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::process::tidegate_binary;
use tidegate_tests::wait::{look_until, wait_until};

use super::{SOON, own_config, produce};

/// A shell on a terminal of its own, in which dev mode runs.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    folder: TempDir,
    size: [NonZero<u16>; 2],
}

impl Terminal {
    fn start(columns: u16, rows: u16, arguments: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        // The shell outlives its terminal, to tell the exit code.
        let shell = format!(
            "trap : HUP; stty cols {columns} rows {rows}; stty -a > before; {} dev {arguments} & echo $! > pid; fg > /dev/null; \
             echo $? > code.part; stty -a > after; mv code.part code",
            tidegate_binary().display()
        );
        let mut script = Command::new("script");
        // Job control keeps the process in the terminal's foreground, and its number known.
        script.args(["--quiet", "--flush", "--command", &format!("set -m; {shell}"), "screen"]);
        script
            .current_dir(folder.path())
            .env("TERM", "xterm")
            .env("TMPDIR", folder.path().join("tmp"))
            .env("SHELL", "/bin/bash")
            .env_remove("NO_COLOR");
        for variable in
            ["TIDEGATE_TEST_BOOTSTRAP", "TIDEGATE_TEST_REGISTRY", "TIDEGATE_TEST_KEEP", "TIDEGATE_CONFIG"]
        {
            script.env_remove(variable);
        }
        let mut script = script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let keys = script.stdin.take().unwrap();
        // What shows it has a size even where the terminal tells none.
        let size = if [rows, columns].contains(&0) { [24, 80] } else { [rows, columns] };
        Self { script, keys, folder, size: size.map(|n| NonZero::new(n).unwrap()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn blank(&self) -> vt100::Parser {
        vt100::Parser::new(self.size[0], self.size[1], 100)
    }

    /// All that was written to the terminal so far.
    fn written(&self) -> Vec<u8> {
        // A file that is not there yet holds nothing. Its first line, and at the end its last, are `script`'s own, which no terminal has
        // seen.
        let mut written = fs::read(self.path("screen")).unwrap_or_default();
        let first = written.iter().position(|byte| *byte == b'\n').map_or(written.len(), |end| end + 1);
        let last = b"\nScript done on ";
        let end = written.windows(last.len()).rposition(|part| part == last).unwrap_or(written.len());
        written.truncate(end);
        written.split_off(first.min(end))
    }

    /// What a terminal makes of all that was written to it.
    fn emulated(&self) -> vt100::Parser {
        let mut parser = self.blank();
        parser.process(&self.written());
        parser
    }

    fn screen(&self) -> String {
        self.emulated().screen().contents()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        self.wait_for_all(&[text]);
    }

    /// Waits until all of these have been on the screen at one time; returns what it showed then. That may be over: this looks at each
    /// screen that there was, however late it comes.
    #[track_caller]
    fn wait_for_all(&self, parts: &[&str]) -> String {
        let (mut parser, mut read) = (self.blank(), 0);
        let found = look_until(SOON, || {
            let written = self.written();
            let new = written.get(read..).unwrap_or_default();
            read += new.len();
            let mut pieces = new.chunk_by(|_, next| *next != 0x1b).peekable();
            while let Some(piece) = pieces.next() {
                parser.process(piece);
                // Whatever is drawn ends with the cursor being hidden.
                if piece.starts_with(b"\x1b[?") || pieces.peek().is_none() {
                    let shown = parser.screen().contents();
                    if parts.iter().all(|part| shown.contains(part)) {
                        return Some(shown);
                    }
                }
            }
            None
        });
        found.unwrap_or_else(|| panic!("no {parts:?} on one screen; the last one:\n{}", self.screen()))
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
        self.keys.flush().unwrap();
    }

    fn pid(&self) -> String {
        fs::read_to_string(self.path("pid")).unwrap().trim().to_owned()
    }

    fn send(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid()]).status().unwrap().success());
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        let left: Vec<_> = fs::read_dir(self.path("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// Waits for its end; returns the exit code, having checked that the terminal is what it was.
    #[track_caller]
    fn ended(&mut self) -> i32 {
        wait_until("dev mode to end", SOON, || self.path("code").exists());
        let file = |name: &str| fs::read_to_string(self.path(name)).unwrap();
        assert_eq!(file("before"), file("after"), "the terminal is not what it was");
        self.nothing_is_left();
        let emulated = self.emulated();
        let screen = emulated.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "the screen is not given back");
        assert!(!screen.contents().contains("panicked"), "{}", screen.contents());
        file("code").trim().parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.path("pid"))
            && !self.path("code").exists()
        {
            drop(Command::new("kill").args(["-KILL", pid.trim()]).status());
        }
        drop(self.script.kill());
        drop(self.script.wait());
    }
}

#[test]
fn on_a_terminal_there_is_a_live_view_and_after_it_the_sum() {
    let mut terminal = Terminal::start(120, 30, "--events 400 --rate 400");
    terminal.wait_for("wait p95");
    terminal.wait_for("publishing");
    assert_eq!(terminal.ended(), 0);
    let screen = terminal.screen();
    assert!(screen.contains("Every one of 400 records is accounted for"), "{screen}");
}

#[test]
fn forty_columns_will_do_and_q_ends_it_in_order() {
    let mut terminal = Terminal::start(40, 20, "--forever");
    let screen = terminal.wait_for_all(&["publishing", "q: end", "done/s", "charge"]);
    assert!(!screen.contains("p95"), "{screen}");
    terminal.press(b"q");
    assert_eq!(terminal.ended(), 0);
    let screen = terminal.screen();
    assert!(screen.contains("accounted") && screen.contains("published\n    = "), "{screen}");
}

#[test]
fn control_c_ends_it_in_order_and_a_second_time_at_once_with_the_terminal_as_it_was() {
    let endpoint = Endpoint::start(|_| Answer::hang());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    fs::write(&file, own_config(&endpoint.url(), "time_limit = \"10m\"")).unwrap();
    let mut terminal = Terminal::start(100, 30, &format!("--config {}", file.display()));
    let (bootstrap, registry) = ("TIDEGATE_KAFKA__BOOTSTRAP=", "TIDEGATE_REGISTRY__URL=");
    let screen = terminal.wait_for_all(&[bootstrap, registry, "produce --topic orders"]);
    let address = |name: &str| {
        let (_, rest) = screen.split_once(name).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    };
    produce(&address(bootstrap), &address(registry), &[json!({"id": "a"})]);
    // From now on there is something to finish, for longer than this test waits.
    endpoint.wait_for_count(1, SOON);
    terminal.press(b"\x03");
    terminal.wait_for("ending");
    terminal.press(b"\x03");
    assert_eq!(terminal.ended(), 130);
}

#[test]
fn a_terminal_that_is_closed_ends_it_and_no_folder_is_left() {
    for moment in ["starting", "publishing"] {
        let mut terminal = Terminal::start(100, 30, "--forever");
        terminal.wait_for(moment);
        let pid = terminal.pid();
        terminal.script.kill().unwrap();
        terminal.script.wait().unwrap();
        wait_until("dev mode to end", SOON, || !Path::new(&format!("/proc/{pid}")).exists());
        wait_until("its exit code", SOON, || terminal.path("code").exists());
        let code = fs::read_to_string(terminal.path("code")).unwrap();
        // Its signal, and that it can't be drawn on, are one wish; a shell that also sends one makes two.
        assert!(["0", "129"].contains(&code.trim()), "{moment}: {code}");
        terminal.nothing_is_left();
    }
}

#[test]
fn a_configuration_of_ones_own_shows_how_to_publish_until_something_comes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    let config = "[sources.orders]\nstart = \"earliest\"\n[classes.ship]\nsource = \"orders\"\nkey = [\"id\"]\nhandler = { type = \"log\" }\n";
    fs::write(&file, config).unwrap();
    let mut terminal = Terminal::start(90, 24, &format!("--config {}", file.display()));
    terminal.wait_for_all(&[
        "To publish, in another terminal:",
        "export TIDEGATE_KAFKA__BOOTSTRAP=127.0.0.1:",
        "export TIDEGATE_REGISTRY__URL=http://",
        "produce --topic orders",
    ]);
    terminal.press(b"q");
    assert_eq!(terminal.ended(), 0);
    assert!(terminal.screen().contains("not finished"), "{}", terminal.screen());
}

#[test]
fn a_signal_gives_the_terminal_back_too() {
    for (moment, end) in [("starting", "Ended before"), ("publishing", "accounted for")] {
        let mut terminal = Terminal::start(100, 30, "--forever");
        terminal.wait_for(moment);
        terminal.send("-TERM");
        assert_eq!(terminal.ended(), 0, "{moment}");
        let screen = terminal.screen();
        assert!(screen.contains(end) || screen.contains("accounted for"), "{moment}: {screen}");
    }
}

#[test]
fn control_c_before_its_own_end_is_an_interruption_and_q_is_none() {
    for (key, code) in [(b"\x03", 130), (b"q", 0)] {
        let mut terminal = Terminal::start(100, 30, "--rate 50 --events 5000");
        terminal.wait_for("publishing");
        terminal.press(key);
        assert_eq!(terminal.ended(), code);
        assert!(
            terminal.screen().contains("Ended before all of 5000 were published."),
            "{}",
            terminal.screen()
        );
    }
}

#[test]
fn the_story_of_the_kill_cuts_no_word_whatever_the_width() {
    for columns in [80, 40] {
        let mut terminal = Terminal::start(columns, 400, "--kill-worker --events 300 --rate 300");
        assert_eq!(terminal.ended(), 0);
        let emulated = terminal.emulated();
        let screen = terminal.screen();
        let rows: Vec<String> = emulated.screen().rows(0, columns).collect();
        let cut: Vec<&String> = rows
            .iter()
            .zip(0..)
            .filter(|(_, row)| emulated.screen().row_wrapped(*row))
            .map(|(text, _)| text)
            .collect();
        assert!(cut.is_empty(), "{cut:?}\n{screen}");
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Killed process",
            "each with the Idempotency-Key of its first call.",
            "Every record is accounted for",
        ] {
            assert!(words.contains(part), "{part}: {screen}");
        }
        assert!(
            rows.iter().all(|row| row.chars().count() <= columns.into())
                && (columns == 80 || screen.contains("= "))
        );
    }
}

#[test]
fn a_terminal_that_tells_no_size_shows_as_much_as_an_old_one() {
    let mut terminal = Terminal::start(0, 0, "--forever");
    terminal.wait_for_all(&["publishing", "q or Ctrl-C: end in order"]);
    terminal.press(b"q");
    assert_eq!(terminal.ended(), 0);
    assert!(terminal.screen().contains("accounted for"), "{}", terminal.screen());
}

#[test]
fn a_terminal_that_wants_plain_lines_gets_them() {
    let terminal = Terminal::start(100, 30, "--plain --events 200 --rate 400");
    terminal.wait_for("accounted for");
    wait_until("dev mode to end", SOON, || terminal.path("code").exists());
    let written = fs::read(terminal.path("screen")).unwrap();
    assert!(!String::from_utf8_lossy(&written).contains("\u{1b}[?1049h"));
    assert_eq!(
        fs::read_to_string(terminal.path("before")).unwrap(),
        fs::read_to_string(terminal.path("after")).unwrap()
    );
}
