//! Carrying out a run of replays. What is to be published is told by the journal alone, so whoever carries a run out, and however
//! often, publishes the same; workers run each record once a round.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, params};
use rustc_hash::FxHashMap;
use serde::Serialize;
use tidegate_domain::inbox::{Answer, End, Item, Move, Ramp, RampLimits, RunId, State};
use tidegate_domain::{Offset, Topic, UnixMillis};
use tidegate_kafka::{Fatal, Publisher};
use tidegate_pipeline::journal::RunStep;

use super::order::{Journal, Session};
use crate::error::OperatorError;
use crate::inbox::{Inbox, now};
use crate::index::read_folded;
use crate::reference::ItemRef;
use crate::runs::{Run, RunStatus};

/// How long to wait where nothing is to be done now.
const PAUSE: Duration = Duration::from_millis(50);

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunProgress {
    /// How many items it replays.
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

/// One item's replay in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) item: ItemRef,
    /// Its order in the journal, and which of that record's items it is.
    pub(super) at: i64,
    pub(super) number: i64,
}

/// Where a replay stands.
enum Standing {
    Unheard,
    Heard(Answer),
    Ended(End),
}

pub(super) struct Runner<'a> {
    pub(super) inbox: &'a Inbox,
    run: RunId,
    by: &'a str,
    session: Session<'a>,
    journal: Journal,
    pub(super) publisher: Publisher,
    pub(super) partitions: BTreeMap<String, u32>,
    pub(super) places: Vec<Place>,
    place_of: FxHashMap<u64, usize>,
    pub(super) ramp: Ramp,
    pub(super) rate: Option<f64>,
    /// Everything of the journal below it was heard.
    heard: i64,
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
        let places = inbox.places(run, found.from_at.filter(|from| *from > found.begun_at))?;
        let place_of = places.iter().enumerate().map(|(n, place)| (place.item.0, n)).collect();
        let limits = found.ramp.unwrap_or(RampLimits::ALL_AT_ONCE);
        Ok(Self {
            ramp: Ramp::new(limits, places.len()),
            inbox,
            run,
            by,
            session,
            journal: inbox.journal()?,
            publisher: Publisher::new(&inbox.shared.kafka, Fatal::default())?,
            partitions: topics.into_iter().map(|(name, topic)| (name, topic.partitions)).collect(),
            places,
            place_of,
            rate: found.rate,
            heard: -1,
            published: 0,
            next_at: Instant::now(),
        })
    }

    fn go(&mut self, each: &mut dyn FnMut(&RunProgress) -> ControlFlow<()>) -> Result<RunEnd, OperatorError> {
        self.hear_all()?;
        loop {
            self.session.refresh()?;
            self.hear()?;
            let Some(found) = self.inbox.run(self.run)? else { return Ok(RunEnd::Left) };
            match found.status {
                RunStatus::Running => self.ramp.go_on(UnixMillis(now())),
                RunStatus::Paused => self.ramp.pause(),
                RunStatus::Finished => return Ok(RunEnd::Finished),
                RunStatus::Stopped => return Ok(RunEnd::Stopped(found.why.unwrap_or_default())),
            }
            let next = self.ramp.next(UnixMillis(now()));
            if each(&self.progress(&next)).is_break() {
                return Ok(RunEnd::Left);
            }
            match next {
                Move::Publish(range) => self.publish(range)?,
                Move::Wait(_) | Move::Paused => std::thread::sleep(PAUSE),
                Move::Stopped(stop) => return self.end(RunStep::Stop { why: stop.to_string() }),
                Move::Finished => return self.end(RunStep::Finish),
            }
        }
    }

    fn end(&mut self, step: RunStep) -> Result<RunEnd, OperatorError> {
        let end = match &step {
            RunStep::Stop { why } => RunEnd::Stopped(why.clone()),
            _ => RunEnd::Finished,
        };
        let offset = self.journal.step(self.run, self.by, step)?;
        self.session.read_back(offset)?;
        Ok(end)
    }

    fn progress(&self, next: &Move) -> RunProgress {
        let (ends, (step, step_items)) = (self.ramp.ends(), self.ramp.step());
        RunProgress {
            items: self.places.len(),
            published: self.published,
            passed: ends.passed,
            failed: ends.failed,
            withdrawn: ends.withdrawn,
            outstanding: self.ramp.outstanding(),
            step,
            step_items,
            paused: matches!(next, Move::Paused),
        }
    }

    /// What the journal says of every item: at the beginning.
    fn hear_all(&mut self) -> Result<(), OperatorError> {
        self.heard = self.inbox.journal_position()? - 1;
        for number in 0..self.places.len() {
            self.look(number)?;
        }
        Ok(())
    }

    /// What the journal says that it did not say before.
    fn hear(&mut self) -> Result<(), OperatorError> {
        let (run, heard) = (self.run.0.cast_signed(), self.heard);
        let news = self.inbox.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT hash, at, what FROM entries WHERE run = ?1 AND at > ?2 ORDER BY at LIMIT 100000",
            )?;
            let rows = statement.query_map(params![run, heard], |row| {
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?, row.get(2)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<(u64, i64, String)>>>()?)
        })?;
        for (item, at, what) in news.unwrap_or_default() {
            self.heard = at;
            let Some(number) = self.place_of.get(&item).copied() else { continue };
            if what == Answer::Superseded.as_str() {
                self.ramp.heard(number, Answer::Superseded, UnixMillis(now()));
            }
            self.look(number)?;
        }
        Ok(())
    }

    fn look(&mut self, number: usize) -> Result<(), OperatorError> {
        let Some(place) = self.places.get(number) else { return Ok(()) };
        let folded = self.inbox.folded(place.item)?;
        match standing(&folded, Offset(place.at)) {
            Standing::Unheard => {}
            Standing::Heard(answer) => self.ramp.heard(number, answer, UnixMillis(now())),
            Standing::Ended(end) => self.ramp.ended(number, end),
        }
        Ok(())
    }

    /// Gives a replay up whose record is gone, in the name of the run.
    pub(super) fn withdraw(&mut self, item: ItemRef) -> Result<(), OperatorError> {
        use tidegate_pipeline::journal::{Actions, Entry, Order, Ordered};
        let id = self.inbox.view(|view| {
            let sql = "SELECT id, seen FROM folded WHERE hash = ?1";
            let found = view.connection.query_row(sql, [item.0.cast_signed()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?))
            });
            Ok(found.optional()?)
        })?;
        let Some((id, seen)) = id.flatten() else { return Ok(()) };
        let Ok(id) = id.parse() else { return Ok(()) };
        let items =
            vec![Ordered { id, seen: seen.map(Offset), round: tidegate_domain::Round(0), edited: None }];
        self.journal.append(&Entry::Actions(Actions {
            run: self.run,
            by: self.by.to_owned(),
            at: UnixMillis(now()),
            chunk: 0,
            order: Order::Reopen,
            reason: Some("no record of it exists any more: there is nothing to publish".to_owned()),
            items,
        }))?;
        Ok(())
    }
}

/// Where the replay that was ordered at `at` stands.
fn standing(item: &Item, at: Offset) -> Standing {
    let Some(replay) = item.replay.filter(|replay| replay.at == at) else {
        // Another replay was ordered since, so this one ended; how, says nothing about now.
        return Standing::Ended(End::Withdrawn);
    };
    let answer = item.answer.filter(|answer| answer.round >= replay.round).map(|outcome| outcome.answer);
    match (item.state, answer) {
        (State::Replaying, None) => Standing::Unheard,
        (State::Replaying, Some(answer)) => Standing::Heard(answer),
        (State::Resolved | State::AlreadyDone, _) => Standing::Ended(End::Passed),
        (State::FailedAgain, _) => Standing::Ended(End::Failed),
        (State::Open | State::Discarded, answer) => {
            Standing::Ended(answer.and_then(Answer::end).unwrap_or(End::Withdrawn))
        }
    }
}

impl Inbox {
    /// What the journal says of an item.
    pub(crate) fn folded(&self, item: ItemRef) -> Result<Item, OperatorError> {
        let found = self.view(|view| Ok(read_folded(view.connection, item)?))?.flatten();
        Ok(found.map(|(folded, _)| folded).unwrap_or_default())
    }

    /// The accepted replays of a run in their order; where it began anew at `from`, those that had no end by then.
    fn places(&self, run: RunId, from: Option<i64>) -> Result<Vec<Place>, OperatorError> {
        let places = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT hash, at, place FROM entries WHERE run = ?1 AND what = 'replay' AND void IS NULL ORDER BY at, place",
            )?;
            let rows = statement.query_map(params![run.0.cast_signed()], |row| {
                let item = ItemRef(row.get::<_, i64>(0)?.cast_unsigned());
                Ok(Place { item, at: row.get(1)?, number: row.get(2)? })
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        let mut places = places.unwrap_or_default();
        if let Some(from) = from {
            let mut open = Vec::with_capacity(places.len());
            for place in places {
                let folded = self.folded(place.item)?;
                let ended = matches!(standing(&folded, Offset(place.at)), Standing::Ended(_));
                if !ended || folded.seen.is_some_and(|seen| seen.0 > from) {
                    open.push(place);
                }
            }
            places = open;
        }
        Ok(places)
    }
}

impl Runner<'_> {
    pub(super) fn run_id(&self) -> RunId {
        self.run
    }

    pub(super) fn partitions_of(&self, topic: &Topic) -> Option<u32> {
        self.partitions.get(topic.as_str()).copied()
    }
}
