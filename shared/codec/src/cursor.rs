//! Reads Avro's primitives from a datum, trusting nothing.

use crate::error::{DecodeError, Limits};

/// Readers recurse, and a thread's stack bears no setting beyond this.
const HARD_DEPTH: u32 = 256;

/// A place in a datum, with what is left of the budget.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    depth: u32,
    items: u64,
    limits: Limits,
}

/// The blocks of an array or a map: how many items of the current block are to come, and where it must end.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    left: u64,
    start: usize,
    end: Option<usize>,
    done: bool,
}

impl Blocks {
    /// How many items the current block still has; what follows it is not known yet.
    pub(crate) fn left(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        if bytes.len() > limits.max_bytes {
            return Err(DecodeError::TooLarge { length: bytes.len(), limit: limits.max_bytes });
        }
        let limits = Limits { max_depth: limits.max_depth.min(HARD_DEPTH), ..*limits };
        Ok(Self { bytes, pos: 0, depth: limits.max_depth, items: limits.max_items, limits })
    }

    /// The whole datum must have been read.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.pos {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes { offset: self.pos, left }),
        }
    }

    /// Goes one level down; [`Cursor::leave`] comes back. An error ends the walk, so it needs no way back.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), DecodeError> {
        match self.depth.checked_sub(1) {
            Some(depth) => {
                self.depth = depth;
                Ok(())
            }
            None => Err(DecodeError::TooDeep { offset: self.pos, limit: self.limits.max_depth }),
        }
    }

    #[inline]
    pub(crate) fn leave(&mut self) {
        self.depth += 1;
    }

    /// Pays for `count` values before they are looked at.
    #[inline]
    pub(crate) fn charge(&mut self, count: u64) -> Result<(), DecodeError> {
        match self.items.checked_sub(count) {
            Some(items) => {
                self.items = items;
                Ok(())
            }
            None => Err(DecodeError::TooManyItems { limit: self.limits.max_items }),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        match self.bytes.get(self.pos..).and_then(|rest| rest.get(..length)) {
            Some(taken) => {
                self.pos += length;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated { offset: self.pos }),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.bytes.get(self.pos..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(taken) => {
                self.pos += N;
                Ok(*taken)
            }
            None => Err(DecodeError::Truncated { offset: self.pos }),
        }
    }

    #[inline]
    pub(crate) fn long(&mut self) -> Result<i64, DecodeError> {
        match self.bytes.get(self.pos) {
            // One byte is by far the commonest: lengths, branches, symbols, small numbers.
            Some(&byte) if byte < 0x80 => {
                self.pos += 1;
                Ok(unzigzag(u64::from(byte)))
            }
            _ => self.long_varint().map(unzigzag),
        }
    }

    fn long_varint(&mut self) -> Result<u64, DecodeError> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        let mut value = 0_u64;
        for (index, &byte) in rest.iter().take(10).enumerate() {
            // The tenth byte has room for one bit only.
            if index == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.pos += index + 1;
                return Ok(value);
            }
        }
        let offset = self.pos;
        Err(if rest.len() < 10 {
            DecodeError::Truncated { offset }
        } else {
            DecodeError::VarintOverflow { offset }
        })
    }

    #[inline]
    pub(crate) fn int(&mut self) -> Result<i32, DecodeError> {
        let offset = self.pos;
        i32::try_from(self.long()?).map_err(|_| DecodeError::VarintOverflow { offset })
    }

    #[inline]
    pub(crate) fn boolean(&mut self) -> Result<bool, DecodeError> {
        let offset = self.pos;
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [found] => Err(DecodeError::BadBoolean { offset, found }),
        }
    }

    #[inline]
    pub(crate) fn float(&mut self) -> Result<f32, DecodeError> {
        self.array().map(f32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn double(&mut self) -> Result<f64, DecodeError> {
        self.array().map(f64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let offset = self.pos;
        let length = self.long()?;
        if length < 0 {
            return Err(DecodeError::NegativeLength { offset });
        }
        match usize::try_from(length) {
            Ok(length) => self.take(length),
            Err(_) => Err(DecodeError::Truncated { offset }),
        }
    }

    #[inline]
    pub(crate) fn string(&mut self) -> Result<&'a str, DecodeError> {
        let text = self.bytes()?;
        let start = self.pos - text.len();
        std::str::from_utf8(text).map_err(|_| DecodeError::InvalidUtf8 { offset: start })
    }

    /// Goes past a string. Most are ASCII, which is told faster than UTF-8.
    #[inline]
    pub(crate) fn skip_string(&mut self) -> Result<(), DecodeError> {
        let text = self.bytes()?;
        if text.is_ascii() || std::str::from_utf8(text).is_ok() {
            return Ok(());
        }
        Err(DecodeError::InvalidUtf8 { offset: self.pos - text.len() })
    }

    /// The number of a union's branch.
    #[inline]
    pub(crate) fn branch(&mut self, known: usize) -> Result<usize, DecodeError> {
        let offset = self.pos;
        let found = self.long()?;
        match usize::try_from(found) {
            Ok(index) if index < known => Ok(index),
            _ => Err(DecodeError::BadBranch { offset, found, known }),
        }
    }

    /// The number of an enum's symbol.
    #[inline]
    pub(crate) fn symbol(&mut self, known: usize) -> Result<usize, DecodeError> {
        let offset = self.pos;
        let found = i64::from(self.int()?);
        match usize::try_from(found) {
            Ok(index) if index < known => Ok(index),
            _ => Err(DecodeError::BadSymbol { offset, found, known }),
        }
    }

    /// Starts on an array or a map: reads the first block's header.
    #[inline]
    pub(crate) fn blocks(&mut self) -> Result<Blocks, DecodeError> {
        let mut blocks = Blocks::default();
        self.next_block(&mut blocks)?;
        Ok(blocks)
    }

    /// Steps to the next item of an array or a map; false once there is none.
    #[inline]
    pub(crate) fn next_item(&mut self, blocks: &mut Blocks) -> Result<bool, DecodeError> {
        if blocks.left == 0 && !self.next_block(blocks)? {
            return Ok(false);
        }
        blocks.left -= 1;
        Ok(true)
    }

    /// Reads a block's header. True: the block has at least one item. The whole block is paid for at once, so a
    /// count of 2^60 is refused before the first item is looked at.
    fn next_block(&mut self, blocks: &mut Blocks) -> Result<bool, DecodeError> {
        if blocks.end.take().is_some_and(|end| end != self.pos) {
            return Err(DecodeError::BlockSize { offset: blocks.start });
        }
        if blocks.done {
            return Ok(false);
        }
        blocks.start = self.pos;
        let count = self.long()?;
        if count < 0 {
            let size = usize::try_from(self.long()?).ok();
            let end = size.and_then(|size| self.pos.checked_add(size)).filter(|end| *end <= self.bytes.len());
            blocks.end = Some(end.ok_or(DecodeError::BlockSize { offset: blocks.start })?);
        }
        blocks.left = count.unsigned_abs();
        blocks.done = count == 0;
        self.charge(blocks.left)?;
        Ok(!blocks.done)
    }
}

#[inline]
fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests;
