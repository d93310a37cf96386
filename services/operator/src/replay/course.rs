//! What is to be done next of a run: a function of what the index has of the journal, and of the time. Whoever carries a run out asks
//! for the next turn, does it, and tells; it decides nothing itself.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};
use rustc_hash::FxHashMap;
use tidegate_bootstrap::counted;
use tidegate_domain::inbox::{Answer, Ends, Move, Ramp, RampLimits, Replay, RunId, Stop};
use tidegate_domain::{Offset, UnixMillis};
use tidegate_pipeline::journal::RunStep;

use super::places::{Place, Standing, standing};
use super::queues::Seen;
use super::run::{RunEnd, RunProgress};
use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::reference::ItemRef;
use crate::runs::{Run, RunStatus};

/// How many replays a run climbs at a time at most: what was published of them is not known when it stops, so they are not released.
const PORTION: usize = 10_000;
/// The same where a rate is set: what may go within this time.
const PORTION_TIME: f64 = 10.0;
/// For how long no more orders of a run came when its author counts as gone. An author waits less for each acknowledgement.
const SILENCE: Duration = Duration::from_secs(90);
/// For how long nothing came of what another carrier climbed to when that one counts as gone. To publish it too does no harm, but it costs,
/// and two together go faster than the run may.
const GRACE: Duration = Duration::from_secs(10);
/// So many bytes are published at a time at most.
const SLICE_BYTES: u64 = 32 << 20;
/// What an outcome is called that says that a replay waits.
const WAITING: &str = "waiting";

/// Where a letter stands, and how large its value is.
type FoundLetter = ((i32, i64), u64);

/// A replay that is to be published now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) number: usize,
    pub(super) place: Place,
    pub(super) replay: Replay,
    /// Where its latest letter stands; none: no whole one is left that the index knows.
    pub(super) letter: Option<(i32, i64)>,
}

/// What is to be done now.
#[derive(Debug)]
pub(super) enum Turn {
    /// Publish these, in order, and tell each by [`Course::published`], or give it up.
    Publish(Vec<Due>),
    /// Append this to the journal, and tell where it stands by [`Course::stepped`].
    Append(RunStep),
    /// Nothing now.
    Wait,
    /// Nothing: an operator paused it.
    Paused,
    /// Nothing any more.
    Ended(RunEnd),
}

/// Whether it is worth to look where replays stand of which nothing was heard.
#[derive(Debug)]
pub(super) enum Doubt {
    None,
    /// How far workers got is to be known from now on: half of the time is over.
    Soon,
    /// These are missed now, or soon with them, by their numbers, and which items they are.
    Now(Vec<usize>, Vec<ItemRef>),
}

/// The way of one run, as one carrier knows it.
#[derive(Debug)]
pub(super) struct Course<'a> {
    inbox: &'a Inbox,
    run: RunId,
    limits: RampLimits,
    portion: usize,
    places: Vec<Place>,
    place_of: FxHashMap<u64, usize>,
    ramp: Ramp,
    /// Where in the journal the ramp begins; none: there is none yet.
    from: Option<i64>,
    /// Everything of the journal up to it was heard.
    heard: i64,
    /// What it appended last: nothing is decided before the index has it.
    appended: Option<Offset>,
    /// Where its own last climb stands.
    climb: Option<Offset>,
    /// The last climb of another carrier, and when something came of the run since.
    other: Option<(i64, UnixMillis)>,
    /// How many chunks of orders were there, and since when no more come.
    chunks: Option<(u32, UnixMillis)>,
    /// What a worker said last of a replay that waits.
    waits_for: Option<String>,
    /// What was seen last of replays that stand behind others, in words: of those that are waited for, and of those that are not, since
    /// nobody gets through what is before them.
    behind: Option<String>,
    stuck: Option<String>,
    is_paused: bool,
}

impl<'a> Course<'a> {
    pub(super) fn new(inbox: &'a Inbox, found: &Run, run: RunId) -> Self {
        let limits = found.ramp.unwrap_or(RampLimits::ALL_AT_ONCE);
        let portion =
            found.rate.map_or(PORTION, |rate| ((rate * PORTION_TIME).ceil() as usize).clamp(1, PORTION));
        Self {
            inbox,
            run,
            limits,
            portion,
            places: Vec::new(),
            place_of: FxHashMap::default(),
            ramp: Ramp::new(limits, 0),
            from: None,
            heard: -1,
            appended: None,
            climb: None,
            other: None,
            chunks: None,
            waits_for: None,
            behind: None,
            stuck: None,
            is_paused: false,
        }
    }

    /// What is to be done now; at most so many are to be published at once.
    pub(super) fn turn(&mut self, now: UnixMillis, most: usize) -> Result<Turn, OperatorError> {
        if self.awaits_index()? {
            return Ok(Turn::Wait);
        }
        let Some(found) = self.inbox.run(self.run)? else { return Ok(Turn::Ended(RunEnd::Left)) };
        self.is_paused = found.status == RunStatus::Paused;
        match found.status {
            RunStatus::Finished => return Ok(Turn::Ended(RunEnd::Finished)),
            RunStatus::Stopped => return Ok(Turn::Ended(RunEnd::Stopped(found.why.unwrap_or_default()))),
            RunStatus::Running | RunStatus::Paused => {}
        }
        if !found.journal.state.is_complete() {
            return Ok(self.await_orders(&found, now));
        }
        if self.from != Some(found.journal.from_at) {
            self.begin_ramp(&found, now)?;
        }
        self.hear(now)?;
        if self.is_paused {
            self.ramp.pause();
        } else {
            self.ramp.go_on(now);
        }
        for number in self.ramp.late(now) {
            // What was said of it is heard already: only an end is news, else a word would hold for ever.
            if let Some(Standing::Ended(end)) = self.standing(number)? {
                self.ramp.ended(number, end, now);
            }
        }
        self.advance(now, most, &found)
    }

    /// Whether the index lacks what was appended in its name.
    fn awaits_index(&mut self) -> Result<bool, OperatorError> {
        let Some(appended) = self.appended else { return Ok(false) };
        let lacks_it = self.inbox.journal_position()? <= appended.0;
        if !lacks_it {
            self.appended = None;
        }
        Ok(lacks_it)
    }

    /// Its author appends chunk by chunk. Whoever took the first ones for all would finish the run before its end.
    fn await_orders(&mut self, found: &Run, now: UnixMillis) -> Turn {
        let read = found.journal.state.read;
        let since = match self.chunks {
            Some((known, since)) if known == read => since,
            _ => now,
        };
        self.chunks = Some((read, since));
        match () {
            () if since.after(SILENCE) <= now => Turn::Append(RunStep::Close),
            () if self.is_paused => Turn::Paused,
            () => Turn::Wait,
        }
    }

    fn advance(&mut self, now: UnixMillis, most: usize, found: &Run) -> Result<Turn, OperatorError> {
        let climbed = found.journal.state.climbed;
        loop {
            return Ok(match self.ramp.next(now) {
                Move::Publish(range) => {
                    let Some(first) = self.places.get(range.start).copied() else { return Ok(Turn::Wait) };
                    if first.index >= climbed {
                        let last = range.end.min(range.start.saturating_add(self.portion)).saturating_sub(1);
                        let until = self.places.get(last).unwrap_or(&first).index + 1;
                        return Ok(Turn::Append(RunStep::Climb { until }));
                    }
                    if self.is_with_another(found, now) {
                        return Ok(Turn::Wait);
                    }
                    let due = self.due(range, (most, climbed), now)?;
                    if due.is_empty() {
                        // Each of them turned out to have ended: the ramp knows now.
                        continue;
                    }
                    Turn::Publish(due)
                }
                Move::Wait(_) => Turn::Wait,
                Move::Paused => Turn::Paused,
                Move::Stopped(stop) => Turn::Append(RunStep::Stop { why: self.why(stop) }),
                Move::Finished => Turn::Append(RunStep::Finish),
            });
        }
    }

    /// Why it stops, and what others of it wait for: a dependency that is away fails those that probe it.
    fn why(&self, stop: Stop) -> String {
        let waiting = self.ramp.waiting();
        let waits = self.waits_for.as_ref().filter(|_| waiting > 0);
        let waits = waits
            .map(|reason| format!("; {} with a worker: {reason}", counted(waiting as u64, "waits", "wait")));
        let stuck = self.stuck.as_ref().filter(|_| matches!(stop, Stop::MissingOutcomes { .. }));
        let stuck = stuck.map(|told| format!("; not read yet, {told}"));
        [Some(stop.to_string()), stuck, waits].into_iter().flatten().collect()
    }

    /// Whether another carrier, who may be alive, is to publish what the run climbed to: the one whose climb it was. Those who carried it
    /// out before it was resumed stopped.
    fn is_with_another(&mut self, found: &Run, now: UnixMillis) -> bool {
        let Some(at) = found.journal.climbed_at.filter(|at| *at > found.journal.from_at) else {
            return false;
        };
        if self.climb == Some(Offset(at)) {
            return false;
        }
        let since = self.other.filter(|(known, _)| *known == at).map_or(now, |(_, since)| since);
        self.other = Some((at, since));
        if since.after(GRACE) > now {
            return true;
        }
        // It is this one's from now on: what comes of it is no sign of the other any more.
        self.climb = Some(Offset(at));
        false
    }

    /// This replay was handed to Kafka.
    pub(super) fn published(&mut self, number: usize, now: UnixMillis) {
        self.ramp.published(number, now);
    }

    /// What is to be known of replays that are missed now or soon. `looked_at`: when it was last looked.
    pub(super) fn doubt(
        &mut self,
        now: UnixMillis,
        looked_at: Option<UnixMillis>,
    ) -> Result<Doubt, OperatorError> {
        // Nothing is decided before.
        if self.awaits_index()? {
            return Ok(Doubt::None);
        }
        let half = self.limits.timeout / 2;
        Ok(match self.ramp.misses_at() {
            Some(missed_at) if missed_at <= now => {
                // And those that would be missed soon: each was published at a time of its own, and one look is enough for many.
                let late = self.ramp.late(now.after(half));
                let of = |number: &usize| Some((*number, self.item(*number)?));
                let (numbers, items) = late.iter().filter_map(of).unzip();
                Doubt::Now(numbers, items)
            }
            Some(missed_at) if missed_at <= now.after(half) => {
                match looked_at.is_some_and(|looked_at| missed_at <= looked_at.after(half)) {
                    true => Doubt::None,
                    false => Doubt::Soon,
                }
            }
            _ => Doubt::None,
        })
    }

    /// Since when a group must have been seen further to count as getting further now.
    pub(super) fn patient_since(&self, now: UnixMillis) -> UnixMillis {
        now.before(self.limits.timeout)
    }

    /// What was seen of replays that are missed now or soon, which have these numbers.
    pub(super) fn seen(&mut self, numbers: &[usize], seen: Seen, now: UnixMillis) {
        for number in seen.queued.iter().filter_map(|place| numbers.get(*place)) {
            self.ramp.seen_queued(*number, now);
        }
        (self.behind, self.stuck) = (seen.behind, seen.stuck);
    }

    /// Which item a replay is of.
    pub(super) fn item(&self, number: usize) -> Option<ItemRef> {
        self.places.get(number).map(|place| place.item)
    }

    /// This step was appended in its name, and stands there.
    pub(super) fn stepped(&mut self, step: &RunStep, at: Offset) {
        if matches!(step, RunStep::Climb { .. }) {
            self.climb = Some(at);
        }
        self.appended(at);
    }

    /// What was appended in its name stands there.
    pub(super) fn appended(&mut self, at: Offset) {
        self.appended = self.appended.max(Some(at));
    }

    pub(super) fn progress(&self) -> RunProgress {
        let (Ends { passed, failed, withdrawn }, (step, step_items)) = (self.ramp.ends(), self.ramp.step());
        RunProgress {
            items: self.places.len(),
            published: 0,
            passed,
            failed,
            withdrawn,
            outstanding: self.ramp.outstanding(),
            waiting: self.ramp.waiting() + self.ramp.queued(),
            waits_for: self.waits_for_now(),
            step,
            step_items,
            paused: self.is_paused,
        }
    }

    fn waits_for_now(&self) -> Option<String> {
        let waits = self.waits_for.clone().filter(|_| self.ramp.waiting() > 0);
        waits.or_else(|| self.behind.clone().filter(|_| self.ramp.queued() > 0))
    }

    /// What the journal says of every item.
    fn begin_ramp(&mut self, found: &Run, now: UnixMillis) -> Result<(), OperatorError> {
        self.heard = self.inbox.journal_position()? - 1;
        let resumed_at = Some(found.journal.from_at).filter(|from| *from > found.begun_at);
        self.places = self.inbox.places(self.run, resumed_at)?;
        self.place_of =
            self.places.iter().enumerate().map(|(number, place)| (place.item.0, number)).collect();
        self.ramp = Ramp::new(self.limits, self.places.len());
        self.from = Some(found.journal.from_at);
        self.waits_for = self.last_reason_to_wait()?;
        (0..self.places.len()).try_for_each(|number| self.look(number, now, Ramp::known))
    }

    /// What a worker said last of a replay that waits, up to what was heard.
    fn last_reason_to_wait(&self) -> Result<Option<String>, OperatorError> {
        let (run, heard) = (self.run.0.cast_signed(), self.heard);
        let found = self.inbox.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT detail FROM entries WHERE run = ?1 AND at <= ?2 AND what = 'waiting' ORDER BY at DESC LIMIT 1",
            )?;
            Ok(statement.query_row(params![run, heard], |row| row.get(0)).optional()?)
        })?;
        Ok(found.flatten().flatten())
    }

    /// What the journal says that it did not say before: outcomes, what was given up, and what others reopened.
    fn hear(&mut self, now: UnixMillis) -> Result<(), OperatorError> {
        let (run, heard) = (self.run.0.cast_signed(), self.heard);
        let news = self.inbox.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT hash, at, what, detail FROM entries WHERE run = ?1 AND at > ?2
                 UNION ALL SELECT hash, at, 'interruption', NULL FROM interruptions WHERE run = ?1 AND at > ?2
                 ORDER BY at",
            )?;
            let rows = statement.query_map(params![run, heard], |row| {
                Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<(u64, i64, String, Option<String>)>>>()?)
        })?;
        for (item, at, what, detail) in news.unwrap_or_default() {
            self.heard = at;
            self.other = self.other.map(|(at, _)| (at, now));
            let Some(number) = self.place_of.get(&item).copied() else { continue };
            if what == WAITING {
                self.waits_for = detail;
            }
            if what == Answer::Superseded.as_str() {
                self.ramp.heard(number, Answer::Superseded, now);
            }
            self.look(number, now, Ramp::heard)?;
        }
        Ok(())
    }

    fn standing(&self, number: usize) -> Result<Option<Standing>, OperatorError> {
        let Some(place) = self.places.get(number) else { return Ok(None) };
        Ok(Some(standing(&self.inbox.folded(place.item)?, Offset(place.at))))
    }

    /// Tells the ramp where an item stands, and by `heard` what was said of one that has no end.
    fn look(
        &mut self,
        number: usize,
        now: UnixMillis,
        heard: fn(&mut Ramp, usize, Answer, UnixMillis),
    ) -> Result<(), OperatorError> {
        match self.standing(number)? {
            None | Some(Standing::Unheard) => {}
            Some(Standing::Heard(answer)) => heard(&mut self.ramp, number, answer, now),
            Some(Standing::Ended(end)) => self.ramp.ended(number, end, now),
        }
        Ok(())
    }

    /// The first of these places that are to be published, not more than fit into memory, and none that it did not climb to.
    fn due(
        &mut self,
        range: std::ops::Range<usize>,
        (most, climbed): (usize, u64),
        now: UnixMillis,
    ) -> Result<Vec<Due>, OperatorError> {
        let (mut due, mut bytes) = (Vec::new(), 0);
        for number in range {
            let Some(place) = self.places.get(number).copied().filter(|place| place.index < climbed) else {
                break;
            };
            if due.len() >= most || bytes >= SLICE_BYTES {
                break;
            }
            if !self.ramp.is_unpublished(number) {
                continue;
            }
            let folded = self.inbox.folded(place.item)?;
            let Some(replay) = folded.replay.filter(|_| folded.orders(Offset(place.at))) else {
                self.look(number, now, Ramp::heard)?;
                continue;
            };
            let found = self.letter(place)?;
            bytes += found.map_or(0, |(_, size)| size);
            due.push(Due { number, place, replay, letter: found.map(|(letter, _)| letter) });
        }
        Ok(due)
    }

    /// The latest letter of an item, and its size; none where all are gone.
    fn letter(&self, place: Place) -> Result<Option<FoundLetter>, OperatorError> {
        let found = self.inbox.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT partition, \"offset\", value_bytes, stub FROM items
                 WHERE id = (SELECT item FROM names WHERE hash = ?1)",
            )?;
            let row = statement.query_row(params![place.item.0.cast_signed()], |row| {
                let size: Option<i64> = row.get(2)?;
                Ok(((row.get(0)?, row.get(1)?), size, row.get::<_, Option<String>>(3)?))
            });
            Ok(row.optional()?)
        })?;
        let whole = found.flatten().filter(|(_, size, stub)| stub.is_none() || size.is_some());
        Ok(whole.map(|(letter, size, _)| (letter, u64::try_from(size.unwrap_or(0)).unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests;
