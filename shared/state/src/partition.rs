//! One open partition: its filter, its time, and the name of its column family.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use tidegate_domain::IdempotencyKey;
use tidegate_pipeline::record::TopicPartition;

use crate::events::PartitionMetrics;
use crate::expiry::BrokerTime;
use crate::filter::KeyFilter;

/// How many appends go by until the gauges are read again.
const APPENDS_PER_MEASURE: u32 = 256;

/// The column family of a partition.
pub(crate) fn family_of(at: &TopicPartition) -> String {
    format!("jobs.{}.{}", at.topic, at.partition)
}

pub(crate) struct OpenPartition {
    /// The database that it was opened in. In a later one it must be opened again.
    pub(crate) database: u64,
    pub(crate) family: String,
    pub(crate) time: BrokerTime,
    pub(crate) filter: Mutex<KeyFilter>,
    pub(crate) metrics: PartitionMetrics,
    /// It was emptied, and is not restored yet: nothing can be said of any key.
    pub(crate) emptied: AtomicBool,
    appends: AtomicU32,
}

impl OpenPartition {
    pub(crate) fn new(at: &TopicPartition, database: u64, time: BrokerTime, filter: KeyFilter) -> Self {
        Self {
            database,
            family: family_of(at),
            time,
            filter: Mutex::new(filter),
            metrics: PartitionMetrics::new(at),
            emptied: AtomicBool::new(false),
            appends: AtomicU32::new(0),
        }
    }

    /// The places in `keys` of those that the filter can't deny, in the order of the keys themselves.
    pub(crate) fn maybe(&self, keys: &[IdempotencyKey]) -> Vec<usize> {
        let mut maybe: Vec<usize> = {
            let filter = self.filter.lock();
            (0..keys.len()).filter(|&place| filter.may_hold(&keys[place])).collect()
        };
        maybe.sort_unstable_by_key(|&place| keys[place]);
        maybe
    }

    /// Counts an append; true when the gauges should be read again.
    pub(crate) fn measure_now(&self) -> bool {
        self.appends.fetch_add(1, Ordering::Relaxed).is_multiple_of(APPENDS_PER_MEASURE)
    }
}
