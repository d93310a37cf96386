//! A pipeline under test: its configuration, its topics, and its services as processes of the real binary.
//!
//! ```no_run
//! use tidegate_tests::pipeline::Pipeline;
//! use tidegate_tests::servers::{Kafka, Registry};
//!
//! let mut pipeline = Pipeline::new("pay", Kafka::shared(), Registry::shared().url());
//! let source = pipeline.source("payments", 3, "earliest");
//! pipeline.configure(&format!(
//!     "[classes.charge]\nsource = \"{source}\"\nkey = [\"payment_id\"]\nhandler = {{ type = \"log\" }}\n"
//! ));
//! pipeline.apply_topics();
//! pipeline.start("ingest", &["ingest"]);
//! pipeline.start("worker", &["worker", "--tier", "default"]);
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::guard::Exit;
use crate::http;
use crate::kafka_io::{Client, ReadRecord, unique};
use crate::ports::free_port;
use crate::process::{Process, Setup};
use crate::servers::Kafka;
use crate::wait::wait_until;

/// How long a service may take to be ready: the group must have given it its partitions.
pub const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a service may take to end by SIGTERM.
pub const STOPPED_WITHIN: Duration = Duration::from_secs(40);

/// A pipeline with a name of its own, so that tests share one Kafka.
#[derive(Debug)]
pub struct Pipeline {
    /// Its name: the prefix of its topics and groups.
    pub name: String,
    /// Reads and writes its topics.
    pub client: Client,
    config: String,
    state: tempfile::TempDir,
    services: BTreeMap<String, Service>,
}

#[derive(Debug)]
struct Service {
    process: Process,
    url: String,
}

impl Pipeline {
    /// A pipeline that has no source and no class yet. Tiers have 4 partitions; retries wait 200 ms and 400 ms.
    pub fn new(prefix: &str, kafka: &Kafka, registry: &str) -> Self {
        Self::at(prefix, kafka.bootstrap(), registry)
    }

    /// The same, at any broker.
    pub fn at(prefix: &str, bootstrap: &str, registry: &str) -> Self {
        let name = unique(prefix);
        let state = tempfile::tempdir().expect("a temporary folder can be made");
        let config = format!(
            "[pipeline]\nname = \"{name}\"\n\n[kafka]\nbootstrap = \"{bootstrap}\"\nreplication = 1\n\n\
             [registry]\nurl = \"{registry}\"\nunknown_schema_grace = \"3s\"\ntimeout = \"30s\"\n\n\
             [retry]\nladder = [\"200ms\", \"400ms\"]\nwait_only = [\"2s\"]\n\n\
             [state]\ndir = \"{}\"\n\n[consume]\nsession_timeout = \"6s\"\n\n\
             [tiers.critical]\npartitions = 4\n\n[tiers.default]\npartitions = 4\n\n[tiers.bulk]\npartitions = 4\n\n",
            state.path().display()
        );
        Self { name, client: Client::new(bootstrap), config, state, services: BTreeMap::new() }
    }

    /// Creates a source topic with a name of its own and adds it to the configuration.
    pub fn source(&mut self, topic: &str, partitions: i32, start: &str) -> String {
        let topic = format!("{}.src.{topic}", self.name);
        self.client.create_topic(&topic, partitions);
        self.configure(&format!("[sources.\"{topic}\"]\nstart = \"{start}\"\n"));
        topic
    }

    /// Appends to the configuration.
    pub fn configure(&mut self, toml: &str) {
        self.config.push_str(toml);
        self.config.push('\n');
    }

    /// Replaces text of the configuration; it must be there.
    pub fn reconfigure(&mut self, from: &str, to: &str) {
        assert!(self.config.contains(from), "the configuration has no `{from}`:\n{}", self.config);
        self.config = self.config.replace(from, to);
    }

    /// Replaces the whole configuration.
    pub fn replace_config(&mut self, config: &str) {
        config.clone_into(&mut self.config);
    }

    /// The configuration.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// A topic of the pipeline: `topic("dlq")`, `topic("critical.jobs")`, `topic("default.retry-200ms")`.
    pub fn topic(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.name)
    }

    /// Runs a command of the binary to its end.
    pub fn run(&self, arguments: &[&str]) -> (Exit, String, String) {
        let mut process = Setup::new("command", arguments).config(&self.config).start();
        let exit = process.wait(Duration::from_secs(180));
        (exit, process.stdout(), process.stderr())
    }

    /// Creates the pipeline's topics, by `tidegate topics apply`.
    pub fn apply_topics(&self) {
        let (exit, stdout, stderr) = self.run(&["topics", "apply"]);
        assert!(exit.is_success(), "topics apply ended with {exit:?}:\n{stdout}\n{stderr}");
    }

    /// Starts a service and waits until it is ready. Each worker of a tier has a state folder of its own, by its name.
    pub fn start(&mut self, name: &str, arguments: &[&str]) {
        self.launch(name, arguments, &[]);
        self.wait_ready(name);
    }

    /// Starts a service without waiting, with more environment.
    pub fn launch(&mut self, name: &str, arguments: &[&str], env: &[(&str, &str)]) {
        self.launch_setup(name, Setup::new(name, arguments), env);
    }

    /// The same of any program: `Setup::new("worker", &["--tier", "default"]).program(built_binary("own-worker"))`.
    pub fn launch_setup(&mut self, name: &str, setup: Setup, env: &[(&str, &str)]) {
        let address = format!("127.0.0.1:{}", free_port());
        let dir = self.state_dir(name).display().to_string();
        let mut setup = setup
            .config(&self.config)
            .env("TIDEGATE_OBSERVE__LISTEN", &address)
            .env("TIDEGATE_STATE__DIR", &dir);
        for (variable, value) in env {
            setup = setup.env(variable, value);
        }
        let url = format!("http://{address}");
        self.services.insert(name.to_owned(), Service { process: setup.start(), url });
    }

    /// Starts another program than `tidegate` as a service, without waiting: a worker with handlers in Rust.
    pub fn launch_program(&mut self, name: &str, program: &Path, arguments: &[&str]) {
        self.launch_setup(name, Setup::new(name, arguments).program(program), &[]);
    }

    /// The state folder of a service: a worker's tier has its own in it.
    pub fn state_dir(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// Where a service shows its metrics and health: `http://127.0.0.1:9600`.
    pub fn url(&mut self, name: &str) -> String {
        self.service(name).url.clone()
    }

    /// Where a service has its metrics and health, as `127.0.0.1:PORT`.
    pub fn address(&mut self, name: &str) -> String {
        self.service(name).url.trim_start_matches("http://").to_owned()
    }

    /// What a service answers to a GET of this path: `get("worker", "/metrics")`; status 0: nothing.
    pub fn get(&mut self, name: &str, path: &str) -> (u16, String) {
        http::get(&format!("{}{path}", self.service(name).url)).unwrap_or_default()
    }

    /// Waits until the service is ready.
    pub fn wait_ready(&mut self, name: &str) {
        let service = self.service(name);
        let url = format!("{}/readyz", service.url);
        service.process.wait_for_url(&url, READY_WITHIN);
    }

    /// What `/readyz` answers now; status 0: nothing.
    pub fn readyz(&mut self, name: &str) -> (u16, String) {
        http::get(&format!("{}/readyz", self.service(name).url)).unwrap_or_default()
    }

    /// Waits until `/readyz` answers 503 with this text in it.
    pub fn wait_not_ready(&mut self, name: &str, text: &str, deadline: Duration) {
        wait_until(&format!("{name} is not ready because of `{text}`"), deadline, || {
            let (status, body) = self.readyz(name);
            status == 503 && body.contains(text)
        });
    }

    /// The process of a service.
    pub fn process(&mut self, name: &str) -> &mut Process {
        &mut self.service(name).process
    }

    /// The sum of a metric's samples whose labels contain each of `labels` (as `class="charge"`).
    pub fn metric(&mut self, name: &str, metric: &str, labels: &[&str]) -> f64 {
        let url = format!("{}/metrics", self.service(name).url);
        let (_, page) = http::get(&url).unwrap_or_default();
        let sample = |line: &&str| {
            let rest = line.strip_prefix(metric);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        };
        let value = |line: &str| {
            line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok()).unwrap_or(0.0)
        };
        page.lines().filter(sample).map(value).sum()
    }

    /// Ends a service by SIGTERM and expects it to end well.
    pub fn stop(&mut self, name: &str) {
        let Some(mut service) = self.services.remove(name) else { panic!("no service is called {name}") };
        service.process.sigterm();
        let exit = service.process.wait(STOPPED_WITHIN);
        assert!(exit.is_success(), "{name} ended with {exit:?}:\n{}", service.process.stderr());
    }

    /// Kills a service by SIGKILL. Its state folder stays for the next of the same name.
    pub fn kill(&mut self, name: &str) {
        let Some(mut service) = self.services.remove(name) else { panic!("no service is called {name}") };
        service.process.sigkill();
        service.process.wait(Duration::from_secs(60));
    }

    /// Waits until this many records stand in the dead-letter topic.
    pub fn wait_for_dead(&self, count: usize, deadline: Duration) -> Vec<ReadRecord> {
        self.client.wait_for_count(&self.topic("dlq"), count, deadline)
    }

    fn service(&mut self, name: &str) -> &mut Service {
        self.services.get_mut(name).unwrap_or_else(|| panic!("no service is called {name}"))
    }
}
