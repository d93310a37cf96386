//! Topics, records and groups of a Kafka, seen from outside: what was written is read back from the broker itself.

mod record;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

pub use record::{ReadRecord, Record};

use crate::background::block_on;
use crate::wait::{look_until, wait_until};

/// For one answer of a broker, which may just have been started or have lost its leader.
const PATIENCE: Duration = Duration::from_secs(30);
const ONE_CALL: Duration = Duration::from_secs(10);

/// A name that no other test, run or process uses: `pay-5f1c09aa3be2`. For topics, pipelines, groups and subjects.
pub fn unique(prefix: &str) -> String {
    let random = RandomState::new().hash_one(Instant::now().elapsed());
    format!("{prefix}-{:012x}", random & 0xffff_ffff_ffff)
}

/// Whether a transaction ends well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Commit,
    Abort,
}

/// A client of one Kafka. All calls block; all panic when Kafka doesn't do what was asked.
#[derive(Debug, Clone)]
pub struct Client {
    bootstrap: String,
}

/// Topics.
impl Client {
    pub fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned() }
    }

    /// Creates a topic replicated to all brokers (three at most) and waits until each partition has a leader.
    #[track_caller]
    pub fn create_topic(&self, topic: &str, partitions: i32) {
        self.create_topic_with(topic, partitions, &[]);
    }

    /// Like [`Client::create_topic`], with topic settings such as `("cleanup.policy", "compact")`.
    #[track_caller]
    pub fn create_topic_with(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("an admin client can be created");
        let name = topic.to_owned();
        let settings: Vec<_> = settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let brokers = self.consumer().fetch_metadata(None, PATIENCE).expect("Kafka answers").brokers().len();
        let results = block_on(async move {
            let replication = TopicReplication::Fixed(brokers.min(3) as i32);
            let mut new = NewTopic::new(&name, partitions, replication);
            for (key, value) in &settings {
                new = new.set(key, value);
            }
            admin.create_topics([&new], &AdminOptions::new().operation_timeout(Some(PATIENCE))).await
        })
        .expect("Kafka answers");
        for result in results {
            result.unwrap_or_else(|(topic, error)| panic!("topic {topic} can't be created: {error}"));
        }
        let consumer = self.consumer();
        let has_leaders = || partition_leaders(&consumer, topic).len() == partitions as usize;
        wait_until(&format!("the leaders of {topic}"), PATIENCE, has_leaders);
    }

    #[track_caller]
    pub fn delete_topic(&self, topic: &str) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("an admin client can be created");
        let name = topic.to_owned();
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let results =
            block_on(async move { admin.delete_topics(&[&name], &options).await }).expect("Kafka answers");
        for result in results {
            result.unwrap_or_else(|(topic, error)| panic!("topic {topic} can't be deleted: {error}"));
        }
        wait_until(&format!("{topic} to be gone"), PATIENCE, || {
            !self.topics().iter().any(|name| name == topic)
        });
    }

    /// Deletes the records of a partition below this offset, as retention does.
    #[track_caller]
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("an admin client can be created");
        let mut places = TopicPartitionList::new();
        places
            .add_partition_offset(topic, partition, rdkafka::Offset::Offset(before))
            .expect("the offset is one");
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        block_on(async move { admin.delete_records(&places, &options).await }).expect("Kafka deletes them");
        wait_until("the records to be gone", PATIENCE, || self.offsets(topic)[&partition].0 == before);
    }

    /// The names of all topics, sorted, without Kafka's own.
    #[track_caller]
    pub fn topics(&self) -> Vec<String> {
        let consumer = self.consumer();
        let metadata = consumer.fetch_metadata(None, PATIENCE).expect("Kafka answers");
        let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with("__")).collect();
        names.sort_unstable();
        names
    }

    /// How many partitions the topic has.
    #[track_caller]
    pub fn partitions(&self, topic: &str) -> i32 {
        count_partitions(&self.consumer(), topic)
    }

    /// First and next offset of each partition. "Next" counts what transactions left: markers, and records aborted.
    #[track_caller]
    pub fn offsets(&self, topic: &str) -> BTreeMap<i32, (i64, i64)> {
        let consumer = self.consumer();
        (0..count_partitions(&consumer, topic))
            .map(|partition| (partition, watermarks(&consumer, topic, partition)))
            .collect()
    }
}

/// Writing.
impl Client {
    /// Produces the record and waits until all replicas in sync have it. Returns partition and offset.
    #[track_caller]
    pub fn produce(&self, topic: &str, record: &Record) -> (i32, i64) {
        self.produce_all(topic, std::slice::from_ref(record))[0]
    }

    /// Produces the records in order and waits for all of them. Returns each one's partition and offset.
    #[track_caller]
    pub fn produce_all(&self, topic: &str, records: &[Record]) -> Vec<(i32, i64)> {
        let producer: FutureProducer =
            self.config().set("enable.idempotence", "true").create().expect("a producer can be created");
        deliver(&producer, topic, records)
    }

    /// Produces the records in one transaction and ends it, which leaves a marker at the end of every partition written to.
    #[track_caller]
    pub fn produce_in_transaction(&self, topic: &str, records: &[Record], outcome: Outcome) {
        let producer: FutureProducer = self
            .config()
            .set("transactional.id", unique("transaction"))
            .create()
            .expect("a transactional producer can be created");
        producer.init_transactions(PATIENCE).expect("transactions can be initialised");
        producer.begin_transaction().expect("a transaction can begin");
        deliver(&producer, topic, records);
        match outcome {
            Outcome::Commit => {
                producer.commit_transaction(PATIENCE).expect("the transaction can be committed")
            }
            Outcome::Abort => producer.abort_transaction(PATIENCE).expect("the transaction can be aborted"),
        }
    }
}

/// Reading. Aborted records and open transactions aren't seen, like in tidegate itself.
impl Client {
    /// All records that the topic holds now, by partition and offset.
    #[track_caller]
    pub fn read_all(&self, topic: &str) -> Vec<ReadRecord> {
        let mut reader = Reader::new(self, topic);
        if look_until(PATIENCE, || reader.poll().then_some(())).is_none() {
            panic!("the end of {topic} isn't reached after {PATIENCE:?}: {}", reader.describe());
        }
        reader.records
    }

    /// Reads the topic from its beginning until the condition holds for all that was read, and returns that.
    ///
    /// # Panics
    /// With a summary of what was read, when the deadline passes first.
    #[track_caller]
    pub fn wait_for(
        &self,
        topic: &str,
        deadline: Duration,
        mut condition: impl FnMut(&[ReadRecord]) -> bool,
    ) -> Vec<ReadRecord> {
        let mut reader = Reader::new(self, topic);
        let found = look_until(deadline, || {
            reader.poll();
            condition(&reader.records).then_some(())
        });
        if found.is_none() {
            panic!("the condition on {topic} doesn't hold after {deadline:?}: {}", reader.describe());
        }
        reader.records
    }

    /// Waits until the topic holds at least so many records, and returns them all.
    #[track_caller]
    pub fn wait_for_count(&self, topic: &str, count: usize, deadline: Duration) -> Vec<ReadRecord> {
        self.wait_for(topic, deadline, |records| records.len() >= count)
    }
}

/// Groups.
impl Client {
    /// What the group has committed for each partition of the topic.
    #[track_caller]
    pub fn committed(&self, group: &str, topic: &str) -> BTreeMap<i32, Option<i64>> {
        let consumer = self.consumer_of(group);
        let partitions = count_partitions(&consumer, topic);
        let answer = || committed(&consumer, topic, partitions).ok();
        look_until(PATIENCE, answer).expect("the group's coordinator answers")
    }

    /// How many offsets the group is behind the ends of the topic's partitions. Without a commit it is behind by all.
    #[track_caller]
    pub fn lag(&self, group: &str, topic: &str) -> i64 {
        let consumer = self.consumer_of(group);
        let partitions = count_partitions(&consumer, topic);
        look_until(PATIENCE, || lag(&consumer, topic, partitions).ok())
            .expect("the group's coordinator answers")
    }

    /// Waits until the group has committed all that the topic holds.
    #[track_caller]
    pub fn wait_for_no_lag(&self, group: &str, topic: &str, deadline: Duration) {
        let consumer = self.consumer_of(group);
        let partitions = count_partitions(&consumer, topic);
        let mut last = String::new();
        let done = look_until(deadline, || {
            let lag = lag(&consumer, topic, partitions);
            last = format!("{lag:?}");
            (lag == Ok(0)).then_some(())
        });
        if done.is_none() {
            panic!("{group} still lags behind {topic} after {deadline:?}: {last}");
        }
    }
}

impl Client {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("allow.auto.create.topics", "false")
            .set_log_level(RDKafkaLogLevel::Emerg); // brokers come and go here, and each call says itself what failed
        config
    }

    fn consumer(&self) -> BaseConsumer {
        // Assigning needs a group's name, although nothing joins or commits under it.
        self.consumer_of("tidegate-tests")
    }

    fn consumer_of(&self, group: &str) -> BaseConsumer {
        self.config()
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true")
            .set("fetch.wait.max.ms", "20") // how long an empty partition keeps a reader
            .create()
            .expect("a consumer can be created")
    }
}

/// Reads a topic from the beginning and knows when it has reached the end of each partition.
struct Reader {
    consumer: BaseConsumer,
    records: Vec<ReadRecord>,
    /// The partitions whose end hasn't been seen.
    unread: Vec<i32>,
    error: Option<KafkaError>,
}

impl Reader {
    #[track_caller]
    fn new(client: &Client, topic: &str) -> Self {
        let consumer = client.consumer();
        let unread: Vec<_> = (0..count_partitions(&consumer, topic)).collect();
        let mut assignment = TopicPartitionList::new();
        for partition in &unread {
            assignment
                .add_partition_offset(topic, *partition, Offset::Beginning)
                .expect("a beginning is an offset");
        }
        consumer.assign(&assignment).expect("partitions can be assigned");
        Self { consumer, records: Vec::new(), unread, error: None }
    }

    /// Takes in what is there. True once the end of every partition has been reached.
    fn poll(&mut self) -> bool {
        let mut patience = Duration::from_millis(100);
        while let Some(result) = self.consumer.poll(patience) {
            match result {
                Ok(message) => self.records.push(ReadRecord::from_message(&message)),
                Err(KafkaError::PartitionEOF(ended)) => self.unread.retain(|partition| *partition != ended),
                // Lost connections and the like: the client itself goes on, until the caller's deadline.
                Err(error) => self.error = Some(error),
            }
            patience = Duration::ZERO;
        }
        self.records.sort_by_key(|record| (record.partition, record.offset));
        self.unread.is_empty()
    }

    fn describe(&self) -> String {
        let last: Vec<_> = self.records.iter().rev().take(5).map(ToString::to_string).collect();
        format!(
            "{} records, the end of partitions {:?} not seen, last error {:?}, last records:\n{}",
            self.records.len(),
            self.unread,
            self.error,
            last.join("\n")
        )
    }
}

#[track_caller]
fn deliver(producer: &FutureProducer, topic: &str, records: &[Record]) -> Vec<(i32, i64)> {
    let deliveries: Vec<_> =
        records.iter().map(|record| enqueue(producer, record.to_produce(topic))).collect();
    let results = block_on(async move {
        let mut results = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            results.push(delivery.await.expect("the producer lives until its last delivery"));
        }
        results
    });
    results
        .into_iter()
        .map(|result| match result {
            Ok(delivery) => (delivery.partition, delivery.offset),
            Err((error, _)) => panic!("a record for {topic} was not delivered: {error}"),
        })
        .collect()
}

#[track_caller]
fn enqueue(producer: &FutureProducer, mut record: FutureRecord<'_, [u8], [u8]>) -> DeliveryFuture {
    loop {
        match producer.send_result(record) {
            Ok(delivery) => return delivery,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => record = back,
            Err((error, record)) => panic!("a record for {} can't be produced: {error}", record.topic),
        }
        producer.poll(Duration::from_millis(10));
    }
}

/// Partitions that have a leader.
fn partition_leaders(consumer: &BaseConsumer, topic: &str) -> Vec<i32> {
    let Ok(metadata) = consumer.fetch_metadata(Some(topic), ONE_CALL) else { return Vec::new() };
    let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
    partitions.filter(|partition| partition.leader() >= 0).map(|partition| partition.id()).collect()
}

#[track_caller]
fn count_partitions(consumer: &BaseConsumer, topic: &str) -> i32 {
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).expect("Kafka answers");
    let count = metadata.topics().iter().map(|topic| topic.partitions().len()).sum::<usize>();
    assert!(count > 0, "there is no topic {topic}");
    count as i32
}

#[track_caller]
fn watermarks(consumer: &BaseConsumer, topic: &str, partition: i32) -> (i64, i64) {
    consumer.fetch_watermarks(topic, partition, PATIENCE).expect("the partition's leader answers")
}

fn committed(
    consumer: &BaseConsumer,
    topic: &str,
    partitions: i32,
) -> Result<BTreeMap<i32, Option<i64>>, KafkaError> {
    let mut list = TopicPartitionList::new();
    list.add_partition_range(topic, 0, partitions - 1);
    let committed = consumer.committed_offsets(list, ONE_CALL)?;
    let offset = |offset| match offset {
        Offset::Offset(offset) => Some(offset),
        _ => None,
    };
    Ok(committed.elements().iter().map(|element| (element.partition(), offset(element.offset()))).collect())
}

fn lag(consumer: &BaseConsumer, topic: &str, partitions: i32) -> Result<i64, KafkaError> {
    let mut lag = 0;
    for (partition, committed) in committed(consumer, topic, partitions)? {
        let (first, next) = consumer.fetch_watermarks(topic, partition, ONE_CALL)?;
        lag += next - committed.unwrap_or(first);
    }
    Ok(lag)
}
