//! Entries of the journal, folded into the index in the order of their offsets.

use rusqlite::params;
use tidegate_domain::inbox::{self, Entry as Folding, ItemId, Outcome, RunId, State, Void, fold};
use tidegate_domain::{Offset, UnixMillis};
use tidegate_pipeline::Record;
use tidegate_pipeline::journal::{Actions, Audit, Entry, Order, OutcomeEntry, RunEntry, RunPlan, RunStep};
use tracing::warn;

use super::folded;
use super::writer::Writer;
use crate::reference::ItemRef;

/// Where a record stands, and when it came there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: i64,
    pub(super) time: i64,
}

/// What stands about one item in one record.
pub(super) struct About<'a> {
    pub(super) id: &'a ItemId,
    pub(super) place: usize,
    pub(super) folding: Folding,
    /// Why it does not count, whatever the item is.
    pub(super) void: Option<Void>,
    pub(super) what: &'static str,
    pub(super) run: Option<RunId>,
    pub(super) author: Option<&'a str>,
    pub(super) detail: Option<String>,
}

impl Writer {
    /// Applies a record of the journal.
    pub(crate) fn entry(&mut self, record: &Record) -> rusqlite::Result<()> {
        self.begin()?;
        let place = Place { at: record.offset().0, time: record.timestamp().unwrap_or(UnixMillis(0)).0 };
        match Entry::read(record.value()) {
            Ok(Entry::Actions(actions)) => self.actions(place, &actions),
            Ok(Entry::Outcome(outcome)) => self.outcome(place, &outcome),
            Ok(Entry::Run(run)) => self.run(place, &run),
            Ok(Entry::Audit(audit)) => self.audit(place, &audit),
            Err(unread) => {
                warn!(offset = place.at, reason = %unread, "an entry of the journal is passed over");
                Ok(())
            }
        }
    }

    fn actions(&mut self, place: Place, actions: &Actions) -> rusqlite::Result<()> {
        let mut accepted = 0_i64;
        let void = self.refused(actions)?;
        for (number, (ordered, folding)) in actions.entries().enumerate() {
            let about = About {
                id: &ordered.id,
                place: number,
                folding,
                void,
                what: order_name(actions.order),
                run: Some(actions.run),
                author: Some(&actions.by),
                detail: actions.reason.clone(),
            };
            let counts = self.about(place, &about)?;
            self.runs.ordered(actions.run, actions.order, counts);
            accepted += i64::from(counts);
            if let Some(value) = &ordered.edited {
                let sql = "INSERT OR REPLACE INTO edits (at, place, value) VALUES (?1, ?2, ?3)";
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                self.connection.prepare_cached(sql)?.execute(params![place.at, number, value])?;
            }
        }
        let what = match actions.order {
            Order::Replay { forced: true } => "forced replay",
            order => order_name(order),
        };
        let only = match actions.items.as_slice() {
            [only] => Some(only.id.to_string()),
            _ => None,
        };
        let counts = (i64::try_from(actions.items.len()).unwrap_or(i64::MAX), accepted);
        let (run, reason) = (Some(actions.run), actions.reason.as_deref());
        self.remember(place, &actions.by, what, run, reason, counts, only.as_deref())
    }

    fn outcome(&mut self, place: Place, entry: &OutcomeEntry) -> rusqlite::Result<()> {
        let error = entry.error.as_ref();
        let error = error.map(|error| format!("{}/{}: {}", error.kind, error.code, error.message));
        let parked = entry.parked.as_ref().map(crate::parked::words);
        let about = About {
            id: &entry.id,
            place: 0,
            folding: entry.entry(),
            void: None,
            what: entry.outcome.answer.as_str(),
            run: None,
            author: entry.worker.as_deref(),
            detail: error.or(parked).or_else(|| entry.detail.clone()),
        };
        self.about(place, &about).map(drop)
    }

    /// Folds what stands about one item; whether it counts.
    pub(super) fn about(&mut self, place: Place, about: &About<'_>) -> rusqlite::Result<bool> {
        let item = ItemRef::of_id(about.id);
        let (mut folded, was_ended_at) = folded::read(&self.connection, item)?.unwrap_or_default();
        let before = folded;
        let void = match about.void {
            None => match fold(&mut folded, Offset(place.at), &about.folding) {
                inbox::Folded::Accepted => None,
                inbox::Folded::Void(void) => Some(void.as_str()),
            },
            Some(void) => Some(void.as_str()),
        };
        let is_of_run = matches!(about.folding, Folding::Release { .. } | Folding::Retake { .. });
        if is_of_run && void.is_some() {
            // Nobody said anything of this item: its run did.
            return Ok(false);
        }
        // A run that an item's replay belongs to is told by its entry: an outcome has none of its own.
        let run = about.run.or(before.replay.map(|replay| replay.run));
        let round = match about.folding {
            Folding::Action { action: inbox::Action::Replay { round, .. }, .. } => Some(round.0),
            Folding::Action { .. } | Folding::Release { .. } | Folding::Retake { .. } => None,
            Folding::Outcome(Outcome { round, .. }) => Some(round.0),
        };
        let mut statement = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO entries (hash, at, place, run, what, void, round, time, author, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        let number = i64::try_from(about.place).unwrap_or(i64::MAX);
        let (run, hash) = (run.map(|run| run.0.cast_signed()), item.0.cast_signed());
        let what = about.what;
        statement.execute(params![
            hash,
            place.at,
            number,
            run,
            what,
            void,
            round,
            place.time,
            about.author,
            about.detail
        ])?;
        drop(statement);
        if void.is_none() {
            let was = (&before, was_ended_at);
            let ended_at = self.ended(item, was, &folded, (&about.folding, place.time))?;
            folded::write(&self.connection, item, &about.id.to_string(), &(folded, ended_at))?;
            self.has_folded = true;
            self.runs.moved(&before, &folded);
            self.note_interruption(place, item, about.run, &before)?;
            if (before.state, was_ended_at) != (folded.state, ended_at) {
                self.move_item(item, &(folded, ended_at))?;
            }
        }
        Ok(void.is_none())
    }

    /// A run does not look at the orders of others, so what ends a replay of its is noted for it.
    fn note_interruption(
        &self,
        place: Place,
        item: ItemRef,
        by: Option<RunId>,
        before: &inbox::Item,
    ) -> rusqlite::Result<()> {
        let Some(replay) = before.replay.filter(|_| before.state == State::Replaying) else { return Ok(()) };
        if by.is_none_or(|by| by == replay.run) {
            return Ok(());
        }
        let sql = "INSERT OR IGNORE INTO interruptions (run, at, hash) VALUES (?1, ?2, ?3)";
        let values = params![replay.run.0.cast_signed(), place.at, item.0.cast_signed()];
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    fn run(&mut self, place: Place, entry: &RunEntry) -> rusqlite::Result<()> {
        let run = Some(entry.run);
        match &entry.step {
            RunStep::Begin(plan) => {
                self.begin_run(place, entry, plan)?;
                let items = i64::try_from(plan.total).unwrap_or(i64::MAX);
                self.remember(place, &entry.by, "begin", run, Some(&plan.selection), (items, 0), None)
            }
            step => self.step_run(place, entry, step),
        }
    }

    fn begin_run(&self, place: Place, entry: &RunEntry, plan: &RunPlan) -> rusqlite::Result<()> {
        // A run is drawn at random by its author: a second begin of it is nobody's.
        let mut statement = self.connection.prepare_cached(
            "INSERT OR IGNORE INTO runs (run, begun, time, author, what, forced, selection, total, chunks, rate, ramp,
             status, why, changed_at, changed_by, from_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'running', NULL, ?3, ?4, ?2)",
        )?;
        let ramp = plan.ramp.map(|ramp| crate::runs::ramp_text(&ramp));
        statement.execute(params![
            entry.run.0.cast_signed(),
            place.at,
            place.time,
            entry.by,
            order_name(plan.order),
            matches!(plan.order, Order::Replay { forced: true }),
            plan.selection,
            i64::try_from(plan.total).unwrap_or(i64::MAX),
            plan.chunks,
            plan.rate,
            ramp,
        ])?;
        Ok(())
    }

    fn audit(&mut self, place: Place, audit: &Audit) -> rusqlite::Result<()> {
        let id = audit.id.as_ref().map(ToString::to_string);
        let counts = (i64::from(id.is_some()), 0);
        self.remember(place, &audit.by, &audit.what, None, audit.detail.as_deref(), counts, id.as_deref())
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    pub(super) fn remember(
        &self,
        place: Place,
        author: &str,
        what: &str,
        run: Option<RunId>,
        reason: Option<&str>,
        (items, accepted): (i64, i64),
        id: Option<&str>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO history (at, time, author, what, run, reason, items, accepted, id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let run = run.map(|run| run.0.cast_signed());
        statement
            .execute(params![place.at, place.time, author, what, run, reason, items, accepted, id])
            .map(drop)
    }
}

/// The name of an order in lists.
pub(super) fn order_name(order: Order) -> &'static str {
    match order {
        Order::Replay { .. } => "replay",
        Order::Discard => "discard",
        Order::Reopen => "reopen",
    }
}
