//! Free ports for servers that are stopped and started again on the same port.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// Below the range from which Linux takes the source ports of outgoing connections (32768 and up). A port from that range
/// could be taken by any client while its server is down; a client of that very server can even connect to *itself*.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port of 127.0.0.1 on which nothing listens, given out once per process.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    // `RandomState` is seeded by the operating system: test processes that run side by side try different ports.
    let seed = RandomState::new();
    (0u32..10_000)
        .map(|attempt| RANGE.start + (seed.hash_one(attempt) % RANGE.len() as u64) as u16)
        .find(|port| {
            !given.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok() && given.insert(*port)
        })
        .expect("a port between 20000 and 32000 is free")
}
