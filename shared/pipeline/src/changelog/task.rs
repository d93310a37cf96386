//! All partitions of one shard: commands come in, the log is written and read, the copy follows, answers go out.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tidegate_domain::{CommitPosition, IdempotencyKey, Mark, Topic};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::format;
use super::ledger::{Acked, Asker, Ledger, Next, Stage};
use super::opener::{Opener, OpenerId};
use super::ports::{CatchUp, CaughtUp, ChangelogReader, LocalCopy, LocalReady, LogEnd, MarkTable, Stretch};
use crate::events;
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
    Marks(CommitPosition, Vec<MarkEntry>, Asker),
    Closed(Option<Asker>),
    CatchUp(CommitPosition),
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
                () = wake.woken() => {}
                () = check => {
                    next_check = Instant::now() + self.settings.idle_check;
                    self.check_ends();
                    self.close_again();
                }
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

    // ---- taking over ----

    fn open(&mut self, partition: TopicPartition, asker: Asker) {
        let Some(topic) = self.settings.topics.get(&partition.topic) else {
            let error = format!("there is no changelog for {}", partition.topic);
            return asker.answer(Err(MarkStoreError::Read(error)));
        };
        let log = TopicPartition { topic: topic.clone(), partition: partition.partition };
        // From here on, that it was let go of before is no news.
        self.unclosed.remove(&partition);
        self.lives += 1;
        let life = self.lives;
        let ledger = match self.partitions.remove(&partition) {
            Some(before) => before.reopened(life, asker),
            None => Ledger::new(life, log, asker),
        };
        self.partitions.insert(partition.clone(), ledger);
        let ticket = self.ask(&partition, life, What::Copy);
        self.ports.table.open(&partition, ticket, &self.copies);
    }

    fn copy_opened(&mut self, ticket: Ticket, answer: Result<LocalCopy, MarkStoreError>) {
        let Some(Asked { partition, life, .. }) = self.asked.remove(Key::of(ticket)) else { return };
        let Some(ledger) = self.ledger(&partition, life) else { return };
        let copy = match answer {
            Ok(copy) => copy,
            Err(error) => return ledger.break_off(&error),
        };
        ledger.copy = copy;
        match ledger.known.filter(|_| ledger.announced) {
            // The log was read to here before, by this process. An opening that failed before that begins anew: others may have
            // appended since the copy was written.
            Some(known) => {
                ledger.stage = Stage::RestoringAgain;
                self.catch_up(&partition, known);
            }
            None => self.announce(&partition, life),
        }
    }

    fn announce(&mut self, partition: &TopicPartition, life: u64) {
        let Some(ledger) = self.ledger(partition, life) else { return };
        ledger.stage = Stage::Announcing;
        self.bytes.clear();
        format::write_opened(self.settings.opener, self.settings.window, &mut self.bytes);
        let published = self.publish(partition, life, What::Opened);
        let Some(ledger) = self.ledger(partition, life) else { return };
        match published {
            Ok(()) => ledger.may_be_announced = true,
            Err((_, error)) => ledger.break_off(&error),
        }
    }

    fn announced(&mut self, partition: &TopicPartition, life: u64, at: Acknowledged) {
        let Some(ledger) = self.ledger(partition, life) else { return };
        ledger.announced = true;
        ledger.stage = Stage::Restoring(at);
        let until = CommitPosition(at.offset.0);
        if ledger.copy.position == Some(until) {
            let opener = ledger.copy.opener;
            self.restored(partition, until, opener);
        } else {
            self.catch_up(partition, until);
        }
    }

    /// Everything below `Opened` is in the copy.
    fn restored(&mut self, partition: &TopicPartition, end: CommitPosition, opener: Option<Opener>) {
        let settings = &self.settings;
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        ledger.copy = LocalCopy { position: Some(end), opener };
        if let Stage::Restoring(at) = ledger.stage {
            let opened = Opener::opened(opener, settings.opener, settings.window);
            let position = CommitPosition(at.offset.0 + 1);
            let stretch =
                Stretch { entries: &[], append_time: at.append_time, position, opener: Some(opened) };
            if let Err(error) = self.ports.table.apply(partition, &stretch) {
                return ledger.break_off(&error);
            }
            ledger.copy = LocalCopy { position: Some(position), opener: Some(opened) };
        }
        ledger.stage = Stage::Open;
        let suspects = ledger.copy.opener.map_or(0, |opener| opener.suspects);
        if let Some(asker) = ledger.opening.take() {
            asker.answer(Ok(Readiness { suspects }));
        }
        self.go_on(partition);
    }

    fn catch_up(&mut self, partition: &TopicPartition, until: CommitPosition) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        ledger.reading = true;
        let (log, copy, life) = (ledger.log.clone(), ledger.copy, ledger.life);
        let request = CatchUp { partition: partition.clone(), log, copy, until };
        let ticket = self.ask(partition, life, What::CatchUp(until));
        self.ports.reader.catch_up(request, ticket, &self.caught_up);
    }

    fn caught_up(&mut self, ticket: Ticket, answer: Result<Option<Opener>, MarkStoreError>) {
        let Some(Asked { partition, life, what: What::CatchUp(until) }) = self.asked.remove(Key::of(ticket))
        else {
            return;
        };
        let Some(ledger) = self.ledger(&partition, life) else { return };
        ledger.reading = false;
        match answer {
            Ok(opener) if ledger.stage == Stage::Open => {
                ledger.copy = LocalCopy { position: Some(until), opener };
                self.go_on(&partition);
            }
            Ok(opener) => self.restored(&partition, until, opener),
            Err(error) if ledger.stage != Stage::Open || matches!(error, MarkStoreError::NotOpen(_)) => {
                ledger.break_off(&error);
            }
            // What waits is appended again, and what could not be read is tried again then.
            Err(error) => {
                warn!(%partition, %error, "the changelog can't be read now");
                ledger.answer_all(&error);
            }
        }
    }

    // ---- appending ----

    fn append(&mut self, partition: TopicPartition, entries: Vec<MarkEntry>, asker: Asker) {
        let (life, floor) = match self.partitions.get_mut(&partition) {
            Some(ledger) if ledger.stage == Stage::Open => {
                ledger.on_their_way += 1;
                (ledger.life, ledger.applied())
            }
            Some(_) => return asker.answer(Err(MarkStoreError::NotOpen(partition))),
            // Not ours any more: the owner shall know it all the same.
            None => (0, CommitPosition(0)),
        };
        self.bytes.clear();
        format::write_marks(self.settings.opener, &entries, &mut self.bytes);
        if let Err((what, error)) = self.publish(&partition, life, What::Marks(floor, entries, asker)) {
            if let Some(ledger) = self.ledger(&partition, life) {
                ledger.on_their_way -= 1;
            }
            if let What::Marks(_, _, asker) = what {
                asker.answer(Err(error));
            }
        }
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
            What::Marks(floor, entries, asker) => {
                self.marks_delivered((&partition, life), answer.map(|at| (at, floor, entries)), asker)
            }
            What::Closed(asker) => self.closed(partition, answer.map(|_| Readiness::default()), asker),
            What::Copy | What::CatchUp(_) | What::End(_) => {}
        }
    }

    fn marks_delivered(
        &mut self,
        (partition, life): (&TopicPartition, u64),
        answer: Result<(Acknowledged, CommitPosition, Vec<MarkEntry>), MarkStoreError>,
        asker: Asker,
    ) {
        // Also in one that was opened again since: answered is what is in its copy.
        let ours = self.partitions.get_mut(partition).filter(|ledger| ledger.appended_in(life));
        let Some(ledger) = ours else {
            debug!(%partition, known = answer.is_ok(), "marks of an owner that is deposed");
            return asker.answer(answer.map(|_| Readiness::default()));
        };
        ledger.on_their_way -= 1;
        match answer {
            Ok((at, floor, entries)) => {
                ledger.acked.push_back(Acked { at, floor, entries, asker });
                self.go_on(partition);
            }
            Err(error) => asker.answer(Err(error)),
        }
    }

    /// Applies what is acknowledged, in the log's order.
    fn go_on(&mut self, partition: &TopicPartition) {
        while let Some(ledger) = self.partitions.get_mut(partition)
            && let Some(next) = ledger.next()
        {
            if let Next::ReadUpTo(until) = next {
                events::foreign_marks(partition);
                info!(%partition, "another process appended to the changelog: reading it before anything else is settled");
                return self.catch_up(partition, until);
            }
            let Some(acked) = ledger.acked.pop_front() else { return };
            match next {
                Next::Apply => self.apply(partition, acked),
                Next::Applied => acked.asker.answer(Ok(Readiness::default())),
                Next::ReadUpTo(_) | Next::WentBack => {
                    let error = MarkStoreError::NotOpen(partition.clone());
                    acked.asker.answer(Err(error));
                    self.went_back(partition);
                }
            }
        }
    }

    fn apply(&mut self, partition: &TopicPartition, acked: Acked) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        let position = CommitPosition(acked.at.offset.0 + 1);
        let opener = ledger.copy.opener;
        let stretch =
            Stretch { entries: &acked.entries, append_time: acked.at.append_time, position, opener };
        match self.ports.table.apply(partition, &stretch) {
            Ok(()) => {
                ledger.copy.position = Some(position);
                acked.asker.answer(Ok(Readiness::default()));
            }
            Err(error) => {
                acked.asker.answer(Err(error.clone()));
                match error {
                    MarkStoreError::NotOpen(_) => ledger.break_off(&error),
                    // It is appended again; what lies between is read then.
                    _ => ledger.answer_all(&error),
                }
            }
        }
    }

    /// The log is another one than the one that was read: it was made anew, or lost its end.
    fn went_back(&mut self, partition: &TopicPartition) {
        let Some(ledger) = self.partitions.get_mut(partition) else { return };
        warn!(%partition, log = %ledger.log, "the changelog went back: the partition's marks are restored from what it holds now");
        ledger.announced = false;
        ledger.copy = LocalCopy::default();
        ledger.break_off(&MarkStoreError::NotOpen(partition.clone()));
        // So that look-ups say so, too.
        self.ports.table.close(partition);
    }

    // ---- idle logs, and letting go ----

    fn check_ends(&mut self) {
        let idle: Vec<_> = self
            .partitions
            .iter_mut()
            .filter(|(_, ledger)| ledger.is_idle())
            .map(|(partition, ledger)| {
                ledger.checking = true;
                (partition.clone(), ledger.life, ledger.log.clone(), ledger.applied())
            })
            .collect();
        for (partition, life, log, applied) in idle {
            let ticket = self.ask(&partition, life, What::End(applied));
            self.ports.reader.end(&log, ticket, &self.ends);
        }
    }

    fn end_known(&mut self, ticket: Ticket, answer: Result<CommitPosition, MarkStoreError>) {
        let Some(Asked { partition, life, what: What::End(applied) }) = self.asked.remove(Key::of(ticket))
        else {
            return;
        };
        let Some(ledger) = self.ledger(&partition, life) else { return };
        ledger.checking = false;
        match answer {
            // Appends that are on their way show by themselves what lies before them.
            Ok(_) if !ledger.is_idle() => {}
            Ok(end) if end > ledger.applied() => {
                events::foreign_marks(&partition);
                self.catch_up(&partition, end);
            }
            // What was appended since it was asked for may lie beyond it.
            Ok(end) if end < applied => self.went_back(&partition),
            Ok(_) => {}
            Err(error) => debug!(%partition, %error, "the end of the changelog is not known now"),
        }
    }

    fn close(&mut self, partition: &TopicPartition, asker: Asker) {
        let ledger = self.partitions.remove(partition);
        self.ports.table.close(partition);
        let Some(mut ledger) = ledger else { return asker.answer(Ok(Readiness::default())) };
        ledger.break_off(&MarkStoreError::NotOpen(partition.clone()));
        // Also where it is not known to be there: whoever finds it would take this process for dead.
        if !ledger.may_be_announced {
            return asker.answer(Ok(Readiness::default()));
        }
        self.say_closed(partition, Some(asker));
    }

    fn say_closed(&mut self, partition: &TopicPartition, asker: Option<Asker>) {
        self.bytes.clear();
        format::write_closed(self.settings.opener, &mut self.bytes);
        if let Err((What::Closed(asker), error)) = self.publish(partition, 0, What::Closed(asker)) {
            self.closed(partition.clone(), Err(error), asker);
        }
    }

    /// Whoever asked does not wait for brokers that are away. But once they are back, this process must not pass for dead.
    fn closed(
        &mut self,
        partition: TopicPartition,
        answer: Result<Readiness, MarkStoreError>,
        asker: Option<Asker>,
    ) {
        if answer.is_err() && !self.partitions.contains_key(&partition) {
            self.unclosed.insert(partition);
        }
        if let Some(asker) = asker {
            asker.answer(answer);
        }
    }

    fn close_again(&mut self) {
        for partition in std::mem::take(&mut self.unclosed) {
            self.say_closed(&partition, None);
        }
    }
}

fn not_written(error: &PublishError) -> MarkStoreError {
    MarkStoreError::Write(format!("the changelog: {error}"))
}
