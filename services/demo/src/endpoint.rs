//! The service that the jobs call: most calls are done, some fail and heal, some are refused for good.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Json;
use axum::routing::{get, post};
use axum::{Router, http};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::classes::{CLASSES, number};
use crate::error::DemoError;

/// What is told of a call that was not done: one line.
pub type Tell = fn(&str);

/// An endpoint that has its port, and answers once [`Endpoint::serve`] runs.
#[derive(Debug)]
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Takes the port. With port 0 the system chooses one.
    pub async fn bind(address: SocketAddr) -> Result<Self, DemoError> {
        let refuse = |source| DemoError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is done; calls that are under way then are answered first.
    pub async fn serve(
        self,
        tell: Tell,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let shown = Shown { calls: Arc::default(), tell };
        let routes = Router::new()
            .route("/", get(sums))
            .route("/readyz", get(async || "ready\n"))
            .route("/{class}", post(run))
            .with_state(shown);
        axum::serve(self.listener, routes).with_graceful_shutdown(stop).await
    }
}

#[derive(Clone)]
struct Shown {
    calls: Arc<Mutex<BTreeMap<String, Calls>>>,
    tell: Tell,
}

/// The calls of one class.
#[derive(Debug, Default)]
struct Calls {
    by_status: BTreeMap<u16, u64>,
    keys: BTreeSet<String>,
}

/// `GET /`: calls by class and status, and how many different keys they had.
async fn sums(State(shown): State<Shown>) -> Json<Value> {
    let calls = shown.calls.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |calls: &Calls| json!({ "calls": calls.by_status, "keys": calls.keys.len() });
    Json(calls.iter().map(|(class, calls)| (class.clone(), of(calls))).collect())
}

async fn run(
    State(shown): State<Shown>,
    Path(class): Path<String>,
    headers: HeaderMap,
    body: http::Request<axum::body::Body>,
) -> (StatusCode, &'static str) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (key, attempt) = (text("idempotency-key"), text("tidegate-attempt").parse().unwrap_or(1));
    let Some(id) = id(&class, body).await else {
        return (StatusCode::BAD_REQUEST, "this is no event of the demo");
    };
    let (status, reason) = answer(&id, attempt);
    if status != StatusCode::OK {
        (shown.tell)(&format!("{} {class} {id}, attempt {attempt}: {reason}", status.as_u16()));
    }
    let mut calls = shown.calls.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = calls.entry(class).or_default();
    *calls.by_status.entry(status.as_u16()).or_default() += 1;
    calls.keys.insert(key.to_owned());
    (status, reason)
}

/// More than any event of the demo has.
const LONGEST: usize = 64 << 10;

/// The key field of the event in a call.
async fn id(class: &str, request: http::Request<axum::body::Body>) -> Option<String> {
    let class = CLASSES.iter().find(|known| known.name == class)?;
    let body = axum::body::to_bytes(request.into_body(), LONGEST).await.ok()?;
    let event: Value = serde_json::from_slice(&body).ok()?;
    event[class.key].as_str().map(str::to_owned)
}

/// Of a hundred jobs, two are refused for good, five fail at their first attempt, and two or three at their first two.
fn answer(id: &str, attempt: u32) -> (StatusCode, &'static str) {
    match number(id) {
        None => (StatusCode::BAD_REQUEST, "this is no event of the demo"),
        Some(n) if n % 50 == 7 => (StatusCode::UNPROCESSABLE_ENTITY, "no such account"),
        Some(n) if n % 20 == 3 && attempt == 1 => (StatusCode::SERVICE_UNAVAILABLE, "try again"),
        Some(n) if n % 40 == 11 && attempt <= 2 => (StatusCode::INTERNAL_SERVER_ERROR, "out of luck"),
        Some(_) => (StatusCode::OK, "done"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_and_the_attempt_decide_what_a_job_meets() {
        for (id, attempt, status) in [
            ("pay-0", 1, 200),
            ("pay-7", 1, 422),
            ("pay-7", 4, 422),
            ("usr-3", 1, 503),
            ("usr-3", 2, 200),
            ("exp-11", 1, 500),
            ("exp-11", 2, 500),
            ("exp-11", 3, 200),
            ("nonsense", 1, 400),
        ] {
            assert_eq!(answer(id, attempt).0.as_u16(), status, "{id}, attempt {attempt}");
        }
    }

    #[test]
    fn every_trouble_heals_within_the_attempts_of_the_default_ladder_or_never() {
        for n in 0..1000 {
            let id = format!("pay-{n}");
            let last = answer(&id, 4).0.as_u16();
            assert!(last == 200 || last == 422, "{id}: {last}");
        }
    }
}
