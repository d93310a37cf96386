//! `tidegate-test-worker`: a user's worker whose handler does what the event says, so that tests can make it misbehave.
//!
//! Each run is noted in the file that `TEST_WORKER_RUNS` names, as it happens, so that it outlives the process: `start ID ATTEMPT`,
//! then `end ID`, or `dropped ID` where the run was cut off.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use tidegate_tests::jobs::{CLASS, RUNS_VARIABLE};
use tidegate_worker::{Handler, Job, JobError, Worker};

#[derive(serde::Deserialize)]
struct Task {
    id: String,
    script: String,
}

struct Scripted {
    runs: PathBuf,
}

impl Scripted {
    fn note(&self, line: &str) {
        let file = std::fs::File::options().append(true).create(true).open(&self.runs);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.expect("the file of runs can be written");
    }

    /// How often the task was run before, in this process or an earlier one.
    fn earlier_runs(&self, id: &str) -> u64 {
        let runs = std::fs::read_to_string(&self.runs).unwrap_or_default();
        let start = format!("start {id} ");
        runs.lines().filter(|line| line.starts_with(&start)).count() as u64
    }
}

/// Notes how a run ended, also when it is dropped.
struct Run<'a> {
    handler: &'a Scripted,
    id: &'a str,
    ended: bool,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.handler.note(&format!("{} {}", if self.ended { "end" } else { "dropped" }, self.id));
    }
}

impl Handler for Scripted {
    /// The script is a word and a number: `panic 2` panics in its first two runs, `slow 50` takes 50 ms. Without a number it does
    /// so in every run.
    async fn run(&self, job: &Job) -> Result<(), JobError> {
        let task: Task = job.decode().await?;
        let earlier = self.earlier_runs(&task.id);
        self.note(&format!("start {} {}", task.id, job.attempt()));
        let mut run = Run { handler: self, id: &task.id, ended: false };
        let (word, number) = task.script.split_once(' ').unwrap_or((&task.script, ""));
        let number = number.parse().unwrap_or(u64::MAX);
        let misbehaves = earlier < number;
        let result = match word {
            "panic" if misbehaves => panic!("told to by {}", task.id),
            "abort" if misbehaves => std::process::abort(),
            "hang" if misbehaves => std::future::pending().await,
            "transient" if misbehaves => Err(JobError::transient("told-to", "try again")),
            "snooze" if misbehaves => Err(JobError::Snooze(Duration::from_millis(150))),
            "slow" => {
                tokio::time::sleep(Duration::from_millis(number)).await;
                Ok(())
            }
            _ => Ok(()),
        };
        run.ended = true;
        result
    }
}

fn main() -> ExitCode {
    let runs = std::env::var_os(RUNS_VARIABLE).map_or_else(|| PathBuf::from("runs.log"), PathBuf::from);
    Worker::new().handler(CLASS, Scripted { runs }).main()
}
