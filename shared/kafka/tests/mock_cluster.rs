//! The adapters against librdkafka's mock cluster: what needs no real broker, in seconds. Promises are tested on a real one.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::topic_partition_list::{Offset as Place, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::{cluster, publish, settings};
use tidegate_domain::{Offset, Partition, Topic};
use tidegate_kafka::consumer::{GroupMember, ShardPort, Start, Subscription};
use tidegate_kafka::embedded::EmbeddedBroker;
use tidegate_kafka::single::{publish_one, read_topic};
use tidegate_kafka::topics::{Cluster, TopicSpec};
use tidegate_kafka::{ConnectError, Fatal, KafkaSettings, Publisher, SystemClock};
use tidegate_pipeline::ports::{PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::shard::{Shard, ShardObserver, ShardSettings};
use tidegate_pipeline::stage::{Desk, Slot, Stage};
use tidegate_pipeline::{Inbox, Record, TopicPartition, Wake};

/// The mock makes a group wait three seconds for its first members. The rest is for a machine that does more than this.
const SOON: Duration = Duration::from_secs(60);
/// How long what runs may take to end when a member leaves.
const DRAIN: Duration = Duration::from_secs(5);

#[test]
fn null_and_empty_parts_and_header_names_that_are_no_text_survive() {
    let cluster = cluster("parts", 1);
    let settings = settings(&cluster);
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    let topic = Topic::new("parts");
    let parts = [None, Some(&b""[..]), Some(&b"x"[..])];
    let headers =
        [(&b"\xff\xfe"[..], Some(&b"v"[..])), (b"null", None), (b"empty", Some(b"")), (b"null", Some(b"2"))];
    for key in parts {
        for value in parts {
            let record = OutboundRecord {
                topic: &topic,
                partition: Some(Partition(0)),
                key,
                value,
                headers: &headers,
            };
            publish_one(&publisher, &record).unwrap();
        }
    }
    let mut read = Vec::new();
    read_topic(&settings, "parts", |found| {
        read.push(found.record);
        ControlFlow::Continue(())
    })
    .unwrap();
    let expected = parts.iter().flat_map(|key| parts.iter().map(move |value| (*key, *value)));
    let found: Vec<_> = read.iter().map(|record| (record.key(), record.value())).collect();
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert!(read.iter().all(|record| record.headers().eq(headers)));
}

#[test]
fn a_record_that_the_broker_refuses_for_its_size_is_told_as_that() {
    let cluster = cluster("size", 1);
    let publisher = Publisher::new(&settings(&cluster), Fatal::default()).unwrap();
    publish(&publisher, "size", 0, b"fits").unwrap();
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    assert!(matches!(publish(&publisher, "size", 0, b"refused"), Err(PublishError::TooLarge(_))));
    // The client itself refuses what is larger than it may send.
    assert!(matches!(publish(&publisher, "size", 0, &vec![0; 2 << 20]), Err(PublishError::TooLarge(_))));
    publish(&publisher, "size", 0, b"goes on").unwrap();
}

#[test]
fn a_broker_that_is_away_for_a_moment_costs_nothing() {
    let cluster = cluster("away", 1);
    let publisher = Publisher::new(&settings(&cluster), Fatal::default()).unwrap();
    publish(&publisher, "away", 0, b"before").unwrap();
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    publish(&publisher, "away", 0, b"after").unwrap();
}

/// Publishes two records so that two requests are in flight at once, or would be, and the first one is refused for the moment.
/// Answers come in their order.
fn overtaken(name: &str, make: Make) -> ([Result<Offset, PublishError>; 2], Vec<String>) {
    let cluster = cluster(name, 2);
    let settings = settings(&cluster);
    let publisher = make(&settings, Fatal::default()).unwrap();
    // It is connected, and has never published to the other partition.
    publish(&publisher, name, 1, b"elsewhere").unwrap();
    cluster.broker_round_trip_time(1, Duration::from_millis(500)).unwrap();
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS]);
    let topic = Topic::new(name);
    let inbox = Inbox::new(Wake::default());
    let hand_over = |value: &[u8], ticket: u64| {
        let partition = Some(Partition(0));
        let record = OutboundRecord { topic: &topic, partition, key: None, value: Some(value), headers: &[] };
        publisher.publish(&record, Ticket(ticket), &inbox).unwrap();
    };
    hand_over(b"first", 0);
    // Past the linger, within the round trip: a request of its own.
    std::thread::sleep(Duration::from_millis(150));
    hand_over(b"second", 1);
    assert!(publisher.flush(SOON));
    let mut answers = Vec::new();
    inbox.take(&mut answers);
    answers.sort_by_key(|(Ticket(ticket), _)| *ticket);
    let answers = answers.into_iter().map(|(_, answer)| answer.map(|acknowledged| acknowledged.offset));
    let answers = answers.collect::<Vec<_>>().try_into().unwrap();
    cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
    (answers, values(&settings, name))
}

type Make = fn(&KafkaSettings, Fatal) -> Result<Publisher, ConnectError>;

/// What the first partition holds.
fn values(settings: &KafkaSettings, topic: &str) -> Vec<String> {
    let mut values = Vec::new();
    read_topic(settings, topic, |found| {
        if found.partition == Partition(0) {
            values.push(String::from_utf8_lossy(found.record.value().unwrap()).into_owned());
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    values
}

#[test]
fn a_record_that_is_called_delivered_and_has_no_place_is_not_taken_for_acknowledged() {
    // It takes two requests in flight at once. A busy machine may be too late with the second one, and then there is nothing to see.
    let fault =
        (0..30).map(|_| overtaken("placeless", Publisher::new)).find(|(_, there)| *there == ["second"]);
    let ([first, second], _) = fault.expect("the fault comes about");
    assert!(second.is_ok(), "{second:?}");
    assert!(matches!(first, Err(PublishError::Unavailable(_))), "{first:?}");
}

#[test]
fn a_publisher_in_order_lets_no_record_overtake_one_that_was_refused_for_the_moment() {
    let ([first, second], there) = overtaken("in-order", Publisher::in_order);
    assert_eq!(there, ["first", "second"]);
    assert_eq!((first.unwrap().0, second.unwrap().0), (0, 1));
}

/// Settles what it gets at once, and notes it.
struct Noting {
    noted: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Stage for Noting {
    fn assigned(&mut self, _: Slot, _: &TopicPartition, _: &mut Desk) {}

    fn wants(&self, _: Slot) -> bool {
        true
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        for record in records.drain(..) {
            self.noted.lock().push(record.value().unwrap_or_default().to_vec());
            desk.settle(slot, record.offset(), record.size());
        }
    }

    fn turn(&mut self, _: &mut Desk) {}

    fn drain(&mut self, _: Slot, _: &mut Desk) {}

    fn is_idle(&self, _: Slot) -> bool {
        true
    }

    fn release(&mut self, _: Slot, _desk: &mut Desk) {}
}

struct Silent;

impl ShardObserver for Silent {
    fn troubles(&mut self, _: &std::collections::BTreeMap<TopicPartition, String>) {}

    fn fatal(&mut self, reason: &str) {
        panic!("{reason}");
    }
}

/// A member of the group `g` with two shards; what they read is noted.
fn join(settings: &KafkaSettings, topic: &str) -> (GroupMember, Arc<Mutex<Vec<Vec<u8>>>>, Fatal) {
    join_from(settings, topic, Box::new(|_| Start::Earliest))
}

fn join_from(
    settings: &KafkaSettings,
    topic: &str,
    start: Box<dyn Fn(&str) -> Start + Send + Sync>,
) -> (GroupMember, Arc<Mutex<Vec<Vec<u8>>>>, Fatal) {
    let ports: Vec<ShardPort> = (0..2)
        .map(|_| {
            let wake = Wake::default();
            ShardPort { control: Inbox::new(wake.clone()), wake }
        })
        .collect();
    let subscription =
        Subscription { group: "g".to_owned(), topics: vec![topic.to_owned()], start, drain_deadline: DRAIN };
    let fatal = Fatal::default();
    let member = GroupMember::join(settings, subscription, ports.clone(), fatal.clone()).unwrap();
    let noted = Arc::new(Mutex::new(Vec::new()));
    for ShardPort { control, wake } in ports {
        let (stage, committer) = (Noting { noted: noted.clone() }, member.committer());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let clock = Arc::new(SystemClock);
            let shard = Shard::new(
                stage,
                ShardSettings::default(),
                clock,
                committer,
                (control, wake),
                Box::new(Silent),
            );
            runtime.block_on(shard.run());
        });
    }
    (member, noted, fatal)
}

fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(is_met(SOON, condition), "{what}");
}

/// Whether the condition is met within that time.
fn is_met(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// How many different records were noted.
fn distinct(noted: &Mutex<Vec<Vec<u8>>>) -> usize {
    noted.lock().iter().collect::<BTreeSet<_>>().len()
}

fn committed(settings: &KafkaSettings, topic: &str, partitions: i32) -> i64 {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &settings.bootstrap)
        .set("group.id", "g")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition(topic, partition);
    }
    let list = consumer.committed_offsets(list, SOON).unwrap();
    let of = |offset: Place| if let Place::Offset(at) = offset { at } else { 0 };
    list.elements().iter().map(|element| of(element.offset())).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_reads_its_partitions_and_commits_all_of_it_when_it_leaves() {
    let cluster = cluster("leave", 4);
    let settings = settings(&cluster);
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    (0..40).for_each(|n| publish(&publisher, "leave", n % 4, n.to_string().as_bytes()).unwrap());
    let (member, noted, fatal) = join(&settings, "leave");
    until("all records are read", || noted.lock().len() == 40);
    member.leave().await;
    assert_eq!((committed(&settings, "leave", 4), fatal.reason()), (40, None));
    assert_eq!(distinct(&noted), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_to_leave_does_not_wait_for_a_broker_that_is_gone() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("gone", 1, 1).unwrap();
    cluster.coordinator(MockCoordinator::Group("g".to_owned()), 1).unwrap();
    cluster.partition_leader("gone", 0, Some(2)).unwrap();
    cluster.broker_down(2).unwrap();
    // Asked for when the partition is assigned and its leader is about to be asked.
    let (ask, asked) = std::sync::mpsc::channel();
    let start = move |_: &str| {
        let _heard_of_before = ask.send(());
        Start::Latest
    };
    let (member, noted, fatal) = join_from(&settings(&cluster), "gone", Box::new(start));
    asked.recv_timeout(SOON).unwrap();
    let began = Instant::now();
    member.leave().await;
    // For a minute such a broker is asked where its partition begins.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!((fatal.reason(), noted.lock().len()), (None, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_assigned_to_a_member_that_is_to_leave_is_given_back_unread() {
    let cluster = cluster("unread", 2);
    let settings = settings(&cluster);
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    publish(&publisher, "unread", 0, b"for the next owner").unwrap();
    let (ask, asked) = std::sync::mpsc::channel();
    let (leave, leaves) = std::sync::mpsc::channel::<()>();
    let leaves = Mutex::new(leaves);
    let start = move |_: &str| {
        ask.send(()).unwrap();
        // Until the other end is dropped.
        leaves.lock().recv().unwrap_err();
        Start::Earliest
    };
    let (member, noted, fatal) = join_from(&settings, "unread", Box::new(start));
    asked.recv_timeout(SOON).unwrap();
    let mut leaving = Box::pin(member.leave());
    tokio::select! {
        biased;
        () = &mut leaving => panic!("it was asked nothing yet"),
        () = std::future::ready(()) => {}
    }
    drop(leave);
    leaving.await;
    assert_eq!((fatal.reason(), noted.lock().len()), (None, 0));
    assert_eq!(committed(&settings, "unread", 2), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_to_a_member_that_joins_and_no_record_is_passed_over() {
    // The mock hears nothing of a member that waits for the others, and has a second left when they have had their time: if the process
    // stands still then, it takes the member for dead, which is never answered. So there is another try, in another cluster.
    for _ in 0..6 {
        if partitions_move().await {
            return;
        }
    }
    panic!("the partitions never moved");
}

/// Whether all partitions moved to a second member. No record was passed over, whether they did or not.
async fn partitions_move() -> bool {
    let cluster = cluster("move", 4);
    // So long, but for a second, the mock waits for the other members whenever one joins or leaves.
    let session_timeout = Duration::from_secs(8);
    let settings = KafkaSettings { session_timeout, ..settings(&cluster) };
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    let publish = |n: usize| {
        publish(&publisher, "move", i32::try_from(n % 4).unwrap(), n.to_string().as_bytes()).unwrap();
    };
    let (first, noted_first, _) = join(&settings, "move");
    (0..40).for_each(publish);
    until("the first member reads", || distinct(&noted_first) == 40);
    let (second, noted_second, _) = join(&settings, "move");
    let read = || {
        // What the first one reads it notes before the second one has the partition, so that is looked at last.
        let mut read = numbers(&noted_second);
        read.append(&mut numbers(&noted_first));
        read
    };
    // Published until the second has a share: then partitions have moved, under load.
    let mut published = 40;
    let changes = session_timeout * 5;
    let mut moved = is_met(changes, || {
        publish(published);
        published += 1;
        !noted_second.lock().is_empty()
    });
    moved = moved && is_met(changes, || read().len() == published);
    if moved {
        first.leave().await;
        // The mock takes no commit while a group changes, which a broker does: so the second leaves when it has all partitions, and
        // that a hand-over repeats nothing is seen on a real broker (`tests/tests/live/faults/stops.rs`).
        let late: BTreeSet<usize> = (published..published + 4).collect();
        late.iter().copied().for_each(publish);
        published += 4;
        let all = || late.is_subset(&numbers(&noted_second)) && read().len() == published;
        moved = is_met(changes, all);
    }
    assert_that_none_is_passed_over(&read());
    if moved {
        second.leave().await;
        assert_eq!(committed(&settings, "move", 4), i64::try_from(published).unwrap());
    }
    moved
}

fn numbers(noted: &Mutex<Vec<Vec<u8>>>) -> BTreeSet<usize> {
    noted.lock().iter().map(|value| String::from_utf8_lossy(value).parse().unwrap()).collect()
}

/// Of each partition, everything up to the last one that was read was read.
fn assert_that_none_is_passed_over(read: &BTreeSet<usize>) {
    for partition in 0..4 {
        let of_it: Vec<usize> = read.iter().copied().filter(|n| n % 4 == partition).collect();
        assert!(of_it.iter().copied().eq((partition..).step_by(4).take(of_it.len())), "{of_it:?}");
    }
}

#[test]
fn a_member_leaves_amid_a_division_of_its_group_though_others_hold_that_up() {
    // A busy machine may be too late with the heartbeat by which the member hears of the division, and then it leaves as ever.
    let met = (0..5).any(|_| leaves_amid_a_division());
    assert!(met, "it never met the division");
}

/// Whether a member met the division amid which it leaves. If so, it did not wait for it.
fn leaves_amid_a_division() -> bool {
    let cluster = cluster("divided", 4);
    // So long, but for a second, the mock waits for other members whenever one joins.
    let session_timeout = Duration::from_secs(61);
    let settings = KafkaSettings { session_timeout, ..settings(&cluster) };
    let (first, noted, fatal) = join(&settings, "divided");
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    let mut published = 0;
    // Another record; whether its position is committed before the first member has heard of a division: by its second heartbeat.
    let mut is_committed = || {
        published += 1;
        publish(&publisher, "divided", 0, published.to_string().as_bytes()).unwrap();
        until("it goes on", || distinct(&noted) == published);
        let settled = Instant::now();
        while committed(&settings, "divided", 4) < published as i64 {
            if settled.elapsed() > session_timeout / 15 * 2 {
                return false;
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        true
    };
    until("its positions are committed", &mut is_committed);
    let begun = Instant::now();
    let (second, _, _) = join(&settings, "divided");
    until("the group takes no commit any more", || !is_committed());
    let before = committed(&settings, "divided", 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let leaves = Instant::now();
    runtime.block_on(first.leave());
    let took = leaves.elapsed();
    // As a process does that ends: the client itself is closed once the group has answered.
    runtime.shutdown_background();
    assert!(begun.elapsed() < session_timeout - Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(fatal.reason(), None);
    drop(second);
    // Half of that time it looks whether the division ends. What it settled is not committed then: the next owner gets that again.
    took > DRAIN / 2 && committed(&settings, "divided", 4) == before
}

fn spec(name: &str, partitions: Option<u32>) -> TopicSpec {
    TopicSpec {
        name: name.to_owned(),
        partitions,
        keyed: true,
        replication: Some(3),
        settings: Default::default(),
    }
}

fn embedded_settings(broker: &EmbeddedBroker) -> KafkaSettings {
    KafkaSettings {
        bootstrap: broker.bootstrap(),
        properties: Vec::new(),
        consumer_properties: Vec::new(),
        producer_properties: Vec::new(),
        session_timeout: Duration::from_secs(6),
        max_message_bytes: 1 << 20,
    }
}

#[test]
fn an_embedded_broker_has_the_topics_that_it_is_given_each_with_its_id_and_keeps_what_is_published() {
    let broker = EmbeddedBroker::start().unwrap();
    // One that is named twice is one.
    broker.create(&[spec("a", Some(5)), spec("b", None), spec("a", Some(5))]).unwrap();
    let settings = embedded_settings(&broker);
    let cluster = Cluster::connect(&settings).unwrap();
    let partitions: Vec<(String, u32)> =
        cluster.topics().unwrap().into_iter().map(|(name, state)| (name, state.partitions)).collect();
    assert_eq!(partitions, [("a".to_owned(), 5), ("b".to_owned(), 3)]);
    let ids = cluster.topic_ids(&["a", "b"]).unwrap();
    assert!(ids.len() == 2 && ids["a"] != ids["b"], "{ids:?}");
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    publish(&publisher, "a", 4, b"kept").unwrap();
    let mut kept = Vec::new();
    read_topic(&settings, "a", |found| {
        kept.push((found.partition, found.record.value().unwrap_or_default().to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(kept, [(Partition(4), b"kept".to_vec())]);
}

#[tokio::test]
async fn what_the_embedded_broker_has_no_request_for_is_told_at_once() {
    let broker = EmbeddedBroker::start().unwrap();
    broker.create(&[spec("a", Some(1))]).unwrap();
    let mut times = Vec::new();
    for _ in 0..3 {
        let cluster = Cluster::connect(&embedded_settings(&broker)).unwrap();
        let began = Instant::now();
        let settings = cluster.settings(&["a"]).await.unwrap_err();
        let create = cluster.create(&[spec("b", Some(1))]).await.unwrap_err();
        times.push(began.elapsed());
        for (error, what) in [(settings, "can't tell the settings"), (create, "can't create topics")] {
            assert!(error.to_string().contains(what) && error.is_misconfiguration(), "{error}");
        }
    }
    // Each would take ten seconds and more if it waited for the controller that the broker names. The fastest round counts: a machine
    // may be busy, but such a wait slows all of them.
    assert!(times.iter().min().unwrap() < &Duration::from_secs(8), "{times:?}");
}
