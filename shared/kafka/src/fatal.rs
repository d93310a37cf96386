//! How a broken client ends its process.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::error;

/// Told of errors after which a client never works again. The service waits for it, and ends; a restart heals it.
#[derive(Clone, Debug, Default)]
pub struct Fatal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reason: Mutex<Option<String>>,
    told: Notify,
}

impl Fatal {
    /// Tells that the process must restart. The first reason is kept.
    pub fn report(&self, reason: &str) {
        let mut kept = self.0.reason.lock();
        if kept.is_none() {
            error!(
                reason,
                "a client is broken for good; the process ends, and a restart goes on where it stopped"
            );
            *kept = Some(reason.to_owned());
        }
        drop(kept);
        self.0.told.notify_one();
    }

    /// Waits for the first reason.
    pub async fn reported(&self) -> String {
        loop {
            if let Some(reason) = self.reason() {
                return reason;
            }
            self.0.told.notified().await;
        }
    }

    /// The first reason, if there is one.
    pub fn reason(&self) -> Option<String> {
        self.0.reason.lock().clone()
    }
}
