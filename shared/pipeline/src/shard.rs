//! One thread's loop: fetch, deliver, let the stage work, commit what is settled; assignments come and go meanwhile.

mod assignment;
mod control;
mod hand_over;
mod progress;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::inbox::{Inbox, Wake};
use crate::ports::{Clock, OffsetCommitter};
use crate::record::{Record, TopicPartition};
use crate::stage::{Desk, Settled, Slot, Stage, Trouble};

use assignment::Assignment;
use hand_over::Revocation;

pub use control::{Control, Drained, ShardObserver, ShardSettings};

/// The loop over one thread's partitions.
pub struct Shard<S> {
    stage: S,
    settings: ShardSettings,
    clock: Arc<dyn Clock>,
    committer: Arc<dyn OffsetCommitter>,
    control: Arc<Inbox<Control>>,
    wake: Wake,
    observer: Box<dyn ShardObserver>,
    assignments: BTreeMap<Slot, Assignment>,
    revocations: Vec<Revocation>,
    desk: Desk,
    next_commit: Instant,
    next_recommit: Instant,
    /// How many commits had been refused when all positions were last committed.
    refused_commits: u64,
    troubles: BTreeMap<TopicPartition, String>,
    batch: Vec<Record>,
    stopped: bool,
}

impl<S> std::fmt::Debug for Shard<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("assignments", &self.assignments.len()).finish_non_exhaustive()
    }
}

impl<S: Stage> Shard<S> {
    /// A shard that works with `stage`. `wake` wakes it; `control` is where the event thread speaks to it.
    pub fn new(
        stage: S,
        settings: ShardSettings,
        clock: Arc<dyn Clock>,
        committer: Arc<dyn OffsetCommitter>,
        (control, wake): (Arc<Inbox<Control>>, Wake),
        observer: Box<dyn ShardObserver>,
    ) -> Self {
        let now = Instant::now();
        let desk = Desk::new(now, clock.wall());
        Self {
            stage,
            settings,
            clock,
            committer,
            control,
            wake,
            observer,
            assignments: BTreeMap::new(),
            revocations: Vec::new(),
            desk,
            next_commit: now + settings.commit_interval,
            next_recommit: now + settings.recommit_interval,
            refused_commits: 0,
            troubles: BTreeMap::new(),
            batch: Vec::new(),
            stopped: false,
        }
    }

    /// Runs until [`Control::Stop`].
    pub async fn run(mut self) {
        loop {
            let again = self.step();
            if self.stopped {
                return;
            }
            if again {
                // Whatever shares the thread has its turn too.
                tokio::task::yield_now().await;
            } else {
                self.wait().await;
            }
        }
    }

    /// One round of everything that can go on without waiting; true when the next round must follow at once.
    fn step(&mut self) -> bool {
        // The wall clock first: when the thread is held up between the two, waits come out longer, never shorter.
        self.desk.wall = self.clock.wall();
        self.desk.now = Instant::now();
        self.desk.wake_at = None;
        self.desk.again = false;
        self.hear();
        self.fetch();
        self.stage.turn(&mut self.desk);
        self.settle();
        self.finish_revocations();
        self.commit_if_due();
        self.hear_troubles();
        self.observer.alive();
        // What was settled may have made room for records that are at hand: no wake would tell of them.
        self.desk.again
            || self.assignments.iter().any(|(&slot, assignment)| self.room(slot, assignment).is_some())
    }

    async fn wait(&mut self) {
        let mut until = self.next_commit;
        for at in self.desk.wake_at.iter().chain(self.revocations.iter().map(|r| &r.deadline)) {
            until = until.min(*at);
        }
        tokio::select! {
            biased;
            () = self.wake.woken() => {}
            () = tokio::time::sleep_until(until) => {}
        }
        for assignment in self.assignments.values_mut() {
            // A wake does not say which source became readable; asking one that did not costs one look.
            assignment.readable = true;
        }
    }

    fn hear(&mut self) {
        let mut messages = Vec::new();
        self.control.take(&mut messages);
        for message in messages {
            debug!(?message, "control");
            match message {
                Control::Assigned { slot, partition, source } => self.assign(slot, partition, source),
                Control::Revoke { partitions, deadline, reply } => self.revoke(&partitions, deadline, reply),
                Control::Lost { partitions, reply } => self.lose(&partitions, reply),
                Control::Stop => self.stopped = true,
            }
        }
    }

    fn settle(&mut self) {
        let mut settled = std::mem::take(&mut self.desk.settled);
        for Settled { slot, offset, bytes } in settled.drain(..) {
            let Some(assignment) = self.assignments.get_mut(&slot) else { continue };
            assignment.moved = true;
            match assignment.watermark.settle(offset) {
                Ok(()) => assignment.window_bytes = assignment.window_bytes.saturating_sub(bytes),
                Err(error) => error!(partition = %assignment.partition, %error, "a stage settles wrongly"),
            }
        }
        self.desk.settled = settled;
    }

    fn hear_troubles(&mut self) {
        for Trouble { slot, reason } in self.desk.troubles.drain(..) {
            let Some(assignment) = self.assignments.get_mut(&slot) else { continue };
            if assignment.stage_trouble.is_none() != reason.is_none() {
                let partition = &assignment.partition;
                match &reason {
                    Some(reason) => warn!(%partition, reason, "the partition is held up"),
                    None => info!(%partition, "the partition goes on"),
                }
            }
            assignment.stage_trouble = reason;
        }
        let troubles: BTreeMap<_, _> = self
            .assignments
            .values()
            .filter_map(|a| {
                let reason = a.stage_trouble.as_ref().or(a.source_trouble.as_ref()).or(a.stalled.as_ref())?;
                Some((a.partition.clone(), reason.clone()))
            })
            .collect();
        if troubles != self.troubles {
            self.troubles = troubles;
            self.observer.troubles(&self.troubles);
        }
    }
}
