//! What is done when its partition is lost: the partition's next owner does not wait for it, and must know it all the same. Jobs that
//! still run, and marks that are not acknowledged yet. They settle nothing.

use std::collections::BTreeMap;

use tidegate_domain::mark::Phase;
use tidegate_domain::{Mark, Outcome};
use tokio::time::Instant;
use tracing::debug;

use super::partition::{Append, Partition};
use super::stage::{InHand, JobStage, State};
use crate::events;
use crate::keyed::Key;
use crate::ports::{MarkEntry, RETRY_PAUSE, Ticket};
use crate::record::TopicPartition;
use crate::stage::{Desk, Slot};

/// Partitions that were lost while jobs of them ran, and what their owners do not know yet.
#[derive(Debug, Default)]
pub(super) struct Deposed {
    partitions: BTreeMap<Slot, TopicPartition>,
    done: BTreeMap<TopicPartition, Vec<MarkEntry>>,
    untold: Vec<Untold>,
}

/// Marks that a partition's owner is told, until its changelog has them: a broker that is away costs whole partitions, and time.
#[derive(Debug)]
struct Untold {
    at: TopicPartition,
    entries: Vec<MarkEntry>,
    then: Then,
}

#[derive(Debug)]
enum Then {
    Tell,
    Hear(Ticket),
    TellAgainAt(Instant),
}

impl Deposed {
    fn tell(&mut self, at: &TopicPartition, entries: Vec<MarkEntry>, then: Then) {
        if !entries.is_empty() {
            self.untold.push(Untold { at: at.clone(), entries, then });
        }
    }
}

impl JobStage {
    /// What runs goes on to its end; everything else of the partition is dropped.
    pub(super) fn depose(&mut self, slot: Slot) {
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
        let ticket = self.jobs.free_ticket();
        self.ports.marks.close(&partition.at, ticket, &self.marks_ready);
        if jobs.iter().any(|(_, runs)| *runs) {
            self.deposed.partitions.insert(slot, partition.at.clone());
        }
        self.bequeath(partition);
    }

    /// What is known of the partition's jobs and not acknowledged goes to its owner.
    pub(super) fn bequeath(&mut self, mut partition: Partition) {
        let at = partition.at.clone();
        if let Some(Append { ticket, batch, again_at, .. }) = partition.append.take() {
            let then = if again_at.is_some() { Then::Tell } else { Then::Hear(ticket) };
            self.deposed.tell(&at, told_of(batch.entries), then);
        }
        for batch in partition.take_batches() {
            self.deposed.tell(&at, told_of(batch.entries), Then::Tell);
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
            self.deposed.done.entry(at).or_default().push(entry);
        }
        if !self.jobs.iter().any(|(_, other)| other.slot == in_hand.slot) {
            self.deposed.partitions.remove(&in_hand.slot);
        }
    }

    /// Tells the owners what they do not know. Until they do, the effect may repeat, as after a crash.
    pub(super) fn tell_owners(&mut self, desk: &mut Desk) {
        for (at, entries) in std::mem::take(&mut self.deposed.done) {
            self.deposed.tell(&at, entries, Then::Tell);
        }
        for untold in &mut self.deposed.untold {
            match untold.then {
                Then::Hear(_) => continue,
                Then::TellAgainAt(at) if at > desk.now => desk.wake_at(at),
                Then::Tell | Then::TellAgainAt(_) => {
                    let ticket = self.jobs.free_ticket();
                    untold.then = Then::Hear(ticket);
                    self.ports.marks.append(&untold.at, &untold.entries, ticket, &self.marks_ready);
                }
            }
        }
    }

    /// Whether this was the answer to what an owner was told.
    pub(super) fn heard_owner<T, E>(&mut self, ticket: Ticket, answer: &Result<T, E>, desk: &Desk) -> bool {
        let asked = |untold: &Untold| matches!(untold.then, Then::Hear(asked) if asked == ticket);
        let Some(place) = self.deposed.untold.iter().position(asked) else { return false };
        match answer {
            Ok(_) => _ = self.deposed.untold.swap_remove(place),
            Err(_) => self.deposed.untold[place].then = Then::TellAgainAt(desk.now + RETRY_PAUSE),
        }
        true
    }
}

/// That a job was to be started says nothing: it was not, or it runs on, and its end is told.
fn told_of(mut entries: Vec<MarkEntry>) -> Vec<MarkEntry> {
    let only_started =
        |mark: &Mark| mark.done.is_none() && mark.step.is_some_and(|step| step.phase == Phase::Started);
    entries.retain(|entry| !only_started(&entry.mark));
    entries
}
