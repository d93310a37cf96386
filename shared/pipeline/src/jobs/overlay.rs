//! Marks on their way: laid over the store, so that two equal keys in one poll run once.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use tidegate_domain::{IdempotencyKey, Mark};

use crate::ports::MarkEntry;

/// What is known of keys whose newest mark is not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    on_their_way: FxHashMap<IdempotencyKey, OnItsWay>,
}

#[derive(Debug)]
struct OnItsWay {
    /// The whole mark: what the store had, joined with everything since.
    mark: Mark,
    entries: u32,
}

impl Overlay {
    /// The mark of a key that has something on its way.
    pub(super) fn get(&self, key: &IdempotencyKey) -> Option<Mark> {
        self.on_their_way.get(key).map(|on| on.mark)
    }

    /// Lays `entry` over what was `known` of its key.
    pub(super) fn lay(&mut self, entry: &MarkEntry, known: Mark) {
        let on = self.on_their_way.entry(entry.key).or_insert(OnItsWay { mark: known, entries: 0 });
        on.mark = on.mark.join(entry.mark);
        on.entries += 1;
    }

    /// `entry` is in the store now.
    pub(super) fn acknowledged(&mut self, entry: &MarkEntry) {
        if let Entry::Occupied(mut on) = self.on_their_way.entry(entry.key) {
            on.get_mut().entries -= 1;
            if on.get().entries == 0 {
                on.remove();
            }
        }
    }
}
