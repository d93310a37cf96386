//! What the worker's stage works with, and by which bounds.

use std::sync::Arc;
use std::time::Duration;

use super::cut_off::CutOff;
use super::first::FirstPartitions;
use super::job::Class;
use super::parked::ParkedShare;
use super::solitude::Solitude;
use crate::names::Names;
use crate::ports::{Clock, Handler, MarkStore, RecordPublisher};

/// What the stage works with.
#[derive(Clone)]
pub struct Ports {
    /// Publishes copies to delay topics and the DLQ.
    pub publisher: Arc<dyn RecordPublisher>,
    /// Remembers marks.
    pub marks: Arc<dyn MarkStore>,
    /// One for each class, in the order of the classes.
    pub handlers: Vec<Arc<dyn Handler>>,
    /// Clock and dice.
    pub clock: Arc<dyn Clock>,
    /// Where handlers go on that must wait.
    pub runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("handlers", &self.handlers.len()).finish_non_exhaustive()
    }
}

/// Bounds and names of the stage.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// The pipeline's names.
    pub names: Names,
    /// Every class whose jobs may come.
    pub classes: Arc<[Class]>,
    /// How many handlers of this shard run at the same time.
    pub concurrency: usize,
    /// How long a step that promises a later copy is believed.
    pub belief: Duration,
    /// How many marks are appended together at most: they must fit into one record, at 62 bytes each.
    pub marks_together: usize,
    /// How much of a partition's window jobs of parked classes may hold.
    pub parked: ParkedShare,
    /// Shared by all shards of the process: how a job runs alone in it.
    pub solitude: Solitude,
    /// Shared by all shards of the process: whether it was cut off.
    pub cut_off: CutOff,
    /// Shared by all shards of a member: whether the marks of its first partitions are there.
    pub first: FirstPartitions,
}
