//! The routes of the Confluent API, and its codes.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::store::{Level, Refusal, Store, Version, Wanted};

type Shared = State<Arc<Mutex<Store>>>;
type Answer = Result<Body, Refusal>;

pub(super) fn routes() -> Router {
    Router::new()
        .route("/", get(async || Body(json!({}))))
        .route("/schemas/types", get(async || Body(json!(["AVRO"]))))
        .route("/schemas/ids/{id}", get(schema))
        .route("/subjects", get(subjects))
        .route("/subjects/{subject}", post(find))
        .route("/subjects/{subject}/versions", get(versions).post(register))
        .route("/subjects/{subject}/versions/{version}", get(version))
        .route("/subjects/{subject}/versions/{version}/schema", get(version_schema))
        .route("/compatibility/subjects/{subject}/versions/{version}", post(compatible))
        .route("/config", get(level).put(set_level))
        .route("/config/{subject}", get(own_level).put(set_own_level))
        .fallback(async |uri: Uri| refuse(StatusCode::NOT_FOUND, 404, &format!("HTTP 404 Not Found: {uri}")))
        .with_state(Arc::default())
}

struct Body(Value);

impl IntoResponse for Body {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/vnd.schemaregistry.v1+json")], self.0.to_string())
            .into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code) = match &self {
            Self::Subject(_) => (StatusCode::NOT_FOUND, 40401),
            Self::Version(_) => (StatusCode::NOT_FOUND, 40402),
            Self::Schema => (StatusCode::NOT_FOUND, 40403),
            Self::NoLevel(_) => (StatusCode::NOT_FOUND, 40408),
            Self::Incompatible { .. } => (StatusCode::CONFLICT, 409),
            Self::InvalidSchema(_) => (StatusCode::UNPROCESSABLE_ENTITY, 42201),
            Self::InvalidVersion(_) => (StatusCode::UNPROCESSABLE_ENTITY, 42202),
            Self::InvalidLevel(_) => (StatusCode::UNPROCESSABLE_ENTITY, 42203),
        };
        refuse(status, code, &self.to_string())
    }
}

fn refuse(status: StatusCode, code: u32, message: &str) -> Response {
    (status, Body(json!({ "error_code": code, "message": message }))).into_response()
}

async fn schema(State(store): Shared, Path(id): Path<String>) -> Answer {
    let id = id.parse().map_err(|_| Refusal::Schema)?;
    store.lock().schema(id).map(|schema| Body(json!({ "schema": schema })))
}

async fn subjects(State(store): Shared) -> Body {
    Body(json!(store.lock().subjects()))
}

async fn versions(State(store): Shared, Path(subject): Path<String>) -> Answer {
    store.lock().versions(&subject).map(|versions| Body(json!(versions)))
}

async fn version(State(store): Shared, Path((subject, version)): Path<(String, String)>) -> Answer {
    let found = store.lock().version(&subject, Wanted::parse(&version)?)?;
    Ok(shown(&subject, &found))
}

async fn version_schema(State(store): Shared, Path((subject, version)): Path<(String, String)>) -> Answer {
    let found = store.lock().version(&subject, Wanted::parse(&version)?)?;
    serde_json::from_str(&found.schema).map(Body).map_err(|error| Refusal::InvalidSchema(error.to_string()))
}

fn shown(subject: &str, version: &Version) -> Body {
    Body(json!({
        "subject": subject, "version": version.number, "id": version.id, "schema": version.schema,
    }))
}

async fn find(State(store): Shared, Path(subject): Path<String>, body: Bytes) -> Answer {
    let found = store.lock().find(&subject, &offered(&body)?)?;
    Ok(shown(&subject, &found))
}

async fn register(State(store): Shared, Path(subject): Path<String>, body: Bytes) -> Answer {
    let id = store.lock().register(&subject, &offered(&body)?)?;
    Ok(Body(json!({ "id": id })))
}

async fn compatible(
    State(store): Shared,
    Path((subject, version)): Path<(String, String)>,
    uri: Uri,
    body: Bytes,
) -> Answer {
    let conflict = store.lock().conflict(&subject, Wanted::parse(&version)?, &offered(&body)?)?;
    let mut answer = json!({ "is_compatible": conflict.is_none() });
    if uri.query().is_some_and(|query| query.contains("verbose=true")) {
        answer["messages"] = json!(conflict.into_iter().collect::<Vec<_>>());
    }
    Ok(Body(answer))
}

/// The schema that a request offers.
fn offered(body: &[u8]) -> Result<String, Refusal> {
    let invalid = |reason: &str| Refusal::InvalidSchema(reason.to_owned());
    let body: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::InvalidSchema(error.to_string()))?;
    if body["schemaType"].as_str().is_some_and(|kind| kind != "AVRO") {
        return Err(invalid("this registry takes schemas of the type AVRO only"));
    }
    if body["references"].as_array().is_some_and(|references| !references.is_empty()) {
        return Err(invalid("this registry takes no references: write the types into the schema itself"));
    }
    body["schema"].as_str().map(str::to_owned).ok_or_else(|| invalid("the request has no schema"))
}

async fn level(State(store): Shared) -> Body {
    shown_level(store.lock().level())
}

async fn own_level(State(store): Shared, Path(subject): Path<String>, uri: Uri) -> Answer {
    let store = store.lock();
    let or_default = uri.query().is_some_and(|query| query.contains("defaultToGlobal=true"));
    let level = if or_default { store.level_of(&subject) } else { store.own_level(&subject)? };
    Ok(shown_level(level))
}

fn shown_level(level: Level) -> Body {
    Body(json!({ "compatibilityLevel": level.name() }))
}

async fn set_level(State(store): Shared, body: Bytes) -> Answer {
    let level = wanted_level(&body)?;
    store.lock().set_level(level);
    Ok(Body(json!({ "compatibility": level.name() })))
}

async fn set_own_level(State(store): Shared, Path(subject): Path<String>, body: Bytes) -> Answer {
    let level = wanted_level(&body)?;
    store.lock().set_own_level(&subject, level);
    Ok(Body(json!({ "compatibility": level.name() })))
}

fn wanted_level(body: &[u8]) -> Result<Level, Refusal> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::InvalidLevel(error.to_string()))?;
    Level::parse(body["compatibility"].as_str().unwrap_or_default())
}
