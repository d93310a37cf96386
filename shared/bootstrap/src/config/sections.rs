//! The sections with a handful of plain settings each.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use toml::Value;

use super::error::InvalidValue;
use super::names::{LogFilter, PipelineName};
use super::reader::{Raw, Section};
use super::values::{self, ByteSize, duration_text, write_duration};

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// What tidegate's own headers may add to an event.
const HEADROOM: u64 = 64 << 10;

/// `[pipeline]`: what all topics and groups are named after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pipeline {
    /// The first part of all topics and consumer groups. Default `tidegate`.
    pub name: PipelineName,
}

impl Pipeline {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let name = section.optional("name", values::parsed).or_else(|| "tidegate".parse().ok());
        Some(Self { name: name? })
    }
}

/// `[sources."topic"]`: a topic whose events become jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Where the very first start begins: `earliest`, `latest` or an RFC 3339 time. Required, because both
    /// guesses hurt: one replays years, the other loses events.
    pub start: Start,
}

impl Source {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let remedy = "write \"latest\" (only new events), \"earliest\" (all that the topic holds) or a time";
        section.required("start", remedy, start).map(|start| Self { start })
    }
}

/// Where a source's first start begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the oldest event that the topic holds.
    Earliest,
    /// With the next event.
    Latest,
    /// At the first event from this time on.
    At(SystemTime),
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Earliest => serializer.serialize_str("earliest"),
            Self::Latest => serializer.serialize_str("latest"),
            Self::At(time) => serializer.collect_str(&humantime::format_rfc3339(*time)),
        }
    }
}

impl FromStr for Start {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            time => match humantime::parse_rfc3339(time) {
                Ok(time) => Ok(Self::At(time)),
                Err(_) => Err(InvalidValue::new(
                    format!("`{text}` is no start"),
                    "write \"latest\", \"earliest\" or a time in UTC like \"2026-01-31T00:00:00Z\"",
                )),
            },
        }
    }
}

fn start(raw: &Raw) -> Result<Start, InvalidValue> {
    match &raw.value {
        Value::Datetime(time) => time.to_string().parse(),
        _ => values::parsed(raw),
    }
}

/// `[tiers.NAME]`: jobs of equal urgency, with topics and workers of their own. Default: `critical`, `default`, `bulk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// Partitions of the tier's topics. It can't be changed later: keys would move away from their marks. Default 6.
    pub partitions: NonZeroU32,
    /// Handlers that run at a time in one process. Default 256.
    pub concurrency: NonZeroUsize,
    /// Records of one partition that are read and not settled, at most. Default 10000.
    pub window_records: NonZeroUsize,
    /// Bytes of these records, at most. Default 64MiB.
    pub window_bytes: ByteSize,
}

impl Tier {
    pub(super) const DEFAULT_NAMES: [&str; 3] = ["critical", "default", "bulk"];
    const PARTITIONS: NonZeroU32 = NonZeroU32::new(6).expect("6 is not 0");
    const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not 0");
    const WINDOW_RECORDS: NonZeroUsize = NonZeroUsize::new(10_000).expect("10000 is not 0");

    pub(super) fn read(section: &Section<'_>) -> Self {
        let window = ByteSize::mebibytes(1)..=ByteSize::mebibytes(64 << 10);
        Self {
            partitions: section.or("partitions", Self::PARTITIONS, values::count(10_000)),
            concurrency: section.or("concurrency", Self::CONCURRENCY, values::count(1_000_000)),
            window_records: section.or("window_records", Self::WINDOW_RECORDS, values::count(10_000_000)),
            window_bytes: section.or("window_bytes", ByteSize::mebibytes(64), values::byte_size(window)),
        }
    }
}

/// `[state]`: the worker's marks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct State {
    /// The directory of the local database. Without it duplicates of done jobs run again; nothing else is lost. Default `./state`.
    pub dir: PathBuf,
    /// How long a duplicate of a done job is recognised. Default 1d.
    #[serde(serialize_with = "write_duration")]
    pub retention: Duration,
}

impl State {
    pub(super) fn read(section: &Section<'_>) -> Self {
        Self {
            dir: section.or("dir", PathBuf::from("./state"), |raw| values::text(raw).map(PathBuf::from)),
            retention: section.or("retention", DAY, values::duration),
        }
    }
}

/// `[topics]`: how tidegate's own topics are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Topics {
    /// How long job and delay topics hold a record: what no worker has handled by then is gone. Default 14d.
    #[serde(serialize_with = "write_duration")]
    pub job_retention: Duration,
    /// How long the dead-letter topic holds a record: a duration or `unlimited`. Default unlimited.
    pub dlq_retention: Retention,
    /// The largest record: the largest source event and 64KiB for tidegate's headers. Default 1MiB + 64KiB.
    pub max_message_bytes: ByteSize,
}

impl Topics {
    pub(super) fn read(section: &Section<'_>) -> Self {
        let event = ByteSize::bytes((1 << 20) + HEADROOM);
        // librdkafka's own bounds of message.max.bytes, less what the headers need at the lower end.
        let bounds = ByteSize::bytes(HEADROOM + 1000)..=ByteSize::bytes(1_000_000_000);
        Self {
            job_retention: section.or("job_retention", 14 * DAY, values::duration),
            dlq_retention: section.or("dlq_retention", Retention::Unlimited, retention),
            max_message_bytes: section.or("max_message_bytes", event, values::byte_size(bounds)),
        }
    }
}

/// How long a topic holds its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// For ever.
    Unlimited,
    /// For this long.
    For(Duration),
}

impl Serialize for Retention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::For(duration) => serializer.collect_str(&duration_text(*duration)),
        }
    }
}

fn retention(raw: &Raw) -> Result<Retention, InvalidValue> {
    match &raw.value {
        Value::String(text) if text == "unlimited" => Ok(Retention::Unlimited),
        _ => values::duration(raw).map(Retention::For).map_err(|invalid| {
            InvalidValue::new(invalid.wrong, format!("{}, or \"unlimited\"", invalid.remedy))
        }),
    }
}

/// `[consume]`: how a process reads its partitions, and how it lets go of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Consume {
    /// Threads that read partitions. Default: one per core, at most 4.
    pub shards: NonZeroUsize,
    /// How often offsets are committed. Default 200ms.
    #[serde(serialize_with = "write_duration")]
    pub commit_interval: Duration,
    /// How long running jobs may go on when a partition moves away or the process stops. Default 25s.
    #[serde(serialize_with = "write_duration")]
    pub drain_deadline: Duration,
    /// How deep an event's values may be nested, at most 256. Default 64.
    pub max_depth: NonZeroUsize,
    /// How long Kafka waits for a silent process before it gives its partitions away. Default 45s.
    #[serde(serialize_with = "write_duration")]
    pub session_timeout: Duration,
    /// How long a stop may take altogether; more than `drain_deadline`, less than what the platform grants (30s in
    /// Kubernetes). Default 28s.
    #[serde(serialize_with = "write_duration")]
    pub shutdown_deadline: Duration,
}

impl Consume {
    const MAX_DEPTH: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not 0");

    pub(super) fn read(section: &Section<'_>, cores: NonZeroUsize) -> Self {
        let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
        let shards = cores.min(const { NonZeroUsize::new(4).expect("4 is not 0") });
        let interval = values::duration_within(millis(10)..=seconds(60));
        // The broker's default bounds of a session.
        let session = values::duration_within(seconds(6)..=30 * seconds(60));
        let consume = Self {
            shards: section.or("shards", shards, values::count(256)),
            commit_interval: section.or("commit_interval", millis(200), interval),
            // Below librdkafka's max.poll.interval.ms, past which Kafka takes the partitions away.
            drain_deadline: section.or(
                "drain_deadline",
                seconds(25),
                values::duration_within(millis(1)..=seconds(240)),
            ),
            max_depth: section.or("max_depth", Self::MAX_DEPTH, values::count(256)),
            session_timeout: section.or("session_timeout", seconds(45), session),
            shutdown_deadline: section.or(
                "shutdown_deadline",
                seconds(28),
                values::duration_within(millis(1)..=HOUR),
            ),
        };
        if consume.shutdown_deadline <= consume.drain_deadline {
            let wrong =
                format!("it is not longer than drain_deadline, {}", duration_text(consume.drain_deadline));
            let remedy =
                "leave some seconds after the drain for marks and commits; the platform must grant as much";
            section.problem("shutdown_deadline", wrong, remedy);
        }
        consume
    }
}

/// `[observe]`: what the process shows of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Observe {
    /// Address and port of `/metrics`, `/livez` and `/readyz`. Default 127.0.0.1:9600.
    pub listen: SocketAddr,
    /// What is logged, in the syntax of `RUST_LOG`. Default info.
    pub log: LogFilter,
    /// How a log line looks: `text` or `json`. Default text.
    pub log_format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Observe {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9600));
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let listen = section.or("listen", default, listen_like("127.0.0.1:9600"));
        let log = section.optional("log", values::parsed).or_else(|| "info".parse().ok());
        let log_format = section.or("log_format", LogFormat::Text, values::one_of(&formats));
        Some(Self { listen, log: log?, log_format })
    }
}

/// An address to listen on; `example` is the one that the remedy shows.
pub(super) fn listen_like(example: &'static str) -> impl Fn(&Raw) -> Result<SocketAddr, InvalidValue> {
    move |raw| {
        let text = values::text(raw)?;
        text.parse().map_err(|_| {
            let port = example.rsplit(':').next().unwrap_or_default();
            let remedy = format!(
                "write an IP address and a port, like \"{example}\"; for all interfaces, \"0.0.0.0:{port}\""
            );
            InvalidValue::new(format!("`{text}` is no address to listen on"), remedy)
        })
    }
}
