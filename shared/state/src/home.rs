//! The directory of a store: one process has it, its provenance is checked, and what can't be trusted is set aside.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tracing::warn;

use crate::error::OpenError;
use crate::events;
use crate::provenance::{self, Distrust, Found, Provenance};
use crate::settings::Parents;

/// A directory that this process has for itself.
pub(crate) struct Home {
    dir: PathBuf,
    parents: Parents,
    provenance: Provenance,
    /// Held as long as the directory is used. It moves with a directory that is set aside.
    lock: File,
}

impl Home {
    /// Takes `dir` for this process, and sets aside what does not belong to `provenance`.
    pub(crate) fn take(dir: &Path, parents: Parents, provenance: &Provenance) -> Result<Self, OpenError> {
        let lock = lock(dir, parents)?;
        let mut home = Self { dir: dir.to_owned(), parents, provenance: provenance.clone(), lock };
        home.check()?;
        Ok(home)
    }

    /// Sets aside what is not to be trusted, and leaves the provenance on record: asked before a database is opened.
    pub(crate) fn check(&mut self) -> Result<(), OpenError> {
        match self.judge()? {
            Ok(()) => Ok(()),
            Err(distrust) => self.set_aside(&distrust),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the database is.
    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join("db")
    }

    /// Where files are written that the database is to take over. Empty after this.
    pub(crate) fn make_room_for_restores(&self) -> io::Result<()> {
        let dir = restores(&self.dir);
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir(dir)
    }

    fn judge(&self) -> Result<Result<(), Distrust>, OpenError> {
        let failed = |error: io::Error| OpenError::of_io(&self.dir, &error);
        let known = match provenance::read(&self.dir).map_err(failed)? {
            Found::Distrusted(distrust) => return Ok(Err(distrust)),
            Found::Nothing if self.has_database().map_err(failed)? => {
                return Ok(Err(Distrust::UnknownOrigin));
            }
            Found::Nothing => None,
            Found::Readable(record) => match record.check(&self.provenance) {
                Ok(()) if record.covers(&self.provenance) => return Ok(Ok(())),
                Ok(()) => Some(record),
                Err(distrust) => return Ok(Err(distrust)),
            },
        };
        provenance::write(&self.dir, known, &self.provenance).map_err(failed)?;
        Ok(Ok(()))
    }

    fn has_database(&self) -> io::Result<bool> {
        match fs::read_dir(self.database()) {
            Ok(mut entries) => Ok(entries.next().is_some()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves the directory aside, and makes an empty one. The database must be closed.
    pub(crate) fn set_aside(&mut self, distrust: &Distrust) -> Result<(), OpenError> {
        let aside = free_name(&self.dir, distrust);
        match fs::rename(&self.dir, &aside) {
            Ok(()) => warn!(
                reason = %distrust,
                dir = %self.dir.display(),
                set_aside = %aside.display(),
                "local state is not trusted and was set aside: marks are read from the changelog again; delete it when nobody needs it"
            ),
            // Somebody deleted it under the process's feet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => warn!(
                reason = %distrust,
                dir = %self.dir.display(),
                "local state was deleted while it was used, and is made anew: marks are read from the changelog again"
            ),
            Err(error) => return Err(OpenError::of_io(&self.dir, &error)),
        }
        events::set_aside(distrust.slug());
        self.lock = lock(&self.dir, self.parents)?;
        provenance::write(&self.dir, None, &self.provenance)
            .map_err(|error| OpenError::of_io(&self.dir, &error))
    }

    /// Whether the disk takes `bytes` more: asked before a database is closed to be opened again.
    pub(crate) fn has_room(&self, bytes: usize) -> io::Result<()> {
        let probe = self.dir.join("room.probe");
        let outcome = File::create(&probe).and_then(|mut file| {
            file.write_all(&vec![0; bytes])?;
            file.sync_data()
        });
        let removed = fs::remove_file(&probe);
        outcome.and(removed)
    }
}

/// Where restores write their files: on the database's own disk, so that they are moved and not copied.
pub(crate) fn restores(dir: &Path) -> PathBuf {
    dir.join("restores")
}

fn lock(dir: &Path, parents: Parents) -> Result<File, OpenError> {
    let failed = |error: io::Error| OpenError::of_io(dir, &error);
    make(dir, parents).map_err(|error| OpenError::of_making(dir, &error))?;
    let path = dir.join("owner.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(dir.to_owned())),
        // Some file systems have no such locks: RocksDB's own, of another kind, must do there.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn make(dir: &Path, parents: Parents) -> io::Result<()> {
    match parents {
        Parents::Made => fs::create_dir_all(dir),
        // The system makes it or refuses, in one step: whoever removes the parents can't be overtaken.
        Parents::Required => match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            made => made,
        },
    }
}

fn free_name(dir: &Path, distrust: &Distrust) -> PathBuf {
    // The clock names a directory, and decides nothing.
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(['-', ':'], "");
    let named = |count: Option<u32>| {
        let mut name: OsString = dir.as_os_str().to_owned();
        name.push(format!(".set-aside-{now}-{}", distrust.slug()));
        if let Some(count) = count {
            name.push(format!("-{count}"));
        }
        PathBuf::from(name)
    };
    std::iter::once(None)
        .chain((2..).map(Some))
        .map(named)
        .find(|name| !name.exists())
        .unwrap_or_else(|| named(None))
}
