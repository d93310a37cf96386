//! How clients are configured: what tidegate depends on is set here and nowhere else; the rest is the user's.

use std::time::Duration;

use rdkafka::ClientConfig;

/// What every client is made from.
#[derive(Clone, Debug)]
pub struct KafkaSettings {
    /// `bootstrap.servers`.
    pub bootstrap: String,
    /// Librdkafka properties of all clients, as the user wrote them; those that tidegate depends on were refused before.
    pub properties: Vec<(String, String)>,
    /// The same, of consumers alone.
    pub consumer_properties: Vec<(String, String)>,
    /// The same, of producers alone.
    pub producer_properties: Vec<(String, String)>,
    /// After how long without a heartbeat the group gives a member's partitions to others.
    pub session_timeout: Duration,
    /// The largest record that may be published.
    pub max_message_bytes: usize,
}

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A property is unknown to librdkafka, or has a wrong value.
    #[error("the Kafka client refuses its configuration: {0}; see `[kafka.properties]`")]
    Configuration(#[source] rdkafka::error::KafkaError),
    /// No broker answered.
    #[error(
        "no broker of `{bootstrap}` answers: {source}; check `kafka.bootstrap`, and that Kafka is running"
    )]
    Unreachable {
        /// The addresses.
        bootstrap: String,
        /// What the client says.
        source: rdkafka::error::KafkaError,
    },
}

/// How long a look at the cluster may take.
pub(crate) const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The group that readers outside a group name: librdkafka wants one. Nobody joins it, and nothing is committed.
pub(crate) const READER_GROUP: &str = "tidegate-reader";

impl KafkaSettings {
    /// The settings that all clients share.
    pub(crate) fn client(&self, role: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            .set("client.id", format!("tidegate-{role}"))
            .set("topic.metadata.refresh.interval.ms", "30000")
            .set("topic.metadata.propagation.max.ms", "5000")
            .set("reconnect.backoff.max.ms", "2000")
            .set("log.connection.close", "false");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }

    /// A consumer of `group`. Offsets are committed by tidegate alone, and a position that is out of range is an error first.
    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = self.client("consumer");
        config
            .set("fetch.queue.backoff.ms", "20")
            .set("fetch.wait.max.ms", "100")
            .set("queued.max.messages.kbytes", "8192")
            .set("max.partition.fetch.bytes", "1048576");
        for (name, value) in &self.consumer_properties {
            config.set(name, value);
        }
        config
            .set("group.id", group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", self.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (self.session_timeout.as_millis() / 15).max(100).to_string())
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed");
        config
    }

    /// A consumer without a group's partitions, which reads one partition as fast as it can. Nothing that it reads was written in a
    /// transaction; were it otherwise, one that never ends must not hold it up.
    pub(crate) fn log_reader(&self) -> ClientConfig {
        let mut config = self.client("log-reader");
        config
            .set("fetch.queue.backoff.ms", "5")
            .set("fetch.wait.max.ms", "100")
            .set("queued.max.messages.kbytes", "32768")
            .set("max.partition.fetch.bytes", "8388608");
        for (name, value) in &self.consumer_properties {
            config.set(name, value);
        }
        config
            .set("group.id", READER_GROUP)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_uncommitted")
            .set("enable.partition.eof", "true")
            .set("check.crcs", "true");
        config
    }

    /// A producer whose acknowledgement means: all in-sync replicas have it, once and in order.
    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = self.client("producer");
        config
            .set("linger.ms", "2")
            .set("compression.type", "lz4")
            .set("message.timeout.ms", "30000")
            .set("queue.buffering.max.messages", "200000")
            .set("queue.buffering.max.kbytes", "262144");
        for (name, value) in &self.producer_properties {
            config.set(name, value);
        }
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("message.max.bytes", self.max_message_bytes.to_string());
        config
    }
}
