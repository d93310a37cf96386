//! Threads that carry runs out, one for each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_domain::inbox::RunId;
use tidegate_operator::{Inbox, Needed, OperatorError, Progress, Run, RunEnd, RunProgress, RunStatus};
use tracing::{info, warn};

use crate::inbox::Step;

/// In whose name a run stops by itself.
const NAME: &str = "console";
/// How long after a failure a run is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// So many runs at most are looked through for those that go on.
const LATEST: usize = 1000;
/// How often it is looked for runs that nobody carries out.
const LOOK: Duration = Duration::from_secs(10);
/// After so many looks without a change a run is taken over: two who carry one out publish it twice, which does no harm, and no good.
const IDLE_LOOKS: u32 = 3;
/// How soon the threads end after a stop.
const TICK: Duration = Duration::from_millis(200);

/// How far a run is, as the thread that carries it out knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Sent, without an outcome yet.
    pub(super) under_way: u64,
    /// How many of those wait, and what a worker said last of one.
    pub(super) waiting: (u64, Option<String>),
    pub(super) steps: Vec<Step>,
    /// What had ended before the step under way.
    before: (u64, u64),
    /// A thread carries it out.
    pub(super) is_active: bool,
    /// Somebody asked for it while the thread was about to end: it looks again.
    again: bool,
}

impl Known {
    /// A ramp climbs when all outcomes of a step are in: so what had ended when a step is seen first ended in those before it.
    fn note(&mut self, progress: &RunProgress) {
        let (passed, failed) = (progress.passed as u64, progress.failed as u64);
        let step = usize::try_from(progress.step).unwrap_or(0);
        self.count(passed, failed);
        if step > self.steps.len() {
            self.before = (passed, failed);
            self.steps.resize(step, Step::default());
        }
        if let Some(last) = self.steps.last_mut() {
            last.items = progress.step_items as u64;
        }
        self.under_way = progress.outstanding as u64;
        self.waiting = (progress.waiting as u64, progress.waits_for.clone());
    }

    fn count(&mut self, passed: u64, failed: u64) {
        if let Some(last) = self.steps.last_mut() {
            last.passed = passed.saturating_sub(self.before.0);
            last.failed = failed.saturating_sub(self.before.1);
        }
    }
}

/// All threads, of all clones. They end at the next occasion after a stop; whoever starts next goes on with their runs.
#[derive(Clone, Debug)]
pub(super) struct Carriers {
    inbox: Inbox,
    stop: Arc<AtomicBool>,
    known: Arc<Mutex<BTreeMap<RunId, Known>>>,
}

impl Carriers {
    pub(super) fn new(inbox: Inbox) -> Self {
        Self { inbox, stop: Arc::default(), known: Arc::default() }
    }

    /// What is known of a run that this console carries out, or did.
    pub(super) fn known(&self, run: RunId) -> Option<Known> {
        self.known.lock().get(&run).cloned()
    }

    /// Goes on with every run that has not ended, as soon as the index has what Kafka has; and from then on with those of which nothing
    /// comes: whoever carried them out may be gone, or nobody did.
    pub(super) fn go_on_with_all(&self) {
        let carriers = self.clone();
        let thread =
            std::thread::Builder::new().name("runs".to_owned()).spawn(move || carriers.look_for_runs());
        if let Err(error) = thread {
            warn!(%error, "no thread to go on with runs: resume them by hand");
        }
    }

    fn look_for_runs(&self) {
        // Whoever carried them out before this console began may have been this console.
        let mut looks = Looks::default();
        let mut is_first = true;
        while !self.stop.load(Ordering::Relaxed) {
            match self.runs() {
                Ok(runs) => {
                    let idle = looks.idle(&runs);
                    let taken = runs.iter().filter(|run| is_first || idle.contains(&run.run));
                    taken.for_each(|run| self.go_on_with(run));
                    is_first = false;
                    self.rest(LOOK);
                }
                Err(error) => {
                    warn!(%error, "runs that may have to go on can't be looked for; it is tried again");
                    self.rest(PAUSE);
                }
            }
        }
    }

    fn runs(&self) -> Result<Vec<Run>, OperatorError> {
        let stop = || self.stop.load(Ordering::Relaxed);
        let mut each = |_: Progress| if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        self.inbox.catch_up(Needed::Items, &mut each)?;
        self.inbox.runs(LATEST)
    }

    /// Sleeps, until it is to stop.
    fn rest(&self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
        }
    }

    fn go_on_with(&self, run: &Run) {
        if let (true, Some(id)) = (goes_on(run), RunId::parse(&run.run)) {
            let is_new = self.known(id).is_none_or(|known| !known.is_active);
            if is_new {
                info!(run = run.run, "going on with a run");
                self.begin(id);
            }
        }
    }

    /// Has all threads end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Carries a run out, unless that is under way already.
    pub(super) fn begin(&self, run: RunId) {
        let mut known = self.known.lock();
        if let Some(known) = known.get_mut(&run).filter(|known| known.is_active) {
            known.again = true;
            return;
        }
        known.insert(run, Known { is_active: true, ..Known::default() });
        let carrier =
            Carrier { inbox: self.inbox.clone(), stop: self.stop.clone(), known: self.known.clone(), run };
        let thread = std::thread::Builder::new().name("run".to_owned()).spawn(move || carrier.carry());
        if let Err(error) = thread {
            known.remove(&run);
            warn!(%run, %error, "no thread for a run: resume it to try again");
        }
    }
}

struct Carrier {
    inbox: Inbox,
    stop: Arc<AtomicBool>,
    known: Arc<Mutex<BTreeMap<RunId, Known>>>,
    run: RunId,
}

impl Carrier {
    fn carry(self) {
        loop {
            self.see_through();
            let mut known = self.known.lock();
            let Some(known) = known.get_mut(&self.run) else { return };
            // Decided and told under one lock: whoever asks for the run now either finds the flag still read, or no thread.
            if !std::mem::take(&mut known.again) || self.stop.load(Ordering::Relaxed) {
                known.is_active = false;
                (known.under_way, known.waiting) = (0, (0, None));
                return;
            }
        }
    }

    fn see_through(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut each = |progress: &RunProgress| {
                if let Some(known) = self.known.lock().get_mut(&self.run) {
                    known.note(progress);
                }
                if self.stop.load(Ordering::Relaxed) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            match self.inbox.carry_out(self.run, NAME, &mut each) {
                Ok(RunEnd::Finished | RunEnd::Stopped(_) | RunEnd::Left) => break,
                Err(OperatorError::Request(error)) => {
                    warn!(run = %self.run, error, "a run can't be carried out");
                    break;
                }
                Err(error) => {
                    warn!(run = %self.run, %error, "a run is held up; it is tried again");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// A run of replays that somebody should carry out.
fn goes_on(run: &Run) -> bool {
    run.what == "replay" && matches!(run.status, RunStatus::Running | RunStatus::Paused)
}

/// How each run stood when it was looked at last, and how often it was so before.
#[derive(Debug, Default)]
struct Looks(BTreeMap<String, (Run, u32)>);

impl Looks {
    /// The runs that are to go on and of which nothing came for some looks: whoever carried them out may be gone. Of one that an operator
    /// paused nothing is to come, so it waits for its resumption.
    fn idle(&mut self, runs: &[Run]) -> BTreeSet<String> {
        let looked = |run: &Run| {
            let known = self.0.get(&run.run).filter(|(known, _)| known == run);
            (run.run.clone(), (run.clone(), known.map_or(0, |(_, looks)| looks + 1)))
        };
        let running = runs.iter().filter(|run| goes_on(run) && run.status == RunStatus::Running);
        let now: BTreeMap<_, _> = running.map(looked).collect();
        self.0 = now;
        let idle = self.0.iter().filter(|(_, (_, looks))| *looks >= IDLE_LOOKS);
        idle.map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(step: u32, step_items: usize, passed: usize, failed: usize) -> RunProgress {
        RunProgress { step, step_items, passed, failed, outstanding: 2, ..RunProgress::default() }
    }

    #[test]
    fn what_ended_is_told_by_the_step_that_it_belongs_to() {
        let mut known = Known::default();
        for (step, items, passed, failed) in
            [(1, 1, 0, 0), (2, 5, 1, 0), (2, 5, 3, 0), (3, 25, 5, 1), (3, 25, 20, 3)]
        {
            known.note(&progress(step, items, passed, failed));
        }
        let steps: Vec<_> = known.steps.iter().map(|step| (step.items, step.passed, step.failed)).collect();
        assert_eq!(steps, [(1, 1, 0), (5, 4, 1), (25, 15, 2)]);
        assert_eq!(known.under_way, 2);
    }

    fn run(name: &str, status: RunStatus, passed: u64) -> Run {
        Run {
            run: name.to_owned(),
            what: "replay".to_owned(),
            forced: false,
            begun_at: 1,
            time: 1,
            by: "ann".to_owned(),
            selection: String::new(),
            total: 9,
            status,
            why: None,
            changed_at: 1,
            changed_by: "ann".to_owned(),
            rate: None,
            accepted: 9,
            refused: 0,
            passed,
            failed: 0,
            pending: 9 - passed,
            released: 0,
            ramp: None,
            journal: tidegate_operator::RunPlace::default(),
        }
    }

    #[test]
    fn a_run_of_which_nothing_comes_for_some_looks_is_taken_over() {
        let mut looks = Looks::default();
        let running = RunStatus::Running;
        let mut look = |runs: &[Run]| looks.idle(runs).into_iter().collect::<Vec<_>>().join(" ");
        let paused = run("c", RunStatus::Paused, 1);
        for passed in 0..IDLE_LOOKS.into() {
            assert_eq!(look(&[run("a", running, passed), run("b", running, 1), paused.clone()]), "");
        }
        assert_eq!(look(&[run("a", running, 9), run("b", running, 1), paused.clone()]), "b");
        assert_eq!(look(&[run("a", running, 9), run("b", RunStatus::Finished, 9), paused]), "");
    }

    #[test]
    fn a_run_that_is_asked_for_while_its_thread_is_about_to_end_is_looked_at_again() {
        let known =
            Arc::new(Mutex::new(BTreeMap::from([(RunId(1), Known { is_active: true, ..Known::default() })])));
        let inbox = Inbox::open(Arc::new(config()), Some(tempfile::tempdir().unwrap().path())).unwrap();
        let carriers = Carriers { inbox, stop: Arc::default(), known: known.clone() };
        carriers.begin(RunId(1));
        assert!(known.lock()[&RunId(1)].again, "its thread sees that before it ends");
    }

    fn config() -> tidegate_bootstrap::Config {
        let text = "[pipeline]\nname = \"test\"\n[kafka]\nbootstrap = \"127.0.0.1:1\"\n[registry]\nurl = \"http://127.0.0.1:1\"\n\
                    [sources.orders]\nstart = \"earliest\"\n[classes.charge]\nsource = \"orders\"\nkey = [\"id\"]\nhandler = { type = \"log\" }\n";
        tidegate_bootstrap::Config::parse("test", text, std::iter::empty()).unwrap()
    }
}
