//! Topics as they should be and as they are, and the configuration that must not drift.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tracing::warn;

use crate::look::{self, Reports};
use crate::native::add_brokers;
use crate::patience::{Patience, patiently};
use crate::settings::{ConnectError, KafkaSettings, LOOK_TIMEOUT};

/// A topic that tidegate needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Its partitions; for a topic that others own, none: it must only exist.
    pub partitions: Option<u32>,
    /// Whether keys must meet in its partitions: then another count is a fault.
    pub keyed: bool,
    /// Its replication factor; none: the broker's default.
    pub replication: Option<u16>,
    /// The settings that it is created with.
    pub settings: BTreeMap<String, String>,
}

/// A topic as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicState {
    /// Its partitions.
    pub partitions: u32,
    /// Its replication factor.
    pub replication: usize,
    /// Whether every partition has a leader: a topic just made has none for a moment.
    pub led: bool,
}

/// Why the cluster could not be asked or changed.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// No client, or no broker.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request failed.
    #[error("the cluster does not answer: {0}")]
    Request(#[source] KafkaError),
    /// The broker refused to create a topic.
    #[error("topic `{topic}` can't be created: {reason}")]
    Refused {
        /// Which.
        topic: String,
        /// Why.
        reason: RDKafkaErrorCode,
    },
    /// An ACL is missing.
    #[error("this user may not {what} of topic `{topic}`: grant it {right} on that topic")]
    Forbidden {
        /// Which.
        topic: String,
        /// What it may not do.
        what: &'static str,
        /// The operation that an ACL has to allow.
        right: &'static str,
    },
    /// A compacted topic could not be read to its end.
    #[error("topic `{0}` can't be read: {1}")]
    Unreadable(String, String),
    /// The broker has no such request: the embedded one of dev mode, say.
    #[error("this broker can't {what}; {remedy}")]
    Unsupported {
        /// What it was asked for.
        what: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
}

impl TopicError {
    /// This user may not do `what`, for which it needs the `right`.
    pub(crate) fn forbidden(topic: &str, what: &'static str, right: &'static str) -> Self {
        Self::Forbidden { topic: topic.to_owned(), what, right }
    }

    /// Whether the configuration, or what this user may do, is at fault for certain, so that trying again won't help.
    pub fn is_misconfiguration(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_misconfiguration(),
            Self::Forbidden { .. } | Self::Unsupported { .. } => true,
            _ => false,
        }
    }
}

/// The value of each setting, by topic and name.
pub type Settings = BTreeMap<String, BTreeMap<String, String>>;

/// A look at the cluster, and changes to its topics. Questions are asked again for half a minute while a broker is away.
pub struct Cluster {
    admin: AdminClient<Reports>,
    consumer: BaseConsumer<Reports>,
    bootstrap: String,
    instead_of_controller: OnceLock<Option<i32>>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("bootstrap", &self.bootstrap).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A connection; nothing is asked yet.
    pub fn connect(settings: &KafkaSettings) -> Result<Self, ConnectError> {
        let config = settings.client("admin");
        Ok(Self {
            admin: look::client(config.clone())?,
            consumer: look::client(config)?,
            bootstrap: settings.bootstrap.clone(),
            instead_of_controller: OnceLock::new(),
        })
    }

    /// Every topic with its partitions. Blocks.
    pub fn topics(&self) -> Result<BTreeMap<String, TopicState>, TopicError> {
        let metadata = look::metadata(&self.consumer, &self.bootstrap, None)?;
        let state = |topic: &rdkafka::metadata::MetadataTopic| TopicState {
            partitions: u32::try_from(topic.partitions().len()).unwrap_or(u32::MAX),
            replication: topic.partitions().first().map_or(0, |p| p.replicas().len()),
            led: topic.partitions().iter().all(|p| p.leader() >= 0 && p.error().is_none()),
        };
        Ok(metadata.topics().iter().map(|topic| (topic.name().to_owned(), state(topic))).collect())
    }

    /// The cluster's id. Blocks.
    pub fn cluster_id(&self) -> Result<String, TopicError> {
        let unanswered = KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut);
        let ask = || {
            let id = self.consumer.client().fetch_cluster_id(LOOK_TIMEOUT);
            id.ok_or(TopicError::Request(unanswered.clone()))
        };
        patiently(ask, || self.name_brokers())
    }

    /// The id of each topic that exists: a topic that was made anew has another one. Blocks.
    #[allow(unsafe_code, reason = "the call needs a live client, which `self` is")]
    pub fn topic_ids(&self, topics: &[&str]) -> Result<BTreeMap<String, String>, TopicError> {
        let other = self.instead_of_controller(topics.first().copied())?;
        let client = self.consumer.client().native_ptr();
        let ask = || {
            // SAFETY: the client lives as long as `self`.
            let ids = unsafe { crate::topic_id::topic_ids(client, topics, other, LOOK_TIMEOUT) };
            ids.map_err(|code| TopicError::Request(KafkaError::AdminOp(code)))
        };
        patiently(ask, || self.name_brokers())
    }

    /// A client that forgot its brokers asks nobody any more.
    fn name_brokers(&self) {
        add_brokers(&self.admin, &self.bootstrap);
        add_brokers(&self.consumer, &self.bootstrap);
    }

    /// Whom to ask what is the controller's to answer, if that is none of the brokers: the embedded broker names one that does not
    /// exist, and the client would wait for it until its time is up. Found out once. Blocks.
    #[allow(unsafe_code, reason = "the call needs a live client, which `self` is")]
    fn instead_of_controller(&self, topic: Option<&str>) -> Result<Option<i32>, TopicError> {
        if let Some(known) = self.instead_of_controller.get() {
            return Ok(*known);
        }
        let metadata = look::metadata(&self.consumer, &self.bootstrap, topic)?;
        let brokers: Vec<i32> = metadata.brokers().iter().map(|broker| broker.id()).collect();
        let client = self.consumer.client().native_ptr();
        // SAFETY: the client lives as long as `self`.
        let controller = unsafe { crate::topic_id::controller(client, LOOK_TIMEOUT) };
        // A negative one is not known yet.
        if controller < 0 {
            return Ok(None);
        }
        let other = brokers.first().copied().filter(|_| !brokers.contains(&controller));
        Ok(*self.instead_of_controller.get_or_init(|| other))
    }

    /// First and next offset of a partition. Blocks.
    pub fn watermarks(&self, topic: &str, partition: i32) -> Result<(i64, i64), TopicError> {
        self.consumer.fetch_watermarks(topic, partition, LOOK_TIMEOUT).map_err(TopicError::Request)
    }

    /// Creates topics that do not exist. A topic that somebody else created meanwhile is left as it is.
    pub async fn create(&self, specs: &[TopicSpec]) -> Result<(), TopicError> {
        let new: Vec<NewTopic<'_>> = specs.iter().map(new_topic).collect();
        let options = AdminOptions::new()
            .operation_timeout(Some(LOOK_TIMEOUT))
            .request_timeout(Some(LOOK_TIMEOUT * 2))
            .broker_id(self.instead_of_controller(None).unwrap_or_default());
        let results = self.admin.create_topics(&new, &options).await;
        let results = results.map_err(|error| unanswered(error, CREATE))?;
        for result in results {
            match result {
                Ok(_) => {}
                Err((topic, RDKafkaErrorCode::TopicAlreadyExists)) => {
                    warn!(topic, "somebody else created the topic just now")
                }
                Err((topic, reason)) => return Err(TopicError::Refused { topic, reason }),
            }
        }
        Ok(())
    }

    /// The settings in force of each topic.
    pub async fn settings(&self, topics: &[&str]) -> Result<Settings, TopicError> {
        let patience = Patience::begin();
        loop {
            let answer = self.ask_settings(topics).await;
            match answer.as_ref().err().and_then(|error| patience.bears(error)) {
                Some(wait) => {
                    self.name_brokers();
                    tokio::time::sleep(wait).await;
                }
                None => return answer,
            }
        }
    }

    async fn ask_settings(&self, topics: &[&str]) -> Result<Settings, TopicError> {
        let resources: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
        let options = AdminOptions::new()
            .request_timeout(Some(LOOK_TIMEOUT))
            .broker_id(self.instead_of_controller(topics.first().copied()).unwrap_or_default());
        let results = self.admin.describe_configs(&resources, &options).await;
        let results = results.map_err(|error| unanswered(error, TELL_SETTINGS))?;
        let mut settings = BTreeMap::new();
        for (topic, result) in topics.iter().zip(results) {
            let resource = result.map_err(|code| TopicError::Request(KafkaError::AdminOp(code)))?;
            // Every topic has settings. The Rust crate passes over why there are none of this one: nobody but the authorizer hides them.
            if resource.entries.is_empty() {
                return Err(TopicError::forbidden(topic, "read the settings", "DescribeConfigs"));
            }
            let entries = resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
            settings.insert((*topic).to_owned(), entries.collect());
        }
        Ok(settings)
    }

    /// Waits until the topics are known to the brokers. Creating a topic is answered before all of them know it.
    pub async fn wait_until_known(&self, specs: &[TopicSpec], at_most: Duration) -> Result<(), TopicError> {
        let deadline = tokio::time::Instant::now() + at_most;
        loop {
            let topics = self.topics()?;
            let known = |spec: &TopicSpec| topics.get(&spec.name).is_some_and(|t| t.partitions > 0 && t.led);
            if specs.iter().all(known) {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(TopicError::Request(KafkaError::MetadataFetch(
                    RDKafkaErrorCode::UnknownTopicOrPartition,
                )));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What a broker may have no request for, and what to do instead.
type Lacking = (&'static str, &'static str);

const CREATE: Lacking = (
    "create topics while it runs",
    "if it is the embedded one of `tidegate dev`, which creates the topics of its file when it starts: add the topic to the file, and \
     start it again",
);
const TELL_SETTINGS: Lacking = (
    "tell the settings of its topics",
    "compare them on a real Kafka: the embedded one of `tidegate dev` has none",
);

fn unanswered(error: KafkaError, (what, remedy): Lacking) -> TopicError {
    match error {
        KafkaError::AdminOp(RDKafkaErrorCode::UnsupportedFeature) => TopicError::Unsupported { what, remedy },
        error => TopicError::Request(error),
    }
}

fn new_topic(spec: &TopicSpec) -> NewTopic<'_> {
    let partitions = i32::try_from(spec.partitions.unwrap_or(1)).unwrap_or(i32::MAX);
    let replication = spec.replication.map_or(-1, i32::from);
    let mut topic = NewTopic::new(&spec.name, partitions, TopicReplication::Fixed(replication));
    for (name, value) in &spec.settings {
        topic = topic.set(name, value);
    }
    topic
}
