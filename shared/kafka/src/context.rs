//! What librdkafka calls back: rebalances, commits, errors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tidegate_domain::{AssignmentEpoch, CommitPosition, Partition, Topic};
use tidegate_pipeline::shard::{Control, Drained};
use tidegate_pipeline::stage::Slot;
use tidegate_pipeline::{Inbox, LogLimit, Names, TopicPartition, Wake, events};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::fatal::Fatal;
use crate::native::PartitionQueue;
use crate::offsets::{self, Start};
use crate::refusal::Refusal;
use crate::source::PartitionSource;

/// Where one shard is reached.
#[derive(Clone, Debug)]
pub struct ShardPort {
    /// Its control inbox.
    pub control: Arc<Inbox<Control>>,
    /// Wakes it.
    pub wake: Wake,
}

pub(crate) struct GroupContext {
    pub(crate) group: String,
    /// By when all that runs must have ended, once this member is to give all partitions back.
    pub(crate) leaves_by: OnceLock<Instant>,
    pub(crate) shards: Vec<ShardPort>,
    pub(crate) start: Box<dyn Fn(&str) -> Start + Send + Sync>,
    /// The pipeline that this group forwards events to, where it is ingest.
    pub(crate) forwards_to: Option<Names>,
    pub(crate) drain_deadline: Duration,
    pub(crate) fatal: Fatal,
    pub(crate) consumer: OnceLock<Weak<BaseConsumer<GroupContext>>>,
    /// Which shard has which partition.
    pub(crate) owners: Mutex<BTreeMap<TopicPartition, usize>>,
    pub(crate) epoch: AtomicU64,
    pub(crate) refused_commits: AtomicU64,
    pub(crate) bootstrap: String,
    pub(crate) joined: watch::Sender<bool>,
    /// Why no broker serves this client, from when all are lost until one answers.
    pub(crate) outage: watch::Sender<Option<String>>,
    /// What a broker has refused this client for, and when.
    pub(crate) refused: Mutex<Option<(Instant, Refusal)>>,
}

/// How long a refusal explains that no broker is left; librdkafka reports the same one every 30 s only.
const REFUSED_RECENTLY: Duration = Duration::from_secs(60);
/// How long brokers may take to say where a partition is read from; well below `max.poll.interval.ms`.
const RESOLVE_WITHIN: Duration = Duration::from_secs(60);
/// How long the first question for that may take, before it is asked again with twice the time: who is to leave in the middle of it
/// has not much more than the drain deadline.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(2);
const ANY_ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// How long after the drain deadline a shard may take to answer, before it counts as hanging.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

impl ClientContext for GroupContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.note_outage(&error, reason);
        log_client_error("consumer", &error, reason);
        if error.rdkafka_error_code() == Some(Code::Fatal) {
            self.fatal.report(reason);
        }
    }

    fn stats(&self, _statistics: Statistics) {}
}

impl ConsumerContext for GroupContext {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        event: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let result = match event {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, partitions),
            _ if consumer.assignment_lost() => self.lose(consumer, partitions),
            _ => self.revoke(consumer, partitions),
        };
        if let Err(error) = result {
            self.fatal.report(&format!("a rebalance failed: {error}"));
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        match result {
            Ok(()) | Err(KafkaError::ConsumerCommit(Code::NoOffset)) => {}
            Err(error) => {
                metrics::counter!(events::COMMIT_ERRORS).increment(1);
                self.refused_commits.fetch_add(1, Ordering::Relaxed);
                warn!(%error, partitions = offsets.count(), "a commit was refused; a later one covers it, or the next owner sees the records again");
            }
        }
    }
}

impl GroupContext {
    fn note_outage(&self, error: &KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let refusal = Refusal::of(code, reason).filter(Refusal::is_certain);
        let is_refusal = refusal.is_some();
        if let Some(refusal) = refusal {
            *self.refused.lock() = Some((Instant::now(), refusal));
        }
        // One broker that refuses this client may have peers that do not.
        if code == Code::AllBrokersDown || (is_refusal && self.outage.borrow().is_some()) {
            let refused = self.refused.lock().clone().filter(|(at, _)| at.elapsed() < REFUSED_RECENTLY);
            self.outage.send_replace(Some(match refused {
                Some((_, refusal)) => format!("Kafka refuses this client: {refusal}"),
                None => "no broker can be reached; the client goes on trying".to_owned(),
            }));
        }
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, partitions: &mut TopicPartitionList) -> KafkaResult<()> {
        if partitions.count() == 0 {
            consumer.incremental_assign(partitions)?;
            self.joined.send_replace(true);
            return Ok(());
        }
        if self.is_leaving() || !self.resolve(consumer, partitions)? {
            return leave_unread(consumer, partitions);
        }
        let Some(shared) = self.consumer.get().and_then(Weak::upgrade) else {
            return leave_unread(consumer, partitions);
        };
        // Split before assign: what is fetched goes to the partition's own queue from the first record on.
        let sources = self.split(&shared, partitions);
        consumer.incremental_assign(partitions)?;
        info!(partitions = sources.len(), topics = ?by_topic(partitions), "assigned");
        for (shard, control) in sources {
            self.shards[shard].control.push(control);
        }
        // Not before it is settled where the first start begins: events that come after a process was ready are its own.
        self.joined.send_replace(true);
        Ok(())
    }

    /// Where a partition is read from must be known, never guessed: a guess could pass over events. A broker that is away for a
    /// moment is waited for; after that the process ends, and its restart asks again. False: this member is to leave meanwhile.
    fn resolve(
        &self,
        consumer: &BaseConsumer<Self>,
        partitions: &mut TopicPartitionList,
    ) -> KafkaResult<bool> {
        let deadline = Instant::now() + RESOLVE_WITHIN;
        let mut within = FIRST_ANSWER_WITHIN;
        loop {
            match offsets::resolve(consumer, partitions, &self.start, self.forwards_to.as_ref(), within) {
                Err(_) if self.is_leaving() => return Ok(false),
                Err(error) if Instant::now() < deadline => {
                    warn!(%error, "where to read from is not known yet; asking again");
                    // Nothing else names them to a client that forgot them: the thread that does is this one.
                    crate::native::add_brokers(consumer, &self.bootstrap);
                    std::thread::sleep(Duration::from_millis(500));
                    within = (within * 2).min(ANY_ANSWER_WITHIN);
                }
                answer => return answer.map(|()| !self.is_leaving()),
            }
        }
    }

    fn split(
        &self,
        consumer: &Arc<BaseConsumer<Self>>,
        partitions: &TopicPartitionList,
    ) -> Vec<(usize, Control)> {
        let mut owners = self.owners.lock();
        let mut sources = Vec::new();
        for element in partitions.elements() {
            let partition = topic_partition(element.topic(), element.partition());
            let shard = self.least_loaded(&owners);
            let wake = self.shards[shard].wake.clone();
            let Some(queue) =
                PartitionQueue::split(consumer.clone(), element.topic(), element.partition(), wake)
            else {
                self.fatal.report(&format!("the queue of {partition} can't be split"));
                continue;
            };
            debug!(%partition, offset = ?element.offset(), shard, "assigned");
            owners.insert(partition.clone(), shard);
            let slot = Slot(AssignmentEpoch(self.epoch.fetch_add(1, Ordering::Relaxed)));
            let source = Box::new(PartitionSource::new(queue, partition.clone()));
            sources.push((shard, Control::Assigned { slot, partition, source }));
        }
        sources
    }

    fn least_loaded(&self, owners: &BTreeMap<TopicPartition, usize>) -> usize {
        let load = |shard: &usize| owners.values().filter(|&owner| owner == shard).count();
        (0..self.shards.len()).min_by_key(load).unwrap_or(0)
    }

    /// The partitions of `list` by the shard that has them: what it has is no longer owned.
    fn disown(&self, list: &TopicPartitionList) -> BTreeMap<usize, Vec<TopicPartition>> {
        let mut owners = self.owners.lock();
        let named = list.elements();
        let named = named.iter().map(|element| topic_partition(element.topic(), element.partition()));
        by_shard(named.filter_map(|partition| owners.remove_entry(&partition)))
    }

    /// The same of all partitions.
    fn disown_all(&self) -> BTreeMap<usize, Vec<TopicPartition>> {
        by_shard(std::mem::take(&mut *self.owners.lock()).into_iter())
    }

    /// Kept partitions go on meanwhile: only this thread waits, while heartbeats go on in librdkafka's.
    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) -> KafkaResult<()> {
        let begun = Instant::now();
        self.count_taken(partitions);
        info!(
            partitions = partitions.count(), topics = ?by_topic(partitions), at_most = ?in_tenths(self.time_to_drain(begun)),
            "giving partitions back: nothing new begins, and what runs may end"
        );
        let all = self.drain(self.disown(partitions), begun);
        if !all.positions.is_empty() && !consumer.assignment_lost() {
            self.commit_last(consumer, &all.positions);
        }
        tell_drained(&all, begun.elapsed());
        consumer.incremental_unassign(partitions)
    }

    /// Whether this member is to give all partitions back.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaves_by.get().is_some()
    }

    /// Ends what runs on all partitions without having been asked to. Their last positions are not committed: the coordinator
    /// answers no request of this member before the division is over. They are unassigned when the consumer is closed.
    pub(crate) fn drain_unasked(&self) {
        let begun = Instant::now();
        info!(
            group = self.group, at_most = ?in_tenths(self.time_to_drain(begun)),
            "the group is divided anew, and others hold that up: leaving without waiting for it, what runs may end"
        );
        tell_drained(&self.drain(self.disown_all(), begun), begun.elapsed());
    }

    /// Counts what is taken from a member that works on.
    fn count_taken(&self, partitions: &TopicPartitionList) {
        if !self.is_leaving() {
            events::partitions_taken(&self.group, partitions.count());
        }
    }

    /// How long what runs may take to end, from `begun` on. A member that leaves has no more time for all that it is asked for.
    fn time_to_drain(&self, begun: Instant) -> Duration {
        let left = self.leaves_by.get().map(|leaves_by| leaves_by.saturating_duration_since(begun));
        left.map_or(self.drain_deadline, |left| left.min(self.drain_deadline))
    }

    /// Ends what runs on these partitions, from `begun` on.
    fn drain(&self, owned: BTreeMap<usize, Vec<TopicPartition>>, begun: Instant) -> Drained {
        let deadline = begun + self.time_to_drain(begun);
        let mut answers = Vec::new();
        for (shard, partitions) in owned {
            debug!(shard, ?partitions, "revoked");
            let (reply, answer) = oneshot::channel();
            self.shards[shard].control.push(Control::Revoke { partitions, deadline, reply });
            answers.push(answer);
        }
        let mut all = Drained::default();
        for answer in answers {
            let Drained { positions, settled, left } =
                self.await_answer(answer, deadline + ANSWER_GRACE).unwrap_or_default();
            all.positions.extend(positions);
            (all.settled, all.left) = (all.settled + settled, all.left + left);
        }
        all
    }

    fn commit_last(&self, consumer: &BaseConsumer<Self>, positions: &[(TopicPartition, CommitPosition)]) {
        match to_list(positions).and_then(|list| consumer.commit(&list, CommitMode::Sync)) {
            Ok(()) => debug!(?positions, "committed before giving back"),
            Err(error) => {
                metrics::counter!(events::COMMIT_ERRORS).increment(1);
                warn!(%error, "the last commit failed; the next owner sees settled records again, and their marks skip them");
            }
        }
    }

    fn lose(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) -> KafkaResult<()> {
        let mut answers = Vec::new();
        self.count_taken(partitions);
        warn!(
            partitions = partitions.count(), topics = ?by_topic(partitions),
            "lost: another process may own them already; nothing is committed"
        );
        for (shard, partitions) in self.disown(partitions) {
            debug!(shard, ?partitions, "lost");
            let (reply, answer) = oneshot::channel();
            self.shards[shard].control.push(Control::Lost { partitions, reply });
            answers.push(answer);
        }
        for answer in answers {
            self.await_answer(answer, Instant::now() + ANSWER_GRACE);
        }
        consumer.incremental_unassign(partitions)
    }

    fn await_answer<T>(&self, mut answer: oneshot::Receiver<T>, deadline: Instant) -> Option<T> {
        loop {
            match answer.try_recv() {
                Ok(answer) => return Some(answer),
                Err(oneshot::error::TryRecvError::Closed) => {
                    self.fatal.report("a shard ended while it had partitions");
                    return None;
                }
                Err(oneshot::error::TryRecvError::Empty) if Instant::now() > deadline => {
                    self.fatal.report("a shard hangs: a handler blocks its thread");
                    return None;
                }
                Err(oneshot::error::TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

/// Takes partitions that are given back at once. librdkafka waits for the answer to an assignment, and nothing may be read of them.
fn leave_unread<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &mut TopicPartitionList,
) -> KafkaResult<()> {
    info!(partitions = partitions.count(), topics = ?by_topic(partitions), "assigned while leaving: nothing is read");
    partitions.set_all_offsets(Offset::End)?;
    consumer.incremental_assign(partitions)?;
    consumer.pause(partitions)
}

pub(crate) fn topic_partition(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: Topic::new(topic), partition: Partition(partition) }
}

fn tell_drained(drained: &Drained, took: Duration) {
    let Drained { settled, left, .. } = drained;
    match (settled, left) {
        (0, 0) => info!(?took, "gave partitions back; nothing was under way"),
        (_, 0) => info!(settled, ?took, "gave partitions back; all that was under way has ended"),
        _ => {
            info!(
                settled,
                left,
                ?took,
                "gave partitions back; what is left is delivered again to their next owner"
            )
        }
    }
}

/// Partitions by the shard that has them.
fn by_shard(owned: impl Iterator<Item = (TopicPartition, usize)>) -> BTreeMap<usize, Vec<TopicPartition>> {
    let mut by_shard: BTreeMap<usize, Vec<TopicPartition>> = BTreeMap::new();
    for (partition, shard) in owned {
        by_shard.entry(shard).or_default().push(partition);
    }
    by_shard
}

/// For a reader: a second of which some microseconds are gone is still one.
fn in_tenths(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis().div_ceil(100) as u64 * 100)
}

/// How many partitions of each topic: a pipeline may have hundreds, which nobody wants to read one by one.
fn by_topic(list: &TopicPartitionList) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for element in list.elements() {
        *counts.entry(element.topic().to_owned()).or_default() += 1;
    }
    counts
}

pub(crate) fn to_list(positions: &[(TopicPartition, CommitPosition)]) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(positions.len());
    for (at, position) in positions {
        list.add_partition_offset(at.topic.as_str(), at.partition.0, Offset::Offset(position.0))?;
    }
    Ok(list)
}

/// Whether the client itself goes on trying, without end.
fn heals_by_itself(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut | Code::Resolve)
    )
}

/// Whether the error callback has told it already, in words.
pub(crate) fn is_told_by_callback(error: &KafkaError) -> bool {
    let refused = matches!(
        error.rdkafka_error_code(),
        Some(
            Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
                | Code::SSL
        )
    );
    refused || heals_by_itself(error)
}

/// Clients report broker trouble at each try.
static TOLD: LogLimit<String> = LogLimit::new();

/// What librdkafka logs. Failed connections come as errors too, and are told there.
pub(crate) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        _ if matches!(facility, "FAIL" | "ERROR") => debug!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Warning => warn!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => info!(target: "librdkafka", facility, "{message}"),
        RDKafkaLogLevel::Debug => debug!(target: "librdkafka", facility, "{message}"),
        _ => error!(target: "librdkafka", facility, "{message}"),
    }
}

/// Broker trouble heals by itself and is told once in a while; the rest needs a person.
pub(crate) fn log_client_error(role: &str, error: &KafkaError, reason: &str) {
    let refusal = error.rdkafka_error_code().and_then(|code| Refusal::of(code, reason));
    if let Some(refusal) = refusal.filter(Refusal::is_certain) {
        if TOLD.allows(format!("{role} refused").as_str()) {
            error!(role, %refusal, reason, "a broker refuses this client; nothing is lost, and the client goes on trying");
        }
        return;
    }
    match error.rdkafka_error_code() {
        _ if heals_by_itself(error) => {
            if TOLD.allows(role) {
                warn!(role, reason, "a broker can't be reached; the client goes on trying");
            }
        }
        _ => warn!(role, %error, reason, "the Kafka client reports an error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_counted_by_topic() {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in [("a", 0), ("b", 7), ("a", 2)] {
            list.add_partition(topic, partition);
        }
        assert_eq!(format!("{:?}", by_topic(&list)), r#"{"a": 2, "b": 1}"#);
    }
}
