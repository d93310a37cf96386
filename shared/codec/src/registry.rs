//! Schemas by id: known ones at once, others from the registry, each asked for once at a time.
//!
//! Ids are immutable, so what is known stays known. What failed is not remembered, with two narrow exceptions
//! that protect the registry from a flood: an invalid schema for a minute, an id unknown beyond the grace for a
//! second.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use parking_lot::Mutex;
use schema_registry_converter::async_impl::schema_registry::{
    SrSettings, get_all_subjects, get_referenced_schema, get_schema_by_id, get_schema_by_subject_and_version,
    post_schema,
};
use schema_registry_converter::schema_registry_common::{RegisteredSchema, SchemaType, SuppliedSchema};
use tokio::time::Instant;

use crate::schema::CompiledSchema;

mod answer;
mod check;
mod fault;
mod settings;

use answer::Answer;
pub use fault::{RegistryFault, Weight};
pub use settings::{RegistryAuth, RegistrySettings, RegistrySettingsError};

/// Why a schema is not at hand, by what the caller should do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The registry can't be reached, or its answer is none: wait and ask again, for as long as it takes.
    #[error("the schema registry can't be reached: {reason}")]
    Unreachable {
        /// What happened.
        reason: String,
    },
    /// The registry refuses the credentials: wait for an operator, the event is not at fault.
    #[error("the schema registry refuses access: {reason}")]
    Unauthorized {
        /// What it said.
        reason: String,
    },
    /// The registry doesn't know the id; a replica may know it soon. Ask again until the grace is over.
    #[error("the schema registry doesn't know schema id {id}, asked for {} s", waited.as_secs())]
    UnknownId {
        /// The id.
        id: u32,
        /// For how long this process has been asking for it.
        waited: Duration,
    },
    /// The id's schema can't be used to read Avro: the event can't be decoded.
    #[error("schema id {id} can't be used: {reason}")]
    Invalid {
        /// The id.
        id: u32,
        /// Why.
        reason: String,
    },
    /// The registry doesn't know the subject.
    #[error("the schema registry doesn't know the subject {subject}")]
    UnknownSubject {
        /// The subject.
        subject: String,
    },
    /// The registry doesn't accept a schema under the subject, as incompatible or as no schema.
    #[error("the schema registry refuses the schema for subject {subject}: {reason}")]
    Refused {
        /// The subject.
        subject: String,
        /// What it said.
        reason: String,
    },
}

const INVALID_RECHECK: Duration = Duration::from_secs(60);
const UNKNOWN_RECHECK: Duration = Duration::from_secs(1);
/// Damaged frames bring any number of made-up ids.
const MAX_REMEMBERED: usize = 10_000;
const MAX_REFERENCES: usize = 500;

/// The subject of a topic's values, by the registry's default naming (`TopicNameStrategy` of the Confluent serializers).
pub fn value_subject(topic: &str) -> String {
    format!("{topic}-value")
}

/// A client of one registry. Clones share what they know.
#[derive(Debug, Clone)]
pub struct SchemaRegistry {
    inner: Arc<Inner>,
}

type Fetched = Result<Arc<CompiledSchema>, RegistryError>;
type Flight = Shared<BoxFuture<'static, Fetched>>;

struct Inner {
    client: SrSettings,
    settings: RegistrySettings,
    grace: Duration,
    /// Sorted by id.
    known: ArcSwap<Vec<(u32, Arc<CompiledSchema>)>>,
    flights: Mutex<HashMap<u32, Flight>>,
    unknown: Mutex<HashMap<u32, Unknown>>,
    invalid: Mutex<HashMap<u32, (Instant, RegistryError)>>,
}

#[derive(Clone, Copy)]
struct Unknown {
    first_asked: Instant,
    last_asked: Instant,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("known", &self.known.load().len()).finish_non_exhaustive()
    }
}

impl SchemaRegistry {
    /// Makes a client. Nothing is asked of the registry yet.
    pub fn new(settings: &RegistrySettings) -> Result<Self, RegistrySettingsError> {
        let inner = Inner {
            client: settings.client()?,
            settings: settings.clone(),
            grace: settings.unknown_schema_grace,
            known: ArcSwap::default(),
            flights: Mutex::default(),
            unknown: Mutex::default(),
            invalid: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The schema, if it is at hand: no lock, no waiting.
    pub fn known(&self, id: u32) -> Option<Arc<CompiledSchema>> {
        let known = self.inner.known.load();
        let index = known.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        known.get(index).map(|(_, schema)| Arc::clone(schema))
    }

    /// Asks whether there is a registry that this user may read one of the `subjects` of. It is asked once.
    ///
    /// # Errors
    /// What is wrong, and by its [`RegistryFault::weight`] whether that may pass.
    pub async fn check(&self, subjects: &[String]) -> Result<(), RegistryFault> {
        check::check(&self.inner.settings, subjects).await
    }

    /// For how long an unknown id is worth asking for again.
    pub fn unknown_schema_grace(&self) -> Duration {
        self.inner.grace
    }

    /// The schema, from the registry if need be. Callers that ask for the same id at the same time share one
    /// request, which goes on if they go away.
    pub async fn fetch(&self, id: u32) -> Result<Arc<CompiledSchema>, RegistryError> {
        if let Some(schema) = self.known(id) {
            return Ok(schema);
        }
        if let Some(error) = self.inner.remembered_error(id) {
            return Err(error);
        }
        self.flight(id).await
    }

    /// Fetches the latest schema of each subject, so that first events don't wait for theirs. Failures are
    /// logged and left to the first event. Returns what is at hand, in the order of the subjects.
    pub async fn warm(&self, subjects: &[String]) -> Vec<Option<Arc<CompiledSchema>>> {
        let fetched = join_all(subjects.iter().map(|subject| self.latest(subject))).await;
        for (subject, result) in subjects.iter().zip(&fetched) {
            if let Err(error) = result {
                tracing::warn!(subject, %error, "A schema could not be fetched in advance.");
            }
        }
        fetched.into_iter().map(Result::ok).collect()
    }

    /// The subject's latest schema.
    pub async fn latest(&self, subject: &str) -> Result<Arc<CompiledSchema>, RegistryError> {
        let found = get_schema_by_subject_and_version(&self.inner.client, subject, None).await;
        let registered = found.map_err(|error| match Answer::of(&error) {
            Answer::NotFound { .. } => RegistryError::UnknownSubject { subject: subject.to_owned() },
            answer => answer.into_error(),
        })?;
        if let Some(schema) = self.known(registered.id) {
            return Ok(schema);
        }
        let schema = self.inner.compile(&registered).await?;
        Ok(self.inner.learn(schema))
    }

    /// The names of all subjects.
    pub async fn subjects(&self) -> Result<Vec<String>, RegistryError> {
        get_all_subjects(&self.inner.client).await.map_err(|error| Answer::of(&error).into_error())
    }

    /// Registers a schema under the subject, or finds it there; returns its id.
    pub async fn register(&self, subject: &str, schema_json: &str) -> Result<u32, RegistryError> {
        let schema = SuppliedSchema::new(None, SchemaType::Avro, schema_json.to_owned());
        let posted = post_schema(&self.inner.client, subject.to_owned(), schema).await;
        posted.map(|registered| registered.id).map_err(|error| match Answer::of(&error) {
            // A plain "not found" is no registry's answer to a schema: the address is wrong, or a proxy answers.
            Answer::Refused { reason } | Answer::NotFound { by_registry: true, reason } => {
                RegistryError::Refused { subject: subject.to_owned(), reason }
            }
            answer => answer.into_error(),
        })
    }

    fn flight(&self, id: u32) -> Flight {
        let mut flights = self.inner.flights.lock();
        if let Some(flight) = flights.get(&id) {
            return flight.clone();
        }
        let landing = Landing { inner: Arc::clone(&self.inner), id };
        let task = tokio::spawn(async move { landing.inner.fetch(landing.id).await });
        let flight = async move {
            task.await.unwrap_or_else(|error| Err(RegistryError::Unreachable { reason: error.to_string() }))
        };
        let flight = flight.boxed().shared();
        flights.insert(id, flight.clone());
        flight
    }
}

/// Ends a request's time as the one in flight, even by a panic: a result that stayed would be that id's for ever.
struct Landing {
    inner: Arc<Inner>,
    id: u32,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.inner.flights.lock().remove(&self.id);
    }
}

impl Inner {
    async fn fetch(&self, id: u32) -> Fetched {
        // The previous flight may have landed between the caller's look and this one's start.
        let known = self.known.load_full();
        if let Ok(index) = known.binary_search_by_key(&id, |(id, _)| *id) {
            return Ok(Arc::clone(&known[index].1));
        }
        let fetched = self.fetch_and_compile(id).await;
        match &fetched {
            Ok(_) => {
                self.unknown.lock().remove(&id);
                self.invalid.lock().remove(&id);
            }
            Err(error @ RegistryError::Invalid { .. }) => {
                let mut invalid = self.invalid.lock();
                if invalid.len() >= MAX_REMEMBERED {
                    invalid.clear();
                }
                invalid.insert(id, (Instant::now(), error.clone()));
            }
            Err(_) => {}
        }
        fetched
    }

    async fn fetch_and_compile(&self, id: u32) -> Fetched {
        let registered = match get_schema_by_id(id, &self.client).await {
            Ok(registered) => registered,
            Err(error) => return Err(self.judge(id, Answer::of(&error)).await),
        };
        match self.compile(&registered).await {
            Ok(schema) => Ok(self.learn(schema)),
            Err(RegistryError::UnknownSubject { .. }) => Err(self.unknown_id(id)),
            Err(error) => Err(error),
        }
    }

    /// What an error answer says about the id. A plain 404 may mean that the URL is wrong, and then it says
    /// nothing: only a registry that answers something else below the same URL has said that it lacks the id.
    async fn judge(&self, id: u32, answer: Answer) -> RegistryError {
        match answer {
            Answer::NotFound { by_registry: true, .. } => self.unknown_id(id),
            Answer::NotFound { by_registry: false, reason } => match get_all_subjects(&self.client).await {
                Ok(_) => self.unknown_id(id),
                Err(error) => match Answer::of(&error) {
                    Answer::Unauthorized { .. } => self.unknown_id(id),
                    Answer::NotFound { .. } => RegistryError::Unreachable {
                        reason: format!(
                            "everything is not found below its url, which may be wrong: {reason}"
                        ),
                    },
                    other => other.into_error(),
                },
            },
            other => other.into_error(),
        }
    }

    /// Follows the references and compiles. A reference that is not there is reported as its unknown subject.
    async fn compile(&self, registered: &RegisteredSchema) -> Result<CompiledSchema, RegistryError> {
        let id = registered.id;
        let invalid = |reason: String| RegistryError::Invalid { id, reason };
        if registered.schema_type != SchemaType::Avro {
            return Err(invalid(format!("it is of type {:?}, not avro", registered.schema_type)));
        }
        let mut seen = HashSet::new();
        let mut texts: Vec<(serde_json::Value, String)> = Vec::new();
        let mut open = registered.references.clone();
        while let Some(reference) = open.pop() {
            if !seen.insert((reference.subject.clone(), reference.version)) {
                continue;
            }
            if seen.len() > MAX_REFERENCES {
                return Err(invalid(format!("it has more than {MAX_REFERENCES} references")));
            }
            let found = get_referenced_schema(&self.client, &reference).await;
            let found = found.map_err(|error| match Answer::of(&error) {
                Answer::NotFound { .. } => {
                    RegistryError::UnknownSubject { subject: reference.subject.clone() }
                }
                answer => answer.into_error(),
            })?;
            let parsed: serde_json::Value = serde_json::from_str(&found.schema).map_err(|error| {
                invalid(format!("its reference {} is no json: {error}", reference.subject))
            })?;
            open.extend(found.references);
            // One schema may be registered under several subjects; its types are still defined once.
            if texts.iter().all(|(known, _)| *known != parsed) {
                texts.push((parsed, found.schema));
            }
        }
        let references: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
        CompiledSchema::parse(id, &registered.schema, &references).map_err(|error| invalid(error.to_string()))
    }

    /// Keeps a schema. One that is known already stays, because selections belong to it.
    fn learn(&self, schema: CompiledSchema) -> Arc<CompiledSchema> {
        let (id, schema) = (schema.id(), Arc::new(schema));
        self.known.rcu(|known| {
            let mut known = Vec::clone(known);
            if let Err(index) = known.binary_search_by_key(&id, |(id, _)| *id) {
                known.insert(index, (id, Arc::clone(&schema)));
            }
            known
        });
        let known = self.known.load();
        let found = known.iter().find(|(known, _)| *known == id);
        found.map_or(schema, |(_, schema)| Arc::clone(schema))
    }

    fn unknown_id(&self, id: u32) -> RegistryError {
        let now = Instant::now();
        let mut unknown = self.unknown.lock();
        if unknown.len() >= MAX_REMEMBERED && !unknown.contains_key(&id) {
            // Forgetting only lengthens an id's grace.
            unknown.retain(|_, entry| now.duration_since(entry.last_asked) < UNKNOWN_RECHECK);
            if unknown.len() >= MAX_REMEMBERED {
                unknown.clear();
            }
        }
        let entry = unknown.entry(id).or_insert(Unknown { first_asked: now, last_asked: now });
        entry.last_asked = now;
        RegistryError::UnknownId { id, waited: now.duration_since(entry.first_asked) }
    }

    /// The answer that was had a moment ago, where asking again would only add load.
    fn remembered_error(&self, id: u32) -> Option<RegistryError> {
        let now = Instant::now();
        let mut invalid = self.invalid.lock();
        if let Some((since, error)) = invalid.get(&id) {
            if now.duration_since(*since) < INVALID_RECHECK {
                return Some(error.clone());
            }
            invalid.remove(&id);
        }
        let entry = *self.unknown.lock().get(&id)?;
        let waited = now.duration_since(entry.first_asked);
        let fresh = now.duration_since(entry.last_asked) < UNKNOWN_RECHECK;
        (waited > self.grace && fresh).then_some(RegistryError::UnknownId { id, waited })
    }
}

#[cfg(test)]
mod tests;
