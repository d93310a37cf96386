//! How a store comes at its database: never waiting for one that is being opened, and only at the one that a partition was opened in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_pipeline::ports::MarkStoreError;
use tidegate_pipeline::record::TopicPartition;

use super::{OPENING_AGAIN, Slot, Store};
use crate::database::Database;
use crate::error::Fault;
use crate::partition::OpenPartition;

/// What a fault is called to the caller, and whether it makes the store ill: any that stops writing does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    Read,
    Write,
}

impl Access {
    fn error(self, why: String) -> MarkStoreError {
        match self {
            Self::Read => MarkStoreError::Read(why),
            Self::Write => MarkStoreError::Write(why),
        }
    }
}

impl Store {
    /// Works on an open partition, in the database that it was opened in.
    pub(super) fn with_partition<T>(
        &self,
        at: &TopicPartition,
        partition: &OpenPartition,
        access: Access,
        work: impl FnOnce(&Database) -> Result<T, Fault>,
    ) -> Result<T, MarkStoreError> {
        let done = self.with_database(at, access, |database| work(database.numbered(partition.database)?));
        if matches!(done, Err(MarkStoreError::NotOpen(_))) {
            self.forget(at, partition);
        }
        done
    }

    /// Takes a partition that is not there any more for closed, unless it was opened again meanwhile.
    fn forget(&self, at: &TopicPartition, partition: &OpenPartition) {
        let mut slots = self.slots.write();
        if matches!(slots.get(at), Some(Slot::Open(open)) if std::ptr::eq(Arc::as_ptr(open), partition)) {
            slots.remove(at);
            partition.metrics.clear();
        }
    }

    pub(super) fn with_database<T>(
        &self,
        at: &TopicPartition,
        access: Access,
        work: impl FnOnce(&Database) -> Result<T, Fault>,
    ) -> Result<T, MarkStoreError> {
        let Some(database) = self.database.try_read() else {
            return Err(access.error(OPENING_AGAIN.to_owned()));
        };
        let database = database.as_ref().map_err(|why| access.error(why.clone()))?;
        match (work(database), access) {
            (Ok(done), Access::Write) if self.ailing.load(Ordering::Relaxed) => {
                self.healthy();
                Ok(done)
            }
            (Ok(done), _) => Ok(done),
            (Err(Fault::NotThere), _) => Err(MarkStoreError::NotOpen(at.clone())),
            (Err(fault), access) => {
                let text = fault.to_string();
                if matches!(access, Access::Write) || matches!(fault, Fault::Corrupt(_)) {
                    self.report(database.number, fault);
                }
                Err(access.error(text))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn lose_family(&self, at: &TopicPartition) {
        self.database.read().as_ref().unwrap().lose_family(&crate::partition::family_of(at));
    }
}
