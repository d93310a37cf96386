//! What `./x bench` measures: worker, ingest and retry, each beside a bare rdkafka loop on the same broker in the same run.
//!
//! Absolute figures belong to the machine; the ratios are what counts.
#![allow(clippy::print_stdout, reason = "a program for people")]

mod bare;
mod changelog;
mod console;
mod fill;
mod index;
mod marks;
mod measured;
mod scenes;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tidegate_worker::{Handler, Job, JobError, Options, Worker};

use crate::servers::{Kafka, Registry};

pub use changelog::marks_process;

#[derive(Debug, Parser)]
#[command(name = "./x bench", about = "Measure tidegate beside bare rdkafka loops")]
struct Arguments {
    /// What to measure: worker, waiting, changelog, ingest, retry, lateness, restore, takeover, index,
    /// pages, replay [default: all]
    scenes: Vec<String>,
    /// How many records the throughput scenes use
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
    /// How often each scene is run; the median is printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Runs the scenes that the command line names.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let name = [String::from("./x bench")];
    let arguments = match Arguments::try_parse_from(name.iter().chain(arguments)) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let wanted = |scene: &str| arguments.scenes.is_empty() || arguments.scenes.iter().any(|s| s == scene);
    println!("Starting a Kafka broker and a schema registry ...");
    let registry = Registry::start();
    let kafka = Kafka::start_for_measurements();
    let stage = scenes::Stage { kafka: &kafka, registry: &registry, rounds: arguments.rounds };
    let mut ran = 0;
    type Scene = fn(&scenes::Stage<'_>, usize) -> Result<(), String>;
    let all: [(&str, Scene); 11] = [
        ("worker", scenes::worker),
        ("waiting", scenes::waiting),
        ("changelog", changelog::changelog),
        ("ingest", scenes::ingest),
        ("retry", scenes::retry),
        ("lateness", scenes::lateness),
        ("restore", marks::restore),
        ("takeover", marks::takeover),
        ("index", index::index),
        ("pages", console::pages),
        ("replay", console::replay),
    ];
    for (name, scene) in all {
        if wanted(name) {
            scene(&stage, arguments.records)?;
            ran += 1;
        }
    }
    if ran == 0 { Err(format!("no scene is called {:?}", arguments.scenes)) } else { Ok(()) }
}

struct Nothing;

impl Handler for Nothing {
    async fn run(&self, _job: &Job) -> Result<(), JobError> {
        Ok(())
    }
}

struct Waits(Duration);

impl Handler for Waits {
    async fn run(&self, _job: &Job) -> Result<(), JobError> {
        tokio::time::sleep(self.0).await;
        Ok(())
    }
}

/// The worker that is measured.
pub fn worker_process(arguments: &[String]) -> ExitCode {
    let name = [String::from("tidegate-bench")];
    let options = Options::parse_from(name.iter().chain(arguments));
    let worker = Worker::new().handler("nothing", Nothing).handler("waits", Waits(Duration::from_millis(5)));
    match worker.run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err((_, message)) => {
            println!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
