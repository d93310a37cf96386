//! All partitions of one shard: commands come in, the log is written and read, the copy follows, answers go out.

mod appending;
mod letting_go;
mod taking_over;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Topic};
use tokio::time::Instant;

use super::ledger::{Asker, Ledger, Sent};
use super::opener::OpenerId;
use super::ports::{CaughtUp, ChangelogReader, LocalReady, LogEnd, MarkTable};
use crate::inbox::{Inbox, Wake};
use crate::keyed::{Key, Keyed};
use crate::ports::{
    Acknowledged, Delivery, MarkEntry, MarkStore, MarkStoreError, MarksReady, PublishError, Readiness,
    RecordPublisher, Ticket,
};
use crate::record::{OutboundRecord, TopicPartition};

/// What a changelog works with.
#[derive(Clone)]
pub struct ChangelogPorts {
    /// Appends to the log. Its records must not wait for more of them: they are packed already.
    pub publisher: Arc<dyn RecordPublisher>,
    /// The local copy.
    pub table: Arc<dyn MarkTable>,
    /// Reads the log.
    pub reader: Arc<dyn ChangelogReader>,
}

impl std::fmt::Debug for ChangelogPorts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangelogPorts").finish_non_exhaustive()
    }
}

/// Names and bounds.
#[derive(Clone, Debug)]
pub struct ChangelogSettings {
    /// This process.
    pub opener: OpenerId,
    /// How many records of a partition it may have in hand.
    pub window: u32,
    /// The changelog topic of each job topic.
    pub topics: FxHashMap<Topic, Topic>,
    /// How often the end of a log is asked for while nothing is appended to it.
    pub idle_check: Duration,
}

/// The marks of a shard: a changelog with a local copy. Dropping it ends its task.
#[derive(Debug)]
pub struct Changelog {
    commands: Arc<Inbox<Command>>,
    ports: ChangelogPorts,
}

#[derive(Debug)]
enum Command {
    Open(TopicPartition, Asker),
    Append(TopicPartition, Vec<MarkEntry>, Asker),
    Close(TopicPartition, Asker),
    Stop,
}

impl Changelog {
    /// A changelog, and the task that must run for it. The task blocks as long as the local copy does: in production it has a thread
    /// of its own.
    pub fn new(
        ports: ChangelogPorts,
        settings: ChangelogSettings,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let wake = Wake::default();
        let commands = Inbox::new(wake.clone());
        let task = Task {
            ports: ports.clone(),
            settings,
            partitions: FxHashMap::default(),
            asked: Keyed::default(),
            lives: 0,
            commands: commands.clone(),
            copies: Inbox::new(wake.clone()),
            deliveries: Inbox::new(wake.clone()),
            caught_up: Inbox::new(wake.clone()),
            ends: Inbox::new(wake.clone()),
            unclosed: BTreeSet::new(),
            bytes: Vec::new(),
            taken: Taken::default(),
            stopped: false,
        };
        (Self { commands, ports }, task.run(wake))
    }
}

impl Drop for Changelog {
    fn drop(&mut self) {
        self.commands.push(Command::Stop);
    }
}

impl MarkStore for Changelog {
    fn open(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<MarksReady>>) {
        let asker = Asker { ticket, inbox: inbox.clone() };
        self.commands.push(Command::Open(partition.clone(), asker));
    }

    fn look_up(
        &self,
        partition: &TopicPartition,
        keys: &[IdempotencyKey],
        found: &mut Vec<Mark>,
    ) -> Result<(), MarkStoreError> {
        self.ports.table.look_up(partition, keys, found)
    }

    fn append(
        &self,
        partition: &TopicPartition,
        entries: &[MarkEntry],
        ticket: Ticket,
        inbox: &Arc<Inbox<MarksReady>>,
    ) {
        let asker = Asker { ticket, inbox: inbox.clone() };
        self.commands.push(Command::Append(partition.clone(), entries.to_vec(), asker));
    }

    fn close(&self, partition: &TopicPartition, ticket: Ticket, inbox: &Arc<Inbox<MarksReady>>) {
        let asker = Asker { ticket, inbox: inbox.clone() };
        self.commands.push(Command::Close(partition.clone(), asker));
    }
}

/// What an answer belongs to: a partition, in one of its lives.
#[derive(Debug)]
struct Asked {
    partition: TopicPartition,
    life: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Copy,
    Opened,
    Marks(Sent),
    Closed(Option<Asker>),
    CatchUp,
    /// The end of a log that was applied to here when it was asked for.
    End(CommitPosition),
}

struct Task {
    ports: ChangelogPorts,
    settings: ChangelogSettings,
    partitions: FxHashMap<TopicPartition, Ledger>,
    asked: Keyed<Asked>,
    lives: u64,
    commands: Arc<Inbox<Command>>,
    copies: Arc<Inbox<LocalReady>>,
    deliveries: Arc<Inbox<Delivery>>,
    caught_up: Arc<Inbox<CaughtUp>>,
    ends: Arc<Inbox<LogEnd>>,
    /// Partitions that were let go of, which their changelogs do not say yet.
    unclosed: BTreeSet<TopicPartition>,
    bytes: Vec<u8>,
    taken: Taken,
    stopped: bool,
}

/// What a turn took from the inboxes; empty between turns, for its memory.
#[derive(Default)]
struct Taken {
    commands: Vec<Command>,
    copies: Vec<LocalReady>,
    deliveries: Vec<Delivery>,
    caught_up: Vec<CaughtUp>,
    ends: Vec<LogEnd>,
}

impl Task {
    async fn run(mut self, wake: Wake) {
        let mut next_check = Instant::now() + self.settings.idle_check;
        while !self.stopped {
            let check = tokio::time::sleep_until(next_check);
            tokio::select! {
                // Without a choice by chance, and so that nothing keeps a check from its time.
                biased;
                () = check => {
                    next_check = Instant::now() + self.settings.idle_check;
                    self.check_ends();
                    self.close_again();
                }
                () = wake.woken() => {}
            }
            self.turn();
        }
    }

    fn turn(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        self.commands.take(&mut taken.commands);
        for command in taken.commands.drain(..) {
            match command {
                Command::Open(partition, asker) => self.open(partition, asker),
                Command::Append(partition, entries, asker) => self.append(partition, entries, asker),
                Command::Close(partition, asker) => self.close(&partition, asker),
                Command::Stop => self.stopped = true,
            }
        }
        self.copies.take(&mut taken.copies);
        taken.copies.drain(..).for_each(|(ticket, answer)| self.copy_opened(ticket, answer));
        self.deliveries.take(&mut taken.deliveries);
        taken.deliveries.drain(..).for_each(|(ticket, answer)| self.delivered(ticket, answer));
        self.caught_up.take(&mut taken.caught_up);
        taken.caught_up.drain(..).for_each(|(ticket, answer)| self.caught_up(ticket, answer));
        self.ends.take(&mut taken.ends);
        taken.ends.drain(..).for_each(|(ticket, answer)| self.end_known(ticket, answer));
        self.taken = taken;
    }

    fn ask(&mut self, partition: &TopicPartition, life: u64, what: What) -> Ticket {
        self.asked.insert(Asked { partition: partition.clone(), life, what }).ticket()
    }

    /// The ledger that an answer belongs to, if it still lives.
    fn ledger(&mut self, partition: &TopicPartition, life: u64) -> Option<&mut Ledger> {
        self.partitions.get_mut(partition).filter(|ledger| ledger.life == life)
    }

    /// Hands `self.bytes` over for the partition's log.
    fn publish(
        &mut self,
        partition: &TopicPartition,
        life: u64,
        what: What,
    ) -> Result<(), (What, MarkStoreError)> {
        let Some(topic) = self.settings.topics.get(&partition.topic).cloned() else {
            let error = format!("there is no changelog for {}", partition.topic);
            return Err((what, MarkStoreError::Write(error)));
        };
        let ticket = self.ask(partition, life, what);
        let record = OutboundRecord {
            topic: &topic,
            partition: Some(partition.partition),
            key: None,
            value: Some(&self.bytes),
            headers: &[],
        };
        match self.ports.publisher.publish(&record, ticket, &self.deliveries) {
            Ok(()) => Ok(()),
            Err(error) => match self.asked.remove(Key::of(ticket)) {
                Some(Asked { what, .. }) => Err((what, not_written(&error))),
                None => Ok(()),
            },
        }
    }

    fn delivered(&mut self, ticket: Ticket, answer: Result<Acknowledged, PublishError>) {
        let Some(Asked { partition, life, what }) = self.asked.remove(Key::of(ticket)) else { return };
        let answer = answer.map_err(|error| not_written(&error));
        match what {
            What::Opened => match answer {
                Ok(at) => self.announced(&partition, life, at),
                Err(error) => {
                    if let Some(ledger) = self.ledger(&partition, life) {
                        ledger.break_off(&error);
                    }
                }
            },
            What::Marks(sent) => self.marks_delivered((&partition, life), answer, sent),
            What::Closed(asker) => self.closed(partition, answer.map(|_| Readiness::default()), asker),
            What::Copy | What::CatchUp | What::End(_) => {}
        }
    }
}

fn not_written(error: &PublishError) -> MarkStoreError {
    MarkStoreError::Write(format!("the changelog: {error}"))
}
