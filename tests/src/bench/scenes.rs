//! The scenes.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_codec::{CompiledSchema, wire};
use tidegate_domain::{JobHeader, UnixMillis};

use super::fill::{self, VALUE, fill};
use super::measured::{Used, median, percentile, used};
use super::{bare, fill::now};
use crate::pipeline::Pipeline;
use crate::process::built_binary;
use crate::servers::{Kafka, Registry};

/// What scenes run on.
pub(super) struct Stage<'a> {
    pub(super) kafka: &'a Kafka,
    pub(super) registry: &'a Registry,
    pub(super) rounds: usize,
}

pub(super) const PARTITIONS: u32 = 4;
const SCHEMA: &str = include_str!("../../../schemas/payment.avsc");

pub(super) fn pipeline(stage: &Stage<'_>, name: &str) -> Pipeline {
    let mut pipeline = Pipeline::new(name, stage.kafka, stage.registry.url());
    let source = pipeline.source("events", PARTITIONS as i32, "earliest");
    for class in ["nothing", "waits"] {
        pipeline.configure(&format!(
            "[classes.{class}]\ntier = \"critical\"\nsource = \"{source}\"\nkey = [\"payment_id\"]\nwhen = {{ currency = \"{class}\" }}\n\
             handler = {{ type = \"rust\" }}\n"
        ));
    }
    // Four seconds of wait, for the lateness scene.
    pipeline.reconfigure("ladder = [\"200ms\", \"400ms\"]", "ladder = [\"200ms\", \"4s\"]");
    pipeline.reconfigure("wait_only = [\"2s\"]", "wait_only = [\"16s\"]");
    pipeline.configure("[observe]\nlog = \"warn\"\n");
    pipeline.apply_topics();
    pipeline
}

/// Starts a process, waits until its counter has `count`, and gives records per second and what the process used.
pub(super) fn measure(
    pipeline: &mut Pipeline,
    name: &str,
    start: impl FnOnce(&mut Pipeline),
    count: usize,
    counter: impl Fn(&mut Pipeline) -> f64,
) -> Result<(f64, Used), String> {
    start(pipeline);
    let launched = Instant::now();
    let mut first: Option<(Instant, f64)> = None;
    loop {
        let have = counter(pipeline);
        let at = Instant::now();
        if have > 0.0 && first.is_none() {
            first = Some((at, have));
        }
        if have >= count as f64 {
            let (from, had) = first.unwrap_or((launched, 0.0));
            let used = used(pipeline.process(name).pid());
            let seconds = at.duration_since(from).as_secs_f64().max(0.001);
            pipeline.stop(name);
            return Ok(((have - had) / seconds, used));
        }
        if launched.elapsed() > Duration::from_secs(180) {
            return Err(format!("{name} handled {have} of {count} within 180 s"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn fill_jobs(stage: &Stage<'_>, pipeline: &Pipeline, class: &str, count: usize) -> String {
    let topic = pipeline.topic("critical.jobs");
    let due = now();
    fill(stage.kafka.bootstrap(), &topic, count, |number| {
        let (partition, header) = fill::job(class, "critical", number, PARTITIONS, due);
        (partition, vec![b'x'; VALUE], header)
    });
    topic
}

pub(super) fn launch_worker(pipeline: &mut Pipeline) {
    pipeline.launch_program(
        "worker",
        &built_binary("tidegate-bench"),
        &["worker-process", "--tier", "critical"],
    );
}

fn run_worker(stage: &Stage<'_>, class: &str, count: usize) -> Result<(f64, f64, Used), String> {
    let mut pipeline = pipeline(stage, "bench-worker");
    let topic = fill_jobs(stage, &pipeline, class, count);
    let bare = bare::consume(stage.kafka.bootstrap(), &topic, count);
    let label = format!("class=\"{class}\"");
    let done = |pipeline: &mut Pipeline| {
        pipeline.metric("worker", "tidegate_jobs_total", &[&label, "outcome=\"done\""])
    };
    let (rate, used) = measure(&mut pipeline, "worker", launch_worker, count, done)?;
    Ok((rate, bare, used))
}

/// No-op jobs through the worker, marks and commits included.
pub(super) fn worker(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let rounds =
        (0..stage.rounds).map(|_| run_worker(stage, "nothing", records)).collect::<Result<Vec<_>, _>>()?;
    report("worker, no-op jobs", "bare consume", records, &rounds);
    Ok(())
}

/// Jobs that wait 5 ms, 256 at a time.
pub(super) fn waiting(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let count = records / 5;
    let rounds =
        (0..stage.rounds).map(|_| run_worker(stage, "waits", count)).collect::<Result<Vec<_>, _>>()?;
    report("worker, 5 ms jobs, 256 at a time (at most 51,200/s)", "bare consume", count, &rounds);
    Ok(())
}

/// Events through ingest.
pub(super) fn ingest(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let mut rounds = Vec::new();
    for _ in 0..stage.rounds {
        let mut pipeline = pipeline(stage, "bench-ingest");
        let source = pipeline.topic("src.events");
        let id = stage.registry.register(&format!("{source}-value"), SCHEMA);
        let schema = CompiledSchema::parse(id, SCHEMA, &[]).map_err(|error| error.to_string())?;
        fill(stage.kafka.bootstrap(), &source, records, |number| {
            let event = json!({
                "payment_id": format!("pay-{number}"), "order_id": "x".repeat(VALUE - 80), "customer_id": "cus-1",
                "amount_cents": 1, "currency": "nothing", "paid_at": 1_764_000_000_000_i64,
            });
            let datum = schema.encode_json(&event).expect("the event fits its schema");
            ((number % PARTITIONS as usize) as i32, wire::frame(id, &datum), "x".repeat(200))
        });
        let target = pipeline.topic("bulk.jobs");
        let bare = bare::consume_produce(stage.kafka.bootstrap(), &source, &target, records);
        let start = |pipeline: &mut Pipeline| pipeline.launch("ingest", &["ingest"], &[]);
        let settled =
            |pipeline: &mut Pipeline| pipeline.metric("ingest", "tidegate_events_total", &["forwarded"]);
        let (rate, used) = measure(&mut pipeline, "ingest", start, records, settled)?;
        rounds.push((rate, bare, used));
    }
    report("ingest, events", "bare consume-produce", records, &rounds);
    Ok(())
}

/// Records that are due already, through retry.
pub(super) fn retry(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let mut rounds = Vec::new();
    for _ in 0..stage.rounds {
        let mut pipeline = pipeline(stage, "bench-retry");
        let topic = pipeline.topic("critical.retry-200ms");
        let due = now();
        fill(stage.kafka.bootstrap(), &topic, records, |number| {
            let (partition, header) = fill::job("nothing", "critical", number, PARTITIONS, due);
            (partition, vec![b'x'; VALUE], header)
        });
        let target = pipeline.topic("bulk.jobs");
        let bare = bare::consume_produce(stage.kafka.bootstrap(), &topic, &target, records);
        let start = |pipeline: &mut Pipeline| pipeline.launch("retry", &["retry"], &[]);
        let handed =
            |pipeline: &mut Pipeline| pipeline.metric("retry", "tidegate_retry_records_total", &["jobs"]);
        let (rate, used) = measure(&mut pipeline, "retry", start, records, handed)?;
        rounds.push((rate, bare, used));
    }
    report("retry, due records", "bare consume-produce", records, &rounds);
    Ok(())
}

/// How late records are handed on when many wait: the broker's time of arrival in the job topic against the due time that is
/// written in each record.
pub(super) fn lateness(stage: &Stage<'_>, _records: usize) -> Result<(), String> {
    println!("\nretry lateness, in ms ({} rounds, rung 4s with jitter 0.2)", stage.rounds);
    for waiting in [1000, 50_000] {
        let (mut p50, mut p99, mut peak, mut earliest) = (Vec::new(), Vec::new(), Vec::new(), i64::MAX);
        for _ in 0..stage.rounds {
            let (late, used) = run_lateness(stage, waiting)?;
            earliest = earliest.min(late[0]);
            p50.push(percentile(&late, 0.50) as f64);
            p99.push(percentile(&late, 0.99) as f64);
            peak.push(used.peak_mib);
        }
        println!(
            "  {waiting:>7} waiting: p50 {:>5.0}   p99 {:>5.0}   earliest {earliest:>4} (below 0 is too early)   peak {:.0} MiB",
            median(p50),
            median(p99),
            median(peak)
        );
        if earliest < 0 {
            return Err(format!("a record was handed on {} ms before it was due", -earliest));
        }
    }
    Ok(())
}

fn run_lateness(stage: &Stage<'_>, waiting: usize) -> Result<(Vec<i64>, Used), String> {
    let mut pipeline = pipeline(stage, "bench-late");
    pipeline.start("retry", &["retry"]);
    let topic = pipeline.topic("critical.retry-4s");
    let start = now();
    fill(stage.kafka.bootstrap(), &topic, waiting, |number| {
        // Each as a worker would write it: now + 4 s, times a factor within 0.8 and 1.2.
        let wait = 3200 + i64::try_from(number * 7919 % 1600).unwrap_or(0);
        let due = UnixMillis(start.0.max(now().0) + wait);
        let (partition, header) = fill::job("nothing", "critical", number, PARTITIONS, due);
        (partition, vec![b'x'; VALUE], header)
    });
    let jobs = pipeline.topic("critical.jobs");
    let records = pipeline.client.wait_for_count(&jobs, waiting, Duration::from_secs(60));
    let used = used(pipeline.process("retry").pid());
    pipeline.stop("retry");
    let late = |record: &crate::kafka_io::ReadRecord| {
        let header = record.header("job").ok_or("a record without job header")?;
        let header = JobHeader::parse(header.as_bytes()).map_err(|error| error.to_string())?;
        Ok::<i64, String>(record.timestamp.unwrap_or(0) - header.due.0)
    };
    let mut late = records.iter().map(late).collect::<Result<Vec<_>, _>>()?;
    late.sort_unstable();
    Ok((late, used))
}

fn report(name: &str, bare_name: &str, count: usize, rounds: &[(f64, f64, Used)]) {
    let rate = median(rounds.iter().map(|round| round.0).collect());
    let bare = median(rounds.iter().map(|round| round.1).collect());
    let cpu = median(rounds.iter().map(|round| round.2.cpu_seconds * 1e6 / count as f64).collect());
    let peak = median(rounds.iter().map(|round| round.2.peak_mib).collect());
    println!("\n{name} ({count} records, median of {})", rounds.len());
    println!(
        "  {rate:>9.0}/s   {bare_name} {bare:>9.0}/s   ratio {:.2}   {cpu:.2} us CPU each   peak {peak:.0} MiB",
        rate / bare
    );
}
