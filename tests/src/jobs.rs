//! A pipeline of one class whose events say what their handler does: where tests of worker and retry start from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tidegate_codec::{CompiledSchema, wire};
use tidegate_domain::JobHeader;
use tidegate_domain::job::JOB_HEADER;

use crate::endpoint::{Answer, Call, Endpoint};
use crate::kafka_io::{ReadRecord, Record};
use crate::pipeline::Pipeline;
use crate::process::{Setup, built_binary};
use crate::servers::{Kafka, Registry};
use crate::wait::wait_until;

/// The name of the class.
pub const CLASS: &str = "task";
/// Names the file in which `tidegate-test-worker` notes its runs.
pub const RUNS_VARIABLE: &str = "TEST_WORKER_RUNS";
/// For what takes a moment on an idle machine.
pub const SOON: Duration = Duration::from_secs(120);

/// The schema of the events.
pub const SCHEMA: &str = r#"{"type":"record","name":"Task","namespace":"test","fields":[
    {"name":"id","type":"string"},{"name":"lane","type":"string"},{"name":"script","type":"string"}]}"#;

/// An event.
#[derive(Debug, Clone)]
pub struct Task {
    pub id: String,
    pub lane: String,
    pub script: String,
}

impl Task {
    /// A task in a lane of its own.
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        Self { lane: id.clone(), id, script: String::new() }
    }

    #[must_use]
    pub fn lane(mut self, lane: &str) -> Self {
        self.lane = lane.to_owned();
        self
    }

    #[must_use]
    pub fn script(mut self, script: &str) -> Self {
        self.script = script.to_owned();
        self
    }
}

/// `count` tasks named by `prefix` and a number.
pub fn tasks(prefix: &str, count: usize) -> Vec<Task> {
    (0..count).map(|n| Task::new(format!("{prefix}-{n}"))).collect()
}

/// The pipeline, its source and its endpoint.
#[derive(Debug)]
pub struct Jobs {
    pub pipeline: Pipeline,
    pub endpoint: Endpoint,
    pub source: String,
    schema: CompiledSchema,
    runs: PathBuf,
    in_rust: bool,
    began: (Instant, SystemTime),
}

/// Making one. `class` is the text of the class without source and handler: `key = ["id"]` and more.
impl Jobs {
    /// Jobs that are done at once, one for each `id`, and how often each was run.
    pub fn noting(prefix: &str) -> (Self, Tally) {
        let tally = Tally::default();
        let noted = tally.clone();
        let jobs = Self::over_http(prefix, r#"key = ["id"]"#, move |call| {
            noted.note(call);
            Answer::ok()
        });
        (jobs, tally)
    }

    /// Jobs are calls of the endpoint, which answers as the script says.
    pub fn over_http(
        prefix: &str,
        class: &str,
        script: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::over_http_at(Kafka::shared(), prefix, class, script)
    }

    /// The same on another Kafka.
    pub fn over_http_at(
        kafka: &Kafka,
        prefix: &str,
        class: &str,
        script: impl Fn(&Call) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let endpoint = Endpoint::start(script);
        let handler = format!("{{ type = \"http\", url = \"{}/run\" }}", endpoint.url());
        Self::new(kafka, prefix, class, &handler, endpoint)
    }

    /// Jobs are runs of `tidegate-test-worker`, which does what the task's script says.
    pub fn in_rust(prefix: &str, class: &str) -> Self {
        let mut jobs = Self::new(
            Kafka::shared(),
            prefix,
            class,
            "{ type = \"rust\" }",
            Endpoint::start(|_| Answer::ok()),
        );
        jobs.in_rust = true;
        jobs
    }

    fn new(kafka: &Kafka, prefix: &str, class: &str, handler: &str, endpoint: Endpoint) -> Self {
        let registry = Registry::shared();
        let mut pipeline = Pipeline::new(prefix, kafka, registry.url());
        // Tiers that no test here uses cost topics, and so time.
        for tier in ["critical", "bulk"] {
            pipeline.reconfigure(
                &format!("[tiers.{tier}]\npartitions = 4"),
                &format!("[tiers.{tier}]\npartitions = 1"),
            );
        }
        let source = pipeline.source("tasks", 4, "earliest");
        pipeline
            .configure(&format!("[classes.{CLASS}]\nsource = \"{source}\"\nhandler = {handler}\n{class}\n"));
        let id = registry.register(&format!("{source}-value"), SCHEMA);
        let schema = CompiledSchema::parse(id, SCHEMA, &[]).expect("the schema is valid");
        let runs = pipeline.state_dir("runs.log");
        let began = (Instant::now(), SystemTime::now());
        Self { pipeline, endpoint, source, schema, runs, in_rust: false, began }
    }
}

/// Running.
impl Jobs {
    /// Creates the topics, starts ingest, retry and a worker, and waits until all are ready.
    pub fn start(&mut self) {
        self.start_these(&["ingest", "retry", "worker"]);
    }

    /// Creates the topics, and starts some of the three.
    pub fn start_these(&mut self, services: &[&str]) {
        self.pipeline.apply_topics();
        services.iter().for_each(|service| self.launch(service));
        services.iter().for_each(|service| self.pipeline.wait_ready(service));
    }

    /// Starts one of the three, or another worker (any other name), and waits until it is ready.
    pub fn start_one(&mut self, service: &str) {
        self.launch(service);
        self.pipeline.wait_ready(service);
    }

    /// The same without waiting.
    pub fn launch(&mut self, service: &str) {
        let runs = self.runs.display().to_string();
        match service {
            "ingest" | "retry" => self.pipeline.launch(service, &[service], &[]),
            _ if self.in_rust => {
                let program = built_binary("tidegate-test-worker");
                let setup = Setup::new(service, &["--tier", "default"]).program(program);
                self.pipeline.launch_setup(service, setup, &[(RUNS_VARIABLE, &runs)]);
            }
            _ => self.pipeline.launch(service, &["worker", "--tier", "default"], &[]),
        }
    }

    /// How many handlers one worker runs at a time; before the start.
    pub fn set_concurrency(&mut self, concurrency: usize) {
        let tier = "[tiers.default]\npartitions = 4";
        self.pipeline.reconfigure(tier, &format!("{tier}\nconcurrency = {concurrency}"));
    }

    /// The task as a record of the source topic.
    pub fn record(&self, task: &Task) -> Record {
        let event = json!({ "id": task.id, "lane": task.lane, "script": task.script });
        let datum = self.schema.encode_json(&event).expect("a task fits its schema");
        Record::default().key(task.lane.clone()).value(wire::frame(self.schema.id(), &datum))
    }

    /// Publishes the tasks in order.
    pub fn publish(&self, tasks: &[Task]) {
        let records: Vec<Record> = tasks.iter().map(|task| self.record(task)).collect();
        self.pipeline.client.produce_all(&self.source, &records);
    }

    /// Waits until ingest has settled all events, and the workers all jobs.
    pub fn wait_settled(&self, deadline: Duration) {
        let (client, name) = (&self.pipeline.client, &self.pipeline.name);
        client.wait_for_no_lag(&format!("{name}.ingest"), &self.source, deadline);
        client.wait_for_no_lag(&format!("{name}.default.worker"), &self.job_topic(), deadline);
    }

    /// The same when jobs are retried: nothing waits in a delay topic either.
    pub fn wait_all_settled(&self, deadline: Duration) {
        let name = &self.pipeline.name;
        let client = &self.pipeline.client;
        let delays: Vec<String> = client
            .topics()
            .into_iter()
            .filter(|topic| topic.starts_with(&format!("{name}.default.retry-")))
            .collect();
        wait_until("everything to be settled", deadline, || {
            client.lag(&format!("{name}.ingest"), &self.source) == 0
                && delays.iter().all(|topic| client.lag(&format!("{name}.retry"), topic) == 0)
                && client.lag(&format!("{name}.default.worker"), &self.job_topic()) == 0
                // A job could have gone into a delay topic since these were looked at.
                && delays.iter().all(|topic| client.lag(&format!("{name}.retry"), topic) == 0)
        });
    }

    pub fn job_topic(&self) -> String {
        self.pipeline.topic("default.jobs")
    }

    pub fn delay_topic(&self, rung: &str) -> String {
        self.pipeline.topic(&format!("default.retry-{rung}"))
    }

    /// A counter of a worker, of all its samples with these labels.
    pub fn count(&mut self, metric: &str, labels: &[&str]) -> u64 {
        self.pipeline.metric("worker", metric, labels) as u64
    }

    /// Waits until a counter of the worker is so high.
    pub fn wait_for_metric(&mut self, metric: &str, labels: &[&str], at_least: u64) {
        wait_until(&format!("{metric} {labels:?} to reach {at_least}"), SOON, || {
            self.count(metric, labels) >= at_least
        });
    }

    /// What the test worker has noted so far: `start ID ATTEMPT`, `end ID`, `dropped ID`.
    pub fn runs(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.runs).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// Waits until the test worker has noted this line so often.
    pub fn wait_for_run(&self, line: &str, count: usize) {
        wait_until(&format!("the line {line:?} {count} times in {:?}", self.runs()), SOON, || {
            self.runs().iter().filter(|noted| *noted == line).count() >= count
        });
    }

    /// The moment in milliseconds since the epoch, as Kafka's timestamps are.
    pub fn millis(&self, at: Instant) -> i64 {
        let wall = self.began.1 + at.saturating_duration_since(self.began.0);
        wall.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }
}

/// The task of a call.
pub fn id(call: &Call) -> String {
    call.json()["id"].as_str().unwrap_or_default().to_owned()
}

/// The script of a call's task.
pub fn script(call: &Call) -> String {
    call.json()["script"].as_str().unwrap_or_default().to_owned()
}

/// Which attempt a call is.
pub fn attempt(call: &Call) -> u32 {
    call.header("tidegate-attempt").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The `job` header of a record.
///
/// # Panics
/// When it has none, or a broken one.
#[track_caller]
pub fn job_header(record: &ReadRecord) -> JobHeader<'_> {
    let text = record.header(JOB_HEADER).unwrap_or_else(|| panic!("no job header on {record}"));
    JobHeader::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// How often each task was called. A script notes its calls here when there are too many to look through.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<String, u32>>>);

impl Tally {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the call; returns how many its task had, this one included.
    pub fn note(&self, call: &Call) -> u32 {
        *self.lock().entry(id(call)).and_modify(|count| *count += 1).or_insert(1)
    }

    /// How many different tasks were called.
    pub fn tasks(&self) -> usize {
        self.lock().len()
    }

    /// How many calls there were in all.
    pub fn calls(&self) -> usize {
        self.lock().values().map(|&count| count as usize).sum()
    }

    /// Tasks with another number of calls than this, with theirs.
    pub fn other_than(&self, count: u32) -> Vec<(String, u32)> {
        let other = |(id, &calls): (&String, &u32)| (calls != count).then(|| (id.clone(), calls));
        self.lock().iter().filter_map(other).collect()
    }

    /// Waits until so many different tasks were called.
    #[track_caller]
    pub fn wait_for_tasks(&self, count: usize, deadline: Duration) {
        wait_until(&format!("{count} tasks to be called"), deadline, || self.tasks() >= count);
    }

    /// # Panics
    /// When a task of these was never called.
    #[track_caller]
    pub fn assert_has(&self, tasks: &[Task]) {
        let seen = self.lock();
        let missing: Vec<&str> =
            tasks.iter().map(|task| task.id.as_str()).filter(|id| !seen.contains_key(*id)).collect();
        assert!(
            missing.is_empty(),
            "{} tasks never ran: {:?}",
            missing.len(),
            &missing[..missing.len().min(10)]
        );
    }
}
