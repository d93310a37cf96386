//! The endpoint that the demo's jobs call. It remembers what it answered, so that the sum can be checked against it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::events::{CLASSES, Fate, fate, number};

/// How long answers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As of a service that is well: some milliseconds, a few slow ones.
    Brisk,
    /// Long enough that at any moment several jobs are in hand.
    Slow,
}

impl Pace {
    fn latency(self, n: u64) -> Duration {
        Duration::from_millis(match self {
            Self::Brisk if n % 37 == 5 => 250,
            Self::Brisk => 2 + n % 29,
            Self::Slow if n % 23 == 5 => 1500,
            Self::Slow => 50 + n % 200,
        })
    }
}

/// What became of one key, as seen from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeySeen {
    pub(crate) class: String,
    /// Calls that came.
    pub(crate) calls: u64,
    /// Calls that were answered: done.
    pub(crate) done: u64,
    /// Calls that were answered: refused for good.
    pub(crate) refused: u64,
}

/// How many keys of a class met which fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) done: u64,
    pub(crate) refused: u64,
    /// Keys that were done more than once.
    pub(crate) done_again: u64,
}

/// How many keys are remembered at most: enough for any run that ends by itself.
const REMEMBERED: usize = 500_000;

#[derive(Debug, Default)]
struct Seen {
    keys: HashMap<String, KeySeen>,
    order: VecDeque<String>,
    totals: BTreeMap<String, Totals>,
    open: HashMap<String, u64>,
}

struct Shared {
    pace: Pace,
    seen: Mutex<Seen>,
    /// Whether answers are held back.
    holds: watch::Sender<bool>,
}

/// A running endpoint; it ends when dropped.
pub(crate) struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Starts it on a free port of the loopback interface.
    pub(crate) async fn start(pace: Pace) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { pace, seen: Mutex::default(), holds: watch::Sender::new(false) });
        let routes = Router::new().route("/{class}", post(answer)).with_state(shared.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "the endpoint ended");
            }
        });
        Ok(Self { address, shared, task })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Gives no answer from now on, or all of them.
    pub(crate) fn hold(&self, holds: bool) {
        self.shared.holds.send_replace(holds);
    }

    /// The fates of a class's keys.
    pub(crate) fn totals(&self, class: &str) -> Totals {
        self.shared.seen.lock().totals.get(class).copied().unwrap_or_default()
    }

    /// How many keys of all classes were done or refused.
    pub(crate) fn ended(&self) -> u64 {
        self.shared.seen.lock().totals.values().map(|totals| totals.done + totals.refused).sum()
    }

    /// The keys of the calls that are not answered yet.
    pub(crate) fn open(&self) -> Vec<String> {
        self.shared.seen.lock().open.keys().cloned().collect()
    }

    /// Every key that is remembered.
    pub(crate) fn keys(&self) -> HashMap<String, KeySeen> {
        self.shared.seen.lock().keys.clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    /// A call came; says how many of its key came before it, itself included.
    fn begin(&mut self, class: &str, key: &str) -> u64 {
        *self.open.entry(key.to_owned()).or_default() += 1;
        if !self.keys.contains_key(key) {
            self.order.push_back(key.to_owned());
            if self.order.len() > REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
        let seen = self.keys.entry(key.to_owned()).or_default();
        class.clone_into(&mut seen.class);
        seen.calls += 1;
        seen.calls
    }

    /// The call is over: answered, or its caller is gone.
    fn end(&mut self, key: &str) {
        if let Some(calls) = self.open.get_mut(key) {
            *calls -= 1;
            if *calls == 0 {
                self.open.remove(key);
            }
        }
    }

    fn answered(&mut self, key: &str, fate: Fate) {
        let Some(seen) = self.keys.get_mut(key) else { return };
        let totals = self.totals.entry(seen.class.clone()).or_default();
        match fate {
            Fate::Done => {
                seen.done += 1;
                match seen.done {
                    1 => totals.done += 1,
                    2 => totals.done_again += 1,
                    _ => {}
                }
            }
            Fate::Refused => {
                seen.refused += 1;
                totals.refused += u64::from(seen.refused == 1);
            }
            Fate::OutOfLuck | Fate::Busy => {}
        }
    }
}

/// A call counts as open for as long as this lives: a caller that hangs up drops it.
struct Open<'a> {
    shared: &'a Shared,
    key: &'a str,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.seen.lock().end(self.key);
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    Path(class): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    let Some(n) = number_of(&class, &body) else {
        return (StatusCode::BAD_REQUEST, "this is no event of the shop").into_response();
    };
    let calls = shared.seen.lock().begin(&class, &key);
    let open = Open { shared: &shared, key: &key };
    tokio::time::sleep(shared.pace.latency(n)).await;
    // It can't fail: `shared` holds the sender.
    drop(shared.holds.subscribe().wait_for(|holds| !holds).await);
    let fate = fate(n, attempt(&headers).unwrap_or(calls));
    shared.seen.lock().answered(&key, fate);
    drop(open);
    match fate {
        Fate::Done => StatusCode::OK.into_response(),
        Fate::Refused => (StatusCode::UNPROCESSABLE_ENTITY, "no such account").into_response(),
        Fate::OutOfLuck => (StatusCode::SERVICE_UNAVAILABLE, "try again").into_response(),
        Fate::Busy => {
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "slowly, please").into_response()
        }
    }
}

fn attempt(headers: &HeaderMap) -> Option<u64> {
    headers.get("tidegate-attempt")?.to_str().ok()?.parse().ok()
}

fn number_of(class: &str, body: &[u8]) -> Option<u64> {
    let class = CLASSES.iter().find(|known| known.name == class)?;
    let event: Value = serde_json::from_slice(body).ok()?;
    number(event[class.key].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(endpoint: &Endpoint, n: u64, attempt: u64) -> u16 {
        let event = CLASSES[0].event(n);
        let request = reqwest::Client::new().post(endpoint.url() + "/charge");
        let request =
            request.header("idempotency-key", format!("key-{n}")).header("tidegate-attempt", attempt);
        request.body(event.to_string()).send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn every_fate_is_answered_and_counted_once_for_each_key() {
        let endpoint = Endpoint::start(Pace::Brisk).await.unwrap();
        assert_eq!(call(&endpoint, 1, 1).await, 200);
        assert_eq!(call(&endpoint, 7, 1).await, 422);
        assert_eq!((call(&endpoint, 3, 1).await, call(&endpoint, 3, 2).await), (503, 200));
        assert_eq!((call(&endpoint, 29, 1).await, call(&endpoint, 29, 2).await), (429, 200));
        assert_eq!(endpoint.totals("charge"), Totals { done: 3, refused: 1, done_again: 0 });
        assert_eq!(call(&endpoint, 1, 1).await, 200);
        assert_eq!(endpoint.totals("charge"), Totals { done: 3, refused: 1, done_again: 1 });
        assert_eq!((endpoint.ended(), endpoint.open()), (4, Vec::new()));
        assert_eq!(endpoint.keys()["key-3"].calls, 2);
    }

    /// Waits until these are the keys of the open calls.
    async fn until_open(endpoint: &Endpoint, keys: &[&str]) {
        let wait = async {
            while endpoint.open() != keys {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        waited.unwrap_or_else(|_| panic!("{:?} is open and not {keys:?}", endpoint.open()));
    }

    #[tokio::test]
    async fn a_call_is_open_until_it_is_answered_or_its_caller_is_gone() {
        let endpoint = Endpoint::start(Pace::Brisk).await.unwrap();
        endpoint.hold(true);
        let request = reqwest::Client::new().post(endpoint.url() + "/charge");
        let request = request.header("idempotency-key", "stuck").body(CLASSES[0].event(5).to_string());
        let call = tokio::spawn(request.send());
        until_open(&endpoint, &["stuck"]).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled(), "it was not answered");
        until_open(&endpoint, &[]).await;
        assert_eq!(endpoint.keys()["stuck"].done, 0);
    }
}
