//! Every metric of the store by name.

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge};
use tidegate_pipeline::record::TopicPartition;

/// Bytes of the in-memory filter, by topic and partition; zero where it is too large for its budget.
pub const FILTER_BYTES: &str = "tidegate_state_filter_bytes";
/// Keys on disk and in memory, as RocksDB estimates them, by topic and partition.
pub const KEYS: &str = "tidegate_state_keys";
/// Bytes on disk and in memory, by topic and partition.
pub const BYTES: &str = "tidegate_state_bytes";
/// Keys that were looked up.
pub const LOOKUPS: &str = "tidegate_state_lookups_total";
/// Keys that the filter could not deny, and that were there.
pub const FILTER_HITS: &str = "tidegate_state_filter_hits_total";
/// Keys that the filter could not deny, and that were not there.
pub const FILTER_FALSE_POSITIVES: &str = "tidegate_state_filter_false_positives_total";
/// Marks that were applied, those of restores excepted.
pub const APPENDED: &str = "tidegate_state_marks_appended_total";
/// Directories that were not trusted and set aside, by reason.
pub const SET_ASIDE: &str = "tidegate_state_set_aside_total";
/// How often the database was opened again after a failed write.
pub const REOPENED: &str = "tidegate_state_reopened_total";
/// 1 while the store can't be written, else 0.
pub const UNWRITABLE: &str = "tidegate_state_unwritable";

/// Describes every metric, for the `# HELP` lines.
pub fn describe() {
    describe_gauge!(FILTER_BYTES, Unit::Bytes, "in-memory filter of a partition");
    describe_gauge!(KEYS, "keys of a partition, estimated");
    describe_gauge!(BYTES, Unit::Bytes, "a partition's marks on disk and in memory");
    describe_counter!(LOOKUPS, "keys that were looked up");
    describe_counter!(FILTER_HITS, "keys the filter could not deny that were there");
    describe_counter!(FILTER_FALSE_POSITIVES, "keys the filter could not deny that were not there");
    describe_counter!(APPENDED, "marks that were appended");
    describe_counter!(SET_ASIDE, "state directories that were not trusted, by reason");
    describe_counter!(REOPENED, "databases opened again after a failed write");
    describe_gauge!(UNWRITABLE, "1 while marks can't be written");
}

/// What is counted over all partitions of a store.
pub(crate) struct StoreMetrics {
    pub(crate) lookups: Counter,
    pub(crate) hits: Counter,
    pub(crate) false_positives: Counter,
    pub(crate) appended: Counter,
    pub(crate) reopened: Counter,
    pub(crate) unwritable: Gauge,
}

impl StoreMetrics {
    pub(crate) fn new() -> Self {
        Self {
            lookups: counter!(LOOKUPS),
            hits: counter!(FILTER_HITS),
            false_positives: counter!(FILTER_FALSE_POSITIVES),
            appended: counter!(APPENDED),
            reopened: counter!(REOPENED),
            unwritable: gauge!(UNWRITABLE),
        }
    }
}

/// What is measured of one open partition.
pub(crate) struct PartitionMetrics {
    pub(crate) filter_bytes: Gauge,
    pub(crate) keys: Gauge,
    pub(crate) bytes: Gauge,
}

impl PartitionMetrics {
    pub(crate) fn new(at: &TopicPartition) -> Self {
        let labels = [("topic", at.topic.to_string()), ("partition", at.partition.to_string())];
        Self {
            filter_bytes: gauge!(FILTER_BYTES, &labels),
            keys: gauge!(KEYS, &labels),
            bytes: gauge!(BYTES, &labels),
        }
    }

    /// The partition is closed: another process may own it now.
    pub(crate) fn clear(&self) {
        for gauge in [&self.filter_bytes, &self.keys, &self.bytes] {
            gauge.set(0.0);
        }
    }
}

pub(crate) fn set_aside(reason: &'static str) {
    counter!(SET_ASIDE, "reason" => reason).increment(1);
}
