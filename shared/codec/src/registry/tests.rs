use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;

const ORDER: &str = r#"{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"long"}]}"#;
/// Of requests that are answered: on a machine that does more than this, a while later.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Of requests that are not.
pub(super) const IMPATIENCE: Duration = Duration::from_millis(300);

/// A registry that gives its answers to each path in order; the last one is given again and again.
#[derive(Clone, Default)]
pub(super) struct Stub {
    answers: Arc<Mutex<HashMap<String, Vec<Answered>>>>,
    asked: Arc<AtomicUsize>,
    pub(super) seen_auth: Arc<Mutex<Option<String>>>,
}

#[derive(Clone)]
pub(super) enum Answered {
    With(u16, String),
    /// A redirect with its `Location`.
    To(u16, String),
    Never,
    /// With this, once that tells it to.
    Once(Arc<Notify>, String),
}

impl Stub {
    pub(super) fn on(self, path: &str, answers: impl IntoIterator<Item = Answered>) -> Self {
        self.answers.lock().insert(path.to_owned(), answers.into_iter().collect());
        self
    }

    fn on_id(self, id: u32, answers: impl IntoIterator<Item = Answered>) -> Self {
        self.on(&format!("schemas/ids/{id}"), answers)
    }

    pub(super) async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new().route("/{*path}", get(answer).post(answer)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}/")
    }

    async fn client(&self) -> SchemaRegistry {
        client(self.start().await)
    }

    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

async fn answer(State(stub): State<Stub>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    stub.asked.fetch_add(1, Ordering::Relaxed);
    let auth = headers.get("authorization").and_then(|value| value.to_str().ok());
    *stub.seen_auth.lock() = auth.map(str::to_owned);
    let answered = {
        let mut answers = stub.answers.lock();
        match answers.get_mut(&path) {
            Some(left) if left.len() > 1 => left.remove(0),
            Some(left) => left[0].clone(),
            None => {
                Answered::With(404, json!({"error_code": 404, "message": "HTTP 404 Not Found"}).to_string())
            }
        }
    };
    match answered {
        Answered::With(status, body) => {
            (StatusCode::from_u16(status).expect("a status"), body).into_response()
        }
        Answered::To(status, location) => {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, [("location", location)]).into_response()
        }
        Answered::Once(told, body) => {
            told.notified().await;
            body.into_response()
        }
        Answered::Never => std::future::pending().await,
    }
}

/// Settings with all the patience that a test has.
pub(super) fn settings(urls: Vec<String>) -> RegistrySettings {
    RegistrySettings { timeout: PATIENCE, ..RegistrySettings::new(urls) }
}

fn client(url: String) -> SchemaRegistry {
    SchemaRegistry::new(&settings(vec![url])).expect("a client")
}

/// One that does not wait for a server that never answers.
pub(super) fn impatient(url: String) -> SchemaRegistry {
    let settings = RegistrySettings { timeout: IMPATIENCE, ..RegistrySettings::new(vec![url]) };
    SchemaRegistry::new(&settings).expect("a client")
}

/// An address where nobody listens, for as long as the socket is kept: so no other test gets the port.
pub(super) fn deserted() -> (tokio::net::TcpSocket, std::net::SocketAddr) {
    let holder = tokio::net::TcpSocket::new_v4().expect("a socket");
    holder.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = holder.local_addr().expect("an address");
    (holder, address)
}

fn schema(text: &str) -> Answered {
    Answered::With(200, json!({"schema": text}).to_string())
}

pub(super) fn status(status: u16) -> Answered {
    Answered::With(status, json!({"error_code": u32::from(status) * 100 + 1, "message": "no"}).to_string())
}

fn not_found() -> Answered {
    Answered::With(404, json!({"error_code": 40403, "message": "Schema not found"}).to_string())
}

fn with_references(text: &str, references: Value) -> Answered {
    Answered::With(200, json!({"schema": text, "references": references, "id": 1, "version": 1}).to_string())
}

#[tokio::test]
async fn a_schema_is_fetched_once_and_known_after() {
    let stub = Stub::default().on_id(7, [schema(ORDER)]);
    let registry = stub.client().await;
    assert!(registry.known(7).is_none());
    let fetched = registry.fetch(7).await.expect("fetched");
    assert_eq!((fetched.id(), fetched.full_name()), (7, "shop.Order"));
    assert!(Arc::ptr_eq(&fetched, &registry.known(7).expect("known")));
    assert!(Arc::ptr_eq(&fetched, &registry.clone().fetch(7).await.expect("known")));
    assert_eq!(stub.asked(), 1);
}

#[tokio::test]
async fn failures_that_pass_do_not_poison_an_id() {
    for passing in [408, 425, 429, 500, 502, 503, 504, 400, 406, 422] {
        let stub = Stub::default().on_id(7, [status(passing), schema(ORDER)]);
        let registry = stub.client().await;
        let first = registry.fetch(7).await.expect_err("refused");
        assert!(matches!(first, RegistryError::Unreachable { .. }), "{passing}: {first}");
        assert!(first.to_string().contains(&passing.to_string()), "{first}");
        assert!(registry.fetch(7).await.is_ok(), "{passing}");
    }
}

#[tokio::test]
async fn refused_credentials_do_not_poison_an_id() {
    for refused in [401, 403] {
        let stub = Stub::default().on_id(7, [status(refused), schema(ORDER)]);
        let registry = stub.client().await;
        assert!(matches!(registry.fetch(7).await, Err(RegistryError::Unauthorized { .. })));
        assert!(registry.fetch(7).await.is_ok());
    }
}

#[tokio::test]
async fn an_id_that_is_replicated_late_is_found_later() {
    let stub = Stub::default().on_id(7, [not_found(), not_found(), schema(ORDER)]);
    let registry = stub.client().await;
    let Err(RegistryError::UnknownId { id: 7, waited }) = registry.fetch(7).await else {
        panic!("known at once")
    };
    assert_eq!(waited, Duration::ZERO);
    let Err(RegistryError::UnknownId { waited, .. }) = registry.fetch(7).await else {
        panic!("known too soon")
    };
    assert!(waited > Duration::ZERO);
    assert!(registry.fetch(7).await.is_ok());
}

#[tokio::test]
async fn an_id_unknown_beyond_its_grace_is_asked_for_once_a_second() {
    let stub = Stub::default().on_id(7, [not_found()]);
    let settings =
        RegistrySettings { unknown_schema_grace: Duration::ZERO, ..settings(vec![stub.start().await]) };
    let registry = SchemaRegistry::new(&settings).expect("a client");
    let began = std::time::Instant::now();
    for _ in 0..20 {
        assert!(matches!(registry.fetch(7).await, Err(RegistryError::UnknownId { .. })));
    }
    let (asked, took) = (stub.asked(), began.elapsed());
    // At the beginning, and after each second; one more, for what is not remembered to the nanosecond.
    assert!(asked as u64 <= 2 + took.as_secs(), "asked {asked} times in {took:?}");
}

#[tokio::test]
async fn a_plain_404_counts_only_if_the_url_is_right() {
    let wrong_url = Stub::default();
    let registry = wrong_url.client().await;
    let error = registry.fetch(7).await.expect_err("nothing there");
    assert!(matches!(&error, RegistryError::Unreachable { reason } if reason.contains("url")), "{error}");

    let right_url = Stub::default().on("subjects", [Answered::With(200, "[]".to_owned())]);
    let registry = right_url.client().await;
    assert!(matches!(registry.fetch(7).await, Err(RegistryError::UnknownId { id: 7, .. })));

    let private = Stub::default().on("subjects", [status(403)]);
    assert!(matches!(private.client().await.fetch(7).await, Err(RegistryError::UnknownId { id: 7, .. })));
}

#[tokio::test]
async fn an_answer_that_is_none_is_no_fault_of_the_schema() {
    let garbage = ["<html>log in</html>", "{}", "[]", ""].map(|body| Answered::With(200, body.to_owned()));
    let stub = Stub::default().on_id(7, garbage.into_iter().chain([schema(ORDER)]));
    let registry = stub.client().await;
    for _ in 0..4 {
        let error = registry.fetch(7).await.expect_err("garbage");
        assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
    }
    assert!(registry.fetch(7).await.is_ok());
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_unreachable_in_time() {
    let stub = Stub::default().on_id(7, [Answered::Never, schema(ORDER)]);
    let registry = impatient(stub.start().await);
    let silent = tokio::time::timeout(PATIENCE, registry.fetch(7)).await.expect("it is not waited for");
    assert!(matches!(silent, Err(RegistryError::Unreachable { .. })), "{silent:?}");
    // It answers now, though not always in so short a time.
    let deadline = std::time::Instant::now() + PATIENCE;
    while let Err(error) = registry.fetch(7).await {
        assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
        assert!(std::time::Instant::now() < deadline, "{error}");
    }
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_unreachable() {
    let (_holder, address) = deserted();
    let error = client(format!("http://{address}")).fetch(7).await.expect_err("nobody listens");
    // One sentence: where it asked, and what happened.
    let told = error.to_string();
    assert!(told.starts_with("the schema registry can't be reached: http://127.0.0.1:"), "{told}");
    assert!(told.contains("onnection refused") && !told.contains("client error"), "{told}");
}

#[tokio::test]
async fn the_second_url_answers_where_the_first_is_down() {
    let stub = Stub::default().on_id(7, [schema(ORDER)]);
    let settings = settings(vec!["http://127.0.0.1:1".to_owned(), stub.start().await]);
    assert!(SchemaRegistry::new(&settings).expect("a client").fetch(7).await.is_ok());
}

#[tokio::test]
async fn references_are_followed_and_each_is_fetched_once() {
    let reference = |name: &str| json!({"name": name, "subject": format!("s/{name}"), "version": 1});
    let kind = r#"{"type":"enum","name":"geo.Kind","symbols":["A"]}"#;
    let address = r#"{"type":"record","name":"geo.Address","fields":[{"name":"kind","type":"geo.Kind"}]}"#;
    let order = r#"{"type":"record","name":"shop.Order","fields":[
        {"name":"to","type":"geo.Address"},{"name":"kind","type":"geo.Kind"}]}"#;
    let stub = Stub::default()
        .on_id(7, [with_references(order, json!([reference("Address"), reference("Kind")]))])
        .on("subjects/s/Address/versions/1", [with_references(address, json!([reference("Kind")]))])
        .on("subjects/s/Kind/versions/1", [with_references(kind, json!([]))]);
    let schema = stub.client().await.fetch(7).await.expect("fetched");
    let shown = schema.to_json(&[0, 0], &crate::Limits::default());
    assert_eq!(shown, Ok(json!({"to": {"kind": "A"}, "kind": "A"})));
    assert_eq!((schema.id(), stub.asked()), (7, 3));
}

#[tokio::test]
async fn a_reference_that_is_not_there_yet_is_waited_for() {
    let reference = json!([{"name": "geo.Kind", "subject": "kind", "version": 1}]);
    let order = r#"{"type":"record","name":"E","fields":[{"name":"kind","type":"geo.Kind"}]}"#;
    let kind = r#"{"type":"enum","name":"geo.Kind","symbols":["A"]}"#;
    let stub = Stub::default()
        .on_id(7, [with_references(order, reference)])
        .on("subjects/kind/versions/1", [not_found(), with_references(kind, json!([]))]);
    let registry = stub.client().await;
    assert!(matches!(registry.fetch(7).await, Err(RegistryError::UnknownId { id: 7, .. })));
    assert!(registry.fetch(7).await.is_ok());
}

#[tokio::test]
async fn references_in_a_circle_come_to_an_end() {
    let reference = |name: &str| json!([{"name": name, "subject": name, "version": 1}]);
    let a = r#"{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"]}]}"#;
    let b = r#"{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}"#;
    let stub = Stub::default()
        .on_id(7, [with_references(r#"["A","B"]"#, reference("A"))])
        .on("subjects/A/versions/1", [with_references(a, reference("B"))])
        .on("subjects/B/versions/1", [with_references(b, reference("A"))]);
    let schema = stub.client().await.fetch(7).await.expect("fetched");
    assert_eq!(schema.to_json(&[0, 2, 0], &crate::Limits::default()), Ok(json!({"b": {"a": null}})));
}

#[tokio::test]
async fn a_schema_that_is_not_avro_is_invalid() {
    let protobuf = json!({"schema": "syntax = \"proto3\";", "schemaType": "PROTOBUF"}).to_string();
    let stub =
        Stub::default().on_id(7, [Answered::With(200, protobuf)]).on_id(8, [schema("{\"type\":\"rec\"}")]);
    let registry = stub.client().await;
    for id in [7, 8] {
        let error = registry.fetch(id).await.expect_err("invalid");
        assert!(matches!(error, RegistryError::Invalid { id: found, .. } if found == id), "{error}");
    }
    // A flood of events with such an id doesn't become a flood of requests.
    assert!(registry.fetch(7).await.is_err());
    assert_eq!(stub.asked(), 2);
}

#[tokio::test]
async fn callers_of_one_id_share_a_request_that_outlives_them() {
    let body = json!({"schema": ORDER}).to_string();
    let answers = Arc::new(Notify::new());
    let stub = Stub::default().on_id(7, [Answered::Once(answers.clone(), body)]);
    let registry = stub.client().await;
    let impatient = tokio::time::timeout(Duration::from_millis(10), registry.fetch(7)).await;
    assert!(impatient.is_err());
    let callers = join_all((0..50).map(|_| registry.fetch(7)));
    // All of them have asked when it answers.
    let (fetched, ()) = tokio::join!(biased; callers, async { answers.notify_one() });
    assert!(fetched.iter().all(Result::is_ok));
    assert_eq!(stub.asked(), 1);
    assert!(registry.inner.flights.lock().is_empty());
}

#[tokio::test]
async fn a_failed_request_is_shared_by_its_callers_only() {
    let stub = Stub::default().on_id(7, [status(500), schema(ORDER)]);
    let registry = stub.client().await;
    let (first, second) = tokio::join!(registry.fetch(7), registry.fetch(7));
    assert!(first.is_err() && second.is_err());
    assert_eq!(stub.asked(), 1);
    assert!(registry.fetch(7).await.is_ok());
}

#[tokio::test]
async fn credentials_are_sent_and_not_shown() {
    let stub = Stub::default().on_id(7, [schema(ORDER)]);
    let url = stub.start().await;
    let basic = RegistryAuth::Basic { user: "me".to_owned(), password: "hidden".to_owned() };
    for (auth, sent) in
        [(basic, "Basic bWU6aGlkZGVu"), (RegistryAuth::Bearer("hidden".to_owned()), "Bearer hidden")]
    {
        let settings = RegistrySettings { auth, ..settings(vec![url.clone()]) };
        let registry = SchemaRegistry::new(&settings).expect("a client");
        registry.fetch(7).await.expect("fetched");
        assert_eq!(stub.seen_auth.lock().as_deref(), Some(sent));
        assert!(!format!("{settings:?} {registry:?}").contains("hidden"));
    }
}

#[tokio::test]
async fn schemas_are_registered_and_found_by_subject() {
    let latest = json!({"subject": "orders-value", "version": 3, "id": 9, "schema": ORDER}).to_string();
    let stub = Stub::default()
        .on(
            "subjects/orders-value/versions",
            [Answered::With(200, r#"{"id":9}"#.to_owned()), status(409), status(422)],
        )
        .on("subjects/orders-value/versions/latest", [Answered::With(200, latest)]);
    let registry = stub.client().await;
    assert_eq!(registry.register("orders-value", ORDER).await, Ok(9));
    for _ in [409, 422] {
        let refused = registry.register("orders-value", ORDER).await;
        assert!(matches!(refused, Err(RegistryError::Refused { .. })), "{refused:?}");
    }
    assert_eq!(registry.latest("orders-value").await.expect("found").id(), 9);
    let elsewhere = registry.register("nowhere", ORDER).await;
    assert!(matches!(elsewhere, Err(RegistryError::Unreachable { .. })), "{elsewhere:?}");
    let unknown = registry.latest("nothing").await;
    assert!(matches!(unknown, Err(RegistryError::UnknownSubject { .. })));
}

#[tokio::test]
async fn warming_fetches_what_it_can() {
    let latest = json!({"subject": "a", "version": 3, "id": 9, "schema": ORDER}).to_string();
    let stub = Stub::default().on("subjects/a/versions/latest", [Answered::With(200, latest)]);
    let registry = stub.client().await;
    let warmed = registry.warm(&["a".to_owned(), "b".to_owned()]).await;
    assert_eq!(warmed.iter().flatten().count(), 1);
    assert_eq!(warmed[0].as_ref().map(|schema| schema.id()), Some(9));
    assert!(registry.known(9).is_some());
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let refuse = |urls: &[&str]| {
        SchemaRegistry::new(&RegistrySettings::new(urls.iter().map(|url| (*url).to_owned()).collect())).err()
    };
    assert_eq!(refuse(&[]), Some(RegistrySettingsError::NoUrl));
    for url in ["", "localhost:8081", "ftp://a", "http://"] {
        assert_eq!(
            refuse(&["http://good:8081", url]),
            Some(RegistrySettingsError::BadUrl { url: url.trim_end_matches('/').to_owned() })
        );
    }
}
