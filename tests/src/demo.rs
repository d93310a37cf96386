//! The story that `./x demo` tells.
#![allow(clippy::print_stdout, reason = "a program for people")]

mod events;
mod pipeline;
mod summary;

use std::time::{Duration, Instant};

use crate::servers::{Kafka, Registry};

use events::CLASSES;
use pipeline::Pipeline;
use summary::Summary;

/// How long everything may take once the servers run; a retry ladder is 5 s of it.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the demo; says why when its sums don't add up.
pub fn run() -> Result<(), String> {
    println!("Starting a Kafka broker and a schema registry ...");
    let registry = std::thread::spawn(Registry::start);
    let kafka = Kafka::start(1);
    let registry = registry.join().map_err(|_| "the registry did not start".to_owned())?;
    println!("  Kafka {}   registry {}", kafka.bootstrap(), registry.url());

    let client = kafka.client();
    for class in &CLASSES {
        client.create_topic(class.topic, 3);
    }
    let mut pipeline = Pipeline::start(kafka.bootstrap(), registry.url())?;
    println!("  ingest, retry and three workers run as processes of their own\n");

    let published = events::publish(&client, &registry);
    println!("Published {} events with duplicates, failures and garbage.\n", published.values().sum::<u64>());
    let started = Instant::now();
    let summary = watch(&pipeline, &client, &published, started)?;
    println!("\n{summary}");
    pipeline.stop()?;
    summary.check(&pipeline.endpoint_calls())?;
    println!(
        "Every event is accounted for, {:.1} s after the first was published.",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Shows progress until everything is settled.
fn watch(
    pipeline: &Pipeline,
    client: &crate::kafka_io::Client,
    published: &events::Published,
    started: Instant,
) -> Result<Summary, String> {
    loop {
        let summary = Summary::read(pipeline, client, published)?;
        println!("  {:>5.1} s  {}", started.elapsed().as_secs_f64(), summary.line());
        if summary.is_complete() {
            return Ok(summary);
        }
        if started.elapsed() > DEADLINE {
            return Err(format!("not everything was settled within {DEADLINE:?}:\n{summary}"));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
