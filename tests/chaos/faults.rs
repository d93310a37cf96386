//! The three lanes of faults: each harms its own part, undoes it, and lets some time pass.

mod endpoint;
mod servers;
mod services;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::journal::Journal;

pub(crate) use endpoint::harm_endpoint;
pub(crate) use servers::harm_servers;
pub(crate) use services::harm_services;

/// Until when faults are injected, and where they are noted.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) journal: Arc<Journal>,
    pub(crate) until: Instant,
}

impl Lane {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }
}

/// Lets a fault last: here the time itself is what matters.
fn hold(duration: Duration) {
    std::thread::sleep(duration);
}
