//! A pipeline whose jobs fail until they are healed, and its console.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::standstill::keep_sessions;
use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Task, script, tasks};
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::ports::free_port;

/// How many jobs fail for one cause.
pub(crate) const BROKEN: usize = 40;

/// Lets so many calls through at once; others wait for it.
#[derive(Debug)]
struct Gate {
    places: Mutex<usize>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.opened.wait_while(places, |places| *places == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
    }

    fn open(&self, places: usize) {
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = places;
        self.opened.notify_all();
    }
}

pub(crate) struct Shop {
    pub(crate) jobs: Jobs,
    healed: Arc<AtomicBool>,
    gate: Arc<Gate>,
    address: String,
    pub(crate) operator: String,
    pub(crate) reader: String,
}

impl Shop {
    /// Jobs that failed: 40 for one cause, which can be healed, and one for another. Ana is an operator of the console, Ben a reader.
    pub(crate) fn open() -> Self {
        let healed = Arc::new(AtomicBool::new(false));
        let gate = Arc::new(Gate { places: Mutex::new(usize::MAX), opened: Condvar::new() });
        let (answers, of_healed) = (healed.clone(), gate.clone());
        let class = "key = [\"id\"]\ntime_limit = \"5m\"";
        let mut jobs = Jobs::over_http("shop", class, move |call| match script(call).as_str() {
            "closed" => Answer::status(422).body("the account is closed"),
            _ if answers.load(Ordering::Relaxed) => {
                tokio::task::block_in_place(|| of_healed.pass());
                Answer::ok()
            }
            _ => Answer::status(422).body(r#"{"error":"field `currency` is missing"}"#),
        });
        // Each job is called once a round, and nobody is killed but the console.
        keep_sessions(&mut jobs.pipeline);
        let operator = Self::user(&mut jobs.pipeline, "ana", "operator");
        let reader = Self::user(&mut jobs.pipeline, "ben", "reader");
        jobs.start();
        let mut all = tasks("order", BROKEN);
        all.push(Task::new("refund-7").script("closed"));
        jobs.publish(&all);
        jobs.pipeline.wait_for_dead(BROKEN + 1, SOON);
        let mut shop =
            Self { jobs, healed, gate, address: format!("127.0.0.1:{}", free_port()), operator, reader };
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

    /// Of what is healed, so many calls are answered from now on, and the others wait.
    pub(crate) fn answer(&self, calls: usize) {
        self.gate.open(calls);
    }
}
