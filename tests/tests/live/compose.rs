//! What docker-compose.yml starts, started without an engine: the same command lines with the same environment and configuration,
//! in the same order and with the same health checks. Only addresses, ports, the rate of the events and how long the registry may
//! take are other ones.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_demo::classes::CLASSES;
use tidegate_tests::compose::{Compose, OWN_IMAGE, Service, read, root};
use tidegate_tests::http;
use tidegate_tests::kafka_io::ReadRecord;
use tidegate_tests::ports::free_port;
use tidegate_tests::process::{Process, Setup};
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::wait_until;

const SOON: Duration = Duration::from_secs(180);
const ALL_SETTLED: Duration = Duration::from_secs(120);

/// An engine that runs the services as processes.
struct Engine {
    compose: Compose,
    kafka: Kafka,
    registry: Registry,
    /// The port of this machine that stands for the one that a service listens on.
    ports: BTreeMap<String, u16>,
    state: tempfile::TempDir,
    running: BTreeMap<String, Process>,
}

impl Engine {
    fn new() -> Self {
        let compose = Compose::of_repository();
        let settings = broker_settings(&compose.services["kafka"]);
        let settings: Vec<(&str, &str)> = settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let kafka = Kafka::start_with(1, &settings);
        let mut environment = compose.services["registry"].environment();
        let bootstrap = "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS".to_owned();
        environment.insert(bootstrap, kafka.bootstrap().to_owned()).expect("it keeps its schemas in Kafka");
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let registry = Registry::start_with(&environment);
        let ports = compose.own().map(|service| (service.name.clone(), free_port())).collect();
        let state = tempfile::tempdir().expect("a temporary folder can be made");
        Self { compose, kafka, registry, ports, state, running: BTreeMap::new() }
    }

    /// Waits for what the service waits for, and starts it.
    fn start(&mut self, service: &Service) {
        for (other, condition) in service.depends_on() {
            if self.compose.services[&other].image() != OWN_IMAGE {
                continue; // the servers run already
            }
            match condition.as_str() {
                "service_completed_successfully" => self.wait_completed(&other),
                _ => self.wait_healthy(&other),
            }
        }
        let process = self.setup(service, &service.command()).start();
        self.running.insert(service.name.clone(), process);
    }

    /// A process of the service's image and environment.
    fn setup(&self, service: &Service, command: &[String]) -> Setup {
        let port = self.ports[&service.name];
        let mut words: Vec<String> = Vec::new();
        for word in command {
            words.push(match words.last().map(String::as_str) {
                Some("--listen") => format!("127.0.0.1:{port}"),
                Some("--url") => {
                    let (_, path) = word.rsplit_once('/').expect("it asks for a page");
                    format!("http://127.0.0.1:{port}/{path}")
                }
                Some("--rate") => "1000".to_owned(),
                _ => word.clone(),
            });
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut setup = Setup::new(&service.name, &words);
        for (name, value) in service.environment() {
            setup = setup.env(&name, &value);
        }
        let config = root().join("deploy/compose/tidegate.toml").display().to_string();
        let state = self.state.path().join(&service.name).display().to_string();
        setup = setup
            .env("TIDEGATE_CONFIG", &config)
            .env("TIDEGATE_KAFKA__BOOTSTRAP", self.kafka.bootstrap())
            .env("TIDEGATE_REGISTRY__URL", self.registry.url())
            .env("TIDEGATE_REGISTRY__TIMEOUT", "30s")
            .env("TIDEGATE_STATE__DIR", &state)
            .env("TIDEGATE_OBSERVE__LISTEN", &format!("127.0.0.1:{port}"))
            .env("TIDEGATE_CONSOLE__LISTEN", &format!("127.0.0.1:{port}"))
            .env("TIDEGATE_CONSOLE__SCRAPE", &self.scraped());
        for class in &CLASSES {
            let url = format!("{}/{}", self.url("endpoint"), class.name);
            let variable = format!("TIDEGATE_CLASSES__{}__HANDLER__URL", class.name.to_uppercase());
            setup = setup.env(&variable, &url);
        }
        setup
    }

    /// Where the services are that the console's configuration names.
    fn scraped(&self) -> String {
        let config = read("deploy/compose/tidegate.toml");
        let line = config.lines().find(|line| line.starts_with("scrape = ")).expect("it is set");
        let named = line.split('"').skip(1).step_by(2).map(|at| at.split(':').next().expect("a name"));
        named.map(|name| format!("127.0.0.1:{}", self.ports[name])).collect::<Vec<_>>().join(",")
    }

    /// What the console says to this token.
    fn overview(&self, token: &str) -> (u16, Value) {
        let url = format!("{}/api/v1/overview", self.url("console"));
        let (status, body) = http::get_with_token(&url, token).expect("the console answers");
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    fn url(&self, service: &str) -> String {
        format!("http://127.0.0.1:{}", self.ports[service])
    }

    fn wait_completed(&mut self, name: &str) {
        let process = self.running.get_mut(name).expect("it is started");
        let exit = process.wait(SOON);
        assert!(exit.is_success(), "{name}: {}", process.stderr());
    }

    fn wait_healthy(&mut self, name: &str) {
        let service = self.compose.services[name].clone();
        let check = service.health_check()[1..].to_vec();
        wait_until(&format!("{name} to be well"), SOON, || {
            assert!(self.running.get_mut(name).expect("it is started").is_running(), "{name} has ended");
            self.setup(&service, &check).start().wait(SOON).is_success()
        });
    }

    /// Stops it as the engine does, and says how long it took.
    fn stop(&mut self, service: &Service) {
        let process = self.running.get_mut(&service.name).expect("it is started");
        let asked = Instant::now();
        process.sigterm();
        let exit = process.wait(service.stop_grace_period());
        assert!(exit.is_success(), "{}: {exit:?}\n{}", service.name, process.stderr());
        let took = asked.elapsed();
        assert!(took < service.stop_grace_period(), "{}: {took:?}", service.name);
    }

    fn metric(&self, service: &str, metric: &str, labels: &[&str]) -> u64 {
        let (_, page) = http::get(&format!("{}/metrics", self.url(service))).unwrap_or_default();
        let of = |line: &&str| {
            line.strip_prefix(metric).is_some_and(|rest| rest.starts_with('{'))
                && labels.iter().all(|label| line.contains(label))
        };
        let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        page.lines().filter(of).filter_map(value).sum::<f64>() as u64
    }

    fn fates(&self) -> BTreeMap<&'static str, Fates> {
        let dead = self.kafka.client().read_all("tidegate.dlq");
        let of = |class: &tidegate_demo::classes::DemoClass| {
            let worker = format!("worker-{}", class.tier);
            let label = format!("class=\"{}\"", class.name);
            let count = |metric, more| self.metric(&worker, metric, &[&label, more]);
            let dead: Vec<&ReadRecord> = dead
                .iter()
                .filter(|record| record.header("__connect.errors.topic") == Some(class.topic))
                .collect();
            let garbage = dead.iter().filter(|record| record.header("job-error-kind") == Some("malformed"));
            Fates {
                done: count("tidegate_jobs_total", "outcome=\"done\""),
                duplicates: count("tidegate_duplicates_total", ""),
                retries: count("tidegate_jobs_total", "outcome=\"scheduled\""),
                garbage: garbage.count() as u64,
                dead: dead.len() as u64,
            }
        };
        CLASSES.iter().map(|class| (class.name, of(class))).collect()
    }
}

/// What became of a class's events.
#[derive(Debug, Default, Clone, Copy)]
struct Fates {
    done: u64,
    duplicates: u64,
    retries: u64,
    garbage: u64,
    /// With the garbage.
    dead: u64,
}

impl Fates {
    fn settled(&self) -> u64 {
        self.done + self.duplicates + self.dead
    }
}

/// The broker's settings that are not about addresses, roles and folders: `KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS` is
/// `group.initial.rebalance.delay.ms`.
fn broker_settings(kafka: &Service) -> Vec<(String, String)> {
    let elsewhere = ["LISTENER", "CONTROLLER", "PROCESS_ROLES", "NODE_ID", "LOG_DIRS"];
    let environment = kafka.environment().into_iter();
    let settings = environment.filter(|(name, _)| !elsewhere.iter().any(|part| name.contains(part)));
    let property = |(name, value): (String, String)| {
        let name = name.strip_prefix("KAFKA_").expect("it is a setting of the broker").to_lowercase();
        (name.replace('_', "."), value)
    };
    settings.map(property).collect()
}

/// `published 2260: charge 1300, export 330, welcome 630`
fn published(line: &str) -> BTreeMap<String, u64> {
    let (_, classes) = line.trim().split_once(": ").unwrap_or_else(|| panic!("{line}"));
    let pair = |text: &str| {
        let (class, count) = text.split_once(' ')?;
        Some((class.to_owned(), count.parse().ok()?))
    };
    classes.split(", ").map(|text| pair(text).unwrap_or_else(|| panic!("{line}"))).collect()
}

impl Engine {
    fn wait_settled(&self, published: &BTreeMap<String, u64>, times: u64) {
        wait_until("every event to be settled", ALL_SETTLED, || {
            let fates = self.fates();
            CLASSES.iter().all(|class| fates[class.name].settled() >= times * published[class.name])
        });
    }

    /// How many different keys of a class the endpoint saw.
    fn keys(&self, class: &str) -> u64 {
        let (_, sums) = http::get(&self.url("endpoint")).expect("the endpoint answers");
        let sums: Value = serde_json::from_str(&sums).expect("it answers with JSON");
        sums[class]["keys"].as_u64().unwrap_or_else(|| panic!("{class}: {sums}"))
    }
}

/// The health check of the registry, asked of the one that runs here.
fn registry_is_well(engine: &Engine) -> bool {
    let check = engine.compose.services["registry"].health_check();
    let url = check.last().expect("it has a check");
    let (_, path) = url.split_once(":8080").expect("it asks the port of the container");
    let (server, _) = engine.registry.url().split_once("/apis").expect("it is Apicurio");
    matches!(http::get(&format!("{server}{path}")), Ok((200, _)))
}

#[test]
fn the_whole_file_runs_to_a_sum_that_adds_up_and_stops_within_its_grace_periods() {
    let mut engine = Engine::new();
    wait_until("the registry to be well", SOON, || registry_is_well(&engine));
    let compose = engine.compose.clone();
    let order: Vec<&Service> = compose.in_order().into_iter().filter(|s| s.image() == OWN_IMAGE).collect();
    for service in &order {
        engine.start(service);
    }
    engine.wait_completed("events");
    let published = published(&engine.running["events"].stdout());
    engine.wait_settled(&published, 1);
    let fates = engine.fates();
    for class in &CLASSES {
        let of = fates[class.name];
        assert_eq!(of.settled(), published[class.name], "{}: {of:?}", class.name);
        let least = [of.done, of.duplicates, of.retries, of.garbage, of.dead - of.garbage];
        assert!(least.iter().all(|count| *count > 0), "too little happened to {}: {of:?}", class.name);
        assert_eq!(engine.keys(class.name), of.done + of.dead - of.garbage, "{}", class.name);
    }

    // Whoever has the token that the configuration tells sees in the console what was dead-lettered, and nobody else does.
    let config = read("deploy/compose/tidegate.toml");
    let (_, rest) = config.split_once("tgc_").expect("the token is told");
    let token = format!("tgc_{}", rest.split_whitespace().next().expect("the token has an end"));
    engine.wait_healthy("console");
    let dead: u64 = fates.values().map(|of| of.dead).sum();
    wait_until("the console to show every dead letter", SOON, || {
        let (status, overview) = engine.overview(&token);
        assert_eq!(status, 200, "{overview}");
        overview["inbox"]["waiting"] == dead
    });
    assert_eq!(engine.overview(&token.replace("demo", "nono")).0, 401);

    // The same events once more: what is done does not run again, and what was refused is refused again.
    engine.start(&compose.services["events"]);
    engine.wait_completed("events");
    engine.wait_settled(&published, 2);
    for class in &CLASSES {
        let (before, after) = (fates[class.name], engine.fates()[class.name]);
        assert_eq!((after.done, after.dead), (before.done, 2 * before.dead), "{}: {after:?}", class.name);
        assert_eq!(after.settled(), 2 * published[class.name], "{}: {after:?}", class.name);
    }
    for service in order.iter().rev().filter(|service| service.value.get("restart").is_some()) {
        engine.stop(service);
    }
}
