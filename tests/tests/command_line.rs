//! The command line as a tool: completions, manual pages, `init` and `health`, without a server.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tidegate_tests::process::{Process, Setup, tidegate_binary};

const SOON: Duration = Duration::from_secs(30);

/// Runs a command in a folder of its own, with no terminal and nothing to read.
fn run(words: &[&str]) -> (i32, Process) {
    let mut process = Setup::new("command", words).start();
    (process.wait(SOON).0, process)
}

fn run_in(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(tidegate_binary());
    // The tests' own variables are no settings.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command.args(words).current_dir(folder).stdin(Stdio::null()).output().expect("the binary can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bash(script: &str, words: &[&Path]) -> Output {
    Command::new("bash").arg("-c").arg(script).arg("bash").args(words).output().expect("there is a bash")
}

/// Every subcommand with those below it, as the help tells them: `topics`, `topics apply`, ...
fn subcommands(of: &str) -> BTreeSet<String> {
    let words: Vec<&str> = of.split_whitespace().chain(["--help"]).collect();
    let (code, process) = run(&words);
    assert_eq!(code, 0, "{of}: {}", process.stderr());
    let help = process.stdout();
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return BTreeSet::new() };
    let names = list.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        // A line that goes on with a description is indented further.
        let name = line.strip_prefix("  ")?.split_whitespace().next()?;
        (!line.starts_with("   ") && name != "help").then(|| format!("{of} {name}").trim().to_owned())
    });
    names.flat_map(|name| subcommands(&name).into_iter().chain([name])).collect()
}

#[test]
fn every_subcommand_has_a_manual_page_and_every_page_is_that_of_a_subcommand() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = run_in(folder.path(), &["man", "--out", "man/man1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pages: BTreeSet<String> = std::fs::read_dir(folder.path().join("man/man1"))
        .expect("the folder is made")
        .map(|entry| entry.expect("it can be listed").file_name().into_string().expect("names are text"))
        .collect();
    let mut expected: BTreeSet<String> =
        subcommands("").iter().map(|name| format!("tidegate-{}.1", name.replace(' ', "-"))).collect();
    expected.insert("tidegate.1".to_owned());
    assert_eq!(pages, expected);
    assert!(pages.len() > 15, "{pages:?}");
    for page in &pages {
        let page =
            std::fs::read_to_string(folder.path().join("man/man1").join(page)).expect("a page is text");
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
    }
}

#[test]
fn the_manual_page_of_tidegate_itself_can_be_piped_to_man() {
    let (code, process) = run(&["man"]);
    let page = process.stdout();
    assert_eq!(code, 0, "{}", process.stderr());
    assert!(page.contains(".TH tidegate 1") && page.contains("tidegate\\-worker"), "{page}");
}

#[test]
fn every_shell_gets_a_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, process) = run(&["completions", shell]);
        assert_eq!(code, 0, "{shell}");
        assert!(process.stdout().contains("topics"), "{shell}");
    }
    let (code, process) = run(&["completions", "tcsh"]);
    assert_eq!(code, 2);
    assert!(process.stderr().contains("possible values: bash"), "{}", process.stderr());
}

#[test]
fn bash_completes_a_subcommand_and_a_flag_and_what_follows_a_subcommand() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let script = folder.path().join("tidegate.bash");
    let (_, process) = run(&["completions", "bash"]);
    std::fs::write(&script, process.stdout()).expect("the script can be written");
    let syntax = bash("bash -n \"$1\"", &[&script]);
    assert!(syntax.status.success(), "{}", text(&syntax.stderr));
    for (line, expected) in [
        ("tidegate wor", "worker"),
        ("tidegate topics ap", "apply"),
        ("tidegate worker --ti", "--tier"),
        ("tidegate completions fi", "fish"),
    ] {
        // As readline calls it: the words of the line, and which of them the cursor is in.
        let call = "source \"$1\"; COMP_WORDS=(LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                    _tidegate tidegate \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[*]}\"";
        let output = bash(&call.replace("LINE", line), &[&script]);
        let reply = text(&output.stdout);
        assert_eq!(reply.trim(), expected, "{line}: {}", text(&output.stderr));
    }
}

const ALL_FLAGS: [&str; 10] = [
    "init",
    "--offline",
    "--topic=shop.payments",
    "--key=payment_id",
    "--start=latest",
    "--url=http://127.0.0.1:8000/charge",
    "--tier=critical",
    "--class=charge",
    "--bootstrap=kafka-1:9092,kafka-2:9092",
    "--registry=http://registry:8081",
];

#[test]
fn what_init_writes_passes_the_check_and_it_says_what_comes_next() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = run_in(folder.path(), &ALL_FLAGS);
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{noted}");
    assert!(noted.contains("not checked"), "{noted}");
    let mut next = said.lines().skip(1).map(|line| line.split("tidegate ").last().unwrap_or_default());
    assert_eq!(next.next(), Some("config check"), "{said}");
    // Each line that it says is one that the binary understands.
    for line in said.lines().skip(1) {
        let words: Vec<&str> =
            line.split_whitespace().skip_while(|word| *word != "tidegate").skip(1).collect();
        let help = run_in(folder.path(), &[&words[..], &["--help"]].concat());
        assert!(help.status.success(), "{line}");
    }
    let check = run_in(folder.path(), &["config", "check"]);
    let effective = text(&check.stdout);
    assert!(check.status.success(), "{}", text(&check.stderr));
    for part in ["[classes.charge]", "key = [\"payment_id\"]", "tier = \"critical\"", "kafka-2:9092"] {
        assert!(effective.contains(part), "{part}: {effective}");
    }
}

#[test]
fn init_replaces_no_file_unless_it_is_forced() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "# precious\n").expect("it can be written");
    let words = [&ALL_FLAGS[..], &["--out", "mine.toml"]].concat();
    let refused = run_in(folder.path(), &words);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("mine.toml is there already"), "{}", text(&refused.stderr));
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "# precious\n");
    let forced = run_in(folder.path(), &[&words[..], &["--force"]].concat());
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert!(text(&forced.stdout).contains("tidegate ingest --config mine.toml"), "{}", text(&forced.stdout));
    let check = run_in(folder.path(), &["config", "check", "--config", "mine.toml"]);
    assert!(check.status.success(), "{}", text(&check.stderr));
}

#[test]
fn init_without_a_terminal_names_every_flag_that_it_needs() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = run_in(folder.path(), &["init", "--topic", "t"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: there is no default for --start, --key, --url: "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!folder.path().join("tidegate.toml").exists());
}

#[test]
fn on_a_terminal_init_asks_for_what_no_flag_gives() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let words: Vec<&str> = ALL_FLAGS.into_iter().filter(|word| !word.starts_with("--tier")).collect();
    let command = format!("{} {}", tidegate_binary().display(), words.join(" "));
    // `script` lends the command a terminal.
    let mut terminal = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` comes with every Debian");
    let mut input = terminal.stdin.take().expect("it is piped");
    input.write_all(b"huge\nbulk\n").expect("it reads");
    let output = terminal.wait_with_output().expect("it ends");
    drop(input);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("Their tier") && shown.contains("`huge` is no tier"), "{shown}");
    assert!(!shown.contains("Kafka brokers"), "{shown}");
    let written = std::fs::read_to_string(folder.path().join("tidegate.toml")).expect("it is written");
    assert!(written.contains("tier = \"bulk\""), "{written}");
}

#[test]
fn init_without_its_registry_says_so_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it is bound");
    let registry = format!("--registry=http://{nobody}");
    let words: Vec<&str> = ALL_FLAGS
        .into_iter()
        .filter(|word| !word.starts_with("--offline") && !word.starts_with("--registry"))
        .chain([registry.as_str()])
        .collect();
    let output = run_in(folder.path(), &words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("can't be reached") && said.contains("--offline"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!folder.path().join("tidegate.toml").exists());
}

#[test]
fn health_is_asked_without_a_configuration_and_answers_by_its_exit_code() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it is bound");
    let (code, process) = run(&["health", "--url", &format!("http://{nobody}/readyz")]);
    assert_eq!(code, 1);
    assert!(process.stderr().contains("does not answer"), "{}", process.stderr());
    let mut endpoint = Setup::new("endpoint", &["demo", "endpoint", "--listen", "127.0.0.1:0"]).start();
    endpoint.wait_for_output("listens on", SOON);
    let said = endpoint.stdout();
    let address = said.trim().rsplit_once(' ').expect("it says where").1;
    let (code, process) = run(&["health", "--url", &format!("http://{address}/readyz")]);
    assert_eq!(code, 0, "{}", process.stderr());
    let (code, process) = run(&["health", "--url", &format!("http://{address}/elsewhere")]);
    assert_eq!(code, 1);
    assert!(process.stderr().contains("answers 40"), "{}", process.stderr());
    endpoint.sigterm();
    assert!(endpoint.wait(SOON).is_success());
}
