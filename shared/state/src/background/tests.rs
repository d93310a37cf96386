use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Partition, Topic, UnixMillis};
use tidegate_pipeline::Wake;
use tidegate_pipeline::changelog::{LocalCopy, Stretch};
use tidegate_pipeline::ports::{MarkEntry, MarkStoreError};

use super::*;
use crate::{MemoryBudgets, Parents, Provenance, Settings, TopicIdentity};

fn settings(dir: &Path, topic: &Topic) -> Settings {
    let identity = TopicIdentity { id: "id".to_owned(), partitions: 1, changelog: None };
    let topics = BTreeMap::from([(topic.clone(), identity)]);
    Settings {
        dir: dir.to_owned(),
        parents: Parents::Made,
        retention: Duration::from_secs(3600),
        provenance: Provenance { cluster_id: "cluster".to_owned(), topics },
        memory: MemoryBudgets::default(),
    }
}

fn apply(store: &Store, at: &TopicPartition) -> Result<(), MarkStoreError> {
    let entries = [MarkEntry { key: IdempotencyKey([1; 16]), mark: Mark::default() }];
    let (append_time, position) = (UnixMillis(7), CommitPosition(1));
    store.apply(at, &Stretch { entries: &entries, append_time, position, opener: None, last: None })
}

fn open_now(store: &Store, at: &TopicPartition) -> LocalCopy {
    let number = store.begin_opening(at).expect("it is not open");
    store.finish_opening(at, number).unwrap()
}

#[test]
fn a_partition_whose_column_family_is_gone_is_closed_until_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = TopicPartition { topic: Topic::new("jobs"), partition: Partition(0) };
    let (troubles, _heard) = mpsc::channel();
    let mut settings = settings(&dir.path().join("s"), &at.topic);
    // So that every look-up reads.
    settings.memory.filter_per_partition = 0;
    let store = Store::open(settings, troubles).unwrap();
    for look_up_first in [true, false] {
        assert_eq!(open_now(&store, &at), LocalCopy::default());
        apply(&store, &at).unwrap();
        store.lose_family(&at);
        let look_up = || store.look_up(&at, &[IdempotencyKey([1; 16])], &mut Vec::new());
        let first = if look_up_first { look_up() } else { apply(&store, &at) };
        for answer in [first, look_up(), apply(&store, &at)] {
            assert!(matches!(answer, Err(MarkStoreError::NotOpen(_))), "{answer:?}");
        }
    }
}

#[test]
fn what_is_in_memory_only_is_flushed_by_and_by() {
    let dir = tempfile::tempdir().unwrap();
    let at = TopicPartition { topic: Topic::new("jobs"), partition: Partition(0) };
    let (troubles, heard) = mpsc::channel();
    let (openings, asked) = mpsc::channel();
    let store = Arc::new(Store::open(settings(&dir.path().join("s"), &at.topic), troubles).unwrap());
    let threads = start(&store, asked, heard, Duration::from_millis(20)).unwrap();
    open_now(&store, &at);
    let files = || {
        let all = std::fs::read_dir(dir.path().join("s/db")).unwrap();
        all.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|is| is == "sst")).count()
    };
    assert_eq!(files(), 0);
    apply(&store, &at).unwrap();
    let start = Instant::now();
    while files() == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "it was never flushed");
        thread::yield_now();
    }
    drop(openings);
    store.stop();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn an_opening_that_panics_is_answered_as_a_failure_and_the_next_one_is_served() {
    let inbox = Inbox::new(Wake::default());
    let (sender, openings) = mpsc::channel();
    let at = TopicPartition { topic: Topic::new("jobs"), partition: Partition(0) };
    for number in 1..=3 {
        let (at, inbox) = (at.clone(), inbox.clone());
        sender.send(Opening { at, number, ticket: Ticket(number), inbox }).unwrap();
    }
    drop(sender);
    let calls = Cell::new(0);
    open(&Mutex::new(openings), |_, number| {
        calls.set(calls.get() + 1);
        assert!(number == 3, "openings 1 and 2 panic");
        Ok(LocalCopy::default())
    });
    let mut answers = Vec::new();
    inbox.take(&mut answers);
    assert_eq!((calls.get(), answers.len()), (3, 3));
    for (answer, number) in answers.iter().zip(1..) {
        assert_eq!(answer.0, Ticket(number));
        match &answer.1 {
            Ok(_) => assert_eq!(number, 3),
            Err(error) => assert!(number < 3 && error.to_string().contains("panicked"), "{error}"),
        }
    }
}

#[test]
fn a_treatment_that_panics_is_one_that_must_be_tried_again() {
    assert!(matches!(treated(|| panic!("a bug")), Treatment::Open));
    assert!(matches!(treated(|| Treatment::Done), Treatment::Done));
}
