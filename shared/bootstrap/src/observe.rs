//! The HTTP server that shows a process to Prometheus, to the platform and to people.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::health::Health;
use crate::telemetry::Metrics;

/// Why a process can't be observed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// Another process listens there.
    #[error(
        "{address} is in use by another process; stop that one, or set observe.listen (TIDEGATE_OBSERVE__LISTEN) \
         to another port"
    )]
    AddressInUse {
        /// The address of `observe.listen`.
        address: SocketAddr,
    },
    /// The system doesn't let the process listen there.
    #[error(
        "cannot listen on {address}: {source}; set observe.listen (TIDEGATE_OBSERVE__LISTEN) to another address"
    )]
    Bind {
        /// The address of `observe.listen`.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
}

/// A server that has its port, and answers once [`ObserveServer::serve`] runs.
#[derive(Debug)]
pub struct ObserveServer {
    listener: TcpListener,
    address: SocketAddr,
    shown: Shown,
}

#[derive(Debug, Clone)]
struct Shown {
    health: Health,
    metrics: Metrics,
}

impl ObserveServer {
    /// Takes the port. With port 0 the system chooses one.
    pub async fn bind(address: SocketAddr, health: Health, metrics: Metrics) -> Result<Self, ObserveError> {
        let refuse = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => ObserveError::AddressInUse { address },
            _ => ObserveError::Bind { address, source },
        };
        let listener = TcpListener::bind(address).await.map_err(refuse)?;
        let address = listener.local_addr().map_err(refuse)?;
        Ok(Self { listener, address, shown: Shown { health, metrics } })
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is done. That should be the end of the process rather than the request to stop: the drain
    /// is worth watching. Open requests are cut off.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let routes = Router::new()
            .route("/", get(index))
            .route("/metrics", get(metrics))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .with_state(self.shown);
        tokio::select! {
            // It never returns: failed accepts are retried by axum.
            _ = axum::serve(self.listener, routes) => {}
            () = stop => {}
        }
    }
}

async fn index() -> &'static str {
    "tidegate: /metrics (Prometheus), /livez (does it move?), /readyz (can it work?)\n"
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], shown.metrics.render())
}

async fn livez(State(shown): State<Shown>) -> Response {
    let stalled = shown.health.stalled(Instant::now());
    let body = json!({ "live": stalled.is_empty(), "reasons": stalled });
    (status(stalled.is_empty()), Json(body)).into_response()
}

async fn readyz(State(shown): State<Shown>) -> Response {
    let reasons = shown.health.readiness();
    let body = json!({ "ready": reasons.is_empty(), "reasons": reasons });
    (status(reasons.is_empty()), Json(body)).into_response()
}

fn status(is_well: bool) -> StatusCode {
    if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    async fn start(health: &Health) -> SocketAddr {
        let server =
            ObserveServer::bind(ANY_PORT, health.clone(), Metrics::install().unwrap()).await.unwrap();
        let address = server.address();
        tokio::spawn(server.serve(std::future::pending()));
        address
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[track_caller]
    fn check(answer: &str, status: &str, part: &str) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        assert!(answer.contains(part), "{answer}");
    }

    #[tokio::test]
    async fn readyz_answers_503_with_the_reasons_until_all_is_ready() {
        let health = Health::expecting(["kafka"]);
        let address = start(&health).await;
        let reason = r#"{"ready":false,"reasons":[{"component":"kafka","reason":"it is starting"}]}"#;
        check(&get(address, "/readyz").await, "503", reason);
        check(&get(address, "/livez").await, "200", r#""live":true"#);
        health.ready("kafka");
        check(&get(address, "/readyz").await, "200", r#"{"ready":true,"reasons":[]}"#);
    }

    #[tokio::test]
    async fn livez_answers_503_when_a_component_has_stalled() {
        let health = Health::default();
        let _heartbeat = health.heartbeat("events", Duration::ZERO);
        let address = start(&health).await;
        check(&get(address, "/livez").await, "503", r#""component":"events""#);
    }

    #[tokio::test]
    async fn metrics_are_served_as_text_and_the_index_names_them() {
        let address = start(&Health::default()).await;
        metrics::counter!("served_by_the_observe_server").increment(1);
        check(&get(address, "/metrics").await, "200", "served_by_the_observe_server 1");
        check(&get(address, "/").await, "200", "/metrics");
    }

    #[tokio::test]
    async fn a_port_in_use_names_the_setting() {
        let address = start(&Health::default()).await;
        let error =
            ObserveServer::bind(address, Health::default(), Metrics::install().unwrap()).await.unwrap_err();
        assert!(matches!(error, ObserveError::AddressInUse { .. }));
        assert!(error.to_string().contains("observe.listen"), "{error}");
    }

    #[tokio::test]
    async fn the_server_ends_when_its_stop_is_done() {
        let metrics = Metrics::install().unwrap();
        let server = ObserveServer::bind(ANY_PORT, Health::default(), metrics).await.unwrap();
        server.serve(std::future::ready(())).await;
    }
}
