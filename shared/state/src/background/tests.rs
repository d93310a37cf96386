use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Partition, Topic, UnixMillis};
use tidegate_pipeline::changelog::Stretch;
use tidegate_pipeline::ports::MarkEntry;

use super::*;
use crate::{MemoryBudgets, Provenance, Settings, TopicIdentity};

fn settings(dir: &Path, topic: &Topic) -> Settings {
    let identity = TopicIdentity { id: "id".to_owned(), partitions: 1, changelog: None };
    let topics = BTreeMap::from([(topic.clone(), identity)]);
    Settings {
        dir: dir.to_owned(),
        retention: Duration::from_secs(3600),
        provenance: Provenance { cluster_id: "cluster".to_owned(), topics },
        memory: MemoryBudgets::default(),
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
    let number = store.begin_opening(&at).unwrap();
    store.finish_opening(&at, number).unwrap();
    let files = || {
        let all = std::fs::read_dir(dir.path().join("s/db")).unwrap();
        all.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|is| is == "sst")).count()
    };
    assert_eq!(files(), 0);
    let entries = [MarkEntry { key: IdempotencyKey([1; 16]), mark: Mark::default() }];
    let stretch =
        Stretch { entries: &entries, append_time: UnixMillis(7), position: CommitPosition(1), opener: None };
    store.apply(&at, &stretch).unwrap();
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
