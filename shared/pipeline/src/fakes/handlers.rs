//! Handlers by closure, and a record of every run.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tidegate_domain::{Attempt, Hop, IdempotencyKey, Outcome, Round, UnixMillis};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::clock::FakeClock;
use super::copies::FakeTable;
use super::node::Life;
use crate::jobs::Job;
use crate::ports::{Clock, Handler};

/// How a handler answers one run.
#[derive(Clone, Debug)]
pub enum Reply {
    /// At once, in the first poll.
    Now(Outcome),
    /// After a wait.
    After(Duration, Outcome),
    /// Never.
    Hang,
    /// By a panic, at once.
    Panic,
    /// By a panic, after a wait.
    PanicAfter(Duration),
    /// Never; and it panics when it is dropped.
    PanicWhenDropped,
    /// It ends the process: nothing of it runs any more, and who watches [`Runs::crash`] kills its node.
    Crash,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The handler answered.
    Answered(Outcome),
    /// It was dropped before it answered: cancelled, or its process died.
    Dropped,
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub struct Run {
    /// The node that ran it.
    pub node: u64,
    /// The job's key.
    pub key: IdempotencyKey,
    /// The job's id.
    pub job_id: String,
    /// The job's round.
    pub round: Round,
    /// The job's hop.
    pub hop: Hop,
    /// The attempt that the record says.
    pub attempt: Attempt,
    /// When the record says that it is due.
    pub due: UnixMillis,
    /// When it began.
    pub began: Instant,
    /// The node's wall clock then.
    pub wall: UnixMillis,
    /// The node's copy of the marks said already that the key is done.
    pub known_done: bool,
    /// When and how it ended, if it has.
    pub ended: Option<(Instant, End)>,
}

#[derive(Debug, Default)]
struct State {
    runs: Vec<Run>,
    /// How often each job ran.
    of_job: BTreeMap<String, usize>,
    crashed: Vec<u64>,
}

/// Every run of every node, in order.
#[derive(Debug, Default)]
pub struct Runs(Mutex<State>, Notify);

impl Runs {
    /// All of them.
    pub fn all(&self) -> Vec<Run> {
        self.since(0)
    }

    /// Those after the first `known` ones.
    pub fn since(&self, known: usize) -> Vec<Run> {
        self.0.lock().runs.iter().skip(known).cloned().collect()
    }

    /// Waits until a handler ends its process; gives the node.
    pub async fn crash(&self) -> u64 {
        loop {
            if let Some(node) = self.0.lock().crashed.pop() {
                return node;
            }
            self.1.notified().await;
        }
    }

    fn crashed(&self, node: u64) {
        self.0.lock().crashed.push(node);
        self.1.notify_one();
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.0.lock().runs.len()
    }

    /// The ids of the jobs that ran, in order.
    pub fn job_ids(&self) -> Vec<String> {
        self.0.lock().runs.iter().map(|run| run.job_id.clone()).collect()
    }

    /// Notes that a run began; its place, and how often the job ran before.
    fn begin(&self, run: Run) -> (usize, usize) {
        let mut state = self.0.lock();
        let times = state.of_job.entry(run.job_id.clone()).or_default();
        *times += 1;
        let before = *times - 1;
        state.runs.push(run);
        (state.runs.len() - 1, before)
    }

    fn end(&self, place: usize, end: End) {
        if let Some(run) = self.0.lock().runs.get_mut(place) {
            run.ended.get_or_insert((Instant::now(), end));
        }
    }
}

/// Decides the reply to a job; the number says how often the job ran before, in any node.
pub type Script = Arc<dyn Fn(&Job, usize) -> Reply + Send + Sync>;

/// A handler that does what its script says and notes every run.
pub struct ScriptedHandler {
    pub(super) runs: Arc<Runs>,
    pub(super) clock: Arc<FakeClock>,
    pub(super) life: Life,
    pub(super) script: Script,
    pub(super) table: Option<Arc<FakeTable>>,
}

impl std::fmt::Debug for ScriptedHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedHandler").finish_non_exhaustive()
    }
}

struct Ending {
    runs: Arc<Runs>,
    place: usize,
    panics: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.runs.end(self.place, End::Dropped);
        if self.panics && !std::thread::panicking() {
            resume_unwind(Box::new("dropped"));
        }
    }
}

impl Handler for ScriptedHandler {
    fn call(&self, job: Arc<Job>) -> BoxFuture<'static, Outcome> {
        let job_id = job.header().map(|header| header.job_id()).unwrap_or_default();
        let (place, before) = self.runs.begin(Run {
            node: self.life.id(),
            key: job.key,
            job_id,
            round: job.round,
            hop: job.hop,
            attempt: job.attempt,
            due: job.due,
            began: Instant::now(),
            wall: self.clock.wall(),
            known_done: self
                .table
                .as_ref()
                .is_some_and(|table| table.disk.get(&job.partition, &job.key).done.is_some()),
            ended: None,
        });
        let reply = (self.script)(&job, before);
        if matches!(reply, Reply::Crash) {
            self.life.end();
            self.runs.crashed(self.life.id());
        }
        let panics = matches!(reply, Reply::PanicWhenDropped);
        let ending = Ending { runs: self.runs.clone(), place, panics };
        let life = self.life.clone();
        async move {
            let outcome = tokio::select! {
                biased;
                // A dead process does nothing more.
                () = life.ended() => std::future::pending().await,
                outcome = act(reply) => outcome,
            };
            ending.runs.end(ending.place, End::Answered(outcome.clone()));
            outcome
        }
        .boxed()
    }
}

/// Panics as a handler does, without the noise of the hook.
async fn act(reply: Reply) -> Outcome {
    match reply {
        Reply::Now(outcome) => outcome,
        Reply::After(wait, outcome) => {
            tokio::time::sleep(wait).await;
            outcome
        }
        Reply::Hang | Reply::PanicWhenDropped | Reply::Crash => std::future::pending().await,
        Reply::Panic => resume_unwind(Box::new("scripted")),
        Reply::PanicAfter(wait) => {
            tokio::time::sleep(wait).await;
            resume_unwind(Box::new("scripted"))
        }
    }
}
