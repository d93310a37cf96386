//! A wall clock that follows tokio's time, and can jump.

use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::UnixMillis;
use tokio::time::Instant;

use super::dice::Dice;
use crate::ports::Clock;

/// The wall time at which every world begins.
pub const BEGIN: UnixMillis = UnixMillis(1_764_432_000_000);

/// The clock and dice of a world, or of one of its processes.
#[derive(Debug)]
pub struct FakeClock {
    begin: Instant,
    jumped: Mutex<i64>,
    dice: Mutex<Dice>,
    drawn: Mutex<Option<f64>>,
}

impl FakeClock {
    /// A clock that showed [`BEGIN`] at `begin`.
    pub fn new(begin: Instant, seed: u64) -> Self {
        Self { begin, jumped: Mutex::new(0), dice: Mutex::new(Dice::new(seed)), drawn: Mutex::new(None) }
    }

    /// Sets the wall clock forward, or back.
    pub fn jump(&self, millis: i64) {
        *self.jumped.lock() += millis;
    }

    /// All draws give this from now on.
    pub fn always_draw(&self, drawn: f64) {
        *self.drawn.lock() = Some(drawn);
    }

    /// How much of tokio's time has passed.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }
}

impl Clock for FakeClock {
    fn wall(&self) -> UnixMillis {
        let UnixMillis(wall) = BEGIN.after(self.elapsed());
        UnixMillis(wall + *self.jumped.lock())
    }

    fn draw(&self) -> f64 {
        let fixed = *self.drawn.lock();
        fixed.unwrap_or_else(|| self.dice.lock().fraction())
    }
}
