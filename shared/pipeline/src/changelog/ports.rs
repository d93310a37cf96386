//! What the changelog needs from the world: the local copy of marks, and a way to read what it misses.

use std::sync::Arc;

use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Offset, UnixMillis};
use xxhash_rust::xxh3::xxh3_64;

use super::opener::Opener;
use crate::inbox::Inbox;
use crate::ports::{MarkEntry, MarkStoreError, Ticket};
use crate::record::TopicPartition;

/// What a local copy says of itself when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalCopy {
    /// The end of the changelog's prefix that is applied; `None`: there is no copy.
    pub position: Option<CommitPosition>,
    /// Who opened the partition last, as of that position.
    pub opener: Option<Opener>,
    /// The last record below that position; `None`: that is not known.
    pub last: Option<LastRecord>,
}

/// The last record of a changelog that a copy holds. A changelog that has another one in its place, or none, is not the one that was
/// copied: it lost its end, and went on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRecord {
    /// Its offset.
    pub offset: Offset,
    /// A hash of its value, which names its writer, its keys and their times.
    pub fingerprint: u64,
}

impl LastRecord {
    /// The record with this value at this offset.
    pub fn of(offset: Offset, value: &[u8]) -> Self {
        Self { offset, fingerprint: fingerprint(value) }
    }
}

/// What is compared of a record's value.
pub(super) fn fingerprint(value: &[u8]) -> u64 {
    xxh3_64(value)
}

/// The outcome of opening a local copy.
pub type LocalReady = (Ticket, Result<LocalCopy, MarkStoreError>);

/// A stretch of the changelog that is applied as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a> {
    /// Its marks.
    pub entries: &'a [MarkEntry],
    /// When it was appended, by the broker's clock; marks expire by it.
    pub append_time: UnixMillis,
    /// Up to where the changelog is applied with it.
    pub position: CommitPosition,
    /// Who opened the partition last, as of that position.
    pub opener: Option<Opener>,
    /// The last record below that position.
    pub last: Option<LastRecord>,
}

/// The local copy of marks: it answers look-ups, and is never the truth. What it loses is read from the changelog again.
pub trait MarkTable: Send + Sync {
    /// Makes a partition's copy ready, and says how far it goes. A copy that is open already is left as it is. The answer comes to
    /// `inbox`, exactly once; other partitions go on meanwhile.
    fn open(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LocalReady>>);

    /// Appends what is remembered of each key, in order; nothing remembered is the default mark.
    fn look_up(
        &self,
        partition: &TopicPartition,
        keys: &[IdempotencyKey],
        found: &mut Vec<Mark>,
    ) -> Result<(), MarkStoreError>;

    /// Joins a stretch into the copy, all or nothing. [`MarkStoreError::NotOpen`]: the copy was set aside, and must be opened again.
    fn apply(&self, partition: &TopicPartition, stretch: &Stretch<'_>) -> Result<(), MarkStoreError>;

    /// Lets go of a partition's copy. It stays.
    fn close(&self, partition: &TopicPartition);
}

/// What is to be read into a local copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// The job partition, whose marks they are.
    pub partition: TopicPartition,
    /// Its changelog.
    pub log: TopicPartition,
    /// How far the copy goes, and who opened the partition last as of then. Without a position, or with one that the changelog does
    /// not reach back to or has not reached yet, or where the changelog holds another last record than the copy, the copy is emptied
    /// and everything is read.
    pub copy: LocalCopy,
    /// Where to stop: everything below it is read.
    pub until: CommitPosition,
}

/// The outcome of a catch-up: what the copy is then. It has the position up to which it was to be read.
pub type CaughtUp = (Ticket, Result<LocalCopy, MarkStoreError>);

/// The end of a changelog partition, where the next append lands.
pub type LogEnd = (Ticket, Result<CommitPosition, MarkStoreError>);

/// Reads changelogs. Every call is answered exactly once, to its inbox.
pub trait ChangelogReader: Send + Sync {
    /// Reads what a local copy misses, and joins it in.
    fn catch_up(&self, request: CatchUp, ticket: Ticket, inbox: &Arc<Inbox<CaughtUp>>);

    /// Asks where a changelog ends.
    fn end(&self, log: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<LogEnd>>);
}
