//! Offsets that are not contiguous, and offsets that are gone.

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidegate_tests::background::block_on;
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, tasks};
use tidegate_tests::kafka_io::{Outcome, ReadRecord, Record};
use tidegate_tests::servers::Kafka;
use tidegate_tests::wait::wait_until;

use crate::standstill::with_long_sessions;

/// Waits until the group has committed past the last record of each partition; what follows are markers and aborted records.
fn wait_past_records(jobs: &Jobs, group: &str, topic: &str, records: &[ReadRecord]) {
    let group = jobs.pipeline.topic(group);
    wait_until(&format!("{group} to commit past the records of {topic}"), SOON, || {
        let committed = jobs.pipeline.client.committed(&group, topic);
        records.iter().all(|record| committed[&record.partition].is_some_and(|next| next > record.offset))
    });
}

#[test]
fn markers_and_aborted_records_of_transactions_hold_up_no_commit() {
    let (jobs, tally) = Jobs::noting("markers");
    let mut jobs = with_long_sessions(jobs);
    jobs.start_these(&["ingest", "worker"]);
    let client = jobs.pipeline.client.clone();
    let (kept, aborted) = (tasks("kept", 30), tasks("aborted", 30));
    let mut all = Vec::new();
    for (round, (kept, aborted)) in kept.chunks(10).zip(aborted.chunks(10)).enumerate() {
        let records = |tasks: &[Task]| tasks.iter().map(|task| jobs.record(task)).collect::<Vec<_>>();
        client.produce_in_transaction(&jobs.source, &records(aborted), Outcome::Abort);
        client.produce_in_transaction(&jobs.source, &records(kept), Outcome::Commit);
        let plain = tasks(&format!("plain{round}"), 10);
        jobs.publish(&plain);
        all.extend(plain);
    }
    all.extend(kept);
    tally.wait_for_tasks(all.len(), SOON);
    // And in the job topic: copies of jobs, which their marks make skipped, and aborted ones, which nobody may see.
    let copies: Vec<Record> = client.read_all(&jobs.job_topic()).iter().map(copy).collect();
    client.produce_in_transaction(&jobs.job_topic(), &copies[..20], Outcome::Commit);
    client.produce_in_transaction(&jobs.job_topic(), &copies[20..], Outcome::Abort);
    let last = tasks("last", 10);
    client.produce_in_transaction(
        &jobs.source,
        &last.iter().map(|task| jobs.record(task)).collect::<Vec<_>>(),
        Outcome::Commit,
    );
    all.extend(last);
    tally.wait_for_tasks(all.len(), SOON);
    wait_past_records(&jobs, "ingest", &jobs.source, &client.read_all(&jobs.source));
    wait_past_records(&jobs, "default.worker", &jobs.job_topic(), &client.read_all(&jobs.job_topic()));
    tally.assert_has(&all);
    assert_eq!((tally.tasks(), tally.other_than(1)), (all.len(), vec![]), "aborted records are no events");
    assert_eq!(jobs.count("tidegate_duplicates_total", &["verdict=\"resolved\""]), 20);
    for service in ["ingest", "worker"] {
        assert_eq!(jobs.pipeline.readyz(service).0, 200);
    }
}

fn copy(record: &ReadRecord) -> Record {
    let copy = Record::default()
        .partition(record.partition)
        .key(record.key.clone().unwrap_or_default())
        .value(record.value.clone().unwrap_or_default());
    record
        .headers
        .iter()
        .fold(copy, |copy, (name, value)| copy.header(name, value.clone().unwrap_or_default()))
}

#[test]
fn the_gaps_of_a_compacted_source_hold_up_no_commit() {
    let (jobs, tally) = Jobs::noting("compacted");
    let mut jobs = with_long_sessions(jobs);
    let client = jobs.pipeline.client.clone();
    client.delete_topic(&jobs.source);
    let settings = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("min.compaction.lag.ms", "0"),
        ("delete.retention.ms", "0"),
    ];
    client.create_topic_with(&jobs.source, 2, &settings);
    // The record's key is the lane. All but the newest of five lanes go; between them stay those that have a lane of their own.
    let lane = |n: usize| if n.is_multiple_of(7) { n } else { n % 5 };
    let mut written = 0;
    let mut has_gaps = || {
        let batch: Vec<Task> = (written..written + 20)
            .map(|n| Task::new(format!("t-{n}")).lane(&format!("l{}", lane(n))))
            .collect();
        written += batch.len();
        jobs.publish(&batch);
        let next: i64 = client.offsets(&jobs.source).values().map(|(_, next)| next).sum();
        (client.read_all(&jobs.source).len() as i64) < next - 20
    };
    wait_until("the source to be compacted", 3 * SOON, &mut has_gaps);
    jobs.start_these(&["ingest", "worker"]);
    jobs.wait_settled(SOON);
    let left = client.read_all(&jobs.source);
    assert!(left.windows(2).any(|pair| pair[1].offset > pair[0].offset + 1), "there are gaps");
    jobs.publish(&tasks("after", 20));
    jobs.wait_settled(SOON);
    tally.assert_has(&tasks("after", 20));
    assert_eq!(tally.other_than(1), []);
    assert!(tally.tasks() >= left.len(), "what was left ran");
    assert_eq!(jobs.pipeline.readyz("ingest").0, 200);
}

fn delete_before(topic: &str, partition: i32, offset: i64) {
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", Kafka::shared().bootstrap()).create().unwrap();
    block_on(async move { admin.delete_records(&offsets, &AdminOptions::new()).await })
        .expect("Kafka deletes records");
}

/// Tasks of one lane, so of one partition.
fn numbered(range: std::ops::Range<usize>) -> Vec<Task> {
    range.map(|n| Task::new(format!("t-{n}")).lane("one")).collect()
}

/// Ingest and worker run, and the first ten of the numbered tasks are done.
fn with_ten_read(prefix: &str) -> (Jobs, Tally) {
    let (jobs, tally) = Jobs::noting(prefix);
    let mut jobs = with_long_sessions(jobs);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&numbered(0..10));
    tally.wait_for_tasks(10, SOON);
    jobs.wait_settled(SOON);
    (jobs, tally)
}

#[test]
fn events_that_were_deleted_unread_raise_an_alarm_and_the_rest_is_read_on() {
    let (mut jobs, tally) = with_ten_read("out-of-range");
    let partition = jobs.pipeline.client.read_all(&jobs.source)[0].partition;
    jobs.pipeline.stop("ingest");
    jobs.publish(&numbered(10..30));
    delete_before(&jobs.source, partition, 20);
    jobs.start_one("ingest");
    tally.wait_for_tasks(20, SOON);
    jobs.wait_settled(SOON);
    tally.assert_has(&numbered(20..30));
    assert_eq!((tally.tasks(), tally.other_than(1)), (20, vec![]));
    let source = format!("topic=\"{}\"", jobs.source);
    assert_eq!(jobs.pipeline.metric("ingest", "tidegate_offset_out_of_range_total", &[&source]), 1.0);
    let log = jobs.pipeline.process("ingest").stderr();
    let alarm = log.lines().find(|line| line.contains("may be gone unread")).expect("the log tells it");
    assert!(alarm.contains("ERROR") && alarm.contains(&jobs.source), "{alarm}");
    jobs.pipeline.wait_ready("ingest");
}

#[test]
fn a_reader_that_is_overtaken_by_deletion_ends_and_goes_on_with_what_is_left() {
    let (mut jobs, tally) = with_ten_read("overtaken");
    let partition = jobs.pipeline.client.read_all(&jobs.source)[0].partition;
    jobs.pipeline.process("ingest").pause();
    // A fetch that waits at the broker may still be answered with the first of them.
    jobs.publish(&numbered(10..11));
    jobs.publish(&numbered(11..30));
    delete_before(&jobs.source, partition, 20);
    jobs.pipeline.process("ingest").resume();
    let exit = jobs.pipeline.process("ingest").wait(SOON);
    let said = jobs.pipeline.process("ingest").stderr();
    assert_eq!(exit, Exit(1), "{said}");
    assert!(said.contains("may be gone unread") && said.contains("started again"), "{said}");
    jobs.start_one("ingest");
    tally.wait_for_tasks(20, SOON);
    jobs.wait_settled(SOON);
    tally.assert_has(&numbered(20..30));
    assert_eq!(tally.other_than(1), []);
}

#[test]
fn jobs_that_expired_unread_raise_an_alarm_and_the_rest_is_read_on() {
    let (jobs, tally) = Jobs::noting("jobs-gone");
    let mut jobs = with_long_sessions(jobs);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&tasks("first", 40));
    tally.wait_for_tasks(40, SOON);
    jobs.wait_settled(SOON);
    jobs.pipeline.stop("worker");
    jobs.publish(&tasks("second", 40));
    let written = jobs.pipeline.client.wait_for_count(&jobs.job_topic(), 80, SOON);
    let last = written.iter().rfind(|record| record.partition == written[0].partition).unwrap();
    delete_before(&jobs.job_topic(), last.partition, last.offset);
    let left = jobs.pipeline.client.read_all(&jobs.job_topic()).len();
    jobs.start_one("worker");
    jobs.wait_settled(SOON);
    assert!(jobs.count("tidegate_offset_out_of_range_total", &[]) == 1);
    assert!(tally.tasks() > 40 && tally.tasks() < 80, "{} ran, {left} records were left", tally.tasks());
    assert_eq!(tally.other_than(1), []);
    jobs.pipeline.wait_ready("worker");
}
