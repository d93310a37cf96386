//! One process with one shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_domain::{AssignmentEpoch, CommitPosition};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::clock::FakeClock;
use super::copies::FakeTable;
use super::faults::Faults;
use super::log::FakeLog;
use super::marks::FakeMarks;
use super::offsets::{FakeCommitter, GroupOffsets};
use super::publisher::FakePublisher;
use crate::inbox::{Inbox, Wake};
use crate::jobs::FirstPartitions;
use crate::record::TopicPartition;
use crate::shard::{Control, Drained, Shard, ShardObserver, ShardSettings};
use crate::stage::{Slot, Stage};

/// Whether a process lives; what it started asks.
#[derive(Clone, Debug)]
pub struct Life {
    id: u64,
    dead: Arc<watch::Sender<bool>>,
}

impl Life {
    pub(super) fn begin(id: u64) -> Self {
        Self { id, dead: Arc::new(watch::Sender::new(false)) }
    }

    /// The node's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// It ends.
    pub(super) fn end(&self) {
        self.dead.send_replace(true);
    }

    /// Whether it ended.
    pub fn is_over(&self) -> bool {
        *self.dead.borrow()
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        let mut dead = self.dead.subscribe();
        if dead.wait_for(|dead| *dead).await.is_err() {
            std::future::pending().await
        }
    }
}

/// What a shard told its observer.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The troubles as they stand.
    pub troubles: BTreeMap<TopicPartition, String>,
    /// Every change of them.
    pub changes: Vec<BTreeMap<TopicPartition, String>>,
    /// Why the process must end.
    pub fatal: Vec<String>,
    /// How often the loop went round.
    pub rounds: usize,
}

struct Observer(Arc<Mutex<Told>>);

impl ShardObserver for Observer {
    fn troubles(&mut self, troubles: &BTreeMap<TopicPartition, String>) {
        let mut told = self.0.lock();
        told.troubles.clone_from(troubles);
        told.changes.push(troubles.clone());
    }

    fn fatal(&mut self, reason: &str) {
        self.0.lock().fatal.push(reason.to_owned());
    }

    fn alive(&mut self) {
        self.0.lock().rounds += 1;
    }
}

/// What a stage of a node is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The node's clock: it can jump by itself.
    pub clock: Arc<FakeClock>,
    /// Its publisher.
    pub publisher: Arc<FakePublisher>,
    /// Its marks, where they are durable by themselves.
    pub marks: Arc<FakeMarks>,
    /// The copy of its marks, where they are in the changelog, and the task that follows that.
    pub table: Option<(Arc<FakeTable>, Arc<JoinHandle<()>>)>,
    /// Its faults.
    pub faults: Faults,
    /// Whether it lives.
    pub life: Life,
    /// Whether the marks of its first partitions are there.
    pub first: FirstPartitions,
    /// Wakes its shard.
    pub wake: Wake,
}

/// One process with one shard, as a task of the current runtime.
#[derive(Debug)]
pub struct Node {
    /// What its stage works with.
    pub parts: Parts,
    /// Its group's positions.
    pub offsets: Arc<GroupOffsets>,
    log: Arc<FakeLog>,
    control: Arc<Inbox<Control>>,
    task: JoinHandle<()>,
    told: Arc<Mutex<Told>>,
    epochs: Arc<AtomicU64>,
    assigned: BTreeSet<TopicPartition>,
}

impl Node {
    pub(super) fn start<S: Stage + Send + 'static>(
        parts: Parts,
        settings: ShardSettings,
        stage: S,
        (log, offsets, epochs): (Arc<FakeLog>, Arc<GroupOffsets>, Arc<AtomicU64>),
    ) -> Self {
        let control = Inbox::new(parts.wake.clone());
        let told = Arc::new(Mutex::new(Told::default()));
        let committer = FakeCommitter {
            offsets: offsets.clone(),
            faults: parts.faults.clone(),
            life: parts.life.clone(),
            refused: std::sync::atomic::AtomicU64::new(0),
        };
        let shard = Shard::new(
            stage,
            settings,
            parts.clock.clone(),
            Arc::new(committer),
            (control.clone(), parts.wake.clone()),
            Box::new(Observer(told.clone())),
        );
        let task = tokio::spawn(shard.run());
        Self { parts, offsets, log, control, task, told, epochs, assigned: BTreeSet::new() }
    }

    /// The node's number.
    pub fn id(&self) -> u64 {
        self.parts.life.id()
    }

    /// Its faults.
    pub fn faults(&self) -> &Faults {
        &self.parts.faults
    }

    /// What its shard told.
    pub fn told(&self) -> Told {
        self.told.lock().clone()
    }

    /// Its partitions.
    pub fn assigned(&self) -> &BTreeSet<TopicPartition> {
        &self.assigned
    }

    /// Gives it a partition, to be read from where its group stands.
    pub fn assign(&mut self, partition: &TopicPartition) {
        self.offsets.own(partition, self.id());
        self.assigned.insert(partition.clone());
        let position = self.offsets.position(partition);
        let source = self.log.reader(partition, position, self.parts.wake.clone(), self.parts.faults.clone());
        let slot = Slot(AssignmentEpoch(self.epochs.fetch_add(1, Ordering::Relaxed)));
        self.control.push(Control::Assigned { slot, partition: partition.clone(), source: Box::new(source) });
    }

    /// Takes partitions back: what runs may end within `grace`; then its positions are committed, and returned.
    pub async fn revoke(
        &mut self,
        partitions: &[TopicPartition],
        grace: Duration,
    ) -> Vec<(TopicPartition, CommitPosition)> {
        self.drain(partitions, grace).await.positions
    }

    /// The same, and tells what became of its records.
    pub async fn drain(&mut self, partitions: &[TopicPartition], grace: Duration) -> Drained {
        self.assigned.retain(|partition| !partitions.contains(partition));
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + grace;
        self.control.push(Control::Revoke { partitions: partitions.to_vec(), deadline, reply });
        let drained = answer.await.unwrap_or_default();
        self.offsets.commit(self.id(), &drained.positions);
        drained
    }

    /// Tells it that partitions are another's already.
    pub async fn lose(&mut self, partitions: &[TopicPartition]) {
        self.assigned.retain(|partition| !partitions.contains(partition));
        let (reply, answer) = oneshot::channel();
        self.control.push(Control::Lost { partitions: partitions.to_vec(), reply });
        // A shard that ended has nothing to release.
        answer.await.unwrap_or_default();
    }

    /// The partition is to be another's, and this node does not know yet: until [`Self::lose`] tells it, it goes on. Its commits
    /// are refused once the other is assigned.
    pub fn depose(&mut self, partition: &TopicPartition) {
        self.assigned.remove(partition);
    }

    /// The process dies: what it handed to its client and was not sent yet is gone, or arrives without it.
    pub async fn kill(self, on_their_way: OnTheirWay) {
        self.parts.life.dead.send_replace(true);
        if on_their_way == OnTheirWay::Lost {
            self.parts.publisher.parcels.lose_all();
            self.parts.marks.parcels.lose_all();
        }
        if let Some((table, changelog)) = &self.parts.table {
            changelog.abort();
            table.parcels.lose_all();
            table.disk.lose_unflushed();
        }
        self.task.abort();
        let ended = self.task.await;
        debug_assert!(ended.is_err_and(|error| error.is_cancelled()), "the shard ended before it was killed");
    }

    /// The process ends in order: everything is given back first.
    pub async fn stop(mut self, grace: Duration) {
        let partitions: Vec<TopicPartition> = self.assigned.iter().cloned().collect();
        if !partitions.is_empty() {
            self.revoke(&partitions, grace).await;
        }
        self.control.push(Control::Stop);
        let ended = self.task.await;
        debug_assert!(ended.is_ok(), "the shard panicked");
    }

    /// Whether its loop still runs.
    pub fn runs(&self) -> bool {
        !self.task.is_finished()
    }
}

/// What becomes of what a killed process had handed to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTheirWay {
    /// It was not sent.
    Lost,
    /// It arrives.
    Arrives,
}
