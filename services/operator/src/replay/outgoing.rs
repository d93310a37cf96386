//! What a replay publishes: the original's key, value and source headers, as the next round.

use tidegate_domain::inbox::{Replay, ReplayHeader};
use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{Attempt, Hop, JobHeader, Partition, Topic, UnixMillis};
use tidegate_pipeline::dead_letter::source_headers;
use tidegate_pipeline::ports::{Delivery, PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::{OutboundHeaders, OutboundRecord};
use tidegate_pipeline::{Inbox as Answers, Names, Record};

use crate::letter::Letter;

/// The header that says which item and round a record is that goes to ingest again.
use tidegate_domain::inbox::REPLAY_HEADER;

/// A record on its way back.
pub(super) struct Outgoing<'a> {
    pub(super) original: &'a Record,
    pub(super) letter: &'a Letter<'a>,
    pub(super) replay: Replay,
    /// What an operator made of its value.
    pub(super) edited: Option<&'a [u8]>,
}

/// Where records go back to.
pub(super) struct Targets<'a> {
    pub(super) names: &'a Names,
    /// How many partitions a topic has.
    pub(super) partitions: &'a dyn Fn(&Topic) -> Option<u32>,
}

/// Why a record can't go back.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsendable {
    #[error("there is no topic {0}, which it came from: `tidegate topics apply` creates it")]
    NoTopic(Topic),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Outgoing<'_> {
    /// Hands it over; see [`RecordPublisher::publish`].
    pub(super) fn publish(
        &self,
        publisher: &dyn RecordPublisher,
        targets: &Targets<'_>,
        now: UnixMillis,
        ticket: Ticket,
        answers: &std::sync::Arc<Answers<Delivery>>,
    ) -> Result<(), Unsendable> {
        let (topic, partition, name, text) = match &self.letter.job {
            Some(job) => {
                let topic = targets.names.jobs(job.tier);
                let count = (targets.partitions)(&topic).ok_or_else(|| Unsendable::NoTopic(topic.clone()))?;
                let partition = Some(job.lane.partition(count));
                (topic, partition, JOB_HEADER, self.job(job, now).to_text())
            }
            None => {
                let item = self.letter.item_id();
                let header = ReplayHeader { item, round: self.replay.round };
                (targets.names.reingest(), None, REPLAY_HEADER, header.to_string())
            }
        };
        let headers = self.headers(name, &text);
        let value = self.edited.or(self.original.value());
        let record = OutboundRecord {
            topic: &topic,
            partition: partition as Option<Partition>,
            key: self.original.key(),
            value,
            headers: &headers,
        };
        Ok(publisher.publish(&record, ticket, answers)?)
    }

    /// A new life: no hop, the first attempt, due now.
    fn job<'b>(&self, job: &JobHeader<'b>, now: UnixMillis) -> JobHeader<'b> {
        JobHeader {
            round: self.replay.round,
            hop: Hop(0),
            attempt: Attempt(1),
            due: now,
            forced: self.replay.forced,
            ..job.clone()
        }
    }

    fn headers<'b>(&'b self, name: &'b str, text: &'b str) -> OutboundHeaders<'b> {
        let mut headers: OutboundHeaders<'b> = match self.letter.job {
            Some(_) => source_headers(self.original, false),
            // Ingest takes off what a dead letter brings along, and knows one by it.
            None => self.original.headers().filter(|(name, _)| *name != REPLAY_HEADER.as_bytes()).collect(),
        };
        headers.push((name.as_bytes(), Some(text.as_bytes())));
        headers
    }
}
