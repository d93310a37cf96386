//! What happens often is told seldom.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often one thing is told at most.
pub const TELL_EVERY: Duration = Duration::from_secs(10);

/// Lets each key be told every [`TELL_EVERY`] at most: for logs of what clients and handlers report at each try. There must be few
/// keys: each is remembered.
#[derive(Debug, Default)]
pub struct LogLimit<K>(Mutex<BTreeMap<K, Instant>>);

impl<K: Ord> LogLimit<K> {
    /// Nothing was told yet.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Whether `key` may be told now; it counts as told then.
    pub fn allows<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Ord + ?Sized,
    {
        let (mut told, now) = (self.0.lock(), Instant::now());
        let allows = told.get(key).is_none_or(|&last| now.duration_since(last) >= TELL_EVERY);
        if allows {
            told.insert(key.to_owned(), now);
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_told_at_once_and_then_every_ten_seconds_whatever_others_do() {
        let limit = LogLimit::<String>::new();
        for (key, after_millis, allowed) in [
            ("a", 0, true),
            ("a", 0, false),
            ("b", 5000, true),
            ("a", 4999, false),
            ("a", 1, true),
            ("b", 0, false),
            ("b", 5000, true),
            ("a", 4999, false),
        ] {
            tokio::time::advance(Duration::from_millis(after_millis)).await;
            assert_eq!(limit.allows(key), allowed, "{key}, {after_millis} ms later");
        }
    }
}
