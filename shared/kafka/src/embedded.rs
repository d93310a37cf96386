//! A broker inside the process, to try things out: librdkafka's mock cluster. It keeps everything in memory, speaks the protocol of
//! producers and consumers, and forgets: a partition holds [`PARTITION_BYTES`], whatever was read of it. It has no admin calls, no
//! transactions, no TLS, no retention and no compaction. Nothing in production may rest on it.
#![allow(unsafe_code, reason = "the one call is documented with why it is sound")]

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};

use crate::context::log_line;
use crate::settings::{ConnectError, create};
use crate::topics::TopicSpec;

/// How many bytes one partition holds; the oldest records are dropped as newer ones come.
pub const PARTITION_BYTES: usize = 5 << 20;
/// How many partitions a topic gets whose owner does not say.
pub const DEFAULT_PARTITIONS: u32 = 3;
/// How long a new group waits for more members: nobody waits for a second worker here.
const FIRST_MEMBERS: Duration = Duration::from_millis(100);

/// A broker of this process, which other processes of this machine can reach too; it ends when dropped.
pub struct EmbeddedBroker {
    client: BaseProducer<Silent>,
}

impl std::fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedBroker").field("bootstrap", &self.bootstrap()).finish_non_exhaustive()
    }
}

struct Silent;

impl ClientContext for Silent {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // That it is a mock is no news.
        if facility != "MOCK" {
            log_line(level, facility, message);
        }
    }
}

impl ProducerContext for Silent {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// Why the embedded broker can't be used.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// It does not start.
    #[error("the embedded broker does not start: {0}")]
    Start(#[from] ConnectError),
    /// It does not take a topic.
    #[error("the embedded broker does not take the topic `{topic}`: {reason}")]
    Topic {
        /// The topic.
        topic: String,
        /// Why.
        reason: KafkaError,
    },
}

impl EmbeddedBroker {
    /// Starts a broker on a free port of the loopback interface.
    pub fn start() -> Result<Self, EmbeddedError> {
        let mut config = ClientConfig::new();
        config.set("test.mock.num.brokers", "1").set("client.id", "tidegate-embedded");
        let client: BaseProducer<Silent> = create(&config, Silent)?;
        let millis = i32::try_from(FIRST_MEMBERS.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the client is alive; the mock cluster belongs to it, and is null only if it has none, which is looked at.
        unsafe {
            let cluster = sys::rd_kafka_handle_mock_cluster(client.client().native_ptr());
            if !cluster.is_null() {
                sys::rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, millis);
            }
        }
        Ok(Self { client })
    }

    /// Its address, for clients on this machine.
    pub fn bootstrap(&self) -> String {
        self.client.client().mock_cluster().map(|cluster| cluster.bootstrap_servers()).unwrap_or_default()
    }

    /// Creates topics, each once; settings and replication are left out, which it does not know.
    pub fn create(&self, specs: &[TopicSpec]) -> Result<(), EmbeddedError> {
        let mut created = BTreeSet::new();
        for spec in specs.iter().filter(|spec| created.insert(spec.name.as_str())) {
            let refused = |reason: KafkaError| EmbeddedError::Topic { topic: spec.name.clone(), reason };
            let partitions = i32::try_from(spec.partitions.unwrap_or(DEFAULT_PARTITIONS)).unwrap_or(i32::MAX);
            if let Some(cluster) = self.client.client().mock_cluster() {
                cluster.create_topic(&spec.name, partitions, 1).map_err(refused)?;
            }
        }
        Ok(())
    }
}
