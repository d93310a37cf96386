//! The rights that docs/security.md lists: with exactly those everything works, and one that is missing is told.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{SCHEMA, attempt, id, script};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::servers::{Registry, SecuredKafka, kafka_tools};
use tidegate_tests::wait::wait_until;
use tidegate_tests::walk::Walk;

const LONG: Duration = Duration::from_secs(120);
/// Until the broker keeps to a right that was taken away.
const REVOKED_WITHIN: Duration = Duration::from_secs(30);
const PASSWORD: &str = "correct-horse-battery";
const USERS: [&str; 5] = ["ingest", "worker", "retry", "deploy", "operator"];
const SOURCE: &str = "shop.orders";

/// A Kafka where each service has a user of its own, with the rights that the page grants.
struct Granted {
    kafka: SecuredKafka,
    tools: tempfile::TempDir,
    pipeline: Pipeline,
    endpoint: Endpoint,
}

impl Granted {
    fn new() -> Self {
        let kafka = SecuredKafka::start_with_authorizer();
        for user in USERS {
            kafka.set_password_of(&format!("tidegate-{user}"), PASSWORD);
        }
        let tools = tempfile::tempdir().expect("a folder can be made");
        kafka_tools(tools.path());
        let client = kafka.kafka().client();
        client.create_topic(SOURCE, 2);
        grant(tools.path(), kafka.kafka().bootstrap());
        let endpoint = Endpoint::start(|call| match script(call).as_str() {
            "flaky" if attempt(call) == 1 => Answer::status(503),
            "bad" => Answer::status(422),
            _ => Answer::ok(),
        });
        let pipeline = pipeline(&kafka, &endpoint);
        Self { kafka, tools, pipeline, endpoint }
    }

    /// Runs a command as this user.
    fn run_as(&self, user: &str, arguments: &[&str]) -> (Exit, String, String) {
        let mut pipeline = Pipeline::at("unused", self.kafka.kafka().bootstrap(), Registry::shared().url());
        pipeline.replace_config(&self.pipeline.config().replace("USER", user));
        pipeline.run(arguments)
    }

    /// Starts a service as its user, and does not wait.
    fn launch(&mut self, user: &str, arguments: &[&str]) {
        let user_name = format!("tidegate-{user}");
        self.pipeline.launch(user, arguments, &[("TIDEGATE_KAFKA__PROPERTIES__SASL_USERNAME", &user_name)]);
    }

    /// Takes a right away, or gives it back.
    fn change(&self, action: &str, arguments: &[&str]) {
        let output = Command::new(self.tools.path().join("kafka-acls.sh"))
            .args(["--bootstrap-server", self.kafka.kafka().bootstrap(), action])
            .args((action == "--remove").then_some("--force"))
            .args(arguments)
            .output()
            .expect("the tool can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the service, and waits until it ends. What the controller knows, the broker learns a moment later: a service that finds
    /// all its rights before that is started again.
    #[track_caller]
    fn wait_refused(&mut self, user: &str, arguments: &[&str]) -> (Exit, String) {
        let began = Instant::now();
        loop {
            self.launch(user, arguments);
            wait_until(&format!("{user} to end, or to be ready"), LONG, || {
                !self.pipeline.process(user).is_running() || self.pipeline.readyz(user).0 == 200
            });
            if !self.pipeline.process(user).is_running() {
                let process = self.pipeline.process(user);
                return (process.wait(LONG), process.stderr());
            }
            assert!(began.elapsed() < REVOKED_WITHIN, "{user} is ready without its right");
            self.pipeline.kill(user);
        }
    }

    /// Without this right, the service ends with this code, and says this in its last line.
    #[track_caller]
    fn assert_told_without(
        &mut self,
        right: &[&str],
        user: &str,
        arguments: &[&str],
        code: i32,
        parts: &[&str],
    ) {
        self.change("--remove", right);
        let (exit, log) = self.wait_refused(user, arguments);
        let last: Vec<&str> = log.lines().skip_while(|line| !line.starts_with("error: ")).collect();
        assert_eq!(exit, Exit(code), "without {right:?}:\n{log}");
        let sentence = last.join(" ");
        assert!(
            parts.iter().all(|part| sentence.contains(part)),
            "without {right:?}, {parts:?} is not in: {log}"
        );
        self.change("--add", right);
        wait_until("the right to be back", LONG, || self.run_as(user, &["topics", "check"]).0.is_success());
    }
}

fn grant(tools: &Path, bootstrap: &str) {
    let walk = Walk::of("docs/security.md");
    std::fs::write(walk.here().join("admin.properties"), "").expect("a file can be written");
    walk.replace("kafka-1.example.com:9094", bootstrap).path(tools).run();
}

/// The pipeline `orders` of the page, over the secured listener.
fn pipeline(kafka: &SecuredKafka, endpoint: &Endpoint) -> Pipeline {
    let mut pipeline = Pipeline::new("granted", kafka.kafka(), Registry::shared().url());
    let name = pipeline.name.clone();
    pipeline.reconfigure(&format!("\"{name}\""), "\"orders\"");
    pipeline.name = "orders".to_owned();
    pipeline.reconfigure("[tiers.critical]\npartitions = 4\n\n", "");
    pipeline.reconfigure("[tiers.bulk]\npartitions = 4\n\n", "");
    pipeline.reconfigure(kafka.kafka().bootstrap(), kafka.address());
    pipeline.configure(&format!(
        "[sources.\"{SOURCE}\"]\nstart = \"latest\"\n[classes.task]\nsource = \"{SOURCE}\"\nkey = [\"id\"]\n\
         handler = {{ type = \"http\", url = \"{}/run\" }}\n\n[kafka.properties]\n\"security.protocol\" = \"SASL_SSL\"\n\
         \"sasl.mechanisms\" = \"SCRAM-SHA-512\"\n\"sasl.username\" = \"tidegate-USER\"\n\"sasl.password\" = \"{PASSWORD}\"\n\
         \"ssl.ca.location\" = \"{}\"\n",
        endpoint.url(),
        kafka.authority().display()
    ));
    pipeline
}

#[test]
fn the_least_rights_suffice_and_one_that_is_missing_is_told() {
    let mut granted = Granted::new();
    everything_works(&mut granted);
    a_missing_right_is_told_before_the_start(&mut granted);
}

/// Every service and command, each as its user.
fn everything_works(granted: &mut Granted) {
    let (exit, stdout, stderr) = granted.run_as("deploy", &["topics", "apply"]);
    assert!(exit.is_success(), "{stdout}\n{stderr}");
    for (user, arguments) in
        [("ingest", &["ingest"][..]), ("retry", &["retry"]), ("worker", &["worker", "--tier", "default"])]
    {
        granted.launch(user, arguments);
        granted.pipeline.wait_ready(user);
    }
    let schema_id = Registry::shared().register(&format!("{SOURCE}-value"), SCHEMA);
    let schema = tidegate_codec::CompiledSchema::parse(schema_id, SCHEMA, &[]).expect("the schema is valid");
    let record = |name: &str| {
        let event = serde_json::json!({ "id": name, "lane": name, "script": name });
        let datum = schema.encode_json(&event).expect("it fits its schema");
        tidegate_tests::kafka_io::Record::default()
            .key(name)
            .value(tidegate_codec::wire::frame(schema_id, &datum))
    };
    let bad = tidegate_tests::kafka_io::Record::default().key("garbage").value("no avro");
    granted.pipeline.client.produce_all(SOURCE, &[record("fine"), record("flaky"), record("bad"), bad]);
    granted.pipeline.wait_for_dead(2, LONG);
    wait_until("every job to be called", LONG, || granted.endpoint.calls().len() >= 4);
    let mut calls: Vec<_> = granted.endpoint.calls().iter().map(|call| (id(call), attempt(call))).collect();
    calls.sort();
    let called = |id: &str, attempt| (id.to_owned(), attempt);
    assert_eq!(calls, [called("bad", 1), called("fine", 1), called("flaky", 1), called("flaky", 2)]);
    wait_until("every record to be settled", LONG, || {
        let lag = |group: &str, topic: &str| granted.pipeline.client.lag(group, topic);
        lag("orders.ingest", SOURCE) == 0 && lag("orders.default.worker", "orders.default.jobs") == 0
    });
    let (exit, stdout, stderr) = granted.run_as("operator", &["dlq", "list"]);
    assert!(exit.is_success() && stdout.contains("http-422"), "{stdout}\n{stderr}");
    what_was_replayed_is_told_in_the_journal(granted);
    for user in ["ingest", "retry", "worker"] {
        let log = granted.pipeline.process(user).stderr();
        assert!(!log.contains("uthorization"), "{user} lacks a right:\n{log}");
        granted.pipeline.stop(user);
    }
}

/// A job and an event without a class, replayed by the operators' user, run again, and what becomes of them is told.
fn what_was_replayed_is_told_in_the_journal(granted: &mut Granted) {
    let (exit, stdout, stderr) =
        granted.run_as("operator", &["dlq", "replay", "--all", "--yes", "--no-ramp"]);
    let said = format!("{stdout}\n{stderr}");
    // Both fail again, and a run in which all fail is no success.
    assert!(!exit.is_success() && !said.contains("uthorization"), "{said}");
    wait_until("both to be told to have failed again", LONG, || {
        let (_, stdout, _) =
            granted.run_as("operator", &["dlq", "list", "--state", "failed-again", "--json"]);
        stdout.matches("\"failed-again\"").count() == 2
    });
    let (exit, stdout, stderr) =
        granted.run_as("operator", &["job", "where", "--class", "task", "--field", "id=fine"]);
    assert!(exit.is_success() && stdout.contains("done"), "{stdout}\n{stderr}");
}

fn a_missing_right_is_told_before_the_start(granted: &mut Granted) {
    let worker = ["worker", "--tier", "default"];
    let all = "User:tidegate-worker";
    granted.assert_told_without(
        &["--allow-principal", all, "--operation", "Describe", "--topic", SOURCE],
        "worker",
        &worker,
        2,
        &["source topic `shop.orders` is missing", "Describe"],
    );
    let configs =
        ["--operation", "DescribeConfigs", "--topic", "orders.", "--resource-pattern-type", "prefixed"];
    granted.assert_told_without(
        &[&["--allow-principal", all][..], &configs].concat(),
        "worker",
        &worker,
        2,
        &["may not read the settings of topic", "DescribeConfigs"],
    );
    granted.assert_told_without(
        &["--allow-principal", all, "--operation", "Read", "--topic", "orders.config"],
        "worker",
        &worker,
        2,
        &["orders.config", "Read"],
    );
    granted.assert_told_without(
        &["--allow-principal", all, "--operation", "Read", "--group", "orders.default.worker"],
        "worker",
        &worker,
        1,
        &["group `orders.default.worker`", "Read"],
    );
}
