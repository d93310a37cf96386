//! What goes wrong, by what can be done about it.

use std::io;
use std::path::{Path, PathBuf};

use rocksdb::ErrorKind;

/// Why a store can't be opened. What is in the directory is left as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another store of this one, has the directory.
    #[error("another process uses {}: stop it, or give each process its own state directory", .0.display())]
    InUse(PathBuf),
    /// The process may not write there.
    #[error("no right to use {} ({reason}): let the process's user write there, or set another state directory", .path.display())]
    Denied {
        /// Where.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// No directory is there, and none can be made: a file is in its place or in its way, or the path can't be.
    #[error("{} can't be a state directory ({reason}): set another one, or move away the file that is in its place", .path.display())]
    NoDirectory {
        /// Where.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// No room.
    #[error("no room on the disk of {} ({reason}): free some, or set another state directory", .path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// Anything else, a failing disk for example.
    #[error("the state in {} can't be opened ({reason}): mend the disk, or move the directory away to have marks read from the changelog again", .path.display())]
    Failed {
        /// Where.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
}

impl OpenError {
    pub(crate) fn of_io(path: &Path, error: &io::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Denied { path, reason }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path, reason },
            io::ErrorKind::NotADirectory => Self::NoDirectory { path, reason },
            _ => Self::Failed { path, reason },
        }
    }

    /// The directory could not be made.
    pub(crate) fn of_making(path: &Path, error: &io::Error) -> Self {
        match Self::of_io(path, error) {
            Self::Failed { path, reason } => Self::NoDirectory { path, reason },
            other => other,
        }
    }

    pub(crate) fn of_fault(path: &Path, fault: Fault) -> Self {
        let path = path.to_owned();
        let missing = fault.to_string();
        match fault {
            Fault::InUse(_) => Self::InUse(path),
            Fault::Denied(reason) => Self::Denied { path, reason },
            Fault::NoSpace(reason) => Self::NoSpace { path, reason },
            Fault::Corrupt(reason) | Fault::Other(reason) => Self::Failed { path, reason },
            Fault::NotThere => Self::Failed { path, reason: missing },
        }
    }
}

/// What RocksDB reports, classified. It gives its errors as text only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// What is stored can't be trusted.
    #[error("the local state is corrupt: {0}")]
    Corrupt(String),
    #[error("the disk is full: {0}")]
    NoSpace(String),
    #[error("no right to write: {0}")]
    Denied(String),
    #[error("another process uses the state: {0}")]
    InUse(String),
    /// The partition is not in this database: it was opened in an earlier one, or its column family is gone.
    #[error("the partition is not there")]
    NotThere,
    #[error("{0}")]
    Other(String),
}

impl From<rocksdb::Error> for Fault {
    fn from(error: rocksdb::Error) -> Self {
        let kind = error.kind();
        let text = error.into_string();
        let says = |part: &str| text.contains(part);
        if says("lock hold by current process")
            || (says("While lock file") && says("temporarily unavailable"))
        {
            Self::InUse(text)
        } else if says("No space left on device")
            || says("Disk quota exceeded")
            || says("Space limit reached")
        {
            Self::NoSpace(text)
        } else if says("Permission denied")
            || says("Read-only file system")
            || says("Operation not permitted")
        {
            Self::Denied(text)
        } else if kind == ErrorKind::Corruption || says("No such file or directory") || says("AlreadyExists")
        {
            // Nobody but a fault removes a file that the database counts on, or puts one in its directory's place.
            Self::Corrupt(text)
        } else {
            Self::Other(text)
        }
    }
}
