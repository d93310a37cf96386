//! Carrying out a run of replays. What is to be published is told by the journal alone, so whoever carries a run out, and however
//! often, publishes the same; workers run each record once a round.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_domain::inbox::RunId;
use tidegate_domain::{Topic, UnixMillis};
use tidegate_kafka::{Fatal, Publisher};
use tidegate_pipeline::journal::RunStep;

use super::course::{Course, Doubt, Turn};
use super::order::{Journal, Session};
use super::queues::Queues;
use crate::error::OperatorError;
use crate::inbox::{Inbox, now};
use crate::runs::Run;

/// How long to wait where nothing is to be done now.
const PAUSE: Duration = Duration::from_millis(50);

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunProgress {
    /// How many items it replays; none as long as not all of its orders are there.
    pub items: usize,
    /// How many records this process has published of it.
    pub published: u64,
    /// How many replays passed.
    pub passed: usize,
    /// How many failed again.
    pub failed: usize,
    /// How many were given up.
    pub withdrawn: usize,
    /// How many are published and have no outcome yet.
    pub outstanding: usize,
    /// How many of those wait, by what a worker said of them last, or behind records that workers get through: the run waits with them.
    pub waiting: usize,
    /// What was said last of one that waits: that its class is parked, what failed, or behind what it stands.
    pub waits_for: Option<String>,
    /// The step of the ramp, from 1.
    pub step: u32,
    /// How many items the step has.
    pub step_items: usize,
    /// It is paused.
    pub paused: bool,
}

/// How carrying out a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunEnd {
    /// Every item has its end.
    Finished,
    /// It stopped: by itself, or an operator stopped it.
    Stopped(String),
    /// The caller broke it off. Whoever carries it out again goes on.
    Left,
}

pub(super) struct Runner<'a> {
    pub(super) inbox: &'a Inbox,
    pub(super) run: RunId,
    pub(super) by: &'a str,
    session: Session<'a>,
    pub(super) journal: Journal,
    pub(super) publisher: Publisher,
    partitions: BTreeMap<String, u32>,
    pub(super) course: Course<'a>,
    pub(super) queues: Queues,
    pub(super) rate: Option<f64>,
    pub(super) published: u64,
    /// When the next record may be published.
    pub(super) next_at: Instant,
}

impl Inbox {
    /// Carries a run of replays out until it ends. `each` is told how far it is, and may break it off; another process, or a later call,
    /// goes on then.
    pub fn carry_out(
        &self,
        run: RunId,
        by: &str,
        each: &mut dyn FnMut(&RunProgress) -> ControlFlow<()>,
    ) -> Result<RunEnd, OperatorError> {
        let mut session = Session::begin(self)?;
        session.refresh()?;
        let Some(found) = self.run(run)? else {
            return Err(OperatorError::Request(format!(
                "there is no run {run}: `tidegate dlq history` lists them"
            )));
        };
        if found.what != "replay" {
            return Err(OperatorError::Request(format!(
                "run {run} is a {}: its orders count as they are, there is nothing to carry out",
                found.what
            )));
        }
        let mut runner = Runner::begin(self, session, &found, (run, by))?;
        runner.go(each)
    }
}

impl<'a> Runner<'a> {
    fn begin(
        inbox: &'a Inbox,
        session: Session<'a>,
        found: &Run,
        (run, by): (RunId, &'a str),
    ) -> Result<Self, OperatorError> {
        let topics = inbox.cluster()?.topics()?;
        Ok(Self {
            course: Course::new(inbox, found, run),
            inbox,
            run,
            by,
            session,
            journal: inbox.journal()?,
            publisher: Publisher::new(&inbox.shared.kafka, Fatal::default())?,
            queues: Queues::new(inbox.shared.kafka.clone(), inbox.shared.names.clone()),
            partitions: topics.into_iter().map(|(name, topic)| (name, topic.partitions)).collect(),
            rate: found.rate,
            published: 0,
            next_at: Instant::now(),
        })
    }

    fn go(&mut self, each: &mut dyn FnMut(&RunProgress) -> ControlFlow<()>) -> Result<RunEnd, OperatorError> {
        loop {
            self.session.refresh()?;
            // One time for both: what is missed at the turn must have been looked at.
            let at = UnixMillis(now());
            self.look_at_queues(at)?;
            let turn = self.course.turn(at, self.most())?;
            let progress = RunProgress { published: self.published, ..self.course.progress() };
            if each(&progress).is_break() {
                return Ok(RunEnd::Left);
            }
            match turn {
                Turn::Publish(due) => self.publish(&due)?,
                // An index that lags behind knows nothing of the author's silence.
                Turn::Append(RunStep::Close) if !self.session.has_all()? => std::thread::sleep(PAUSE),
                Turn::Append(step) => {
                    let offset = self.journal.step(self.run, self.by, step.clone())?;
                    self.course.stepped(&step, offset);
                }
                Turn::Wait | Turn::Paused => std::thread::sleep(PAUSE),
                Turn::Ended(end) => return Ok(end),
            }
        }
    }

    /// Looks whether what would be missed stands behind others that are got through, and waits with it then.
    fn look_at_queues(&mut self, at: UnixMillis) -> Result<(), OperatorError> {
        let doubt = self.course.doubt(at, self.queues.looked_at)?;
        if matches!(doubt, Doubt::None) {
            return Ok(());
        }
        if let Err(error) = self.queues.look(at) {
            tracing::warn!(%error, "not known whether replays wait behind other records: they are missed when their time is over");
        }
        if let Doubt::Now(numbers, items) = doubt {
            let seen = self.queues.behind(&items, self.course.patient_since(at));
            self.course.seen(&numbers, seen, at);
            // What came while it was looked counts before anything is missed.
            self.session.refresh()?;
        }
        Ok(())
    }

    pub(super) fn partitions_of(&self, topic: &Topic) -> Option<u32> {
        self.partitions.get(topic.as_str()).copied()
    }
}
