//! The flood guard of a class, as the shards of a process share it. A hand-out reads one atomic number while the class is not
//! parked; runs are counted by each shard for itself and told from time to time, failures at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::flood::{Finding, FloodGuard, FloodLimits, Generation, Outlook, Runs};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::events::GuardMetrics;
use crate::inbox::Wake;

/// Parks a class that fails altogether. Clones are the same guard; the default one never parks anything.
#[derive(Clone, Debug, Default)]
pub struct Guard(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    class: String,
    limits: FloodLimits,
    metrics: GuardMetrics,
    /// Twice the generation, and one more while the class is parked.
    standing: AtomicU64,
    flood: Mutex<FloodGuard>,
    /// How many probes were run since the class was parked.
    probes: AtomicU64,
    /// Shards that may have jobs of the class.
    shards: Mutex<Vec<Wake>>,
    began: Instant,
}

/// What a job runs as.
#[derive(Debug)]
pub(super) enum Admission {
    /// One of many: its outcome is counted.
    Counted(Generation),
    /// The only one of its class.
    Probe(Probe),
}

/// The right to run one job of a parked class. Dropped before anything was found: another one may probe at once, so that a probe
/// that is cancelled, or whose process forgets it, parks the class no longer than needed.
#[derive(Debug)]
pub(super) struct Probe(Option<Arc<Shared>>);

impl Guard {
    /// The guard of a class.
    pub fn new(class: &str, limits: FloodLimits) -> Self {
        Self(Some(Arc::new(Shared {
            class: class.to_owned(),
            limits,
            metrics: GuardMetrics::of(class),
            standing: AtomicU64::new(0),
            flood: Mutex::new(FloodGuard::new(limits)),
            probes: AtomicU64::new(0),
            shards: Mutex::default(),
            began: Instant::now(),
        })))
    }

    /// How often the class was parked.
    pub fn times_parked(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.standing.load(Ordering::Acquire) / 2)
    }

    /// Whether the class is parked.
    pub fn is_parked(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.standing.load(Ordering::Acquire) % 2 == 1)
    }

    /// Wakes this shard too when parked jobs may go on.
    pub(super) fn tell(&self, wake: &Wake) {
        if let Some(shared) = &self.0 {
            shared.shards.lock().push(wake.clone());
        }
    }

    /// What a job may run as now; nothing: it is to be parked.
    pub(super) fn admit(&self, now: Instant) -> Option<Admission> {
        let Some(shared) = &self.0 else { return Some(Admission::Counted(Generation::default())) };
        let standing = shared.standing.load(Ordering::Acquire);
        if standing.is_multiple_of(2) {
            return Some(Admission::Counted(Generation(standing / 2)));
        }
        let mut flood = shared.flood.lock();
        if flood.outlook() == Outlook::Closed {
            // It healed since the look at its standing.
            return Some(Admission::Counted(flood.generation()));
        }
        flood.probe(shared.since_begin(now)).then(|| Admission::Probe(Probe(Some(shared.clone()))))
    }

    /// When a parked job may go on: `None` at once, all of them.
    pub(super) fn outlook(&self) -> Option<Next> {
        let shared = self.0.as_ref()?;
        match shared.flood.lock().outlook() {
            Outlook::Closed => None,
            Outlook::ProbeAt(at) => Some(Next::ProbeAt(shared.began + at)),
            Outlook::Probing => Some(Next::AfterTheProbe),
        }
    }

    /// For how long the class is parked, and when the next probe may run, where none does; `None`: it is not parked.
    pub(super) fn parked_for(&self, now: Instant) -> Option<(Duration, Option<Instant>)> {
        let shared = self.0.as_ref()?;
        let flood = shared.flood.lock();
        let since = flood.parked_since()?;
        let probe_at = match flood.outlook() {
            Outlook::ProbeAt(at) => Some(shared.began + at),
            Outlook::Closed | Outlook::Probing => None,
        };
        Some((shared.since_begin(now).saturating_sub(since), probe_at))
    }

    /// Tells of runs that began in `generation`.
    pub(super) fn note(&self, generation: Generation, runs: Runs, now: Instant) {
        let Some(shared) = &self.0 else { return };
        let mut flood = shared.flood.lock();
        let Some(counted) = flood.note(generation, runs, shared.since_begin(now)) else { return };
        shared.probes.store(0, Ordering::Relaxed);
        shared.standing.store(2 * flood.generation().0 + 1, Ordering::Release);
        shared.metrics.parked.set(1.0);
        let share = counted.failed as f64 / counted.count() as f64;
        warn!(
            class = shared.class,
            failed = counted.failed,
            of = counted.count(),
            share = format!("{share:.2}"),
            within = ?shared.limits.within,
            "the class is parked: its jobs wait without using attempts, and one at a time is tried as a probe"
        );
    }
}

/// What jobs of a parked class wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// One may run from this time on.
    ProbeAt(Instant),
    /// One runs; its end wakes the shards.
    AfterTheProbe,
}

impl Probe {
    /// What the probe's run says.
    pub(super) fn found(mut self, finding: Finding, now: Instant) {
        let Some(shared) = self.0.take() else { return };
        let probes = shared.probes.fetch_add(1, Ordering::Relaxed) + 1;
        shared.metrics.probed(finding);
        let healed = {
            let mut flood = shared.flood.lock();
            let healed = flood.found(finding, shared.since_begin(now));
            if healed.is_some() {
                shared.standing.store(2 * flood.generation().0, Ordering::Release);
                shared.metrics.parked.set(0.0);
            }
            healed
        };
        if let Some(parked_for) = healed {
            info!(class = shared.class, ?parked_for, probes, "a probe was answered: the class goes on");
        }
        shared.wake_all();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.flood.lock().forget();
            shared.wake_all();
        }
    }
}

impl Shared {
    fn since_begin(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    fn wake_all(&self) {
        self.shards.lock().iter().for_each(Wake::wake);
    }
}
