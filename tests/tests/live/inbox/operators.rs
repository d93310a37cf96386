//! A pipeline whose endpoint is broken until it is repaired, and operators with an index each.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::standstill::keep_sessions;
use serde_json::Value;
use tidegate_bootstrap::Config;
use tidegate_operator::{Inbox, Needed};
use tidegate_tests::endpoint::Answer;
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Jobs, Tally, Task};
use tidegate_tests::ports::free_port;
use tidegate_tests::process::{Process, Setup};

/// No test takes so long, unless it fails.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Jobs that fail for good until the endpoint is repaired, those whose script is `away` as if it were away; those whose script is `poison`,
/// always.
pub(crate) struct Broken {
    pub(crate) jobs: Jobs,
    /// The calls since the repair.
    pub(crate) calls: Tally,
    repaired: Arc<AtomicBool>,
    indexes: tempfile::TempDir,
}

impl Broken {
    pub(crate) fn new(prefix: &str) -> Self {
        Self::of_class(prefix, "")
    }

    /// The same with more in the configuration of the class.
    fn of_class(prefix: &str, more: &str) -> Self {
        let class = format!("key = [\"id\"]\nmax_attempts = 1\n{more}");
        let (repaired, calls) = (Arc::new(AtomicBool::new(false)), Tally::default());
        let (is_repaired, noted) = (repaired.clone(), calls.clone());
        let mut jobs = Jobs::over_http(prefix, &class, move |call| {
            let script = tidegate_tests::jobs::script(call);
            if !is_repaired.load(Ordering::Relaxed) {
                return Answer::status(if script == "away" { 503 } else { 422 });
            }
            noted.note(call);
            match script.as_str() {
                "poison" => Answer::status(422),
                "slow" => Answer::ok().after(Duration::from_millis(500)),
                _ => Answer::ok(),
            }
        });
        // No worker is killed, and one that stands still for a moment must not run anything again.
        keep_sessions(&mut jobs.pipeline);
        Self { jobs, calls, repaired, indexes: tempfile::tempdir().unwrap() }
    }

    /// With all of these dead-lettered once.
    pub(crate) fn with_dead(prefix: &str, tasks: &[Task]) -> Self {
        Self::of_class_with_dead(prefix, "", tasks)
    }

    /// The same with more in the configuration of the class.
    pub(crate) fn of_class_with_dead(prefix: &str, more: &str, tasks: &[Task]) -> Self {
        let mut broken = Self::of_class(prefix, more);
        broken.jobs.start();
        broken.jobs.publish(tasks);
        broken.jobs.pipeline.wait_for_dead(tasks.len(), LONG);
        broken.jobs.wait_settled(LONG);
        broken
    }

    pub(crate) fn repair(&self) {
        self.repaired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn break_again(&self) {
        self.repaired.store(false, Ordering::Relaxed);
    }

    /// Starts a command of `operator`, who has an index of their own.
    pub(crate) fn start(&self, operator: &str, arguments: &[&str]) -> Process {
        self.setup(operator, arguments).start()
    }

    fn setup(&self, operator: &str, arguments: &[&str]) -> Setup {
        let index = self.indexes.path().join(operator).display().to_string();
        let arguments = [arguments, &["--index", &index]].concat();
        Setup::new(operator, &arguments)
            .config(self.jobs.pipeline.config())
            .env("TIDEGATE_OPERATOR", operator)
    }

    /// A console that has the index of `operator`.
    pub(crate) fn console(&self, operator: &str) -> Process {
        let address = format!("127.0.0.1:{}", free_port());
        let mut console =
            self.setup(operator, &["console"]).env("TIDEGATE_CONSOLE__LISTEN", &address).start();
        console.wait_for_url(&format!("http://{address}/livez"), LONG);
        console
    }

    /// What the commands and the console of `operator` are thin around, up to date.
    pub(crate) fn inbox(&self, operator: &str) -> Inbox {
        let config = Config::parse("test", self.jobs.pipeline.config(), std::iter::empty()).unwrap();
        let inbox = Inbox::open(Arc::new(config), Some(&self.indexes.path().join(operator))).unwrap();
        inbox.catch_up(Needed::Items, &mut |_| ControlFlow::Continue(())).unwrap();
        inbox
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, operator: &str, arguments: &[&str]) -> (Exit, String, String) {
        let mut process = self.start(operator, arguments);
        let exit = process.wait(LONG);
        (exit, process.stdout(), process.stderr())
    }

    /// Runs it, expects this exit code, and reads its output as JSON.
    #[track_caller]
    pub(crate) fn json(&self, operator: &str, code: i32, arguments: &[&str]) -> Value {
        let (exit, stdout, stderr) = self.run(operator, &[arguments, &["--json"]].concat());
        assert_eq!(exit, Exit(code), "{arguments:?}:\n{stdout}\n{stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
    }

    /// How many items are in each state, as somebody sees it whose index is new.
    pub(crate) fn states(&self) -> Value {
        let page =
            self.json(&tidegate_tests::kafka_io::unique("observer"), 0, &["dlq", "groups", "--by", "class"]);
        assert_eq!(page["total"], 1, "{page}");
        page["groups"][0]["states"].clone()
    }

    /// The only run that there is.
    pub(crate) fn only_run(&self, operator: &str) -> Value {
        self.json(operator, 0, &["dlq", "history", "--runs"])
    }
}
