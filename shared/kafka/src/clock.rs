//! The system's clock and dice.

use std::time::{SystemTime, UNIX_EPOCH};

use rand::Rng;
use tidegate_domain::UnixMillis;
use tidegate_pipeline::ports::Clock;

/// The system's clock and dice.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> UnixMillis {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn draw(&self) -> f64 {
        rand::rng().random()
    }
}
