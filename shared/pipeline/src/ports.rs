//! What the loop needs from the world. Each port is implemented by one adapter, and by a fake in `fakes`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Offset, Outcome, UnixMillis};

use crate::inbox::Inbox;
use crate::jobs::Job;
use crate::record::{OutboundRecord, Record, TopicPartition};

/// The records of one assigned partition. Dropped when the partition is released.
pub trait RecordSource: Send {
    /// Appends records that are at hand, in offset order, at most `max_records` and not many more bytes than `max_bytes`.
    /// Never waits; wakes the shard when there is more later.
    fn fetch(
        &mut self,
        max_records: usize,
        max_bytes: usize,
        into: &mut Vec<Record>,
    ) -> Result<Fetched, SourceError>;

    /// The high watermark as last seen, for the lag.
    fn end_offset(&self) -> Option<CommitPosition>;
}

/// Whether a fetch took all that was at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// Nothing is left at hand: the source wakes the shard when there is.
    All,
    /// There may be more at hand: the shard must fetch again by itself.
    Some,
}

/// Why a partition can't be read now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// It heals by itself; the client goes on trying.
    #[error("the partition can't be read now: {0}")]
    Unavailable(String),
    /// The committed position is outside what the topic still holds: records are gone, or the topic was made anew.
    #[error("the partition's position is out of range: {0}")]
    OutOfRange(String),
    /// The client is broken for good: the process must restart.
    #[error("the consumer failed for good: {0}")]
    Fatal(String),
}

/// Sends commits. A commit that does not arrive costs redelivery, never a record.
pub trait OffsetCommitter: Send + Sync {
    /// Starts to commit these positions. Never waits.
    fn commit(&self, positions: &[(TopicPartition, CommitPosition)]) -> Result<(), CommitError>;

    /// How many started commits were refused so far: when it grows, the shard commits all its positions again.
    fn refused(&self) -> u64 {
        0
    }
}

/// Why a commit could not be started.
#[derive(Debug, Clone, thiserror::Error)]
#[error("offsets can't be committed: {0}")]
pub struct CommitError(pub String);

/// Names what an acknowledgement belongs to; only the stage that made it knows the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What the broker says of a record that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Where it stands in its partition.
    pub offset: Offset,
    /// Its timestamp: the broker's clock where the topic has `LogAppendTime`.
    pub append_time: UnixMillis,
}

/// The outcome of a publish.
pub type Delivery = (Ticket, Result<Acknowledged, PublishError>);

/// Publishes records.
pub trait RecordPublisher: Send + Sync {
    /// Hands a record over. When this returns `Ok`, the outcome comes to `inbox` exactly once, with `ticket`: `Ok` there means
    /// acknowledged by all in-sync replicas. When it returns an error, nothing was handed over and nothing comes.
    fn publish(
        &self,
        record: &OutboundRecord<'_>,
        ticket: Ticket,
        inbox: &Arc<Inbox<Delivery>>,
    ) -> Result<(), PublishError>;
}

/// Why a record was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Too much is on its way; try again when some of it has arrived.
    #[error("the producer's queue is full")]
    Full,
    /// It may succeed later.
    #[error("the topic can't be written now: {0}")]
    Unavailable(String),
    /// The broker or the client refuses a record of this size.
    #[error("the record is too large: {0}")]
    TooLarge(String),
    /// The producer is broken for good: the process must restart.
    #[error("the producer failed for good: {0}")]
    Fatal(String),
}

/// A mark to be joined into what is remembered of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkEntry {
    /// The key.
    pub key: IdempotencyKey,
    /// What to join.
    pub mark: Mark,
}

/// What the owner of a partition must know when its marks are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// How many records the owner before this one may have had in hand when it died; 0: it let go of the partition alive.
    pub suspects: u32,
}

/// The outcome of opening a partition's marks, of a batch, or of a close.
pub type MarksReady = (Ticket, Result<Readiness, MarkStoreError>);

/// Remembers marks. Answers to `open`, `append` and `close` come to the inbox, exactly one for each call, appends of one partition
/// in the order that they were handed over.
pub trait MarkStore: Send + Sync {
    /// Makes a partition's marks ready; other partitions go on meanwhile.
    fn open(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<MarksReady>>);

    /// Appends what is remembered of each key, in order; nothing remembered is the default mark.
    fn look_up(
        &self,
        partition: &TopicPartition,
        keys: &[IdempotencyKey],
        found: &mut Vec<Mark>,
    ) -> Result<(), MarkStoreError>;

    /// Makes these marks durable. For a partition that is not open any more, what is appended is a deposed owner's: it becomes
    /// known to the owner.
    fn append(
        &self,
        partition: &TopicPartition,
        entries: &[MarkEntry],
        ticket: Ticket,
        inbox: &Arc<Inbox<MarksReady>>,
    );

    /// Lets go of a partition's marks, alive; what was appended stays. The answer comes when the next owner can know it.
    fn close(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<MarksReady>>);
}

/// Why marks can't be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MarkStoreError {
    /// Nothing can be written now: the disk is full, or failing.
    #[error("marks can't be written: {0}")]
    Write(String),
    /// Nothing can be read now.
    #[error("marks can't be read: {0}")]
    Read(String),
    /// The partition is not open, or its copy was set aside: it must be opened (again).
    #[error("the marks of {0} are not open")]
    NotOpen(TopicPartition),
}

/// Runs jobs of one class.
pub trait Handler: Send + Sync {
    /// Runs a job. The future is polled at once on the shard's thread and must not block it; what does not end at once goes on on
    /// the runtime, until the class's time limit drops it.
    fn call(&self, job: Arc<Job>) -> BoxFuture<'static, Outcome>;
}

/// The world's clock and dice.
pub trait Clock: Send + Sync {
    /// The wall clock: compared with times that are written in records.
    fn wall(&self) -> UnixMillis;

    /// A random number within [0, 1).
    fn draw(&self) -> f64;
}

/// How long a failed publish or append waits before it is tried again.
pub const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How long nothing of what is on its way may be acknowledged before that is told as trouble, where nothing fails: a broker that
/// died has been replaced by then (`broker.session.timeout.ms`, 9 s by default).
pub(crate) const SILENCE: Duration = Duration::from_secs(20);
