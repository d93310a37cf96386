//! What every run has: a folder, logs, metrics, the services, and a view of them.

use std::io::{ErrorKind, IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_bootstrap::Config;
use tidegate_bootstrap::telemetry::{Metrics, init_logs_since, init_logs_to};
use tidegate_codec::value_subject;
use tidegate_pipeline::events;
use tidegate_service::wiring;

use crate::dead_letters::DeadLetters;
use crate::demo::events::CLASSES;
use crate::error::DevError;
use crate::figures::Page;
use crate::leave::{By, Leave, Wish};
use crate::services::{Services, Which};
use crate::snapshot::{Observer, Snapshot};
use crate::view::{Show, Told, View, is_live, is_of_closed_terminal, write_error};

/// How often there is something new to see.
const TICK: Duration = Duration::from_millis(250);
/// How long services may take to be ready: on a busy machine, creating clients takes its time.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long the end of a run that failed may take: nothing that it still does is of use.
const FAILED_WITHIN: Duration = Duration::from_secs(2);

/// A folder of the run, gone at its end for good, unless something failed while its log is in there.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
    has_log: bool,
}

impl Folder {
    pub(crate) fn new() -> Result<Self, DevError> {
        let made = tempfile::Builder::new().prefix("tidegate-dev-").tempdir();
        // The error's own text has a path in it that nobody can look at.
        let refused = |error: std::io::Error| DevError::Folder {
            within: std::env::temp_dir(),
            reason: error.kind().to_string(),
        };
        let folder = Self { dir: made.map_err(refused)?, has_log: false };
        // Stores make their own folders in it, and never this one: none is opened once it is removed.
        std::fs::create_dir(folder.state()).map_err(refused)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where marks are kept.
    pub(crate) fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    /// Sends logs to a file of this folder where the screen is taken, else to standard error, beside lines of the same clock.
    pub(crate) fn init_logs(&mut self, config: &Config, live: bool, began: Instant) -> Result<(), DevError> {
        if !live {
            return Ok(init_logs_since(began, &config.observe)?);
        }
        let file = std::fs::File::create(self.dir.path().join(LOG))?;
        self.has_log = true;
        Ok(init_logs_to(file, &config.observe)?)
    }

    /// Keeps the folder if the run failed, its log is there, and somebody can be told of it. Else it is gone.
    pub(crate) fn end(self, failed: bool) {
        let path = self.dir.keep();
        let log = path.join(LOG);
        if failed && self.has_log && write_error(&format!("note: the log is {}", log.display())) == Told::Yes
        {
            return;
        }
        if let Err((left, error)) = remove(&path) {
            write_error(&format!("note: {} can't be removed: {error}; remove it yourself", left.display()));
        }
    }
}

/// How often a folder is looked for that may be in use by what was not waited for. Counted, since a process may stand still for any time.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How often it must be found gone, one time after the other.
const GONE: u32 = 3;

/// Removes a folder and what is in it for good.
///
/// Where the end was at once, services still write there. No store is opened once the whole is gone; of one that is just being opened,
/// the database makes all folders above its own, which a later look finds.
///
/// # Errors
/// What is left, and why.
fn remove(path: &Path) -> Result<(), (PathBuf, std::io::Error)> {
    let (mut gone, mut left) = (0, (path.to_owned(), ErrorKind::ResourceBusy.into()));
    for _ in 0..LOOKS {
        match take_away(path) {
            Ok(Found::Nothing) => gone += 1,
            Ok(Found::Something) => gone = 0,
            Err(error) => (gone, left) = (0, error),
        }
        if gone == GONE {
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(left)
}

enum Found {
    Nothing,
    Something,
}

/// Gives a folder another name before it is emptied, one at which nobody writes: emptied where it is, it can win a new file before its
/// own removal, again and again.
fn take_away(path: &Path) -> Result<Found, (PathBuf, std::io::Error)> {
    let aside = path.with_extension("removed");
    let empty = || match std::fs::remove_dir_all(&aside) {
        // It may as well be a file in it that somebody else has removed first.
        Err(error) if error.kind() == ErrorKind::NotFound && !aside.exists() => Ok(()),
        result => result.map_err(|error| (aside.clone(), error)),
    };
    // What an earlier look may have left.
    empty()?;
    match std::fs::rename(path, &aside) {
        Ok(()) => empty().map(|()| Found::Something),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err((path.to_owned(), error)),
    }
}

const LOG: &str = "tidegate.log";

/// How services were ended that nothing had gone wrong with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// What was begun is finished.
    InOrder,
    /// Somebody asked twice.
    AtOnce,
}

/// A terminal that is closed is a wish to leave and no error. Whatever else keeps it from being drawn on is one: nobody asked to leave.
///
/// It is closed too if standard output, which was a terminal when the view began, is none any more: what asks for its size, and asks in
/// other ways where that fails, says what failed last.
fn leave_what_is_not_shown(error: DevError, is_terminal: bool, leave: &Leave) -> Result<(), DevError> {
    match error {
        DevError::Draw(error) if !is_terminal || is_of_closed_terminal(&error) => {
            leave.wish(By::ClosedTerminal);
            Ok(())
        }
        error => Err(error),
    }
}

/// A run of services, seen from outside.
pub(crate) struct Session {
    pub(crate) leave: Leave,
    pub(crate) addresses: Vec<(&'static str, String)>,
    /// What to type to have something happen; shown until it does.
    pub(crate) how_to_begin: Vec<String>,
    services: Services,
    metrics: Metrics,
    observer: Observer,
    view: View,
    /// Where somebody looks: lines have no room for causes.
    dead_letters: Option<DeadLetters>,
}

impl Session {
    /// Starts the services and the view.
    pub(crate) fn begin(
        config: &Arc<Config>,
        leave: Leave,
        show: Show,
        began: Instant,
    ) -> Result<Self, DevError> {
        let metrics = Metrics::install()?;
        events::describe();
        let services = Services::start(config, Which::All)?;
        let observer = Observer::new(config, began);
        let dead_letters = is_live(show).then(|| DeadLetters::follow(config)).transpose()?;
        let view = View::begin(is_live(show), &leave).or_else(|error| {
            leave_what_is_not_shown(error, stdout().is_terminal(), &leave).map(|()| View::nothing())
        })?;
        Ok(Self {
            leave,
            addresses: Vec::new(),
            how_to_begin: Vec::new(),
            services,
            metrics,
            observer,
            view,
            dead_letters,
        })
    }

    /// Looks at everything once, and shows it.
    pub(crate) fn look(&mut self, state: &str, published: Option<u64>) -> Result<Snapshot, DevError> {
        let running = self.services.check();
        // Looked at after it: what made a service end is on this page, and says more than that it has ended.
        let page = self.page();
        refuse_overrun(&page)?;
        running?;
        let now = Instant::now();
        let mut snapshot = self.observer.observe(page, now);
        if let Some(dead_letters) = &self.dead_letters {
            snapshot.add_causes(dead_letters.causes(now));
        }
        state.clone_into(&mut snapshot.state);
        snapshot.addresses.clone_from(&self.addresses);
        if snapshot.nothing_has_come() {
            snapshot.how_to_begin.clone_from(&self.how_to_begin);
        }
        snapshot.published = published;
        if let Err(error) = self.view.show(&snapshot) {
            self.view = View::nothing();
            leave_what_is_not_shown(error, stdout().is_terminal(), &self.leave)?;
        }
        Ok(snapshot)
    }

    /// Waits until all services are ready; says no if somebody wants to leave first.
    pub(crate) async fn until_ready(&mut self) -> Result<bool, DevError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.look("starting", None)?;
            let reasons = self.services.not_ready();
            if reasons.is_empty() {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Err(DevError::NotReady { within: READY_WITHIN, reasons: reasons.join("; ") });
            }
            if self.tick(Wish::Leave).await >= Wish::Leave {
                return Ok(false);
            }
        }
    }

    /// Waits a moment, or until somebody wishes to leave at least so urgently.
    pub(crate) async fn tick(&self, wakes: Wish) -> Wish {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = self.leave.wait_for(wakes) => {}
        }
        self.leave.now()
    }

    /// What the services say of themselves now.
    pub(crate) fn page(&self) -> Page {
        Page::parse(&self.metrics.render())
    }

    /// Ends the session, whatever came of it; an error that came first is the one that counts.
    pub(crate) async fn end_after<T>(
        mut self,
        result: Result<T, DevError>,
    ) -> Result<(T, Way, Page), DevError> {
        match result {
            Ok(value) => self.end().await.map(|(way, page)| (value, way, page)),
            Err(error) => {
                self.view = View::nothing();
                if tokio::time::timeout(FAILED_WITHIN, self.end()).await.is_err() {
                    tracing::info!("not waited for: jobs that still ran when it failed");
                }
                Err(error)
            }
        }
    }

    /// Stops the services, and gives the screen back; returns what they had said last. A second wish to leave cuts it short.
    async fn end(self) -> Result<(Way, Page), DevError> {
        let Self { leave, services, metrics, view, .. } = self;
        let way = tokio::select! {
            stopped = services.stop() => stopped.map(|()| Way::InOrder)?,
            () = leave.wait_for(Wish::Now) => Way::AtOnce,
        };
        drop(view);
        let page = Page::parse(&metrics.render());
        refuse_overrun(&page)?;
        Ok((way, page))
    }
}

/// Records that were dropped before they were read make every sum wrong.
pub(crate) fn refuse_overrun(page: &Page) -> Result<(), DevError> {
    let lost = page.by("topic", events::OUT_OF_RANGE, &[]);
    let lost: Vec<String> =
        lost.into_iter().filter(|(_, count)| *count > 0).map(|(topic, _)| topic).collect();
    if lost.is_empty() { Ok(()) } else { Err(DevError::Overrun { what: lost.join(", ") }) }
}

/// Registers the schemas of the shop; returns their ids, in the order of [`CLASSES`].
pub(crate) async fn register_schemas(config: &Config) -> Result<[u32; 3], DevError> {
    let registry = wiring::registry(config)
        .map_err(|source| DevError::Service { service: "the schema registry".to_owned(), source })?;
    let mut ids = [0; 3];
    for (id, class) in ids.iter_mut().zip(&CLASSES) {
        let subject = value_subject(class.topic);
        let registered = registry.register(&subject, class.schema).await;
        *id = registered.map_err(|error| DevError::Publish(error.to_string()))?;
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn only_a_terminal_that_is_closed_is_a_wish_and_no_failure() {
        let closed = || DevError::Draw(Error::from_raw_os_error(libc::EIO));
        let other = || DevError::Draw(ErrorKind::WouldBlock.into());
        for (error, is_terminal) in [(closed(), true), (closed(), false), (other(), false)] {
            let leave = Leave::default();
            assert!(leave_what_is_not_shown(error, is_terminal, &leave).is_ok());
            assert_eq!(leave.now(), Wish::Leave);
        }
        let leave = Leave::default();
        let failed = leave_what_is_not_shown(other(), true, &leave).unwrap_err();
        assert_eq!((leave.now(), failed.exit_code() as u8), (Wish::Stay, 1));
        assert!(failed.to_string().contains("--plain"), "{failed}");
    }

    #[test]
    fn a_folder_that_is_still_written_to_is_gone_in_the_end_and_does_not_come_back() {
        let folder = Folder::new().unwrap();
        let path = folder.path().to_owned();
        let (store, rounds, written) =
            (folder.state().join("critical"), AtomicU64::new(0), AtomicU64::new(0));
        let until = |counter: &AtomicU64, more: u64| {
            let goal = counter.load(Ordering::Acquire) + more;
            while counter.load(Ordering::Acquire) < goal {
                std::thread::yield_now();
            }
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let round = rounds.fetch_add(1, Ordering::AcqRel);
                    // As a store does that is opened: it makes its own folder where it is missing.
                    drop(std::fs::create_dir(&store));
                    if std::fs::write(store.join(round.to_string()), "a mark").is_ok() {
                        written.fetch_add(1, Ordering::AcqRel);
                    }
                }
            });
            until(&written, 10);
            folder.end(true);
            let is_gone = !path.exists();
            until(&rounds, 100);
            stop.store(true, Ordering::Release);
            assert!(is_gone && !path.exists());
        });
    }

    #[test]
    fn a_position_out_of_range_is_an_error_that_names_the_topic() {
        let page = |count: u32| {
            Page::parse(&format!("tidegate_offset_out_of_range_total{{topic=\"shop.payments\"}} {count}"))
        };
        assert!(refuse_overrun(&page(0)).is_ok());
        let refused = refuse_overrun(&page(1)).unwrap_err();
        assert!(refused.to_string().contains("shop.payments"), "{refused}");
        assert_eq!(refused.exit_code(), tidegate_bootstrap::ExitCode::Failed);
    }
}
