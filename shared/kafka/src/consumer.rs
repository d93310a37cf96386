//! A group member: one event thread serves rebalances and callbacks, shards poll the queues of their partitions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tidegate_domain::CommitPosition;
use tidegate_pipeline::ports::{CommitError, OffsetCommitter};
use tidegate_pipeline::shard::Control;
use tidegate_pipeline::{Names, TopicPartition};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

pub use crate::context::ShardPort;
use crate::context::{GroupContext, is_told_by_callback, to_list};
use crate::fatal::Fatal;
pub use crate::offsets::Start;
use crate::settings::{ConnectError, KafkaSettings, create};

/// What a group member reads.
pub struct Subscription {
    /// The consumer group.
    pub group: String,
    /// Topics, or patterns that begin with `^`.
    pub topics: Vec<String>,
    /// Where the first start of the group begins, by topic.
    pub start: Box<dyn Fn(&str) -> Start + Send + Sync>,
    /// How long running jobs may take to end when partitions are given back.
    pub drain_deadline: Duration,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("group", &self.group)
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}

/// A member of a consumer group.
pub struct GroupMember {
    consumer: Arc<BaseConsumer<GroupContext>>,
    thread: JoinHandle<()>,
    left: oneshot::Receiver<Left>,
    shards: Vec<ShardPort>,
}

impl std::fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupMember").field("shards", &self.shards.len()).finish_non_exhaustive()
    }
}

/// How often the event thread looks whether it is to leave.
const LOOK: Duration = Duration::from_millis(50);
/// How often, and for how long, brokers are looked for when none could be reached.
const LOOK_FOR_BROKERS: Duration = Duration::from_millis(500);
/// How long a client that forgot its brokers may stay without them after a long outage.
const NAME_BROKERS_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// How long a member that left amid a division of its group waits for the group's answer: all that counts is done by then, but without
/// it the group may divide with a member that is gone. Past the drain deadline there is a moment only.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_AT_LEAST: Duration = Duration::from_secs(1);
/// Every member hears that its group is divided anew by its next heartbeat; after so many, the division hangs on somebody else.
const HEARTBEATS_OF_A_DIVISION: u32 = 2;
/// A busy machine takes its time to call back.
const DIVISION_AT_LEAST: Duration = Duration::from_secs(1);

impl GroupMember {
    /// Joins the group; partitions come to `shards` as the group assigns them.
    pub fn join(
        settings: &KafkaSettings,
        subscription: Subscription,
        shards: Vec<ShardPort>,
        fatal: Fatal,
    ) -> Result<Self, ConnectError> {
        let context = GroupContext {
            group: subscription.group.clone(),
            leaves_by: OnceLock::new(),
            shards: shards.clone(),
            start: subscription.start,
            forwards_to: Names::of_ingest_group(&subscription.group),
            drain_deadline: subscription.drain_deadline,
            fatal: fatal.clone(),
            consumer: OnceLock::new(),
            owners: Mutex::new(BTreeMap::new()),
            epoch: AtomicU64::new(1),
            refused_commits: AtomicU64::new(0),
            bootstrap: settings.bootstrap.clone(),
            joined: watch::Sender::new(false),
            outage: watch::Sender::new(None),
            refused: Mutex::new(None),
        };
        let group = subscription.group;
        let config = settings.consumer(&group);
        let consumer: Arc<BaseConsumer<GroupContext>> = Arc::new(create(&config, context)?);
        // Set once, here: the callbacks need the consumer as a shared one.
        let _first = consumer.context().consumer.set(Arc::downgrade(&consumer));
        let topics: Vec<&str> = subscription.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(ConnectError::Configuration)?;
        let (tell, left) = oneshot::channel();
        let thread = {
            let (consumer, deadline) = (consumer.clone(), subscription.drain_deadline);
            let division =
                (settings.heartbeat() * HEARTBEATS_OF_A_DIVISION).max(DIVISION_AT_LEAST).min(deadline / 2);
            std::thread::Builder::new()
                .name("kafka-events".to_owned())
                .spawn(move || {
                    let told = Told { group, fatal };
                    serve(&consumer, &told);
                    // Nobody listens when the member was dropped without leaving.
                    let _heard = tell.send(give_back(&consumer, division, &told));
                })
                .map_err(|error| ConnectError::Configuration(KafkaError::ClientCreation(error.to_string())))?
        };
        Ok(Self { consumer, thread, left, shards })
    }

    /// Commits positions for the shards.
    pub fn committer(&self) -> Arc<dyn OffsetCommitter> {
        Arc::new(Committer(self.consumer.clone()))
    }

    /// Turns true when the group has accepted this member, with or without partitions.
    pub fn joined(&self) -> watch::Receiver<bool> {
        self.consumer.context().joined.subscribe()
    }

    /// Why no broker serves this member; nothing while one does.
    pub fn outage(&self) -> watch::Receiver<Option<String>> {
        self.consumer.context().outage.subscribe()
    }

    /// Gives all partitions back, what runs having ended or been cancelled, commits, and leaves; then stops the shards. Amid a
    /// division of the group, whose end others decide, nothing is committed and no answer is waited for: what was settled is
    /// delivered again to the next owner.
    pub async fn leave(self) {
        let context = self.consumer.context();
        let now = tokio::time::Instant::now();
        let leaves_by = *context.leaves_by.get_or_init(|| now + context.drain_deadline);
        let left = self.left.await.unwrap_or_else(|_| {
            warn!("the event thread ended by itself");
            Left::InOrder
        });
        for shard in &self.shards {
            shard.control.push(Control::Stop);
        }
        let thread = self.thread;
        if tokio::task::spawn_blocking(move || thread.join()).await.is_err() {
            warn!("the event thread could not be joined");
        }
        // The last reference closes the consumer, which blocks for a moment.
        let consumer = self.consumer;
        let closed = tokio::task::spawn_blocking(move || drop(consumer));
        match left {
            Left::InOrder => {
                if closed.await.is_err() {
                    warn!("closing the consumer failed");
                }
            }
            Left::AmidDivision => {
                let left = leaves_by.saturating_duration_since(tokio::time::Instant::now());
                if tokio::time::timeout(left.clamp(ANSWER_AT_LEAST, ANSWER_WITHIN), closed).await.is_err() {
                    info!("left without the answer of the group, which is still divided anew");
                }
            }
        }
    }
}

/// How a member gave its partitions back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// As the group asked for it.
    InOrder,
    /// While others held up the group's division.
    AmidDivision,
}

/// Who hears of what ends the member.
struct Told {
    group: String,
    fatal: Fatal,
}

fn serve(consumer: &Arc<BaseConsumer<GroupContext>>, told: &Told) {
    let mut outage: Option<Outage> = None;
    while !consumer.context().is_leaving() {
        poll(consumer, told);
        if consumer.context().outage.borrow().is_none() {
            outage = None;
        } else {
            let now = Instant::now();
            outage.get_or_insert_with(|| Outage::begin(now)).look_for_brokers(consumer, now);
        }
    }
}

/// Amid a division of its group, the client puts off that it unsubscribes, and asks for no partition, until the division is over.
/// Somebody else may hold that up for as long as a session or a poll interval lasts, so it is not waited for without end: what runs
/// would be cut off by the end of the process.
fn give_back(consumer: &Arc<BaseConsumer<GroupContext>>, division: Duration, told: &Told) -> Left {
    consumer.unsubscribe();
    let begun = Instant::now();
    while owns_any(consumer) {
        // The call that asks for partitions ends them before it returns.
        if begun.elapsed() > division {
            consumer.context().drain_unasked();
            return Left::AmidDivision;
        }
        poll(consumer, told);
    }
    Left::InOrder
}

/// No broker can be reached. The client tells when brokers are gone, and not when they are back.
struct Outage {
    look_at: Instant,
    name_at: Instant,
    /// How long after the next naming the one after it follows.
    pause: Duration,
}

impl Outage {
    fn begin(now: Instant) -> Self {
        Self { look_at: now, name_at: now, pause: LOOK_FOR_BROKERS }
    }

    fn look_for_brokers(&mut self, consumer: &BaseConsumer<GroupContext>, now: Instant) {
        if now < self.look_at {
            return;
        }
        if self.names_them(now) {
            crate::native::add_brokers(consumer, &consumer.context().bootstrap);
        }
        let subscribed = consumer.assignment().ok();
        let topic = subscribed
            .as_ref()
            .and_then(|list| list.elements().first().map(|element| element.topic().to_owned()));
        if consumer.fetch_metadata(topic.as_deref(), LOOK_FOR_BROKERS).is_ok() {
            consumer.context().outage.send_replace(None);
            *consumer.context().refused.lock() = None;
            info!("a broker answers again");
        }
        self.look_at = Instant::now() + LOOK_FOR_BROKERS;
    }

    /// Whether the brokers are named to the client again now. Once is not enough: it is the first answer *after* an outage that
    /// may make it forget them. Each time costs a little memory, which is never freed, so it happens seldom in a long one.
    fn names_them(&mut self, now: Instant) -> bool {
        let due = now >= self.name_at;
        if due {
            self.name_at = now + self.pause;
            self.pause = (self.pause * 2).min(NAME_BROKERS_AT_LEAST_EVERY);
        }
        due
    }
}

fn owns_any(consumer: &BaseConsumer<GroupContext>) -> bool {
    !consumer.context().owners.lock().is_empty() || consumer.assignment().is_ok_and(|a| a.count() > 0)
}

fn poll(consumer: &BaseConsumer<GroupContext>, Told { group, fatal }: &Told) {
    match consumer.poll(LOOK) {
        None => {}
        Some(Ok(_)) => {
            fatal.report("a record came outside its partition's queue; it was not committed and comes again")
        }
        Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
            fatal.report(&format!("the consumer failed: {code}"))
        }
        // Nothing can be read without the group, and nothing but an administrator changes that.
        Some(Err(error)) if error.rdkafka_error_code() == Some(Code::GroupAuthorizationFailed) => {
            fatal.report(&format!("this user may not join the group `{group}`: grant it Read on that group"));
        }
        Some(Err(error)) if is_told_by_callback(&error) => {}
        Some(Err(error)) => warn!(%error, "the consumer reports an error"),
    }
}

struct Committer(Arc<BaseConsumer<GroupContext>>);

impl OffsetCommitter for Committer {
    fn commit(&self, positions: &[(TopicPartition, CommitPosition)]) -> Result<(), CommitError> {
        to_list(positions)
            .and_then(|list| self.0.commit(&list, CommitMode::Async))
            .map_err(|error| CommitError(error.to_string()))
    }

    fn refused(&self) -> u64 {
        self.0.context().refused_commits.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_an_outage_brokers_are_named_at_once_and_then_seldomer_but_never_for_the_last_time() {
        let start = Instant::now();
        let mut outage = Outage::begin(start);
        let looks = (0..120).map(|look| look * LOOK_FOR_BROKERS);
        let named: Vec<f32> =
            looks.filter(|&at| outage.names_them(start + at)).map(|at| at.as_secs_f32()).collect();
        assert_eq!(named, [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5, 55.5]);
    }
}
