//! How items are named in short: sixteen hex digits of (job-id, class), the same in every index and for ever.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tidegate_domain::inbox::ItemId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The short name of an item: whatever was dead-lettered of one job, however often. Printed as 16 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemRef(pub u64);

impl ItemRef {
    /// The item of the event at this place, as a job of `class`; without a class, of the event that became no job.
    pub fn of(topic: &str, partition: i32, offset: i64, class: Option<&str>) -> Self {
        let mut place = [0; 13];
        place[..4].copy_from_slice(&partition.to_be_bytes());
        place[4..12].copy_from_slice(&offset.to_be_bytes());
        // No class is called by the empty name, but it must not be taken for one either.
        place[12] = u8::from(class.is_some());
        let hash = xxh3_64(topic.as_bytes());
        let hash = xxh3_64_with_seed(class.unwrap_or_default().as_bytes(), hash);
        Self(xxh3_64_with_seed(&place, hash))
    }

    /// The short name of this item.
    pub fn of_id(id: &ItemId) -> Self {
        Self::of(id.topic.as_str(), id.partition.0, id.offset.0, id.class.as_deref())
    }
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Not sixteen hex digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no item: write its 16 hex digits, as `tidegate dlq list` prints them")]
pub struct NoItemRef(pub String);

impl FromStr for ItemRef {
    type Err = NoItemRef;

    fn from_str(text: &str) -> Result<Self, NoItemRef> {
        let fits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let parsed = if fits { u64::from_str_radix(text, 16).ok() } else { None };
        parsed.map(Self).ok_or_else(|| NoItemRef(text.to_owned()))
    }
}

impl Serialize for ItemRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ItemRef {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
