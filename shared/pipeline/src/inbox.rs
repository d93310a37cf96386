//! How other threads reach a shard: they push into an inbox, and the shard wakes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Wakes one shard. Cheap to clone; a wake that comes while the shard is at work is not lost.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Lets the shard look around.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits for a wake.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}

/// What other threads tell a shard. Unbounded by itself: what is in it is bounded by the shard's own window.
#[derive(Debug)]
pub struct Inbox<T> {
    items: Mutex<Vec<T>>,
    wake: Wake,
}

impl<T> Inbox<T> {
    /// An empty inbox of the shard that `wake` wakes.
    pub fn new(wake: Wake) -> Arc<Self> {
        Arc::new(Self { items: Mutex::new(Vec::new()), wake })
    }

    /// Adds an item and wakes the shard.
    pub fn push(&self, item: T) {
        let was_empty = {
            let mut items = self.items.lock();
            items.push(item);
            items.len() == 1
        };
        if was_empty {
            self.wake.wake();
        }
    }

    /// Takes all items, in the order that they came; `into` must be empty, its allocation is used on.
    pub fn take(&self, into: &mut Vec<T>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut *self.items.lock(), into);
    }
}
