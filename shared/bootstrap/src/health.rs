//! Whether the process can work (ready) and whether it still moves (live), as its components report it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::config::duration_text;

/// The state of all components. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health {
    components: Arc<Mutex<Components>>,
}

#[derive(Debug, Default)]
struct Components {
    /// The reason why a component isn't ready, or none if it is.
    readiness: BTreeMap<String, Option<String>>,
    heartbeats: BTreeMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    deadline: Duration,
    beats: Arc<Beats>,
}

/// The time of the last beat, in milliseconds since `since`.
#[derive(Debug)]
struct Beats {
    since: Instant,
    last: AtomicU64,
}

impl Beats {
    fn beat_at(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.since).as_millis();
        self.last.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.since + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// Why the process is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotReady {
    /// Who says so.
    pub component: String,
    /// Why, in words for an operator.
    pub reason: String,
}

/// A component that should move and doesn't.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stalled {
    /// Which one.
    pub component: String,
    /// What it did last, and how long ago.
    pub reason: String,
}

impl Health {
    /// A process that is ready once each of these components has said so.
    pub fn expecting<'a>(components: impl IntoIterator<Item = &'a str>) -> Self {
        let health = Self::default();
        components.into_iter().for_each(|component| health.not_ready(component, "it is starting"));
        health
    }

    /// The component can do its work.
    pub fn ready(&self, component: &str) {
        self.components.lock().readiness.insert(component.to_owned(), None);
    }

    /// The component can't do its work now. `reason` is shown to operators: no secrets.
    pub fn not_ready(&self, component: &str, reason: impl Into<String>) {
        self.components.lock().readiness.insert(component.to_owned(), Some(reason.into()));
    }

    /// The component is gone for good and has nothing to report any more.
    pub fn forget(&self, component: &str) {
        self.components.lock().readiness.remove(component);
    }

    /// Watches a component that has to move: if [`Heartbeat::beat`] isn't called for `deadline`, the process counts
    /// as stalled, and the platform restarts it. A later call under the same name replaces the earlier one.
    pub fn heartbeat(&self, component: &str, deadline: Duration) -> Heartbeat {
        let beats = Arc::new(Beats { since: Instant::now(), last: AtomicU64::new(0) });
        let watched = Watched { deadline, beats: Arc::clone(&beats) };
        self.components.lock().heartbeats.insert(component.to_owned(), watched);
        Heartbeat { component: component.to_owned(), beats, health: self.clone() }
    }

    /// Why the process is not ready; empty if it is. A process of which nothing is known is not ready.
    pub fn readiness(&self) -> Vec<NotReady> {
        let components = self.components.lock();
        if components.readiness.is_empty() {
            let reason = "no component has reported yet".to_owned();
            return vec![NotReady { component: "process".to_owned(), reason }];
        }
        let waiting = components.readiness.iter().filter_map(|(component, reason)| {
            let reason = reason.clone()?;
            Some(NotReady { component: component.clone(), reason })
        });
        waiting.collect()
    }

    /// Whether all components are ready.
    pub fn is_ready(&self) -> bool {
        self.readiness().is_empty()
    }

    /// The components whose last beat is older than their deadline at `now`.
    pub fn stalled(&self, now: Instant) -> Vec<Stalled> {
        let components = self.components.lock();
        let stalled = components.heartbeats.iter().filter_map(|(component, watched)| {
            let silence = now.saturating_duration_since(watched.beats.last());
            (silence > watched.deadline).then(|| Stalled {
                component: component.clone(),
                reason: format!(
                    "no sign of life for {}, {} are allowed",
                    duration_text(Duration::from_secs(silence.as_secs())),
                    duration_text(watched.deadline)
                ),
            })
        });
        stalled.collect()
    }
}

/// The sign of life of one component. Cheap enough for a hot loop.
///
/// Dropping it does *not* end the watch: a thread that panics drops it too, and must be noticed. A component that ends
/// on purpose calls [`Heartbeat::finish`].
#[derive(Debug)]
pub struct Heartbeat {
    component: String,
    beats: Arc<Beats>,
    health: Health,
}

impl Heartbeat {
    /// Says: this component moved just now.
    pub fn beat(&self) {
        self.beats.beat_at(Instant::now());
    }

    /// Ends the watch: the component is done.
    pub fn finish(self) {
        let mut components = self.health.components.lock();
        // A successor may have taken the name over; its watch goes on.
        let is_ours = |watched: &Watched| Arc::ptr_eq(&watched.beats, &self.beats);
        if components.heartbeats.get(&self.component).is_some_and(is_ours) {
            components.heartbeats.remove(&self.component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_when_each_expected_component_is() {
        let health = Health::expecting(["kafka", "state"]);
        health.ready("kafka");
        assert_eq!(health.readiness().len(), 1);
        health.ready("state");
        assert!(health.is_ready());
        health.not_ready("kafka", "the dead-letter topic can't be written");
        assert_eq!(health.readiness()[0].reason, "the dead-letter topic can't be written");
    }

    #[test]
    fn a_process_of_which_nothing_is_known_is_not_ready_but_live() {
        let health = Health::default();
        assert!(!health.is_ready());
        assert_eq!(health.stalled(Instant::now()), []);
    }

    #[test]
    fn a_component_is_stalled_when_its_last_beat_is_older_than_its_deadline() {
        let health = Health::default();
        let heartbeat = health.heartbeat("events", Duration::from_secs(10));
        let begin = heartbeat.beats.since;
        assert_eq!(health.stalled(begin + Duration::from_secs(9)), []);
        assert_eq!(health.stalled(begin + Duration::from_secs(11))[0].component, "events");
        heartbeat.beats.beat_at(begin + Duration::from_secs(8));
        assert_eq!(health.stalled(begin + Duration::from_secs(11)), []);
    }

    #[test]
    fn a_dropped_heartbeat_is_still_watched_and_a_finished_one_is_not() {
        let health = Health::default();
        let later = Instant::now() + Duration::from_secs(60);
        drop(health.heartbeat("shard-0", Duration::from_secs(1)));
        assert_eq!(health.stalled(later).len(), 1);
        let old = health.heartbeat("shard-0", Duration::from_secs(1));
        let new = health.heartbeat("shard-0", Duration::from_secs(1));
        old.finish();
        assert_eq!(health.stalled(later).len(), 1, "the successor is watched");
        new.finish();
        assert_eq!(health.stalled(later), []);
    }
}
