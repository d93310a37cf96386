//! What is done when its partition is lost: the partition's next owner does not wait for it, and must know it all the same. Jobs that
//! still run, and marks that are not acknowledged yet. They settle nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_domain::mark::Phase;
use tidegate_domain::{Mark, Outcome};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::in_hand::{InHand, State};
use super::partition::{Closing, Partition};
use super::stage::JobStage;
use crate::events;
use crate::keyed::Key;
use crate::ports::{MarkEntry, RETRY_PAUSE, Ticket};
use crate::record::TopicPartition;
use crate::stage::{Desk, Slot};

/// Partitions that were lost while jobs of them ran, and what their owners must be told.
#[derive(Debug, Default)]
pub(super) struct Deposed {
    partitions: BTreeMap<Slot, TopicPartition>,
    untold: BTreeMap<TopicPartition, Untold>,
}

/// Marks that an owner must be told.
#[derive(Debug)]
struct Untold {
    entries: Vec<MarkEntry>,
    /// Those that are on their way.
    sent: Option<(Ticket, Vec<MarkEntry>)>,
    since: Instant,
    again_at: Instant,
}

/// How long it is tried to tell an owner. What it is not told, it runs again, as after a crash.
const TELL_FOR: Duration = Duration::from_secs(600);

impl JobStage {
    /// What runs goes on to its end; everything else of the partition is dropped.
    pub(super) fn depose(&mut self, slot: Slot, desk: &mut Desk) {
        let theirs = |(key, in_hand): (Key, &InHand)| {
            (in_hand.slot == slot).then_some((key, matches!(in_hand.state, State::Running(_))))
        };
        let jobs: Vec<(Key, bool)> = self.jobs.iter().filter_map(theirs).collect();
        for &(key, runs) in &jobs {
            if runs {
                // Its end says nothing to the guard of its class: another probe need not wait for it.
                self.jobs[key].admission = None;
            } else {
                self.stop_job(key);
            }
        }
        let Some(partition) = self.partitions.remove(&slot) else { return };
        self.let_go(&partition, desk);
        if jobs.iter().any(|(_, runs)| *runs) {
            self.deposed.partitions.insert(slot, partition.at);
        }
    }

    /// The end of a run whose partition is another's.
    pub(super) fn ended_deposed(&mut self, key: Key, outcome: &Outcome, desk: &Desk) {
        events::fenced();
        let Some(in_hand) = self.jobs.remove(key) else { return };
        self.class(in_hand.job.class).metrics.in_flight.decrement(1.0);
        let Some(at) = self.deposed.partitions.get(&in_hand.slot).cloned() else { return };
        if matches!(outcome, Outcome::Done) {
            let job = &in_hand.job;
            debug!(partition = %at, "a job ended after its partition was lost: its owner is told");
            let step = job.step(in_hand.round, in_hand.hop, Phase::Tried, in_hand.attempt.0, desk.wall);
            let entry = MarkEntry { key: job.key, mark: Mark::done(step) };
            self.deposed.tell(at, vec![entry], desk.now);
        }
        if !self.jobs.iter().any(|(_, other)| other.slot == in_hand.slot) {
            self.deposed.partitions.remove(&in_hand.slot);
        }
    }

    /// Says that the partition is let go of. What is known of its jobs and not acknowledged becomes known to its next owner: before
    /// that, so that this very process, should it be the owner, reads it.
    pub(super) fn let_go(&mut self, partition: &Partition, desk: &mut Desk) {
        self.settings.first.needs_nothing(&partition.at);
        let entries = partition.unacknowledged();
        if !entries.is_empty() {
            self.deposed.tell(partition.at.clone(), entries, desk.now);
            self.tell_owners(desk);
        }
        if partition.closing == Closing::NotYet {
            let ticket = self.jobs.free_ticket();
            self.ports.marks.close(&partition.at, ticket, &self.marks_ready);
        }
    }

    /// Tells the owners what is left to tell them.
    pub(super) fn tell_owners(&mut self, desk: &mut Desk) {
        self.deposed.untold.retain(|partition, untold| {
            let gives_up = desk.now.duration_since(untold.since) > TELL_FOR;
            if gives_up {
                warn!(%partition, jobs = untold.entries.len(), "what was done is not known to the partition's owner, which runs it again");
            }
            let told = untold.entries.is_empty() && untold.sent.is_none();
            !(gives_up || told)
        });
        let most = self.settings.marks_together;
        for (partition, untold) in &mut self.deposed.untold {
            if untold.sent.is_none() && untold.again_at > desk.now {
                desk.wake_at(untold.again_at);
            } else if untold.sent.is_none() {
                let rest = untold.entries.split_off(untold.entries.len().min(most));
                let (ticket, entries) =
                    (self.jobs.free_ticket(), std::mem::replace(&mut untold.entries, rest));
                self.ports.marks.append(partition, &entries, ticket, &self.marks_ready);
                untold.sent = Some((ticket, entries));
            }
        }
    }

    /// An answer to what was told; false when it is none.
    pub(super) fn told_owner(&mut self, ticket: Ticket, is_known: bool, desk: &Desk) -> bool {
        let asked = |(_, untold): &(&TopicPartition, &mut Untold)| {
            untold.sent.as_ref().is_some_and(|(sent, _)| *sent == ticket)
        };
        let Some((_, untold)) = self.deposed.untold.iter_mut().find(asked) else { return false };
        if let Some((_, mut entries)) = untold.sent.take()
            && !is_known
        {
            untold.entries.append(&mut entries);
            untold.again_at = desk.now + RETRY_PAUSE;
        }
        true
    }
}

impl Deposed {
    fn tell(&mut self, partition: TopicPartition, mut entries: Vec<MarkEntry>, now: Instant) {
        let new = Untold { entries: Vec::new(), sent: None, since: now, again_at: now };
        self.untold.entry(partition).or_insert(new).entries.append(&mut entries);
    }
}
