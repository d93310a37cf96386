//! How long pages of the console take, through HTTP, and how fast a replay without a limit goes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_bootstrap::Config;
use tidegate_domain::inbox::RampLimits;
use tidegate_operator::{Filter, Inbox, Needed, Ordering, Pace, Selection};

use super::index;
use super::measured::used;
use super::scenes::{self, Stage};
use crate::http::get;
use crate::pipeline::Pipeline;
use crate::ports::free_port;

/// How often each page is looked at.
const LOOKS: usize = 10;

/// Pages and lists that have no name in their address.
const LISTS: [&str; 20] = [
    "/",
    "/groups",
    "/groups?by=class",
    "/groups?by=handler",
    "/groups?q=endpoint",
    "/groups?q=order-4711",
    "/items",
    "/items?order=oldest-first",
    "/items?class=charge&kind=timeout",
    "/items?q=endpoint",
    "/items?q=order-4711",
    "/items?q=ord*",
    "/items?q=471*",
    "/replays",
    "/history",
    "/api/v1/overview",
    "/api/v1/groups",
    "/api/v1/items?limit=500",
    "/api/v1/runs",
    "/api/v1/history",
];

/// A pipeline whose dead-letter topic has this many letters.
fn filled(stage: &Stage<'_>, name: &str, records: usize) -> Pipeline {
    let pipeline = scenes::pipeline(stage, name);
    index::fill(stage.kafka.bootstrap(), &pipeline.topic("dlq"), records);
    pipeline
}

/// Every page and list at so many dead letters: the slowest of ten looks.
pub(super) fn pages(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    println!("\npages over HTTP ({records} dead letters)");
    let mut pipeline = filled(stage, "bench-console", records);
    let address = format!("127.0.0.1:{}", free_port());
    let began = Instant::now();
    pipeline.launch("console", &["console"], &[("TIDEGATE_CONSOLE__LISTEN", &address)]);
    let url = |path: &str| format!("http://{address}{path}");
    pipeline.process("console").wait_for_url(&url("/livez"), Duration::from_secs(30));
    let overview = |field: &str| -> Result<u64, String> {
        let (_, text) = get(&url("/api/v1/overview")).map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(answer["inbox"][field].as_u64().unwrap_or(u64::MAX))
    };
    while overview("waiting")? < records as u64 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let items = began.elapsed();
    while overview("wordless")? > 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let peak = |pipeline: &mut Pipeline| used(pipeline.process("console").pid()).peak_mib;
    println!(
        "  listed after {:.1} s, searchable after {:.1} s, peak {:.0} MiB",
        items.as_secs_f64(),
        began.elapsed().as_secs_f64(),
        peak(&mut pipeline)
    );
    let (_, text) = get(&url("/api/v1/items?limit=50")).map_err(|error| error.to_string())?;
    let listed: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let names: Vec<&str> =
        listed["items"].as_array().into_iter().flatten().filter_map(|item| item["item"].as_str()).collect();
    let group = listed["items"][0]["error"]["fingerprint"].as_str().unwrap_or_default();
    if names.len() < LOOKS {
        return Err(format!("the console lists {text}"));
    }
    let mut all: Vec<(String, Vec<String>)> =
        LISTS.iter().map(|path| ((*path).to_owned(), vec![url(path); LOOKS])).collect();
    all.push(("/groups/{group}".to_owned(), vec![url(&format!("/groups/{group}")); LOOKS]));
    let of_items = |path: &str| names.iter().take(LOOKS).map(|name| url(&format!("{path}{name}"))).collect();
    all.push(("/items/{item}, each once".to_owned(), of_items("/items/")));
    all.push(("/api/v1/items/{item}, each once more".to_owned(), of_items("/api/v1/items/")));
    for (name, urls) in all {
        look(&name, &urls)?;
    }
    println!("  peak {:.0} MiB", peak(&mut pipeline));
    pipeline.stop("console");
    Ok(())
}

/// Prints how long these took: the slowest and the middle one.
fn look(name: &str, urls: &[String]) -> Result<(), String> {
    let mut times = Vec::new();
    for url in urls {
        let began = Instant::now();
        let (status, text) = get(url).map_err(|error| error.to_string())?;
        times.push(began.elapsed());
        if status != 200 {
            return Err(format!("{url} answered {status}: {text}"));
        }
    }
    times.sort_unstable();
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    println!("    {name:<40} {:>7.1} ms, median {:>6.1}", millis(times.last()), millis(times.get(LOOKS / 2)));
    Ok(())
}

/// A replay of a tenth of the records, without a ramp or a rate, up to the last acknowledged record.
pub(super) fn replay(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let count = records / 10;
    println!("\nreplay without a limit ({count} dead letters)");
    for _ in 0..stage.rounds {
        let pipeline = filled(stage, "bench-replay", count);
        run_replay(&pipeline, count).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn run_replay(pipeline: &Pipeline, count: usize) -> Result<(), tidegate_operator::OperatorError> {
    let config = Config::parse("bench", pipeline.config(), std::iter::empty()).expect("it is valid");
    let dir = tempfile::tempdir().expect("a folder");
    let inbox = Inbox::open(Arc::new(config), Some(dir.path()))?;
    inbox.catch_up(Needed::Items, &mut |_| ControlFlow::Continue(()))?;
    let began = Instant::now();
    let snapshot = inbox.snapshot(&Selection::Filter(Filter::default()))?;
    let frozen = began.elapsed();
    let pace = Pace { rate: None, ramp: RampLimits::ALL_AT_ONCE };
    let outcome = inbox.order(&snapshot, Ordering::Replay { forced: false, pace }, "bench", None)?;
    let ordered = began.elapsed();
    // Nobody runs them, so the run has no end: it is left when everything is acknowledged.
    inbox.carry_out(outcome.run, "bench", &mut |progress| {
        if progress.published >= count as u64 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let all = began.elapsed();
    println!(
        "  frozen {:.2} s, ordered and read back {:.2} s, published {:.2} s: {:.0}/s, {:.0}/s of publishing alone",
        frozen.as_secs_f64(),
        (ordered - frozen).as_secs_f64(),
        (all - ordered).as_secs_f64(),
        count as f64 / all.as_secs_f64(),
        count as f64 / (all - ordered).as_secs_f64()
    );
    Ok(())
}
