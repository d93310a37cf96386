//! Threads that carry runs out, one for each.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::inbox::RunId;
use tidegate_operator::{Inbox, Needed, OperatorError, Progress, Run, RunEnd, RunProgress, RunStatus};
use tracing::{info, warn};

use crate::inbox::Step;

/// In whose name a run stops by itself.
const NAME: &str = "console";
/// How long after a failure a run is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// So many runs at most are looked through at the start for those that go on.
const LATEST: usize = 1000;

/// How far a run is, as the thread that carries it out knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Sent, without an outcome yet.
    pub(super) under_way: u64,
    pub(super) steps: Vec<Step>,
    /// What had ended before the step under way.
    before: (u64, u64),
    is_active: bool,
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

    /// Goes on with every run that has not ended, as soon as the index has what Kafka has: whoever carried it out may be gone.
    pub(super) fn go_on_with_all(&self) {
        let carriers = self.clone();
        let thread =
            std::thread::Builder::new().name("runs".to_owned()).spawn(move || carriers.look_for_runs());
        if let Err(error) = thread {
            warn!(%error, "no thread to go on with runs: resume them by hand");
        }
    }

    fn look_for_runs(&self) {
        let stop = || self.stop.load(Ordering::Relaxed);
        let mut each = |_: Progress| if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        while !stop() {
            let looked = self.inbox.catch_up(Needed::Items, &mut each).and_then(|()| self.inbox.runs(LATEST));
            match looked {
                Ok(runs) => return runs.iter().for_each(|run| self.go_on_with(run)),
                Err(error) => {
                    warn!(%error, "runs that may have to go on can't be looked for; it is tried again");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn go_on_with(&self, run: &Run) {
        let goes_on = matches!(run.status, RunStatus::Running | RunStatus::Paused);
        if let (true, "replay", Some(id)) = (goes_on, run.what.as_str(), RunId::parse(&run.run)) {
            info!(run = run.run, "going on with a run");
            self.begin(id);
        }
    }

    /// Has all threads end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Carries a run out, unless that is under way already.
    pub(super) fn begin(&self, run: RunId) {
        let mut known = self.known.lock();
        if known.get(&run).is_some_and(|known| known.is_active) {
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
        if let Some(known) = self.known.lock().get_mut(&self.run) {
            known.is_active = false;
            known.under_way = 0;
        }
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
}
