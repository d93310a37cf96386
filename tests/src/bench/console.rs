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
use crate::background::block_on;
use crate::pipeline::Pipeline;
use crate::ports::free_port;

/// How often each page is looked at.
const LOOKS: usize = 10;

/// A pipeline whose dead-letter topic has this many letters.
fn filled(stage: &Stage<'_>, name: &str, records: usize) -> Pipeline {
    let pipeline = scenes::pipeline(stage, name);
    index::fill(stage.kafka.bootstrap(), &pipeline.topic("dlq"), records);
    pipeline
}

/// Lists that are looked at.
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

/// A console that is asked.
struct Site {
    address: String,
    /// One for all: making a client takes longer than a page.
    client: reqwest::Client,
}

impl Site {
    fn text(&self, path: &str) -> Result<String, String> {
        let url = format!("http://{}{path}", self.address);
        let request = self.client.get(&url);
        let answer = block_on(async move {
            let answer = request.send().await?;
            Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.text().await?))
        });
        match answer.map_err(|error| error.to_string())? {
            (200, text) => Ok(text),
            (status, text) => Err(format!("{url} answered {status}: {text}")),
        }
    }

    fn json(&self, path: &str) -> Result<Value, String> {
        serde_json::from_str(&self.text(path)?).map_err(|error| error.to_string())
    }

    /// A count of the overview.
    fn overview(&self, field: &str) -> Result<u64, String> {
        Ok(self.json("/api/v1/overview")?["inbox"][field].as_u64().unwrap_or(u64::MAX))
    }

    /// How long each of these takes.
    fn look(&self, name: &str, paths: &[String]) -> Result<(), String> {
        let mut times = Vec::new();
        for path in paths {
            let began = Instant::now();
            self.text(path)?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        let (slowest, median) = (millis(times.last()), millis(times.get(times.len() / 2)));
        println!("    {name:<40} {slowest:>7.1} ms, median {median:>6.1}");
        Ok(())
    }
}

/// Every page and list at so many dead letters: the slowest of ten looks.
pub(super) fn pages(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    println!("\npages over HTTP ({records} dead letters)");
    let mut pipeline = filled(stage, "bench-console", records);
    let site = Site {
        address: format!("127.0.0.1:{}", free_port()),
        client: reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?,
    };
    let began = Instant::now();
    pipeline.launch("console", &["console"], &[("TIDEGATE_CONSOLE__LISTEN", &site.address)]);
    let alive = format!("http://{}/livez", site.address);
    pipeline.process("console").wait_for_url(&alive, Duration::from_secs(30));
    while site.overview("waiting")? < records as u64 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let items = began.elapsed();
    while site.overview("wordless")? > 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (items, words) = (items.as_secs_f64(), began.elapsed().as_secs_f64());
    println!("  listed after {items:.1} s, searchable after {words:.1} s");
    look_at_all(&site)?;
    println!("  peak {:.0} MiB", used(pipeline.process("console").pid()).peak_mib);
    pipeline.stop("console");
    Ok(())
}

fn look_at_all(site: &Site) -> Result<(), String> {
    let listed = site.json("/api/v1/items?limit=50")?;
    let names: Vec<&str> =
        listed["items"].as_array().into_iter().flatten().filter_map(|item| item["item"].as_str()).collect();
    let group = listed["items"][0]["fingerprint"].as_str().unwrap_or_default();
    if names.len() < LOOKS {
        return Err(format!("the console lists {listed}"));
    }
    for path in LISTS {
        site.look(path, &vec![path.to_owned(); LOOKS])?;
    }
    site.look("/groups/{group}", &vec![format!("/groups/{group}"); LOOKS])?;
    let of_items = |path: &str| -> Vec<String> {
        names.iter().take(LOOKS).map(|name| format!("{path}{name}")).collect()
    };
    site.look("/items/{item}, each once", &of_items("/items/"))?;
    site.look("/api/v1/items/{item}, each once more", &of_items("/api/v1/items/"))
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
