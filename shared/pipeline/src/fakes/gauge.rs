//! One metric as a test sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Remembers the gauge of one name, and lets everything else go by. For `metrics::with_local_recorder`.
#[derive(Debug)]
pub struct OneGauge {
    name: &'static str,
    value: Arc<Whole>,
}

impl OneGauge {
    /// The gauge of this name.
    pub fn of(name: &'static str) -> Self {
        Self { name, value: Arc::default() }
    }

    /// What it shows now.
    pub fn get(&self) -> i64 {
        self.value.0.load(Ordering::Relaxed)
    }
}

/// A gauge of whole numbers.
#[derive(Debug, Default)]
struct Whole(AtomicI64);

impl GaugeFn for Whole {
    fn increment(&self, value: f64) {
        self.0.fetch_add(value as i64, Ordering::Relaxed);
    }

    fn decrement(&self, value: f64) {
        self.0.fetch_sub(value as i64, Ordering::Relaxed);
    }

    fn set(&self, value: f64) {
        self.0.store(value as i64, Ordering::Relaxed);
    }
}

impl Recorder for OneGauge {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == self.name { Gauge::from_arc(self.value.clone()) } else { Gauge::noop() }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
