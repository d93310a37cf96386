//! How dev mode ends: asked to by a signal, amid others that take part, and with nobody to tell.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_tests::guard::Exit;
use tidegate_tests::process::{Process, Setup};
use tidegate_tests::wait::wait_until;

use super::{SOON, dev, line, numbers, own, own_config, send, try_to_send};

#[test]
fn an_interrupt_ends_it_in_order_whenever_it_comes() {
    // The moment, told by what was said last, and what is said at the end.
    for (moment, end) in
        [("starting", "Ended before anything was published."), ("publishing", "is accounted for")]
    {
        let mut process = dev(&["--forever"]);
        process.wait_for_output(moment, SOON);
        send(&process, "-INT");
        assert_eq!(process.wait(SOON), Exit(0), "{moment}");
        assert!(process.stdout().contains(end) || process.stdout().contains("is accounted for"), "{moment}");
        assert!(!process.stderr().contains("panicked"), "{}", process.stderr());
    }
}

#[test]
fn a_second_interrupt_ends_it_at_once_and_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().to_str().unwrap();
    let mut process = Setup::new("dev", &["dev", "--forever"]).env("TMPDIR", within).start();
    // From now on some jobs wait for a second or more, so there is something to finish.
    process.wait_for_output(" delayed", SOON);
    send(&process, "-INT");
    process.wait_for_output("finishing", SOON);
    send(&process, "-INT");
    let exit = process.wait(SOON);
    // All may have come to its end in the moment between the two.
    assert!(
        exit == Exit(130) || (exit == Exit(0) && process.stdout().contains("is accounted for")),
        "{exit:?}"
    );
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// How far dev mode has come.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Its folder has just been made.
    Folder,
    /// The worker opens a store.
    Store,
    /// It has said this.
    Said(&'static str),
}

impl Moment {
    /// Waits for it, in a run whose temporary folder is `within`.
    fn wait(self, process: &mut Process, within: &Path) {
        let made = |name: &str| {
            let entries = fs::read_dir(within).unwrap().flatten();
            entries.into_iter().any(|entry| entry.path().join(name).exists())
        };
        match self {
            Self::Folder => wait_until("the folder to be made", SOON, || made("")),
            Self::Store => wait_until("a store to be opened", SOON, || made("state/critical")),
            Self::Said(text) => process.wait_for_output(text, SOON),
        }
    }
}

#[test]
fn whenever_its_terminal_is_closed_or_it_is_interrupted_twice_no_folder_is_left() {
    let moments = [Moment::Folder, Moment::Said("starting"), Moment::Store, Moment::Said("publishing")];
    let shop = moments.map(|moment| (&["--forever"] as &[&str], moment));
    let story = [Moment::Folder, Moment::Store, Moment::Said("the worker is process")];
    let story = story.map(|moment| (&["--kill-worker"] as &[&str], moment));
    for (arguments, moment) in shop.into_iter().chain(story) {
        for signals in [["-HUP", "-HUP"], ["-INT", "-INT"], ["-HUP", "-INT"]] {
            let folder = tempfile::tempdir().unwrap();
            let within = folder.path().to_str().unwrap();
            let words = [&["dev"], arguments].concat();
            let mut process = Setup::new("dev", &words).env("TMPDIR", within).start();
            moment.wait(&mut process, folder.path());
            for signal in signals {
                // It may have ended by the first one.
                try_to_send(&process, signal);
            }
            let exit = process.wait(SOON);
            let what = format!("{arguments:?} {moment:?} {signals:?}");
            // What ends with the first signal has had no second one; what has no end of its own was to be ended.
            let code = |signal: &str| Exit(if signal == "-HUP" { 129 } else { 130 });
            let first = if arguments == ["--forever"] { Exit(0) } else { code(signals[0]) };
            // Two that come at once may be heard in either order.
            let codes = [first, code(signals[0]), code(signals[1])];
            assert!(codes.contains(&exit), "{what}: {exit:?} {}", process.stderr());
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
            assert!(left.is_empty(), "{what}: {left:?}");
            let said = process.stderr();
            assert!(!said.contains("panicked") && !said.contains("ERROR"), "{what}: {said}");
        }
    }
}

#[test]
fn an_interrupt_in_the_middle_of_the_kill_leaves_no_worker() {
    let mut process = dev(&["--kill-worker"]);
    process.wait_for_output("the worker is process", SOON);
    let said = process.stdout();
    let worker = numbers(line(&said, "Ingest and retry run in this process"))[1];
    send(&process, "-INT");
    assert_eq!(process.wait(SOON), Exit(130));
    assert!(process.stdout().contains("Ended in the middle of the story"), "{}", process.stdout());
    wait_until("the worker to be gone", SOON, || !Path::new(&format!("/proc/{worker}")).exists());
}

#[test]
fn a_signal_before_its_own_end_is_an_interruption_with_its_number_and_a_summary() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let mut process = dev(&["--rate", "50", "--events", "5000"]);
        process.wait_for_output("publishing 50 a second | ", SOON);
        send(&process, signal);
        assert_eq!(process.wait(SOON), Exit(code), "{signal}: {}", process.stderr());
        let said = process.stdout();
        assert!(said.contains("Ended before all of 5000 were published."), "{signal}: {said}");
        assert!(said.contains("accounted for"), "{signal}: {said}");
    }
}

#[test]
fn its_help_tells_the_exit_codes_of_interruptions() {
    let mut process = dev(&["--help"]);
    assert_eq!(process.wait(SOON), Exit(0));
    let said = process.stdout().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("with exit code 0, what has an end of its own with 128 and the signal's number"),
        "{said}"
    );
}

/// Starts a service beside dev mode, at its servers.
fn beside(service: &str, config: &str, servers: [&str; 2]) -> Process {
    Setup::new("beside", &[service])
        .config(config)
        .env("TIDEGATE_KAFKA__BOOTSTRAP", servers[0])
        .env("TIDEGATE_REGISTRY__URL", servers[1])
        .env("TIDEGATE_OBSERVE__LISTEN", "127.0.0.1:0")
        .start()
}

#[test]
fn services_that_others_start_beside_it_hold_up_no_end_and_spoil_no_sum() {
    let config = own_config("http://127.0.0.1:1", "");
    let config = config.lines().filter(|line| !line.starts_with("properties")).collect::<Vec<_>>().join("\n");
    let (mut process, bootstrap, registry) = own(&config);
    let servers = [bootstrap.as_str(), registry.as_str()];
    let _ingest = beside("ingest", &config, servers);
    process.wait_for_output("shared with others: tidegate.ingest", SOON);
    // One that has just joined: the group waits for everybody, and then for nobody.
    let mut retry = beside("retry", &config, servers);
    wait_until("retry to join", SOON, || retry.stderr().contains("joining the group"));
    let asked = Instant::now();
    send(&process, "-INT");
    assert_eq!(process.wait(SOON), Exit(0), "{}", process.stderr());
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    let said = process.stdout();
    assert!(
        said.contains("Another member of group tidegate.ingest took part, or this process stood still for so long that one could: what it did is not in"),
        "{said}"
    );
    let row = said.lines().rev().find(|line| line.trim_start().starts_with("ship")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["ship", "0", "0", "0", "?"], "{said}");
    assert!(!process.stderr().contains("WARN tidegate_kafka"), "{}", process.stderr());
    assert!(retry.is_running());
}

#[test]
fn output_that_can_not_be_written_is_a_failure_and_output_that_nobody_reads_is_none() {
    for arguments in ["--forever", "--kill-worker"] {
        let binary = tidegate_tests::process::tidegate_binary();
        let run = |redirected: &str| {
            let script = format!("{} dev {arguments} {redirected}", binary.display());
            let folder = tempfile::tempdir().unwrap();
            let mut command = std::process::Command::new("bash");
            command
                .args(["-o", "pipefail", "-c", &script])
                .env("TMPDIR", folder.path())
                .env_remove("TIDEGATE_CONFIG");
            let output = command.output().unwrap();
            let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
            assert!(left.is_empty(), "{arguments} {redirected}: {left:?}");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, said) = run("> /dev/full");
        assert_eq!(code, Some(1), "{arguments}: {said}");
        assert!(
            said.contains("error: standard output can't be written to: No space left"),
            "{arguments}: {said}"
        );
        assert_eq!(run("| head -n 1"), (Some(0), String::new()), "{arguments}");
    }
}
