//! A pipeline whose jobs fail until they are healed, and its console.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Task, script, tasks};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::ports::free_port;

/// How many jobs fail for one cause.
pub(crate) const BROKEN: usize = 40;

pub(crate) struct Shop {
    pub(crate) jobs: Jobs,
    healed: Arc<AtomicBool>,
    address: String,
    pub(crate) operator: String,
    pub(crate) reader: String,
}

impl Shop {
    /// Jobs that failed: 40 for one cause, which can be healed, and one for another. Ana is an operator of the console, Ben a reader.
    pub(crate) fn open() -> Self {
        let healed = Arc::new(AtomicBool::new(false));
        let answers = healed.clone();
        let mut jobs = Jobs::over_http("shop", r#"key = ["id"]"#, move |call| match script(call).as_str() {
            "closed" => Answer::status(422).body("the account is closed"),
            _ if answers.load(Ordering::Relaxed) => Answer::ok(),
            _ => Answer::status(422).body(r#"{"error":"field `currency` is missing"}"#),
        });
        let operator = Self::user(&mut jobs.pipeline, "ana", "operator");
        let reader = Self::user(&mut jobs.pipeline, "ben", "reader");
        jobs.start();
        let mut all = tasks("order", BROKEN);
        all.push(Task::new("refund-7").script("closed"));
        jobs.publish(&all);
        jobs.pipeline.wait_for_dead(BROKEN + 1, SOON);
        let mut shop = Self { jobs, healed, address: format!("127.0.0.1:{}", free_port()), operator, reader };
        shop.start_console();
        shop
    }

    /// Makes a token for a user, by the command that operators use, and configures the user.
    fn user(pipeline: &mut Pipeline, name: &str, role: &str) -> String {
        let (exit, stdout, stderr) = pipeline.run(&["console", "token", name, "--role", role]);
        assert!(exit.is_success(), "{stderr}");
        let (token, lines) = stdout.split_once('\n').unwrap();
        pipeline.configure(lines);
        token.to_owned()
    }

    pub(crate) fn start_console(&mut self) {
        let worker = self.jobs.pipeline.url("worker").replace("http://", "");
        let env = [
            ("TIDEGATE_CONSOLE__LISTEN", self.address.as_str()),
            ("TIDEGATE_CONSOLE__SCRAPE", worker.as_str()),
        ];
        self.jobs.pipeline.launch("console", &["console"], &env);
        let url = self.url("/livez");
        self.jobs.pipeline.process("console").wait_for_url(&url, SOON);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// From now on, what failed for the first cause works.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }
}
