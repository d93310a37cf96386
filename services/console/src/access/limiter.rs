//! How often an address may try a token.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many tries at once, …
const BURST: f64 = 10.0;
/// … and one more after each of these.
const REFILL: Duration = Duration::from_secs(6);
/// So many addresses are remembered at most.
const MOST: usize = 10_000;

/// Tries by address.
#[derive(Debug, Default)]
pub(super) struct Limiter(Mutex<HashMap<IpAddr, Bucket>>);

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tries: f64,
    at: Instant,
}

impl Bucket {
    fn now(self, now: Instant) -> Self {
        let more = now.saturating_duration_since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        Self { tries: (self.tries + more).min(BURST), at: now }
    }

    fn is_full(self, now: Instant) -> bool {
        self.now(now).tries >= BURST
    }
}

impl Limiter {
    /// Uses one try, or says how long until there is one.
    pub(super) fn take(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.0.lock();
        let client = network(client);
        if buckets.len() >= MOST && !buckets.contains_key(&client) {
            buckets.retain(|_, bucket| !bucket.is_full(now));
            // Somebody has very many addresses. New ones wait until the old ones are forgotten.
            if buckets.len() >= MOST {
                return Err(REFILL);
            }
        }
        let bucket = buckets.entry(client).or_insert(Bucket { tries: BURST, at: now });
        *bucket = bucket.now(now);
        if bucket.tries < 1.0 {
            return Err(REFILL.mul_f64(1.0 - bucket.tries));
        }
        bucket.tries -= 1.0;
        Ok(())
    }

    /// How long until this address may try; none: it may now. Uses no try.
    pub(super) fn wait(&self, client: IpAddr, now: Instant) -> Option<Duration> {
        let tries = self.0.lock().get(&network(client))?.now(now).tries;
        (tries < 1.0).then(|| REFILL.mul_f64(1.0 - tries))
    }
}

/// Whoever has one IPv6 address has the 2^64 around it.
fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(limiter: &Limiter, client: IpAddr, now: Instant) -> usize {
        (0..100).take_while(|_| limiter.take(client, now).is_ok()).count()
    }

    #[test]
    fn ten_tries_and_then_one_every_six_seconds_for_each_address() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let [ana, ben] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        assert_eq!(take_all(&limiter, ana, now), 10);
        assert_eq!(take_all(&limiter, ben, now), 10);
        assert!(limiter.take(ana, now).unwrap_err() <= REFILL);
        assert_eq!(take_all(&limiter, ana, now + 2 * REFILL), 2);
        assert!(limiter.wait(ana, now + 2 * REFILL).is_some_and(|wait| wait <= REFILL));
        assert_eq!(limiter.wait(ana, now + 3 * REFILL), None);
        assert_eq!(take_all(&limiter, ana, now + 3 * REFILL), 1, "a look uses none");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        assert_eq!(take_all(&limiter, "2001:db8::1".parse().unwrap(), now), 10);
        assert_eq!(take_all(&limiter, "2001:db8::2".parse().unwrap(), now), 0);
        assert_eq!(take_all(&limiter, "2001:db8:0:1::1".parse().unwrap(), now), 10);
    }

    #[test]
    fn very_many_addresses_fill_no_memory() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let taken =
            (0..20_000u32).filter(|n| limiter.take(IpAddr::from(n.to_be_bytes()), now).is_ok()).count();
        assert_eq!(taken, MOST);
        assert_eq!(limiter.0.lock().len(), MOST);
        assert!(limiter.take("9.9.9.9".parse().unwrap(), now + 20 * REFILL).is_ok());
    }
}
