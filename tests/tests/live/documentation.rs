//! Every page with commands, done as a reader would do it, with the real binary, a real Kafka and a real registry.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_tests::documents::read;
use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, script, tasks};
use tidegate_tests::ports::free_port;
use tidegate_tests::servers::{Kafka, Registry, kafka_tools};
use tidegate_tests::unique;
use tidegate_tests::walk::Walk;

/// The ports that pages name, each replaced by a free one.
fn on_free_ports(walk: Walk, ports: &[u16]) -> Walk {
    ports.iter().fold(walk, |walk, port| walk.replace(&port.to_string(), &free_port().to_string()))
}

/// A page whose servers are the tests'.
fn at_shared_servers(walk: Walk) -> Walk {
    let listen = format!("127.0.0.1:{}", free_port());
    on_free_ports(walk, &[8000, 9601, 9602])
        .replace("127.0.0.1:9092", Kafka::shared().bootstrap())
        .replace("http://127.0.0.1:8081/apis/ccompat/v7", Registry::shared().url())
        .env("TIDEGATE_OBSERVE__LISTEN", &listen)
}

#[test]
fn the_shops_payments_lead_from_nothing_to_a_dead_letter() {
    let ports: Vec<String> = (0..4).map(|_| free_port().to_string()).collect();
    let listen = format!("127.0.0.1:{}", ports[3]);
    on_free_ports(Walk::of("docs/payments.md"), &[8000, 9601, 9602])
        .replace("9092", &ports[0])
        .replace("8081", &ports[1])
        .env("TIDEGATE_KAFKA_PORT", &ports[0])
        .env("TIDEGATE_REGISTRY_PORT", &ports[1])
        .env("TIDEGATE_CONTROLLER_PORT", &ports[2])
        .env("TIDEGATE_OBSERVE__LISTEN", &listen)
        .copy("x")
        .copy("rust-toolchain.toml")
        .copy("schemas")
        .copy("tests/servers")
        .copy("tidegate.example.toml")
        .in_the_end("./x down")
        .run();
}

#[test]
fn the_first_page_kills_a_worker_and_accounts_for_everything() {
    Walk::of("docs/getting-started.md").run();
}

#[test]
fn the_page_of_the_console_starts_one_and_makes_a_token() {
    let mut jobs = Jobs::over_http("page", "key = [\"id\"]", |_| Answer::ok());
    jobs.start();
    let address = format!("127.0.0.1:{}", free_port());
    let walk = Walk::of("docs/console.md");
    std::fs::write(walk.here().join("tidegate.toml"), jobs.pipeline.config()).expect("a file can be written");
    walk.replace("127.0.0.1:9680", &address).env("TIDEGATE_CONSOLE__LISTEN", &address).run();
}

#[test]
fn the_second_page_leads_from_a_schema_to_a_dead_letter() {
    let name = unique("orders");
    // A reader's servers are where `init` looks by default.
    at_shared_servers(Walk::of("docs/your-own-topic.md"))
        .env("TIDEGATE_REGISTRY__URL", Registry::shared().url())
        .replace("\"orders\"", &format!("\"{name}\""))
        .replace("shop.orders", &format!("{name}.src"))
        .run();
}

#[test]
fn the_worker_of_the_example_writes_its_letter() {
    let name = unique("own");
    at_shared_servers(Walk::of("examples/own-worker/README.md"))
        .replace("\"own\"", &format!("\"{name}\""))
        .replace("demo.sign-ups", &format!("{name}.src"))
        .replace("../../schemas", "schemas")
        .copy("schemas")
        .copy_as("examples/own-worker/tidegate.toml", "tidegate.toml")
        .run();
}

#[test]
fn the_endpoint_that_remembers_keys_has_its_effect_once() {
    on_free_ports(Walk::of("docs/handlers.md"), &[8000]).run();
}

#[test]
fn the_page_for_operators_asks_what_can_be_answered() {
    let mut jobs = Jobs::over_http("operated", "key = [\"id\"]", |call| match script(call).as_str() {
        "bad" => Answer::status(422),
        _ => Answer::ok(),
    });
    jobs.start();
    let mut published = tasks("fine", 5);
    published[0].script = "bad".to_owned();
    jobs.publish(&published);
    jobs.pipeline.wait_for_dead(1, SOON);
    jobs.wait_all_settled(SOON);
    let address = jobs.pipeline.address("worker");
    let tools = tempfile::tempdir().expect("a folder can be made");
    kafka_tools(tools.path());
    let walk = Walk::of("docs/operations.md");
    std::fs::write(walk.here().join("tidegate.toml"), jobs.pipeline.config()).expect("a file can be written");
    walk.replace("127.0.0.1:9600", &address)
        .replace("127.0.0.1:9092", Kafka::shared().bootstrap())
        .replace("tidegate.default.worker", &format!("{}.default.worker", jobs.pipeline.name))
        .path(tools.path())
        .run();
    let mut compared = BTreeSet::new();
    for service in ["ingest", "retry", "worker"] {
        let (_, page) = jobs.pipeline.get(service, "/metrics");
        compared.extend(compare_labels(&page));
        jobs.pipeline.stop(service);
    }
    assert!(compared.len() > 25, "only the labels of {compared:?} were compared");
}

/// Compares the labels of each metric with those that the table of metrics says.
fn compare_labels(page: &str) -> BTreeSet<String> {
    let text = read("docs/operations.md");
    let mut documented: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| `tidegate_")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let labels = cells[2].split('`').skip(1).step_by(2).collect();
        documented.insert(cells[0].trim_matches(['|', ' ', '`']), labels);
    }
    let mut compared = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("tidegate_")) {
        let (sample, _) = line.rsplit_once(' ').expect("a sample has a value");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let names = labels.trim_end_matches('}').split("\",").filter_map(|label| label.split('=').next());
        let labels: BTreeSet<&str> = names.filter(|name| !name.is_empty() && *name != "le").collect();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known = family.filter(|family| documented.contains_key(family)).unwrap_or(name);
        assert_eq!(
            documented.get(known),
            Some(&labels),
            "left: the labels of {known} in docs/operations.md; right: {line}"
        );
        compared.insert(known.to_owned());
    }
    compared
}
