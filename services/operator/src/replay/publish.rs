//! Publishing what a run's ramp allows, in order, at the run's rate.

use std::ops::Range;
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, params};
use rustc_hash::FxHashMap;
use tidegate_domain::inbox::Replay;
use tidegate_domain::{Offset, UnixMillis};
use tidegate_pipeline::ports::{PublishError, Ticket};
use tidegate_pipeline::{Inbox as Answers, Wake};

use super::originals::Original;
use super::outgoing::{Outgoing, Targets, Unsendable};
use super::run::{Place, Runner};
use crate::error::OperatorError;
use crate::inbox::now;
use crate::letter::Letter;

/// So many records are read and published at a time, at most.
const SLICE: usize = 20_000;
/// And so many bytes.
const SLICE_BYTES: u64 = 32 << 20;
/// With a rate: a slice is what may go within this time.
const SLICE_TIME: f64 = 0.1;
/// How long acknowledgements of a slice may take.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

/// Where a letter stands, and how large its value is.
type FoundLetter = ((i32, i64), u64);

/// A replay that is to be published now.
struct Due {
    number: usize,
    place: Place,
    replay: Replay,
    /// Where its latest letter stands.
    letter: (i32, i64),
}

impl Runner<'_> {
    /// Publishes some of these places; the ramp names the rest again.
    pub(super) fn publish(&mut self, range: Range<usize>) -> Result<(), OperatorError> {
        let most = match self.rate {
            None => SLICE,
            Some(rate) => ((rate * SLICE_TIME).ceil() as usize).clamp(1, SLICE),
        };
        let due = self.due(range, most)?;
        if let Some(rate) = self.rate {
            std::thread::sleep(self.next_at.saturating_duration_since(Instant::now()));
            self.next_at = Instant::now() + Duration::from_secs_f64(due.len() as f64 / rate.max(0.001));
        }
        let originals = self.read(&due)?;
        let edits = self.edits(&due)?;
        let answers = Answers::new(Wake::default());
        let mut sent = 0;
        for due in &due {
            let original = match originals.get(&due.number) {
                Some(original) => Some(original.clone()),
                None => self.inbox.original_of(due.place.item)?,
            };
            match original {
                Some(original) => {
                    let edited = edits.get(&due.number).map(Vec::as_slice);
                    self.send(due, &original, edited, &answers)?;
                    sent += 1;
                }
                None => self.withdraw(due.place.item)?,
            }
        }
        self.wait_for(sent, &answers)
    }

    /// The first of these places that are to be published, and not more than fit into memory.
    fn due(&mut self, range: Range<usize>, most: usize) -> Result<Vec<Due>, OperatorError> {
        let (mut due, mut bytes) = (Vec::new(), 0);
        for number in range {
            if due.len() >= most || bytes >= SLICE_BYTES {
                break;
            }
            let Some(place) = self.places.get(number).copied() else { break };
            if self.ramp.has_ended(number) {
                continue;
            }
            let folded = self.inbox.folded(place.item)?;
            let Some(replay) = folded.replay.filter(|_| folded.orders(Offset(place.at))) else { continue };
            let (letter, size) = self.letter(place)?.unwrap_or(((-1, -1), 0));
            bytes += size;
            due.push(Due { number, place, replay, letter });
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

    fn read(&self, due: &[Due]) -> Result<FxHashMap<usize, Original>, OperatorError> {
        let numbers: FxHashMap<(i32, i64), usize> = due.iter().map(|due| (due.letter, due.number)).collect();
        let places: Vec<(i32, i64)> = due.iter().map(|due| due.letter).filter(|(p, _)| *p >= 0).collect();
        let mut originals = FxHashMap::default();
        self.inbox.originals(&places, &mut |original| {
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

    fn send(
        &self,
        due: &Due,
        original: &Original,
        edited: Option<&[u8]>,
        answers: &std::sync::Arc<Answers<tidegate_pipeline::ports::Delivery>>,
    ) -> Result<(), OperatorError> {
        let dlq = self.inbox.shared.names.dlq();
        let letter = Letter::read(dlq.as_str(), original.partition, &original.record);
        let outgoing = Outgoing { original: &original.record, letter: &letter, replay: due.replay, edited };
        let partitions = |topic: &tidegate_domain::Topic| self.partitions_of(topic);
        let targets = Targets { names: &self.inbox.shared.names, partitions: &partitions };
        loop {
            let ticket = Ticket(due.number as u64);
            match outgoing.publish(&self.publisher, &targets, UnixMillis(now()), ticket, answers) {
                Ok(()) => return Ok(()),
                Err(Unsendable::Publish(PublishError::Full)) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(unsendable(due, &error)),
            }
        }
    }

    fn wait_for(
        &mut self,
        mut missing: usize,
        answers: &Answers<tidegate_pipeline::ports::Delivery>,
    ) -> Result<(), OperatorError> {
        let began = Instant::now();
        let mut taken = Vec::new();
        while missing > 0 {
            answers.take(&mut taken);
            for (Ticket(number), answer) in taken.drain(..) {
                answer.map_err(|error| {
                    OperatorError::Failed(format!(
                        "a replay can't be published: {error}; nothing is lost, `tidegate dlq replay --resume {}` goes on",
                        self.run_id()
                    ))
                })?;
                missing -= 1;
                self.published += 1;
                self.ramp.published(usize::try_from(number).unwrap_or(usize::MAX), UnixMillis(now()));
            }
            if began.elapsed() > ACKNOWLEDGED_WITHIN {
                return Err(OperatorError::Failed(format!(
                    "{missing} replays were not acknowledged in time; nothing is lost, `tidegate dlq replay --resume {}` goes on",
                    self.run_id()
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
