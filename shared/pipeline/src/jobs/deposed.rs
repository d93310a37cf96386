//! Jobs that still run when their partition is lost: the partition's next owner does not wait for them, and what they did must be
//! known to it. They settle nothing.

use std::collections::BTreeMap;

use tidegate_domain::mark::Phase;
use tidegate_domain::{Mark, Outcome};
use tracing::debug;

use super::stage::{InHand, JobStage, State};
use crate::events;
use crate::keyed::Key;
use crate::ports::MarkEntry;
use crate::record::TopicPartition;
use crate::stage::{Desk, Slot};

/// Partitions that were lost while jobs of them ran.
#[derive(Debug, Default)]
pub(super) struct Deposed {
    partitions: BTreeMap<Slot, TopicPartition>,
    done: BTreeMap<TopicPartition, Vec<MarkEntry>>,
}

impl JobStage {
    /// What runs goes on to its end; everything else of the partition is dropped.
    pub(super) fn depose(&mut self, slot: Slot) {
        let theirs = |(key, in_hand): (Key, &InHand)| {
            (in_hand.slot == slot).then(|| (key, matches!(in_hand.state, State::Running(_))))
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
            self.deposed.done.entry(at).or_default().push(entry);
        }
        if !self.jobs.iter().any(|(_, other)| other.slot == in_hand.slot) {
            self.deposed.partitions.remove(&in_hand.slot);
        }
    }

    /// Tells the owners what was done. When that fails, the effect repeats once more, as after a crash.
    pub(super) fn tell_owners(&mut self) {
        for (partition, entries) in std::mem::take(&mut self.deposed.done) {
            let ticket = self.jobs.free_ticket();
            self.ports.marks.append(&partition, &entries, ticket, &self.marks_ready);
        }
    }
}
