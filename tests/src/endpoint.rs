//! An HTTP endpoint such as a user's handler: it records every call and answers by a function of the test.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::ports::free_port;

/// A call that arrived.
#[derive(Debug, Clone)]
pub struct Call {
    /// From 0, in the order of arrival.
    pub number: usize,
    pub method: String,
    /// With the query, if there is one.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Call {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// # Panics
    /// When the body isn't JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// What the endpoint does about a call: `Answer::status(503).header("retry-after", "2").after(Duration::from_secs(1))`.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    delay: Duration,
    hangs: bool,
}

impl Answer {
    pub fn ok() -> Self {
        Self::status(200)
    }

    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), delay: Duration::ZERO, hangs: false }
    }

    /// No answer ever, until the caller hangs up.
    pub fn hang() -> Self {
        Self { hangs: true, ..Self::ok() }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

type Script = Arc<dyn Fn(&Call) -> Answer + Send + Sync>;

/// The endpoint; it is gone when dropped.
#[derive(Debug)]
pub struct Endpoint {
    port: u16,
    shared: Arc<Shared>,
    /// `None` while stopped. A runtime of its own, because ending it is what cuts open connections.
    runtime: Option<Runtime>,
}

struct Shared {
    seen: Mutex<Seen>,
    arrived: Condvar,
}

struct Seen {
    script: Script,
    calls: Vec<Call>,
    open: usize,
    most_open: usize,
}

impl Endpoint {
    /// Starts an endpoint that answers as the script says. The script sees each call once, in no order if they overlap.
    #[track_caller]
    pub fn start(script: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Self {
        let seen = Seen { script: Arc::new(script), calls: Vec::new(), open: 0, most_open: 0 };
        let shared = Arc::new(Shared { seen: Mutex::new(seen), arrived: Condvar::new() });
        let mut endpoint = Self { port: free_port(), shared, runtime: None };
        let mut tries = 0;
        // Between looking for a free port and taking it, another process may take it. Nobody knows this one yet.
        let listener = loop {
            match std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, endpoint.port)) {
                Ok(listener) => break listener,
                Err(error) if tries == 20 => panic!("the endpoint finds no port: {error}"),
                Err(_) => (tries, endpoint.port) = (tries + 1, free_port()),
            }
        };
        endpoint.serve(listener);
        endpoint
    }

    /// `http://127.0.0.1:PORT`, to which a path can be added.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on, another script answers.
    pub fn answer_with(&self, script: impl Fn(&Call) -> Answer + Send + Sync + 'static) {
        self.shared.lock().script = Arc::new(script);
    }

    /// Cuts all connections and refuses new ones, until [`Endpoint::start_again`].
    pub fn stop(&mut self) {
        self.runtime.take().expect("the endpoint is running").shutdown_background();
        let refused = || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err();
        crate::wait::wait_until("the endpoint to refuse connections", Duration::from_secs(60), refused);
    }

    /// Starts a stopped endpoint on the same port; calls go on being recorded behind the earlier ones.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.runtime.is_none(), "the endpoint is running");
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .expect("the endpoint's port is still free");
        self.serve(listener);
    }

    fn serve(&mut self, listener: std::net::TcpListener) {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("endpoint")
            .enable_all()
            .build()
            .expect("the endpoint's runtime starts");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let router = Router::new().fallback(answer).with_state(self.shared.clone());
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the listener can be registered");
            axum::serve(listener, router).await.expect("the endpoint serves");
        });
        self.runtime = Some(runtime);
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.lock().calls.clone()
    }

    /// How many calls were open at the same time, at most.
    pub fn most_at_once(&self) -> usize {
        self.shared.lock().most_open
    }

    /// Waits until the condition holds for the calls so far, and returns them.
    ///
    /// # Panics
    /// With the last calls, when the deadline passes first.
    #[track_caller]
    pub fn wait_until(&self, deadline: Duration, mut condition: impl FnMut(&[Call]) -> bool) -> Vec<Call> {
        let end = Instant::now() + deadline;
        let mut seen = self.shared.lock();
        while !condition(&seen.calls) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let count = seen.calls.len();
                let last: Vec<_> = seen.calls.iter().rev().take(5).map(ToString::to_string).collect();
                drop(seen);
                panic!(
                    "the condition doesn't hold after {deadline:?}: {count} calls, last first:\n{}",
                    last.join("\n")
                );
            }
            (seen, _) = self.shared.arrived.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner);
        }
        seen.calls.clone()
    }

    /// Waits until at least so many calls have arrived, and returns them all.
    #[track_caller]
    pub fn wait_for_count(&self, count: usize, deadline: Duration) -> Vec<Call> {
        self.wait_until(deadline, |calls| calls.len() >= count)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// A test that failed in its script hasn't broken what was recorded.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("calls", &self.lock().calls.len()).finish_non_exhaustive()
    }
}

/// One line for the message of a failed test.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} {} {} {:?} {}", self.number, self.method, self.path, self.headers, self.text())
    }
}

/// Counts a call as open for as long as it lives: also when the caller hangs up, which drops the future that holds it.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::builder().status(400).body("half a request".into()).expect("it is a valid answer");
    };
    let header = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let mut call = Call {
        number: 0,
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        headers: parts.headers.iter().map(header).collect(),
        body: body.to_vec(),
        at: Instant::now(),
    };
    let (script, _open) = shared.record(&mut call);
    let answer = script(&call);
    tokio::time::sleep(answer.delay).await;
    if answer.hangs {
        std::future::pending::<()>().await;
    }
    let response = Response::builder().status(answer.status);
    let response =
        answer.headers.iter().fold(response, |response, (name, value)| response.header(name, value));
    response.body(answer.body.into()).expect("the script's answer is valid HTTP")
}

impl Shared {
    fn record(self: &Arc<Self>, call: &mut Call) -> (Script, Open) {
        let mut seen = self.lock();
        call.number = seen.calls.len();
        seen.calls.push(call.clone());
        seen.open += 1;
        seen.most_open = seen.most_open.max(seen.open);
        self.arrived.notify_all();
        (seen.script.clone(), Open(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[test]
    fn every_call_is_recorded_and_answered_by_the_script() {
        let endpoint = Endpoint::start(|call| match call.number {
            0 => Answer::status(503).header("retry-after", "7").body("later"),
            _ => Answer::ok(),
        });
        let url = endpoint.url() + "/pay?x=1";
        let body = serde_json::json!({"amount": 3});
        assert_eq!(http::post_json(&url, &body).unwrap(), (503, "later".into()));
        assert_eq!(http::get(&url).unwrap(), (200, String::new()));
        let calls = endpoint.wait_for_count(2, Duration::from_secs(60));
        assert_eq!((calls[0].method.as_str(), calls[0].path.as_str()), ("POST", "/pay?x=1"));
        assert_eq!(calls[0].json(), body);
        assert_eq!(calls[0].header("Content-Type"), Some("application/json"));
        assert_eq!(calls[1].method, "GET");
        assert!(calls[0].at <= calls[1].at);
        assert_eq!(endpoint.most_at_once(), 1);
    }

    #[test]
    fn a_stopped_endpoint_cuts_its_callers_off_and_starts_again_on_its_port() {
        let mut endpoint = Endpoint::start(|_| Answer::hang());
        let url = endpoint.url();
        let caller = std::thread::spawn({
            let url = url.clone();
            move || http::get(&url)
        });
        endpoint.wait_for_count(1, Duration::from_secs(60));
        endpoint.stop();
        assert!(caller.join().unwrap().is_err());
        assert!(http::get(&url).unwrap_err().is_connect());
        endpoint.answer_with(|_| Answer::status(204).after(Duration::from_millis(50)));
        endpoint.start_again();
        let before = Instant::now();
        assert_eq!(http::get(&url).unwrap().0, 204);
        assert!(before.elapsed() >= Duration::from_millis(50));
        assert_eq!(endpoint.calls().len(), 2);
    }

    #[test]
    #[should_panic(expected = "0 calls")]
    fn waiting_for_a_call_that_never_comes_fails_the_test() {
        Endpoint::start(|_| Answer::ok()).wait_for_count(1, Duration::from_millis(50));
    }
}
