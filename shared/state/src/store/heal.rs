//! What a store does about a database that can't be written, or can't be trusted.

use std::sync::atomic::Ordering;

use tidegate_pipeline::ports::MarkStoreError;
use tracing::{error, info};

use super::{OPENING_AGAIN, ROOM, Slot, Store, Treatment};
use crate::background::Trouble;
use crate::database::Database;
use crate::error::{Fault, OpenError};
use crate::provenance::Distrust;

impl Store {
    /// Opens what the directory holds; sets it aside where it can't be trusted.
    pub(super) fn open_database(&self) -> Result<Database, OpenError> {
        let mut home = self.home.lock();
        home.check()?;
        home.make_room_for_restores().map_err(|error| OpenError::of_io(home.dir(), &error))?;
        let path = home.database();
        let open = || {
            let number = self.databases.fetch_add(1, Ordering::Relaxed);
            Database::open(&path, &self.tuning, |family| self.time_of(family), number)
        };
        let failed = |fault| OpenError::of_fault(home.dir(), fault);
        let database = match open() {
            Err(Fault::Corrupt(why)) => {
                home.set_aside(&Distrust::Corrupt(why))?;
                home.make_room_for_restores().map_err(|error| OpenError::of_io(home.dir(), &error))?;
                open().map_err(|fault| OpenError::of_fault(home.dir(), fault))?
            }
            opened => opened.map_err(failed)?,
        };
        Ok(database)
    }

    /// Writes to files what is in memory only.
    pub(crate) fn flush(&self) -> Result<(), MarkStoreError> {
        let Some(database) = self.database.try_read() else {
            return Err(MarkStoreError::Write(OPENING_AGAIN.to_owned()));
        };
        let database = database.as_ref().map_err(|why| MarkStoreError::Write(why.clone()))?;
        database.flush().map_err(|fault| {
            let text = fault.to_string();
            self.report(database.number, fault);
            MarkStoreError::Write(text)
        })
    }

    /// Hands a fault to the thread that deals with it.
    pub(super) fn report(&self, number: u64, fault: Fault) {
        if !matches!(fault, Fault::Corrupt(_)) {
            self.unwell(&fault);
        }
        // The receiver is gone only when the store is being closed.
        _ = self.troubles.send(Trouble::Fault { number, fault });
    }

    fn unwell(&self, why: &impl std::fmt::Display) {
        if !self.ailing.swap(true, Ordering::Relaxed) {
            error!(error = %why, dir = %self.settings.dir.display(), "marks can't be written: nothing settles until they can");
            self.metrics.unwritable.set(1.0);
        }
    }

    pub(super) fn healthy(&self) {
        if self.ailing.swap(false, Ordering::Relaxed) {
            info!(dir = %self.settings.dir.display(), "marks can be written again");
            self.metrics.unwritable.set(0.0);
        }
    }

    /// Lets the threads in the background end.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::Relaxed);
        _ = self.troubles.send(Trouble::Stop);
    }

    pub(crate) fn treat(&self, number: u64, fault: Fault) -> Treatment {
        let concerns_an_older = self.database.read().as_ref().is_ok_and(|database| database.number != number);
        match fault {
            _ if concerns_an_older => Treatment::Done,
            Fault::Corrupt(why) => self.start_anew(why),
            _ => self.open_again(),
        }
    }

    pub(crate) fn treat_again(&self, treatment: Treatment) -> Treatment {
        match treatment {
            Treatment::Done => Treatment::Done,
            Treatment::Open => self.open_again(),
            Treatment::SetAside(why) => self.start_anew(why),
        }
    }

    /// Closes the database. What its write buffers hold may be lost with it, so no partition is open any more, nor is one that is
    /// being opened: each says `NotOpen` until its owner opens it again and learns how far its copy goes now.
    fn close_database(&self, database: &mut Result<Database, String>) {
        *database = Err(OPENING_AGAIN.to_owned());
        let slots = std::mem::take(&mut *self.slots.write());
        for slot in slots.into_values() {
            if let Slot::Open(partition) = slot {
                partition.metrics.clear();
            }
        }
    }

    /// RocksDB refuses all writes after a failed one, until it is opened again.
    fn open_again(&self) -> Treatment {
        if !self.ailing.load(Ordering::Relaxed) && self.database.read().is_ok() {
            return Treatment::Done;
        }
        if let Err(error) = self.home.lock().has_room(ROOM) {
            info!(%error, "the state's disk has no room yet");
            return Treatment::Open;
        }
        let mut database = self.database.write();
        self.close_database(&mut database);
        match self.open_database() {
            Ok(opened) => {
                *database = Ok(opened);
                self.metrics.reopened.increment(1);
                self.healthy();
                Treatment::Done
            }
            Err(error) => {
                self.unwell(&error);
                *database = Err(error.to_string());
                Treatment::Open
            }
        }
    }

    fn start_anew(&self, why: String) -> Treatment {
        {
            let mut database = self.database.write();
            self.close_database(&mut database);
            if let Err(error) = self.home.lock().set_aside(&Distrust::Corrupt(why.clone())) {
                self.unwell(&error);
                *database = Err(error.to_string());
                return Treatment::SetAside(why);
            }
        }
        self.open_again()
    }
}
