//! `tidegate dev` as somebody meets it who has nothing installed: the real binary, and no server.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::guard::Exit;
use tidegate_tests::http;
use tidegate_tests::process::{Process, Setup};
use tidegate_tests::wait::wait_until;

mod ends;
mod terminal;

/// A machine may be busy; nothing here waits for long otherwise.
const SOON: Duration = Duration::from_secs(90);

fn dev(arguments: &[&str]) -> Process {
    Setup::new("dev", &[&["dev"], arguments].concat()).start()
}

/// The numbers of a line, in their order.
fn numbers(line: &str) -> Vec<u64> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The line that begins with this.
#[track_caller]
fn line<'a>(text: &'a str, begin: &str) -> &'a str {
    text.lines()
        .find(|line| line.trim_start().starts_with(begin))
        .unwrap_or_else(|| panic!("no line {begin}:\n{text}"))
}

fn send(process: &Process, signal: &str) {
    assert!(try_to_send(process, signal), "it has ended before {signal}");
}

/// Whether it was there to get it.
fn try_to_send(process: &Process, signal: &str) -> bool {
    let sent = std::process::Command::new("kill").args([signal, &process.pid().to_string()]).output();
    sent.unwrap().status.success()
}

#[test]
fn the_shop_ends_by_itself_with_a_sum_in_which_every_record_has_its_end() {
    let mut process = dev(&["--events", "400", "--rate", "400"]);
    assert_eq!(process.wait(SOON), Exit(0));
    let said = process.stdout();
    let mut published = 0;
    for class in ["charge", "welcome", "export"] {
        let row = said.lines().find(|line| line.trim_start().starts_with(class)).map(numbers).unwrap();
        let [all, done, dead, refused, unreadable, duplicates, retries] = row[..] else {
            panic!("{class}: {row:?}\n{said}");
        };
        assert_eq!((all, dead), (done + dead + duplicates, refused + unreadable), "{class}: {row:?}");
        assert!(done > 0 && refused > 0 && duplicates > 0 && retries > 0, "{class}: {row:?}");
        published += all;
    }
    assert_eq!(published, 400);
    assert!(said.contains("Every one of 400 records is accounted for"), "{said}");
    // Where nobody watches, it is told line by line, without a code of a terminal.
    let first = said.lines().next().unwrap_or_default();
    assert!(first.contains(" s  starting") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn what_a_killed_worker_had_in_hand_runs_again_and_what_it_had_done_is_skipped() {
    let mut process = dev(&["--kill-worker", "--events", "700"]);
    assert_eq!(process.wait(SOON), Exit(0));
    let said = process.stdout();
    let (killed, again) = (numbers(line(&said, "Killed process")), numbers(line(&said, "Delivered again: ")));
    let skipped = numbers(line(&said, "Delivered again and skipped: "));
    let (in_hand, done) = (killed[1], killed[2]);
    assert!(in_hand >= 5 && done >= 200, "{said}");
    // One that was answered in the very moment of the kill may have been marked in time.
    assert!(again[0] > 0 && again[0] <= in_hand && again[1] == in_hand, "{said}");
    assert!(skipped[0] > 0, "{said}");
    // What was told while it ran is no more than what is told at the end.
    let live = said.lines().rev().find(|line| line.contains("delivered again and skipped"));
    let live = numbers(live.unwrap_or_else(|| panic!("nothing was told on the way:\n{said}")))[2];
    assert!(live > 0 && live <= skipped.iter().sum(), "{said}");
    assert!(said.contains("Every record is accounted for"), "{said}");
    let pids = [killed[0], numbers(line(&said, "Started process"))[0]];
    wait_until(&format!("no worker to be left over: {said}"), SOON, || {
        pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
}

#[test]
fn the_story_of_the_kill_is_told_of_three_records_too() {
    let mut process = dev(&["--kill-worker", "--events", "3"]);
    assert_eq!(process.wait(SOON), Exit(0));
    let said = process.stdout();
    assert!(numbers(line(&said, "Killed process"))[1] >= 1, "{said}");
    assert!(said.contains("Every record is accounted for"), "{said}");
}

const EVENT: &str = r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "note", "type": "string", "default": ""}]}"#;

/// A configuration of one class, as somebody has it for a real cluster.
fn own_config(endpoint: &str, more: &str) -> String {
    format!(
        r#"
[kafka]
bootstrap = "kafka.example.org:9093"
properties = {{ "security.protocol" = "SASL_SSL", "sasl.mechanisms" = "PLAIN" }}
[sources.orders]
start = "earliest"
[classes.ship]
source = "orders"
key = ["id"]
handler = {{ type = "http", url = "{endpoint}/ship" }}
{more}
"#
    )
}

/// Starts dev mode with a configuration; returns the addresses that it prints.
fn own(config: &str) -> (Process, String, String) {
    let mut process = Setup::new("dev", &["dev"]).config(config).start();
    process.wait_for_output("to publish: ", SOON);
    let said = process.stdout();
    let address = |name: &str| line(&said, name).split_whitespace().nth(1).unwrap().to_owned();
    let (bootstrap, registry) = (address("bootstrap"), address("registry"));
    (process, bootstrap, registry)
}

/// Publishes events by `tidegate produce`, as the printed line says.
fn produce(bootstrap: &str, registry: &str, events: &[serde_json::Value]) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let schema = file("order.avsc", EVENT.to_owned());
    let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
    let events = file("orders.jsonl", lines.join("\n"));
    let mut process = Setup::new("produce", &["produce", "--topic", "orders", "--schema", &schema, &events])
        .env("TIDEGATE_KAFKA__BOOTSTRAP", bootstrap)
        .env("TIDEGATE_REGISTRY__URL", registry)
        .start();
    assert_eq!(process.wait(SOON), Exit(0), "{}", process.stderr());
}

#[test]
fn a_configuration_of_ones_own_runs_on_the_embedded_servers_and_others_publish_to_them() {
    let endpoint = Endpoint::start(|call| match call.json()["id"].as_str() {
        Some("bad") => Answer::status(422),
        _ => Answer::ok(),
    });
    let (mut process, bootstrap, registry) = own(&own_config(&endpoint.url(), ""));
    produce(
        &bootstrap,
        &registry,
        &[json!({"id": "a"}), json!({"id": "a"}), json!({"id": "b"}), json!({"id": "bad"})],
    );
    let calls = endpoint.wait_for_count(3, SOON);
    let mut ids: Vec<String> =
        calls.iter().map(|call| call.json()["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    assert_eq!(ids, ["a", "b", "bad"]);
    let (status, versions) = http::get(&format!("{registry}/subjects/orders-value/versions")).unwrap();
    assert_eq!((status, versions.as_str()), (200, "[1]"));
    process.wait_for_output("ship 2 done, 1 dead, 1 duplicate skipped", SOON);
    send(&process, "-INT");
    assert_eq!(process.wait(SOON), Exit(0));
    let said = process.stdout();
    let row = said.lines().rev().find(|line| line.trim_start().starts_with("ship")).map(numbers);
    assert_eq!(row, Some(vec![2, 1, 1, 0]), "{said}");
    // That all goes as it should is no news.
    let noise = process.stderr();
    assert!(!noise.contains("INFO") && !noise.contains("fetched in advance"), "{noise}");
}

/// Text that a producer's compression makes hardly smaller.
fn incompressible(length: usize) -> String {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + (state >> 24) as u8 % 75)
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn records_that_the_embedded_broker_dropped_unread_end_the_run_as_an_error() {
    let mut endpoint = Endpoint::start(|_| Answer::hang());
    // One record at a time, so that the others pile up in the broker, for as long as the first one is not answered.
    let one = "time_limit = \"10m\"\n[tiers.default]\npartitions = 1\nwindow_records = 1\n";
    let (mut process, bootstrap, registry) = own(&own_config(&endpoint.url(), one));
    let note = incompressible(200_000);
    // So many at once that the source's partitions hold them; all together are 24 MB, of which the topic of jobs keeps 5, and the worker
    // has read ahead some more.
    for chunk in 1..=5 {
        let events: Vec<_> =
            (0..24).map(|n| json!({"id": format!("order-{chunk}-{n}"), "note": note})).collect();
        produce(&bootstrap, &registry, &events);
        process.wait_for_output(&format!("{} waiting", chunk * 24), SOON);
    }
    endpoint.wait_for_count(1, SOON);
    endpoint.answer_with(|_| Answer::ok());
    // Which cuts the first call off.
    endpoint.stop();
    endpoint.start_again();
    assert_eq!(process.wait(SOON), Exit(1));
    let said = process.stderr();
    assert!(said.contains("error: records are gone unread: ") && said.contains("5 MiB"), "{said}");
    assert!(!process.stdout().contains("accounted for"));
}

#[test]
fn what_can_not_be_is_refused_with_what_to_do() {
    let refused = |arguments: &[&str], part: &str| {
        let mut process = dev(arguments);
        assert_eq!(process.wait(SOON), Exit(2), "{arguments:?}");
        assert!(process.stderr().contains(part), "{arguments:?}: {}", process.stderr());
    };
    refused(&["--config", "none.toml"], "cannot read none.toml");
    refused(&["--config", "/tmp"], "name a file with --config, like /tmp/tidegate.toml");
    refused(&["--config", "/bin/true"], "it is no text: name a TOML file");
    for option in [&["--kill-worker"] as &[&str], &["--events", "5"], &["--rate", "5"], &["--forever"]] {
        let told = format!("{} is of the shop", option[0]);
        refused(&[option, &["--config", "none.toml"]].concat(), &told);
    }
    refused(&["--kill-worker", "--plain"], "cannot be used with");
    refused(&["--events", "5", "--forever"], "cannot be used with");
    for rate in ["100000", "0", "abc"] {
        refused(&["--rate", rate], "'--rate <R>': write a whole number from 1 to 500");
    }
    refused(&["--events", "0"], "'--events <N>': write a whole number, 1 or more");
    refused(&["--forever", "--kill-worker"], "cannot be used with");
    for (config, part) in [
        ("[sources.orders]\n", "sources.orders.start"),
        (
            "[kafka]\nboostrap = \"k:9092\"\n",
            "kafka.boostrap: there is no such setting; did you mean `bootstrap`?",
        ),
        ("[registry]\nuser = \"me\"\n", "registry.user: there is no such setting"),
        ("", "no [sources."),
        ("[sources.orders]\nstart = \"latest\"\n", "no [classes."),
    ] {
        let mut process = Setup::new("dev", &["dev"]).config(config).start();
        assert_eq!(process.wait(SOON), Exit(2), "{config}");
        assert!(process.stderr().contains(part), "{config}: {}", process.stderr());
    }
}

#[test]
fn its_help_tells_no_default_that_it_does_not_have() {
    let mut process = dev(&["--help"]);
    assert_eq!(process.wait(SOON), Exit(0));
    let said = process.stdout();
    assert!(said.contains("--config <FILE>") && !said.contains("default: tidegate.toml"), "{said}");
}

#[test]
fn where_no_folder_can_be_made_it_says_where_and_what_to_set() {
    let mut process = Setup::new("dev", &["dev"]).env("TMPDIR", "/no/such/folder").start();
    assert_eq!(process.wait(SOON), Exit(1));
    let said = process.stderr();
    assert!(
        said.starts_with("error: no folder can be made in /no/such/folder: entity not found; "),
        "{said}"
    );
    assert!(said.contains("set TMPDIR") && !said.contains("tidegate-dev-"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Runs a command at the embedded servers; returns what it said on standard output and on standard error.
fn at(servers: &(String, String), config: &str, words: &[&str], expected: i32) -> (String, String) {
    let mut process = Setup::new("at", words)
        .config(config)
        .env("TIDEGATE_KAFKA__BOOTSTRAP", &servers.0)
        .env("TIDEGATE_REGISTRY__URL", &servers.1)
        .start();
    assert_eq!(process.wait(SOON), Exit(expected), "{words:?}: {}{}", process.stdout(), process.stderr());
    // The embedded broker may stand still for longer than a command waits in silence.
    let is_wait = |line: &&str| line.contains("answers yet") && line.contains("still trying");
    let noted = process.stderr().lines().filter(|line| !is_wait(line)).collect::<Vec<_>>().join("\n");
    (process.stdout(), noted)
}

#[test]
fn every_step_of_the_page_on_ones_own_topic_can_be_taken_on_the_embedded_broker() {
    let endpoint = Endpoint::start(|call| match call.json()["id"].as_str() {
        Some("bad") => Answer::status(422),
        _ => Answer::ok(),
    });
    // Without the log-in of a cluster: a client that is sent here by two variables would use it.
    let config = own_config(&endpoint.url(), "");
    let config: Vec<&str> = config.lines().filter(|line| !line.starts_with("properties")).collect();
    let config = format!("{}\n", config.join("\n"));
    let listen = "[observe]\nlisten = \"127.0.0.1:9699\"\n";
    let (mut process, bootstrap, registry) = own(&format!("{config}{listen}"));
    let servers = (bootstrap, registry);
    let (said, noted) = at(&servers, &config, &["topics", "check"], 0);
    assert!(said.contains("every topic is there"), "{said}");
    assert!(noted.starts_with("note: the settings of topics were not compared"), "{noted}");
    let (said, _) = at(&servers, &config, &["topics", "apply"], 0);
    assert!(said.contains(" topics, 0 created"), "{said}");
    produce(&servers.0, &servers.1, &[json!({"id": "a"}), json!({"id": "a"}), json!({"id": "bad"})]);
    process.wait_for_output("ship 1 done, 1 dead, 1 duplicate skipped", SOON);
    let (said, _) = at(&servers, &config, &["dlq", "list"], 0);
    assert!(said.contains("http-422"), "{said}");
    let metrics = process.stdout();
    let metrics = line(&metrics, "metrics");
    assert!(
        metrics.contains("127.0.0.1:9699"),
        "what the file says is told where it does not count: {metrics}"
    );
    let (_, page) = http::get(metrics.split_whitespace().nth(1).unwrap()).unwrap();
    assert!(page.contains("tidegate_duplicates_total{class=\"ship\""), "{page}");
    let web = servers.1.trim_start_matches("http://").to_owned();
    let (_, said) = at(&(web, servers.1.clone()), &config, &["topics", "check"], 2);
    assert!(said.contains("a web server answers there, and no broker; "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let (_, said) = at(&servers, &config, &["demo", "events", "--events", "1"], 2);
    assert!(
        said.contains("there is no topic demo.payments, ") && said.contains("tidegate demo sources"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    // What this broker can't do is one sentence, and not a wait.
    let more = config.replace("[classes.ship]", "[tiers.other]\n[tiers.default]\n[classes.ship]");
    let (said, _) = at(&servers, &more, &["topics", "check"], 3);
    assert!(said.contains("topic `tidegate.other.jobs` is missing"), "{said}");
    let (_, said) = at(&servers, &more, &["topics", "apply"], 2);
    assert!(said.contains("can't create topics while it runs") && said.contains("start it again"), "{said}");
}
