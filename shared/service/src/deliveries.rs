//! Publishing from a command: records go out as fast as they are taken, and none is forgotten.

use std::sync::Arc;
use std::time::Duration;

use tidegate_kafka::Publisher;
use tidegate_pipeline::ports::{Delivery, PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::{Inbox, Wake};

/// A record that did not get into its topic.
#[derive(Debug, thiserror::Error)]
#[error("record {number} was not published")]
pub struct Undelivered {
    /// The number that it was published under.
    pub number: u64,
    /// Why.
    #[source]
    pub reason: PublishError,
}

/// What is published and not acknowledged.
#[derive(Debug)]
pub struct Deliveries {
    inbox: Arc<Inbox<Delivery>>,
    on_their_way: u64,
    acknowledged: u64,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self { inbox: Inbox::new(Wake::default()), on_their_way: 0, acknowledged: 0 }
    }
}

impl Deliveries {
    /// Hands a record over, and waits while there is no room. `number` is for the error, which may be that of an earlier record.
    pub fn publish(
        &mut self,
        publisher: &Publisher,
        record: &OutboundRecord<'_>,
        number: u64,
    ) -> Result<(), Undelivered> {
        loop {
            match publisher.publish(record, Ticket(number), &self.inbox) {
                Ok(()) => {
                    self.on_their_way += 1;
                    return self.take();
                }
                Err(PublishError::Full) => {
                    self.take()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(reason) => return Err(Undelivered { number, reason }),
            }
        }
    }

    /// Waits until all are acknowledged; returns how many were.
    pub fn finish(mut self) -> Result<u64, Undelivered> {
        while self.on_their_way > 0 {
            self.take()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.acknowledged)
    }

    fn take(&mut self) -> Result<(), Undelivered> {
        let mut answers = Vec::new();
        self.inbox.take(&mut answers);
        for (Ticket(number), answer) in answers {
            self.on_their_way -= 1;
            answer.map_err(|reason| Undelivered { number, reason })?;
            self.acknowledged += 1;
        }
        Ok(())
    }
}
