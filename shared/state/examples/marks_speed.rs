//! What a look-up, a stretch of the changelog and a restore cost. `cargo run --release --example marks_speed [keys]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_domain::mark::{Phase, Step};
use tidegate_domain::{
    CommitPosition, FieldValue, Hop, IdempotencyKey, JobHash, Mark, Partition, PayloadHash, Round, Topic,
    UnixMillis,
};
use tidegate_pipeline::changelog::{LocalReady, MarkTable, Stretch};
use tidegate_pipeline::ports::{MarkEntry, Ticket};
use tidegate_pipeline::{Inbox, TopicPartition, Wake};
use tidegate_state::{Marks, MemoryBudgets, Parents, Provenance, Settings, TopicIdentity};

const NOW: i64 = 1_764_400_000_000;

fn settings(dir: &Path, topic: &Topic, memory: MemoryBudgets) -> Settings {
    let identity = TopicIdentity { id: "id".to_owned(), partitions: 1, changelog: None };
    let topics = BTreeMap::from([(topic.clone(), identity)]);
    let provenance = Provenance { cluster_id: "cluster".to_owned(), topics };
    let (parents, retention) = (Parents::Made, Duration::from_secs(86_400));
    Settings { dir: dir.to_owned(), parents, retention, provenance, memory }
}

fn keys(from: u64, count: u64) -> Vec<IdempotencyKey> {
    (from..from + count)
        .map(|n| IdempotencyKey::derive("speed", &[FieldValue::Int(n as i64)], None).unwrap())
        .collect()
}

fn entry(key: IdempotencyKey) -> MarkEntry {
    let step = Step {
        round: Round(0),
        hop: Hop(0),
        phase: Phase::Started,
        n: 0,
        job: JobHash(1),
        payload: PayloadHash(2),
        written_at: UnixMillis(NOW),
    };
    MarkEntry { key, mark: Mark::done(step) }
}

fn open(marks: &Marks, at: &TopicPartition, inbox: &Arc<Inbox<LocalReady>>) -> Duration {
    let start = Instant::now();
    marks.open(at, Ticket(0), inbox);
    let mut answers = Vec::new();
    while answers.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
        inbox.take(&mut answers);
    }
    answers.pop().unwrap().1.unwrap();
    start.elapsed()
}

/// Wall time, and what this thread and the whole process had of the processor: the machine may be busy with other things.
struct Watch {
    start: Instant,
    thread: f64,
    process: f64,
}

impl Watch {
    fn start() -> Self {
        Self { start: Instant::now(), thread: of_thread(), process: of_process() }
    }

    fn report(&self, what: &str, keys: usize) {
        let a_key = |nanos: f64| nanos / keys as f64;
        let wall = a_key(self.start.elapsed().as_nanos() as f64);
        let (thread, process) = (a_key(of_thread() - self.thread), a_key(of_process() - self.process));
        println!(
            "{what:<52} {wall:>6.0} ns a key; on the processor {thread:>5.0}, with all threads {process:>5.0}"
        );
    }
}

fn of_thread() -> f64 {
    nanos("/proc/thread-self/schedstat")
}

fn of_process() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let living: f64 = threads.map(|thread| nanos(thread.path().join("schedstat"))).sum();
    // Threads that ended count in the whole only, which is told in hundredths of a second.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks: Vec<f64> = stat
        .rsplit(')')
        .next()
        .into_iter()
        .flat_map(|rest| rest.split_whitespace().skip(11).take(2))
        .filter_map(|n| n.parse().ok())
        .collect();
    living.max(ticks.iter().sum::<f64>() * 1e7)
}

fn nanos(path: impl AsRef<Path>) -> f64 {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(f64::NAN)
}

fn look_up(what: &str, marks: &Marks, at: &TopicPartition, keys: &[IdempotencyKey], present: bool) {
    let mut found = Vec::with_capacity(500);
    let watch = Watch::start();
    for batch in keys.chunks(500) {
        found.clear();
        marks.look_up(at, batch, &mut found).unwrap();
        assert!(found.iter().all(|mark| mark.done.is_some() == present));
    }
    watch.report(what, keys.len());
}

fn main() {
    let count: u64 = std::env::args().nth(1).map_or(2_000_000, |n| n.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = TopicPartition { topic: Topic::new("jobs"), partition: Partition(0) };
    let inbox = Inbox::new(Wake::default());
    let present = keys(0, count);
    let absent = keys(1 << 40, 1_000_000);
    {
        let marks = Marks::open_dir(settings(&path, &at.topic, MemoryBudgets::default())).unwrap();
        open(&marks, &at, &inbox);
        let entries: Vec<_> = present.iter().copied().map(entry).collect();
        let (first, rest) = entries.split_at(entries.len() / 2);
        for (size, entries) in [(500, first), (1_000, rest)] {
            let watch = Watch::start();
            for entries in entries.chunks(size) {
                let position = CommitPosition(1);
                let stretch =
                    Stretch { entries, append_time: UnixMillis(NOW), position, opener: None, last: None };
                marks.apply(&at, &stretch).unwrap();
            }
            watch.report(&format!("apply in stretches of {size}"), entries.len());
        }
        look_up("look-up of 500, none there, filter of all appends", &marks, &at, &absent, false);
        let some: Vec<_> = present.iter().copied().step_by(7).collect();
        look_up("look-up of 500, all there", &marks, &at, &some, true);
        println!("{:?}", marks.size(&at).unwrap());
        let watch = Watch::start();
        marks.flush().unwrap();
        watch.report("flush", entries.len());
    }
    let marks = Marks::open_dir(settings(&path, &at.topic, MemoryBudgets::default())).unwrap();
    println!("opened again, filter built, in {:?}", open(&marks, &at, &inbox));
    look_up("look-up of 500, none there, filter built at open", &marks, &at, &absent, false);
    drop(marks);
    let memory = MemoryBudgets { filter_per_partition: 0, ..MemoryBudgets::default() };
    let marks = Marks::open_dir(settings(&path, &at.topic, memory)).unwrap();
    open(&marks, &at, &inbox);
    look_up("look-up of 500, none there, no filter", &marks, &at, &absent[..200_000], false);
    drop(marks);
    let marks = Marks::open_dir(settings(&path, &at.topic, MemoryBudgets::default())).unwrap();
    open(&marks, &at, &inbox);
    restore(&marks, &at, &present, count * 5);
    let some: Vec<_> = present.iter().copied().step_by(7).collect();
    look_up("look-up of 500, all there, just restored", &marks, &at, &some, true);
    look_up("look-up of 500, none there, just restored", &marks, &at, &absent, false);
    marks.compact(&at).unwrap();
    look_up("look-up of 500, all there, compacted", &marks, &at, &some, true);
    println!("{:?}", marks.size(&at).unwrap());
}

/// From scratch, in records of 500; `present` are among them.
fn restore(marks: &Marks, at: &TopicPartition, present: &[IdempotencyKey], count: u64) {
    let more = |n: u64| {
        IdempotencyKey(
            u128::from(n + 1).wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15).to_be_bytes(),
        )
    };
    let mut entries: Vec<_> =
        present.iter().copied().chain((present.len() as u64..count).map(more)).map(entry).collect();
    // As they come: the two kinds mixed.
    for n in 0..present.len().min(entries.len() / 2) {
        let other = (n * 2_654_435_761) % entries.len();
        entries.swap(n, other);
    }
    let watch = Watch::start();
    let mut restoring = marks.restore(at, true).unwrap();
    watch.report("restore, empty what is there", entries.len());
    for record in entries.chunks(500) {
        restoring.push(record, UnixMillis(NOW)).unwrap();
    }
    watch.report("restore, pushed in records of 500", entries.len());
    let stored = restoring.finish(CommitPosition(1), None, None).unwrap();
    watch.report(&format!("restore, finished: {stored} marks"), entries.len());
}
