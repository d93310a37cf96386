//! What a look-up and an append cost. `cargo run --release --example marks_speed [keys]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_domain::mark::{Phase, Step};
use tidegate_domain::{
    FieldValue, Hop, IdempotencyKey, JobHash, Mark, Partition, PayloadHash, Round, Topic, UnixMillis,
};
use tidegate_pipeline::ports::{MarkEntry, MarkStore, Ticket};
use tidegate_pipeline::{Inbox, TopicPartition, Wake};
use tidegate_state::{Marks, MemoryBudgets, Provenance, Settings, TopicIdentity};

const NOW: i64 = 1_764_400_000_000;

fn settings(dir: &Path, topic: &Topic, memory: MemoryBudgets) -> Settings {
    let identity = TopicIdentity { id: "id".to_owned(), partitions: 1 };
    let topics = BTreeMap::from([(topic.clone(), identity)]);
    let provenance = Provenance { cluster_id: "cluster".to_owned(), topics };
    Settings { dir: dir.to_owned(), retention: Duration::from_secs(86_400), provenance, memory }
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

fn open(
    marks: &Marks,
    at: &TopicPartition,
    inbox: &Arc<Inbox<tidegate_pipeline::ports::MarksReady>>,
) -> Duration {
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

/// Wall time, and what this thread had of the processor: the machine may be busy with other things.
struct Watch {
    start: Instant,
    on_cpu: f64,
}

impl Watch {
    fn start() -> Self {
        Self { start: Instant::now(), on_cpu: on_cpu() }
    }

    fn report(&self, what: &str, keys: usize) {
        let a_key = |nanos: f64| nanos / keys as f64;
        let (wall, cpu) = (self.start.elapsed().as_nanos() as f64, on_cpu() - self.on_cpu);
        println!("{what:<52} {:>7.0} ns a key, {:>6.0} on the processor", a_key(wall), a_key(cpu));
    }
}

fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
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
            let mut answers = Vec::new();
            for batch in entries.chunks(size) {
                marks.append(&at, batch, UnixMillis(NOW), Ticket(1), &inbox);
                inbox.take(&mut answers);
                assert!(answers.drain(..).all(|(_, answer)| answer.is_ok()));
            }
            watch.report(&format!("append in batches of {size}"), entries.len());
        }
        look_up("look-up of 500, none there, filter of all appends", &marks, &at, &absent, false);
        let some: Vec<_> = present.iter().copied().step_by(7).collect();
        look_up("look-up of 500, all there", &marks, &at, &some, true);
        println!("{:?}", marks.size(&at).unwrap());
    }
    let marks = Marks::open_dir(settings(&path, &at.topic, MemoryBudgets::default())).unwrap();
    println!("opened again, filter built, in {:?}", open(&marks, &at, &inbox));
    look_up("look-up of 500, none there, filter built at open", &marks, &at, &absent, false);
    drop(marks);
    let memory = MemoryBudgets { filter_per_partition: 0, ..MemoryBudgets::default() };
    let marks = Marks::open_dir(settings(&path, &at.topic, memory)).unwrap();
    open(&marks, &at, &inbox);
    look_up("look-up of 500, none there, no filter", &marks, &at, &absent[..200_000], false);
}
