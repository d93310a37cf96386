//! Topics and configuration that are not as they must be: what refuses to start says what to do, and what goes missing while it
//! runs holds things up without losing them. And the commands for looking at all this.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use serde_json::{Value, json};
use tidegate_domain::FailureKind;
use tidegate_tests::background::block_on;
use tidegate_tests::dead_letters::{self, Cause};
use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::events::Writer;
use tidegate_tests::guard::Exit;
use tidegate_tests::http;
use tidegate_tests::kafka_io::{ReadRecord, Record};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::wait_until;

use crate::standstill::{keep_sessions, without_waits};

const SOON: Duration = Duration::from_secs(60);
const ORDER: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"order_id","type":"string"},
    {"name":"customer","type":"string"}]}"#;

/// One source and the class `ship`; its topics are not created.
fn pipeline(prefix: &str, handler: &str) -> (Pipeline, String) {
    let mut pipeline = Pipeline::new(prefix, Kafka::shared(), Registry::shared().url());
    keep_sessions(&mut pipeline);
    let source = pipeline.source("orders", 1, "earliest");
    pipeline.configure(&format!(
        "[observe]\nlisten = \"127.0.0.1:0\"\n\n\
         [classes.ship]\nsource = \"{source}\"\nkey = [\"order_id\"]\nhandler = {handler}\n"
    ));
    (pipeline, source)
}

const LOG: &str = "{ type = \"log\" }";

/// Runs a command that must end with this code, and returns what it wrote.
#[track_caller]
fn ends_with(pipeline: &Pipeline, code: i32, arguments: &[&str]) -> String {
    let (exit, stdout, stderr) = pipeline.run(arguments);
    assert_eq!(exit, Exit(code), "{arguments:?}:\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing:\n{text}");
    }
}

#[test]
fn while_the_dead_letter_topic_is_missing_nothing_is_settled_and_all_goes_on_when_it_is_there_again() {
    let endpoint = Endpoint::start(|_| Answer::status(422));
    let (mut pipeline, source) =
        pipeline("no-dlq", &format!("{{ type = \"http\", url = \"{}\" }}", endpoint.url()));
    let orders = Writer::register(Registry::shared(), &source, ORDER);
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
    pipeline.start("worker", &["worker", "--tier", "default"]);
    let order = |id: &str| orders.record(&json!({"order_id": id, "customer": "c"}));
    let bad = Record::default().value("no event");
    // Both producers have met the topic before it goes.
    pipeline.client.produce_all(&source, &[bad.clone(), order("a")]);
    pipeline.wait_for_dead(2, SOON);
    let (dlq, jobs) = (pipeline.topic("dlq"), pipeline.topic("default.jobs"));
    let (ingest, worker) = (format!("{}.ingest", pipeline.name), format!("{}.default.worker", pipeline.name));
    pipeline.client.wait_for_no_lag(&ingest, &source, SOON);
    pipeline.client.wait_for_no_lag(&worker, &jobs, SOON);
    pipeline.client.delete_topic(&dlq);

    pipeline.client.produce_all(&source, &[order("b"), bad, order("c")]);
    pipeline.wait_not_ready("ingest", "can't be written", Duration::from_secs(60));
    pipeline.wait_not_ready("worker", "can't be written", Duration::from_secs(60));
    // The bad event is not settled, and never is without the topic; the one before it is.
    let settled = || pipeline.client.committed(&ingest, &source)[&0];
    wait_until("the event before the bad one to be settled", SOON, || settled() >= Some(3));
    assert_eq!(settled(), Some(3), "the bad event is not settled");
    assert!(pipeline.client.lag(&worker, &jobs) > 0, "nor is the refused job");
    assert!(pipeline.metric("ingest", "tidegate_publish_errors_total", &[]) > 0.0);

    pipeline.apply_topics();
    let published = pipeline.client.read_all(&source);
    let offsets = |dead: &[ReadRecord]| -> BTreeSet<i64> {
        dead.iter().map(|letter| dead_letters::origin(letter, &source, &published).offset).collect()
    };
    let dead = pipeline.client.wait_for(&dlq, SOON, |dead| offsets(dead).len() >= 3);
    assert_eq!(offsets(&dead), BTreeSet::from([2, 3, 4]));
    pipeline.wait_ready("ingest");
    pipeline.wait_ready("worker");
    pipeline.client.wait_for_no_lag(&ingest, &source, SOON);
    pipeline.client.wait_for_no_lag(&worker, &jobs, SOON);
    let letter = dead.iter().find(|letter| letter.header("job").is_none()).expect("ingest's");
    let cause = Cause { kind: FailureKind::Malformed, code: "wrong-magic-byte" };
    dead_letters::check_event(letter, &published[3], cause);
}

#[test]
fn a_job_topic_with_another_partition_count_is_refused_with_what_to_do() {
    let (pipeline, _) = pipeline("five", LOG);
    let jobs = pipeline.topic("default.jobs");
    pipeline.client.create_topic_with(&jobs, 5, &[("message.timestamp.type", "LogAppendTime")]);
    says(&ends_with(&pipeline, 3, &["topics", "apply"]), &[&jobs, "has 5 partitions", "says 4"]);
    for service in [vec!["ingest"], vec!["worker", "--tier", "default"], vec!["retry"]] {
        let said = ends_with(&pipeline, 2, &service);
        says(&said, &[&jobs, "has 5 partitions", "says 4", "correct `partitions` of its tier"]);
    }
    assert_eq!(pipeline.client.partitions(&jobs), 5, "what exists stays as it is");
}

#[test]
fn missing_topics_are_refused_each_by_its_name_and_with_what_creates_it() {
    let (mut pipeline, source) = pipeline("missing", LOG);
    let said = ends_with(&pipeline, 2, &["ingest"]);
    says(
        &said,
        &[&pipeline.topic("default.jobs"), &pipeline.topic("dlq"), "`tidegate topics apply` creates it"],
    );
    let said = ends_with(&pipeline, 3, &["topics", "check"]);
    says(
        &said,
        &[&pipeline.topic("bulk.retry-200ms"), &pipeline.topic("reingest"), &pipeline.topic("config")],
    );
    assert!(!said.contains(&source));

    pipeline.configure("[sources.\"nobody.made.this\"]\nstart = \"latest\"\n");
    // It is its publishers' to create: `apply` tells of it and has done its own part, `check` says no.
    for (code, command) in [(0, "apply"), (3, "check")] {
        says(
            &ends_with(&pipeline, code, &["topics", command]),
            &["source topic `nobody.made.this` is missing"],
        );
    }
    let said = ends_with(&pipeline, 2, &["ingest"]);
    says(&said, &["source topic `nobody.made.this` is missing", "correct its name in [sources]"]);
    assert!(!pipeline.client.topics().iter().any(|topic| topic == "nobody.made.this"));
    assert!(!said.contains("tidegate topics apply"), "what exists now is not told of:\n{said}");
}

/// A topic's settings as the broker has them.
fn settings(topic: &str) -> BTreeMap<String, String> {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", Kafka::shared().bootstrap())
        .create()
        .expect("an admin client can be created");
    let topic = topic.to_owned();
    let results = block_on(async move {
        admin.describe_configs(&[ResourceSpecifier::Topic(&topic)], &AdminOptions::new()).await
    });
    let resource = results.expect("Kafka answers").remove(0).expect("the topic has settings");
    resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect()
}

#[test]
fn apply_creates_what_is_missing_once_and_changes_nothing_that_exists() {
    let (pipeline, _) = pipeline("apply", LOG);
    let (dlq, jobs) = (pipeline.topic("dlq"), pipeline.topic("bulk.jobs"));
    pipeline.client.create_topic_with(
        &dlq,
        2,
        &[("retention.ms", "3600000"), ("message.timestamp.type", "CreateTime")],
    );
    let before = settings(&dlq);
    let said = ends_with(&pipeline, 3, &["topics", "apply"]);
    let wanted =
        [format!("created {jobs} (4 partitions)"), format!("topic `{dlq}` has retention.ms=3600000")];
    says(&said, &[&wanted[0], &wanted[1], "needs -1", "message.timestamp.type=CreateTime", "--alter"]);
    assert_eq!(settings(&dlq), before);
    assert_eq!(pipeline.client.partitions(&dlq), 2);
    let made = settings(&jobs);
    assert_eq!(made["message.timestamp.type"], "LogAppendTime");
    assert_eq!(made["retention.ms"], (14 * 86_400_000_u64).to_string());
    assert_eq!(made["max.message.bytes"], ((1 << 20) + (64 << 10)).to_string());

    // The same answer again, of `check` too, and nothing is made twice.
    let again = ends_with(&pipeline, 3, &["topics", "apply"]);
    says(&again, &[", 0 created", &wanted[1]]);
    assert_eq!((settings(&dlq), settings(&jobs)), (before, made));
    let findings: Value =
        serde_json::from_str(&pipeline.run(&["topics", "check", "--json"]).1).expect("JSON");
    let names: Vec<_> =
        findings["topics"].as_array().expect("a list").iter().map(|finding| &finding["topic"]).collect();
    assert_eq!(names, [&json!(dlq); 3], "{findings}");
    assert!(
        !said.contains("partitions and the configuration"),
        "a dead letter may lie in any partition:\n{said}"
    );
    assert_eq!(findings["drift"], json!([]));
    // Deleted and applied, all is well.
    pipeline.client.delete_topic(&dlq);
    says(&ends_with(&pipeline, 3, &["topics", "check"]), &[&dlq, "is missing"]);
    says(&ends_with(&pipeline, 0, &["topics", "apply"]), &[", 1 created", "every topic is as it must be"]);
    says(&ends_with(&pipeline, 0, &["topics", "check"]), &["every topic is as it must be"]);
    assert_eq!(settings(&dlq)["retention.ms"], "-1");
}

#[test]
fn an_instance_whose_keys_differ_is_refused_until_the_difference_is_accepted() {
    let (mut pipeline, _) = pipeline("drift", LOG);
    pipeline.apply_topics();
    pipeline.reconfigure("key = [\"order_id\"]", "key = [\"order_id\", \"customer\"]");
    for service in
        [vec!["ingest"], vec!["worker", "--tier", "default"], vec!["retry"], vec!["topics", "apply"]]
    {
        let said = ends_with(&pipeline, 2, &service);
        says(&said, &["classes.ship", "order_id", "customer", "correct this file", "--accept-drift"]);
    }
    says(&ends_with(&pipeline, 3, &["topics", "check"]), &["classes.ship", "customer"]);
    says(&ends_with(&pipeline, 0, &["topics", "apply", "--accept-drift"]), &["made known"]);
    pipeline.start("ingest", &["ingest"]);
    // And what the pipeline has never heard of is no drift, but must be told.
    let more = "[classes.more]\nsource = \"";
    let source = format!("{}.src.orders", pipeline.name);
    pipeline.configure(&format!("{more}{source}\"\nkey = [\"customer\"]\nhandler = {LOG}\n"));
    says(&ends_with(&pipeline, 2, &["retry"]), &["classes.more", "`tidegate topics apply` makes it known"]);
    says(&ends_with(&pipeline, 0, &["topics", "apply"]), &["1 settings made known"]);
}

#[test]
fn an_unknown_setting_is_refused_with_the_nearest_known_name() {
    let (mut pipeline, _) = pipeline("typo", LOG);
    pipeline.configure("[classes.ship.more]\n");
    says(&ends_with(&pipeline, 2, &["ingest"]), &["classes.ship.more"]);
    pipeline.reconfigure("[classes.ship.more]\n", "");
    pipeline.reconfigure("unknown_schema_grace", "unknown_schema_grase");
    says(
        &ends_with(&pipeline, 2, &["config", "check"]),
        &["registry.unknown_schema_grase", "did you mean `unknown_schema_grace`?"],
    );
    assert!(
        pipeline.client.topics().iter().all(|topic| topic != &pipeline.topic("config")),
        "nothing was touched"
    );
}

#[test]
fn the_effective_configuration_shows_defaults_and_no_secret() {
    let (mut pipeline, _) = pipeline(
        "masked",
        "{ type = \"http\", url = \"http://h/x\", headers = { authorization = \"tell-1\", accept = \"shown\" } }",
    );
    pipeline.reconfigure(
        "\ntimeout = \"30s\"",
        "\ntimeout = \"30s\"\nusername = \"user-shown\"\npassword = \"tell-2\"",
    );
    pipeline.configure(
        "[kafka.properties]\n\"sasl.password\" = \"tell-3\"\n\"ssl.key.password\" = \"tell-4\"\n\"client.rack\" = \"rack-shown\"\n",
    );
    let said = ends_with(&pipeline, 0, &["config", "check"]);
    says(
        &said,
        &[
            "user-shown",
            "rack-shown",
            "***",
            "max_message_bytes = \"1088KiB\"",
            "3 attempts; waits 200ms + 400ms = 600ms",
        ],
    );
    assert!(!said.contains("tell-"), "{said}");
    assert_eq!(said.matches("\"***\"").count(), 4, "{said}");
    // A wrong setting beside them doesn't bring them to light either.
    pipeline.reconfigure("\"client.rack\"", "\"group.id\"");
    let said = ends_with(&pipeline, 2, &["config", "check"]);
    says(&said, &["kafka.properties.\"group.id\""]);
    assert!(!said.contains("tell-"), "{said}");
}

fn payment_schema() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/payment.avsc").display().to_string()
}

/// Publishes two payments and something without a key by `tidegate produce`.
fn produce_payments(pipeline: &Pipeline, source: &str, folder: &Path) {
    let payment = |id: &str| json!({"payment_id": id, "order_id": "o-1", "customer_id": "c-1", "amount_cents": 4200, "paid_at": "2026-01-31T12:00:00Z"});
    let lines = folder.join("payments.jsonl");
    std::fs::write(&lines, format!("{}\n\n{}\n{}\n", payment("p-1"), payment("p-2"), payment("")))
        .expect("a file");
    let (schema, lines) = (payment_schema(), lines.display().to_string());
    let arguments = ["produce", "--topic", source, "--schema", &schema, "--key", "payment_id", &lines];
    says(&ends_with(pipeline, 0, &arguments), &["3 events published to", source]);
}

#[test]
fn what_produce_publishes_becomes_jobs_and_what_is_dead_can_be_listed_and_shown() {
    let (mut pipeline, source) = pipeline("produced", LOG);
    pipeline.reconfigure("key = [\"order_id\"]", "key = [\"payment_id\"]");
    says(&ends_with(&pipeline, 2, &["dlq", "list"]), &["there is no topic", "topics apply"]);
    pipeline.apply_topics();
    pipeline.start("ingest", &["ingest"]);
    says(&ends_with(&pipeline, 0, &["dlq", "list"]), &["nothing is dead-lettered here"]);
    for history in [&["dlq", "history"][..], &["dlq", "history", "--runs"]] {
        says(&ends_with(&pipeline, 0, history), &["note: nothing was ordered here yet"]);
    }
    for order in ["replay", "reopen"] {
        says(&ends_with(&pipeline, 3, &["dlq", order, "0123456789abcdef"]), &["there is no item"]);
        says(&ends_with(&pipeline, 3, &["dlq", order, "0/999"]), &["there is no record 0/999"]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    produce_payments(&pipeline, &source, folder.path());
    let jobs = pipeline.client.wait_for_count(&pipeline.topic("default.jobs"), 2, SOON);
    let keys: Vec<_> = jobs.iter().filter_map(|job| job.key_text()).collect();
    assert!(keys.contains(&"p-1".to_owned()) && keys.contains(&"p-2".to_owned()), "{keys:?}");
    pipeline.client.produce(&source, &Record::default().value(b"\xff\x00").header("h", "v").null_header("n"));
    let dead = pipeline.wait_for_dead(2, SOON);

    let list = pipeline.run(&["dlq", "list", "--json"]).1;
    let items: Vec<Value> =
        list.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    assert_eq!(items.len(), 2);
    for letter in &dead {
        let place = format!("{}/{}", letter.partition, letter.offset);
        let item = items.iter().find(|item| item["record"] == place).expect("it is listed");
        assert_eq!(item["error"]["code"].as_str(), letter.header("job-error-code"));
        assert_eq!(item["source"]["topic"], source);
        assert_eq!(
            item["source"]["offset"].to_string(),
            letter.header("__connect.errors.offset").expect("it")
        );
    }
    let by_code = |code: &str| items.iter().find(|item| item["error"]["code"] == code).expect("it is listed");
    let place = |code: &str| by_code(code)["record"].as_str().expect("its place").to_owned();
    let show = |code: &str| -> Value {
        let (exit, stdout, stderr) = pipeline.run(&["dlq", "show", &place(code), "--json"]);
        assert_eq!(exit, Exit(0), "{code}:\n{stdout}\n{stderr}");
        serde_json::from_str(&stdout).expect("JSON")
    };
    let payment = show("missing-key");
    assert_eq!(payment["event"]["currency"], "EUR");
    assert_eq!(payment["event"]["paid_at"], "2026-01-31T12:00:00.000Z");
    let garbage = show("wrong-magic-byte");
    assert_eq!(garbage["value"]["base64"], "/wA=");
    assert_eq!(garbage["key"], Value::Null);
    assert!(garbage["event"]["undecodable"].as_str().is_some_and(|reason| reason.contains("0xff")));
    assert_eq!(garbage["headers"][0], json!({"name": "h", "value": "v"}));
    assert_eq!(garbage["headers"][1], json!({"name": "n", "value": null}));
    says(&ends_with(&pipeline, 0, &["dlq", "show", &place("missing-key")]), &["missing-key", "customer_id"]);
    says(
        &ends_with(&pipeline, 0, &["dlq", "list", "--kind", "unroutable"]),
        &["nothing is dead-lettered here"],
    );
    says(&ends_with(&pipeline, 3, &["dlq", "show", "0/999"]), &["there is no record 0/999"]);
    says(&ends_with(&pipeline, 2, &["dlq", "show", "first"]), &["PARTITION/OFFSET"]);
    wait_until("all to be settled", SOON, || {
        pipeline.client.lag(&format!("{}.ingest", pipeline.name), &source) == 0
    });
}

#[test]
fn a_list_that_is_cut_says_on_standard_error_how_much_more_there_is() {
    let (pipeline, _) = pipeline("cut", LOG);
    pipeline.apply_topics();
    let letter = |kind: &str| Record::default().value("v").header("job-error-kind", kind);
    let letters: Vec<_> = (0..7).map(|n| letter(if n < 4 { "timeout" } else { "crash" })).collect();
    pipeline.client.produce_all(&pipeline.topic("dlq"), &letters);
    for (arguments, lines, more) in [
        (&["--limit", "2"][..], 2, "note: listed 2 of 7: `--limit 7` lists all\n"),
        (&["--limit", "3", "--kind", "timeout"], 3, "note: listed 3 of 4: `--limit 4` lists all\n"),
        (&["--limit", "0"], 0, "note: listed 0 of 7: `--limit 7` lists all\n"),
        (&["--limit", "7"], 7, ""),
        (&[], 7, ""),
    ] {
        let (exit, stdout, stderr) = pipeline.run(&[&["dlq", "list", "--json"], arguments].concat());
        assert_eq!((exit, without_waits(&stderr).as_str()), (Exit(0), more), "{arguments:?}");
        assert_eq!(stdout.lines().count(), lines, "{arguments:?}");
        assert!(stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{stdout}");
    }
    let (_, stdout, stderr) = pipeline.run(&["dlq", "list", "--limit", "2"]);
    assert_eq!(stdout.lines().count(), 3, "a head and two records: {stdout}");
    assert!(stderr.contains("listed 2 of 7"), "{stderr}");
}

#[test]
fn produce_leaves_no_schema_behind_for_a_topic_that_does_not_exist() {
    let (pipeline, _) = pipeline("no-topic", LOG);
    let topic = pipeline.topic("wrong");
    let subject = format!("{}/subjects/{topic}-value/versions/latest", Registry::shared().url());
    let schema = payment_schema();
    let arguments = ["produce", "--topic", &topic, "--schema", &schema, "/dev/null"];
    says(&ends_with(&pipeline, 2, &arguments), &["there is no topic", &topic, "--create"]);
    assert_eq!(http::get(&subject).expect("the registry answers").0, 404);
    assert!(!pipeline.client.topics().contains(&topic));
    let created = ends_with(&pipeline, 0, &[&arguments[..], &["--create", "2"]].concat());
    says(&created, &["created", "0 events published"]);
    assert_eq!(http::get(&subject).expect("the registry answers").0, 200);
    assert_eq!(pipeline.client.partitions(&topic), 2);
}
