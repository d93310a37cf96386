//! The pipeline under test: its names, its settings, its text.

use std::time::Duration;

pub(crate) const PIPELINE: &str = "chaos";
pub(crate) const SOURCE: &str = "shop.events";
pub(crate) const DLQ: &str = "chaos.dlq";
pub(crate) const TIERS: [&str; 2] = ["critical", "default"];
pub(crate) const PARTITIONS: i32 = 4;

/// The waits between attempts, and one more that only parked jobs use.
pub(crate) const LADDER: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
pub(crate) const RUNGS: [&str; 4] = ["500ms", "1s", "2s", "5s"];
pub(crate) const JITTER_PERCENT: i64 = 20;

pub(crate) fn jobs(tier: &str) -> String {
    format!("{PIPELINE}.{tier}.jobs")
}

pub(crate) fn marks(tier: &str) -> String {
    format!("{PIPELINE}.{tier}.marks")
}

pub(crate) fn delays() -> Vec<String> {
    let of_tier = |tier| RUNGS.map(|rung| format!("{PIPELINE}.{tier}.retry-{rung}"));
    TIERS.into_iter().flat_map(of_tier).collect()
}

/// How long an attempt may take.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(3);
/// How long running jobs may go on when their partition moves away.
const DRAIN_DEADLINE: Duration = Duration::from_secs(6);

/// Each group with the topics that it reads.
pub(crate) fn groups() -> Vec<(String, Vec<String>)> {
    let mut groups = vec![
        (format!("{PIPELINE}.ingest"), vec![SOURCE.to_owned()]),
        (format!("{PIPELINE}.retry"), delays()),
    ];
    groups.extend(TIERS.map(|tier| (format!("{PIPELINE}.{tier}.worker"), vec![jobs(tier)])));
    groups
}

/// The configuration of every service; a process gets its own address, state folder and URLs by its environment.
pub(crate) fn text(bootstrap: &str, registry: &str) -> String {
    format!(
        r#"[pipeline]
name = "{PIPELINE}"

[kafka]
bootstrap = "{bootstrap}"
replication = 3

[registry]
url = "{registry}"
unknown_schema_grace = "30s"
timeout = "2s"

[retry]
ladder = ["500ms", "1s", "2s"]
wait_only = ["5s"]

[consume]
session_timeout = "6s"
drain_deadline = "{}s"
shutdown_deadline = "12s"

[observe]
log_format = "json"

[tiers.critical]
partitions = {PARTITIONS}
concurrency = 64

[tiers.default]
partitions = {PARTITIONS}
concurrency = 128

[sources."{SOURCE}"]
start = "earliest"

[[ignore]]
name = "noise"
source = "{SOURCE}"
when = {{ kind = "noise" }}

[classes.plain]
tier = "default"
source = "{SOURCE}"
when = {{ kind = "plain" }}
key = ["id"]
time_limit = "{time_limit}s"
handler = {{ type = "http", url = "http://127.0.0.1:1/plain" }}

[classes.ordered]
tier = "critical"
source = "{SOURCE}"
when = {{ kind = "ordered" }}
key = ["lane", "id"]
partition_by = ["lane"]
ordering = "key"
time_limit = "{time_limit}s"
handler = {{ type = "http", url = "http://127.0.0.1:1/ordered" }}

[classes.flaky]
tier = "default"
source = "{SOURCE}"
when = {{ kind = "flaky" }}
key = ["id"]
time_limit = "{time_limit}s"
# Its jobs fail for reasons of their own.
flood.enabled = false
handler = {{ type = "http", url = "http://127.0.0.1:1/flaky" }}
"#,
        DRAIN_DEADLINE.as_secs(),
        time_limit = TIME_LIMIT.as_secs(),
    )
}
