//! The changelog's records: Avro in its single-object encoding, by `schemas/changelog_entry.avsc`, packed by hand because a mark is
//! written for every job. See the Avro specification, "Single-object encoding" and "Binary encoding".

use tidegate_domain::mark::{DoneAt, Phase, Step};
use tidegate_domain::{Hop, IdempotencyKey, JobHash, Mark, PayloadHash, Round, UnixMillis};

use super::opener::OpenerId;
use crate::ports::MarkEntry;

/// What one record of a changelog says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Marks to be joined into what is known of their keys.
    Marks(Vec<MarkEntry>),
    /// The writer takes the partition over, and may have so many records in hand at most.
    Opened {
        /// How many.
        window: u32,
    },
    /// The writer let go of the partition, in order or alive.
    Closed,
}

/// Why a record of a changelog can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It begins otherwise than what tidegate writes.
    #[error("it is no changelog entry of tidegate")]
    Foreign,
    /// Written by a schema that this version can't read.
    #[error("its schema has fingerprint {0:016x}, which this version of tidegate does not know")]
    Schema(u64),
    /// The bytes are not of the schema's form.
    #[error("it is no valid entry at byte {0}")]
    Invalid(usize),
}

const MAGIC: [u8; 2] = [0xc3, 0x01];
/// The CRC-64-AVRO of the schema's parsing canonical form.
const FINGERPRINT: u64 = 0x7d05_4211_2979_4afb;
const MARKS: i64 = 0;
const OPENED: i64 = 1;
const CLOSED: i64 = 2;

/// Appends marks that `opener` writes.
pub fn write_marks(opener: OpenerId, entries: &[MarkEntry], out: &mut Vec<u8>) {
    // A mark of a first attempt takes 34 bytes.
    out.reserve(48 + entries.len() * 36);
    begin(opener, MARKS, out);
    let base = entries.iter().filter_map(|entry| entry.mark.step).map(|step| step.written_at.0).min();
    let base = base.unwrap_or(0);
    put_long(out, base);
    if !entries.is_empty() {
        put_long(out, entries.len() as i64);
        for MarkEntry { key: IdempotencyKey(key), mark } in entries {
            out.extend_from_slice(key);
            put_mark(out, mark, base);
        }
    }
    put_long(out, 0);
}

/// Appends that `opener` takes the partition over.
pub fn write_opened(opener: OpenerId, window: u32, out: &mut Vec<u8>) {
    begin(opener, OPENED, out);
    put_long(out, i64::from(window.min(i32::MAX.unsigned_abs())));
}

/// Appends that `opener` let go of the partition.
pub fn write_closed(opener: OpenerId, out: &mut Vec<u8>) {
    begin(opener, CLOSED, out);
}

fn begin(OpenerId(opener): OpenerId, branch: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FINGERPRINT.to_le_bytes());
    out.extend_from_slice(&opener);
    put_long(out, branch);
}

fn put_mark(out: &mut Vec<u8>, mark: &Mark, base: i64) {
    match mark.done {
        None => put_long(out, 0),
        Some(DoneAt { round, hop }) => {
            put_long(out, 1);
            put_int(out, round.0);
            put_int(out, hop.0);
        }
    }
    match mark.step {
        None => put_long(out, 0),
        Some(step) => {
            put_long(out, 1);
            put_int(out, step.round.0);
            put_int(out, step.hop.0);
            put_int(out, step.phase as u32);
            put_int(out, step.n);
            out.extend_from_slice(&step.job.0.to_be_bytes());
            out.extend_from_slice(&step.payload.0.to_be_bytes());
            put_long(out, step.written_at.0.wrapping_sub(base));
        }
    }
}

/// A count beyond Avro's `int` can't come up: 2^31 rounds or hops of one job.
fn put_int(out: &mut Vec<u8>, value: u32) {
    put_long(out, i64::from(value.min(i32::MAX.unsigned_abs())));
}

fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while zigzag >= 0x80 {
        out.push((zigzag & 0x7f) as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

/// Reads a record's value, to its last byte.
pub fn read(bytes: &[u8]) -> Result<(OpenerId, Entry), FormatError> {
    let (magic, rest) = bytes.split_first_chunk::<2>().ok_or(FormatError::Foreign)?;
    let (fingerprint, rest) = rest.split_first_chunk::<8>().ok_or(FormatError::Foreign)?;
    if *magic != MAGIC {
        return Err(FormatError::Foreign);
    }
    let fingerprint = u64::from_le_bytes(*fingerprint);
    if fingerprint != FINGERPRINT {
        return Err(FormatError::Schema(fingerprint));
    }
    let mut reader = Reader { rest };
    let read = reader.entry().filter(|_| reader.rest.is_empty());
    read.ok_or(FormatError::Invalid(bytes.len() - reader.rest.len()))
}

struct Reader<'a> {
    rest: &'a [u8],
}

/// A key, and that nothing is known of it: no more marks than fit are given memory.
const SMALLEST_MARK: usize = 18;

impl Reader<'_> {
    fn entry(&mut self) -> Option<(OpenerId, Entry)> {
        let opener = OpenerId(self.chunk()?);
        let entry = match self.long()? {
            MARKS => Entry::Marks(self.marks()?),
            OPENED => Entry::Opened { window: self.int()? },
            CLOSED => Entry::Closed,
            _ => return None,
        };
        Some((opener, entry))
    }

    fn marks(&mut self) -> Option<Vec<MarkEntry>> {
        let base = self.long()?;
        let mut entries = Vec::new();
        loop {
            let count = match self.long()? {
                0 => return Some(entries),
                // A block may say its size in bytes, for those who skip it.
                count if count < 0 => {
                    self.long()?;
                    count.checked_neg()?
                }
                count => count,
            };
            let most = self.rest.len() / SMALLEST_MARK;
            let count = usize::try_from(count).ok().filter(|&count| count <= most)?;
            entries.reserve(count);
            for _ in 0..count {
                let key = IdempotencyKey(self.chunk()?);
                entries.push(MarkEntry { key, mark: self.mark(base)? });
            }
        }
    }

    fn mark(&mut self, base: i64) -> Option<Mark> {
        let mut mark = Mark::default();
        if self.is_some()? {
            mark.done = Some(DoneAt { round: Round(self.int()?), hop: Hop(self.int()?) });
        }
        if self.is_some()? {
            mark.step = Some(Step {
                round: Round(self.int()?),
                hop: Hop(self.int()?),
                phase: match self.int()? {
                    0 => Phase::Scheduled,
                    1 => Phase::Tried,
                    2 => Phase::Started,
                    3 => Phase::Dead,
                    _ => return None,
                },
                n: self.int()?,
                job: JobHash(u32::from_be_bytes(self.chunk()?)),
                payload: PayloadHash(u32::from_be_bytes(self.chunk()?)),
                written_at: UnixMillis(base.wrapping_add(self.long()?)),
            });
        }
        Some(mark)
    }

    fn is_some(&mut self) -> Option<bool> {
        match self.long()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    fn int(&mut self) -> Option<u32> {
        self.long().and_then(|value| i32::try_from(value).ok()).and_then(|value| u32::try_from(value).ok())
    }

    fn long(&mut self) -> Option<i64> {
        let mut zigzag = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            if shift == 63 && byte > 1 {
                return None;
            }
            zigzag |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
