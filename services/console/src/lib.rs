//! The operators' console: web pages that work without JavaScript, and the same functions as JSON.
//!
//! Reading order: `routes` is the table of all addresses and who may use them; `gate` stands before all of them and decides who
//! gets in; `pages` and `api` answer; [`inbox`] is what they need of the inbox, [`figures`] what they know of the running services.
//!
//! **Invariants.** A route that is in no table is not reachable. Everything but a `GET` needs an operator, but for logging in and
//! out. Text of payloads, errors and headers reaches a page through `maud`, which escapes it; no page has inline script or style.

mod access;
mod api;
mod assets;
pub mod connected;
mod failure;
mod fields;
pub mod figures;
mod gate;
pub mod inbox;
mod live;
mod mask;
mod pages;
mod routes;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_bootstrap::config::Console as Settings;
use tokio::sync::Semaphore;

pub use access::{NewToken, NoRandomness, NotForEverybody, may_listen};
pub use connected::run;
pub use routes::{Access as RouteAccess, Route};
pub use server::{ConsoleError, Server};

use access::Access;
use failure::Failure;
use figures::Figures;
use inbox::{Inbox, InboxError};

/// So many questions to the inbox are under way at a time; the others wait for their turn.
const AT_ONCE: usize = 32;
/// So many pages watch runs live at a time; the others are reloaded by hand.
const WATCHERS: usize = 256;

/// What a console is made from.
pub struct Setup {
    /// The pipeline's name.
    pub pipeline: String,
    /// The section `[console]`.
    pub settings: Settings,
    /// Each configured class, with its tier.
    pub classes: BTreeMap<String, String>,
    /// Who whoever asks on this machine is taken for, while nobody has to say it.
    pub local_user: String,
    /// The inbox.
    pub inbox: Arc<dyn Inbox>,
    /// What is known of the services.
    pub figures: Figures,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

/// A console, which [`Server`] serves. Clones are the same one.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    pipeline: String,
    settings: Settings,
    classes: BTreeMap<String, String>,
    inbox: Arc<dyn Inbox>,
    figures: Figures,
    access: Access,
    at_once: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("pipeline", &self.0.pipeline).finish_non_exhaustive()
    }
}

impl Console {
    /// A console; refused where no random bytes are to be had for its secrets.
    pub fn new(setup: Setup) -> Result<Self, NoRandomness> {
        Ok(Self(Arc::new(Inner {
            access: Access::new(setup.settings.clone(), setup.local_user)?,
            pipeline: setup.pipeline,
            settings: setup.settings,
            classes: setup.classes,
            inbox: setup.inbox,
            figures: setup.figures,
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            watchers: Arc::new(Semaphore::new(WATCHERS)),
        })))
    }

    /// Every route, with who may use it.
    pub fn routes() -> Vec<Route> {
        routes::table().list()
    }

    pub(crate) fn pipeline(&self) -> &str {
        &self.0.pipeline
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn classes(&self) -> &BTreeMap<String, String> {
        &self.0.classes
    }

    pub(crate) fn access(&self) -> &Access {
        &self.0.access
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.0.figures
    }

    pub(crate) fn watchers(&self) -> Arc<Semaphore> {
        self.0.watchers.clone()
    }

    /// Asks the inbox on a thread that may wait.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Inbox) -> Result<T, InboxError> + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = self.0.at_once.clone().acquire_owned().await.map_err(|_| Failure::stopping())?;
        let inbox = self.0.inbox.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let answer = question(inbox.as_ref());
            drop(turn);
            answer
        });
        Ok(answer.await.map_err(|_| Failure::broken())??)
    }
}

/// Now, in milliseconds since the epoch.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
