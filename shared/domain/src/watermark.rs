//! What may be committed: the delivered and settled offsets of one assignment of one partition.
//!
//! Only *delivered* offsets are known here. Gaps, which compaction and transaction markers leave, are normal and cost
//! nothing. A watermark lives for one assignment: it is made on assign and dropped on revoke, so nothing that an older
//! assignment settles can reach it.

use std::collections::VecDeque;

use crate::position::{CommitPosition, Offset};

/// Why a call was refused. Each of them is a fault of the caller; none of them moves the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatermarkError {
    /// Kafka delivers a partition in offset order; this offset is at or below one that was delivered.
    #[error("offset {offset} was delivered after offset {last}")]
    OutOfOrder {
        /// The offset that was refused.
        offset: Offset,
        /// The last offset that was delivered.
        last: Offset,
    },
    /// The offset was never delivered in this assignment: a fault of the caller, or a result of an older assignment.
    #[error("offset {0} was settled but never delivered")]
    NotDelivered(Offset),
    /// The offset was settled before; or it lies in a gap between settled ones, which are not remembered.
    #[error("offset {0} was settled twice")]
    SettledTwice(Offset),
}

#[derive(Debug, Clone, Copy)]
struct Delivered {
    offset: Offset,
    settled: bool,
}

/// The delivered records of one assignment that can't be committed past yet.
#[derive(Debug, Clone, Default)]
pub struct PartitionWatermark {
    /// In offset order. The first one is never settled: settled ones leave from the front at once.
    window: VecDeque<Delivered>,
    first: Option<Offset>,
    last: Option<Offset>,
    unsettled: usize,
}

impl PartitionWatermark {
    /// A record was handed to this process.
    pub fn deliver(&mut self, offset: Offset) -> Result<(), WatermarkError> {
        if let Some(last) = self.last
            && offset <= last
        {
            return Err(WatermarkError::OutOfOrder { offset, last });
        }
        self.first.get_or_insert(offset);
        self.last = Some(offset);
        self.window.push_back(Delivered { offset, settled: false });
        self.unsettled += 1;
        Ok(())
    }

    /// A delivered record needs nothing more from this process.
    pub fn settle(&mut self, offset: Offset) -> Result<(), WatermarkError> {
        let index = self.index_of(offset).ok_or_else(|| self.unknown(offset))?;
        let delivered = &mut self.window[index];
        if delivered.settled {
            return Err(WatermarkError::SettledTwice(offset));
        }
        delivered.settled = true;
        self.unsettled -= 1;
        while self.window.front().is_some_and(|first| first.settled) {
            self.window.pop_front();
        }
        Ok(())
    }

    /// The lowest unsettled offset, or one past the last delivered one; nothing before the first delivery.
    pub fn commit_position(&self) -> Option<CommitPosition> {
        match self.window.front() {
            Some(first) => Some(CommitPosition(first.offset.0)),
            None => self.last.map(Offset::next),
        }
    }

    /// How many delivered records are not settled.
    pub fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// How many delivered records the commit position waits for, settled ones behind an unsettled one included.
    pub fn held(&self) -> usize {
        self.window.len()
    }

    /// The last offset that was delivered.
    pub fn last_delivered(&self) -> Option<Offset> {
        self.last
    }

    fn index_of(&self, offset: Offset) -> Option<usize> {
        let first = self.window.front()?;
        // Without gaps the distance from the first offset is the index; a gap only makes the guess too high.
        if let Some(guess) = offset.0.checked_sub(first.offset.0).and_then(|d| usize::try_from(d).ok())
            && self.window.get(guess).is_some_and(|d| d.offset == offset)
        {
            return Some(guess);
        }
        self.window.binary_search_by_key(&offset, |d| d.offset).ok()
    }

    fn unknown(&self, offset: Offset) -> WatermarkError {
        let below_window = self.window.front().is_none_or(|first| offset < first.offset);
        let was_reached = self.first <= Some(offset) && Some(offset) <= self.last;
        if below_window && was_reached {
            WatermarkError::SettledTwice(offset)
        } else {
            WatermarkError::NotDelivered(offset)
        }
    }
}

#[cfg(test)]
mod tests;
