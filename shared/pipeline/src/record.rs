//! Records as they were read, and as they are to be published.

use std::fmt;

use smallvec::SmallVec;
use tidegate_domain::{Offset, Partition, Topic, UnixMillis};

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// Whose clock a timestamp is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Broker,
    Publisher,
}

/// A record that was read. Key, value and headers lie in one allocation; null and empty are told apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    offset: Offset,
    timestamp: Option<UnixMillis>,
    clock: Clock,
    bytes: Box<[u8]>,
    key: Option<u32>,
    value: Option<u32>,
    headers_at: u32,
}

impl Record {
    /// Its offset.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// Its timestamp, whoever's clock it is of.
    pub fn timestamp(&self) -> Option<UnixMillis> {
        self.timestamp
    }

    /// When it was appended, by the broker's clock; none where the topic has `CreateTime`, so that the publisher says when.
    pub fn appended_at(&self) -> Option<UnixMillis> {
        self.timestamp.filter(|_| self.clock == Clock::Broker)
    }

    /// Its key; `None` is null.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.map(|len| &self.bytes[..len as usize])
    }

    /// Its value; `None` is null.
    pub fn value(&self) -> Option<&[u8]> {
        self.value.map(|len| &self.bytes[self.headers_at as usize - len as usize..self.headers_at as usize])
    }

    /// Its headers, in order.
    pub fn headers(&self) -> Headers<'_> {
        Headers(&self.bytes[self.headers_at as usize..])
    }

    /// The value of the last header called `name`; `None` also where that value is null.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().filter(|(n, _)| *n == name.as_bytes()).last().and_then(|(_, value)| value)
    }

    /// About how much memory it holds.
    pub fn size(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("offset", &self.offset)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// The headers of a record: name and value, each as bytes, since a publisher may have written any.
#[derive(Clone, Debug)]
pub struct Headers<'a>(&'a [u8]);

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name_len, rest) = self.0.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(u32::from_ne_bytes(*name_len) as usize)?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = match u32::from_ne_bytes(*value_len) {
            NULL => (None, rest),
            len => rest.split_at_checked(len as usize).map(|(value, rest)| (Some(value), rest))?,
        };
        self.0 = rest;
        Some((name, value))
    }
}

const NULL: u32 = u32::MAX;

/// Builds a [`Record`] from borrowed parts: key and value first, then the headers in order.
#[derive(Debug)]
pub struct RecordBuilder {
    offset: Offset,
    timestamp: Option<UnixMillis>,
    clock: Clock,
    bytes: Vec<u8>,
    key: Option<u32>,
    value: Option<u32>,
    headers_at: u32,
}

impl RecordBuilder {
    /// A record with this key and value. `headers_size` is the sum of its [`RecordBuilder::header_size`]; with another one, it is
    /// allocated twice.
    pub fn new(
        offset: Offset,
        timestamp: Option<UnixMillis>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers_size: usize,
    ) -> Self {
        let len = |part: Option<&[u8]>| part.map(|bytes| u32::try_from(bytes.len()).unwrap_or(NULL - 1));
        let (key_bytes, value_bytes) = (key.unwrap_or_default(), value.unwrap_or_default());
        let mut bytes = Vec::with_capacity(key_bytes.len() + value_bytes.len() + headers_size);
        bytes.extend_from_slice(key_bytes);
        bytes.extend_from_slice(value_bytes);
        let headers_at = u32::try_from(bytes.len()).unwrap_or(NULL - 1);
        let (key, value, clock) = (len(key), len(value), Clock::Publisher);
        Self { offset, timestamp, clock, bytes, key, value, headers_at }
    }

    /// Its timestamp is of the broker's clock, and no publisher's.
    pub fn appended_by_broker(&mut self) -> &mut Self {
        self.clock = Clock::Broker;
        self
    }

    /// How many bytes a header takes.
    pub fn header_size(name: &[u8], value: Option<&[u8]>) -> usize {
        2 * size_of::<u32>() + name.len() + value.map_or(0, <[u8]>::len)
    }

    /// Appends a header.
    pub fn header(&mut self, name: &[u8], value: Option<&[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(&u32::try_from(name.len()).unwrap_or(NULL - 1).to_ne_bytes());
        self.bytes.extend_from_slice(name);
        match value {
            None => self.bytes.extend_from_slice(&NULL.to_ne_bytes()),
            Some(value) => {
                self.bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(NULL - 1).to_ne_bytes());
                self.bytes.extend_from_slice(value);
            }
        }
        self
    }

    /// The record.
    pub fn build(self) -> Record {
        Record {
            offset: self.offset,
            timestamp: self.timestamp,
            clock: self.clock,
            bytes: self.bytes.into_boxed_slice(),
            key: self.key,
            value: self.value,
            headers_at: self.headers_at,
        }
    }
}

/// A header of a record to be published.
pub type OutboundHeader<'a> = (&'a [u8], Option<&'a [u8]>);

/// Headers of a record to be published; the usual few lie on the stack.
pub type OutboundHeaders<'a> = SmallVec<[OutboundHeader<'a>; 12]>;

/// A record to be published. Key and value are the read record's own bytes: tidegate never changes them.
#[derive(Clone, Copy, Debug)]
pub struct OutboundRecord<'a> {
    /// Where it goes.
    pub topic: &'a Topic,
    /// Which partition there; where there is none, the key decides.
    pub partition: Option<Partition>,
    /// Its key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is null.
    pub value: Option<&'a [u8]>,
    /// Its headers, in order.
    pub headers: &'a [OutboundHeader<'a>],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_parts_and_all_headers_survive() {
        for key in [None, Some(&b""[..]), Some(b"key")] {
            for value in [None, Some(&b""[..]), Some(b"value")] {
                let mut builder = RecordBuilder::new(Offset(7), Some(UnixMillis(9)), key, value, 0);
                builder.header(b"a", None).header(b"a", Some(b"")).header(b"\xff", Some(b"x"));
                let record = builder.build();
                assert_eq!((record.key(), record.value()), (key, value));
                let headers: Vec<_> = record.headers().collect();
                assert_eq!(headers, [(&b"a"[..], None), (b"a", Some(&b""[..])), (b"\xff", Some(b"x"))]);
                assert_eq!(record.header("a"), Some(&b""[..]), "the last one counts");
                assert_eq!(record.header("b"), None);
                assert_eq!((record.timestamp(), record.appended_at()), (Some(UnixMillis(9)), None));
            }
        }
    }
}
