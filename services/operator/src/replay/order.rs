//! Giving an order: it is appended to the journal, read back, and only what is read as accepted counts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rusqlite::params;
use serde::Serialize;
use tidegate_domain::inbox::{RampLimits, RunId, State};
use tidegate_domain::{Offset, Partition, Round, UnixMillis};
use tidegate_kafka::{Fatal, Publisher};
use tidegate_pipeline::journal::{self, Actions, Entry, Ordered, RunEntry, RunPlan, RunStep, chunks};
use tidegate_pipeline::ports::{PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::{Inbox as Answers, Wake};

use super::selection::{Selected, Snapshot};
use crate::error::OperatorError;
use crate::inbox::{Inbox, now};
use crate::index::Follower;

/// How many bytes of items one record of the journal has at most.
const CHUNK_BYTES: usize = 512 << 10;
/// How long an acknowledgement may take.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(40);
/// How long it may take until what was appended is read back.
const READ_BACK_WITHIN: Duration = Duration::from_secs(60);

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ordering {
    /// Run items again, at this pace. Forced: also those that are done.
    Replay {
        /// Also if a key is done.
        forced: bool,
        /// How fast.
        pace: Pace,
    },
    /// Nothing is to be done.
    Discard,
    /// Take back a discard, or no longer wait for a replay.
    Reopen,
}

/// How fast a replay goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// So many records a second at most; none: as fast as it goes.
    pub rate: Option<f64>,
    /// How it climbs, and what stops it.
    pub ramp: RampLimits,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rate: None, ramp: RampLimits::CANARY }
    }
}

impl Ordering {
    /// Whether it may be given for an item in this state.
    pub fn fits(self, state: State) -> bool {
        match self {
            Self::Replay { forced: true, .. } => state.needs_attention() || state.is_done(),
            Self::Replay { forced: false, .. } | Self::Discard => state.needs_attention(),
            Self::Reopen => matches!(state, State::Discarded | State::Replaying),
        }
    }

    fn in_journal(self) -> journal::Order {
        match self {
            Self::Replay { forced, .. } => journal::Order::Replay { forced },
            Self::Discard => journal::Order::Discard,
            Self::Reopen => journal::Order::Reopen,
        }
    }
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The run that all of it belongs to, 16 hex digits.
    #[serde(serialize_with = "as_text")]
    pub run: RunId,
    /// For how many items it counts.
    pub accepted: u64,
    /// For how many it does not, by reason: `stale` where somebody else was faster.
    pub refused: BTreeMap<String, u64>,
}

fn as_text<S: serde::Serializer>(run: &RunId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(run)
}

/// The journal, as one writes it.
pub(crate) struct Journal {
    publisher: Publisher,
    topic: tidegate_domain::Topic,
}

impl Journal {
    /// Appends an entry, and tells where it stands.
    pub(crate) fn append(&self, entry: &Entry) -> Result<Offset, OperatorError> {
        let (key, value) = (entry.key(), entry.write());
        let record = OutboundRecord {
            topic: &self.topic,
            partition: Some(Partition(0)),
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        let answers = Answers::new(Wake::default());
        let refused = |error: PublishError| {
            OperatorError::Failed(format!(
                "the journal can't be written: {error}; what was appended before counts, `tidegate dlq history` shows it"
            ))
        };
        self.publisher.publish(&record, Ticket(0), &answers).map_err(refused)?;
        let began = Instant::now();
        let mut taken = Vec::new();
        while began.elapsed() < ACKNOWLEDGED_WITHIN {
            answers.take(&mut taken);
            if let Some((_, answer)) = taken.pop() {
                return answer.map(|acknowledged| acknowledged.offset).map_err(refused);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(refused(PublishError::Unavailable("no acknowledgement in time".to_owned())))
    }

    /// Appends a step of a run.
    pub(crate) fn step(&self, run: RunId, by: &str, step: RunStep) -> Result<Offset, OperatorError> {
        self.append(&Entry::Run(RunEntry { run, by: by.to_owned(), at: UnixMillis(now()), step }))
    }
}

/// Keeps the index up to date for as long as it lives, or waits for the process that does.
pub(crate) struct Session<'a> {
    inbox: &'a Inbox,
    follower: Option<Follower>,
    looked: Instant,
}

impl<'a> Session<'a> {
    pub(crate) fn begin(inbox: &'a Inbox) -> Result<Self, OperatorError> {
        Ok(Self { inbox, follower: inbox.follower()?, looked: Instant::now() })
    }

    /// Brings the journal's part up to date, where it is this one's to do; now and then all of it.
    pub(crate) fn refresh(&mut self) -> Result<(), OperatorError> {
        let is_due = self.looked.elapsed() > Duration::from_secs(1);
        if is_due {
            self.looked = Instant::now();
        }
        match (&mut self.follower, is_due) {
            (Some(follower), true) => follower.catch_up(&mut |_| ControlFlow::Continue(())).map(drop),
            (Some(follower), false) => follower.catch_up_with_journal(),
            (None, true) => {
                self.follower = self.inbox.follower()?;
                Ok(())
            }
            (None, false) => Ok(()),
        }
    }

    /// Waits until the entry at `offset` is in the index.
    pub(crate) fn read_back(&mut self, offset: Offset) -> Result<(), OperatorError> {
        let began = Instant::now();
        while self.inbox.journal_position()? <= offset.0 {
            if began.elapsed() > READ_BACK_WITHIN {
                return Err(OperatorError::Stalled);
            }
            self.refresh()?;
            if self.follower.is_none() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Inbox {
    /// Orders something about all items of a snapshot, in the name of `by`, and tells for how many it counts. A discard and a forced
    /// replay need a reason. A replay is carried out by [`Inbox::carry_out`].
    pub fn order(
        &self,
        snapshot: &Snapshot,
        ordering: Ordering,
        by: &str,
        reason: Option<&str>,
    ) -> Result<Outcome, OperatorError> {
        self.order_with(snapshot, ordering, by, reason, None)
    }

    pub(super) fn order_with(
        &self,
        snapshot: &Snapshot,
        ordering: Ordering,
        by: &str,
        reason: Option<&str>,
        edited: Option<Vec<u8>>,
    ) -> Result<Outcome, OperatorError> {
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
        let needs_reason = matches!(ordering, Ordering::Discard | Ordering::Replay { forced: true, .. });
        if needs_reason && reason.is_none() {
            return Err(OperatorError::Request(
                "a discard and a forced replay need a reason: it is kept in the journal".to_owned(),
            ));
        }
        let run = RunId(rand::random());
        let is_replay = matches!(ordering, Ordering::Replay { .. });
        let ordered = |selected: &Selected| Ordered {
            id: selected.id(),
            seen: selected.seen,
            round: if is_replay { selected.next_round } else { Round(0) },
            edited: edited.clone(),
        };
        let most = CHUNK_BYTES.min(self.shared.kafka.max_message_bytes / 2);
        let chunks = chunks(snapshot.items.iter().map(ordered).collect(), most);
        let journal = self.journal()?;
        let pace = if let Ordering::Replay { pace, .. } = ordering { Some(pace) } else { None };
        let plan = RunPlan {
            order: ordering.in_journal(),
            total: snapshot.items.len() as u64,
            chunks: u32::try_from(chunks.len()).unwrap_or(u32::MAX),
            selection: snapshot.selection.text(),
            rate: pace.and_then(|pace| pace.rate),
            ramp: pace.map(|pace| pace.ramp),
        };
        let mut session = Session::begin(self)?;
        let mut last = journal.step(run, by, RunStep::Begin(plan))?;
        for (chunk, items) in (0..).zip(chunks) {
            last = journal.append(&Entry::Actions(Actions {
                run,
                by: by.to_owned(),
                at: UnixMillis(now()),
                chunk,
                order: ordering.in_journal(),
                reason: reason.map(str::to_owned),
                items,
            }))?;
        }
        session.read_back(last)?;
        let outcome = self.verdicts(run)?;
        if !is_replay || outcome.accepted == 0 {
            last = journal.step(run, by, RunStep::Finish)?;
            session.read_back(last)?;
        }
        Ok(outcome)
    }

    /// For how many items of a run the order counts.
    fn verdicts(&self, run: RunId) -> Result<Outcome, OperatorError> {
        let counts = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT void, count(*) FROM entries WHERE run = ?1 AND what IN ('replay', 'discard', 'reopen') GROUP BY void",
            )?;
            let rows = statement.query_map(params![run.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<Vec<(Option<String>, i64)>>>()?)
        })?;
        let mut outcome = Outcome { run, accepted: 0, refused: BTreeMap::new() };
        for (void, count) in counts.unwrap_or_default() {
            let count = u64::try_from(count).unwrap_or(0);
            match void {
                None => outcome.accepted = count,
                Some(void) => {
                    outcome.refused.insert(void, count);
                }
            }
        }
        Ok(outcome)
    }

    /// Publishes no more of a run until it is resumed.
    pub fn pause(&self, run: RunId, by: &str) -> Result<(), OperatorError> {
        self.append_step(run, by, RunStep::Pause)
    }

    /// Lets a run go on after a pause, or begin its ramp anew after a stop. Whoever carries it out sees it.
    pub fn resume(&self, run: RunId, by: &str) -> Result<(), OperatorError> {
        self.append_step(run, by, RunStep::Resume)
    }

    /// Ends a run before its end. What is published already goes on.
    pub fn stop(&self, run: RunId, by: &str, why: &str) -> Result<(), OperatorError> {
        self.append_step(run, by, RunStep::Stop { why: why.to_owned() })
    }

    fn append_step(&self, run: RunId, by: &str, step: RunStep) -> Result<(), OperatorError> {
        let mut session = Session::begin(self)?;
        let offset = self.journal()?.step(run, by, step)?;
        session.read_back(offset)
    }

    /// Writes down what an operator did that changes no item: that masked fields were shown, or originals exported.
    pub fn audit(
        &self,
        by: &str,
        what: &str,
        id: Option<tidegate_domain::inbox::ItemId>,
        detail: Option<&str>,
    ) -> Result<(), OperatorError> {
        let detail = detail.map(str::to_owned);
        let audit =
            journal::Audit { by: by.to_owned(), at: UnixMillis(now()), what: what.to_owned(), id, detail };
        self.journal()?.append(&Entry::Audit(audit)).map(drop)
    }

    pub(crate) fn journal(&self) -> Result<Journal, OperatorError> {
        let publisher = Publisher::new(&self.shared.kafka, Fatal::default())?;
        Ok(Journal { publisher, topic: self.shared.names.dlq_journal() })
    }

    /// Everything of the journal below it is in the index.
    pub(super) fn journal_position(&self) -> Result<i64, OperatorError> {
        let sql = "SELECT coalesce(max(next), 0) FROM positions WHERE log = 'journal'";
        Ok(self.view(|view| Ok(view.connection.query_row(sql, [], |row| row.get(0))?))?.unwrap_or(0))
    }
}
