//! A Kafka that asks for TLS and a log-in: the whole path over it, and what is said when the settings for it are wrong.

use std::fmt::Write;
use std::time::{Duration, Instant};

use tidegate_tests::endpoint::Answer;
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{CLASS, Jobs, SCHEMA, attempt, id, script, tasks};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::servers::{PASSWORD, Registry, SecuredKafka, USER};
use tidegate_tests::wait::wait_until;

use crate::standstill::{keep_sessions, without_waits};

const LONG: Duration = Duration::from_secs(120);
/// How long a command may take to say that it is refused: it looks for ten seconds, and a busy machine needs some more.
const TOLD_WITHIN: Duration = Duration::from_secs(90);
const WRONG: &str = "wrong-horse-battery";
const SERVICES: [&str; 3] = ["ingest", "retry", "worker"];

/// A log-in that is right in all.
fn properties(kafka: &SecuredKafka) -> Vec<(&'static str, String)> {
    vec![
        ("security.protocol", "SASL_SSL".to_owned()),
        ("sasl.mechanisms", "SCRAM-SHA-512".to_owned()),
        ("sasl.username", USER.to_owned()),
        ("sasl.password", PASSWORD.to_owned()),
        ("ssl.ca.location", kafka.authority().display().to_string()),
    ]
}

fn section(properties: &[(&str, String)]) -> String {
    let mut text = "[kafka.properties]\n".to_owned();
    for (name, value) in properties {
        writeln!(text, "\"{name}\" = \"{value}\"").expect("a text can be written to");
    }
    text
}

/// Jobs whose services know the secured listener alone; what looks on comes by the plain one.
fn jobs(kafka: &SecuredKafka, prefix: &str) -> Jobs {
    let mut jobs =
        Jobs::over_http_at(kafka.kafka(), prefix, "key = [\"id\"]", |call| match script(call).as_str() {
            "flaky" if attempt(call) == 1 => Answer::status(503),
            "bad" => Answer::status(422),
            _ => Answer::ok(),
        });
    jobs.pipeline.reconfigure(kafka.kafka().bootstrap(), kafka.address());
    jobs.pipeline.configure(&section(&properties(kafka)));
    jobs
}

#[test]
fn every_service_and_command_works_over_tls_and_scram() {
    let mut jobs = jobs(SecuredKafka::shared(), "secured");
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    let files = tempfile::tempdir().expect("a folder can be made");
    let (schema, events) = (files.path().join("task.avsc"), files.path().join("events.jsonl"));
    std::fs::write(&schema, SCHEMA).expect("a file can be written");
    let lines = ["fine", "flaky", "bad"]
        .map(|name| format!("{{\"id\": \"{name}\", \"lane\": \"{name}\", \"script\": \"{name}\"}}\n"));
    std::fs::write(&events, lines.concat()).expect("a file can be written");
    let (exit, stdout, stderr) = jobs.pipeline.run(&[
        "produce",
        "--topic",
        &jobs.source,
        "--key",
        "lane",
        "--schema",
        &schema.display().to_string(),
        &events.display().to_string(),
    ]);
    assert_eq!((exit, without_waits(&stderr)), (Exit(0), String::new()), "{stdout}");
    assert!(stdout.starts_with("3 events published"), "{stdout}");

    jobs.pipeline.wait_for_dead(1, LONG);
    jobs.wait_all_settled(LONG);
    let mut calls: Vec<_> = jobs.endpoint.calls().iter().map(|call| (id(call), attempt(call))).collect();
    calls.sort();
    let called = |id: &str, attempt| (id.to_owned(), attempt);
    assert_eq!(calls, [called("bad", 1), called("fine", 1), called("flaky", 1), called("flaky", 2)]);

    let (exit, stdout, _) = jobs.pipeline.run(&["dlq", "list", "--class", CLASS]);
    assert_eq!(exit, Exit(0));
    assert!(stdout.contains("permanent") && stdout.contains(&jobs.source), "{stdout}");
    let (exit, stdout, _) = jobs.pipeline.run(&["topics", "check"]);
    assert_eq!((exit, stdout.trim()), (Exit(0), "every topic is as it must be"));
    for service in SERVICES {
        let log = jobs.pipeline.process(service).stderr();
        assert!(!log.contains(PASSWORD), "{log}");
        jobs.pipeline.stop(service);
    }
}

/// A pipeline whose settings differ from the right ones in this: `None` takes a property out.
fn with(prefix: &str, differences: &[(&'static str, Option<&str>)]) -> Pipeline {
    let kafka = SecuredKafka::shared();
    let mut pipeline = Pipeline::new(prefix, kafka.kafka(), Registry::shared().url());
    let source = pipeline.source("events", 1, "earliest");
    pipeline.configure(&format!(
        "[classes.see]\nsource = \"{source}\"\nkey = [\"id\"]\nhandler = {{ type = \"log\" }}\n"
    ));
    let mut properties = properties(kafka);
    for (name, value) in differences {
        properties.retain(|(other, _)| other != name);
        properties.extend(value.map(|value| (*name, value.to_owned())));
    }
    pipeline.configure(&section(&properties));
    pipeline.reconfigure(kafka.kafka().bootstrap(), kafka.address());
    pipeline
}

/// Commands end with this code, within time, and say the one sentence `error: ...` with these parts: a service after its first log
/// lines, the others alone. Nobody says the password.
#[track_caller]
fn assert_told(pipeline: &mut Pipeline, commands: &[&[&str]], code: i32, parts: &[&str]) {
    for arguments in commands {
        pipeline.launch("command", arguments, &[]);
        let began = Instant::now();
        let process = pipeline.process("command");
        let exit = process.wait(TOLD_WITHIN);
        let (stdout, stderr) = (process.stdout(), process.stderr());
        let all =
            format!("{arguments:?} ended with {exit:?} after {:?}:\n{stdout}\n{stderr}", began.elapsed());
        assert_eq!(exit, Exit(code), "{all}");
        let sentence = stderr.lines().last().unwrap_or_default();
        assert!(sentence.starts_with("error: "), "{all}");
        assert!(parts.iter().all(|part| sentence.contains(part)), "{parts:?} in: {all}");
        let is_service = matches!(arguments[0], "ingest" | "retry" | "worker");
        let is_log = |line: &str| line.contains(" INFO ");
        let rest = &stderr.lines().collect::<Vec<_>>()[..stderr.lines().count() - 1];
        // Until it is certain, the client tries on, and says so once if that takes long.
        let (waits, others): (Vec<&str>, Vec<&str>) =
            rest.iter().partition(|line| line.contains("answers yet") && line.contains("still trying"));
        assert!(waits.len() <= 1, "{all}");
        assert!(others.iter().all(|line| is_service && is_log(line)), "one sentence, no more: {all}");
        assert!(![PASSWORD, WRONG].iter().any(|secret| all.contains(secret)), "a secret is told: {all}");
    }
}

const CHECK: &[&str] = &["topics", "check"];
const INGEST: &[&str] = &["ingest"];

#[test]
fn a_wrong_password_is_told_by_every_service_and_command() {
    let mut pipeline = with("password", &[("sasl.password", Some(WRONG))]);
    let schema = tempfile::NamedTempFile::new().expect("a file can be made");
    std::fs::write(schema.path(), SCHEMA).expect("a file can be written");
    let schema = schema.path().display().to_string();
    let topic = format!("{}.src.events", pipeline.name);
    assert_told(
        &mut pipeline,
        &[
            CHECK,
            &["topics", "apply"],
            &["dlq", "list"],
            &["produce", "--topic", &topic, "--schema", &schema, "/dev/null"],
            INGEST,
            &["retry"],
            &["worker", "--tier", "default"],
        ],
        2,
        &["refuses this client", "correct `sasl.username` and `sasl.password`"],
    );
}

#[test]
fn a_broker_whose_certificate_is_of_an_unknown_authority_is_told_with_what_to_set() {
    let other = SecuredKafka::shared().other_authority().display().to_string();
    let mut pipeline = with("authority", &[("ssl.ca.location", Some(&other))]);
    let parts = ["certificate can't be verified", "set `ssl.ca.location`"];
    assert_told(&mut pipeline, &[CHECK, INGEST], 2, &parts);
}

#[test]
fn a_mechanism_that_the_broker_does_not_offer_is_told_with_those_that_it_does() {
    for (mechanism, prefix) in [("PLAIN", "plain"), ("SCRAM-SHA-256", "scram-256")] {
        let mut pipeline = with(prefix, &[("sasl.mechanisms", Some(mechanism))]);
        assert_told(
            &mut pipeline,
            &[CHECK, INGEST],
            2,
            &["set `sasl.mechanisms`", "one that it has: SCRAM-SHA-512"],
        );
    }
}

/// A connection that is closed has other causes too, so the exit code is that of a failure which may heal.
#[test]
fn a_client_without_tls_at_a_listener_with_it_is_told_to_set_the_protocol() {
    for (protocol, prefix) in [("PLAINTEXT", "no-tls"), ("SASL_PLAINTEXT", "no-tls-but-sasl")] {
        let mut pipeline = with(prefix, &[("security.protocol", Some(protocol))]);
        let another = format!("another `security.protocol` than {protocol}");
        assert_told(&mut pipeline, &[CHECK], 1, &["closes the connection", &another, "SASL_SSL"]);
    }
}

#[test]
fn a_client_that_does_not_log_in_at_a_listener_that_asks_for_it_is_told_to_set_the_protocol() {
    let no_log_in = ["sasl.mechanisms", "sasl.username", "sasl.password"].map(|name| (name, None));
    let mut pipeline = with("no-sasl", &[&[("security.protocol", Some("SSL"))], &no_log_in[..]].concat());
    assert_told(&mut pipeline, &[INGEST], 1, &["another `security.protocol` than SSL", "SASL_SSL"]);
}

#[test]
fn a_client_with_tls_at_a_listener_without_it_is_told_to_change_port_or_protocol() {
    let mut pipeline = with("plain-port", &[]);
    let kafka = SecuredKafka::shared();
    pipeline.reconfigure(kafka.address(), kafka.kafka().bootstrap());
    let parts = ["when TLS begins, as a listener without TLS does", "kafka.bootstrap", "security.protocol"];
    assert_told(&mut pipeline, &[CHECK, INGEST], 1, &parts);
}

#[test]
fn a_client_is_known_by_its_certificate_and_told_when_it_has_none() {
    let kafka = SecuredKafka::shared();
    let certificate = kafka.client_certificate().display().to_string();
    let mutual = |prefix: &str, certificate: Option<&str>| {
        let mut pipeline = with(
            prefix,
            &[
                ("security.protocol", Some("SSL")),
                ("sasl.mechanisms", None),
                ("sasl.username", None),
                ("sasl.password", None),
                ("ssl.certificate.location", certificate),
                ("ssl.key.location", certificate),
            ],
        );
        pipeline.reconfigure(kafka.address(), kafka.mutual_address());
        pipeline
    };
    let known = mutual("mutual", Some(&certificate));
    known.apply_topics();
    assert_eq!(known.run(CHECK).0, Exit(0));
    let parts = ["takes no client without a certificate", "`ssl.certificate.location`", "`ssl.key.location`"];
    assert_told(&mut mutual("no-certificate", None), &[CHECK, INGEST], 2, &parts);
}

#[test]
fn a_file_that_is_not_there_is_told_with_its_property_and_its_path() {
    for property in
        ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"]
    {
        let mut pipeline = with("file", &[(property, Some("/no/such/file.pem"))]);
        let sentence = format!("`{property}` names /no/such/file.pem, which can't be read: No such file");
        assert_told(&mut pipeline, &[CHECK, &["dlq", "list"], INGEST], 2, &[&sentence, "correct the path"]);
    }
}

#[test]
fn a_misspelt_property_is_told_without_its_value() {
    let mut pipeline = with("misspelt", &[("sasl.pasword", Some(WRONG))]);
    assert_told(&mut pipeline, &[CHECK, INGEST], 2, &["No such configuration property: \"sasl.pasword\""]);
}

#[test]
fn config_check_shows_paths_and_masks_secrets() {
    const SECRETS: [&str; 7] = [
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "ssl.truststore.password",
    ];
    let differences: Vec<_> = SECRETS.map(|name| (name, Some(WRONG))).into();
    let pipeline = with("masked", &differences);
    let (exit, stdout, stderr) = pipeline.run(&["config", "check"]);
    assert_eq!(exit, Exit(0), "{stderr}");
    for secret in SECRETS {
        assert!(stdout.contains(&format!("\"{secret}\" = \"***\"")), "{secret}:\n{stdout}");
    }
    assert!(!stdout.contains(WRONG), "{stdout}");
    let authority = SecuredKafka::shared().authority();
    assert!(stdout.contains(&format!("\"ssl.ca.location\" = \"{}\"", authority.display())), "{stdout}");
    assert!(stdout.contains(USER), "{stdout}");
}

/// Connections that are logged in stay so; the new password counts when they are made anew.
#[test]
fn a_password_that_is_changed_at_run_time_loses_nothing_and_services_go_on_when_it_is_right_again() {
    let mut kafka = SecuredKafka::start();
    let mut jobs = jobs(&kafka, "rotated");
    jobs.start();
    jobs.publish(&tasks("before", 20));
    jobs.endpoint.wait_for_count(20, LONG);
    jobs.wait_all_settled(LONG);
    kafka.set_password(WRONG);
    kafka.kafka_mut().stop_broker(0);
    kafka.kafka_mut().start_broker(0);
    for service in SERVICES {
        jobs.pipeline.wait_not_ready(service, "refuses this client: it does not accept the user name", LONG);
        let refused = "a broker refuses this client";
        wait_until("the log to tell it", LONG, || jobs.pipeline.process(service).stderr().contains(refused));
        assert_eq!(jobs.pipeline.get(service, "/livez").0, 200, "{service}");
    }
    jobs.publish(&tasks("during", 20));
    assert_eq!(jobs.endpoint.calls().len(), 20, "nothing is read without a log-in");
    kafka.set_password(PASSWORD);
    for service in SERVICES {
        jobs.pipeline.wait_ready(service);
    }
    jobs.publish(&tasks("after", 20));
    jobs.endpoint.wait_for_count(60, LONG);
    jobs.wait_all_settled(LONG);
    assert_eq!(jobs.endpoint.calls().len(), 60, "each ran once");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")), []);
    for service in SERVICES {
        let log = jobs.pipeline.process(service).stderr();
        assert!(![PASSWORD, WRONG].iter().any(|secret| log.contains(secret)), "{log}");
        jobs.pipeline.stop(service);
    }
}
