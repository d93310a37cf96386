use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Offset, Partition, Topic};
use tidegate_pipeline::changelog::{MarkTable, OpenerId};
use tidegate_pipeline::{Inbox, RecordBuilder, TopicPartition, Wake};
use tidegate_state::{Marks, MemoryBudgets, Parents, Provenance, Settings, TopicIdentity};

use super::*;

fn jobs() -> TopicPartition {
    TopicPartition { topic: Topic::new("tg.default.jobs"), partition: Partition(0) }
}

/// A store with the partition open.
fn store(dir: &std::path::Path) -> Marks {
    let identity = TopicIdentity { id: "jobs".to_owned(), partitions: 1, changelog: None };
    let settings = Settings {
        dir: dir.to_owned(),
        parents: Parents::Made,
        retention: Duration::from_secs(3600),
        provenance: Provenance { cluster_id: "c".to_owned(), topics: [(jobs().topic, identity)].into() },
        memory: MemoryBudgets::default(),
    };
    let marks = Marks::open_dir(settings).unwrap();
    let (wake, mut answers) = (Wake::default(), Vec::new());
    let inbox = Inbox::new(wake.clone());
    marks.open(&jobs(), tidegate_pipeline::ports::Ticket(1), &inbox);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    while answers.is_empty() {
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), wake.woken()).await.unwrap() });
        inbox.take(&mut answers);
    }
    marks
}

/// That this process let go, at this offset.
fn closed(offset: i64, by: u8) -> Record {
    let mut value = Vec::new();
    format::write_closed(OpenerId([by; 16]), &mut value);
    RecordBuilder::new(Offset(offset), Some(UnixMillis(1)), None, Some(&value), 0).build()
}

/// Reads these records on from a copy that goes to 10 and has the record at 9 that `by` wrote.
fn read_on(by: u8, first: i64, records: Vec<Record>) -> (i64, Result<LocalCopy, Broken>) {
    let dir = tempfile::tempdir().unwrap();
    let marks = Arc::new(store(&dir.path().join("s")));
    let last = Some(LastRecord::of(Offset(9), closed(9, by).value().unwrap()));
    let copy = LocalCopy { position: Some(CommitPosition(10)), opener: None, last };
    let log = TopicPartition { topic: Topic::new("tg.default.marks"), partition: Partition(0) };
    let request = CatchUp { partition: jobs(), log, copy, until: CommitPosition(12) };
    let restoring = marks.restore(&jobs(), false).unwrap();
    let mut reading = Reading::new(&request, copy, CommitPosition(first), restoring);
    let from = reading.from().0;
    let mut records = records;
    let _whole = reading.take(&mut records);
    (from, reading.finish())
}

#[test]
fn a_copy_whose_last_record_the_changelog_holds_is_read_on() {
    let (from, read) = read_on(1, 0, vec![closed(9, 1), closed(10, 1), closed(11, 2)]);
    assert_eq!(from, 9, "the last record is read again");
    let reached = read.unwrap();
    assert_eq!(reached.position, Some(CommitPosition(12)));
    assert_eq!(reached.last, Some(LastRecord::of(Offset(11), closed(11, 2).value().unwrap())));
}

#[test]
fn a_copy_whose_last_record_is_another_or_none_in_the_changelog_is_contradicted() {
    for (what, records) in [
        ("another", vec![closed(9, 2), closed(10, 1)]),
        ("a later one", vec![closed(10, 1), closed(11, 1)]),
        ("none", vec![]),
    ] {
        let (_, read) = read_on(1, 0, records);
        assert!(matches!(read, Err(Broken::Contradicted)), "{what}: {read:?}");
    }
}

#[test]
fn a_copy_whose_last_record_expired_is_read_on_from_its_position() {
    let (from, read) = read_on(1, 10, vec![closed(10, 2), closed(11, 2)]);
    assert_eq!((from, read.unwrap().position), (10, Some(CommitPosition(12))));
}
