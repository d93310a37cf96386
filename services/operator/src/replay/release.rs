//! What a run does not send: it is given up in the run's name, so that its items are open again, and ordered anew if the run is resumed.

use rusqlite::{OptionalExtension, params};
use tidegate_domain::inbox::{ItemId, RunId, State};
use tidegate_domain::{Offset, Round, UnixMillis};
use tidegate_pipeline::journal::{Actions, Entry, Order, Ordered, chunks};

use super::order::{Session, chunk_bytes};
use super::run::Runner;
use super::selection::Selection;
use crate::error::OperatorError;
use crate::inbox::{Inbox, now};
use crate::reference::ItemRef;
use crate::runs::Run;

/// Why what a stopped run did not send is open again.
const UNSENT: &str = "its run stopped before it was sent";

impl Runner<'_> {
    /// Gives up the replays from this place on that this process did not publish and nobody has heard of. If another one published
    /// such a record, it runs, and its outcome is told all the same.
    pub(super) fn release(&mut self, from: usize) -> Result<(), OperatorError> {
        let mut unsent = Vec::new();
        for number in from..self.places.len() {
            let Some(place) = self.places.get(number).copied() else { break };
            if !self.ramp.is_unpublished(number) {
                continue;
            }
            let folded = self.inbox.folded(place.item)?;
            // An edited value is in the order, and nowhere else: it stays with its run.
            let is_plain = folded.replay.is_some_and(|replay| !replay.edited);
            if is_plain && folded.orders(Offset(place.at)) {
                unsent.extend(self.inbox.reopened(place.item)?);
            }
        }
        self.give_up(unsent, UNSENT)
    }

    /// Gives a replay up whose record is gone.
    pub(super) fn withdraw(&mut self, item: ItemRef) -> Result<(), OperatorError> {
        let gone = self.inbox.reopened(item)?.into_iter().collect();
        self.give_up(gone, "no record of it exists any more: there is nothing to publish")
    }

    fn give_up(&mut self, items: Vec<Ordered>, reason: &str) -> Result<(), OperatorError> {
        let order = Orders { run: self.run, by: self.by, order: Order::Reopen, reason: Some(reason) };
        self.inbox.append(&mut self.session, &order, items)
    }
}

/// What is ordered in the name of a run that is under way.
struct Orders<'a> {
    run: RunId,
    by: &'a str,
    order: Order,
    reason: Option<&'a str>,
}

impl Inbox {
    /// Appends orders of a run, and waits until they are read back.
    fn append(
        &self,
        session: &mut Session<'_>,
        orders: &Orders<'_>,
        items: Vec<Ordered>,
    ) -> Result<(), OperatorError> {
        let journal = self.journal()?;
        let mut last = None;
        for (chunk, items) in (0..).zip(chunks(items, chunk_bytes(self))) {
            last = Some(journal.append(&Entry::Actions(Actions {
                run: orders.run,
                by: orders.by.to_owned(),
                at: UnixMillis(now()),
                chunk,
                order: orders.order,
                reason: orders.reason.map(str::to_owned),
                items,
            }))?);
        }
        last.map_or(Ok(()), |last| session.read_back(last))
    }

    /// The order that gives an item's replay up, as it is known now; none where the journal does not name the item.
    fn reopened(&self, item: ItemRef) -> Result<Option<Ordered>, OperatorError> {
        let found = self.view(|view| {
            let sql = "SELECT id, seen FROM folded WHERE hash = ?1";
            let mut statement = view.connection.prepare_cached(sql)?;
            let found = statement.query_row([item.0.cast_signed()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?))
            });
            Ok(found.optional()?)
        })?;
        let ordered = |(id, seen): (String, Option<i64>)| {
            let id: ItemId = id.parse().ok()?;
            Some(Ordered { id, seen: seen.map(Offset), round: Round(0), edited: None })
        };
        Ok(found.flatten().and_then(ordered))
    }

    /// A run was stopped: what no console can have sent of it is open again. What is of the step that was under way is with whoever
    /// carries the run out.
    pub(super) fn release_unreached(&self, run: RunId, by: &str) -> Result<(), OperatorError> {
        let Some(found) = self.run(run)?.filter(|found| found.what == "replay") else { return Ok(()) };
        let mut session = Session::begin(self)?;
        session.refresh()?;
        let mut runner = Runner::begin(self, session, &found, (run, by))?;
        runner.hear_all()?;
        // It is asked for the step that it is in.
        runner.ramp.next(UnixMillis(now()));
        runner.release(runner.ramp.unreached())
    }

    /// Orders anew what a stopped run gave up, where nobody has decided anything else since.
    pub(super) fn order_released(&self, found: &Run, run: RunId, by: &str) -> Result<(), OperatorError> {
        let given_up = self.view(|view| {
            let mut statement = view.connection.prepare_cached(
                "SELECT DISTINCT entries.hash FROM entries JOIN folded ON folded.hash = entries.hash
                 JOIN names ON names.hash = entries.hash
                 WHERE entries.run = ?1 AND what = 'reopen' AND void IS NULL AND detail = ?2
                 AND folded.seen = entries.at ORDER BY entries.at, entries.place",
            )?;
            let rows = statement.query_map(params![run.0.cast_signed(), UNSENT], |row| {
                Ok(ItemRef(row.get::<_, i64>(0)?.cast_unsigned()))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        let given_up = given_up.unwrap_or_default();
        if given_up.is_empty() {
            return Ok(());
        }
        let (snapshot, _) = self.snapshot(&Selection::Items(given_up))?.only(|state| state == State::Open);
        let ordered = |selected: &super::Selected| Ordered {
            id: selected.id(),
            seen: selected.seen,
            round: selected.next_round,
            edited: None,
        };
        let items = snapshot.items.iter().map(ordered).collect();
        let order = Order::Replay { forced: found.forced };
        let orders = Orders { run, by, order, reason: Some("its run is resumed") };
        self.append(&mut Session::begin(self)?, &orders, items)
    }
}
