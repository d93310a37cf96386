//! When a mark is forgotten: `retention` after its append, by its partition's own time.
//!
//! That time follows the append times in the changelog, which the broker's clock gave. But that clock may be wrong by a year, for one
//! record or for a day, and no mark may be forgotten for it. So an append time is believed only if it is within an eighth of the
//! retention of where the partition's time must be by now: at the last append time that was believed, plus what passed here since
//! then by the monotonic clock. If it is not, the partition's time goes on from there as time passes here. It never goes back, and a
//! mark is stored with the partition's time at its append.
//!
//! Whatever clocks do, a mark is remembered for seven eighths of the retention at least. It is remembered longer after a pause of
//! more than an eighth that nobody watched, a stopped worker for example: by the length of that pause. A restore reads history faster
//! than time passes, so after such a pause in the history all that is left of it counts as one. The wall clock of this machine is not
//! asked.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use tidegate_domain::UnixMillis;

use crate::entry;

const NOTHING_SEEN: i64 = i64::MIN;

/// A partition's own clock. It never goes back, and clones show one time.
#[derive(Clone, Debug)]
pub(crate) struct BrokerTime {
    retention: Retention,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    now: AtomicI64,
    believed: Mutex<Option<Believed>>,
}

/// The last append time that was believed, and when.
type Believed = (UnixMillis, Instant);

impl BrokerTime {
    /// Nothing seen yet: nothing is expired.
    pub(crate) fn new(retention: Retention) -> Self {
        let shared = Shared { now: AtomicI64::new(NOTHING_SEEN), believed: Mutex::default() };
        Self { retention, shared: Arc::new(shared) }
    }

    /// Takes note of an append time, at the moment `here`, and gives the partition's time.
    pub(crate) fn advance(&self, at: UnixMillis, here: Instant) -> UnixMillis {
        let mut believed = self.shared.believed.lock();
        let now = match *believed {
            None => at,
            Some(known) => next(known, at, here, self.retention.0 / 8).max(self.now()),
        };
        if now == at {
            *believed = Some((at, here));
        }
        self.shared.now.store(now.0, Ordering::Relaxed);
        now
    }

    /// Goes on from the time that a copy was left at.
    pub(crate) fn resume(&self, at: UnixMillis, here: Instant) {
        let mut believed = self.shared.believed.lock();
        if at > self.now() {
            *believed = Some((at, here));
            self.shared.now.store(at.0, Ordering::Relaxed);
        }
    }

    /// The copy is gone, and its time with it.
    pub(crate) fn forget(&self) {
        let mut believed = self.shared.believed.lock();
        *believed = None;
        self.shared.now.store(NOTHING_SEEN, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> UnixMillis {
        UnixMillis(self.shared.now.load(Ordering::Relaxed))
    }
}

/// The partition's time after an append `at`, if it did not go back.
fn next((believed, when): Believed, at: UnixMillis, here: Instant, slack: Duration) -> UnixMillis {
    let due = believed.after(here.saturating_duration_since(when));
    let plausible = at <= due.after(slack) && due <= at.after(slack);
    if plausible { at } else { due }
}

/// How long marks are remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention(pub(crate) Duration);

impl Retention {
    /// Whether what was appended `at` is forgotten.
    pub(crate) fn is_over(self, at: UnixMillis, now: UnixMillis) -> bool {
        at.after(self.0) < now
    }
}

/// Gives every compaction of one column family its filter. A factory, because the database owns factories, while a plain filter
/// that is passed to a column family made later would be freed too early.
pub(crate) struct ForgetExpired {
    pub(crate) time: BrokerTime,
}

impl CompactionFilterFactory for ForgetExpired {
    type Filter = ForgetBefore;

    fn create(&mut self, _context: CompactionFilterContext) -> ForgetBefore {
        ForgetBefore { retention: self.time.retention, now: self.time.now() }
    }

    fn name(&self) -> &CStr {
        c"tidegate.forget-expired"
    }
}

/// The filter of one compaction. It sees whole marks only, not what is still to be merged: that is merged at the bottom of the
/// tree, and forgotten by the next compaction there.
pub(crate) struct ForgetBefore {
    retention: Retention,
    now: UnixMillis,
}

impl CompactionFilter for ForgetBefore {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        let forget = entry::mark_key(key).is_some()
            && entry::append_time(value).is_some_and(|at| self.retention.is_over(at, self.now));
        if forget { CompactionDecision::Remove } else { CompactionDecision::Keep }
    }

    fn name(&self) -> &CStr {
        c"tidegate.forget-before"
    }
}

#[cfg(test)]
mod tests;
