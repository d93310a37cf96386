//! What happened, as facts for the accounting: collected by load, endpoint, fleet and watcher, and read back from Kafka.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since the epoch, by the clock that the brokers have too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub(crate) struct At(pub(crate) i64);

impl At {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(since.as_micros() as i64)
    }

    pub(crate) fn of_millis(millis: i64) -> Self {
        Self(millis * 1000)
    }

    pub(crate) fn plus_millis(self, millis: i64) -> Self {
        Self(self.0 + millis * 1000)
    }

    /// How many milliseconds this is later.
    pub(crate) fn millis_after(self, other: Self) -> i64 {
        (self.0 - other.0) / 1000
    }
}

/// The place of an event in the source topic: its name in every copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Origin {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.offset)
    }
}

/// An idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u128);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// What an event is for; also its class, where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// `ordering = "none"`, also published twice.
    Plain,
    /// `ordering = "key"`.
    Ordered,
    /// Attempts fail as its script says.
    Flaky,
    /// Dropped by an ignore rule.
    Noise,
    /// No event, or one without a key.
    Garbage,
}

impl Kind {
    pub(crate) const CLASSES: [Self; 3] = [Self::Plain, Self::Ordered, Self::Flaky];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Ordered => "ordered",
            Self::Flaky => "flaky",
            Self::Noise => "noise",
            Self::Garbage => "garbage",
        }
    }

    pub(crate) fn of_class(name: &str) -> Option<Self> {
        Self::CLASSES.into_iter().find(|kind| kind.name() == name)
    }
}

/// What the endpoint does about an event when it is well itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Script {
    #[default]
    Fine,
    /// The first attempts are answered by 500.
    Fail(u32),
    /// The first attempts are answered by 429 with `Retry-After`.
    Busy(u32),
    /// The first attempts are never answered.
    Hang(u32),
    /// 422.
    Reject,
}

/// An event in the source topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Published {
    pub(crate) origin: Origin,
    pub(crate) kind: Kind,
    /// Equal for an event that was published twice.
    pub(crate) id: u64,
    /// The key whose order is kept, for [`Kind::Ordered`].
    pub(crate) lane: u32,
    pub(crate) script: Script,
}

/// A process, from its start to its end. Its number is its place in [`History::lives`].
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) service: String,
    pub(crate) ended: Option<(At, Ending)>,
    /// From SIGSTOP to SIGCONT.
    pub(crate) frozen: Vec<(At, At)>,
    /// What it logged of partitions that it lost or gave back with work under way.
    pub(crate) said: Vec<(At, Said)>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Killed,
    Stopped,
    /// By itself, with this code.
    Itself(i32),
}

/// A line of a process's log that excuses a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its partitions were taken from it.
    Lost,
    /// The drain deadline passed: jobs were cancelled.
    Left,
}

pub(crate) type LifeNumber = usize;

/// A call of the endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) life: LifeNumber,
    pub(crate) kind: Kind,
    /// The event whose job it is.
    pub(crate) origin: Origin,
    pub(crate) key: Key,
    pub(crate) attempt: u32,
    pub(crate) began: At,
    pub(crate) ended: At,
    pub(crate) end: CallEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Answered(u16),
    /// The caller went away, or the endpoint was cut off.
    HungUp,
}

impl Call {
    /// Whether its effect happened.
    pub(crate) fn is_effective(&self) -> bool {
        matches!(self.end, CallEnd::Answered(200..=299))
    }
}

/// A partition of a changelog: its tier's number and the partition's.
pub(crate) type LogPartition = (usize, i32);
/// Who wrote a record of a changelog.
pub(crate) type OpenerName = [u8; 16];

/// A mark that says done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoneMark {
    pub(crate) key: Key,
    pub(crate) at: LogPartition,
    pub(crate) offset: i64,
    pub(crate) opener: OpenerName,
    /// When a reader of committed records saw it.
    pub(crate) visible: At,
}

/// A process took a partition over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedMark {
    pub(crate) at: LogPartition,
    pub(crate) offset: i64,
    pub(crate) opener: OpenerName,
    pub(crate) appended: At,
}

/// A record of a job topic or a delay topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) origin: Origin,
    pub(crate) key: Key,
    /// Where its marks are.
    pub(crate) log: LogPartition,
    /// The next run of the handler.
    pub(crate) attempt: u32,
    pub(crate) due: At,
}

/// A record of the dead-letter topic.
#[derive(Debug, Clone)]
pub(crate) struct DeadLetter {
    pub(crate) origin: Origin,
    /// `None`: it was no job yet.
    pub(crate) kind: Option<Kind>,
    pub(crate) error: String,
    pub(crate) at: At,
}

/// A fault that was injected.
#[derive(Debug, Clone)]
pub(crate) struct Injected {
    pub(crate) name: String,
    /// Of brokers or topics: what is written waits.
    pub(crate) of_servers: bool,
    pub(crate) from: At,
    pub(crate) until: At,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) published: Vec<Published>,
    /// How many of them were not acknowledged; they count like the others.
    pub(crate) unsure: usize,
    /// How many were acknowledged and are not in the source topic: Kafka lost them.
    pub(crate) gone: usize,
    pub(crate) lives: Vec<Life>,
    /// In the order in which they began.
    pub(crate) calls: Vec<Call>,
    /// When the endpoint cut all of its connections: an answer just before may not have arrived.
    pub(crate) cuts: Vec<At>,
    /// From when to when the endpoint did not come to run.
    pub(crate) stalls: Vec<(At, At)>,
    pub(crate) done: Vec<DoneMark>,
    pub(crate) opened: Vec<OpenedMark>,
    pub(crate) jobs: Vec<Copy>,
    pub(crate) delayed: Vec<Copy>,
    pub(crate) dead: Vec<DeadLetter>,
    pub(crate) faults: Vec<Injected>,
    /// How far the services had committed when all had stopped.
    pub(crate) lag: BTreeMap<String, i64>,
}

impl History {
    /// For how long, of the time between two moments, the harness did not come to run, in milliseconds: what the machine did not let
    /// happen then is late by as much.
    pub(crate) fn stalled_within(&self, from: At, until: At) -> i64 {
        let overlap = |&(began, ended): &(At, At)| ended.min(until).millis_after(began.max(from)).max(0);
        self.stalls.iter().map(overlap).sum()
    }
}
