//! What a user writes: a handler, and how it says that a job failed.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tidegate_domain::{Failure, FailureKind, Outcome};
use tidegate_pipeline::{jobs, ports};

use crate::job::{Events, Job};

/// Runs the jobs of one class.
///
/// `Ok` means that the effect is durable: the job is never run again while its mark is retained. A handler may run twice for one
/// key when the process dies between effect and mark; [`Job::key`] lets the other end tell. The future must not block its thread,
/// and is dropped at the class's `time_limit`.
pub trait Handler: Send + Sync + 'static {
    /// Runs one job.
    fn run(&self, job: &Job) -> impl Future<Output = Result<(), JobError>> + Send;
}

/// Why a job was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// It failed; the failure's kind says whether it is tried again.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Run it again after this wait, without using an attempt.
    #[error("put off for {0:?}")]
    Snooze(Duration),
}

impl JobError {
    /// The same job may succeed later. `code` is a stable short name, by which failures are grouped.
    pub fn transient(code: &'static str, message: impl Into<String>) -> Self {
        Self::Failed(Failure::transient(code, message))
    }

    /// Running it again gives the same answer: dead-letter it.
    pub fn permanent(code: &'static str, message: impl Into<String>) -> Self {
        Self::Failed(Failure::permanent(code, message))
    }

    /// The dependency asks for less load: not before this wait.
    pub fn overload(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::Failed(Failure::new(FailureKind::Overload, "overload", message).with_retry_after(retry_after))
    }
}

impl From<JobError> for Outcome {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Failed(failure) => Self::Failed(failure),
            JobError::Snooze(wait) => Self::Snooze(wait),
        }
    }
}

/// A user's handler behind the loop's port.
pub(crate) struct Adapter<H> {
    handler: Arc<H>,
    events: Arc<Events>,
}

impl<H: Handler> Adapter<H> {
    pub(crate) fn new(handler: Arc<H>, events: Arc<Events>) -> Self {
        Self { handler, events }
    }
}

impl<H: Handler> ports::Handler for Adapter<H> {
    fn call(&self, job: Arc<jobs::Job>) -> BoxFuture<'static, Outcome> {
        let (handler, job) = (self.handler.clone(), Job::new(job, self.events.clone()));
        async move {
            match handler.run(&job).await {
                Ok(()) => Outcome::Done,
                Err(error) => error.into(),
            }
        }
        .boxed()
    }
}
