//! Reading a log against librdkafka's mock cluster: which records come, and what is an error and never another position.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::{cluster, publish, settings};
use tidegate_domain::{CommitPosition, Partition, Topic};
use tidegate_kafka::{Fatal, LogReader, Publisher, ReadError};
use tidegate_pipeline::ports::{RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::{Inbox, TopicPartition, Wake};

fn log(topic: &str) -> TopicPartition {
    TopicPartition { topic: Topic::new(topic), partition: Partition(0) }
}

/// Publishes the numbers below `count`, as texts, to partition 0.
fn fill(publisher: &Publisher, topic: &str, count: usize) {
    let topic = Topic::new(topic);
    let inbox = Inbox::new(Wake::default());
    for n in 0..count {
        let value = n.to_string();
        let record = OutboundRecord {
            topic: &topic,
            partition: Some(Partition(0)),
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        publisher.publish(&record, Ticket(n as u64), &inbox).unwrap();
    }
    assert!(publisher.flush(Duration::from_secs(30)));
    let mut answers = Vec::new();
    inbox.take(&mut answers);
    assert_eq!(answers.iter().filter(|(_, answer)| answer.is_ok()).count(), count);
}

/// What a stretch holds: offset and value of each record, and in how many batches they came.
fn read(
    reader: &LogReader,
    topic: &str,
    (from, until): (i64, i64),
) -> Result<(Vec<(i64, String)>, usize), ReadError> {
    let (mut records, mut batches) = (Vec::new(), 0);
    reader.read(&log(topic), CommitPosition(from), CommitPosition(until), &mut |batch| {
        batches += 1;
        records.extend(
            batch.drain(..).map(|record| {
                (record.offset().0, String::from_utf8(record.value().unwrap().to_vec()).unwrap())
            }),
        );
        ControlFlow::Continue(())
    })?;
    Ok((records, batches))
}

fn expected(from: i64, until: i64) -> Vec<(i64, String)> {
    (from..until).map(|n| (n, n.to_string())).collect()
}

/// The answer, once a broker gives one: a question has a few seconds only, for which a busy machine may stand still.
fn answered<T>(ask: impl Fn() -> Result<T, ReadError>) -> Result<T, ReadError> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match ask() {
            Err(ReadError::Unavailable { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            answer => return answer,
        }
    }
}

#[test]
fn every_record_of_a_stretch_comes_once_and_in_order_over_many_batches() {
    let cluster = cluster("whole", 1);
    let settings = settings(&cluster);
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "whole", 10_000);
    let reader = LogReader::new(&settings).unwrap();
    assert_eq!(
        answered(|| reader.bounds(&log("whole"))).unwrap(),
        (CommitPosition(0), CommitPosition(10_000))
    );
    let (records, batches) = read(&reader, "whole", (0, 10_000)).unwrap();
    assert!(batches > 1, "one batch proves nothing");
    assert_eq!(records, expected(0, 10_000));
}

#[test]
fn a_stretch_ends_before_its_end_though_the_log_goes_on() {
    let cluster = cluster("middle", 1);
    let settings = settings(&cluster);
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "middle", 3_000);
    let reader = LogReader::new(&settings).unwrap();
    // The same reader again and again: what an earlier stretch left behind must not show.
    for (from, until) in [(0, 1), (17, 1_234), (17, 1_234), (2_999, 3_000), (0, 3_000), (1_500, 1_501)] {
        assert_eq!(read(&reader, "middle", (from, until)).unwrap().0, expected(from, until));
    }
}

#[test]
fn an_empty_stretch_hands_out_nothing() {
    let cluster = cluster("empty", 1);
    let reader = LogReader::new(&settings(&cluster)).unwrap();
    assert_eq!(answered(|| reader.bounds(&log("empty"))).unwrap(), (CommitPosition(0), CommitPosition(0)));
    for (from, until) in [(0, 0), (5, 5), (7, 5)] {
        assert_eq!(read(&reader, "empty", (from, until)).unwrap(), (Vec::new(), 0));
    }
}

#[test]
fn who_has_seen_enough_ends_the_stretch() {
    let cluster = cluster("enough", 1);
    let settings = settings(&cluster);
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "enough", 3_000);
    let reader = LogReader::new(&settings).unwrap();
    let mut batches = 0;
    reader
        .read(&log("enough"), CommitPosition(0), CommitPosition(3_000), &mut |_| {
            batches += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(batches, 1);
    assert_eq!(read(&reader, "enough", (0, 3_000)).unwrap().0, expected(0, 3_000));
}

#[test]
fn a_position_that_the_log_does_not_hold_is_an_error_and_no_other_position() {
    let cluster = cluster("range", 1);
    let settings = settings(&cluster);
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "range", 10);
    // So long it waits for what follows the log's end, once.
    let reader = LogReader::with_patience(&settings, Duration::from_secs(10)).unwrap();
    let beyond = read(&reader, "range", (11, 20));
    assert!(matches!(beyond, Err(ReadError::OutOfRange { .. })), "{beyond:?}");
    let ends_before = read(&reader, "range", (5, 20));
    assert!(matches!(ends_before, Err(ReadError::OutOfRange { .. })), "{ends_before:?}");
    assert_eq!(read(&reader, "range", (0, 10)).unwrap().0, expected(0, 10), "and the next stretch is read");
}

#[test]
fn a_record_at_the_end_of_a_log_is_read_again_and_again_without_a_wait_for_what_comes_after_it() {
    let cluster = cluster("last", 1);
    let mut settings = settings(&cluster);
    // So long a fetch of what comes after them would wait.
    let wait = Duration::from_secs(2);
    settings.consumer_properties.push(("fetch.wait.max.ms".to_owned(), wait.as_millis().to_string()));
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "last", 3_000);
    let reader = LogReader::new(&settings).unwrap();
    // The first one connects. Of the others the fastest counts: a machine may be busy, but a wait at the broker slows all of them.
    let times = [2_999, 2_999, 2_998, 2_999, 2_997, 2_999].map(|at| {
        let began = Instant::now();
        assert_eq!(read(&reader, "last", (at, at + 1)).unwrap().0, expected(at, at + 1));
        began.elapsed()
    });
    let fastest = times[1..].iter().min().unwrap();
    assert!(*fastest < wait / 4, "{times:?}");
}

#[test]
fn retention_that_overtakes_the_reader_is_an_error() {
    let cluster = cluster("overtaken", 1);
    let settings = settings(&cluster);
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "overtaken", 10);
    let reader = LogReader::new(&settings).unwrap();
    cluster.request_errors(RDKafkaApiKey::Fetch, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE]);
    let overtaken = read(&reader, "overtaken", (0, 10));
    assert!(matches!(overtaken, Err(ReadError::OutOfRange { .. })), "{overtaken:?}");
}

#[test]
fn a_topic_or_partition_that_does_not_exist_is_told_as_that() {
    let cluster = cluster("there", 1);
    let reader = LogReader::new(&settings(&cluster)).unwrap();
    let partition = TopicPartition { partition: Partition(7), ..log("there") };
    let missing = answered(|| reader.bounds(&partition));
    assert!(matches!(missing, Err(ReadError::Missing(_))), "{missing:?}");
    let missing = reader.read(&partition, CommitPosition(0), CommitPosition(1), &mut |_| {
        panic!("there is nothing to read");
    });
    assert!(matches!(missing, Err(ReadError::Missing(_))), "{missing:?}");
}

#[test]
fn a_broker_that_goes_and_comes_back_in_the_middle_costs_no_record() {
    let cluster = cluster("restart", 1);
    let settings = settings(&cluster);
    let publisher = Publisher::new(&settings, Fatal::default()).unwrap();
    fill(&publisher, "restart", 2_000);
    let reader = LogReader::new(&settings).unwrap();
    let (mut records, mut down) = (Vec::new(), None);
    reader
        .read(&log("restart"), CommitPosition(0), CommitPosition(2_001), &mut |batch| {
            records.extend(batch.drain(..).map(|record| record.offset().0));
            if records.len() >= 2_000 && down.is_none() {
                // The last record is appended after the broker was away, while the reader waits for it.
                cluster.broker_down(1).unwrap();
                down = Some(reader.bounds(&log("restart")).is_err());
                cluster.broker_up(1).unwrap();
                publish(&publisher, "restart", 0, b"last").unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(down, Some(true), "the broker was away");
    assert_eq!(records, (0..2_001).collect::<Vec<_>>());
}

#[test]
fn while_no_broker_answers_it_gives_up_after_its_patience_and_works_again_later() {
    let cluster = cluster("silent", 1);
    let settings = settings(&cluster);
    fill(&Publisher::new(&settings, Fatal::default()).unwrap(), "silent", 10);
    let reader = LogReader::with_patience(&settings, Duration::from_secs(2)).unwrap();
    assert_eq!(answered(|| read(&reader, "silent", (0, 10))).unwrap().0, expected(0, 10));
    cluster.broker_down(1).unwrap();
    let silent = read(&reader, "silent", (0, 10));
    assert!(matches!(silent, Err(ReadError::Unavailable { .. })), "{silent:?}");
    let silent = reader.bounds(&log("silent"));
    assert!(matches!(silent, Err(ReadError::Unavailable { .. })), "{silent:?}");
    cluster.broker_up(1).unwrap();
    answered(|| reader.bounds(&log("silent"))).unwrap();
    assert_eq!(answered(|| read(&reader, "silent", (0, 10))).unwrap().0, expected(0, 10));
}
