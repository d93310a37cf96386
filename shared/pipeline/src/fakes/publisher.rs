//! A publisher into a [`FakeLog`].

use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{Partition, Topic};

use super::faults::{Fate, Faults, Port};
use super::log::FakeLog;
use super::parcels::Parcels;
use crate::inbox::Inbox;
use crate::ports::{Acknowledged, Delivery, PublishError, RecordPublisher, Ticket};
use crate::record::{OutboundHeader, OutboundRecord};

/// The publisher of one node. Records of one partition keep their order; acknowledgements of different ones overtake each other.
#[derive(Debug)]
pub struct FakePublisher {
    pub(super) log: Arc<FakeLog>,
    pub(super) faults: Faults,
    pub(super) parcels: Parcels,
}

struct Owned {
    topic: Topic,
    partition: Option<Partition>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Owned {
    fn of(record: &OutboundRecord<'_>) -> Self {
        Self {
            topic: record.topic.clone(),
            partition: record.partition,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }

    fn append_to(&self, log: &FakeLog) -> Result<Acknowledged, PublishError> {
        let headers: Vec<OutboundHeader<'_>> =
            self.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect();
        let record = OutboundRecord {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
        };
        log.append(&record).ok_or_else(|| PublishError::Unavailable(format!("there is no {}", self.topic)))
    }
}

fn size(record: &OutboundRecord<'_>) -> usize {
    let len = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + len(*value)).sum();
    len(record.key) + len(record.value) + headers
}

impl FakePublisher {
    /// A publisher whose every call asks `faults`.
    pub fn new(log: Arc<FakeLog>, faults: Faults) -> Self {
        Self { log, faults, parcels: Parcels::default() }
    }

    /// How much is on its way.
    pub fn on_their_way(&self) -> usize {
        self.parcels.len()
    }

    /// Whether the record arrives, and what is said of it, after a wait.
    fn decide(
        &self,
        record: &OutboundRecord<'_>,
    ) -> Result<(bool, Duration, Option<PublishError>), PublishError> {
        let unavailable = || PublishError::Unavailable("drawn".to_owned());
        let too_large = || PublishError::TooLarge("drawn".to_owned());
        if self.faults.is_too_large(record.topic.as_str(), size(record)) {
            return Err(PublishError::TooLarge("above the limit".to_owned()));
        }
        match self.faults.fate(&Port::Publish(record.topic.to_string())) {
            Fate::Full => Err(PublishError::Full),
            Fate::Refused => Err(unavailable()),
            Fate::TooLarge => Err(too_large()),
            Fate::Succeeds(wait) => Ok((true, wait, None)),
            Fate::Fails(wait) => Ok((false, wait, Some(unavailable()))),
            Fate::FailsTooLarge(wait) => Ok((false, wait, Some(too_large()))),
            Fate::LosesAnswer(wait) => Ok((true, wait, Some(unavailable()))),
        }
    }
}

impl RecordPublisher for FakePublisher {
    fn publish(
        &self,
        record: &OutboundRecord<'_>,
        ticket: Ticket,
        inbox: &Arc<Inbox<Delivery>>,
    ) -> Result<(), PublishError> {
        let (arrives, wait, error) = self.decide(record)?;
        let owned = Owned::of(record);
        let (log, inbox) = (self.log.clone(), inbox.clone());
        let lane = format!("{}/{:?}", record.topic, record.partition);
        self.parcels.send(&lane, wait, move || {
            let appended = arrives.then(|| owned.append_to(&log));
            let lost = || Err(PublishError::Unavailable("it did not arrive".to_owned()));
            inbox.push((ticket, error.map_or_else(|| appended.unwrap_or_else(lost), Err)));
        });
        Ok(())
    }
}
