//! What is stored: the mark and the time of its append under the key, and four reserved keys beside them.

use rocksdb::MergeOperands;
use tidegate_domain::mark::MarkFormatError;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Offset, UnixMillis};
use tidegate_pipeline::changelog::{LastRecord, Opener, OpenerId};

/// Up to where the changelog is applied. Reserved keys are told from marks by their length.
pub(crate) const POSITION_KEY: &[u8] = b"~position";
/// The partition's time: the newest append time that it believed.
pub(crate) const NEWEST_KEY: &[u8] = b"~newest";

/// Who opened the partition last, as of the position.
pub(crate) const OPENER_KEY: &[u8] = b"~opener";

/// The last record below the position. A copy of an earlier version has none.
pub(crate) const LAST_KEY: &[u8] = b"~last";

const OPENER_VERSION: u8 = 1;
const OPENER_LEN: usize = 25;
const TIME_LEN: usize = 6;
const LAST_TIME: i64 = (1 << (8 * TIME_LEN)) - 1;

/// A mark and when it was appended, by the broker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) mark: Mark,
    pub(crate) at: UnixMillis,
}

/// What is stored of a key, before it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) key: IdempotencyKey,
    pub(crate) stored: Stored,
}

/// The nearest time that can be stored: from 1970 to the year 10889.
pub(crate) fn storable(at: UnixMillis) -> UnixMillis {
    UnixMillis(at.0.clamp(0, LAST_TIME))
}

impl Stored {
    /// Appends the stored form: the mark, then the time in 6 bytes, so that expiry need not read the mark.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.mark.encode(out);
        out.extend_from_slice(&encode_time(self.at));
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MarkFormatError> {
        let (mark, time) = bytes.split_last_chunk::<TIME_LEN>().ok_or(MarkFormatError::Length)?;
        Ok(Self { mark: Mark::decode(mark)?, at: time_of(time) })
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self { mark: self.mark.join(other.mark), at: UnixMillis(self.at.0.max(other.at.0)) }
    }
}

/// The append time of a stored mark, readable or not.
pub(crate) fn append_time(value: &[u8]) -> Option<UnixMillis> {
    value.split_last_chunk::<TIME_LEN>().map(|(_, time)| time_of(time))
}

pub(crate) fn encode_time(at: UnixMillis) -> [u8; TIME_LEN] {
    let [_, _, time @ ..] = storable(at).0.to_be_bytes();
    time
}

pub(crate) fn decode_time(bytes: &[u8]) -> Option<UnixMillis> {
    <&[u8; TIME_LEN]>::try_from(bytes).ok().map(time_of)
}

fn time_of(time: &[u8; TIME_LEN]) -> UnixMillis {
    UnixMillis(time.iter().fold(0, |sum, &byte| (sum << 8) | i64::from(byte)))
}

pub(crate) fn encode_position(position: CommitPosition) -> [u8; 8] {
    position.0.to_be_bytes()
}

pub(crate) fn decode_position(bytes: &[u8]) -> Option<CommitPosition> {
    bytes.try_into().ok().map(i64::from_be_bytes).map(CommitPosition)
}

/// A version, and nothing more where nobody opened it yet.
pub(crate) fn encode_opener(opener: Option<Opener>) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + OPENER_LEN);
    out.push(OPENER_VERSION);
    if let Some(Opener { id: OpenerId(id), window, closed, suspects }) = opener {
        out.extend_from_slice(&id);
        out.extend_from_slice(&window.to_be_bytes());
        out.push(u8::from(closed));
        out.extend_from_slice(&suspects.to_be_bytes());
    }
    out
}

#[expect(clippy::option_option, reason = "nobody is not the same as unreadable")]
pub(crate) fn decode_opener(bytes: &[u8]) -> Option<Option<Opener>> {
    let (&OPENER_VERSION, rest) = bytes.split_first()? else { return None };
    if rest.is_empty() {
        return Some(None);
    }
    let rest = <&[u8; OPENER_LEN]>::try_from(rest).ok()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (window, rest) = rest.split_first_chunk()?;
    let (&closed @ (0 | 1), rest) = rest.split_first()? else { return None };
    Some(Some(Opener {
        id: OpenerId(*id),
        window: u32::from_be_bytes(*window),
        closed: closed == 1,
        suspects: u32::from_be_bytes(rest.try_into().ok()?),
    }))
}

/// Offset and fingerprint; nothing where the record is not known.
pub(crate) fn encode_last(last: Option<LastRecord>) -> Vec<u8> {
    let both = |LastRecord { offset, fingerprint }| [offset.0.to_be_bytes(), fingerprint.to_be_bytes()];
    last.map(both).into_iter().flatten().flatten().collect()
}

#[expect(clippy::option_option, reason = "unknown is not the same as unreadable")]
pub(crate) fn decode_last(bytes: &[u8]) -> Option<Option<LastRecord>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let (offset, rest) = bytes.split_first_chunk()?;
    let fingerprint = u64::from_be_bytes(rest.try_into().ok()?);
    Some(Some(LastRecord { offset: Offset(i64::from_be_bytes(*offset)), fingerprint }))
}

/// The key of a mark; `None` where `key` is a reserved one.
pub(crate) fn mark_key(key: &[u8]) -> Option<IdempotencyKey> {
    key.try_into().ok().map(IdempotencyKey)
}

/// The merge operator: joins all that can be read. RocksDB calls it from its own threads, through C, where a panic ends the
/// process, and takes `None` for a broken database; so it does neither. What can't be read is left out when anything else
/// can be read, and kept as it is when nothing can, for the reader to find.
pub(crate) fn join_values(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    join_all(existing.into_iter().chain(operands.iter()))
}

fn join_all<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut joined: Option<Stored> = None;
    let mut unreadable: &[u8] = &[];
    for value in values {
        match Stored::decode(value) {
            Ok(stored) => joined = Some(joined.map_or(stored, |joined| joined.join(stored))),
            Err(_) => unreadable = value,
        }
    }
    let Some(joined) = joined else { return Some(unreadable.to_vec()) };
    let mut out = Vec::with_capacity(48);
    joined.encode(&mut out);
    Some(out)
}

#[cfg(test)]
mod tests;
