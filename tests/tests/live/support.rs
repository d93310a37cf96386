//! The support itself, against real servers: a test that trusts it must be able to.

use std::time::Duration;

use tidegate_tests::kafka_io::{Outcome, Record};
use tidegate_tests::servers::{Kafka, Registry};
use tidegate_tests::unique;

const SOON: Duration = Duration::from_secs(30);

#[test]
fn what_is_produced_is_read_back_with_null_and_empty_kept_apart() {
    let kafka = Kafka::shared().client();
    let topic = unique("round-trip");
    // Else the broker removes the record of 2023 whenever it next looks for old ones.
    kafka.create_topic_with(&topic, 2, &[("retention.ms", "-1")]);
    let written = kafka.produce_all(
        &topic,
        &[
            Record::default()
                .partition(0)
                .key("k")
                .value("v")
                .header("a", "1")
                .header("a", "2")
                .null_header("n"),
            Record::default().partition(0).key("").value("").header("empty", ""),
            Record::default().partition(1).timestamp(1_700_000_000_123),
        ],
    );
    assert_eq!(written, [(0, 0), (0, 1), (1, 0)]);

    let read = kafka.read_all(&topic);
    assert_eq!(read.len(), 3);
    assert_eq!((read[0].key_text().as_deref(), read[0].value_text().as_deref()), (Some("k"), Some("v")));
    let some = |text: &str| Some(text.as_bytes().to_vec());
    let headers = [("a".into(), some("1")), ("a".into(), some("2")), ("n".into(), None)];
    assert_eq!(read[0].headers, headers);
    assert_eq!((&read[1].key, &read[1].value), (&Some(vec![]), &Some(vec![])));
    assert_eq!(read[1].headers, [("empty".into(), Some(vec![]))]);
    assert_eq!((&read[2].key, &read[2].value), (&None, &None));
    assert_eq!(read[2].timestamp, Some(1_700_000_000_123));
    assert!(kafka.topics().contains(&topic));
    assert_eq!(kafka.partitions(&topic), 2);
}

#[test]
fn the_end_of_an_empty_topic_is_reached() {
    let kafka = Kafka::shared().client();
    let topic = unique("empty");
    kafka.create_topic_with(&topic, 3, &[("cleanup.policy", "compact")]);
    assert_eq!(kafka.read_all(&topic), []);
    kafka.delete_topic(&topic);
    assert!(!kafka.topics().contains(&topic));
}

#[test]
fn transactions_leave_markers_and_hide_what_was_aborted() {
    let kafka = Kafka::shared().client();
    let topic = unique("transactions");
    kafka.create_topic(&topic, 1);
    kafka.produce_in_transaction(&topic, &[Record::default().value("aborted")], Outcome::Abort);
    kafka.produce_in_transaction(&topic, &[Record::default().value("committed")], Outcome::Commit);
    let read = kafka.wait_for_count(&topic, 1, SOON);
    let values: Vec<_> = read.iter().map(|record| (record.offset, record.value_text().unwrap())).collect();
    assert_eq!(values, [(2, "committed".to_owned())]);
    // Two records and two markers; the last offset is a marker's, and reading to the end copes with that.
    assert_eq!(kafka.offsets(&topic)[&0], (0, 4));
    assert_eq!(kafka.read_all(&topic), read);
}

#[test]
fn a_group_lags_by_what_it_has_not_committed() {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
    use rdkafka::{ClientConfig, Offset, TopicPartitionList};

    let kafka = Kafka::shared().client();
    let (topic, group) = (unique("lag"), unique("group"));
    kafka.create_topic(&topic, 1);
    kafka.produce_all(&topic, &vec![Record::default().value("x"); 5]);
    assert_eq!(kafka.committed(&group, &topic)[&0], None);
    assert_eq!(kafka.lag(&group, &topic), 5);

    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", Kafka::shared().bootstrap())
        .set("group.id", &group)
        .create()
        .unwrap();
    let commit = |offset| {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, 0, Offset::Offset(offset)).unwrap();
        consumer.commit(&list, CommitMode::Sync).unwrap();
    };
    commit(3);
    assert_eq!(kafka.committed(&group, &topic)[&0], Some(3));
    assert_eq!(kafka.lag(&group, &topic), 2);
    commit(5);
    kafka.wait_for_no_lag(&group, &topic, SOON);
}

#[test]
fn a_killed_broker_comes_back_on_its_port_with_its_data() {
    let mut kafka = Kafka::start(1);
    let client = kafka.client();
    let topic = unique("kept");
    client.create_topic(&topic, 1);
    client.produce(&topic, &Record::default().value("before"));
    let address = kafka.bootstrap().to_owned();

    kafka.kill_broker(0);
    assert!(std::net::TcpStream::connect(&address).is_err());
    kafka.start_broker(0);
    client.produce(&topic, &Record::default().value("after"));

    kafka.stop_broker(0);
    kafka.start_broker(0);
    let values: Vec<_> = client.read_all(&topic).iter().filter_map(|record| record.value_text()).collect();
    assert_eq!(values, ["before", "after"]);
    assert_eq!(kafka.bootstrap(), address);
}

#[test]
fn of_three_brokers_one_may_die_and_come_back() {
    let mut kafka = Kafka::start_with(3, &[("message.max.bytes", "2000000")]);
    let client = kafka.client();
    let topic = unique("replicated");
    client.create_topic_with(&topic, 3, &[("min.insync.replicas", "2")]);
    // One for each partition: the dead broker's partitions get another leader first.
    let records: Vec<_> = (0..3).map(|partition| Record::default().partition(partition).value("x")).collect();
    kafka.kill_broker(0);
    client.produce_all(&topic, &records);
    kafka.start_broker(0);
    client.produce_all(&topic, &records);
    client.wait_for_count(&topic, 6, SOON);
}

#[test]
fn a_registered_schema_is_found_by_its_id() {
    let registry = Registry::shared();
    let schema = format!(r#"{{"type":"record","name":"{}","fields":[]}}"#, unique("Empty").replace('-', "_"));
    let id = registry.register(&unique("subject"), &schema);
    assert_eq!(registry.schema(id), Some(schema));
    assert_eq!(registry.schema(id + 1_000_000), None);
}

#[test]
fn a_registry_that_was_down_still_knows_its_schemas() {
    let mut registry = Registry::start();
    let id = registry.register("subject", r#""string""#);
    let url = format!("{}/schemas/ids/{id}", registry.url());
    registry.stop();
    assert!(tidegate_tests::http::get(&url).unwrap_err().is_connect());
    registry.start_again();
    assert_eq!(tidegate_tests::http::get(&url).unwrap().0, 200);
}
