//! The command line as a tool: completions, manual pages, `init` and `health`, without a server.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tidegate_tests::process::{Process, Setup, tidegate_binary};

const SOON: Duration = Duration::from_secs(90);

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
    let (code, shown) =
        on_a_terminal(folder.path(), &words, &[("Their tier", b"huge\n"), ("Their tier", b"bulk\n")]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("Their tier") && shown.contains("`huge` is no tier"), "{shown}");
    assert!(!shown.contains("Kafka brokers"), "{shown}");
    let written = std::fs::read_to_string(folder.path().join("tidegate.toml")).expect("it is written");
    assert!(written.contains("tier = \"bulk\""), "{written}");
}

/// What a person on a terminal sees who types each of these when it shows what comes before it, and the exit code.
fn on_a_terminal(folder: &Path, words: &[&str], typed: &[(&str, &[u8])]) -> (i32, String) {
    let command = format!("{} {}", tidegate_binary().display(), words.join(" "));
    // `script` lends the command a terminal.
    let mut terminal = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`script` comes with every Debian");
    let mut input = terminal.stdin.take().expect("it is piped");
    let mut output = terminal.stdout.take().expect("it is piped");
    let (mut shown, mut seen, mut buffer) = (String::new(), 0, [0; 4096]);
    let mut typed = typed.iter().peekable();
    loop {
        if let Some((question, answer)) = typed.peek()
            && let Some(place) = shown[seen..].find(question)
        {
            seen += place + question.len();
            input.write_all(answer).expect("it reads");
            typed.next();
            continue;
        }
        match output.read(&mut buffer).expect("it can be read") {
            0 => break,
            length => shown.push_str(&text(&buffer[..length])),
        }
    }
    (terminal.wait().expect("it ends").code().unwrap_or(-1), shown)
}

#[test]
fn whoever_interrupts_the_questions_of_init_gets_no_file() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let typed: [(&str, &[u8]); 2] = [("Kafka brokers", b"kafka:9092\n"), ("registry's address", b"\x03")];
    let (code, shown) = on_a_terminal(folder.path(), &["init"], &typed);
    assert_eq!(code, 130, "{shown}");
    assert!(shown.contains("note: ended; nothing was written") && !shown.contains("panicked"), "{shown}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

#[test]
fn init_looks_at_everything_that_is_at_hand_before_it_asks_the_registry() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it is bound");
    let registry = format!("--registry=http://{nobody}");
    let online: Vec<&str> = ALL_FLAGS.into_iter().filter(|word| !word.starts_with("--offline")).collect();
    for (flag, told) in [
        ("--start=now", "--start: `now` is no start"),
        ("--url=pay", "--url: "),
        ("--tier=huge", "--tier: `huge` is no tier"),
        ("--out=none/tidegate.toml", "there is no folder none for the file none/tidegate.toml"),
        ("--out=.", ". is a folder; name a file in it: --out ./tidegate.toml"),
    ] {
        let name = flag.split('=').next().expect("it has a name");
        let others = online.iter().copied().filter(|word| !word.starts_with(name));
        let others = others.filter(|word| !word.starts_with("--registry"));
        let words: Vec<&str> = others.chain([registry.as_str(), flag]).collect();
        let output = run_in(folder.path(), &words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flag}: {said}");
        assert!(said.contains(told) && !said.contains("can't be reached"), "{flag}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn init_takes_the_servers_of_the_environment() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let words = ALL_FLAGS.into_iter().filter(|word| !word.starts_with("--bootstrap"));
    let output = Command::new(tidegate_binary())
        .args(words.filter(|word| !word.starts_with("--registry")))
        .current_dir(folder.path())
        .env("TIDEGATE_KAFKA__BOOTSTRAP", "kafka-7:9092")
        .env("TIDEGATE_REGISTRY__URL", "http://registry-7:8081")
        .stdin(Stdio::null())
        .output()
        .expect("the binary can be started");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(folder.path().join("tidegate.toml")).expect("it is written");
    assert!(written.contains("kafka-7:9092") && written.contains("http://registry-7:8081"), "{written}");
}

#[test]
fn what_is_wrong_with_the_files_of_produce_is_told_before_anybody_is_asked() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    write("good.avsc", r#"{"type":"record","name":"E","fields":[{"name":"id","type":"string"}]}"#);
    write("half.avsc", r#"{"type":"record","name":"E","fie"#);
    write(
        "tidegate.toml",
        "[kafka]\nbootstrap = \"127.0.0.1:1\"\n[registry]\nurl = \"http://127.0.0.1:1\"\n",
    );
    for (words, told) in [
        (&["--schema", "none.avsc"][..], "the schema none.avsc can't be read: "),
        (&["--schema", "half.avsc"], "half.avsc is no Avro schema: "),
        (&["--schema", "good.avsc", "none.jsonl"], "none.jsonl can't be read: "),
        (&["--schema", "good.avsc", "."], ". is a folder; "),
        (&["--schema", "good.avsc", "--create", "0"], "write a whole number from 1 to"),
    ] {
        let output = run_in(folder.path(), &[&["produce", "--topic", "t"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(told), "{words:?}: {said}");
        assert!(!said.contains("127.0.0.1:1"), "no server was asked: {said}");
    }
}

#[test]
fn numbers_that_make_no_sense_are_refused_with_those_that_do() {
    for (words, told) in [
        (&["demo", "events", "--events", "0"][..], "write a whole number, 1 or more"),
        (&["demo", "events", "--rate", "0"], "write a whole number from 1 to 1000000"),
        (&["dlq", "replay", "--all", "--first", "0"], "write a whole number, 1 or more"),
        (&["dlq", "replay", "--all", "--factor", "0"], "write a whole number, 1 or more"),
    ] {
        let (code, process) = run(words);
        assert_eq!(code, 2, "{words:?}");
        assert!(process.stderr().contains(told), "{words:?}: {}", process.stderr());
    }
}

#[test]
fn a_configuration_that_can_not_be_read_is_told_with_what_to_do_about_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    std::fs::create_dir(folder.path().join("conf")).expect("it can be made");
    std::fs::write(folder.path().join("binary.toml"), [0xff, 0xfe, 0x00]).expect("it can be written");
    for (file, told) in [
        ("none.toml", "create the file, or name another with --config"),
        ("conf", "name a file with --config, like conf/tidegate.toml"),
        ("binary.toml", "it is no text: name a TOML file with --config"),
    ] {
        let output = run_in(folder.path(), &["config", "check", "--config", file]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}: {said}");
        assert!(said.starts_with(&format!("error: cannot read {file}: ")) && said.contains(told), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_configuration_that_this_user_may_not_read_is_told_as_that() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("secret.toml");
    std::fs::write(&file, "").expect("it can be written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).expect("it is ours");
    let words = ["config", "check", "--config", file.to_str().expect("it is text")];
    let mut process = Setup::new("unreadable", &words).minding_rights().start();
    assert_eq!(process.wait(SOON).0, 2);
    assert!(process.stderr().contains("let this user read it"), "{}", process.stderr());
}

#[test]
fn the_code_of_an_interrupted_command_is_among_the_exit_codes() {
    let (_, process) = run(&["--help"]);
    assert!(process.stdout().contains("130 it was interrupted"), "{}", process.stdout());
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
    let (code, process) = run(&["health", "--within", "60", "--url", &format!("http://{address}/readyz")]);
    assert_eq!(code, 0, "{}", process.stderr());
    let (code, process) = run(&["health", "--within", "60", "--url", &format!("http://{address}/elsewhere")]);
    assert_eq!(code, 1);
    assert!(process.stderr().contains("answers 40"), "{}", process.stderr());
    endpoint.sigterm();
    assert!(endpoint.wait(SOON).is_success());
}

#[test]
fn output_that_can_not_be_written_is_told_and_output_that_nobody_reads_is_not() {
    let told = |redirected: &str| {
        let script = format!(
            "set -o pipefail; for words in --help --version man 'completions bash' 'dlq --help'; do \"$1\" $words {redirected} || exit; done"
        );
        let full = format!(
            "for words in --help --version man 'completions bash' 'dlq --help'; do \"$1\" $words {redirected}; test $? = 1 || exit 9; done"
        );
        let script = if redirected.contains("full") { full } else { script };
        let output = bash(&script, &[&tidegate_binary()]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = told("> /dev/full");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.lines().count(), 5, "{said}");
    assert!(
        said.lines()
            .all(|line| line.starts_with("error: standard output can't be written to: No space left")),
        "{said}"
    );
    // What reads has gone before anything is written.
    assert_eq!(told("| true"), (Some(0), String::new()));
}
