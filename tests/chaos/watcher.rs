//! Reads the changelogs as they grow, and notes when each mark became visible to a reader of committed records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};
use tidegate_pipeline::changelog::OpenerId;
use tidegate_pipeline::changelog::format::{self, Entry};
use tidegate_tests::wait::look_until;

use crate::config::{PARTITIONS, TIERS, marks};
use crate::gather::consumer;
use crate::history::{At, DoneMark, Key, OpenedMark};

/// What the changelogs said.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) done: Vec<DoneMark>,
    pub(crate) opened: Vec<OpenedMark>,
    /// Records that are none of tidegate's.
    pub(crate) unreadable: usize,
}

/// A thread that reads until it is told that nothing more comes.
#[derive(Debug)]
pub(crate) struct Watcher {
    last: Arc<AtomicBool>,
    thread: JoinHandle<Marks>,
}

impl Watcher {
    /// Begins to read; the topics must be there.
    pub(crate) fn start(bootstrap: &str) -> Self {
        let last = Arc::new(AtomicBool::new(false));
        let consumer = consumer(bootstrap);
        let mut assignment = TopicPartitionList::new();
        for tier in TIERS {
            for partition in 0..PARTITIONS {
                assignment
                    .add_partition_offset(&marks(tier), partition, Offset::Beginning)
                    .expect("a beginning is an offset");
            }
        }
        consumer.assign(&assignment).expect("partitions can be assigned");
        let thread = std::thread::spawn({
            let last = last.clone();
            move || watch(&consumer, &last)
        });
        Self { last, thread }
    }

    /// Reads what is left, when all who write have ended.
    pub(crate) fn finish(self) -> Marks {
        self.last.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher ends well")
    }
}

fn watch(consumer: &BaseConsumer, last: &AtomicBool) -> Marks {
    let mut found = Marks::default();
    let mut read = || {
        // Lost connections are no news here.
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            note(&message, At::now(), &mut found);
        }
    };
    while !last.load(Ordering::Relaxed) {
        read();
    }
    let ends =
        look_until(READ_WITHIN, || ends(consumer)).expect("the ends of the changelogs can be asked for");
    let until = Instant::now() + READ_WITHIN;
    while !ends.iter().all(|end| is_read(consumer, end)) {
        assert!(Instant::now() < until, "the changelogs can't be read to their ends within {READ_WITHIN:?}");
        read();
    }
    found
}

/// How long it may take to read what is left, when no broker is harmed any more.
const READ_WITHIN: Duration = Duration::from_secs(120);

/// A changelog's partition, and its first and next offset.
type End = ((String, i32), (i64, i64));

fn ends(consumer: &BaseConsumer) -> Option<Vec<End>> {
    let partitions = TIERS.iter().flat_map(|tier| (0..PARTITIONS).map(|partition| (marks(tier), partition)));
    let end = |(topic, partition): (String, i32)| {
        let end = consumer.fetch_watermarks(&topic, partition, Duration::from_secs(10)).ok()?;
        Some(((topic, partition), end))
    };
    partitions.map(end).collect()
}

fn is_read(consumer: &BaseConsumer, ((topic, partition), (first, next)): &End) -> bool {
    let positions = consumer.position().unwrap_or_default();
    let position = positions.find_partition(topic, *partition).map(|position| position.offset());
    first == next || matches!(position, Some(Offset::Offset(position)) if position >= *next)
}

fn note(message: &BorrowedMessage<'_>, visible: At, found: &mut Marks) {
    let Some(tier) = TIERS.iter().position(|tier| marks(tier) == message.topic()) else { return };
    let (at, offset) = ((tier, message.partition()), message.offset());
    let appended = At::of_millis(message.timestamp().to_millis().unwrap_or(0));
    match format::read(message.payload().unwrap_or_default()) {
        Ok((OpenerId(opener), Entry::Marks(entries))) => {
            let done = entries.iter().filter(|entry| entry.mark.done.is_some());
            found.done.extend(done.map(|entry| {
                let key = Key(u128::from_be_bytes(entry.key.0));
                DoneMark { key, at, offset, opener, visible }
            }));
        }
        Ok((OpenerId(opener), Entry::Opened { .. })) => {
            found.opened.push(OpenedMark { at, offset, opener, appended });
        }
        Ok((_, Entry::Closed)) => {}
        Err(_) => found.unreadable += 1,
    }
}
