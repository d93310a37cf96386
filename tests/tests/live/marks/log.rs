//! The changelog as it stands in Kafka, and its group and settings.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ConfigSource, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tidegate_domain::mark::Phase;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_pipeline::ports::MarkEntry;
use tidegate_tests::background::block_on;
use tidegate_tests::jobs::Jobs;
use tidegate_tests::wait::wait_until;

/// The name of the topic.
pub(crate) fn topic(jobs: &Jobs) -> String {
    jobs.pipeline.topic("default.marks")
}

/// Its records: how long each value is, and what it says.
pub(crate) fn entries(jobs: &Jobs) -> Vec<(usize, Entry)> {
    let read = |record: tidegate_tests::kafka_io::ReadRecord| {
        let value = record.value.expect("a changelog has no tombstones");
        (value.len(), format::read(&value).expect("it is a changelog entry").1)
    };
    jobs.pipeline.client.read_all(&topic(jobs)).into_iter().map(read).collect()
}

/// All marks in it, those of equal keys too.
pub(crate) fn marks(jobs: &Jobs) -> Vec<MarkEntry> {
    let of = |entry| match entry {
        Entry::Marks(marks) => marks,
        Entry::Opened { .. } | Entry::Closed => Vec::new(),
    };
    entries(jobs).into_iter().flat_map(|(_, entry)| of(entry)).collect()
}

/// How many marks say that a job was started with care.
pub(crate) fn started(jobs: &Jobs) -> usize {
    let is_started = |entry: &MarkEntry| entry.mark.step.is_some_and(|step| step.phase == Phase::Started);
    marks(jobs).iter().filter(|entry| is_started(entry)).count()
}

/// Waits until the group counts no member: the session of a worker that was killed is over.
pub(crate) fn wait_for_no_member(bootstrap: &str, group: &str, deadline: Duration) {
    let consumer: BaseConsumer = client(bootstrap).create().expect("a consumer can be created");
    wait_until(&format!("{group} to have no member"), deadline, || {
        let list = consumer.fetch_group_list(Some(group), Duration::from_secs(10)).expect("Kafka answers");
        list.groups().iter().all(|group| group.members().is_empty())
    });
}

/// Sets one setting of a topic, and keeps the others.
pub(crate) fn alter(bootstrap: &str, topic: &str, name: &str, value: &str) {
    let admin: AdminClient<DefaultClientContext> =
        client(bootstrap).create().expect("an admin client can be created");
    let [topic, name, value] = [topic, name, value].map(str::to_owned);
    let results = block_on(async move {
        let resource = [ResourceSpecifier::Topic(&topic)];
        let known = admin.describe_configs(&resource, &AdminOptions::new()).await.expect("Kafka answers");
        let known = known.into_iter().next().expect("an answer").expect("the topic has settings");
        let own = known.entries.into_iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
        let own: Vec<_> = own.filter_map(|entry| Some((entry.name, entry.value?))).collect();
        let others = own.iter().filter(|(known, _)| *known != name);
        let alter = others.fold(
            AlterConfig::new(ResourceSpecifier::Topic(&topic)).set(&name, &value),
            |alter, (name, value)| alter.set(name, value),
        );
        admin.alter_configs([&alter], &AdminOptions::new()).await
    });
    for result in results.expect("Kafka answers") {
        result.expect("the setting can be changed");
    }
}

fn client(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", "tidegate-tests");
    config
}
