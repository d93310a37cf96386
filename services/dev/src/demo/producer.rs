//! Publishes the shop's events at an even rate, on a thread of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_codec::{CompiledSchema, wire};
use tidegate_domain::Topic;
use tidegate_kafka::{Fatal, KafkaSettings, Publisher};
use tidegate_pipeline::ports::{Delivery, PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::{Inbox, Wake};

use super::events::{CLASSES, DemoClass, SHARES, is_followed_by_garbage, is_repeated};
use crate::error::DevError;

/// How much is published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Records in a second.
    pub(crate) rate: u32,
    /// After how many records it ends; none: it does not.
    pub(crate) records: Option<u64>,
    /// Whether some events are published twice.
    pub(crate) repeats: Repeats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeats {
    Some,
    None,
}

/// How many records may be published and not yet at an end. Even if all of them were of one partition and dead letters with all their
/// headers, they would stay within what a partition of the embedded broker holds.
pub(crate) const MOST_OPEN: u64 = 2000;

/// How many records of one class were published, all of them acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// All.
    pub(crate) records: u64,
    /// Those that were no events.
    pub(crate) garbage: u64,
    /// Those that had been published before.
    pub(crate) repeats: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    ended: AtomicBool,
    /// How many records are known to be at an end.
    settled: AtomicU64,
    held_back: AtomicBool,
    acknowledged: [Counts; 3],
    failed: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Counts {
    records: AtomicU64,
    garbage: AtomicU64,
    repeats: AtomicU64,
}

/// A running producer.
#[derive(Debug)]
pub(crate) struct Producer(Arc<Shared>);

impl Producer {
    /// Begins to publish; `ids` are the ids of the classes' schemas.
    pub(crate) fn start(kafka: &KafkaSettings, ids: [u32; 3], load: Load) -> Result<Self, DevError> {
        let publisher = Publisher::new(kafka, Fatal::default()).map_err(DevError::Connect)?;
        let shared = Arc::new(Shared::default());
        let run = Run::new(publisher, ids, load, shared.clone())?;
        let thread = std::thread::Builder::new().name("demo producer".to_owned());
        thread.spawn(move || run.run()).map_err(DevError::Local)?;
        Ok(Self(shared))
    }

    /// What was published so far of each class, in the order of [`CLASSES`].
    pub(crate) fn published(&self) -> [Published; 3] {
        let of = |counts: &Counts| Published {
            records: counts.records.load(Ordering::Relaxed),
            garbage: counts.garbage.load(Ordering::Relaxed),
            repeats: counts.repeats.load(Ordering::Relaxed),
        };
        self.0.acknowledged.each_ref().map(of)
    }

    /// All records that were published so far.
    pub(crate) fn total(&self) -> u64 {
        self.published().iter().map(|published| published.records).sum()
    }

    /// How many records are at an end: publishing waits while too many are not.
    pub(crate) fn settled(&self, records: u64) {
        self.0.settled.store(records, Ordering::Relaxed);
    }

    /// Whether it waits for jobs to end.
    pub(crate) fn is_held_back(&self) -> bool {
        self.0.held_back.load(Ordering::Relaxed)
    }

    /// Asks it to end; what is on its way is still acknowledged.
    pub(crate) fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it has ended, and everything is acknowledged.
    ///
    /// # Errors
    /// When a record was not published.
    pub(crate) fn has_ended(&self) -> Result<bool, DevError> {
        match self.0.failed.lock().clone() {
            Some(reason) => Err(DevError::Publish(reason)),
            None => Ok(self.0.ended.load(Ordering::Acquire)),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Event,
    Repeat,
    Garbage,
}

/// After how many further events of its class an event is repeated.
const REPEAT_AFTER: u64 = 5;

struct Run {
    publisher: Publisher,
    schemas: [CompiledSchema; 3],
    topics: [Topic; 3],
    load: Load,
    shared: Arc<Shared>,
    inbox: Arc<Inbox<Delivery>>,
    sent: u64,
    acknowledged: u64,
    /// The number of each class's next event.
    next: [u64; 3],
    /// What is to come before the next event.
    queued: VecDeque<(usize, u64, What)>,
}

/// How often it looks how much is due.
const TICK: Duration = Duration::from_millis(5);

impl Run {
    fn new(publisher: Publisher, ids: [u32; 3], load: Load, shared: Arc<Shared>) -> Result<Self, DevError> {
        let schema = |place: usize| {
            CompiledSchema::parse(ids[place], CLASSES[place].schema, &[])
                .map_err(|error| DevError::Publish(error.to_string()))
        };
        Ok(Self {
            publisher,
            schemas: [schema(0)?, schema(1)?, schema(2)?],
            topics: CLASSES.each_ref().map(|class| Topic::new(class.topic)),
            load,
            shared,
            inbox: Inbox::new(Wake::default()),
            sent: 0,
            acknowledged: 0,
            next: [0; 3],
            queued: VecDeque::new(),
        })
    }

    fn run(mut self) {
        if let Err(reason) = self.publish_all() {
            *self.shared.failed.lock() = Some(reason);
        }
        self.shared.ended.store(true, Ordering::Release);
    }

    fn publish_all(&mut self) -> Result<(), String> {
        let mut last = Instant::now();
        // Records that are due, the fraction of one included.
        let mut due = 0.0;
        while !self.shared.stop.load(Ordering::Relaxed) && self.load.records.is_none_or(|all| self.sent < all)
        {
            let now = Instant::now();
            // What could not be published in its time is not caught up with: that would be a burst.
            due = (due + now.duration_since(last).as_secs_f64() * f64::from(self.load.rate)).min(100.0);
            last = now;
            let open = self.sent.saturating_sub(self.shared.settled.load(Ordering::Relaxed));
            self.shared.held_back.store(open >= MOST_OPEN, Ordering::Relaxed);
            let left = self.load.records.map_or(u64::MAX, |all| all - self.sent);
            let now = (due as u64).min(left).min(MOST_OPEN.saturating_sub(open));
            for _ in 0..now {
                self.publish_next()?;
            }
            due -= now as f64;
            self.take_answers()?;
            std::thread::sleep(TICK);
        }
        while self.acknowledged < self.sent {
            self.take_answers()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn publish_next(&mut self) -> Result<(), String> {
        if self.queued.is_empty() {
            self.queue_next();
        }
        let Some((place, n, what)) = self.queued.pop_front() else { return Ok(()) };
        let class: &DemoClass = &CLASSES[place];
        let event = class.event(n);
        let value = match what {
            What::Garbage => b"this is not Avro".to_vec(),
            What::Event | What::Repeat => {
                let datum = self.schemas[place].encode_json(&event).map_err(|error| error.to_string())?;
                wire::frame(self.schemas[place].id(), &datum)
            }
        };
        let key = event[class.key].as_str().unwrap_or_default();
        let record = OutboundRecord {
            topic: &self.topics[place],
            partition: None,
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: &[],
        };
        loop {
            match self.publisher.publish(&record, ticket(place, what), &self.inbox) {
                Ok(()) => break,
                Err(PublishError::Full) => std::thread::sleep(TICK),
                Err(error) => return Err(error.to_string()),
            }
        }
        self.sent += 1;
        Ok(())
    }

    /// The next event, and what goes along with it.
    fn queue_next(&mut self) {
        let turn = self.next.iter().sum::<u64>() % SHARES.iter().sum::<u64>();
        let ends = SHARES.iter().scan(0, |end, share| {
            *end += share;
            Some(*end)
        });
        let place = ends.take_while(|&end| end <= turn).count();
        let n = self.next[place];
        self.next[place] += 1;
        self.queued.push_back((place, n, What::Event));
        if is_followed_by_garbage(n) {
            self.queued.push_back((place, n, What::Garbage));
        }
        if self.load.repeats == Repeats::Some
            && let Some(earlier) = n.checked_sub(REPEAT_AFTER).filter(|&earlier| is_repeated(earlier))
        {
            self.queued.push_back((place, earlier, What::Repeat));
        }
    }

    fn take_answers(&mut self) -> Result<(), String> {
        let mut answers = Vec::new();
        self.inbox.take(&mut answers);
        for (ticket, answer) in answers {
            answer.map_err(|error| error.to_string())?;
            let (place, what) = of_ticket(ticket);
            self.acknowledged += 1;
            let counts = &self.shared.acknowledged[place];
            counts.records.fetch_add(1, Ordering::Relaxed);
            match what {
                What::Event => {}
                What::Repeat => _ = counts.repeats.fetch_add(1, Ordering::Relaxed),
                What::Garbage => _ = counts.garbage.fetch_add(1, Ordering::Relaxed),
            }
        }
        Ok(())
    }
}

const WHATS: [What; 3] = [What::Event, What::Repeat, What::Garbage];

fn ticket(place: usize, what: What) -> Ticket {
    Ticket(place as u64 * 3 + what as u64)
}

fn of_ticket(Ticket(ticket): Ticket) -> (usize, What) {
    ((ticket / 3 % 3) as usize, WHATS[(ticket % 3) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_says_what_was_published() {
        for place in 0..3 {
            for what in WHATS {
                assert_eq!(of_ticket(ticket(place, what)), (place, what));
            }
        }
    }
}
