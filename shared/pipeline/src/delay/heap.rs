//! What all partitions of a process hold together, on however many shards they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_domain::due_queue::SharedBudget;

/// The memory that the delay stages of a process share. Clones share it.
///
/// Shards look and take side by side, so two may take the same room: the budget is exceeded by what one fetch brings, not more.
#[derive(Clone, Debug)]
pub struct SharedHeap {
    budget: SharedBudget,
    held: Arc<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: AtomicUsize,
    records: AtomicUsize,
    partitions: AtomicUsize,
}

impl SharedHeap {
    /// Memory for so many bytes of records.
    pub fn new(bytes: usize) -> Self {
        Self { budget: SharedBudget(bytes), held: Arc::default() }
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        self.held.bytes.load(Ordering::Relaxed)
    }

    /// How many records it holds.
    pub(super) fn records(&self) -> usize {
        self.held.records.load(Ordering::Relaxed)
    }
}

/// What one partition holds of it; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    heap: SharedHeap,
    bytes: usize,
    records: usize,
}

impl Share {
    pub(super) fn of(heap: &SharedHeap) -> Self {
        heap.held.partitions.fetch_add(1, Ordering::Relaxed);
        Self { heap: heap.clone(), bytes: 0, records: 0 }
    }

    /// How many more bytes the partition may fetch.
    pub(super) fn room(&self) -> usize {
        let partitions = self.heap.held.partitions.load(Ordering::Relaxed);
        self.heap.budget.room(self.bytes, self.heap.bytes(), partitions)
    }

    /// A record of this size came.
    pub(super) fn hold(&mut self, bytes: usize) {
        (self.bytes, self.records) = (self.bytes + bytes, self.records + 1);
        self.heap.held.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.heap.held.records.fetch_add(1, Ordering::Relaxed);
    }

    /// It went.
    pub(super) fn free(&mut self, bytes: usize) {
        (self.bytes, self.records) = (self.bytes - bytes, self.records - 1);
        self.heap.held.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.heap.held.records.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let held = &self.heap.held;
        held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        held.records.fetch_sub(self.records, Ordering::Relaxed);
        held.partitions.fetch_sub(1, Ordering::Relaxed);
    }
}
