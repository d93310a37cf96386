//! docker-compose.yml, line by line against the code: no engine is needed to know that it says what the binary understands.

mod image;
mod json_schema;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{Handler, Start};
use tidegate_demo::classes::CLASSES;
use tidegate_tests::compose::{Compose, OWN_IMAGE, Service, duration, read, root};
use tidegate_tests::process::Setup;

const CONFIG: &str = "deploy/compose/tidegate.toml";
const SOON: Duration = Duration::from_secs(30);

fn config() -> Config {
    config_with(&[])
}

fn config_with(environment: &[(&str, &str)]) -> Config {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Config::parse(CONFIG, &read(CONFIG), environment).unwrap_or_else(|error| panic!("{error}"))
}

/// The services that run for as long as the pipeline does.
fn services(compose: &Compose) -> Vec<&Service> {
    let is_service = |service: &&Service| {
        matches!(service.command().first().map(String::as_str), Some("ingest" | "worker" | "retry"))
    };
    compose.own().filter(is_service).collect()
}

fn refusals(document: &Value) -> Vec<String> {
    let schema = serde_json::from_str(&read("tests/data/compose-spec.json")).expect("the schema is JSON");
    json_schema::refusals(&schema, document)
}

#[test]
fn the_file_fits_the_schema_of_compose_files() {
    assert_eq!(refusals(&Compose::of_repository().document), [""; 0]);
}

#[test]
fn a_file_that_does_not_fit_the_schema_is_told_where() {
    for (line, broken, told) in [
        (
            "    command: [\"ingest\"]",
            "    comand: [\"ingest\"]",
            "services.ingest.comand: nothing may stand here",
        ),
        (
            "  restart: unless-stopped",
            "  restart: [always]",
            "services.ingest.restart: it must be of type \"string\"",
        ),
        (
            "    image: apache/kafka:4.3.1",
            "    image: { name: kafka }",
            "services.kafka.image: it must be of type \"string\"",
        ),
        ("condition: service_healthy", "condition: service_ready", "services.endpoint"),
        ("  state-bulk:\n", "  state-bulk: 3\n", "volumes.state-bulk: it must be of type"),
    ] {
        let text = read("docker-compose.yml");
        assert!(text.contains(line), "{line}");
        // The condition of `endpoint` is on another service's health, so that any place will do.
        let told = if broken.contains("service_ready") {
            "depends_on: it is none of the alternatives"
        } else {
            told
        };
        let found = refusals(&Compose::parse(&text.replace(line, broken)).document);
        assert!(found.iter().any(|refusal| refusal.contains(told)), "{broken}: {found:?}");
    }
}

#[test]
fn the_servers_are_those_that_the_tests_run() {
    let compose = Compose::of_repository();
    let pom = read("tests/servers/pom.xml");
    let version = |name: &str| {
        let (_, rest) = pom.split_once(&format!("<{name}>")).expect("the pom names the version");
        rest.split_once('<').expect("the element is closed").0.to_owned()
    };
    assert_eq!(compose.services["kafka"].image(), format!("apache/kafka:{}", version("kafka.version")));
    let registry = format!("apicurio/apicurio-registry:{}", version("apicurio.version"));
    assert_eq!(compose.services["registry"].image(), registry);
    let images: BTreeSet<&str> = compose.services.values().map(Service::image).collect();
    assert_eq!(images.len(), 3, "and the third is built here: {images:?}");
}

#[test]
fn the_image_is_built_by_the_first_that_needs_it_and_pulled_by_nobody() {
    let compose = Compose::of_repository();
    let builders: Vec<&str> = compose
        .services
        .values()
        .filter(|service| service.value.get("build").is_some())
        .map(|service| service.name.as_str())
        .collect();
    let order = compose.in_order();
    let first = order.iter().find(|service| service.image() == OWN_IMAGE).expect("one runs tidegate");
    assert_eq!(builders, [first.name.as_str()], "several builds of one tag at once get in each other's way");
    assert!(compose.own().all(|service| service.value["pull_policy"] == "never"));
    assert_eq!(first.value["build"]["context"], ".");
}

#[test]
fn every_command_line_is_one_that_the_binary_understands() {
    let compose = Compose::of_repository();
    let mut tried = 0;
    for service in compose.own() {
        let check = service.health_check();
        let of_check = check.first().map(|program| {
            assert_eq!(program, "tidegate", "{}: the image has no other program", service.name);
            check[1..].to_vec()
        });
        for mut words in [Some(service.command()), of_check].into_iter().flatten() {
            words.push("--help".to_owned());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut process = Setup::new(&service.name, &words).start();
            let exit = process.wait(SOON);
            assert!(exit.is_success(), "{words:?}: {}", process.stderr());
            tried += 1;
        }
    }
    assert!(tried > 12, "only {tried} command lines");
}

#[test]
fn a_command_line_that_the_binary_does_not_understand_is_noticed() {
    for words in [&["ingests", "--help"][..], &["worker", "--tire", "bulk", "--help"]] {
        let mut process = Setup::new("wrong", words).start();
        assert_eq!(process.wait(SOON).0, 2, "{words:?}");
    }
}

#[test]
fn each_tier_has_its_worker_and_each_class_its_tier() {
    let (compose, config) = (Compose::of_repository(), config());
    let workers: BTreeSet<Vec<String>> =
        services(&compose).into_iter().map(Service::command).filter(|words| words[0] == "worker").collect();
    let worker = |tier: &str| ["worker", "--tier", tier].map(str::to_owned).to_vec();
    assert_eq!(workers, config.tiers.keys().map(|tier| worker(tier.as_str())).collect());
    for one in ["ingest", "retry"] {
        assert_eq!(compose.own().filter(|service| service.command() == [one]).count(), 1, "{one}");
    }
    for tier in config.tiers.keys() {
        assert_eq!(config.classes_of(tier).count(), 1, "{tier} has something to do");
    }
}

#[test]
fn the_classes_are_those_of_the_demo() {
    let (compose, config) = (Compose::of_repository(), config());
    let endpoint = &compose.services["endpoint"];
    let command = endpoint.command();
    assert_eq!(command[..3], ["demo", "endpoint", "--listen"]);
    let port = command[3].strip_prefix("0.0.0.0:").expect("it listens on all interfaces");
    assert_eq!(config.classes.len(), CLASSES.len());
    assert_eq!(config.sources.len(), CLASSES.len());
    for demo in &CLASSES {
        let class = &config.classes[&demo.name.parse().expect("a class's name")];
        assert_eq!((class.tier.as_str(), class.sources[0].as_str()), (demo.tier, demo.topic));
        assert_eq!(class.partition_by, [demo.key.parse().expect("a field's path")]);
        assert_eq!(config.sources[&class.sources[0]].start, Start::Earliest, "nothing is passed over");
        let Handler::Http(http) = &class.handler else { panic!("{}: {:?}", demo.name, class.handler) };
        assert_eq!(http.url.as_str(), format!("http://{}:{port}/{}", endpoint.name, demo.name));
    }
    assert_eq!(config.notes(), [""; 0]);
}

#[test]
fn the_addresses_of_the_configuration_are_those_of_the_servers() {
    let (compose, config) = (Compose::of_repository(), config());
    let kafka = compose.services["kafka"].environment();
    let listeners = |name: &str| -> BTreeMap<String, String> {
        let split = |text: &str| text.split_once("://").map(|(name, at)| (name.to_owned(), at.to_owned()));
        kafka[name].split(',').filter_map(split).collect()
    };
    let (bound, advertised) = (listeners("KAFKA_LISTENERS"), listeners("KAFKA_ADVERTISED_LISTENERS"));
    assert_eq!(config.kafka.bootstrap_servers(), advertised["INTERNAL"]);
    assert_eq!(kafka["KAFKA_INTER_BROKER_LISTENER_NAME"], "INTERNAL");
    for (name, address) in &advertised {
        let port = address.rsplit_once(':').expect("it has a port").1;
        assert_eq!(bound[name], format!(":{port}"), "{name}");
    }
    let controller = bound[&kafka["KAFKA_CONTROLLER_LISTENER_NAMES"]].trim_start_matches(':').to_owned();
    let voters = format!("{}@kafka:{controller}", kafka["KAFKA_NODE_ID"]);
    assert_eq!(kafka["KAFKA_CONTROLLER_QUORUM_VOTERS"], voters);
    let host = advertised["HOST"].rsplit_once(':').expect("it has a port").1.parse().expect("a port");
    assert_eq!(compose.services["kafka"].ports(), [("127.0.0.1".to_owned(), host, host)]);

    let registry = &compose.services["registry"];
    let (_, _, port) = registry.ports()[0];
    let url = config.registry.expect("there is a registry").url[0].to_string();
    assert_eq!(url, format!("http://registry:{port}/apis/ccompat/v7"));
    let stored = registry.environment();
    assert_eq!(stored["APICURIO_KAFKASQL_BOOTSTRAP_SERVERS"], config.kafka.bootstrap_servers());
    // One broker can't hold copies.
    assert_eq!(config.kafka.replication.map(u16::from), Some(1));
}

#[test]
fn every_published_port_is_one_that_somebody_listens_on_and_of_this_machine_only() {
    let (compose, config) = (Compose::of_repository(), config());
    let mut taken = BTreeSet::new();
    for service in compose.services.values() {
        for (address, host, _) in service.ports() {
            assert_eq!(address, "127.0.0.1", "{}: nobody else is let in", service.name);
            assert!(taken.insert(host), "{}: {host} is taken twice", service.name);
        }
    }
    assert!(config.observe.listen.ip().is_unspecified(), "a container's loopback is no other's");
    for service in services(&compose) {
        let inside: Vec<u16> = service.ports().into_iter().map(|(_, _, inside)| inside).collect();
        assert_eq!(inside, [config.observe.listen.port()], "{}", service.name);
    }
    let shown = read("docker-compose.yml");
    for line in shown.lines().filter(|line| line.starts_with('#') && line.contains("localhost:")) {
        let (_, rest) = line.split_once("localhost:").expect("it is there");
        let port: u16 =
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a port");
        assert!(taken.contains(&port), "{line}");
    }
}

/// The token that the configuration's comments tell.
fn demo_token() -> String {
    let config = read(CONFIG);
    let (_, rest) = config.split_once("tgc_").expect("the token is told");
    format!("tgc_{}", rest.split_whitespace().next().expect("the token has an end"))
}

#[test]
fn the_console_lets_this_machine_in_and_asks_who_is_there() {
    let (compose, config) = (Compose::of_repository(), config());
    let console = &compose.services["console"];
    assert_eq!(console.command(), ["console"]);
    let listen = config.console.listen;
    assert!(listen.ip().is_unspecified(), "a container's loopback is no other's");
    assert!(config.console.asks_who_is_there(), "else it would not start there");
    assert_eq!(console.ports(), [("127.0.0.1".to_owned(), 9680, listen.port())]);
    let url = format!("http://127.0.0.1:{}/livez", listen.port());
    assert_eq!(console.health_check(), ["tidegate", "health", "--url", &url]);
    let scraped: BTreeSet<String> = config.console.scrape.iter().map(ToString::to_string).collect();
    let of_services = services(&compose)
        .into_iter()
        .map(|service| format!("{}:{}", service.name, config.observe.listen.port()));
    assert_eq!(scraped, of_services.collect());
    // Nothing but the demonstration's own user, whose token is known to be known.
    assert_eq!(config.console.users.len(), 1);
    assert!(demo_token().contains("demo-token-for-this-machine-only"), "{}", demo_token());
    let waits = console.depends_on();
    assert_eq!(waits["topics"], "service_completed_successfully");
    assert!(!waits.contains_key("endpoint"), "it shows what is wrong with others");
    assert_eq!(console.value["restart"], "unless-stopped");
    assert!(console.stop_grace_period() > config.consume.shutdown_deadline);
}

#[test]
fn every_health_check_asks_where_the_service_answers() {
    let (compose, config) = (Compose::of_repository(), config());
    let port = config.observe.listen.port();
    for service in services(&compose) {
        let url = format!("http://127.0.0.1:{port}/readyz");
        assert_eq!(service.health_check(), ["tidegate", "health", "--url", &url], "{}", service.name);
    }
    let endpoint = &compose.services["endpoint"];
    let url = format!("http://127.0.0.1:{}/readyz", endpoint.ports()[0].2);
    assert_eq!(endpoint.health_check(), ["tidegate", "health", "--url", &url]);
    for service in compose.services.values().filter(|service| !service.health_check().is_empty()) {
        let of = |name: &str| duration(service.value["healthcheck"][name].as_str().expect("it is set"));
        // The binary waits for two seconds: the engine must not be faster.
        assert!(of("timeout") > Duration::from_secs(2), "{}", service.name);
        assert!(of("start_period") >= Duration::from_secs(10), "{}", service.name);
    }
}

#[test]
fn nobody_waits_for_a_health_that_is_not_checked_or_an_end_that_does_not_come() {
    let compose = Compose::of_repository();
    let mut conditions = 0;
    for service in compose.in_order() {
        for (other, condition) in service.depends_on() {
            let other = &compose.services[&other];
            let restarts = other.value.get("restart").is_some();
            match condition.as_str() {
                "service_healthy" => assert!(!other.health_check().is_empty() && restarts, "{}", other.name),
                "service_completed_successfully" => assert!(!restarts, "{}", other.name),
                _ => panic!("{} waits for {} to be {condition}", service.name, other.name),
            }
            conditions += 1;
        }
    }
    assert!(conditions > 15, "only {conditions}");
}

#[test]
fn services_start_when_their_topics_are_there_and_events_come_when_all_are_ready() {
    let compose = Compose::of_repository();
    let waits = |name: &str, other: &str| compose.services[name].depends_on().get(other).cloned();
    let (done, well) =
        (Some("service_completed_successfully".to_owned()), Some("service_healthy".to_owned()));
    assert_eq!(compose.services["sources"].command(), ["demo", "sources"]);
    assert_eq!(compose.services["topics"].command(), ["topics", "apply"]);
    for server in ["kafka", "registry"] {
        assert_eq!(waits("sources", server), well);
    }
    assert_eq!(waits("topics", "sources"), done);
    for service in services(&compose) {
        assert_eq!(waits(&service.name, "topics"), done, "{}", service.name);
        assert_eq!(waits("events", &service.name), well, "{}", service.name);
    }
}

#[test]
fn a_stop_is_given_more_time_than_it_needs() {
    let (compose, config) = (Compose::of_repository(), config());
    assert!(config.consume.shutdown_deadline > config.consume.drain_deadline);
    for service in services(&compose) {
        let grace = service.stop_grace_period();
        let needed = config.consume.shutdown_deadline + Duration::from_secs(5);
        assert!(grace >= needed, "{}: {grace:?} for {needed:?}", service.name);
        assert_eq!(service.value["restart"], "unless-stopped", "{}", service.name);
    }
    assert!(compose.services["kafka"].stop_grace_period() >= Duration::from_secs(30));
}

#[test]
fn each_worker_keeps_its_marks_in_a_volume_of_its_own() {
    let (compose, config) = (Compose::of_repository(), config());
    let state = config.state.dir.display().to_string();
    let mut used = BTreeSet::new();
    for service in compose.services.values() {
        for (name, place) in service.volumes() {
            assert!(used.insert(name), "{}: two processes must not share a volume", service.name);
            let expected = if service.name == "kafka" { "/var/lib/kafka/data" } else { &state };
            assert_eq!(place, expected, "{}", service.name);
        }
    }
    assert_eq!(compose.services["kafka"].environment()["KAFKA_LOG_DIRS"], "/var/lib/kafka/data");
    let workers = services(&compose).into_iter().filter(|service| service.command()[0] == "worker");
    assert!(workers.into_iter().all(|worker| worker.volumes().len() == 1));
    assert_eq!(
        compose.services["console"].volumes().len(),
        1,
        "its index needs a place in a read-only container"
    );
    let declared = compose.document["volumes"].as_object().expect("there are volumes");
    assert_eq!(declared.keys().cloned().collect::<BTreeSet<_>>(), used);
}

#[test]
fn every_variable_of_the_environment_is_a_setting_and_an_empty_one_changes_nothing() {
    let compose = Compose::of_repository();
    let values = [
        ("TIDEGATE_KAFKA__BOOTSTRAP", "other:1"),
        ("TIDEGATE_REGISTRY__URL", "http://other:2"),
        ("TIDEGATE_OBSERVE__LOG", "debug"),
        ("TIDEGATE_OBSERVE__LOG_FORMAT", "json"),
    ];
    for service in compose.own() {
        let environment = service.environment();
        let names: BTreeSet<&str> = environment.keys().map(String::as_str).collect();
        assert_eq!(names, values.iter().map(|(name, _)| *name).collect(), "{}", service.name);
        let pairs: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(config_with(&pairs), config(), "{}", service.name);
    }
    for pair in values {
        assert_ne!(config_with(&[pair]), config(), "{pair:?} changes nothing");
    }
}

#[test]
fn the_configuration_is_mounted_where_the_image_looks_for_it() {
    let compose = Compose::of_repository();
    let file = compose.document["configs"]["tidegate"]["file"].as_str().expect("a file");
    assert_eq!(
        root().join(file).canonicalize().expect("it is there"),
        root().join(CONFIG).canonicalize().unwrap()
    );
    for service in compose.own() {
        let mounted = &service.value["configs"][0];
        assert_eq!(mounted["source"], "tidegate", "{}", service.name);
        assert_eq!(mounted["target"].as_str(), Some(image::configuration().as_str()), "{}", service.name);
    }
}

#[test]
fn a_process_can_do_no_more_than_it_needs() {
    for service in Compose::of_repository().own() {
        assert_eq!(service.value["read_only"], true, "{}", service.name);
        assert_eq!(service.value["cap_drop"], serde_json::json!(["ALL"]), "{}", service.name);
        assert!(service.value.get("user").is_none(), "the image says who it is");
    }
}
