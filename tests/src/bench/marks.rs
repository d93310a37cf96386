//! Scenes of a partition's new owner: how fast it restores, and how soon after a death its jobs run again.

use std::time::{Duration, Instant};

use tidegate_domain::mark::{Phase, Step};
use tidegate_domain::{Hop, IdempotencyKey, JobHash, Mark, PayloadHash, Round};
use tidegate_pipeline::changelog::{OpenerId, format};
use tidegate_pipeline::ports::MarkEntry;

use super::fill::{fill, now};
use super::measured::{median, used};
use super::scenes::{PARTITIONS, Stage, fill_jobs, launch_worker, pipeline};
use crate::pipeline::Pipeline;
use crate::process::built_binary;

/// Marks in one record, as a busy partition packs them.
const PACKED: usize = 500;

/// An empty disk, and a changelog of ten times as many marks as records are asked for.
pub(super) fn restore(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let batches = (records * 10).div_ceil(PACKED);
    let (mut rates, mut cpu, mut peak, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..stage.rounds {
        let mut pipeline = pipeline(stage, "bench-restore");
        let topic = pipeline.topic("critical.marks");
        let written = now();
        fill(stage.kafka.bootstrap(), &topic, batches, |number| {
            let mut value = Vec::new();
            format::write_marks(OpenerId([1; 16]), &entries(number, written), &mut value);
            ((number % PARTITIONS as usize) as i32, value, String::new())
        });
        let mut value = Vec::new();
        format::write_marks(OpenerId([1; 16]), &entries(0, written), &mut value);
        bytes = value.len();
        launch_worker(&mut pipeline);
        let (rate, seconds) = watch_restore(&mut pipeline, batches * PACKED)?;
        let used = used(pipeline.process("worker").pid());
        pipeline.stop("worker");
        rates.push(rate);
        cpu.push(used.cpu_seconds * 1e6 / (batches * PACKED) as f64);
        peak.push(used.peak_mib);
        println!("  {} marks in {seconds:.2} s", batches * PACKED);
    }
    println!(
        "\nrestore ({} marks of {:.1} bytes, median of {})",
        batches * PACKED,
        bytes as f64 / PACKED as f64,
        stage.rounds
    );
    println!("  {:>9.0}/s   {:.2} us CPU each   peak {:.0} MiB", median(rates), median(cpu), median(peak));
    Ok(())
}

fn entries(batch: usize, written: tidegate_domain::UnixMillis) -> Vec<MarkEntry> {
    let entry = |place: usize| {
        let number = (batch * PACKED + place) as u64;
        let mut key = [0; 16];
        key[..8].copy_from_slice(&mixed(number).to_be_bytes());
        key[8..].copy_from_slice(&mixed(!number).to_be_bytes());
        let step = Step {
            round: Round(0),
            hop: Hop(0),
            phase: Phase::Tried,
            n: 1,
            job: JobHash(mixed(number) as u32),
            payload: PayloadHash(mixed(number + 1) as u32),
            written_at: tidegate_domain::UnixMillis(written.0 + (place % 4) as i64),
        };
        MarkEntry { key: IdempotencyKey(key), mark: Mark::done(step) }
    };
    (0..PACKED).map(entry).collect()
}

/// Numbers in an order that no database likes, as hashes are (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn watch_restore(pipeline: &mut Pipeline, marks: usize) -> Result<(f64, f64), String> {
    let launched = Instant::now();
    let mut first: Option<(Instant, f64)> = None;
    loop {
        let restored = pipeline.metric("worker", "tidegate_restored_marks_total", &[]);
        let at = Instant::now();
        if restored > 0.0 && first.is_none() {
            first = Some((at, restored));
        }
        if restored >= marks as f64 && pipeline.readyz("worker").0 == 200 {
            let (from, had) = first.unwrap_or((launched, 0.0));
            let seconds = at.duration_since(from).as_secs_f64().max(0.001);
            return Ok(((restored - had) / seconds, seconds));
        }
        if launched.elapsed() > Duration::from_secs(180) {
            return Err(format!("restored {restored} of {marks} marks within 180 s"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two workers share the partitions, one dies by SIGKILL: when does the other run jobs of its partitions?
pub(super) fn takeover(stage: &Stage<'_>, records: usize) -> Result<(), String> {
    let mut took = Vec::new();
    for _ in 0..stage.rounds {
        let mut pipeline = pipeline(stage, "bench-takeover");
        for name in ["worker", "second"] {
            pipeline.launch_program(
                name,
                &built_binary("tidegate-bench"),
                &["worker-process", "--tier", "critical"],
            );
        }
        pipeline.wait_ready("worker");
        pipeline.wait_ready("second");
        let count = records / 10;
        fill_jobs(stage, &pipeline, "nothing", count);
        let done = |pipeline: &mut Pipeline, name: &str| {
            pipeline.metric(name, "tidegate_jobs_total", &["class=\"nothing\"", "outcome=\"done\""])
        };
        let deadline = Instant::now() + Duration::from_secs(120);
        while done(&mut pipeline, "worker") + done(&mut pipeline, "second") < count as f64 {
            if Instant::now() > deadline {
                return Err("two workers did not do all jobs within 120 s".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = done(&mut pipeline, "worker");
        pipeline.kill("second");
        let died = Instant::now();
        // New keys for every partition: those of the dead one run when they are taken over.
        let topic = pipeline.topic("critical.jobs");
        let due = now();
        fill(stage.kafka.bootstrap(), &topic, 1000, |number| {
            let (partition, header) =
                super::fill::job("nothing", "critical", count + number, PARTITIONS, due);
            (partition, vec![b'x'; super::fill::VALUE], header)
        });
        while done(&mut pipeline, "worker") < before + 1000.0 {
            if died.elapsed() > Duration::from_secs(120) {
                return Err("the dead worker's partitions were not taken over within 120 s".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        took.push(died.elapsed().as_secs_f64());
        pipeline.stop("worker");
    }
    println!(
        "\ntake-over after SIGKILL of one of two workers (session timeout 6 s, median of {})",
        stage.rounds
    );
    println!("  all partitions run again after {:.2} s", median(took));
    Ok(())
}
