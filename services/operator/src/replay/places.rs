//! The accepted replays of a run, and where each stands.

use rusqlite::params;
use tidegate_domain::Offset;
use tidegate_domain::inbox::{Answer, End, Item, RunId, State};

use crate::error::OperatorError;
use crate::inbox::Inbox;
use crate::index::read_folded;
use crate::reference::ItemRef;

/// One item's replay in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) item: ItemRef,
    /// Its order in the journal, and which of that record's items it is.
    pub(super) at: i64,
    pub(super) number: i64,
    /// Which of the run's accepted replays it is.
    pub(super) index: u64,
}

/// Where a replay stands.
pub(super) enum Standing {
    Unheard,
    Heard(Answer),
    Ended(End),
}

/// Where the replay that was ordered at `at` stands.
pub(super) fn standing(item: &Item, at: Offset) -> Standing {
    let Some(replay) = item.replay.filter(|replay| replay.at == at && !item.released) else {
        // It was released, or another replay was ordered since, so this one ended; how, says nothing about now.
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
    pub(super) fn places(&self, run: RunId, from: Option<i64>) -> Result<Vec<Place>, OperatorError> {
        let places = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT hash, at, place FROM entries WHERE run = ?1 AND what = 'replay' AND void IS NULL ORDER BY at, place",
            )?;
            let mut index = 0;
            let rows = statement.query_map(params![run.0.cast_signed()], |row| {
                index += 1;
                let item = ItemRef(row.get::<_, i64>(0)?.cast_unsigned());
                Ok(Place { item, at: row.get(1)?, number: row.get(2)?, index: index - 1 })
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
