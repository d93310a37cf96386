#![allow(dead_code, reason = "each test uses a part of it")]
//! Dead letters and entries of the journal, made by hand, and an inbox that reads what they were indexed to.

use std::path::Path;
use std::sync::Arc;

use tidegate_bootstrap::Config;
use tidegate_domain::failure::fingerprint;
use tidegate_domain::inbox::{ItemId, RunId};
use tidegate_domain::{
    Attempt, FailureKind, FieldValue, Hop, IdempotencyKey, JobHeader, Lane, Offset, Partition, Round, Topic,
    UnixMillis,
};
use tidegate_operator::Inbox;
use tidegate_pipeline::Record;
use tidegate_pipeline::journal::{Actions, Entry, Order, Ordered, OutcomeEntry};
use tidegate_pipeline::record::RecordBuilder;

pub(crate) const DLQ: &str = "test.dlq";
/// The time that everything is counted from: 2025-11-24T16:53:20Z.
pub(crate) const EPOCH: i64 = 1_764_000_000_000;

/// What a dead letter is made from.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// Its event's offset in its source.
    pub(crate) event: i64,
    /// None: it never became a job.
    pub(crate) class: Option<&'static str>,
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    pub(crate) round: u32,
    /// When it came into the topic, after [`EPOCH`].
    pub(crate) at: i64,
    /// How much its worker's clock is ahead of the broker's.
    pub(crate) ahead: i64,
    pub(crate) tier: &'static str,
    pub(crate) value: Vec<u8>,
}

impl Made {
    pub(crate) fn new(event: i64, class: Option<&'static str>) -> Self {
        let value = [&[0, 0, 0, 0, 7][..], format!("\x10order-{event}\x02").as_bytes()].concat();
        let message = "connection refused".to_owned();
        let (kind, tier) = (FailureKind::Transient, "bulk");
        Self { event, class, kind, message, round: 0, at: event * 10, ahead: 0, tier, value }
    }

    pub(crate) fn id(&self) -> ItemId {
        ItemId {
            topic: Topic::new("shop.orders"),
            partition: Partition(3),
            offset: Offset(self.event),
            class: self.class.map(Into::into),
        }
    }

    pub(crate) fn key(&self) -> IdempotencyKey {
        IdempotencyKey::derive("test", &[FieldValue::Int(self.event)], None).unwrap()
    }

    /// The record at this offset of the dead-letter topic.
    pub(crate) fn record(&self, offset: i64) -> Record {
        let dead_at = EPOCH + self.at;
        let mut headers = vec![
            ("__connect.errors.topic", "shop.orders".to_owned()),
            ("__connect.errors.partition", "3".to_owned()),
            ("__connect.errors.offset", self.event.to_string()),
            ("job-error-kind", self.kind.as_str().to_owned()),
            ("job-error-code", "code".to_owned()),
            ("job-error-fingerprint", fingerprint(self.kind, "code", &self.message).to_string()),
            ("job-error-message", self.message.clone()),
            ("job-dead-at", (dead_at + self.ahead).to_string()),
        ];
        if let Some(class) = self.class {
            headers.push(("job", self.header(class)));
        }
        let key = format!("key-{}", self.event);
        let mut builder = RecordBuilder::new(
            Offset(offset),
            Some(UnixMillis(dead_at)),
            Some(key.as_bytes()),
            Some(&self.value),
            0,
        );
        builder.appended_by_broker();
        for (name, value) in &headers {
            builder.header(name.as_bytes(), Some(value.as_bytes()));
        }
        builder.build()
    }

    fn header(&self, class: &str) -> String {
        let key = self.key();
        JobHeader {
            class,
            tier: self.tier,
            topic: "shop.orders",
            partition: Partition(3),
            offset: Offset(self.event),
            key,
            lane: Lane::of_key(key),
            round: Round(self.round),
            hop: Hop(0),
            attempt: Attempt(4),
            due: UnixMillis(EPOCH),
            first_seen: UnixMillis(EPOCH),
            origin: None,
            forced: false,
        }
        .to_text()
    }
}

/// A record of the journal at this offset, so many milliseconds after [`EPOCH`].
pub(crate) fn entry(offset: i64, at: i64, entry: &Entry) -> Record {
    let value = entry.write();
    RecordBuilder::new(Offset(offset), Some(UnixMillis(EPOCH + at)), None, Some(&value), 0).build()
}

/// An order about some items, each with what its author had seen and the round of its replay.
pub(crate) fn order(order: Order, items: Vec<(ItemId, Option<i64>, u32)>) -> Entry {
    let ordered = |(id, seen, round): (ItemId, Option<i64>, u32)| Ordered {
        id,
        seen: seen.map(Offset),
        round: Round(round),
        edited: None,
    };
    Entry::Actions(Actions {
        run: RunId(7),
        by: "ann".to_owned(),
        at: UnixMillis(EPOCH),
        chunk: 0,
        order,
        reason: Some("a test".to_owned()),
        items: items.into_iter().map(ordered).collect(),
    })
}

/// What became of an item's round.
pub(crate) fn outcome(id: ItemId, round: u32, answer: tidegate_domain::inbox::Answer) -> Entry {
    Entry::Outcome(OutcomeEntry {
        id,
        outcome: tidegate_domain::inbox::Outcome { round: Round(round), answer },
        at: UnixMillis(EPOCH),
        worker: Some("test.bulk.worker".to_owned()),
        detail: None,
        error: None,
        parked: None,
    })
}

/// An inbox that reads the index in `dir`. Nothing listens at the address of its Kafka.
pub(crate) fn inbox(dir: &Path) -> Inbox {
    let text = "[pipeline]\nname = \"test\"\n[kafka]\nbootstrap = \"127.0.0.1:1\"\n[registry]\nurl = \"http://127.0.0.1:1\"\n\
                [sources.\"shop.orders\"]\nstart = \"earliest\"\n\
                [classes.charge]\nsource = \"shop.orders\"\nkey = [\"id\"]\nhandler = { type = \"http\", url = \"http://127.0.0.1:1/charge?token=1\" }\n\
                [classes.mail]\nsource = \"shop.orders\"\nkey = [\"id\"]\nhandler = { type = \"log\" }\n";
    let config = Config::parse("test", text, std::iter::empty()).unwrap();
    Inbox::open(Arc::new(config), Some(dir)).unwrap()
}
