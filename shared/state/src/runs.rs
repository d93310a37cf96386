//! Runs of marks, and the sorted files that are made of them on a thread of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use rocksdb::SstFileWriter;
use tidegate_domain::IdempotencyKey;
use tidegate_pipeline::ports::MarkStoreError;
use tracing::debug;

use crate::entry::Row;
use crate::error::Fault;
use crate::store::Refill;

const BUCKETS: usize = 256;
/// Marks of a run. At 72 bytes each, twice, because one run is gathered while another is written; and a quarter for what is spare.
pub(crate) const RUN: usize = 512 << 10;

/// Marks that are gathered, by the first byte of their keys: so sorting works on little at a time, in the processor's cache.
pub(crate) struct Run {
    buckets: Vec<Vec<Row>>,
    pub(crate) len: usize,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![Vec::new(); BUCKETS], len: 0 }
    }

    pub(crate) fn push(&mut self, row: Row) {
        let IdempotencyKey([first, ..]) = row.key;
        self.buckets[usize::from(first)].push(row);
        self.len += 1;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len >= RUN
    }

    /// All of them, in no particular order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.buckets.iter().flatten()
    }

    fn clear(&mut self) {
        self.buckets.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }
}

/// The thread that writes runs, as seen from the one that gathers them.
pub(crate) struct RunWriter {
    /// `None` when no more come.
    runs: Option<SyncSender<Run>>,
    /// Runs that are written, for their memory; closed when the thread is gone.
    written: Receiver<Run>,
    /// `None` once its outcome was taken.
    thread: Option<JoinHandle<Result<u64, MarkStoreError>>>,
}

impl RunWriter {
    pub(crate) fn start(refill: &Arc<Refill>) -> Result<Self, MarkStoreError> {
        let (runs, to_write) = mpsc::sync_channel::<Run>(0);
        let (done, written) = mpsc::sync_channel(2);
        // The second one of the two that are ever in memory.
        _ = done.send(Run::new());
        let refill = Arc::clone(refill);
        let work = move || {
            let mut count = 0;
            for (number, mut run) in to_write.into_iter().enumerate() {
                count += write(&refill, &run, number as u64)?;
                run.clear();
                if done.send(run).is_err() {
                    break;
                }
            }
            Ok(count)
        };
        let thread = thread::Builder::new().name("marks-restore".to_owned()).spawn(work);
        let thread = thread.map_err(|error| MarkStoreError::Write(error.to_string()))?;
        Ok(Self { runs: Some(runs), written, thread: Some(thread) })
    }

    /// Hands a run over, and gives an empty one. Waits until the run before it is written.
    pub(crate) fn write(&mut self, run: Run) -> Result<Run, MarkStoreError> {
        let sent = self.runs.as_ref().is_some_and(|runs| runs.send(run).is_ok());
        if !sent {
            return Err(self.failure());
        }
        self.written.recv().map_err(|_| self.failure())
    }

    fn failure(&mut self) -> MarkStoreError {
        match self.end() {
            Err(error) => error,
            Ok(_) => MarkStoreError::Write("writing the restored marks was broken off".to_owned()),
        }
    }

    /// Waits until all is written, and gives the number of marks.
    pub(crate) fn finish(mut self) -> Result<u64, MarkStoreError> {
        self.end()
    }

    fn end(&mut self) -> Result<u64, MarkStoreError> {
        self.runs = None;
        let Some(thread) = self.thread.take() else { return Ok(0) };
        let panicked = || MarkStoreError::Write("a thread of a restore panicked".to_owned());
        thread.join().map_err(|_| panicked())?
    }
}

impl Drop for RunWriter {
    /// The thread uses the store: it must not outlive who restores.
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            debug!(%error, "a restore that was broken off");
        }
    }
}

/// Writes one run, and lets the database take it over. Gives the number of its marks.
fn write(refill: &Refill, run: &Run, number: u64) -> Result<u64, MarkStoreError> {
    let file = Unfinished(refill.file(number));
    let failed = |fault: Fault| MarkStoreError::Write(format!("{}: {fault}", file.0.display()));
    let count = write_file(refill, run, &file.0).map_err(failed)?;
    if count > 0 {
        refill.ingest(&file.0)?;
    }
    Ok(count)
}

fn write_file(refill: &Refill, run: &Run, path: &Path) -> Result<u64, Fault> {
    let options = refill.options();
    let mut file = SstFileWriter::create(&options);
    file.open(path)?;
    let (mut order, mut value) = (Vec::new(), Vec::with_capacity(64));
    let mut count = 0;
    for bucket in &run.buckets {
        sort(bucket, &mut order);
        let mut rows = order.iter().map(|&(_, place)| bucket[place]).peekable();
        while let Some(mut row) = rows.next() {
            while let Some(same) = rows.next_if(|next| next.key == row.key) {
                row.stored = row.stored.join(same.stored);
            }
            if refill.is_over(row.stored.at) {
                continue;
            }
            value.clear();
            row.stored.encode(&mut value);
            file.merge(row.key.0, &value)?;
            count += 1;
        }
    }
    // RocksDB finishes no empty file.
    if count > 0 {
        file.finish()?;
    }
    Ok(count)
}

/// Sorts the places of rows by their keys: an index moves less memory than the rows would.
fn sort(rows: &[Row], order: &mut Vec<(u64, usize)>) {
    order.clear();
    order.extend(rows.iter().enumerate().map(|(place, row)| (prefix(&row.key), place)));
    order.sort_unstable_by(|left, right| {
        left.0.cmp(&right.0).then_with(|| rows[left.1].key.cmp(&rows[right.1].key))
    });
}

fn prefix(IdempotencyKey(key): &IdempotencyKey) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// A file that is removed again, unless the database took it.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}
