//! What ingest asks of its router: which jobs an event is.

use tidegate_domain::{Failure, Partition, Topic, UnixMillis};

use crate::record::{Record, TopicPartition};

/// Decides what an event is.
pub trait EventRouter {
    /// Appends the jobs that `record` is.
    fn route(
        &mut self,
        partition: &TopicPartition,
        record: &Record,
        now: UnixMillis,
        jobs: &mut Vec<PlannedJob>,
    ) -> Routed;
}

/// A job to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedJob {
    /// The tier's job topic.
    pub topic: Topic,
    /// The lane's partition.
    pub partition: Partition,
    /// The text of the `job` header.
    pub header: String,
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routed {
    /// The jobs that were appended.
    Jobs,
    /// Nothing, on purpose.
    Ignored,
    /// It can't be a job, ever.
    Dead(Failure),
    /// The jobs that were appended, and for these reasons not every class that it matches has one: a dead letter for each.
    JobsAndDead(Vec<Failure>),
    /// It can't be decided yet, and will be in a moment: the router wakes the shard then.
    Soon,
    /// It can't be decided now, and why: its partition is held up.
    Later(String),
}
