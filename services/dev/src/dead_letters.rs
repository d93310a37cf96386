//! Follows the dead-letter topic, to say for what causes records died: metrics know kinds, and not codes and messages.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_bootstrap::Config;
use tidegate_domain::{CommitPosition, Partition};
use tidegate_kafka::{LogReader, ReadError};
use tidegate_pipeline::dead_letter::{ERROR_CODE, ERROR_MESSAGE};
use tidegate_pipeline::{Record, TopicPartition};
use tidegate_service::wiring;

use crate::error::DevError;
use crate::snapshot::Cause;
use crate::view::cut;

type Causes = BTreeMap<(String, String), (u64, Instant)>;

/// The causes of death so far; it stops following when dropped.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    causes: Arc<Mutex<Causes>>,
    stop: Arc<AtomicBool>,
}

/// How often it looks for more.
const EVERY: Duration = Duration::from_millis(500);
/// How much of a message tells its cause: more than that is no line of any screen.
const MESSAGE: usize = 200;

impl DeadLetters {
    /// Begins to follow, on a thread of its own: reading blocks.
    pub(crate) fn follow(config: &Config) -> Result<Self, DevError> {
        let reader = LogReader::new(&wiring::kafka(config)).map_err(DevError::Connect)?;
        let topic = wiring::names(config).dlq();
        let partitions = config.tiers.values().map(|tier| tier.partitions.get()).max().unwrap_or(1);
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        let mut places: Vec<(TopicPartition, CommitPosition)> = (0..partitions)
            .map(|number| TopicPartition { topic: topic.clone(), partition: Partition(number) })
            .map(|partition| (partition, CommitPosition(0)))
            .collect();
        let (causes, stop) = (Arc::new(Mutex::new(Causes::new())), Arc::new(AtomicBool::new(false)));
        let following = Self { causes: causes.clone(), stop: stop.clone() };
        std::thread::Builder::new().name("dead letters".to_owned()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for (partition, next) in &mut places {
                    // What can't be read now is read later; it is only shown.
                    if let Err(error) = read_on(&reader, partition, next, &causes) {
                        tracing::debug!(%error, "dead letters can't be read now");
                    }
                }
                std::thread::sleep(EVERY);
            }
        })?;
        Ok(following)
    }

    /// The causes, in no order.
    pub(crate) fn causes(&self, now: Instant) -> Vec<Cause> {
        let cause = |((of, what), (count, at)): (&(String, String), &(u64, Instant))| Cause {
            of: of.clone(),
            what: what.clone(),
            count: *count,
            ago: now.saturating_duration_since(*at),
        };
        self.causes.lock().iter().map(cause).collect()
    }
}

impl Drop for DeadLetters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn read_on(
    reader: &LogReader,
    partition: &TopicPartition,
    next: &mut CommitPosition,
    causes: &Mutex<Causes>,
) -> Result<(), ReadError> {
    let (first, end) = reader.bounds(partition)?;
    *next = (*next).max(first);
    reader.read(partition, *next, end, &mut |records| {
        let mut causes = causes.lock();
        for record in records.iter() {
            let known = causes.entry(cause(record)).or_insert((0, Instant::now()));
            *known = (known.0 + 1, Instant::now());
        }
        if let Some(last) = records.last() {
            *next = last.offset().next();
        }
        ControlFlow::Continue(())
    })?;
    *next = (*next).max(end);
    Ok(())
}

/// Whose record it was, and why it died.
fn cause(record: &Record) -> (String, String) {
    let text = |header| record.header(header).map(|value| String::from_utf8_lossy(value).into_owned());
    let of = text("job-class").or_else(|| text("__connect.errors.topic")).unwrap_or_default();
    let message = first_line(&text(ERROR_MESSAGE).unwrap_or_default());
    (of, format!("dead: {} {message}", text(ERROR_CODE).unwrap_or_default()).trim_end().to_owned())
}

fn first_line(message: &str) -> String {
    cut(message.lines().next().unwrap_or_default(), MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_whole_or_shown_to_be_cut() {
        let sentence =
            "the value starts with byte 0x74, not with the magic byte of the wire format, which is 0x00";
        assert_eq!(first_line(&format!("{sentence}\nand more")), sentence);
        let told = first_line(&"x".repeat(1000));
        assert!(told.ends_with("x…") && told.chars().count() == MESSAGE, "{told}");
    }
}
