//! The HTTP endpoint that jobs call. It writes every call to a file before it answers, and misbehaves as it is told.

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response};
use serde::Deserialize;
use tidegate_tests::ports::free_port;
use tidegate_tests::wait::look_until;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::dice::Dice;
use crate::history::{At, Call, CallEnd, Key, Kind, Origin, Script};
use crate::plan::EndpointFault;

/// The body of a call.
#[derive(Deserialize)]
struct Event {
    script: String,
}

/// The endpoint; it is gone when dropped.
#[derive(Debug)]
pub(crate) struct Endpoint {
    port: u16,
    shared: Arc<Shared>,
    /// `None` while it is down. Ending it is what cuts open connections.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    file: File,
    calls: Vec<Call>,
    cuts: Vec<At>,
    stalls: Vec<(At, At)>,
    fault: Option<EndpointFault>,
    dice: Dice,
}

impl Endpoint {
    pub(crate) fn start(ledger: &Path, dice: Dice) -> std::io::Result<Self> {
        let file = File::create(ledger)?;
        let seen = Seen { file, calls: Vec::new(), cuts: Vec::new(), stalls: Vec::new(), fault: None, dice };
        let mut endpoint =
            Self { port: free_port(), shared: Arc::new(Shared { seen: Mutex::new(seen) }), runtime: None };
        endpoint.listen()?;
        Ok(endpoint)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on it misbehaves so; `None`: no more.
    pub(crate) fn misbehave(&mut self, fault: Option<EndpointFault>) {
        self.shared.lock().fault = fault;
        if fault == Some(EndpointFault::Down) {
            if let Some(runtime) = self.runtime.take() {
                self.shared.lock().cuts.push(At::now());
                runtime.shutdown_background();
            }
        } else if self.runtime.is_none() {
            // The listener before it is closed by a thread that may come late.
            let listening = look_until(LISTENS_WITHIN, || self.listen().ok());
            listening.expect("the endpoint's port is still free");
        }
    }

    /// How many calls it got so far.
    pub(crate) fn count(&self) -> usize {
        self.shared.lock().calls.len()
    }

    pub(crate) fn finish(mut self) -> Observed {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let mut seen = self.shared.lock();
        Observed {
            calls: std::mem::take(&mut seen.calls),
            cuts: std::mem::take(&mut seen.cuts),
            stalls: std::mem::take(&mut seen.stalls),
        }
    }

    fn listen(&mut self) -> std::io::Result<()> {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("endpoint").enable_all().build()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))?;
        listener.set_nonblocking(true)?;
        let router = Router::new().fallback(answer).with_state(self.shared.clone());
        runtime.spawn(note_stalls(self.shared.clone()));
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("the listener can be registered");
            axum::serve(listener, router).await.expect("the endpoint serves");
        });
        self.runtime = Some(runtime);
        Ok(())
    }
}

/// How long the endpoint's own port may be taken by what it was before.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);

/// What an endpoint saw.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) calls: Vec<Call>,
    /// When it cut all connections.
    pub(crate) cuts: Vec<At>,
    /// From when to when it did not come to run, on a machine that had other things to do.
    pub(crate) stalls: Vec<(At, At)>,
}

/// So late a timer tells of a stall.
const STALLED: Duration = Duration::from_millis(500);

async fn note_stalls(shared: Arc<Shared>) {
    loop {
        let (before, since) = (At::now(), tokio::time::Instant::now());
        tokio::time::sleep(Duration::from_millis(50)).await;
        if since.elapsed() > STALLED {
            shared.lock().stalls.push((before, At::now()));
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What is done about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answer {
    /// `None`: none ever.
    status: Option<u16>,
    after: Duration,
}

impl Shared {
    /// A call that panicked hasn't broken what was recorded.
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, call: Call, script: Script) -> (usize, Answer) {
        let mut seen = self.lock();
        let number = seen.calls.len();
        let answer = seen.answer(script, call.attempt);
        let Call { life, kind, origin, key, attempt, began, .. } = call;
        let line = format!(
            "begin {number} {} life={life} {} {origin} {key:?} attempt={attempt}\n",
            began.0,
            kind.name()
        );
        seen.file.write_all(line.as_bytes()).expect("the ledger can be written");
        seen.calls.push(call);
        (number, answer)
    }

    fn end(&self, number: usize, end: CallEnd) {
        let mut seen = self.lock();
        let at = At::now();
        let line = format!("end {number} {} {end:?}\n", at.0);
        seen.file.write_all(line.as_bytes()).expect("the ledger can be written");
        if let Some(call) = seen.calls.get_mut(number) {
            (call.ended, call.end) = (at, end);
        }
    }
}

impl Seen {
    fn answer(&mut self, script: Script, attempt: u32) -> Answer {
        let quick = Duration::from_millis(self.dice.within(1, 20));
        let status = |status| Answer { status: Some(status), after: quick };
        let never = Answer { status: None, after: Duration::ZERO };
        match self.fault {
            Some(EndpointFault::Failing) if self.dice.chance(70) => return status(500),
            Some(EndpointFault::Overloaded) if self.dice.chance(60) => return status(429),
            Some(EndpointFault::Hanging) if self.dice.chance(20) => return never,
            _ => {}
        }
        let mut answer = match script {
            Script::Fail(attempts) if attempt <= attempts => status(500),
            Script::Busy(attempts) if attempt <= attempts => status(429),
            Script::Hang(attempts) if attempt <= attempts => never,
            Script::Reject => status(422),
            _ => status(200),
        };
        if self.fault == Some(EndpointFault::Slow) {
            answer.after = Duration::from_millis(self.dice.within(100, 1500));
        }
        answer
    }
}

/// Notes the end of a call, also when the caller hangs up, which drops the future that holds this.
struct Open {
    shared: Arc<Shared>,
    number: usize,
    end: CallEnd,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.end(self.number, self.end);
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let began = At::now();
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return respond(400) };
    let Ok(event) = serde_json::from_slice::<Event>(&body) else { return respond(400) };
    let Some(call) = call(parts.uri.path(), &parts.headers, began) else { return respond(400) };
    let (number, answer) = shared.begin(call, script_of(&event.script));
    let mut open = Open { shared, number, end: CallEnd::HungUp };
    tokio::time::sleep(answer.after).await;
    match answer.status {
        Some(status) => {
            open.end = CallEnd::Answered(status);
            respond(status)
        }
        None => std::future::pending().await,
    }
}

fn respond(status: u16) -> Response<Body> {
    let response = Response::builder().status(status);
    let response = if status == 429 { response.header("retry-after", "1") } else { response };
    response.body(Body::empty()).expect("it is a valid answer")
}

/// The path says which process calls: `/17/plain`.
fn call(path: &str, headers: &HeaderMap, began: At) -> Option<Call> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let life = path.split('/').nth(1)?.parse().ok()?;
    let (origin, kind) = job_of(text("tidegate-job-id")?)?;
    let key = Key(u128::from_str_radix(text("idempotency-key")?, 16).ok()?);
    let attempt = text("tidegate-attempt")?.parse().ok()?;
    Some(Call { life, kind, origin, key, attempt, began, ended: began, end: CallEnd::HungUp })
}

/// A job's name is `topic/partition/offset/class`.
fn job_of(name: &str) -> Option<(Origin, Kind)> {
    let mut parts = name.rsplit('/');
    let kind = Kind::of_class(parts.next()?)?;
    let offset = parts.next()?.parse().ok()?;
    let partition = parts.next()?.parse().ok()?;
    Some((Origin { partition, offset }, kind))
}

/// The text of a script in its event.
pub(crate) fn script_text(script: Script) -> String {
    match script {
        Script::Fine => String::new(),
        Script::Fail(attempts) => format!("fail {attempts}"),
        Script::Busy(attempts) => format!("busy {attempts}"),
        Script::Hang(attempts) => format!("hang {attempts}"),
        Script::Reject => "reject".to_owned(),
    }
}

fn script_of(text: &str) -> Script {
    let (word, number) = text.split_once(' ').unwrap_or((text, ""));
    let attempts = number.parse().unwrap_or(0);
    match word {
        "fail" => Script::Fail(attempts),
        "busy" => Script::Busy(attempts),
        "hang" => Script::Hang(attempts),
        "reject" => Script::Reject,
        _ => Script::Fine,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_tests::http;
    use tidegate_tests::wait::wait_until;

    use super::*;

    #[test]
    fn a_script_survives_its_event() {
        for script in [Script::Fine, Script::Fail(2), Script::Busy(1), Script::Hang(3), Script::Reject] {
            assert_eq!(script_of(&script_text(script)), script);
        }
    }

    #[test]
    fn a_job_is_known_by_its_name() {
        let origin = Origin { partition: 3, offset: 77 };
        assert_eq!(job_of("shop.events/3/77/ordered"), Some((origin, Kind::Ordered)));
        assert_eq!(job_of("shop.events/3/77/unknown"), None);
    }

    #[test]
    fn a_call_is_in_the_ledger_before_it_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = directory.path().join("calls.log");
        let mut endpoint = Endpoint::start(&ledger, Dice::new(1)).unwrap();
        let url = endpoint.url() + "/5/plain";
        // Without tidegate's headers it is no call of a job.
        assert_eq!(http::post_json(&url, &serde_json::json!({ "script": "" })).unwrap().0, 400);
        let call = call("/5/plain", &headers(), At(7)).unwrap();
        let (number, answer) = endpoint.shared.begin(call, Script::Reject);
        assert_eq!((number, answer.status), (0, Some(422)));
        let text = std::fs::read_to_string(&ledger).unwrap();
        assert_eq!(text, "begin 0 7 life=5 plain 1/2 000000000000000000000000000000ab attempt=3\n");
        endpoint.misbehave(Some(EndpointFault::Down));
        wait_until("it to refuse connections", LISTENS_WITHIN, || http::get(&url).is_err());
        endpoint.misbehave(None);
        assert_eq!(http::get(&url).unwrap().0, 400);
        let Observed { calls, cuts, .. } = endpoint.finish();
        assert_eq!((calls.len(), cuts.len()), (1, 1));
    }

    fn headers() -> HeaderMap {
        let pairs =
            [("tidegate-job-id", "t/1/2/plain"), ("idempotency-key", "ab"), ("tidegate-attempt", "3")];
        pairs.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }
}
