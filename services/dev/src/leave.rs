//! The wish to leave: Ctrl-C, a signal, or the key q. The first one asks for an end in order, the second for one at once.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::End;

/// How urgent the wish is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// To stay.
    #[default]
    Stay,
    /// To end what has begun, and leave.
    Leave,
    /// To leave at once.
    Now,
}

/// Who wants to leave. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leave(Arc<watch::Sender<Wish>>);

impl Leave {
    /// A wish that SIGINT, SIGTERM and SIGHUP express too.
    ///
    /// # Errors
    /// When the system lets nobody listen to signals.
    pub(crate) fn on_signals() -> std::io::Result<Self> {
        let leave = Self::default();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let (mut signals, leave) = (signal(kind)?, leave.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    leave.wish();
                }
            });
        }
        Ok(leave)
    }

    /// Expresses it, once more.
    pub(crate) fn wish(&self) {
        self.0.send_modify(|wish| {
            *wish = match *wish {
                Wish::Stay => Wish::Leave,
                Wish::Leave | Wish::Now => Wish::Now,
            };
        });
    }

    pub(crate) fn now(&self) -> Wish {
        *self.0.borrow()
    }

    /// The end of a run of which nothing has begun yet, if somebody wants to leave.
    pub(crate) fn before_it_begins(&self) -> Option<End> {
        match self.now() {
            Wish::Stay => None,
            Wish::Leave => Some(End::InOrder),
            Wish::Now => Some(End::AtOnce),
        }
    }

    /// Returns once the wish is at least this urgent.
    pub(crate) async fn wait_for(&self, at_least: Wish) {
        let mut wishes = self.0.subscribe();
        // It can't fail: `self` holds the sender for as long as this waits.
        drop(wishes.wait_for(|wish| *wish >= at_least).await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_wish_is_for_an_end_at_once() {
        let leave = Leave::default();
        assert_eq!(leave.now(), Wish::Stay);
        leave.wish();
        leave.wait_for(Wish::Leave).await;
        assert_eq!(leave.now(), Wish::Leave);
        leave.clone().wish();
        leave.wait_for(Wish::Now).await;
        leave.wish();
        assert_eq!(leave.now(), Wish::Now);
    }
}
