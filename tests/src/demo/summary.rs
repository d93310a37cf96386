//! What became of every event: read from the workers' metrics and the dead-letter topic, checked against the endpoint's own record.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::events::{CLASSES, Published};
use super::pipeline::Pipeline;
use crate::endpoint::Call;
use crate::kafka_io::Client;

/// The fates of one class's events.
#[derive(Debug, Default, Clone)]
struct Row {
    published: u64,
    done: u64,
    dead: u64,
    undecodable: u64,
    duplicates: u64,
    retries: u64,
}

/// The fates of all events.
#[derive(Debug, Default)]
pub(super) struct Summary {
    rows: BTreeMap<&'static str, Row>,
}

impl Summary {
    /// Asks the workers and the dead-letter topic.
    pub(super) fn read(pipeline: &Pipeline, client: &Client, published: &Published) -> Result<Self, String> {
        let dead = client.read_all("demo.dlq");
        let mut rows = BTreeMap::new();
        for class in &CLASSES {
            let page = pipeline.metrics_of(class.tier)?;
            let of_source =
                dead.iter().filter(|record| record.header("__connect.errors.topic") == Some(class.topic));
            let (undecodable, failed): (Vec<_>, Vec<_>) =
                of_source.partition(|record| record.header("job-error-kind") == Some("malformed"));
            let row = Row {
                published: published[class.name],
                done: sum(&page, "tidegate_jobs_total", &[class.name, "\"done\""]),
                duplicates: sum(&page, "tidegate_duplicates_total", &[class.name]),
                retries: sum(&page, "tidegate_jobs_total", &[class.name, "\"scheduled\""]),
                dead: failed.len() as u64,
                undecodable: undecodable.len() as u64,
            };
            rows.insert(class.name, row);
        }
        Ok(Self { rows })
    }

    /// Whether every published event has its fate.
    pub(super) fn is_complete(&self) -> bool {
        self.rows.values().all(|row| row.settled() >= row.published)
    }

    /// One line of progress.
    pub(super) fn line(&self) -> String {
        let of = |(name, row): (&&str, &Row)| format!("{name} {}/{}", row.settled(), row.published);
        self.rows.iter().map(of).collect::<Vec<_>>().join("   ")
    }

    /// Whether the sums add up, and agree with what the endpoint saw.
    pub(super) fn check(&self, calls: &[Call]) -> Result<(), String> {
        for class in &CLASSES {
            let row = &self.rows[class.name];
            if row.published == 0 || row.done == 0 || row.retries == 0 || row.duplicates == 0 || row.dead == 0
            {
                return Err(format!("too little happened to {}: {row:?}", class.name));
            }
            if row.settled() != row.published {
                return Err(format!(
                    "{}: {} published and {} settled",
                    class.name,
                    row.published,
                    row.settled()
                ));
            }
            let path = format!("/{}", class.name);
            let keys: BTreeSet<&str> = calls
                .iter()
                .filter(|call| call.path == path)
                .filter_map(|call| call.header("idempotency-key"))
                .collect();
            if keys.len() as u64 != row.done + row.dead {
                let (done, dead) = (row.done, row.dead);
                return Err(format!(
                    "{}: the endpoint saw {} keys, for {done} done and {dead} dead",
                    class.name,
                    keys.len()
                ));
            }
        }
        Ok(())
    }
}

impl Row {
    fn settled(&self) -> u64 {
        self.done + self.dead + self.undecodable + self.duplicates
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  class     published  =   done  +  dead (refused + undecodable)  +  duplicates     retries on the way"
        )?;
        for (name, row) in &self.rows {
            let dead = row.dead + row.undecodable;
            writeln!(
                f,
                "  {name:<8}  {:>9}  =  {:>5}  +  {dead:>4} ({:>7} + {:>11})  +  {:>10}  {:>22}",
                row.published, row.done, row.dead, row.undecodable, row.duplicates, row.retries
            )?;
        }
        Ok(())
    }
}

/// The sum of a metric's lines that name all of `labels`.
fn sum(page: &str, metric: &str, labels: &[&str]) -> u64 {
    let of = |line: &&str| line.starts_with(metric) && labels.iter().all(|label| line.contains(label));
    let value =
        |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok()).unwrap_or(0.0);
    page.lines().filter(of).map(value).sum::<f64>() as u64
}
