//! When a mark is forgotten: `retention` after its append, measured by the newest append that its partition has seen.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use tidegate_domain::UnixMillis;

use crate::entry;

/// A partition's own clock: the newest append time it has seen. It never goes back, and shared clones show one time.
#[derive(Clone, Debug)]
pub(crate) struct BrokerTime(Arc<AtomicI64>);

impl Default for BrokerTime {
    /// Nothing seen yet: nothing is expired.
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MIN)))
    }
}

impl BrokerTime {
    /// Takes note of an append time, and gives the newest one.
    pub(crate) fn advance(&self, at: UnixMillis) -> UnixMillis {
        UnixMillis(self.0.fetch_max(at.0, Ordering::Relaxed).max(at.0))
    }

    pub(crate) fn newest(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }
}

/// How long marks are remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention(pub(crate) Duration);

impl Retention {
    /// Whether what was appended `at` is forgotten.
    pub(crate) fn is_over(self, at: UnixMillis, newest: UnixMillis) -> bool {
        at.after(self.0) < newest
    }
}

/// Gives every compaction of one column family its filter. A factory, because the database owns factories, while a plain filter
/// that is passed to a column family made later would be freed too early.
pub(crate) struct ForgetExpired {
    pub(crate) retention: Retention,
    pub(crate) time: BrokerTime,
}

impl CompactionFilterFactory for ForgetExpired {
    type Filter = ForgetBefore;

    fn create(&mut self, _context: CompactionFilterContext) -> ForgetBefore {
        ForgetBefore { retention: self.retention, newest: self.time.newest() }
    }

    fn name(&self) -> &CStr {
        c"tidegate.forget-expired"
    }
}

/// The filter of one compaction. It sees whole marks only, not what is still to be merged: that is merged at the bottom of the
/// tree, and forgotten by the next compaction there.
pub(crate) struct ForgetBefore {
    retention: Retention,
    newest: UnixMillis,
}

impl CompactionFilter for ForgetBefore {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        let forget = entry::mark_key(key).is_some()
            && entry::append_time(value).is_some_and(|at| self.retention.is_over(at, self.newest));
        if forget { CompactionDecision::Remove } else { CompactionDecision::Keep }
    }

    fn name(&self) -> &CStr {
        c"tidegate.forget-before"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_expired_before_any_append_was_seen() {
        let time = BrokerTime::default();
        let retention = Retention(Duration::from_secs(1));
        assert!(!retention.is_over(UnixMillis(0), time.newest()));
        assert_eq!(time.advance(UnixMillis(5_000)), UnixMillis(5_000));
        assert_eq!(time.advance(UnixMillis(4_000)), UnixMillis(5_000), "it never goes back");
        assert!(!retention.is_over(UnixMillis(4_000), time.newest()));
        assert!(retention.is_over(UnixMillis(3_999), time.newest()));
    }

    #[test]
    fn the_compaction_filter_keeps_reserved_keys_and_what_it_cannot_read() {
        let retention = Retention(Duration::from_secs(1));
        let mut filter = ForgetBefore { retention, newest: UnixMillis(10_000) };
        let mut check = |key: &[u8], value: &[u8], removed| {
            assert_eq!(matches!(filter.filter(6, key, value), CompactionDecision::Remove), removed);
        };
        let old = entry::encode_time(UnixMillis(8_999));
        check(&[7; 16], &old, true);
        check(&[7; 16], &entry::encode_time(UnixMillis(9_000)), false);
        check(entry::NEWEST_KEY, &old, false);
        check(&[7; 16], &old[1..], false);
        check(&[], &[], false);
    }
}
