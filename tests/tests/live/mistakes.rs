//! Mistakes of people: each is answered by one clear sentence with the next step and the right exit code, and no stack trace.
//! Passwords and TLS are in `security.rs`, ports and state folders of others in `faults/local.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tidegate_tests::events::Writer;
use tidegate_tests::guard::Exit;
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::ports::free_port;
use tidegate_tests::process::{Process, Setup};
use tidegate_tests::servers::{Kafka, Registry};

use crate::standstill::without_waits;

const SOON: Duration = Duration::from_secs(60);
const EVENT: &str =
    r#"{"type":"record","name":"Event","namespace":"slips","fields":[{"name":"order_id","type":"string"}]}"#;

/// The sentence that a command ended with.
fn last_words(mut process: Process, code: i32) -> String {
    let exit = process.wait(SOON);
    let said = process.stderr();
    assert_eq!(exit, Exit(code), "{said}");
    check_tone(&said);
    let (_, error) = said.rsplit_once("error: ").unwrap_or_else(|| panic!("it says why: {said}"));
    error.trim().to_owned()
}

/// Nothing that only its authors can read.
fn check_tone(said: &str) {
    for noise in ["panicked", "stack backtrace", "RUST_BACKTRACE", "Error {", "Some(", "Err("] {
        assert!(!said.contains(noise), "`{noise}` in: {said}");
    }
}

/// What a command says of a configuration, without any server.
fn refused(config: &str, arguments: &[&str]) -> String {
    last_words(Setup::new("mistake", arguments).config(config).start(), 2)
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

const SOUND: &str = "[kafka]\nbootstrap = \"127.0.0.1:1\"\n[registry]\nurl = \"http://127.0.0.1:2\"\n[sources.events]\nstart = \"earliest\"\n[classes.see]\nsource = \"events\"\nkey = [\"id\"]\nhandler = { type = \"log\" }\n";

#[test]
fn a_sound_configuration_is_what_the_mistakes_are_made_in() {
    let mut process = Setup::new("sound", &["config", "check"]).config(SOUND).start();
    assert_eq!(process.wait(SOON), Exit(0), "{}", process.stderr());
}

#[test]
fn a_half_written_file_is_told_with_the_place() {
    let text = refused("[kafka]\nbootstrap = \"127.0.0.1:1", &["config", "check"]);
    assert_says(&text, &["tidegate.toml", "line 2", "correct that line"]);
}

#[test]
fn a_typo_in_a_key_is_told_with_the_key_that_was_meant() {
    let text = refused(&SOUND.replace("bootstrap", "bootsrap"), &["ingest"]);
    assert_says(&text, &["kafka.bootsrap", "did you mean `bootstrap`?"]);
}

#[test]
fn a_typo_in_a_key_that_a_class_needs_is_one_problem() {
    let text = refused(&SOUND.replace("handler =", "handlr ="), &["worker", "--tier", "default"]);
    assert_says(&text, &["1 problem in", "classes.see.handlr", "did you mean `handler`?"]);
    assert!(!text.contains("missing"), "{text}");
}

#[test]
fn a_class_without_a_handler_is_told_what_to_write() {
    let text =
        refused(&SOUND.replace("handler = { type = \"log\" }\n", ""), &["worker", "--tier", "default"]);
    assert_says(&text, &["classes.see.handler", "handler = { type = \"http\", url ="]);
}

#[test]
fn a_tier_that_is_not_configured_is_told_with_those_that_are_before_anything_is_connected() {
    let text = refused(SOUND, &["worker", "--tier", "defalt"]);
    assert_says(&text, &["no tier `defalt`", "default"]);
}

#[test]
fn no_configuration_at_all_says_where_it_was_looked_for() {
    let text = last_words(Setup::new("nowhere", &["ingest"]).start(), 2);
    assert_says(&text, &["no tidegate.toml here", "--config", "kafka.bootstrap"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let setup = Setup::new("elsewhere", &["ingest", "--config", "nowhere.toml"]);
    assert_says(&last_words(setup.start(), 2), &["nowhere.toml"]);
}

#[test]
fn an_address_where_no_broker_is_is_told_by_every_command_and_trying_again_may_help() {
    let address = format!("127.0.0.1:{}", free_port());
    let config = SOUND.replace("127.0.0.1:1", &address);
    let commands: [&[&str]; 6] = [
        &["ingest"],
        &["worker", "--tier", "default"],
        &["retry"],
        &["topics", "apply"],
        &["topics", "check"],
        &["dlq", "list"],
    ];
    let start = |arguments: &&[&str]| {
        let listen = format!("127.0.0.1:{}", free_port());
        Setup::new("lost", arguments).config(&config).env("TIDEGATE_OBSERVE__LISTEN", &listen).start()
    };
    let processes: Vec<Process> = commands.iter().map(start).collect();
    for process in processes {
        assert_says(&last_words(process, 1), &[&address, "kafka.bootstrap", "Kafka is running"]);
    }
}

#[test]
fn a_command_that_waits_for_kafka_says_so_before_it_gives_up_and_never_in_its_output() {
    let address = format!("127.0.0.1:{}", free_port());
    let config = SOUND.replace("127.0.0.1:1", &address);
    let commands: [&[&str]; 4] = [
        &["topics", "apply"],
        &["topics", "check", "--json"],
        &["dlq", "list", "--json"],
        &["job", "where", "a"],
    ];
    let start = |arguments: &[&str]| Setup::new("waits", arguments).config(&config).start();
    let started = commands.map(start);
    for (mut process, arguments) in started.into_iter().zip(commands) {
        let mut note = note_of(&mut process);
        // One that stood still in its first second tells before it knows why.
        for _ in 1..TRIES {
            if note.contains("Connection refused") {
                break;
            }
            note = note_of(&mut start(arguments));
        }
        assert_says(&note, &[&address, "Connection refused", "still trying, for 10 s in all"]);
    }
}

/// How often to try what a process that stands still for a moment does in another way.
const TRIES: usize = 3;

/// The only note that a command said before it gave up.
fn note_of(process: &mut Process) -> String {
    assert_eq!(process.wait(SOON), Exit(1));
    assert_eq!(process.stdout(), "");
    let said = process.stderr();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("note: ") && lines[1].starts_with("error: "),
        "a note and the error: {said}"
    );
    lines[0].to_owned()
}

#[test]
fn a_command_whose_kafka_answers_says_nothing_of_waiting() {
    let mut pipeline = Pipeline::new("slip-none", Kafka::shared(), Registry::shared().url());
    pipeline.source("events", 1, "earliest");
    pipeline.apply_topics();
    let check = || {
        let mut check = Setup::new("check", &["topics", "check"]).config(pipeline.config()).start();
        let exit = check.wait(SOON);
        let said = check.stderr();
        assert_eq!((exit, without_waits(&said)), (Exit(0), String::new()));
        said
    };
    // Unless Kafka itself stands still for a second, which it does not each time.
    let said: Vec<String> = (0..TRIES).map(|_| check()).take_while(|said| !said.is_empty()).collect();
    assert!(said.len() < TRIES, "{said:?}");
}

/// A pipeline whose topics exist.
fn pipeline(prefix: &str, class: &str) -> (Pipeline, String) {
    let mut pipeline = Pipeline::new(prefix, Kafka::shared(), Registry::shared().url());
    let source = pipeline.source("events", 1, "earliest");
    pipeline.configure(&format!(
        "[classes.see]\nsource = \"{source}\"\nhandler = {{ type = \"log\" }}\n{class}\n"
    ));
    pipeline.apply_topics();
    (pipeline, source)
}

fn ended(mut pipeline: Pipeline, name: &str, code: i32) -> String {
    let exit = pipeline.process(name).wait(SOON);
    let said = pipeline.process(name).stderr();
    assert_eq!(exit, Exit(code), "{said}");
    check_tone(&said);
    said.rsplit_once("error: ").unwrap_or_else(|| panic!("it says why: {said}")).1.trim().to_owned()
}

#[test]
fn a_key_that_the_schema_lacks_is_refused_before_every_event_is_dead_lettered() {
    let (mut pipeline, source) = pipeline("slip-field", "key = [\"orderid\"]");
    let events = Writer::register(Registry::shared(), &source, EVENT);
    pipeline.client.produce_all(&source, &[events.record(&serde_json::json!({"order_id": "o-1"}))]);
    pipeline.launch("ingest", &["ingest"], &[]);
    let dead = pipeline.topic("dlq");
    let read = |pipeline: &Pipeline| pipeline.client.read_all(&dead).len();
    assert_eq!(read(&pipeline), 0);
    let text = ended(pipeline, "ingest", 2);
    assert_says(&text, &["classes.see.key", "no field `orderid`", "did you mean `order_id`?"]);
}

#[test]
fn a_registry_that_is_not_there_keeps_ingest_not_ready_only_once_an_event_needs_it() {
    let (mut pipeline, source) = pipeline("slip-registry", "key = [\"order_id\"]");
    let events = Writer::register(Registry::shared(), &source, EVENT);
    pipeline.client.produce_all(&source, &[events.record(&serde_json::json!({"order_id": "o-1"}))]);
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    pipeline.launch("ingest", &["ingest"], &[("TIDEGATE_REGISTRY__URL", &nowhere)]);
    pipeline.wait_not_ready("ingest", "registry", SOON);
    pipeline.process("ingest").sigint();
    assert_eq!(pipeline.process("ingest").wait(SOON), Exit(0));
    check_tone(&pipeline.process("ingest").stderr());
}

#[test]
fn a_state_folder_that_cannot_be_used_is_named_with_the_setting() {
    let (mut pipeline, _) = pipeline("slip-state", "key = [\"order_id\"]");
    let file = tempfile::NamedTempFile::new().unwrap();
    let dir = file.path().join("state").display().to_string();
    pipeline.launch("worker", &["worker", "--tier", "default"], &[("TIDEGATE_STATE__DIR", &dir)]);
    assert_says(&ended(pipeline, "worker", 2), &["state.dir", &dir]);
}

#[test]
fn a_state_folder_without_rights_is_named_with_the_setting() {
    let (mut pipeline, _) = pipeline("slip-rights", "key = [\"order_id\"]");
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let dir = folder.path().join("state").display().to_string();
    let worker = Setup::new("worker", &["worker", "--tier", "default"]).minding_rights();
    pipeline.launch_setup("worker", worker, &[("TIDEGATE_STATE__DIR", &dir)]);
    assert_says(&ended(pipeline, "worker", 2), &["state.dir", &dir, "ermission denied"]);
}

#[test]
fn ctrl_c_at_any_moment_is_a_clean_end() {
    let (mut pipeline, _) = pipeline("slip-ctrl-c", "key = [\"order_id\"]");
    let services: [(&str, &[&str]); 3] =
        [("ingest", &["ingest"]), ("worker", &["worker", "--tier", "default"]), ("retry", &["retry"])];
    for after in [0, 30, 100, 300, 1000, 3000].map(Duration::from_millis) {
        for (name, arguments) in services {
            pipeline.launch(name, arguments, &[]);
        }
        for (name, _) in services {
            // A shell starts its background processes with SIGINT ignored: before they listen, they hear nothing.
            pipeline.process(name).wait_for_output("metrics at /metrics", SOON);
        }
        // The moment itself is what is tried: nothing is waited for.
        std::thread::sleep(after);
        for (name, _) in services {
            let process = pipeline.process(name);
            process.sigint();
            let Exit(code) = process.wait(SOON);
            let said = process.stderr();
            check_tone(&said);
            assert_eq!(code, 0, "{name} after {after:?}\n{said}");
        }
    }
}
