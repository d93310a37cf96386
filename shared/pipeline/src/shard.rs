//! One thread's loop: fetch, deliver, let the stage work, commit what is settled; assignments come and go meanwhile.

mod control;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_domain::{CommitPosition, PartitionWatermark};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::events::PartitionGauges;
use crate::inbox::{Inbox, Wake};
use crate::ports::{Clock, Fetched, OffsetCommitter, RecordSource, SourceError};
use crate::record::{Record, TopicPartition};
use crate::stage::{Desk, Settled, Slot, Stage, Trouble};

pub use control::{Control, Drained, ShardObserver, ShardSettings};

struct Assignment {
    partition: TopicPartition,
    source: Box<dyn RecordSource>,
    watermark: PartitionWatermark,
    /// Bytes of delivered records that are not settled.
    window_bytes: usize,
    committed: Option<CommitPosition>,
    /// The source may have more at hand.
    readable: bool,
    draining: bool,
    /// Anything was delivered or settled since the last look.
    moved: bool,
    assigned_at: Instant,
    /// When it moved last, and where the partition ended then.
    stands_since: (Instant, Option<CommitPosition>),
    /// The source lost its place: offsets may begin anew.
    out_of_range: bool,
    /// The commit position as last seen, and since when it has been that.
    head: (Option<CommitPosition>, Instant),
    gauges: PartitionGauges,
    stage_trouble: Option<String>,
    source_trouble: Option<String>,
    /// When the source last failed.
    failed_at: Option<Instant>,
    stalled: Option<String>,
}

struct Revocation {
    slots: Vec<Slot>,
    deadline: Instant,
    /// How many records were not settled when it came.
    unsettled: usize,
    reply: oneshot::Sender<Drained>,
}

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

impl Assignment {
    /// The source can be read again. An empty answer proves it only after a while: a fault is told once, and the answers that
    /// follow are empty too.
    fn read_on(&mut self, batch: &[Record], now: Instant) {
        let long_ago = self.failed_at.is_none_or(|at| now.duration_since(at) > SOURCE_FAULT_HOLDS);
        if !batch.is_empty() || long_ago {
            (self.source_trouble, self.failed_at) = (None, None);
        }
    }
}

/// How long after an assignment the end that the client knows may be an old one.
const END_IS_OLD: Duration = Duration::from_secs(10);

/// How long a fault of a source is told when nothing else is heard of it.
const SOURCE_FAULT_HOLDS: Duration = Duration::from_secs(10);

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

    fn assign(&mut self, slot: Slot, partition: TopicPartition, source: Box<dyn RecordSource>) {
        self.stage.assigned(slot, &partition, &mut self.desk);
        let gauges = PartitionGauges::of(&partition);
        let assignment = Assignment {
            partition,
            source,
            watermark: PartitionWatermark::default(),
            window_bytes: 0,
            committed: None,
            readable: true,
            draining: false,
            moved: false,
            assigned_at: self.desk.now,
            stands_since: (self.desk.now, None),
            out_of_range: false,
            head: (None, self.desk.now),
            gauges,
            stage_trouble: None,
            source_trouble: None,
            failed_at: None,
            stalled: None,
        };
        self.assignments.insert(slot, assignment);
    }

    fn slots_of(&self, partitions: &[TopicPartition]) -> Vec<Slot> {
        let ours = |(_, a): &(&Slot, &Assignment)| partitions.contains(&a.partition);
        self.assignments.iter().filter(ours).map(|(&slot, _)| slot).collect()
    }

    fn revoke(&mut self, partitions: &[TopicPartition], deadline: Instant, reply: oneshot::Sender<Drained>) {
        let slots = self.slots_of(partitions);
        for &slot in &slots {
            self.stage.drain(slot, &mut self.desk);
            if let Some(assignment) = self.assignments.get_mut(&slot) {
                assignment.draining = true;
            }
        }
        let unsettled = self.unsettled(&slots);
        self.revocations.push(Revocation { slots, deadline, unsettled, reply });
    }

    fn unsettled(&self, slots: &[Slot]) -> usize {
        slots.iter().filter_map(|slot| self.assignments.get(slot)).map(|a| a.watermark.unsettled()).sum()
    }

    fn lose(&mut self, partitions: &[TopicPartition], reply: oneshot::Sender<()>) {
        for slot in self.slots_of(partitions) {
            self.stage.lose(slot, &mut self.desk);
            self.forget(slot);
        }
        if reply.send(()).is_err() {
            debug!("nobody waits for lost partitions to be released");
        }
    }

    fn release(&mut self, slot: Slot) -> Option<(TopicPartition, CommitPosition)> {
        self.stage.release(slot, &mut self.desk);
        self.forget(slot)
    }

    fn forget(&mut self, slot: Slot) -> Option<(TopicPartition, CommitPosition)> {
        let assignment = self.assignments.remove(&slot)?;
        assignment.gauges.clear();
        self.troubles.remove(&assignment.partition);
        self.observer.troubles(&self.troubles);
        let position = assignment.watermark.commit_position()?;
        Some((assignment.partition, position))
    }

    fn fetch(&mut self) {
        let slots: Vec<Slot> = self.assignments.keys().copied().collect();
        for slot in slots {
            self.fetch_one(slot);
        }
    }

    /// How many records and bytes may be fetched now, where anything may.
    fn room(&self, slot: Slot, assignment: &Assignment) -> Option<(usize, usize)> {
        let records = self.settings.window_records.saturating_sub(assignment.watermark.held());
        let bytes = self.settings.window_bytes.saturating_sub(assignment.window_bytes);
        let open =
            assignment.readable && !assignment.draining && records > 0 && bytes > 0 && self.stage.wants(slot);
        open.then(|| {
            (records.min(self.settings.fetch_records), bytes.min(self.stage.room_bytes(slot).max(1)))
        })
    }

    fn fetch_one(&mut self, slot: Slot) {
        let Some((records, bytes)) = self.assignments.get(&slot).and_then(|a| self.room(slot, a)) else {
            return;
        };
        let Some(assignment) = self.assignments.get_mut(&slot) else { return };
        match assignment.source.fetch(records, bytes, &mut self.batch) {
            Ok(fetched) => {
                assignment.readable = fetched == Fetched::Some && !self.batch.is_empty();
                assignment.read_on(&self.batch, self.desk.now);
            }
            Err(error) => self.source_failed(slot, &error),
        }
        self.deliver(slot);
    }

    /// Hands the fetched batch to the stage.
    fn deliver(&mut self, slot: Slot) {
        let Some(assignment) = self.assignments.get_mut(&slot) else { return };
        let Assignment { partition, watermark, window_bytes, out_of_range, moved, .. } = assignment;
        *moved |= !self.batch.is_empty();
        let mut began_anew = false;
        self.batch.retain(|record| match watermark.deliver(record.offset()) {
            Ok(()) => {
                *window_bytes += record.size();
                true
            }
            Err(error) => {
                // The client hands out each offset once; a record that comes again is covered by its first delivery, unless
                // the topic was made anew.
                warn!(%partition, %error, "a record was delivered again within one assignment");
                began_anew |= *out_of_range;
                false
            }
        });
        if began_anew {
            self.observer.fatal(&format!(
                "the offsets of {partition} began anew: its records can't be told from those before"
            ));
        }
        if !self.batch.is_empty() {
            self.stage.accept(slot, &mut self.batch, &mut self.desk);
            self.batch.clear();
        }
    }

    fn source_failed(&mut self, slot: Slot, error: &SourceError) {
        let Some(assignment) = self.assignments.get_mut(&slot) else { return };
        // The next wake or tick asks again.
        assignment.readable = false;
        let partition = &assignment.partition;
        let trouble = error.to_string();
        assignment.failed_at = Some(self.desk.now);
        let known = assignment.source_trouble.as_ref() == Some(&trouble);
        match error {
            SourceError::Unavailable(_) if known => {}
            SourceError::Unavailable(_) => warn!(%partition, %error, "reading is held up"),
            SourceError::OutOfRange(_) => {
                assignment.out_of_range = true;
                error!(%partition, %error, "records of this partition may be gone unread");
                crate::events::offset_out_of_range(partition);
            }
            SourceError::Fatal(reason) => self.observer.fatal(reason),
        }
        assignment.source_trouble = Some(trouble);
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

    fn finish_revocations(&mut self) {
        let now = self.desk.now;
        let mut open = Vec::new();
        for revocation in std::mem::take(&mut self.revocations) {
            let idle = revocation.slots.iter().all(|&slot| self.stage.is_idle(slot));
            if !idle && now < revocation.deadline {
                open.push(revocation);
                continue;
            }
            if !idle {
                warn!(
                    "the drain deadline passed; jobs that still ran are cancelled and will run again elsewhere"
                );
            }
            let left = self.unsettled(&revocation.slots);
            let settled = revocation.unsettled.saturating_sub(left);
            let positions = revocation.slots.iter().filter_map(|&slot| self.release(slot)).collect();
            if revocation.reply.send(Drained { positions, settled, left }).is_err() {
                warn!(
                    "nobody waits for revoked partitions; their records are delivered again to the next owner"
                );
            }
        }
        self.revocations = open;
    }

    fn commit_if_due(&mut self) {
        if !std::mem::take(&mut self.desk.commit) && self.desk.now < self.next_commit {
            return;
        }
        self.next_commit = self.desk.now + self.settings.commit_interval;
        let refused = self.committer.refused();
        if self.desk.now >= self.next_recommit || refused != self.refused_commits {
            self.refused_commits = refused;
            self.next_recommit = self.desk.now + self.settings.recommit_interval;
            self.assignments.values_mut().for_each(|assignment| assignment.committed = None);
        }
        let mut positions = Vec::new();
        for assignment in self.assignments.values_mut() {
            let position = assignment.watermark.commit_position();
            if position.is_some() && position != assignment.committed {
                positions.extend(position.map(|p| (assignment.partition.clone(), p)));
            }
        }
        if !positions.is_empty() {
            match self.committer.commit(&positions) {
                Ok(()) => self.note_committed(),
                Err(error) => warn!(%error, "the next tick commits again"),
            }
        }
        self.publish_gauges();
        self.watch_for_stalls();
    }

    fn note_committed(&mut self) {
        for assignment in self.assignments.values_mut() {
            assignment.committed = assignment.watermark.commit_position();
        }
    }

    fn publish_gauges(&mut self) {
        let now = self.desk.now;
        for assignment in self.assignments.values_mut() {
            let position = assignment.watermark.commit_position();
            if assignment.head.0 != position {
                assignment.head = (position, now);
            }
            let waits = assignment.watermark.unsettled() > 0 && !self.stage.holds_on_purpose();
            assignment.gauges.set_head_age(if waits { now - assignment.head.1 } else { Duration::ZERO });
            assignment.gauges.set(
                position,
                assignment.source.end_offset(),
                &assignment.watermark,
                assignment.window_bytes,
            );
        }
    }

    /// Records were appended, and nothing was delivered or settled since: a fault that nothing else would show. That the end lies
    /// beyond the last delivered record shows nothing by itself: the rest may be markers, or committed by an earlier owner.
    fn watch_for_stalls(&mut self) {
        let now = self.desk.now;
        for (&slot, assignment) in &mut self.assignments {
            let end = assignment.source.end_offset();
            // The first end that a client knows may be one that it remembers from an earlier assignment.
            let is_new = assignment.watermark.last_delivered().is_none()
                && now.duration_since(assignment.assigned_at) < END_IS_OLD;
            let full = assignment.watermark.held() >= self.settings.window_records
                || assignment.window_bytes >= self.settings.window_bytes;
            let on_purpose = (self.stage.holds_on_purpose() && !self.stage.wants(slot))
                || (full && self.stage.explains_standstill(slot));
            let moved = std::mem::take(&mut assignment.moved);
            if moved || is_new || on_purpose || assignment.stands_since.1.is_none() {
                assignment.stands_since = (now, end);
            }
            let (since, end_then) = assignment.stands_since;
            let stalled = end > end_then && now.duration_since(since) > self.settings.stall_after;
            let seconds = self.settings.stall_after.as_secs();
            assignment.stalled =
                stalled.then(|| format!("no progress for more than {seconds} s although records wait"));
        }
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
