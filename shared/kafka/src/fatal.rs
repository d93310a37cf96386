//! How a broken client ends its process.

use tokio::sync::watch;
use tracing::error;

/// Told of errors after which a client never works again. The service waits for it, and ends; a restart heals it.
#[derive(Clone, Debug)]
pub struct Fatal(watch::Sender<Option<String>>);

impl Default for Fatal {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Fatal {
    /// Tells that the process must restart. The first reason is kept.
    pub fn report(&self, reason: &str) {
        self.0.send_if_modified(|kept| {
            let first = kept.is_none();
            if first {
                error!(
                    reason,
                    "a client is broken for good; the process ends, and a restart goes on where it stopped"
                );
                *kept = Some(reason.to_owned());
            }
            first
        });
    }

    /// Waits for the first reason. Everybody who waits hears it.
    pub async fn reported(&self) -> String {
        let mut heard = self.0.subscribe();
        loop {
            if let Some(reason) = heard.borrow_and_update().clone() {
                return reason;
            }
            // The sender lives as long as `self`, so this ends by a report only.
            if heard.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The first reason, if there is one.
    pub fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_who_waits_hears_the_first_reason() {
        let fatal = Fatal::default();
        let waiting =
            [fatal.clone(), fatal.clone()].map(|fatal| tokio::spawn(async move { fatal.reported().await }));
        tokio::task::yield_now().await;
        fatal.report("first");
        fatal.report("second");
        for waiter in waiting {
            assert_eq!(waiter.await.unwrap(), "first");
        }
        assert_eq!(fatal.reported().await, "first", "and who comes later");
    }
}
