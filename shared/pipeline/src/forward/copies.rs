//! What an event becomes: copies in job topics or in the DLQ, and how far each of them is.

use smallvec::{SmallVec, smallvec};
use tidegate_domain::{Failure, FailureKind};

use super::routing::{PlannedJob, Routed};
use crate::dead_letter::{DeadLetter, Returned};
use crate::keyed::Key;
use crate::record::Record;
use crate::stage::Slot;

#[derive(Debug)]
pub(super) enum Outgoing {
    Job(PlannedJob),
    Dead(DeadLetter),
}

/// How far one copy of an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Unsent,
    OnItsWay,
    Acknowledged,
}

/// The copies of one event; most have one.
pub(super) type Copies = SmallVec<[(Outgoing, Stand); 1]>;

/// What a decided event becomes; `None` is nothing.
pub(super) fn copies(routed: Routed, planned: &mut Vec<PlannedJob>) -> Option<Copies> {
    let dead = |failure| (Outgoing::Dead(DeadLetter::new(failure)), Stand::Unsent);
    let jobs = planned.drain(..).map(|job| (Outgoing::Job(job), Stand::Unsent));
    match routed {
        Routed::Ignored | Routed::Soon | Routed::Later(_) => None,
        Routed::Dead(failure) => Some(smallvec![dead(failure)]),
        Routed::JobsAndDead(failures) => Some(jobs.chain(failures.into_iter().map(dead)).collect()),
        Routed::Jobs if jobs.len() == 0 => {
            let message = "its routes made no job of the event";
            Some(smallvec![dead(Failure::new(FailureKind::Unroutable, "no-job", message))])
        }
        Routed::Jobs => Some(jobs.collect()),
    }
}

/// An event that was routed and is not settled.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub(super) slot: Slot,
    pub(super) record: Record,
    /// What it becomes; handed over in order.
    pub(super) copies: Copies,
    /// Where it came from, if an operator sent it again.
    pub(super) returned: Option<Box<Returned>>,
}

/// What an acknowledgement belongs to.
#[derive(Debug)]
pub(super) struct OnItsWay {
    pub(super) slot: Slot,
    pub(super) event: Key,
    pub(super) copy: usize,
}
