use std::fmt;

use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};
use rdkafka::producer::FutureRecord;

/// A record to produce: `Record::default().key("k").value("v").header("source", "shop")`. What isn't set is null; without a
/// partition the key decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    partition: Option<i32>,
    timestamp: Option<i64>,
}

impl Record {
    #[must_use]
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.value = Some(value.into());
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }

    #[must_use]
    pub fn null_header(mut self, name: &str) -> Self {
        self.headers.push((name.to_owned(), None));
        self
    }

    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// In milliseconds since the epoch; the broker ignores it where the topic has `LogAppendTime`.
    #[must_use]
    pub fn timestamp(mut self, timestamp: i64) -> Self {
        self.timestamp = Some(timestamp);
        self
    }

    pub(super) fn to_produce<'a>(&'a self, topic: &'a str) -> FutureRecord<'a, [u8], [u8]> {
        let headers = self.headers.iter().fold(OwnedHeaders::new(), |headers, (name, value)| {
            headers.insert(Header { key: name, value: value.as_ref() })
        });
        FutureRecord {
            topic,
            partition: self.partition,
            payload: self.value.as_deref(),
            key: self.key.as_deref(),
            timestamp: self.timestamp,
            headers: Some(headers),
        }
    }
}

/// A record as Kafka holds it; null and empty stay apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRecord {
    pub partition: i32,
    pub offset: i64,
    /// In milliseconds since the epoch.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// In their order; a name may come more than once.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl ReadRecord {
    pub(super) fn from_message(message: &BorrowedMessage<'_>) -> Self {
        let header = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
        Self {
            partition: message.partition(),
            offset: message.offset(),
            timestamp: message.timestamp().to_millis(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: message
                .headers()
                .map(|headers| headers.iter().map(header).collect())
                .unwrap_or_default(),
        }
    }

    /// The first header of that name, as text; `None` when it's absent, null or not UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        str::from_utf8(value.as_deref()?).ok()
    }

    /// Key and value as text, for messages and for tests with text in them; null is `None`.
    pub fn key_text(&self) -> Option<String> {
        self.key.as_deref().map(|key| String::from_utf8_lossy(key).into_owned())
    }

    pub fn value_text(&self) -> Option<String> {
        self.value.as_deref().map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

/// One line for the message of a failed test.
impl fmt::Display for ReadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}/{} key={:?}", self.partition, self.offset, self.key_text())?;
        for (name, value) in &self.headers {
            write!(f, " {name}={:?}", value.as_deref().map(String::from_utf8_lossy))?;
        }
        write!(f, " value={} bytes", self.value.as_ref().map_or(-1, |value| value.len() as i64))
    }
}
