//! What a replay publishes: the original's key, value and source headers, as the next round.

use tidegate_domain::inbox::{Replay, ReplayHeader};
use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{Attempt, Hop, JobHeader, Partition, Topic, UnixMillis};
use tidegate_pipeline::dead_letter::source_headers;
use tidegate_pipeline::ports::{Delivery, PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::{OutboundHeaders, OutboundRecord};
use tidegate_pipeline::{Inbox as Answers, Names, Record, TopicPartition};

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
    #[error("there is no topic {0}, where it would go: `tidegate topics apply` creates it")]
    NoTopic(Topic),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Outgoing<'_> {
    /// Hands it over; see [`RecordPublisher::publish`]. Returns where it goes; none: the producer chooses the partition.
    pub(super) fn publish(
        &self,
        publisher: &dyn RecordPublisher,
        targets: &Targets<'_>,
        now: UnixMillis,
        ticket: Ticket,
        answers: &std::sync::Arc<Answers<Delivery>>,
    ) -> Result<Option<TopicPartition>, Unsendable> {
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
                let topic = targets.names.reingest();
                let count = (targets.partitions)(&topic).ok_or_else(|| Unsendable::NoTopic(topic.clone()))?;
                // What came from one partition stays in one, and so in order.
                let (_, of_source, _) = self.letter.source;
                let partition = of_source.checked_rem_euclid(i32::try_from(count).unwrap_or(i32::MAX));
                (topic, partition.map(Partition), REPLAY_HEADER, header.to_string())
            }
        };
        let headers = self.headers(name, &text);
        let value = self.edited.or(self.original.value());
        let record =
            OutboundRecord { topic: &topic, partition, key: self.original.key(), value, headers: &headers };
        publisher.publish(&record, ticket, answers)?;
        Ok(partition.map(|partition| TopicPartition { topic, partition }))
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tidegate_domain::inbox::{RunId, State};
    use tidegate_domain::{IdempotencyKey, Lane, Offset, Round};
    use tidegate_pipeline::Wake;
    use tidegate_pipeline::record::RecordBuilder;

    use super::*;

    type Headers = Vec<(String, Option<Vec<u8>>)>;

    #[derive(Debug, PartialEq)]
    struct Published {
        topic: String,
        partition: Option<Partition>,
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
        headers: Headers,
    }

    #[derive(Default)]
    struct Recorder(Mutex<Vec<Published>>);

    impl RecordPublisher for Recorder {
        fn publish(
            &self,
            record: &OutboundRecord<'_>,
            _ticket: Ticket,
            _answers: &Arc<Answers<Delivery>>,
        ) -> Result<(), PublishError> {
            let header = |(name, value): &(&[u8], Option<&[u8]>)| {
                (String::from_utf8(name.to_vec()).unwrap(), value.map(<[u8]>::to_vec))
            };
            self.0.lock().unwrap().push(Published {
                topic: record.topic.to_string(),
                partition: record.partition,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record.headers.iter().map(header).collect(),
            });
            Ok(())
        }
    }

    fn job() -> JobHeader<'static> {
        JobHeader {
            class: "charge",
            tier: "bulk",
            topic: "shop.orders",
            partition: Partition(3),
            offset: Offset(44),
            key: IdempotencyKey([7; 16]),
            lane: Lane(0x1234_5678),
            round: Round(0),
            hop: Hop(3),
            attempt: Attempt(4),
            due: UnixMillis(5),
            first_seen: UnixMillis(6),
            origin: Some(UnixMillis(7)),
            forced: false,
        }
    }

    fn dead(job: Option<&JobHeader<'_>>) -> Record {
        let mut builder =
            RecordBuilder::new(Offset(9), Some(UnixMillis(100)), Some(b"key"), Some(b"\x00value"), 0);
        builder.header(b"theirs", Some(b"1")).header(b"theirs", None).header(b"job-replay", Some(b"old"));
        if let Some(job) = job {
            builder.header(b"job", Some(job.to_text().as_bytes()));
        }
        for (name, value) in [
            ("job-class", "charge"),
            ("job-error-kind", "permanent"),
            ("job-error-message", "no"),
            ("job-dead-at", "99"),
            ("__connect.errors.topic", "shop.orders"),
            ("__connect.errors.partition", "3"),
            ("__connect.errors.offset", "44"),
        ] {
            builder.header(name.as_bytes(), Some(value.as_bytes()));
        }
        builder.build()
    }

    fn published(record: &Record, replay: Replay, edited: Option<&[u8]>) -> Result<Published, Unsendable> {
        let (recorder, names) = (Recorder::default(), Names::new("p"));
        let letter = Letter::read("p.dlq", Partition(0), record);
        let outgoing = Outgoing { original: record, letter: &letter, replay, edited };
        let partitions = |topic: &Topic| match topic.as_str() {
            "p.bulk.jobs" => Some(6),
            "p.reingest" => Some(2),
            _ => None,
        };
        let targets = Targets { names: &names, partitions: &partitions };
        let answers = Answers::new(Wake::default());
        outgoing.publish(&recorder, &targets, UnixMillis(1000), Ticket(1), &answers)?;
        let mut all = recorder.0.into_inner().unwrap();
        assert_eq!(all.len(), 1);
        Ok(all.remove(0))
    }

    const REPLAY: Replay = Replay {
        at: Offset(1),
        run: RunId(1),
        round: Round(2),
        forced: true,
        edited: false,
        before: State::Open,
    };

    #[test]
    fn a_job_goes_back_as_it_came_as_a_new_round_without_what_its_death_left_on_it() {
        let published = published(&dead(Some(&job())), REPLAY, None).unwrap();
        let header = JobHeader {
            round: Round(2),
            hop: Hop(0),
            attempt: Attempt(1),
            due: UnixMillis(1000),
            forced: true,
            ..job()
        };
        let text = |text: &str| Some(text.as_bytes().to_vec());
        let headers: Headers = vec![
            ("theirs".into(), text("1")),
            ("theirs".into(), None),
            ("job".into(), text(&header.to_text())),
        ];
        assert_eq!(
            published,
            Published {
                topic: "p.bulk.jobs".into(),
                partition: Some(Lane(0x1234_5678).partition(6)),
                key: text("key"),
                value: text("\0value"),
                headers,
            }
        );
    }

    #[test]
    fn an_event_that_became_no_job_goes_to_ingest_and_says_which_item_and_round_it_is() {
        let published = published(&dead(None), REPLAY, None).unwrap();
        let place = (published.topic.as_str(), published.partition);
        assert_eq!(
            place,
            ("p.reingest", Some(Partition(1))),
            "what came from partition 3 goes to one of two"
        );
        let said: Vec<_> = published.headers.iter().filter(|(name, _)| name == REPLAY_HEADER).collect();
        assert_eq!(said.len(), 1, "the old one is gone");
        let said = ReplayHeader::parse(said[0].1.as_ref().unwrap()).unwrap();
        assert_eq!((said.item.to_string().as_str(), said.round), ("shop.orders/3/44/", Round(2)));
    }

    #[test]
    fn an_edited_value_goes_in_place_of_the_original_with_its_key() {
        let published = published(&dead(Some(&job())), REPLAY, Some(b"edited")).unwrap();
        assert_eq!((published.key.unwrap(), published.value.unwrap()), (b"key".to_vec(), b"edited".to_vec()));
    }

    #[test]
    fn a_job_of_a_tier_that_is_gone_is_refused() {
        let other = JobHeader { tier: "gone", ..job() };
        assert!(matches!(published(&dead(Some(&other)), REPLAY, None), Err(Unsendable::NoTopic(_))));
    }
}
