//! A worker binary of your own: a handler in Rust, registered for the class `welcome` of this folder's `tidegate.toml`.
//!
//! The effect is a letter in `outbox/`, in a file that is named after the idempotency key. So a job that runs twice writes the
//! same letter twice, and one letter is there. A unique row in a database, or a header of a request, does the same elsewhere.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use tidegate_worker::{Handler, Job, JobError, Worker};
use tokio::fs;

/// What this handler needs of the event `demo.SignUp`; the schema's other fields are passed over.
#[derive(Deserialize)]
struct SignUp {
    user_id: String,
    email: String,
    plan: Plan,
    /// Newer than the first events: those have none.
    #[serde(default)]
    referrer: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Plan {
    Free,
    Team,
    Company,
}

struct Welcome {
    outbox: PathBuf,
}

impl Handler for Welcome {
    async fn run(&self, job: &Job) -> Result<(), JobError> {
        let sign_up: SignUp = job.decode().await?;
        if !sign_up.email.contains('@') {
            // The same event gives the same answer tomorrow: to the dead-letter topic, at once.
            return Err(JobError::permanent("no-address", format!("{} is no address", sign_up.email)));
        }
        if fs::try_exists(self.outbox.join("closed")).await.unwrap_or(false) {
            // Not a failure, so it uses no attempt.
            return Err(JobError::Snooze(Duration::from_secs(5)));
        }
        let letter = format!(
            "To: {}\nWelcome {}, you chose {:?}{}.\n",
            sign_up.email,
            sign_up.user_id,
            sign_up.plan,
            sign_up.referrer.map(|friend| format!(" and came by {friend}")).unwrap_or_default(),
        );
        // It may work in a second: up the retry ladder.
        self.put(&job.key().to_string(), &letter)
            .await
            .map_err(|e| JobError::transient("outbox", e.to_string()))
    }
}

impl Welcome {
    /// Whole or not at all, however the process ends: `Ok` of a handler means that the effect is durable.
    async fn put(&self, key: &str, letter: &str) -> io::Result<()> {
        let unfinished = self.outbox.join(format!("{key}.part"));
        fs::write(&unfinished, letter).await?;
        fs::rename(&unfinished, self.outbox.join(format!("{key}.txt"))).await
    }
}

fn main() -> ExitCode {
    Worker::new().handler("welcome", Welcome { outbox: PathBuf::from("outbox") }).main()
}
