//! How far one partition is in its changelog.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_domain::CommitPosition;

use super::ports::LocalCopy;
use crate::inbox::Inbox;
use crate::ports::{Acknowledged, MarkEntry, MarkStoreError, MarksReady, Readiness, Ticket};
use crate::record::TopicPartition;

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) ticket: Ticket,
    pub(super) inbox: Arc<Inbox<MarksReady>>,
}

impl Asker {
    pub(super) fn answer(self, answer: Result<Readiness, MarkStoreError>) {
        self.inbox.push((self.ticket, answer));
    }
}

/// How far taking the partition over is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The copy is being opened.
    OpeningCopy,
    /// `Opened` is on its way.
    Announcing,
    /// What the copy misses below `Opened` is being read.
    Restoring(Acknowledged),
    /// What a copy that was set aside had is being read again.
    RestoringAgain,
    /// Marks are answered.
    Open,
    /// It must be opened again.
    Broken,
}

/// An own append.
#[derive(Debug)]
pub(super) struct Sent {
    /// The prefix that was applied when it was handed over: anything below was another's.
    pub(super) floor: CommitPosition,
    /// Of the record.
    pub(super) fingerprint: u64,
    pub(super) entries: Vec<MarkEntry>,
    pub(super) asker: Asker,
}

/// An own append that is acknowledged and not applied yet.
#[derive(Debug)]
pub(super) struct Acked {
    pub(super) at: Acknowledged,
    pub(super) sent: Sent,
}

/// What is to be done with the first of the acknowledged appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is where the last one ended: apply it.
    Apply,
    /// Another's entries lie before it: read up to here first.
    ReadUpTo(CommitPosition),
    /// It was read with others' entries: it is applied.
    Applied,
    /// It lies below what is applied already: this is another log than the one that was read.
    WentBack,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Told from those of the same partition before.
    pub(super) life: u64,
    /// The first life since the partition was let go of last: what was appended in any since is still its owner's.
    first_life: u64,
    pub(super) log: TopicPartition,
    pub(super) stage: Stage,
    /// `Opened` is in the log.
    pub(super) announced: bool,
    /// `Opened` may be in the log: it was handed over.
    pub(super) may_be_announced: bool,
    /// How far the log was read when the partition was open last; `None`: this process has not come to have it open. What a copy
    /// holds says nothing of that: it may be of an earlier time.
    pub(super) known: Option<CommitPosition>,
    /// Who waits for it to be open.
    pub(super) opening: Option<Asker>,
    /// How far the copy goes: `None` where that is not known.
    pub(super) copy: LocalCopy,
    pub(super) acked: VecDeque<Acked>,
    /// Own appends that are not acknowledged.
    pub(super) on_their_way: usize,
    /// A catch-up is under way.
    pub(super) reading: bool,
    /// It was asked where the log ends.
    pub(super) checking: bool,
}

impl Ledger {
    pub(super) fn new(life: u64, log: TopicPartition, opening: Asker) -> Self {
        Self {
            life,
            first_life: life,
            log,
            stage: Stage::OpeningCopy,
            announced: false,
            may_be_announced: false,
            known: None,
            opening: Some(opening),
            copy: LocalCopy::default(),
            acked: VecDeque::new(),
            on_their_way: 0,
            reading: false,
            checking: false,
        }
    }

    /// The same, which is opened again: its copy was lost, or an earlier opening failed. What it appended is answered when it is in the
    /// new copy.
    pub(super) fn reopened(self, life: u64, opening: Asker) -> Self {
        let known = self.known_so_far();
        let Self {
            first_life, log, announced, may_be_announced, opening: before, acked, on_their_way, ..
        } = self;
        if let Some(before) = before {
            before.answer(Err(MarkStoreError::Read("it is opened anew".to_owned())));
        }
        let new = Self::new(life, log, opening);
        Self { first_life, announced, may_be_announced, known, acked, on_their_way, ..new }
    }

    /// Whether it appended in that life.
    pub(super) fn appended_in(&self, life: u64) -> bool {
        (self.first_life..=self.life).contains(&life)
    }

    /// How far this process has read the log with the partition open.
    pub(super) fn known_so_far(&self) -> Option<CommitPosition> {
        if self.stage == Stage::Open { self.copy.position } else { self.known }
    }

    /// The end of the prefix that is applied.
    pub(super) fn applied(&self) -> CommitPosition {
        self.copy.position.unwrap_or(CommitPosition(0))
    }

    /// What is to be done now; `None`: nothing, or it must wait.
    pub(super) fn next(&self) -> Option<Next> {
        if self.stage != Stage::Open || self.reading {
            return None;
        }
        let Acked { at, sent: Sent { floor, .. } } = self.acked.front()?;
        let (offset, applied) = (at.offset.0, self.applied().0);
        Some(if offset == applied {
            Next::Apply
        } else if offset > applied {
            Next::ReadUpTo(CommitPosition(offset))
        } else if offset >= floor.0 {
            Next::Applied
        } else {
            Next::WentBack
        })
    }

    /// Whether it should be asked where the log ends: when nothing is on its way, nothing else would show a foreign append.
    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Open
            && self.on_their_way == 0
            && self.acked.is_empty()
            && !self.reading
            && !self.checking
    }

    /// It must be opened again: whoever waits is told.
    pub(super) fn break_off(&mut self, error: &MarkStoreError) {
        self.known = self.known_so_far();
        self.stage = Stage::Broken;
        self.reading = false;
        self.answer_all(error);
        if let Some(asker) = self.opening.take() {
            asker.answer(Err(error.clone()));
        }
    }

    /// What is acknowledged can't be applied now: whoever waits for it is told, and appends it again.
    pub(super) fn answer_all(&mut self, error: &MarkStoreError) {
        for Acked { sent, .. } in self.acked.drain(..) {
            sent.asker.answer(Err(error.clone()));
        }
    }
}
