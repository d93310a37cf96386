//! Where a source's first start begins, and that nothing which comes after it is passed over.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::{Duration, SystemTime};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use serde_json::json;
use tidegate_domain::JobHeader;
use tidegate_tests::background::block_on;
use tidegate_tests::events::Writer;
use tidegate_tests::kafka_io::Record;
use tidegate_tests::pipeline::Pipeline;
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::wait::{look_until, wait_until};

use crate::standstill::{keep_sessions, shorten_sessions};

const SOON: Duration = Duration::from_secs(60);
const EVENT: &str =
    r#"{"type":"record","name":"Event","namespace":"starts","fields":[{"name":"id","type":"string"}]}"#;

struct Started {
    pipeline: Pipeline,
    source: String,
    events: Writer,
}

impl Started {
    /// Topics and configuration; ingest is not started yet.
    fn new(kafka: &Kafka, prefix: &str, partitions: i32, start: &str) -> Self {
        let mut pipeline = Pipeline::new(prefix, kafka, Registry::shared().url());
        keep_sessions(&mut pipeline);
        let source = pipeline.source("events", partitions, start);
        pipeline.configure(&format!(
            "[classes.see]\nsource = \"{source}\"\nkey = [\"id\"]\nhandler = {{ type = \"log\" }}\n"
        ));
        let events = Writer::register(Registry::shared(), &source, EVENT);
        pipeline.apply_topics();
        Self { pipeline, source, events }
    }

    fn event(&self, id: &str, partition: i32) -> Record {
        self.events.record(&json!({"id": id})).key(id).partition(partition)
    }

    fn publish(&self, ids: &[(&str, i32)]) {
        let records: Vec<_> = ids.iter().map(|(id, partition)| self.event(id, *partition)).collect();
        self.pipeline.client.produce_all(&self.source, &records);
    }

    fn group(&self) -> String {
        format!("{}.ingest", self.pipeline.name)
    }

    /// The events that are jobs, when nothing is left to read.
    fn jobs(&self) -> BTreeSet<String> {
        self.pipeline.client.wait_for_no_lag(&self.group(), &self.source, SOON);
        self.seen()
    }

    fn seen(&self) -> BTreeSet<String> {
        let jobs = self.pipeline.client.read_all(&self.pipeline.topic("default.jobs"));
        jobs.iter().filter_map(|job| job.key_text()).collect()
    }
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(ToString::to_string).collect()
}

#[test]
fn a_source_from_its_latest_passes_over_what_was_before_and_nothing_after_even_if_killed_before_a_commit() {
    let mut started = Started::new(Kafka::shared(), "latest", 2, "latest");
    shorten_sessions(&mut started.pipeline);
    // No commit of the loop's own comes before the kill.
    started.pipeline.reconfigure("[consume]\n", "[consume]\ncommit_interval = \"60s\"\n");
    started.publish(&[("before-0", 0), ("before-1", 1), ("before-2", 1)]);
    started.pipeline.start("ingest", &["ingest"]);
    let first = started.pipeline.client.committed(&started.group(), &started.source);
    assert_eq!((first[&0], first[&1]), (Some(1), Some(2)), "the start is written down at once");
    started.publish(&[("ready", 0)]);
    started.pipeline.kill("ingest");
    started.publish(&[("dead-0", 0), ("dead-1", 1)]);

    started.pipeline.start("ingest", &["ingest"]);
    let all = set(&["ready", "dead-0", "dead-1"]);
    wait_until("what came after the first start", SOON, || started.seen() == all);
    started.publish(&[("last", 1)]);
    wait_until("the last", SOON, || started.seen().contains("last"));
    started.pipeline.stop("ingest");
    assert_eq!(
        started.jobs(),
        set(&["ready", "dead-0", "dead-1", "last"]),
        "nothing from before the first start"
    );
}

#[test]
fn a_group_whose_offsets_are_gone_says_what_it_passes_over_and_one_that_begins_says_nothing() {
    let mut started = Started::new(Kafka::shared(), "expired", 2, "latest");
    let alarm = "its offsets are gone";
    started.publish(&[("before", 0)]);
    started.pipeline.start("ingest", &["ingest"]);
    started.publish(&[("read", 0)]);
    assert_eq!(started.jobs(), set(&["read"]));
    assert!(!started.pipeline.process("ingest").stderr().contains(alarm), "a first start is no loss");
    // Another source of a group that has offsets begins for the first time too.
    started.pipeline.stop("ingest");
    let other = started.pipeline.source("others", 1, "latest");
    started.pipeline.client.produce(&other, &Record::default().value("before"));
    started.pipeline.reconfigure(
        &format!("source = \"{}\"", started.source),
        &format!("source = [\"{}\", \"{other}\"]", started.source),
    );
    started.pipeline.start("ingest", &["ingest"]);
    assert!(!started.pipeline.process("ingest").stderr().contains(alarm), "nor is that of a new source");

    started.pipeline.stop("ingest");
    delete_group(Kafka::shared(), &started.group());
    started.publish(&[("missed", 0)]);
    started.pipeline.start("ingest", &["ingest"]);
    let said = started.pipeline.process("ingest").stderr();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(alarm)).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("ERROR")), "{said}");
    let of_source =
        lines.iter().find(|line| line.contains(&started.source)).expect("it is told of the source");
    assert!(of_source.contains("oldest=0") && of_source.contains("position=3"), "{of_source}");
    let label = format!("topic=\"{}\"", started.source);
    assert_eq!(started.pipeline.metric("ingest", "tidegate_offset_out_of_range_total", &[&label]), 1.0);
    started.publish(&[("next", 0)]);
    wait_until("the next one", SOON, || started.seen().contains("next"));
    assert_eq!(started.jobs(), set(&["read", "next"]), "`latest` is what was asked for");
}

/// As if the group had been away for longer than its offsets are kept.
fn delete_group(kafka: &Kafka, group: &str) {
    let mut last = None;
    // A member that has just left may still be in it.
    let deleted = look_until(SOON, || {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", kafka.bootstrap())
            .create()
            .expect("an admin client can be created");
        let group = group.to_owned();
        let results = block_on(async move { admin.delete_groups(&[&group], &AdminOptions::new()).await });
        last = results.expect("Kafka answers").into_iter().find_map(Result::err);
        last.is_none().then_some(())
    });
    assert!(deleted.is_some(), "the group can't be deleted, and nobody is in it: {last:?}");
}

#[test]
fn a_source_from_its_earliest_is_read_whole() {
    let mut started = Started::new(Kafka::shared(), "earliest", 2, "earliest");
    started.publish(&[("a", 0), ("b", 1), ("c", 1)]);
    started.pipeline.start("ingest", &["ingest"]);
    assert_eq!(started.jobs(), set(&["a", "b", "c"]));
}

#[test]
fn a_source_from_a_time_begins_with_the_first_event_of_that_time_or_with_the_next_one() {
    let hour = Duration::from_secs(3600);
    let noon = SystemTime::now() - 5 * hour;
    let text = rfc3339(noon);
    let mut started = Started::new(Kafka::shared(), "from-time", 2, &text);
    let at = |id: &str, partition: i32, time: SystemTime| {
        let millis = time.duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970").as_millis();
        started.event(id, partition).timestamp(millis as i64)
    };
    let records = [
        at("early", 0, noon - hour),
        at("just-before", 0, noon - Duration::from_secs(2)),
        at("noon", 0, noon),
        at("after", 0, noon + hour),
        // Of this partition, nothing is as young: it begins with the next one.
        at("old", 1, noon - hour),
    ];
    started.pipeline.client.produce_all(&started.source, &records);
    started.pipeline.start("ingest", &["ingest"]);
    started.publish(&[("next", 1)]);
    assert_eq!(started.jobs(), set(&["noon", "after", "next"]));
}

/// RFC 3339 in whole seconds, rounded down.
fn rfc3339(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).expect("it is within jiff's years");
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[test]
fn a_partition_that_a_source_gets_later_is_read_from_its_beginning() {
    let mut started = Started::new(Kafka::shared(), "grown", 1, "latest");
    // By default a client looks for new partitions every 30 s.
    started.pipeline.configure("[kafka.properties]\n\"topic.metadata.refresh.interval.ms\" = \"500\"\n");
    started.publish(&[("before", 0)]);
    started.pipeline.start("ingest", &["ingest"]);
    add_partitions(Kafka::shared(), &started.source, 3);
    wait_until("the new partitions", SOON, || started.pipeline.client.partitions(&started.source) == 3);
    started.publish(&[("new-1", 1), ("new-2", 2), ("kept", 0)]);
    wait_until("the events of all partitions", SOON, || started.seen() == set(&["new-1", "new-2", "kept"]));
    assert_eq!(started.jobs(), set(&["new-1", "new-2", "kept"]));
    // Also when it gets one while nobody looks.
    started.pipeline.stop("ingest");
    add_partitions(Kafka::shared(), &started.source, 4);
    wait_until("the new partition", SOON, || started.pipeline.client.partitions(&started.source) == 4);
    started.publish(&[("new-3", 3)]);
    started.pipeline.start("ingest", &["ingest"]);
    assert_eq!(started.jobs(), set(&["new-1", "new-2", "new-3", "kept"]));
}

fn add_partitions(kafka: &Kafka, topic: &str, count: usize) {
    let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .create()
        .expect("an admin client can be created");
    let topic = topic.to_owned();
    let results = block_on(async move {
        admin.create_partitions(&[NewPartitions::new(&topic, count)], &AdminOptions::new()).await
    });
    for result in results.expect("Kafka answers") {
        result.expect("partitions can be added");
    }
}

#[test]
fn several_instances_that_start_at_once_from_the_latest_read_nothing_from_before() {
    // As brokers are set by default: a new group waits for its members, and then gives each some partitions.
    let kafka = Kafka::start_with(1, &[("group.initial.rebalance.delay.ms", "3000")]);
    let partitions = 24;
    let mut started = Started::new(&kafka, "at-once", partitions, "latest");
    let publish = |started: &Started, name: &str| {
        let records: Vec<_> = (0..partitions).map(|at| started.event(&format!("{name}-{at}"), at)).collect();
        started.pipeline.client.produce_all(&started.source, &records);
    };
    publish(&started, "before");
    let names = ["one", "two", "three"];
    names.iter().for_each(|name| started.pipeline.launch(name, &["ingest"], &[]));
    names.iter().for_each(|name| started.pipeline.wait_ready(name));
    publish(&started, "after");
    let after: BTreeSet<_> = (0..partitions).map(|at| format!("after-{at}")).collect();
    assert_eq!(started.jobs(), after);
    // No event came twice either: each partition has one owner, and the first start is one for all of them.
    let jobs = started.pipeline.client.read_all(&started.pipeline.topic("default.jobs"));
    let origins: Vec<_> = jobs
        .iter()
        .filter_map(|job| JobHeader::parse(job.header("job")?.as_bytes()).ok())
        .map(|job| (job.partition.0, job.offset.0))
        .collect();
    assert_eq!((jobs.len(), origins.iter().collect::<BTreeSet<_>>().len()), (24, 24));
    assert!(origins.iter().all(|(_, offset)| *offset == 1), "{origins:?}");
}

#[test]
fn a_stop_during_the_checks_of_a_start_is_a_clean_end() {
    // It takes connections and never answers, as a broker that hangs does.
    let broker = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let bootstrap = broker.local_addr().expect("it is bound").to_string();
    for arguments in [&["ingest"][..], &["worker", "--tier", "default"], &["retry"]] {
        let mut pipeline = Pipeline::at("stopped", &bootstrap, "http://127.0.0.1:9");
        pipeline.launch("service", arguments, &[]);
        pipeline.process("service").wait_for_output("the retry ladder", SOON);
        // Had the checks gone on to their end, they would have failed.
        pipeline.stop("service");
    }
}

#[test]
fn an_assignment_is_one_line_however_many_partitions_it_has() {
    let mut started = Started::new(Kafka::shared(), "one-line", 24, "latest");
    started.pipeline.start("ingest", &["ingest"]);
    started.pipeline.start("retry", &["retry"]);
    for (service, count) in
        [("ingest", format!("{}\": 24", started.source)), ("retry", "partitions=36".to_owned())]
    {
        let said = started.pipeline.process(service).stderr();
        let assigned: Vec<_> = said.lines().filter(|line| line.contains(": assigned ")).collect();
        assert_eq!(assigned.len(), 1, "{said}");
        assert!(assigned[0].contains(&count), "{assigned:?}");
        assert!(said.lines().count() < 20, "{said}");
    }
}
