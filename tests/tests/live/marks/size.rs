//! How much a mark takes in the changelog.

use std::time::{Duration, Instant};

use tidegate_pipeline::changelog::format::Entry;
use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, tasks};

use super::log;
use crate::standstill::keep_sessions;

/// For thousands of jobs.
const LONG: Duration = Duration::from_secs(300);
/// All that runs ends at the same moments: so many marks are made at a time, on whatever machine.
const TICK: Duration = Duration::from_millis(100);

/// Marks and bytes of values, of what is in the log behind its first so many records.
fn marks_and_bytes(jobs: &Jobs, behind: usize) -> (usize, usize) {
    let sizes = log::entries(jobs).split_off(behind).into_iter().map(|(bytes, entry)| match entry {
        Entry::Marks(marks) => (marks.len(), bytes),
        Entry::Opened { .. } | Entry::Closed => (0, bytes),
    });
    sizes.fold((0, 0), |(marks, bytes), (more, of)| (marks + more, bytes + of))
}

#[test]
fn a_mark_takes_less_than_forty_bytes_when_a_worker_is_busy() {
    let (mut jobs, tally) = Jobs::noting("bytes");
    keep_sessions(&mut jobs.pipeline);
    let tier = "[tiers.default]\npartitions = ";
    jobs.pipeline.reconfigure(&format!("{tier}4"), &format!("{tier}1\nconcurrency = 64"));
    jobs.start_these(&["ingest", "worker"]);
    let opened = log::entries(&jobs).len();
    let slow = tasks("slow", 50);
    for task in &slow {
        jobs.publish(std::slice::from_ref(task));
        // The pace is what is measured.
        std::thread::sleep(Duration::from_millis(100));
    }
    tally.wait_for_tasks(slow.len(), SOON);
    jobs.wait_settled(SOON);
    let (marks, bytes) = marks_and_bytes(&jobs, opened);
    assert_eq!(marks, slow.len());
    println!("at ten jobs a second: {} bytes a mark", bytes / marks);
    let before = log::entries(&jobs).len();
    jobs.pipeline.stop("worker");

    let (noted, began) = (tally.clone(), Instant::now());
    jobs.endpoint.answer_with(move |call| {
        noted.note(call);
        let since = began.elapsed().as_millis() % TICK.as_millis();
        Answer::ok().after(TICK - Duration::from_millis(since as u64))
    });
    let many = tasks("many", 6400);
    jobs.publish(&many);
    jobs.pipeline.client.wait_for_count(&jobs.job_topic(), slow.len() + many.len(), LONG);
    jobs.start_one("worker");
    tally.wait_for_tasks(slow.len() + many.len(), LONG);
    jobs.wait_settled(LONG);
    let (marks, bytes) = marks_and_bytes(&jobs, before);
    assert_eq!(marks, many.len());
    let records = log::entries(&jobs).len() - before;
    println!(
        "busy: {:.1} bytes a mark, {:.1} marks a record",
        bytes as f64 / marks as f64,
        marks as f64 / records as f64
    );
    assert!(bytes < 40 * marks, "{bytes} bytes for {marks} marks");
}
