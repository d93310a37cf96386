//! Three brokers and a registry, to be harmed one at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ConfigSource, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tidegate_tests::background::block_on;
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::look_until;

pub(crate) const BROKERS: usize = 3;
/// A broker that came back has caught up within this, or something is wrong with the cluster.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);
const ONE_CALL: Duration = Duration::from_secs(5);
const REPLICAS: &str = "min.insync.replicas";

/// What the pipeline stands on.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) kafka: Kafka,
    pub(crate) registry: Registry,
}

impl Servers {
    pub(crate) fn start() -> Self {
        let registry = std::thread::spawn(Registry::start);
        let settings = [
            (REPLICAS, "2"),
            ("unclean.leader.election.enable", "false"),
            // A follower that fell behind leaves the replicas in sync sooner, so that writes go on.
            ("replica.lag.time.max.ms", "10000"),
        ];
        let kafka = Kafka::start_with(BROKERS, &settings);
        let registry = registry.join().expect("the registry starts");
        Self { kafka, registry }
    }

    /// Waits until every replica is in sync again, as before the next broker may be harmed.
    pub(crate) fn wait_whole(&self) -> Result<(), String> {
        let client = self.client();
        let mut behind = String::new();
        let whole = || match under_replicated(&client) {
            Ok(partitions) if partitions.is_empty() => Some(()),
            Ok(partitions) => {
                behind = format!("{partitions:?}");
                None
            }
            Err(error) => {
                behind = error;
                None
            }
        };
        match look_until(WHOLE_WITHIN, whole) {
            Some(()) => Ok(()),
            None => Err(format!("replicas are still not in sync after {WHOLE_WITHIN:?}: {behind}")),
        }
    }

    /// Sets how many replicas a write to these topics needs. All of their other settings stay as they are. A controller that has just
    /// moved refuses at first.
    pub(crate) fn demand_replicas(&self, topics: &[String], count: usize) -> Result<(), String> {
        let mut refused = String::new();
        let set = look_until(WHOLE_WITHIN, || {
            self.try_to_demand_replicas(topics, count).map_err(|error| refused = error).ok()
        });
        set.ok_or_else(|| format!("settings can't be changed for {WHOLE_WITHIN:?}: {refused}"))
    }

    fn try_to_demand_replicas(&self, topics: &[String], count: usize) -> Result<(), String> {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().map_err(|error| error.to_string())?;
        let (topics, count) = (topics.to_vec(), count.to_string());
        block_on(async move {
            let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(20)));
            let specifiers: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
            let described =
                admin.describe_configs(&specifiers, &options).await.map_err(|error| error.to_string())?;
            for (topic, described) in topics.iter().zip(described) {
                let described = described.map_err(|error| format!("{topic}: {error}"))?;
                let set = described.entries.iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
                let mut values: BTreeMap<&str, &str> =
                    set.filter_map(|entry| Some((entry.name.as_str(), entry.value.as_deref()?))).collect();
                values.insert(REPLICAS, &count);
                let change = AlterConfig::new(ResourceSpecifier::Topic(topic));
                let change = values.into_iter().fold(change, |change, (name, value)| change.set(name, value));
                let altered =
                    admin.alter_configs([&change], &options).await.map_err(|error| error.to_string())?;
                for result in altered {
                    result.map_err(|(_, code)| format!("{topic}: {code}"))?;
                }
            }
            Ok(())
        })
    }

    fn client(&self) -> BaseConsumer {
        self.config().create().expect("a client can be created")
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.kafka.bootstrap()).set_log_level(RDKafkaLogLevel::Emerg);
        config
    }
}

/// Partitions with fewer replicas in sync than there are brokers.
fn under_replicated(client: &BaseConsumer) -> Result<Vec<String>, String> {
    let metadata = client.fetch_metadata(None, ONE_CALL).map_err(|error| error.to_string())?;
    if metadata.brokers().len() < BROKERS {
        return Err(format!("only {} brokers are known", metadata.brokers().len()));
    }
    let mut found = Vec::new();
    for topic in metadata.topics() {
        for partition in topic.partitions() {
            if partition.leader() < 0 || partition.isr().len() < partition.replicas().len() {
                found.push(format!("{}/{}", topic.name(), partition.id()));
            }
        }
    }
    Ok(found)
}
