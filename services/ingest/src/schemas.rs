//! Schemas as a partition needs them: known at once, or on their way while the partition waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_codec::classify::{self, SchemaVerdict};
use tidegate_codec::{CompiledSchema, RegistryError, SchemaRegistry};
use tidegate_domain::Failure;
use tidegate_pipeline::{Wake, events};
use tracing::warn;

/// What is known of a schema id now.
pub(crate) enum Known {
    /// The schema.
    Schema(Arc<CompiledSchema>),
    /// Events with this id can't be read, now or later.
    Never(Failure),
    /// It is being fetched.
    Soon,
    /// The registry does not give it now, and why.
    NotNow(String),
}

/// The schemas of one shard.
pub(crate) struct Schemas {
    registry: SchemaRegistry,
    runtime: tokio::runtime::Handle,
    wake: Wake,
    asked: Arc<Mutex<HashMap<u32, Asked>>>,
}

enum Asked {
    Fetching {
        /// Why the last try failed.
        failed: Option<String>,
    },
    /// Until then, the registry is not asked again.
    Waits(String, Instant),
    /// Until then, the verdict holds without asking again.
    Failed(Failure, Instant),
}

/// How long an id counts as unknown after its grace, before the registry is asked again: it may be registered at any moment, and
/// the events that come then must not die of what was true before.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// How long any other verdict against an id holds: what is registered under it does not change.
const INVALID_FOR: Duration = Duration::from_secs(60);

/// How long an id that the registry did not give is not asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

impl Schemas {
    pub(crate) fn new(registry: SchemaRegistry, runtime: tokio::runtime::Handle, wake: Wake) -> Self {
        Self { registry, runtime, wake, asked: Arc::default() }
    }

    /// What is known of `id`. Asks the registry when nothing is, and wakes the shard when it has answered.
    pub(crate) fn get(&self, id: u32) -> Known {
        if let Some(schema) = self.registry.known(id) {
            return Known::Schema(schema);
        }
        let mut asked = self.asked.lock();
        let now = Instant::now();
        let failed = match asked.get(&id) {
            Some(Asked::Fetching { failed: None }) => return Known::Soon,
            Some(Asked::Fetching { failed: Some(reason) }) => return Known::NotNow(reason.clone()),
            Some(Asked::Failed(failure, until)) if now < *until => return Known::Never(failure.clone()),
            Some(Asked::Waits(reason, until)) if now < *until => return Known::NotNow(reason.clone()),
            Some(Asked::Waits(reason, _)) => Some(reason.clone()),
            Some(Asked::Failed(..)) | None => None,
        };
        asked.insert(id, Asked::Fetching { failed: failed.clone() });
        drop(asked);
        self.fetch(id, failed.clone());
        failed.map_or(Known::Soon, Known::NotNow)
    }

    fn fetch(&self, id: u32, failed_before: Option<String>) {
        let (registry, asked, wake) = (self.registry.clone(), self.asked.clone(), self.wake.clone());
        self.runtime.spawn(async move {
            let answer = registry.fetch(id).await;
            let mut asked = asked.lock();
            match answer {
                Ok(_) => {
                    asked.remove(&id);
                }
                Err(error) => {
                    count(&error);
                    let outcome = match classify::registry(&error, registry.unknown_schema_grace()) {
                        SchemaVerdict::Wait => {
                            // Told when it begins, not at each try.
                            if failed_before.is_none() {
                                warn!(id, %error, "the schema registry does not give a schema; its events wait");
                            }
                            Asked::Waits(error.to_string(), Instant::now() + ASK_AGAIN)
                        }
                        SchemaVerdict::Fail(failure) => {
                            Asked::Failed(failure, Instant::now() + holds_for(&error))
                        }
                    };
                    asked.insert(id, outcome);
                }
            }
            drop(asked);
            wake.wake();
        });
    }
}

fn holds_for(error: &RegistryError) -> Duration {
    if matches!(error, RegistryError::UnknownId { .. }) { UNKNOWN_FOR } else { INVALID_FOR }
}

fn count(error: &RegistryError) {
    let reason = match error {
        RegistryError::Unreachable { .. } => "unreachable",
        RegistryError::Unauthorized { .. } => "unauthorized",
        RegistryError::UnknownId { .. } => "unknown_id",
        RegistryError::Invalid { .. } => "invalid",
        _ => "other",
    };
    metrics::counter!(events::REGISTRY_ERRORS, "reason" => reason).increment(1);
}
