//! The inbox as a whole: its index, its logs, and how to read a dead letter's bytes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rusqlite::Connection;
use serde::Serialize;
use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::Handler;
use tidegate_codec::SchemaRegistry;
use tidegate_domain::{CommitPosition, Partition, Topic};
use tidegate_kafka::topics::Cluster;
use tidegate_kafka::{KafkaSettings, LogReader, ReadError};
use tidegate_pipeline::{Names, TopicPartition};
use tidegate_service::wiring;
use tracing::warn;

use crate::error::OperatorError;
use crate::index::{Follower, Home, Progress, Provenance};
use crate::query::{Group, GroupPage, GroupQuery, Handlers, Item, ListQuery, Overview, Page, View};
use crate::reference::ItemRef;

/// How many connections wait for the next one who reads.
const IDLE_READERS: usize = 8;
/// How often it is looked whether there is something new.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a process that holds the index may not bring it further.
const STALLED: Duration = Duration::from_secs(60);

/// The operators' inbox of one pipeline. Clones share everything.
#[derive(Clone, Debug)]
pub struct Inbox {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) names: Names,
    pub(crate) kafka: KafkaSettings,
    pub(crate) logs: LogReader,
    /// None where none is configured.
    pub(crate) registry: Option<SchemaRegistry>,
    home: Home,
    handlers: Handlers,
    readers: Mutex<Vec<Connection>>,
    status: Mutex<Status>,
    /// Made when it is first needed.
    cluster: Mutex<Option<Arc<Cluster>>>,
}

/// What of the index is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Items, groups and what the journal says of them.
    Items,
    /// Also words and keys, by which items are searched for.
    Words,
}

/// The first offset that each log holds, and its end; of the index's logs by name and partition.
type Ends = BTreeMap<(&'static str, i32), (i64, i64)>;

/// How the index is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// How many records it lacks of the dead-letter topic and the journal, as was last seen.
    pub behind: u64,
    /// How many letters can't be found by words and keys yet.
    pub wordless: u64,
    /// Why it is not brought up to date; none: it is.
    pub problem: Option<String>,
}

impl Inbox {
    /// The inbox of a pipeline. Its index is in `dir`; none: in `operator` of the state folder. Nothing is asked of Kafka yet.
    pub fn open(config: Arc<Config>, dir: Option<&Path>) -> Result<Self, OperatorError> {
        let kafka = wiring::kafka(&config);
        let names = wiring::names(&config);
        let usual: PathBuf = config.state.dir.join("operator").join(names.prefix());
        let handlers = config
            .classes
            .iter()
            .map(|(name, class)| (name.as_str().to_owned(), handler_name(&class.handler)))
            .collect();
        let shared = Shared {
            logs: LogReader::side_by_side(&kafka)?,
            registry: config.registry.is_some().then(|| wiring::registry(&config)).transpose()?,
            home: Home::at(dir.unwrap_or(&usual))?,
            handlers: Handlers(handlers),
            readers: Mutex::default(),
            status: Mutex::default(),
            cluster: Mutex::default(),
            config,
            names,
            kafka,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Brings the index up to date with what Kafka holds now, or waits until the one that has it did so. `each` is told how far
    /// it is, and may break it off. Words and keys are not looked at where they are not `needed`: that takes as long again.
    pub fn catch_up(
        &self,
        needed: Needed,
        each: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), OperatorError> {
        let mut stalled = (u64::MAX, Instant::now());
        let mut wanted: Option<Ends> = None;
        loop {
            if let Some(mut follower) = self.follower()? {
                let mut broken = follower.catch_up(each)?;
                let mut done = 0;
                while needed == Needed::Words && broken.is_continue() && follower.add_words()? {
                    done += 1;
                    broken = each(Progress { done, left: self.status()?.wordless });
                }
                return Ok(());
            }
            // What comes from now on is not waited for: it may never end to come.
            let ends = self.ends(needed)?;
            let wanted = wanted.get_or_insert_with(|| ends.clone());
            let behind = self.behind(wanted, &ends)?;
            if behind == 0 || each(Progress { done: 0, left: behind }).is_break() {
                return Ok(());
            }
            if behind < stalled.0 {
                stalled = (behind, Instant::now());
            } else if stalled.1.elapsed() > STALLED {
                return Err(OperatorError::Stalled);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Follows Kafka on a thread of its own, until the value is dropped. While another process has the index, that one follows, and
    /// this one takes over when it ends.
    pub fn follow(&self) -> Result<Following, OperatorError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (inbox, stopped) = (self.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("inbox-follower".to_owned())
            .spawn(move || inbox.run_follower(&stopped))
            .map_err(|error| OperatorError::Failed(format!("the follower's thread can't start: {error}")))?;
        Ok(Following { stop, thread: Some(thread) })
    }

    fn run_follower(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let followed = self.follow_until(stop);
            let problem = followed.err().map(|error| error.to_string());
            let mut status = self.shared.status.lock();
            if problem.is_some() && problem != status.problem {
                warn!(error = problem, "the inbox does not follow Kafka now; it goes on trying");
            }
            status.problem = problem;
            drop(status);
            std::thread::sleep(PAUSE);
        }
    }

    fn follow_until(&self, stop: &AtomicBool) -> Result<(), OperatorError> {
        let Some(mut follower) = self.follower()? else { return Ok(()) };
        let mut checked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let mut each = |progress: Progress| {
                self.shared.status.lock().behind = progress.left;
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            // Another topic of the same name may take the place of one: the index is begun again then.
            match follower.catch_up(&mut each) {
                Err(OperatorError::Read(ReadError::MadeAnew(_))) => return Ok(()),
                other => other.map(drop)?,
            }
            self.shared.status.lock().problem = None;
            if !follower.add_words()? {
                std::thread::sleep(PAUSE);
            }
            if checked.elapsed() > Duration::from_secs(10) {
                checked = Instant::now();
                if self.provenance()?.0 != follower.provenance {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The one that brings the index up to date; none while another process has it.
    pub(crate) fn follower(&self) -> Result<Option<Follower>, OperatorError> {
        let (provenance, partitions) = self.provenance()?;
        let Some(writing) = self.shared.home.writing(&provenance)? else { return Ok(None) };
        let dlq = (self.shared.names.dlq(), partitions);
        let journal = self.shared.names.dlq_journal();
        Ok(Some(Follower::new(writing, self.shared.logs.clone(), dlq, journal, provenance)))
    }

    /// Reads the last record of each partition of the dead-letter topic, and lets go of it: who reads one later has connections then,
    /// which takes a tenth of a second.
    pub fn connect_readers(&self) -> Result<(), OperatorError> {
        let (_, partitions) = self.provenance()?;
        for partition in (0..i32::try_from(partitions).unwrap_or(i32::MAX)).map(Partition) {
            let log = TopicPartition { topic: self.shared.names.dlq(), partition };
            let (first, end) = self.shared.logs.bounds(&log)?;
            let last = CommitPosition(first.0.max(end.0 - 1));
            self.shared.logs.read(&log, last, end, &mut |_| ControlFlow::Continue(()))?;
        }
        Ok(())
    }

    /// The connection that asks about topics.
    pub(crate) fn cluster(&self) -> Result<Arc<Cluster>, OperatorError> {
        let mut made = self.shared.cluster.lock();
        if let Some(cluster) = &*made {
            return Ok(cluster.clone());
        }
        let cluster = Arc::new(Cluster::connect(&self.shared.kafka)?);
        *made = Some(cluster.clone());
        Ok(cluster)
    }

    /// Whose records the index must hold, and how many partitions the dead-letter topic has. A journal that can't be seen is an error:
    /// without it, what was discarded or resolved would look open, and an order could create one that forgets.
    fn provenance(&self) -> Result<(Provenance, u32), OperatorError> {
        let cluster = self.cluster()?;
        let (dlq, journal) = (self.shared.names.dlq(), self.shared.names.dlq_journal());
        let dead_letters = crate::fitness::dead_letters(&cluster.topics()?, &dlq, &journal)?;
        let topics = cluster.topic_ids(&[dlq.as_str(), journal.as_str()])?.into_iter().collect();
        Ok((Provenance { cluster: cluster.cluster_id()?, topics }, dead_letters))
    }

    /// What each log holds now that the index follows.
    fn ends(&self, needed: Needed) -> Result<Ends, OperatorError> {
        let (_, partitions) = self.provenance()?;
        let mut ends = Ends::new();
        let mut add = |names: &[&'static str], topic: Topic, partition: i32| -> Result<(), OperatorError> {
            let log = TopicPartition { topic, partition: Partition(partition) };
            let (first, end) = self.shared.logs.bounds(&log)?;
            ends.extend(names.iter().map(|name| ((*name, partition), (first.0, end.0))));
            Ok(())
        };
        let names = if needed == Needed::Words { &["dlq", "search"][..] } else { &["dlq"] };
        for partition in 0..i32::try_from(partitions).unwrap_or(i32::MAX) {
            add(names, self.shared.names.dlq(), partition)?;
        }
        add(&["journal"], self.shared.names.dlq_journal(), 0)?;
        Ok(ends)
    }

    /// How many records the index lacks of what the logs held when `wanted` was taken. `ends` is what they hold now: a topic that was made
    /// anew meanwhile ends before.
    fn behind(&self, wanted: &Ends, ends: &Ends) -> Result<u64, OperatorError> {
        let Some(connection) = self.shared.home.reader()? else { return Ok(1) };
        let positions = positions(&connection)?;
        let lacks = |(log, (first, end)): (&(&str, i32), &(i64, i64))| {
            let end = wanted.get(log).map_or(*end, |(_, wanted)| *end.min(wanted));
            let next = positions.get(&(log.0.to_owned(), log.1)).copied().unwrap_or(0).max(*first);
            u64::try_from(end - next).unwrap_or(0)
        };
        Ok(ends.iter().map(lacks).sum())
    }

    /// How the index is doing.
    pub fn status(&self) -> Result<Status, OperatorError> {
        let mut status = self.shared.status.lock().clone();
        let sql = "SELECT coalesce(sum(dlq.next - coalesce(search.next, 0)), 0) FROM positions AS dlq
                   LEFT JOIN positions AS search ON search.log = 'search' AND search.partition = dlq.partition
                   WHERE dlq.log = 'dlq'";
        let wordless: i64 =
            self.view(|view| Ok(view.connection.query_row(sql, [], |row| row.get(0))?))?.unwrap_or(0);
        status.wordless = u64::try_from(wordless).unwrap_or(0);
        Ok(status)
    }

    /// A page of a list of items.
    pub fn list(&self, query: &ListQuery) -> Result<Page, OperatorError> {
        let page = self.view(|view| view.list(query))?;
        Ok(page.unwrap_or(Page { items: Vec::new(), next: None, total: Some(0) }))
    }

    /// Groups of items.
    pub fn groups(&self, query: &GroupQuery) -> Result<GroupPage, OperatorError> {
        let page = self.view(|view| view.groups(query))?;
        Ok(page.unwrap_or(GroupPage { groups: Vec::new(), total: 0, items: 0, partly: false }))
    }

    /// A group by its fingerprint; none where there is no letter of it.
    pub fn group(&self, fingerprint: &str) -> Result<Option<Group>, OperatorError> {
        Ok(self.view(|view| view.group(fingerprint, now()))?.flatten())
    }

    /// An item with all of its letters and what the journal says; none where there is no letter of it.
    pub fn item(&self, item: ItemRef) -> Result<Option<Item>, OperatorError> {
        Ok(self.view(|view| view.item(item))?.flatten())
    }

    /// The inbox at a glance.
    pub fn overview(&self) -> Result<Overview, OperatorError> {
        Ok(self.view(|view| view.overview(now()))?.unwrap_or_default())
    }

    /// Reads the index; none as long as there is none. What is read in one call is of one moment.
    pub(crate) fn view<T>(
        &self,
        read: impl FnOnce(&View<'_>) -> Result<T, OperatorError>,
    ) -> Result<Option<T>, OperatorError> {
        let idle = self.shared.readers.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => match self.shared.home.reader()? {
                Some(connection) => connection,
                None => return Ok(None),
            },
        };
        let answer = read_at_once(&connection, &self.shared.handlers, read);
        let mut readers = self.shared.readers.lock();
        match &answer {
            // The file may be another one by now.
            Err(OperatorError::Index(_)) => readers.clear(),
            _ if readers.len() < IDLE_READERS => readers.push(connection),
            _ => {}
        }
        answer.map(Some)
    }
}

fn read_at_once<T>(
    connection: &Connection,
    handlers: &Handlers,
    read: impl FnOnce(&View<'_>) -> Result<T, OperatorError>,
) -> Result<T, OperatorError> {
    connection.execute_batch("BEGIN")?;
    let answer = read(&View { connection, handlers });
    connection.execute_batch("COMMIT")?;
    answer
}

/// A handler, as lists name it.
fn handler_name(handler: &Handler) -> String {
    match handler {
        // What follows a question mark may be confidential.
        Handler::Http(http) => format!("http {}", http.url.as_str().split('?').next().unwrap_or_default()),
        Handler::Log => "log".to_owned(),
        Handler::Rust => "rust".to_owned(),
    }
}

fn positions(connection: &Connection) -> rusqlite::Result<BTreeMap<(String, i32), i64>> {
    let mut statement = connection.prepare("SELECT log, partition, next FROM positions")?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    rows.collect()
}

/// Now, in milliseconds since the epoch.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Follows Kafka until it is dropped.
#[derive(Debug)]
pub struct Following {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            warn!("the inbox's follower ended by a panic");
        }
    }
}
