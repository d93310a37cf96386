//! Publishing what a run's ramp allows, in order, at the run's rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, params};
use rustc_hash::FxHashMap;
use tidegate_bootstrap::counted;
use tidegate_domain::{Offset, Round, UnixMillis};
use tidegate_pipeline::journal::{Actions, CHUNK, Entry, Order, Ordered};
use tidegate_pipeline::ports::{Delivery, PublishError, Ticket};
use tidegate_pipeline::{Inbox as Answers, TopicPartition, Wake};

use super::course::Due;
use super::originals::{Absent, Original};
use super::outgoing::{Outgoing, Targets, Unsendable};
use super::run::Runner;
use crate::error::OperatorError;
use crate::inbox::now;
use crate::letter::Letter;

/// So many records are read and published at a time, at most.
const SLICE: usize = 20_000;
/// With a rate: a slice is what may go within this time,
const SLICE_TIME: f64 = 0.1;
/// and what could have gone before, while the last one was read and acknowledged, but no more than of this time: a dependency that is
/// to be spared gets no burst after a stall.
const OWED_AT_MOST: Duration = Duration::from_millis(500);
/// How long acknowledgements of a slice may take.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

/// What became of a replay that was handed over.
enum Sent {
    /// It goes there; none: that is not known.
    To(Option<TopicPartition>),
    /// It can never be published, for this reason.
    Unsendable(String),
}

/// Where replays go whose acknowledgements are to come, by their number.
type OnTheirWay = FxHashMap<usize, Option<TopicPartition>>;

/// Replays that can't be published, by the reason.
type GivenUp = BTreeMap<String, Vec<usize>>;

impl Runner<'_> {
    /// How many records may be published at once.
    pub(super) fn most(&self) -> usize {
        match self.rate {
            None => SLICE,
            Some(rate) => {
                let owed = self.next_at.elapsed().min(OWED_AT_MOST).as_secs_f64();
                ((rate * (SLICE_TIME + owed)).ceil() as usize).clamp(1, SLICE)
            }
        }
    }

    /// Publishes these replays, and gives up what can't be published.
    pub(super) fn publish(&mut self, due: &[Due]) -> Result<(), OperatorError> {
        if let Some(rate) = self.rate {
            std::thread::sleep(self.next_at.saturating_duration_since(Instant::now()));
            let earliest = Instant::now().checked_sub(OWED_AT_MOST).unwrap_or(self.next_at);
            self.next_at =
                self.next_at.max(earliest) + Duration::from_secs_f64(due.len() as f64 / rate.max(0.001));
        }
        let originals = self.read(due)?;
        let edits = self.edits(due)?;
        let answers = Answers::new(Wake::default());
        let (mut on_their_way, mut given_up) = (OnTheirWay::default(), GivenUp::new());
        for due in due {
            let original = match originals.get(&due.number) {
                Some(original) => Some(original.clone()),
                None => self.inbox.original_of(due.place.item)?,
            };
            let edited = edits.get(&due.number).map(Vec::as_slice);
            let sent = match original {
                Some(original) => self.send(due, &original, edited, &answers)?,
                None => Sent::Unsendable(
                    "no record of it exists any more: there is nothing to publish".to_owned(),
                ),
            };
            match sent {
                Sent::To(partition) => {
                    on_their_way.insert(due.number, partition);
                }
                Sent::Unsendable(reason) => given_up.entry(reason).or_default().push(due.number),
            }
        }
        self.wait_for(on_their_way, &answers, &mut given_up)?;
        self.give_up(due, given_up)
    }

    /// Gives replays up that can't be published, in the name of the run: the others go on.
    fn give_up(&mut self, due: &[Due], given_up: GivenUp) -> Result<(), OperatorError> {
        for (reason, numbers) in given_up {
            let mut items = Vec::new();
            for due in due.iter().filter(|due| numbers.contains(&due.number)) {
                items.extend(self.reopened(due)?);
            }
            for items in items.chunks(CHUNK) {
                let offset = self.journal.append(&Entry::Actions(Actions {
                    run: self.run,
                    by: self.by.to_owned(),
                    at: UnixMillis(now()),
                    chunk: 0,
                    order: Order::Reopen,
                    reason: Some(reason.clone()),
                    items: items.to_vec(),
                }))?;
                self.course.appended(offset);
            }
        }
        Ok(())
    }

    fn reopened(&self, due: &Due) -> Result<Option<Ordered>, OperatorError> {
        let found = self.inbox.view(|view| {
            let sql = "SELECT id, seen FROM folded WHERE hash = ?1";
            let found = view.connection.query_row(sql, [due.place.item.0.cast_signed()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?))
            });
            Ok(found.optional()?)
        })?;
        let ordered = |(id, seen): (String, Option<i64>)| {
            let id = id.parse().ok()?;
            Some(Ordered { id, seen: seen.map(Offset), round: Round(0), edited: None })
        };
        Ok(found.flatten().and_then(ordered))
    }

    fn read(&self, due: &[Due]) -> Result<FxHashMap<usize, Original>, OperatorError> {
        let numbers: FxHashMap<(i32, i64), usize> =
            due.iter().filter_map(|due| due.letter.map(|letter| (letter, due.number))).collect();
        let places: Vec<(i32, i64)> = due.iter().filter_map(|due| due.letter).collect();
        let mut originals = FxHashMap::default();
        self.inbox.originals_where(&places, Absent::Unexpected, &mut |original| {
            if let Some(number) = numbers.get(&(original.partition.0, original.record.offset().0)) {
                originals.insert(*number, original);
            }
            Ok(())
        })?;
        Ok(originals)
    }

    fn edits(&self, due: &[Due]) -> Result<FxHashMap<usize, Vec<u8>>, OperatorError> {
        let mut edits = FxHashMap::default();
        for due in due.iter().filter(|due| due.replay.edited) {
            let value = self.inbox.view(|view| {
                let sql = "SELECT value FROM edits WHERE at = ?1 AND place = ?2";
                let key = params![due.place.at, due.place.number];
                Ok(view.connection.query_row(sql, key, |row| row.get(0)).optional()?)
            })?;
            match value.flatten() {
                Some(value) => edits.insert(due.number, value),
                None => {
                    return Err(OperatorError::Failed(format!(
                        "the edited value of item {} is not in the index: delete its folder, it is built anew",
                        due.place.item
                    )));
                }
            };
        }
        Ok(edits)
    }

    /// Hands a record over.
    fn send(
        &self,
        due: &Due,
        original: &Original,
        edited: Option<&[u8]>,
        answers: &Arc<Answers<Delivery>>,
    ) -> Result<Sent, OperatorError> {
        let dlq = self.inbox.shared.names.dlq();
        let letter = Letter::read(dlq.as_str(), original.partition, &original.record);
        let outgoing = Outgoing { original: &original.record, letter: &letter, replay: due.replay, edited };
        let partitions = |topic: &tidegate_domain::Topic| self.partitions_of(topic);
        let targets = Targets { names: &self.inbox.shared.names, partitions: &partitions };
        loop {
            let ticket = Ticket(due.number as u64);
            match outgoing.publish(&self.publisher, &targets, UnixMillis(now()), ticket, answers) {
                Ok(partition) => return Ok(Sent::To(partition)),
                Err(Unsendable::Publish(PublishError::Full)) => std::thread::sleep(Duration::from_millis(5)),
                Err(error @ (Unsendable::NoTopic(_) | Unsendable::Publish(PublishError::TooLarge(_)))) => {
                    return Ok(Sent::Unsendable(error.to_string()));
                }
                Err(error) => return Err(unsendable(due, &error)),
            }
        }
    }

    fn wait_for(
        &mut self,
        mut on_their_way: OnTheirWay,
        answers: &Answers<Delivery>,
        given_up: &mut GivenUp,
    ) -> Result<(), OperatorError> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while !on_their_way.is_empty() {
            answers.take(&mut taken);
            for (Ticket(number), answer) in taken.drain(..) {
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let partition = on_their_way.remove(&number).flatten();
                match answer {
                    Ok(acknowledged) => {
                        self.published += 1;
                        self.course.published(number, UnixMillis(now()));
                        if let (Some(partition), Some(item)) = (partition, self.course.item(number)) {
                            self.queues.sent(item, partition, acknowledged.offset);
                        }
                    }
                    Err(error @ PublishError::TooLarge(_)) => {
                        given_up.entry(error.to_string()).or_default().push(number);
                    }
                    Err(error) => {
                        return Err(OperatorError::Failed(format!(
                            "a replay can't be published: {error}; nothing is lost, `tidegate dlq replay --resume {}` goes on",
                            self.run
                        )));
                    }
                }
            }
            if began.elapsed() > ACKNOWLEDGED_WITHIN {
                return Err(OperatorError::Failed(format!(
                    "{} not acknowledged in time; nothing is lost, `tidegate dlq replay --resume {}` goes on",
                    counted(on_their_way.len() as u64, "replay was", "replays were"),
                    self.run
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn unsendable(due: &Due, error: &Unsendable) -> OperatorError {
    OperatorError::Failed(format!("the replay of item {} can't be published: {error}", due.place.item))
}
