//! Every metric of the pipeline by name, and the handles that the hot path keeps.
//!
//! Label sets are small: class, tier, topic, partition, kind, verdict. Durations are in seconds, with buckets.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use tidegate_domain::flood::Finding;
use tidegate_domain::mark::Skip;
use tidegate_domain::{CommitPosition, FailureKind, PartitionWatermark};

use crate::record::TopicPartition;

/// Jobs that left a worker, by class, tier and outcome (`done`, `scheduled`, `snoozed`, `climbed`, `dead`, `skipped`).
pub const JOBS: &str = "tidegate_jobs_total";
/// From a job's due time to the start of its handler: back-off is no wait.
pub const JOB_WAIT: &str = "tidegate_job_wait_seconds";
/// How long handlers ran.
pub const JOB_PROCESSING: &str = "tidegate_job_processing_seconds";
/// Handlers that run now.
pub const JOBS_IN_FLIGHT: &str = "tidegate_jobs_in_flight";
/// Attempts that failed, by class, tier and kind.
pub const JOB_FAILURES: &str = "tidegate_job_failures_total";
/// Whether a class is parked because it fails altogether: 1 or 0.
pub const CLASS_PARKED: &str = "tidegate_class_parked";
/// Jobs of parked classes at the heads of their lanes, by class and tier.
pub const PARKED_RECORDS: &str = "tidegate_parked_records";
/// Probes of parked classes, by class and what they found out (`healed`, `failed`, `nothing`).
pub const PROBES: &str = "tidegate_probes_total";
/// Handlers cancelled at their class's time limit.
pub const JOB_OVERRUNS: &str = "tidegate_job_overruns_total";
/// Records that needed no run, by class, tier and verdict.
pub const DUPLICATES: &str = "tidegate_duplicates_total";
/// Jobs run although a mark had promised a later copy, which did not come in time.
pub const ORPHANED: &str = "tidegate_orphaned_total";
/// Results that came after their partition had moved, and changed nothing.
pub const FENCED: &str = "tidegate_fenced_results_total";
/// Records that were dead-lettered, by kind.
pub const DEAD_LETTERS: &str = "tidegate_dead_letters_total";
/// Records of which only a stub could be dead-lettered: their bytes remain in the source topic alone, until it expires.
pub const AT_RISK: &str = "tidegate_at_risk_total";
/// Publishes that failed and are tried again.
pub const PUBLISH_ERRORS: &str = "tidegate_publish_errors_total";
/// How often another process's entries were found in a changelog of ours: a deposed owner's, as a rule.
pub const FOREIGN_MARKS: &str = "tidegate_changelog_foreign_total";
/// Marks that were read from changelogs into local copies.
pub const RESTORED_MARKS: &str = "tidegate_restored_marks_total";
/// Records of a changelog that a restore has still to read.
pub const RESTORE_LEFT: &str = "tidegate_restore_records_left";
/// How long the last restore of a partition took.
pub const RESTORE_SECONDS: &str = "tidegate_restore_seconds";
/// Batches of marks that could not be written and are tried again.
pub const MARK_ERRORS: &str = "tidegate_mark_errors_total";
/// Source events, by topic and fate (`forwarded`, `ignored`, `dead`).
pub const EVENTS: &str = "tidegate_events_total";
/// Jobs made from events, by class.
pub const EVENT_JOBS: &str = "tidegate_event_jobs_total";
/// Failed look-ups at the schema registry, by reason.
pub const REGISTRY_ERRORS: &str = "tidegate_registry_errors_total";
/// How late delay topics handed records on: never negative, since none is early.
pub const RETRY_LATENESS: &str = "tidegate_retry_lateness_seconds";
/// Records that delay topics handed on, by where to (`jobs`, `delay`).
pub const RETRY_RECORDS: &str = "tidegate_retry_records_total";
/// Records that wait until they are due.
pub const RETRY_WAITING: &str = "tidegate_retry_waiting";
/// Records between the committed position and the end of the partition.
pub const PARTITION_LAG: &str = "tidegate_partition_lag";
/// Delivered records that the commit position waits for.
pub const PARTITION_WINDOW: &str = "tidegate_partition_window_records";
/// Bytes of unsettled records.
pub const PARTITION_WINDOW_BYTES: &str = "tidegate_partition_window_bytes";
/// How long the oldest unsettled record has been in the window.
pub const PARTITION_HEAD_AGE: &str = "tidegate_partition_head_age_seconds";
/// Positions found outside what a topic still holds.
pub const OUT_OF_RANGE: &str = "tidegate_offset_out_of_range_total";
/// Commits that the group coordinator refused.
pub const COMMIT_ERRORS: &str = "tidegate_commit_errors_total";
/// Partitions that a group took from a member that went on working, by group: others got them, or it was too late with its heartbeats.
pub const PARTITIONS_TAKEN: &str = "tidegate_partitions_taken_total";

/// Describes every metric, for the `# HELP` lines.
pub fn describe() {
    describe_counter!(JOBS, "jobs that left a worker, by outcome");
    describe_histogram!(JOB_WAIT, Unit::Seconds, "from due time to start, back-off excluded");
    describe_histogram!(JOB_PROCESSING, Unit::Seconds, "how long handlers ran");
    describe_gauge!(JOBS_IN_FLIGHT, "handlers that run now");
    describe_counter!(JOB_FAILURES, "failed attempts, by kind");
    describe_gauge!(CLASS_PARKED, "1 while the class is parked because it fails altogether");
    describe_gauge!(PARKED_RECORDS, "jobs of parked classes that wait at the heads of their lanes");
    describe_counter!(PROBES, "probes of parked classes, by what they found out");
    describe_counter!(JOB_OVERRUNS, "handlers cancelled at their time limit");
    describe_counter!(DUPLICATES, "records that needed no run, by verdict");
    describe_counter!(ORPHANED, "jobs run although a mark promised a later copy");
    describe_counter!(FENCED, "results of older assignments, which changed nothing");
    describe_counter!(DEAD_LETTERS, "dead-lettered records, by kind");
    describe_counter!(AT_RISK, "records of which only a stub was dead-lettered");
    describe_counter!(PUBLISH_ERRORS, "failed publishes, tried again");
    describe_counter!(FOREIGN_MARKS, "appends of other processes found in a changelog of ours");
    describe_counter!(RESTORED_MARKS, "marks read from changelogs into local copies");
    describe_gauge!(RESTORE_LEFT, "records of a changelog that a restore has still to read");
    describe_gauge!(RESTORE_SECONDS, Unit::Seconds, "how long the last restore of a partition took");
    describe_counter!(MARK_ERRORS, "failed writes of marks, tried again");
    describe_counter!(EVENTS, "source events, by fate");
    describe_counter!(EVENT_JOBS, "jobs made from events, by class");
    describe_counter!(REGISTRY_ERRORS, "failed schema look-ups, by reason");
    describe_histogram!(RETRY_LATENESS, Unit::Seconds, "how late delay topics handed records on");
    describe_counter!(RETRY_RECORDS, "records handed on by delay topics");
    describe_gauge!(RETRY_WAITING, "records that wait until they are due");
    describe_gauge!(PARTITION_LAG, "records between commit position and end");
    describe_gauge!(PARTITION_WINDOW, "delivered records that the commit position waits for");
    describe_gauge!(PARTITION_WINDOW_BYTES, "bytes of unsettled records");
    describe_gauge!(PARTITION_HEAD_AGE, Unit::Seconds, "age of the oldest unsettled record in the window");
    describe_counter!(OUT_OF_RANGE, "positions found outside what a topic holds");
    describe_counter!(COMMIT_ERRORS, "commits that the coordinator refused");
    describe_counter!(PARTITIONS_TAKEN, "partitions that the group took from a member that went on working");
    from_the_start();
}

/// Counters of faults that are shown before the first one: an alarm on the increase of a counter misses the fault that creates it.
fn from_the_start() {
    for name in [FENCED, AT_RISK, PUBLISH_ERRORS, MARK_ERRORS, COMMIT_ERRORS] {
        counter!(name).increment(0);
    }
    for kind in FailureKind::ALL {
        counter!(DEAD_LETTERS, "kind" => kind.as_str()).increment(0);
    }
}

/// What is measured of one class in one tier.
#[derive(Clone)]
pub struct ClassMetrics {
    /// Jobs done.
    pub done: Counter,
    /// Jobs whose copy waits in a delay topic.
    pub scheduled: Counter,
    /// Jobs that asked to run later.
    pub snoozed: Counter,
    /// Jobs whose copy waits in the longest delay topic, because their class is parked.
    pub climbed: Counter,
    /// Jobs dead-lettered.
    pub dead: Counter,
    /// Jobs that needed no run.
    pub skipped: Counter,
    /// From due to start.
    pub wait: Histogram,
    /// Run time.
    pub processing: Histogram,
    /// Running now.
    pub in_flight: Gauge,
    /// Parked now, at the head of their lanes.
    pub parked: Gauge,
    /// Cancelled at the time limit.
    pub overruns: Counter,
    /// Run although a later copy was promised.
    pub orphaned: Counter,
    failures: [Counter; 8],
    duplicates: [Counter; 6],
}

impl std::fmt::Debug for ClassMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClassMetrics").finish_non_exhaustive()
    }
}

const SKIPS: [Skip; 5] =
    [Skip::Resolved, Skip::AlreadyDone, Skip::Superseded, Skip::AlreadyDead, Skip::Coalesced];

impl ClassMetrics {
    /// The handles of a class in a tier.
    pub fn of(class: &str, tier: &str) -> Self {
        let labels = || [("class", class.to_owned()), ("tier", tier.to_owned())];
        let jobs = |outcome: &'static str| counter!(JOBS, "class" => class.to_owned(), "tier" => tier.to_owned(), "outcome" => outcome);
        let failures = |kind: FailureKind| counter!(JOB_FAILURES, "class" => class.to_owned(), "tier" => tier.to_owned(), "kind" => kind.as_str());
        let duplicates = |verdict: &'static str| counter!(DUPLICATES, "class" => class.to_owned(), "tier" => tier.to_owned(), "verdict" => verdict);
        Self {
            done: jobs("done"),
            scheduled: jobs("scheduled"),
            snoozed: jobs("snoozed"),
            climbed: jobs("climbed"),
            dead: jobs("dead"),
            skipped: jobs("skipped"),
            wait: histogram!(JOB_WAIT, &labels()),
            processing: histogram!(JOB_PROCESSING, &labels()),
            in_flight: gauge!(JOBS_IN_FLIGHT, &labels()),
            parked: gauge!(PARKED_RECORDS, &labels()),
            overruns: counter!(JOB_OVERRUNS, &labels()),
            orphaned: counter!(ORPHANED, &labels()),
            failures: FailureKind::ALL.map(failures),
            duplicates: [
                duplicates(SKIPS[0].as_str()),
                duplicates(SKIPS[1].as_str()),
                duplicates(SKIPS[2].as_str()),
                duplicates(SKIPS[3].as_str()),
                duplicates(SKIPS[4].as_str()),
                duplicates("conflict"),
            ],
        }
    }

    /// Counts a failed attempt.
    pub fn failed(&self, kind: FailureKind) {
        if let Some(place) = FailureKind::ALL.iter().position(|&k| k == kind) {
            self.failures[place].increment(1);
        }
    }

    /// Counts a record that needed no run; `None`: it conflicts with a job that is done.
    pub fn duplicate(&self, skip: Option<Skip>) {
        let place = skip.and_then(|skip| SKIPS.iter().position(|&s| s == skip)).unwrap_or(SKIPS.len());
        self.duplicates[place].increment(1);
        self.skipped.increment(1);
    }
}

/// What is measured of the flood guard of a class.
#[derive(Clone)]
pub struct GuardMetrics {
    /// Whether it is parked.
    pub parked: Gauge,
    healed: Counter,
    failed: Counter,
    nothing: Counter,
}

impl std::fmt::Debug for GuardMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardMetrics").finish_non_exhaustive()
    }
}

impl GuardMetrics {
    /// The handles of a class.
    pub fn of(class: &str) -> Self {
        let probes =
            |outcome: &'static str| counter!(PROBES, "class" => class.to_owned(), "outcome" => outcome);
        let parked = gauge!(CLASS_PARKED, "class" => class.to_owned());
        parked.set(0.0);
        Self { parked, healed: probes("healed"), failed: probes("failed"), nothing: probes("nothing") }
    }

    /// Counts a probe.
    pub fn probed(&self, finding: Finding) {
        match finding {
            Finding::Heals => self.healed.increment(1),
            Finding::Fails(_) => self.failed.increment(1),
            Finding::Nothing => self.nothing.increment(1),
        }
    }
}

/// What is measured of one assigned partition.
#[derive(Clone)]
pub struct PartitionGauges {
    lag: Gauge,
    window: Gauge,
    window_bytes: Gauge,
    head_age: Gauge,
}

impl std::fmt::Debug for PartitionGauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionGauges").finish_non_exhaustive()
    }
}

impl PartitionGauges {
    /// The handles of a partition.
    pub fn of(partition: &TopicPartition) -> Self {
        let labels =
            [("topic", partition.topic.as_str().to_owned()), ("partition", partition.partition.to_string())];
        Self {
            lag: gauge!(PARTITION_LAG, &labels),
            window: gauge!(PARTITION_WINDOW, &labels),
            window_bytes: gauge!(PARTITION_WINDOW_BYTES, &labels),
            head_age: gauge!(PARTITION_HEAD_AGE, &labels),
        }
    }

    /// Sets them all.
    pub fn set(
        &self,
        position: Option<CommitPosition>,
        end: Option<CommitPosition>,
        watermark: &PartitionWatermark,
        window_bytes: usize,
    ) {
        if let (Some(position), Some(end)) = (position, end) {
            self.lag.set((end.0 - position.0).max(0) as f64);
        }
        self.window.set(watermark.held() as f64);
        self.window_bytes.set(window_bytes as f64);
    }

    /// Sets how long the oldest unsettled record has been in the window.
    pub fn set_head_age(&self, age: Duration) {
        self.head_age.set(age.as_secs_f64());
    }

    /// The partition is another process's now.
    pub fn clear(&self) {
        for gauge in [&self.lag, &self.window, &self.window_bytes, &self.head_age] {
            gauge.set(0.0);
        }
    }
}

/// Counts a dead-lettered record.
pub fn dead_letter(kind: FailureKind) {
    counter!(DEAD_LETTERS, "kind" => kind.as_str()).increment(1);
}

/// Counts a record of which only a stub could be dead-lettered.
pub fn at_risk() {
    counter!(AT_RISK).increment(1);
}

/// Counts a failed publish.
pub fn publish_error() {
    counter!(PUBLISH_ERRORS).increment(1);
}

/// Counts a failed write of marks.
pub fn mark_error() {
    counter!(MARK_ERRORS).increment(1);
}

/// Counts a result that came too late to count.
pub fn fenced() {
    counter!(FENCED).increment(1);
}

/// Counts that another process appended to the changelog of a partition that is ours.
pub fn foreign_marks(partition: &TopicPartition) {
    counter!(FOREIGN_MARKS, "topic" => partition.topic.as_str().to_owned()).increment(1);
}

/// Counts a position outside what the topic holds.
pub fn offset_out_of_range(partition: &TopicPartition) {
    counter!(OUT_OF_RANGE, "topic" => partition.topic.as_str().to_owned()).increment(1);
}

/// Counts partitions that the group took from a member that goes on working.
pub fn partitions_taken(group: &str, partitions: usize) {
    counter!(PARTITIONS_TAKEN, "group" => group.to_owned()).increment(partitions as u64);
}
