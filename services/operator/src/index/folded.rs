//! What the journal says of an item, as the index stores it.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidegate_domain::inbox::{Answer, Item, Outcome, Replay, RunId};
use tidegate_domain::{Offset, Round, UnixMillis};

use crate::query::{code, state};
use crate::reference::ItemRef;

const COLUMNS: &str =
    "state, round, seen, replay_at, replay_run, replay_round, replay_forced, replay_edited, done,
     waiting_until, answer, answer_round, answer_until, ended_at, replay_before, released";

/// The item, and when it ended, if it did.
pub(crate) type Folded = (Item, Option<i64>);

/// What is known of an item; none where the journal does not name it.
pub(crate) fn read(connection: &Connection, item: ItemRef) -> rusqlite::Result<Option<Folded>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM folded WHERE hash = ?1"))?;
    statement.query_row([item.0.cast_signed()], item_of).optional()
}

/// Stores it. `id` is the item's whole name: the journal may name items that were never dead-lettered.
pub(super) fn write(
    connection: &Connection,
    item: ItemRef,
    id: &str,
    (folded, ended_at): &Folded,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&format!(
        "INSERT OR REPLACE INTO folded (hash, id, {COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
    ))?;
    let replay = folded.replay;
    let answer_until = folded.answer.and_then(|outcome| match outcome.answer {
        Answer::WaitingUntil(until) => Some(until.0),
        _ => None,
    });
    statement.execute(params![
        item.0.cast_signed(),
        id,
        code(folded.state),
        folded.round.0,
        folded.seen.map(|at| at.0),
        replay.map(|replay| replay.at.0),
        replay.map(|replay| replay.run.0.cast_signed()),
        replay.map(|replay| replay.round.0),
        replay.map(|replay| replay.forced),
        replay.map(|replay| replay.edited),
        folded.done.map(|round| round.0),
        folded.waiting_until.map(|until| until.0),
        folded.answer.map(|outcome| outcome.answer.as_str()),
        folded.answer.map(|outcome| outcome.round.0),
        answer_until,
        ended_at,
        replay.map(|replay| code(replay.before)),
        folded.released,
    ])?;
    Ok(())
}

fn item_of(row: &Row<'_>) -> rusqlite::Result<Folded> {
    let replay = match row.get::<_, Option<i64>>(3)? {
        None => None,
        Some(at) => Some(Replay {
            at: Offset(at),
            run: RunId(row.get::<_, i64>(4)?.cast_unsigned()),
            round: Round(row.get(5)?),
            forced: row.get(6)?,
            edited: row.get(7)?,
            before: state(row.get(14)?),
        }),
    };
    let answer = match row.get::<_, Option<String>>(10)? {
        None => None,
        Some(name) => {
            let round = Round(row.get(11)?);
            answer(&name, row.get(12)?).map(|answer| Outcome { round, answer })
        }
    };
    let item = Item {
        state: state(row.get(0)?),
        round: Round(row.get(1)?),
        seen: row.get::<_, Option<i64>>(2)?.map(Offset),
        replay,
        done: row.get::<_, Option<u32>>(8)?.map(Round),
        waiting_until: row.get::<_, Option<i64>>(9)?.map(UnixMillis),
        answer,
        released: row.get(15)?,
    };
    Ok((item, row.get(13)?))
}

fn answer(name: &str, until: Option<i64>) -> Option<Answer> {
    let waiting = Answer::WaitingUntil(UnixMillis(until.unwrap_or(0)));
    [
        Answer::Resolved,
        Answer::AlreadyDone,
        Answer::Superseded,
        Answer::Coalesced,
        waiting,
        Answer::FailedAgain,
    ]
    .into_iter()
    .find(|answer| answer.as_str() == name)
}
