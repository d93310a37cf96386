//! How runs stand: the steps of the journal, and what they make of the items of a run.

use rusqlite::{OptionalExtension, Row, params};
use tidegate_domain::inbox::{Effect, Entry as Folding, ItemId, RunId, RunState, Stage, Void};
use tidegate_pipeline::journal::{Actions, RunEntry, RunStep};

use super::journal::{About, Place, order_name};
use super::writer::Writer;

/// So many items of a run are looked at together.
const SLICE: i64 = 10_000;

/// Where a replay was ordered in the journal, and of which item.
type Replayed = ((i64, i64), ItemId);

impl Writer {
    /// Why orders of a run do not count, whatever their items are. What a run of replays gives up by a reopening is no order of its plan.
    pub(super) fn refused(&mut self, actions: &Actions) -> rusqlite::Result<Option<Void>> {
        let Some((mut state, what)) = self.run_state(actions.run)? else { return Ok(None) };
        if what != order_name(actions.order) {
            return Ok(None);
        }
        let counts = state.chunk();
        self.write_run_state(actions.run, &state)?;
        Ok((!counts).then_some(Void::RunClosed))
    }

    /// Applies a step of a run that was begun.
    pub(super) fn step_run(
        &mut self,
        place: Place,
        entry: &RunEntry,
        step: &RunStep,
    ) -> rusqlite::Result<()> {
        let (name, why) = match step {
            RunStep::Begin(_) => return Ok(()),
            RunStep::Pause => ("pause", None),
            RunStep::Resume => ("resume", None),
            RunStep::Stop { why } => ("stop", Some(why.as_str())),
            RunStep::Close => ("close", None),
            RunStep::Climb { .. } => ("climb", None),
            RunStep::Finish => ("finish", None),
        };
        if let (Some((mut state, _)), Some(step)) = (self.run_state(entry.run)?, step.step()) {
            let before = state;
            if let Some(effect) = state.step(step) {
                self.write_run_state(entry.run, &state)?;
                if state.climbed != before.climbed {
                    let sql = "UPDATE runs SET climbed_at = ?2 WHERE run = ?1";
                    let values = params![entry.run.0.cast_signed(), place.at];
                    self.connection.prepare_cached(sql)?.execute(values)?;
                }
                if state.stage != before.stage {
                    self.change_run(place, entry, why)?;
                }
                self.effect(place, entry, effect)?;
            }
        }
        // How far a run climbs is nobody's decision.
        if matches!(step, RunStep::Climb { .. }) {
            return Ok(());
        }
        self.remember(place, &entry.by, name, Some(entry.run), why, (0, 0), None)
    }

    fn run_state(&self, run: RunId) -> rusqlite::Result<Option<(RunState, String)>> {
        let sql = "SELECT chunks, read, closed, climbed, status, what FROM runs WHERE run = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row([run.0.cast_signed()], |row| Ok((state_of(row)?, row.get(5)?))).optional()
    }

    fn write_run_state(&self, run: RunId, state: &RunState) -> rusqlite::Result<()> {
        let sql = "UPDATE runs SET read = ?2, closed = ?3, climbed = ?4, status = ?5 WHERE run = ?1";
        let climbed = i64::try_from(state.climbed).unwrap_or(i64::MAX);
        let values = params![run.0.cast_signed(), state.read, state.is_closed, climbed, state.stage.as_str()];
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    fn change_run(&self, place: Place, entry: &RunEntry, why: Option<&str>) -> rusqlite::Result<()> {
        let sql = "UPDATE runs SET why = ?2, changed_at = ?3, changed_by = ?4 WHERE run = ?1";
        let values = params![entry.run.0.cast_signed(), why, place.time, entry.by];
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    fn effect(&mut self, place: Place, entry: &RunEntry, effect: Effect) -> rusqlite::Result<()> {
        let run = entry.run;
        match effect {
            Effect::None => Ok(()),
            Effect::Release { but_first } => {
                let first = i64::try_from(but_first).unwrap_or(i64::MAX);
                self.fold_all(place, entry, ("released", first, Folding::Release { run }))
            }
            Effect::Retake => {
                let sql = "UPDATE runs SET from_at = ?2 WHERE run = ?1";
                self.connection.prepare_cached(sql)?.execute(params![run.0.cast_signed(), place.at])?;
                self.fold_all(place, entry, ("taken back", 0, Folding::Retake { run }))
            }
        }
    }

    /// Folds the same for all accepted replays of a run but the first so many.
    fn fold_all(
        &mut self,
        place: Place,
        entry: &RunEntry,
        (what, but_first, folding): (&'static str, i64, Folding),
    ) -> rusqlite::Result<()> {
        let (mut skip, mut after) = (but_first, (-1, -1));
        loop {
            let replays = self.replays(entry.run, after, skip)?;
            for (number, (_, id)) in replays.iter().enumerate() {
                let about = About {
                    id,
                    place: number,
                    folding,
                    void: None,
                    what,
                    run: Some(entry.run),
                    author: Some(&entry.by),
                    detail: None,
                };
                self.about(place, &about)?;
            }
            match replays.last() {
                Some((last, _)) => (skip, after) = (0, *last),
                None => return Ok(()),
            }
        }
    }

    /// Some of the items whose replays by the run were accepted, with their places in the journal, in order.
    fn replays(&self, run: RunId, after: (i64, i64), skip: i64) -> rusqlite::Result<Vec<Replayed>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT at, place, id FROM entries JOIN folded USING (hash)
             WHERE entries.run = ?1 AND what = 'replay' AND void IS NULL AND (at, place) > (?2, ?3)
             ORDER BY at, place LIMIT ?4 OFFSET ?5",
        )?;
        let values = params![run.0.cast_signed(), after.0, after.1, SLICE, skip];
        let rows =
            statement.query_map(values, |row| Ok(((row.get(0)?, row.get(1)?), row.get::<_, String>(2)?)))?;
        let mut replays = Vec::new();
        for row in rows {
            let (at, id) = row?;
            // It was written from an id, so it is one.
            replays.extend(id.parse::<ItemId>().map(|id| (at, id)));
        }
        Ok(replays)
    }
}

/// The columns `chunks, read, closed, climbed, status`, in this order and first.
fn state_of(row: &Row<'_>) -> rusqlite::Result<RunState> {
    let stage: String = row.get(4)?;
    Ok(RunState {
        chunks: row.get(0)?,
        read: row.get(1)?,
        is_closed: row.get(2)?,
        climbed: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
        stage: Stage::from_name(&stage).unwrap_or_default(),
    })
}
