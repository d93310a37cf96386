//! Addresses and log-ins of the schema registry that are wrong, and a registry that is away: the first are refused with what to correct,
//! the second is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::events::Writer;
use tidegate_tests::guard::Exit;
use tidegate_tests::http;
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::ports::free_port;
use tidegate_tests::process::Setup;
use tidegate_tests::servers::{Kafka, Registry, TlsFront};

const SOON: Duration = Duration::from_secs(60);
/// For what looks for twenty seconds before it is certain.
const LONG: Duration = Duration::from_secs(120);
const EVENT: &str =
    r#"{"type":"record","name":"Event","namespace":"places","fields":[{"name":"order_id","type":"string"}]}"#;
/// Where the registry has Confluent's API.
const PATH: &str = "/apis/ccompat/v7";

/// The address of the registry's server.
fn root() -> String {
    let url = Registry::shared().url();
    url[..url.find(PATH).expect("the registry's path")].to_owned()
}

/// A pipeline whose topics exist, with an event that waits.
fn pipeline(prefix: &str) -> Pipeline {
    let mut pipeline = Pipeline::new(prefix, Kafka::shared(), Registry::shared().url());
    let source = pipeline.source("events", 1, "earliest");
    pipeline.configure(&format!(
        "[classes.see]\nsource = \"{source}\"\nkey = [\"order_id\"]\nhandler = {{ type = \"log\" }}\n"
    ));
    pipeline.apply_topics();
    let events = Writer::register(Registry::shared(), &source, EVENT);
    pipeline.client.produce_all(&source, &[events.record(&json!({"order_id": "o-1"}))]);
    pipeline
}

/// What `init` says of this registry, and how it ends.
fn init(url: &str, authority: Option<&str>) -> (i32, String) {
    let registry = format!("--registry={url}");
    let words =
        ["init", &registry, "--topic=shop.orders", "--key=id", "--start=latest", "--url=http://x/", "--yes"];
    // A registry that stands still for some seconds is none that is away.
    let mut setup = Setup::new("init", &words).env("TIDEGATE_REGISTRY__TIMEOUT", "30s");
    if let Some(file) = authority {
        setup = setup.env("SSL_CERT_FILE", file);
    }
    let mut process = setup.start();
    (process.wait(SOON).0, process.stderr())
}

fn error_of(said: &str) -> &str {
    let (_, error) = said.rsplit_once("error: ").unwrap_or_else(|| panic!("it says why: {said}"));
    error.trim()
}

/// A wrong address, the authority that is trusted besides, and what is said.
type Mistake = (String, Option<String>, String);

fn mistakes(front: &TlsFront, private: &Endpoint) -> Vec<Mistake> {
    let (root, port) = (root(), front.port());
    let https = root.replace("http:", "https:");
    let at = |url: &str, said: &str| format!("the schema registry at {url}{PATH} {said}");
    let elsewhere = |url: &str| {
        format!(
            "there is no schema registry at {url} (it answers with status 404 Not Found), and there is one at {root}{PATH}; write that in "
        )
    };
    let trusted = Some(front.authority());
    vec![
        (format!("{https}{PATH}"), None, at(&https, "does not speak TLS at this address; write http:// in ")),
        (
            format!("http://127.0.0.1:{port}{PATH}"),
            None,
            at(&format!("http://127.0.0.1:{port}"), "speaks TLS at this address; write https:// in "),
        ),
        (
            format!("https://127.0.0.1:{port}{PATH}"),
            None,
            format!("of the schema registry at https://127.0.0.1:{port}{PATH} can't be verified: "),
        ),
        (
            format!("https://localhost:{port}{PATH}"),
            trusted,
            "can't be verified: hostname mismatch; ".to_owned(),
        ),
        (root.clone(), None, elsewhere(&root)),
        (format!("{root}/apis/ccompat/v70/"), None, elsewhere(&format!("{root}/apis/ccompat/v70"))),
        (private.url(), None, "does not accept the log-in: it answers with status 401".to_owned()),
    ]
}

#[test]
fn a_registry_that_can_never_be_used_is_refused_with_what_to_correct() {
    let front = TlsFront::before(&root());
    let private = Endpoint::start(|_| Answer::status(401).body("who are you?"));
    let mut pipeline = pipeline("wrong-registry");
    let services: [(&str, &[&str]); 2] =
        [("ingest", &["ingest"]), ("worker", &["worker", "--tier", "default"])];
    for (url, authority, said) in mistakes(&front, &private) {
        let mut environment = vec![("TIDEGATE_REGISTRY__URL", url.as_str())];
        environment.extend(authority.as_deref().map(|file| ("SSL_CERT_FILE", file)));
        for (name, arguments) in services {
            pipeline.launch(name, arguments, &environment);
        }
        let (code, init) = init(&url, authority.as_deref());
        assert_eq!(code, 2, "{init}");
        assert!(error_of(&init).contains(&said), "`{said}` is missing in: {init}");
        assert!(init.ends_with("unchecked: --offline\n") && init.lines().count() == 1, "{init}");
        for (name, _) in services {
            let process = pipeline.process(name);
            let exit = process.wait(LONG);
            let log = process.stderr();
            assert_eq!(exit, Exit(2), "{name} {url}\n{log}");
            let error = error_of(&log);
            assert!(error.contains(&said), "`{said}` is missing in: {error}");
            let is_log_in = url == private.url();
            assert!(error.contains(if is_log_in { "bearer_token" } else { "registry.url" }), "{error}");
            assert!(!log.contains("panicked") && error.lines().count() == 1, "{log}");
        }
    }
}

#[test]
fn a_registry_whose_authority_is_named_is_trusted_and_read_over_tls() {
    let front = TlsFront::before(&root());
    let mut pipeline = pipeline("registry-tls");
    let url = format!("https://127.0.0.1:{}{PATH}", front.port());
    let authority = front.authority();
    let environment = [("TIDEGATE_REGISTRY__URL", url.as_str()), ("SSL_CERT_FILE", authority.as_str())];
    pipeline.launch("ingest", &["ingest"], &environment);
    pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 1, SOON);
}

#[test]
fn a_redirect_that_leaves_out_the_log_in_is_told_with_the_address_that_accepts_it() {
    let mut pipeline = pipeline("registry-redirect");
    let root = root();
    let private = Endpoint::start(move |call| match call.header("authorization") {
        Some("Bearer let-me-in") => answer_of(&root, &call.path),
        _ => Answer::status(401).body("who are you?"),
    });
    let front = TlsFront::before(&private.url());
    let (right, authority) = (format!("https://127.0.0.1:{}{PATH}", front.port()), front.authority());
    let to = format!("https://127.0.0.1:{}", front.port());
    let plain = Endpoint::start(move |call| {
        Answer::status(301).header("location", &format!("{to}{path}", path = call.path))
    });
    let wrong = format!("{}{PATH}", plain.url());
    let environment = |url| {
        [
            ("TIDEGATE_REGISTRY__URL", url),
            ("TIDEGATE_REGISTRY__BEARER_TOKEN", "let-me-in"),
            ("SSL_CERT_FILE", authority.as_str()),
        ]
    };
    pipeline.launch("ingest", &["ingest"], &environment(wrong.as_str()));
    let process = pipeline.process("ingest");
    let exit = process.wait(SOON);
    let log = process.stderr();
    assert_eq!(exit, Exit(2), "{log}");
    let said = format!("at {wrong} redirects to {right}; write that in registry.url");
    assert!(error_of(&log).contains(&said), "`{said}` is missing in: {log}");
    assert!(!log.contains("let-me-in"), "{log}");
    // Which is right.
    pipeline.launch("ingest", &["ingest"], &environment(right.as_str()));
    pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 1, SOON);
}

#[test]
fn a_registry_that_is_away_at_the_start_is_told_with_its_address_and_waited_for() {
    let mut pipeline = pipeline("registry-away");
    let root = root();
    let mut registry = Endpoint::start(move |call| answer_of(&root, &call.path));
    registry.stop();
    let url = format!("{}{PATH}", registry.url());
    let services: [(&str, &[&str]); 2] =
        [("ingest", &["ingest"]), ("worker", &["worker", "--tier", "default"])];
    for (name, arguments) in services {
        pipeline.launch(name, arguments, &[("TIDEGATE_REGISTRY__URL", &url)]);
        let process = pipeline.process(name);
        process.wait_for_output("the schema registry is away", SOON);
        let said = process.stderr();
        let told = said.lines().find(|line| line.contains("the schema registry is away")).expect("it was");
        for part in ["WARN", &url, "onnection refused", "check registry.url, and that it runs"] {
            assert!(told.contains(part), "`{part}` is missing in: {told}");
        }
    }
    pipeline.wait_ready("worker");
    pipeline.wait_not_ready("ingest", "registry", SOON);
    // It comes, as one does that was restarted.
    registry.start_again();
    pipeline.wait_ready("ingest");
    pipeline.client.wait_for_no_lag(
        &format!("{}.default.worker", pipeline.name),
        &pipeline.topic("default.jobs"),
        SOON,
    );
}

/// What the real registry answers.
fn answer_of(root: &str, path: &str) -> Answer {
    let (status, body) = http::get(&format!("{root}{path}")).expect("the real registry answers");
    Answer::status(status).header("content-type", "application/json").body(body)
}

#[test]
fn a_proxy_that_answers_not_found_while_its_registry_starts_is_no_mistake() {
    let mut pipeline = pipeline("registry-proxy");
    let started = Arc::new(AtomicBool::new(false));
    let (seen, root) = (started.clone(), root());
    let proxy = Endpoint::start(move |call| match seen.load(Ordering::Acquire) {
        true => answer_of(&root, &call.path),
        false => Answer::status(404).body("404 page not found"),
    });
    let url = format!("{}{PATH}", proxy.url());
    pipeline.launch("ingest", &["ingest"], &[("TIDEGATE_REGISTRY__URL", &url)]);
    pipeline.process("ingest").wait_for_output("a proxy may answer for one that starts just now", SOON);
    assert_eq!(pipeline.readyz("ingest").0, 503);
    started.store(true, Ordering::Release);
    pipeline.wait_ready("ingest");
    pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 1, SOON);
    assert!(!pipeline.process("ingest").stderr().contains("ERROR"));
}

#[test]
fn a_stop_while_the_registry_looks_wrong_is_a_clean_end() {
    let mut pipeline = pipeline("registry-stop");
    let page = Endpoint::start(|_| Answer::ok().body("<html>soon</html>"));
    pipeline.launch("ingest", &["ingest"], &[("TIDEGATE_REGISTRY__URL", &page.url())]);
    pipeline.process("ingest").wait_for_output("waiting for the schema registry", SOON);
    pipeline.stop("ingest");
}

#[test]
fn a_command_that_registers_a_schema_says_what_to_correct_too() {
    let pipeline = pipeline("registry-produce");
    let schema = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(schema.path(), EVENT).expect("it can be written");
    let (file, topic) = (schema.path().display().to_string(), pipeline.topic("events"));
    let produce =
        ["produce", "--topic", topic.as_str(), "--create", "1", "--schema", file.as_str(), "/dev/null"];
    let commands: [&[&str]; 2] = [&produce, &["demo", "sources"]];
    for (url, code, said) in [
        (root(), 2, format!("and there is one at {}{PATH}; write that in registry.url", root())),
        (format!("http://127.0.0.1:{}", free_port()), 1, "check registry.url, and that it runs".to_owned()),
    ] {
        for command in commands {
            let setup = Setup::new("registers", command).config(pipeline.config());
            let mut process = setup.env("TIDEGATE_REGISTRY__URL", &url).start();
            let (exit, told) = (process.wait(SOON), process.stderr());
            assert_eq!(exit, Exit(code), "{command:?}: {told}");
            assert!(error_of(&told).ends_with(&said), "{command:?}: {told}");
        }
    }
}
