//! How clients are configured: what tidegate depends on is set here and nowhere else; the rest is the user's.

use std::time::Duration;

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, ClientContext};

use crate::refusal::Refusal;

/// What every client is made from.
#[derive(Clone)]
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

/// Without the properties: passwords are among them.
impl std::fmt::Debug for KafkaSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSettings").field("bootstrap", &self.bootstrap).finish_non_exhaustive()
    }
}

/// Why there is no client, or why it has no cluster to talk to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A property is unknown to librdkafka, or has a wrong value. The text never holds a value that may be a secret.
    #[error("the Kafka client refuses its configuration: {}; see `[kafka.properties]`", without_value(.0))]
    Configuration(KafkaError),
    /// A file that a property names is not there, or not to be read.
    #[error(
        "`{property}` names {path}, which can't be read: {reason}; correct the path in `[kafka.properties]`"
    )]
    File {
        /// The property.
        property: String,
        /// The path, as it was written.
        path: String,
        /// What the operating system says.
        reason: std::io::Error,
    },
    /// A broker turns this client away.
    #[error("Kafka at `{bootstrap}` refuses this client: {refusal}")]
    Refused {
        /// The addresses.
        bootstrap: String,
        /// Why.
        refusal: Refusal,
    },
    /// No broker answered.
    #[error(
        "no broker of `{bootstrap}` answers: {reason}; check `kafka.bootstrap`, and that Kafka is running"
    )]
    Unreachable {
        /// The addresses.
        bootstrap: String,
        /// What the client says.
        reason: String,
    },
    /// A client needs a thread of its own.
    #[error("no thread for a Kafka client can be started: {0}; raise the limit of processes or threads")]
    Thread(std::io::Error),
}

impl ConnectError {
    /// Whether the configuration is at fault for certain, so that trying again won't help.
    pub fn is_misconfiguration(&self) -> bool {
        match self {
            Self::Configuration(_) | Self::File { .. } => true,
            Self::Refused { refusal, .. } => refusal.is_certain(),
            Self::Unreachable { .. } | Self::Thread(_) => false,
        }
    }
}

/// librdkafka repeats the value of a property that it does not know, and a password's name may be misspelt.
fn without_value(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, description, _, _) => description.clone(),
        KafkaError::ClientCreation(description) => description.clone(),
        other => other.to_string(),
    }
}

/// Makes a client.
pub(crate) fn create<C: ClientContext, T: FromClientConfigAndContext<C>>(
    config: &ClientConfig,
    context: C,
) -> Result<T, ConnectError> {
    files_are_there(config)?;
    T::from_config_and_context(config, context).map_err(ConnectError::Configuration)
}

/// What librdkafka says of a missing file is an error number of OpenSSL's.
fn files_are_there(config: &ClientConfig) -> Result<(), ConnectError> {
    let properties = config.config_map();
    let files = properties.iter().filter(|(name, path)| {
        // With `probe`, the usual places of the system are tried.
        (name.starts_with("ssl.") || name.starts_with("https."))
            && name.ends_with(".location")
            && **path != "probe"
    });
    for (&property, &path) in files {
        if let Err(reason) = std::fs::File::open(path) {
            return Err(ConnectError::File { property: property.to_owned(), path: path.to_owned(), reason });
        }
    }
    Ok(())
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

    /// How often a member of a group says that it is alive, and hears whether the group is divided anew.
    pub(crate) fn heartbeat(&self) -> Duration {
        (self.session_timeout / 15).max(Duration::from_millis(100))
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
            .set("heartbeat.interval.ms", self.heartbeat().as_millis().to_string())
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

    /// The same, of one of several that read side by side.
    pub(crate) fn reader_side_by_side(&self) -> ClientConfig {
        let mut config = self.log_reader();
        config.set("queued.max.messages.kbytes", "4096").set("max.partition.fetch.bytes", "524288");
        config
    }

    /// The same, of one that reads a few records while somebody waits for them. It fetches little beyond them, and no longer than they
    /// take: a broker that has a fetch in hand, for what comes next, answers no other one of the same client before.
    pub(crate) fn reader_of_few(&self) -> ClientConfig {
        let mut config = self.log_reader();
        config
            .set("fetch.wait.max.ms", "5")
            .set("fetch.min.bytes", "1")
            .set("max.partition.fetch.bytes", "65536")
            .set("queued.min.messages", "1");
        config
    }

    /// A producer whose acknowledgement means: all in-sync replicas have it, once and in order.
    pub(crate) fn producer(&self) -> ClientConfig {
        let mut config = self.client("producer");
        config.set("linger.ms", "2").set("compression.type", "lz4").set("message.timeout.ms", "30000");
        self.with_producer_properties(config)
    }

    /// The same, and a record that can't be written holds up the later ones of its partition for as long as it takes: had it a time
    /// limit, those behind it could land before it is published again. One request in flight, for the same reason.
    pub(crate) fn ordered_producer(&self) -> ClientConfig {
        let mut config = self.producer();
        config.set("max.in.flight.requests.per.connection", "1").set("message.timeout.ms", "0");
        config
    }

    /// A producer of records that are packed already: each goes at once. Hashes do not compress. What waits for an append holds up a
    /// window of records, so a failed one is known as soon as a leader that died has been replaced for certain: a broker counts as
    /// dead after 9 s.
    pub(crate) fn changelog_producer(&self) -> ClientConfig {
        let mut config = self.client("changelog");
        config.set("compression.type", "none").set("message.timeout.ms", "15000");
        let mut config = self.with_producer_properties(config);
        config.set("linger.ms", "0");
        config
    }

    fn with_producer_properties(&self, mut config: ClientConfig) -> ClientConfig {
        config.set("queue.buffering.max.messages", "200000").set("queue.buffering.max.kbytes", "262144");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(property: &str, value: &str) -> String {
        let mut config = ClientConfig::new();
        config.set(property, value);
        let created: Result<rdkafka::consumer::BaseConsumer, _> =
            create(&config, rdkafka::consumer::DefaultConsumerContext);
        let error = created.err().expect("the client is refused");
        assert!(error.is_misconfiguration());
        format!("{error} {error:#}")
    }

    #[test]
    fn the_value_of_a_misspelt_property_is_not_repeated() {
        let text = refused("sasl.pasword", "hunter2");
        assert!(text.contains("sasl.pasword") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_there_is_told_with_its_property_and_path() {
        let text = refused("ssl.ca.location", "/no/such/ca.pem");
        assert!(text.starts_with("`ssl.ca.location` names /no/such/ca.pem, which can't be read: "), "{text}");
    }

    #[test]
    fn settings_print_no_property() {
        let secret = ("sasl.password".to_owned(), "hunter2".to_owned());
        let settings = KafkaSettings {
            bootstrap: "kafka:9092".to_owned(),
            properties: vec![secret.clone()],
            consumer_properties: vec![secret.clone()],
            producer_properties: vec![secret],
            session_timeout: Duration::from_secs(45),
            max_message_bytes: 1,
        };
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
