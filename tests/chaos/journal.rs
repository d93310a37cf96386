//! What the run tells as it goes, and the faults that it notes.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::history::{At, Injected};

/// Where a run writes, and what it noted.
#[derive(Debug)]
pub(crate) struct Journal {
    began: Instant,
    /// Kept when the run fails.
    pub(crate) directory: PathBuf,
    faults: Mutex<Vec<Injected>>,
}

impl Journal {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { began: Instant::now(), directory, faults: Mutex::default() }
    }

    pub(crate) fn say(&self, text: &str) {
        println!("{:>7.1} s  {text}", self.began.elapsed().as_secs_f64());
    }

    /// Does something harmful and undoes it, and notes how long it lasted.
    pub(crate) fn fault(&self, name: &str, what: &str, inject: impl FnOnce()) {
        self.say(what);
        let from = At::now();
        inject();
        let of_servers = name.starts_with("broker ") || name.ends_with(" unwritable");
        self.lock().push(Injected { name: name.to_owned(), of_servers, from, until: At::now() });
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn faults(&self) -> Vec<Injected> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Injected>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
