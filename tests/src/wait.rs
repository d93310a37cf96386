//! Waiting for a condition with a deadline, instead of sleeping and hoping.

use std::time::{Duration, Instant};

/// Between two looks: short beside everything that is waited for, long beside the cost of a look.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks until `look` finds something, and returns it; `None` when the deadline passes first. It looks at least once.
pub fn look_until<T>(deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Waits until the condition holds.
///
/// # Panics
/// When it doesn't within the deadline; `what` completes the sentence "waited 10s for ...".
#[track_caller]
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    if look_until(deadline, || condition().then_some(())).is_none() {
        panic!("waited {deadline:?} for {what}");
    }
}
