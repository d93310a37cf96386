//! A job as a user's handler sees it.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tidegate_codec::classify::{self, SchemaVerdict};
use tidegate_codec::{CompiledSchema, Limits, SchemaRegistry, wire};
use tidegate_domain::{Failure, IdempotencyKey, JobHeader};
use tidegate_pipeline::jobs;

use crate::handler::JobError;

/// Reads events for all handlers of a process.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    pub(crate) registry: Option<SchemaRegistry>,
    pub(crate) limits: Limits,
}

/// One job: an event that is to be handled, and what tidegate knows of it.
#[derive(Clone, Debug)]
pub struct Job {
    inner: Arc<jobs::Job>,
    events: Arc<Events>,
}

impl Job {
    pub(crate) fn new(inner: Arc<jobs::Job>, events: Arc<Events>) -> Self {
        Self { inner, events }
    }

    /// Equal for events that are the same job, and the same in every attempt. Pass it on (an HTTP `Idempotency-Key`, a unique row in
    /// the same SQL transaction): it closes the window in which a job can run twice.
    pub fn key(&self) -> IdempotencyKey {
        self.inner.key
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.attempt.0
    }

    /// What the `job` header says: class, source topic, partition, offset, times.
    pub fn header(&self) -> Result<JobHeader<'_>, JobError> {
        self.inner
            .header()
            .map_err(|error| JobError::Failed(Failure::malformed("job-header", error.to_string())))
    }

    /// The event's key, as its publisher set it.
    pub fn record_key(&self) -> Option<&[u8]> {
        self.inner.record().key()
    }

    /// The event's value, as its publisher wrote it: magic byte, schema id, Avro.
    pub fn value(&self) -> Option<&[u8]> {
        self.inner.record().value()
    }

    /// The value of a header of the event; the last one where there are several.
    pub fn header_value(&self, name: &str) -> Option<&[u8]> {
        self.inner.record().header(name)
    }

    /// The event as `T`. Fields that `T` lacks are passed over, `#[serde(default)]` and `#[serde(alias)]` bridge schema versions.
    /// While the registry can't be reached the job is put off without using an attempt.
    pub async fn decode<T: DeserializeOwned>(&self) -> Result<T, JobError> {
        let (schema, body) = self.schema().await?;
        schema.decode(body, &self.events.limits).map_err(|error| JobError::Failed(classify::decode(&error)))
    }

    /// The event as JSON.
    pub async fn json(&self) -> Result<serde_json::Value, JobError> {
        let (schema, body) = self.schema().await?;
        schema.to_json(body, &self.events.limits).map_err(|error| JobError::Failed(classify::decode(&error)))
    }

    async fn schema(&self) -> Result<(Arc<CompiledSchema>, &[u8]), JobError> {
        let value = self.value().ok_or_else(|| Failure::malformed("null-value", "the value is null"))?;
        let framed = wire::parse(value).map_err(|error| classify::wire(&error))?;
        let registry = self.events.registry.as_ref().ok_or_else(|| {
            Failure::transient("no-registry", "registry.url is not set: the event's schema can't be fetched")
        })?;
        if let Some(schema) = registry.known(framed.schema_id) {
            return Ok((schema, framed.body));
        }
        match registry.fetch(framed.schema_id).await {
            Ok(schema) => Ok((schema, framed.body)),
            Err(error) => match classify::registry(&error, registry.unknown_schema_grace()) {
                SchemaVerdict::Wait => Err(JobError::Snooze(REGISTRY_PAUSE)),
                SchemaVerdict::Fail(failure) => Err(JobError::Failed(failure)),
            },
        }
    }
}

/// How long a job is put off when the registry can't be reached.
const REGISTRY_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);
