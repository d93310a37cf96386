//! Effects that happen later, in the order of their times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

type Effect = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    due: BTreeMap<(Instant, u64), Effect>,
    sequence: u64,
    /// The last time of each lane: effects of one lane keep their order.
    lanes: BTreeMap<String, Instant>,
}

/// Effects on their way. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Parcels(Arc<Mutex<Queue>>);

impl std::fmt::Debug for Parcels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcels").field("on_their_way", &self.len()).finish()
    }
}

impl Parcels {
    /// Lets `effect` happen after `wait`, and after what was sent in the same lane before.
    pub(super) fn send(&self, lane: &str, wait: Duration, effect: impl FnOnce() + Send + 'static) {
        let at = {
            let mut queue = self.0.lock();
            let wanted = Instant::now() + wait;
            let last = queue.lanes.entry(lane.to_owned()).or_insert(wanted);
            let at = wanted.max(*last);
            *last = at;
            queue.sequence += 1;
            let place = (at, queue.sequence);
            queue.due.insert(place, Box::new(effect));
            at
        };
        let parcels = self.clone();
        drop(tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            parcels.deliver();
        }));
    }

    /// What is on its way never arrives.
    pub(super) fn lose_all(&self) {
        self.0.lock().due.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().due.len()
    }

    fn deliver(&self) {
        loop {
            let effect = {
                let mut queue = self.0.lock();
                match queue.due.first_entry() {
                    Some(first) if first.key().0 <= Instant::now() => first.remove(),
                    _ => return,
                }
            };
            effect();
        }
    }
}
