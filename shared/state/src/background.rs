//! What takes too long for a shard's thread: opening partitions, flushing, and dealing with faults.

use std::io;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_pipeline::changelog::{LocalCopy, LocalReady};
use tidegate_pipeline::ports::{MarkStoreError, Ticket};
use tidegate_pipeline::record::TopicPartition;
use tidegate_pipeline::{Inbox, LogLimit};
use tracing::{error, warn};

use crate::error::Fault;
use crate::store::{Store, Treatment};

/// A rebalance brings many partitions at once; reading them is bound by the processor.
const OPENERS: usize = 2;
/// How long a full disk is left alone.
const TREAT_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How old marks get that are in memory only. The budget of the write buffers bounds how many they are, hence how many are read again
/// after a crash; this bounds how far back in the changelog an idle partition's lie, far below its retention.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_secs(300);

/// A partition that is to be opened, and who asked.
pub(crate) struct Opening {
    pub(crate) at: TopicPartition,
    pub(crate) number: u64,
    pub(crate) ticket: Ticket,
    pub(crate) inbox: Arc<Inbox<LocalReady>>,
}

/// What the thread that deals with faults is told.
pub(crate) enum Trouble {
    Fault {
        /// Which database showed it.
        number: u64,
        fault: Fault,
    },
    Stop,
}

/// Starts the threads. They end when the openings' sender is gone and the store is stopped.
pub(crate) fn start(
    store: &Arc<Store>,
    openings: Receiver<Opening>,
    troubles: Receiver<Trouble>,
    flush_every: Duration,
) -> io::Result<Vec<JoinHandle<()>>> {
    let openings = Arc::new(Mutex::new(openings));
    let mut threads = Vec::with_capacity(OPENERS + 1);
    for n in 0..OPENERS {
        let (store, openings) = (Arc::clone(store), Arc::clone(&openings));
        let open = move || open(&openings, |at, number| store.finish_opening(at, number));
        threads.push(thread::Builder::new().name(format!("marks-open-{n}")).spawn(open)?);
    }
    let store = Arc::clone(store);
    threads.push(
        thread::Builder::new()
            .name("marks-heal".to_owned())
            .spawn(move || heal(&store, &troubles, flush_every))?,
    );
    Ok(threads)
}

/// Every opening is answered, also one that panics: without an answer its partition would never be read, and nothing would say so.
/// The partition is in trouble then, and its owner asks again; until an opening ends well, no look-up is answered.
fn open(
    openings: &Mutex<Receiver<Opening>>,
    finish: impl Fn(&TopicPartition, u64) -> Result<LocalCopy, MarkStoreError>,
) {
    loop {
        let next = openings.lock().recv();
        let Ok(Opening { at, number, ticket, inbox }) = next else { return };
        // What a panic leaves half done is dropped with it; the next opening reads everything anew.
        let finished = panic::catch_unwind(AssertUnwindSafe(|| finish(&at, number)));
        inbox.push((ticket, finished.unwrap_or_else(|_| Err(panicked(&at)))));
    }
}

fn panicked(at: &TopicPartition) -> MarkStoreError {
    static TOLD: LogLimit<TopicPartition> = LogLimit::new();
    if TOLD.allows(at) {
        error!(partition = %at, "making marks ready panicked, which is a bug in tidegate; the partition waits, and it is tried again");
    }
    MarkStoreError::Read(
        "making them ready panicked: that is a bug in tidegate; it is tried again".to_owned(),
    )
}

fn heal(store: &Store, troubles: &Receiver<Trouble>, flush_every: Duration) {
    let mut flush_at = Instant::now() + flush_every;
    loop {
        match troubles.recv_timeout(flush_at.saturating_duration_since(Instant::now())) {
            Ok(Trouble::Fault { number, fault }) => {
                if treat(store, troubles, number, fault).is_break() {
                    return;
                }
            }
            Ok(Trouble::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = store.flush() {
                    warn!(%error, "marks could not be flushed: a crash now would have more of them read again");
                }
                flush_at = Instant::now() + flush_every;
            }
        }
    }
}

/// Deals with one fault until it is healed, or the store is to stop.
fn treat(store: &Store, troubles: &Receiver<Trouble>, number: u64, fault: Fault) -> ControlFlow<()> {
    let mut treatment = treated(|| store.treat(number, fault));
    while !matches!(treatment, Treatment::Done) {
        let again_at = Instant::now() + TREAT_AGAIN_AFTER;
        // The same trouble, told once more by others, neither hastens nor delays anything.
        loop {
            match troubles.recv_timeout(again_at.saturating_duration_since(Instant::now())) {
                Ok(Trouble::Stop) | Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
                Ok(Trouble::Fault { .. }) => {}
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        treatment = treated(|| store.treat_again(treatment));
    }
    ControlFlow::Continue(())
}

/// A panic must not end the thread: nobody else opens a database again that failed, and without one nothing settles.
fn treated(treat: impl FnOnce() -> Treatment) -> Treatment {
    panic::catch_unwind(AssertUnwindSafe(treat)).unwrap_or_else(|_| {
        error!("dealing with a fault of the marks panicked, which is a bug in tidegate; opening them is tried again");
        Treatment::Open
    })
}

#[cfg(test)]
mod tests;
