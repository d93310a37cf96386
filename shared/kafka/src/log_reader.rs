//! Reading stretches of a log outside a consumer group: a changelog is restored with it. Everything here blocks.
//!
//! A position is never guessed: where the log does not hold what is asked for, or is another log meanwhile, there is an error.
//! librdkafka itself reads on at the same offset when a topic is made anew, so the topic's id is compared here.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidegate_domain::CommitPosition;
use tidegate_pipeline::{Record, TopicPartition, Wake};

use crate::context::{log_client_error, log_line};
use crate::native::{NativeClient, PartitionQueue, QueueError, add_brokers};
use crate::settings::{ConnectError, KafkaSettings, create};

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No broker answered, or none sent anything, for too long. Try again.
    #[error("{log} can't be read now: {reason}; it is tried again, check that Kafka is running")]
    Unavailable {
        /// The log.
        log: TopicPartition,
        /// What the client says.
        reason: String,
    },
    /// There is no such topic, or it has no such partition.
    #[error("{0} does not exist: `tidegate topics apply` creates its topic")]
    Missing(TopicPartition),
    /// The log does not hold what was asked for. What it holds must be asked for anew.
    #[error("{log} does not hold the records from {from} up to {until}: {reason}")]
    OutOfRange {
        /// The log.
        log: TopicPartition,
        /// From where it was to be read, or was being read.
        from: CommitPosition,
        /// Up to where.
        until: CommitPosition,
        /// What the broker says.
        reason: String,
    },
    /// The topic was deleted and made anew while it was read: what was read is of two logs.
    #[error(
        "the topic of {0} was made anew while it was read: what it holds now must be read from its beginning"
    )]
    MadeAnew(TopicPartition),
    /// A record that can't be read, or a broker that refuses.
    #[error("{log} can't be read: {reason}")]
    Failed {
        /// The log.
        log: TopicPartition,
        /// What the client says.
        reason: String,
    },
}

/// Reads stretches of logs. Clones share their connections.
#[derive(Clone)]
pub struct LogReader(Arc<Inner>);

struct Inner {
    bootstrap: String,
    /// Asks, and reads nothing.
    asking: BaseConsumer<Context>,
    /// When it was told its brokers last.
    named: Mutex<Option<Instant>>,
    stretches: Pool,
    /// For stretches of a few records.
    few: Pool,
    patience: Duration,
}

/// Consumers that have the same settings.
struct Pool {
    config: ClientConfig,
    /// Ready for the next stretch.
    idle: Mutex<Vec<Arc<BaseConsumer<Context>>>>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogReader").field("bootstrap", &self.0.bootstrap).finish_non_exhaustive()
    }
}

struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The client asks for its group although that is named for form's sake: no right on it is needed.
        if error.rdkafka_error_code() != Some(Code::GroupAuthorizationFailed) {
            log_client_error("log-reader", &error, reason);
        }
    }
}

impl ConsumerContext for Context {}

/// How long one question may take.
const ASK: Duration = Duration::from_secs(5);
/// For how long a topic must be unknown before it counts as missing: a broker that just started may not know it yet.
const MISSING: Duration = Duration::from_secs(3);
/// For how long nothing may come.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the brokers are named again to a client that hears nothing. Each time costs memory that is never freed.
const NAME_BROKERS: Duration = Duration::from_secs(10);
/// How long to wait for records before the client's events are looked at.
const WAIT: Duration = Duration::from_millis(100);
/// How many records one batch has at most. The client's queue bounds their bytes.
const BATCH: usize = 1000;
/// So many records are read as a few.
const FEW: i64 = 100;
/// How many connected readers of each sort wait for the next stretch.
const IDLE: usize = 8;

impl LogReader {
    /// A reader; it connects by itself, now or later.
    pub fn new(settings: &KafkaSettings) -> Result<Self, ConnectError> {
        Self::with_patience(settings, PATIENCE)
    }

    /// A reader of which several stretches are asked at a time: each has a smaller queue.
    pub fn side_by_side(settings: &KafkaSettings) -> Result<Self, ConnectError> {
        Self::with(settings, settings.reader_side_by_side(), PATIENCE)
    }

    /// A reader that gives up after this long without anything, in place of 30 s.
    pub fn with_patience(settings: &KafkaSettings, patience: Duration) -> Result<Self, ConnectError> {
        Self::with(settings, settings.log_reader(), patience)
    }

    fn with(
        settings: &KafkaSettings,
        stretches: ClientConfig,
        patience: Duration,
    ) -> Result<Self, ConnectError> {
        let (stretches, few) = (Pool::of(stretches), Pool::of(settings.reader_of_few()));
        let asking = create(&stretches.config, Context)?;
        let bootstrap = settings.bootstrap.clone();
        let named = Mutex::default();
        Ok(Self(Arc::new(Inner { bootstrap, asking, named, stretches, few, patience })))
    }

    /// The first position that the log still holds, and its end, where the next append lands. Takes a few seconds at most.
    pub fn bounds(&self, log: &TopicPartition) -> Result<(CommitPosition, CommitPosition), ReadError> {
        let inner = &*self.0;
        serve_events(&inner.asking);
        match inner.asking.fetch_watermarks(log.topic.as_str(), log.partition.0, ASK) {
            Ok((first, end)) => Ok((CommitPosition(first), CommitPosition(end))),
            Err(error) if is_unknown(error.rdkafka_error_code()) => Err(ReadError::Missing(log.clone())),
            Err(error) => {
                inner.name_brokers();
                Err(ReadError::Unavailable { log: log.clone(), reason: error.to_string() })
            }
        }
    }

    /// The id of the log's topic, which another topic of the same name does not have. Waits for brokers, as [`LogReader::read`] does.
    pub fn id(&self, log: &TopicPartition) -> Result<String, ReadError> {
        self.0.topic_id(log)
    }

    /// Hands every record from `from` up to `until` to `batch`, in order, in batches, each once; `batch` may take them out. Ends when
    /// everything below `until` was seen, or when `batch` breaks. Rides out restarts of brokers. After an error, what `batch` has seen is
    /// the stretch's beginning, except with [`ReadError::MadeAnew`].
    pub fn read(
        &self,
        log: &TopicPartition,
        from: CommitPosition,
        until: CommitPosition,
        batch: &mut dyn FnMut(&mut Vec<Record>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        if from >= until {
            return Ok(());
        }
        let inner = &*self.0;
        let topic_id = inner.topic_id(log)?;
        let pool = if until.0 - from.0 <= FEW { &inner.few } else { &inner.stretches };
        let consumer = pool.take()?;
        let mut reading = Reading::begin(inner, &consumer, Range { log, from, until })?;
        reading.run(&topic_id, batch)?;
        drop(reading);
        // One that failed is not used again.
        pool.keep(consumer);
        Ok(())
    }
}

impl Inner {
    /// The id of the log's topic, which another topic of the same name does not have.
    fn topic_id(&self, log: &TopicPartition) -> Result<String, ReadError> {
        let began = Instant::now();
        loop {
            serve_events(&self.asking);
            match topic_id(&self.asking, log) {
                Ok(Some(id)) => return Ok(id),
                Ok(None) if began.elapsed() >= MISSING => return Err(ReadError::Missing(log.clone())),
                Ok(None) => {}
                Err(error) if began.elapsed() >= self.patience => {
                    return Err(ReadError::Unavailable { log: log.clone(), reason: error.to_string() });
                }
                Err(_) => self.name_brokers(),
            }
            std::thread::sleep(WAIT);
        }
    }

    /// The client may have lost its brokers.
    fn name_brokers(&self) {
        let mut named = self.named.lock();
        if named.is_none_or(|at| at.elapsed() >= NAME_BROKERS) {
            *named = Some(Instant::now());
            add_brokers(&self.asking, &self.bootstrap);
        }
    }
}

impl Pool {
    fn of(config: ClientConfig) -> Self {
        Self { config, idle: Mutex::default() }
    }

    fn take(&self) -> Result<Arc<BaseConsumer<Context>>, ConnectError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| create(&self.config, Context).map(Arc::new), Ok)
    }

    fn keep(&self, consumer: Arc<BaseConsumer<Context>>) {
        if consumer.unassign().is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE {
                idle.push(consumer);
            }
        }
    }
}

/// The id of the log's topic, as the log's leader knows it; none: there is no such log.
#[allow(unsafe_code, reason = "the call needs a live client, which the reference is")]
fn topic_id(client: &BaseConsumer<Context>, log: &TopicPartition) -> KafkaResult<Option<String>> {
    let topic = log.topic.as_str();
    let metadata = client.fetch_metadata(Some(topic), ASK)?;
    let Some(found) = metadata.topics().first() else { return Ok(None) };
    match found.error().map(Code::from) {
        None => {}
        Some(code) if is_unknown(Some(code)) => return Ok(None),
        Some(code) => return Err(KafkaError::MetadataFetch(code)),
    }
    let Some(partition) = found.partitions().iter().find(|known| known.id() == log.partition.0) else {
        return Ok(None);
    };
    if partition.leader() < 0 {
        return Err(KafkaError::MetadataFetch(Code::LeaderNotAvailable));
    }
    // SAFETY: the client lives as long as the reference.
    let ids = unsafe {
        crate::topic_id::topic_ids(client.native_client(), &[topic], Some(partition.leader()), ASK)
    };
    Ok(ids.map_err(KafkaError::AdminOp)?.remove(topic))
}

/// What the client has to tell goes to its log; a client that nobody listens to would gather it. Says whether there was a record
/// among it.
fn serve_events(client: &BaseConsumer<Context>) -> bool {
    let mut strays = false;
    while let Some(event) = client.poll(Duration::ZERO) {
        strays |= event.is_ok();
    }
    strays
}

fn is_unknown(code: Option<Code>) -> bool {
    matches!(code, Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition))
}

#[derive(Clone, Copy)]
struct Range<'a> {
    log: &'a TopicPartition,
    from: CommitPosition,
    until: CommitPosition,
}

impl Range<'_> {
    fn out_of_range(&self, from: CommitPosition, reason: String) -> ReadError {
        ReadError::OutOfRange { log: self.log.clone(), from, until: self.until, reason }
    }

    fn failed(&self, reason: String) -> ReadError {
        ReadError::Failed { log: self.log.clone(), reason }
    }
}

/// One stretch that is being read.
struct Reading<'a> {
    inner: &'a Inner,
    consumer: &'a Arc<BaseConsumer<Context>>,
    range: Range<'a>,
    queue: PartitionQueue<Context>,
    /// Everything below it was seen. The partition's end counts: what lies before it and is no record is a gap.
    next: CommitPosition,
}

impl<'a> Reading<'a> {
    fn begin(
        inner: &'a Inner,
        consumer: &'a Arc<BaseConsumer<Context>>,
        range: Range<'a>,
    ) -> Result<Self, ReadError> {
        let (topic, partition) = (range.log.topic.as_str(), range.log.partition.0);
        let queue = PartitionQueue::split(consumer.clone(), topic, partition, Wake::default())
            .ok_or_else(|| range.failed("its queue can't be split".to_owned()))?;
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(topic, partition, Offset::Offset(range.from.0))
            .and_then(|()| consumer.assign(&assignment))
            .map_err(|error| range.failed(error.to_string()))?;
        Ok(Self { inner, consumer, range, queue, next: range.from })
    }

    fn run(
        &mut self,
        topic_id: &str,
        batch: &mut dyn FnMut(&mut Vec<Record>) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let mut records = Vec::new();
        while self.next < self.range.until {
            self.fetch(&mut records)?;
            if self.next >= self.range.until && self.inner.topic_id(self.range.log)? != topic_id {
                return Err(ReadError::MadeAnew(self.range.log.clone()));
            }
            if !records.is_empty() && batch(&mut records).is_break() {
                return Ok(());
            }
            records.clear();
        }
        Ok(())
    }

    /// Waits until there is something, and takes it.
    fn fetch(&mut self, records: &mut Vec<Record>) -> Result<(), ReadError> {
        let (began, before) = (Instant::now(), self.next);
        let mut named = began;
        while self.next == before {
            let (_, failed) = self.queue.take_or_wait(WAIT, BATCH, records);
            if let Some(failed) = failed {
                return Err(self.failure(failed));
            }
            if serve_events(self.consumer) {
                return Err(self.range.failed("a record came past its partition's queue".to_owned()));
            }
            self.advance(records);
            if began.elapsed() > self.inner.patience && self.next == before {
                return Err(self.nothing_came());
            }
            if named.elapsed() >= NAME_BROKERS {
                named = Instant::now();
                add_brokers(&**self.consumer, &self.inner.bootstrap);
            }
        }
        Ok(())
    }

    fn advance(&mut self, records: &mut Vec<Record>) {
        let last = records.last().map(|record| record.offset().next());
        self.next = self.next.max(last.unwrap_or(self.next)).max(self.queue.end().unwrap_or(self.next));
        let until = self.range.until;
        records.truncate(records.partition_point(|record| record.offset().0 < until.0));
    }

    fn failure(&self, failed: QueueError) -> ReadError {
        match failed.code {
            Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation => {
                self.range.out_of_range(self.next, failed.message)
            }
            code if is_unknown(Some(code)) => ReadError::Missing(self.range.log.clone()),
            _ => self.range.failed(failed.message),
        }
    }

    fn nothing_came(&self) -> ReadError {
        if self.queue.end() == Some(self.next) {
            return self.range.out_of_range(self.next, format!("it ends at {}", self.next));
        }
        let reason = format!("nothing came for {:?}", self.inner.patience);
        ReadError::Unavailable { log: self.range.log.clone(), reason }
    }
}
