//! Most look-ups ask for keys that were never seen. A bloom filter in memory answers those in nanoseconds.
//!
//! It grows by generations. A generation is closed when it is full, or when it spans a quarter of the retention; it is dropped
//! when all of its keys are expired. So a filter neither grows for ever nor has to be built anew.

use fastbloom::BloomFilter;
use tidegate_domain::{IdempotencyKey, UnixMillis};

use crate::expiry::Retention;

/// With 7 hashes: one false positive in 700 look-ups and full generation.
const BITS_PER_KEY: usize = 14;
const HASHES: u32 = 7;
const FIRST_CAPACITY: usize = 16 << 10;
const LEAST_CAPACITY: usize = 4 << 10;

struct Generation {
    bloom: BloomFilter,
    capacity: usize,
    keys: usize,
    oldest: UnixMillis,
    newest: UnixMillis,
}

impl Generation {
    fn new(capacity: usize) -> Self {
        let bloom = BloomFilter::with_num_bits(capacity * BITS_PER_KEY).hashes(HASHES);
        Self { bloom, capacity, keys: 0, oldest: UnixMillis(i64::MAX), newest: UnixMillis(i64::MIN) }
    }

    fn bytes(&self) -> usize {
        self.bloom.num_bits() / 8
    }

    fn insert(&mut self, hash: u64, at: UnixMillis) {
        if !self.bloom.insert_hash(hash) {
            self.keys += 1;
        }
        self.oldest = self.oldest.min(at);
        self.newest = self.newest.max(at);
    }
}

/// Which keys a partition may hold.
pub(crate) struct KeyFilter {
    /// The last one takes new keys.
    generations: Vec<Generation>,
    budget: usize,
    retention: Retention,
    overflowed: bool,
}

impl KeyFilter {
    /// A filter that knows of no key, with room for `expected` ones at first.
    pub(crate) fn new(budget: usize, retention: Retention, expected: usize) -> Self {
        let mut filter = Self { generations: Vec::new(), budget, retention, overflowed: false };
        // Far more keys than there is room for would only be read to no use.
        filter.overflowed = expected / 2 > budget.saturating_mul(8) / BITS_PER_KEY;
        filter.grow(expected.max(FIRST_CAPACITY));
        filter
    }

    /// Whether the partition holds more keys than the budget allows: then every key may be there.
    pub(crate) fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub(crate) fn bytes(&self) -> usize {
        self.generations.iter().map(Generation::bytes).sum()
    }

    /// Whether `key` may have been inserted. False only when it was not, or is expired.
    pub(crate) fn may_hold(&self, key: &IdempotencyKey) -> bool {
        let hash = hash(key);
        self.overflowed
            || self.generations.iter().rev().any(|generation| generation.bloom.contains_hash(hash))
    }

    /// Inserts a key that is appended now; `now` does not go back.
    pub(crate) fn insert(&mut self, key: &IdempotencyKey, now: UnixMillis) {
        if let Some(last) = self.generations.last() {
            let full = last.keys >= last.capacity;
            let old = last.keys > 0 && now.since(last.oldest) > self.retention.0 / 4;
            if full || old {
                let next = if full { last.capacity.saturating_mul(2) } else { last.keys.next_power_of_two() };
                let retention = self.retention;
                self.generations.retain(|generation| !retention.is_over(generation.newest, now));
                self.grow(next);
            }
        }
        self.put(key, now);
    }

    /// Inserts a key that was found in the database, in the order of keys.
    pub(crate) fn insert_found(&mut self, key: &IdempotencyKey, at: UnixMillis) {
        if let Some(last) = self.generations.last()
            && last.keys >= last.capacity
        {
            let next = last.capacity.saturating_mul(2);
            self.grow(next);
        }
        self.put(key, at);
    }

    fn put(&mut self, key: &IdempotencyKey, at: UnixMillis) {
        if let Some(last) = self.generations.last_mut() {
            last.insert(hash(key), at);
        }
    }

    fn grow(&mut self, capacity: usize) {
        let room = self.budget.saturating_sub(self.bytes()).saturating_mul(8) / BITS_PER_KEY;
        if room < LEAST_CAPACITY || self.overflowed {
            self.overflowed = true;
            self.generations = Vec::new();
        } else {
            self.generations.push(Generation::new(capacity.clamp(LEAST_CAPACITY, room)));
        }
    }
}

/// Keys are uniform hashes already, those of tests and of tools excepted.
fn hash(IdempotencyKey(key): &IdempotencyKey) -> u64 {
    let whole = u128::from_le_bytes(*key);
    let folded = (whole as u64) ^ ((whole >> 64) as u64).rotate_left(32);
    folded.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RETENTION: Retention = Retention(Duration::from_secs(100));

    fn key(n: u64) -> IdempotencyKey {
        IdempotencyKey(u128::from(n).wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15).to_be_bytes())
    }

    #[test]
    fn a_key_that_was_inserted_is_never_denied_while_it_grows() {
        let mut filter = KeyFilter::new(8 << 20, RETENTION, 0);
        for n in 0..300_000 {
            filter.insert(&key(n), UnixMillis(7));
        }
        assert!(!filter.overflowed());
        assert!(filter.generations.len() > 3, "it grew");
        assert!((0..300_000).all(|n| filter.may_hold(&key(n))));
        let wrong = (1_000_000..1_100_000).filter(|&n| filter.may_hold(&key(n))).count();
        assert!(wrong < 1_500, "{wrong} false positives in 100000");
        assert!(filter.bytes() < 300_000 * 4, "{} bytes", filter.bytes());
    }

    #[test]
    fn past_its_budget_it_gives_its_memory_back_and_denies_nothing() {
        let mut filter = KeyFilter::new(100_000, RETENTION, 0);
        for n in 0..100_000 {
            filter.insert(&key(n), UnixMillis(7));
            assert!(filter.bytes() <= 100_000);
        }
        assert!(filter.overflowed());
        assert_eq!(filter.bytes(), 0);
        assert!(filter.may_hold(&key(1 << 40)));
    }

    #[test]
    fn it_stays_small_while_keys_come_and_expire() {
        let mut filter = KeyFilter::new(1 << 20, RETENTION, 0);
        for n in 0..2_000_000_u64 {
            let at = UnixMillis(i64::try_from(n).unwrap() * 4);
            filter.insert(&key(n), at);
            if n % 1_000 == 0 {
                let live = n.saturating_sub(25_000)..=n;
                assert!(live.step_by(100).all(|n| filter.may_hold(&key(n))));
                assert!(filter.generations.len() <= 8);
            }
        }
        assert!(!filter.overflowed());
        assert!(!filter.may_hold(&key(3)), "keys of expired generations are forgotten");
    }

    #[test]
    fn a_budget_of_nothing_means_no_filter() {
        let filter = KeyFilter::new(0, RETENTION, 0);
        assert!(filter.overflowed());
        assert!(filter.may_hold(&key(1)));
    }
}
