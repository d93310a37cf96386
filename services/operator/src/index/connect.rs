//! The folder of an index: its lock, its database, and whether what is there may be trusted.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tracing::{info, warn};

use super::writer::Writer;
use crate::error::OperatorError;

/// The version of the tables. Another one is dropped.
const VERSION: &str = "7";
const TABLES: &str = include_str!("tables.sql");
/// How long one waits for another that writes.
const BUSY: Duration = Duration::from_secs(10);

/// A folder that holds an index.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    dir: PathBuf,
}

/// Whose records an index holds. Every part that differs makes it another index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Provenance {
    pub(crate) cluster: String,
    /// Name and id of each topic.
    pub(crate) topics: Vec<(String, String)>,
}

impl Provenance {
    fn parts(&self) -> Vec<(String, String)> {
        let topics = self.topics.iter().map(|(name, id)| (format!("topic {name}"), id.clone()));
        [("version".to_owned(), VERSION.to_owned()), ("cluster".to_owned(), self.cluster.clone())]
            .into_iter()
            .chain(topics)
            .collect()
    }
}

/// The right to write, for as long as it lives: no other process has it.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) writer: Writer,
    _lock: File,
}

impl Writing {
    /// Drops everything: all of it is to be indexed from the beginning.
    pub(crate) fn begin_anew(&mut self, provenance: &Provenance) -> rusqlite::Result<()> {
        info!("the index is built from the beginning: of what is left in the topic, groups are others");
        self.writer.roll_back()?;
        rebuild(&mut self.writer.connection, provenance)?;
        self.writer.reload()
    }
}

impl Home {
    /// The index in `dir`, which is made where it is missing.
    pub(crate) fn at(dir: &Path) -> Result<Self, OperatorError> {
        let home = Self { dir: dir.to_owned() };
        // It holds words of payloads, which not everybody on this machine may read.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|reason| home.unusable(reason))?;
        Ok(home)
    }

    fn unusable(&self, reason: std::io::Error) -> OperatorError {
        OperatorError::Folder { path: self.dir.clone(), reason }
    }

    fn database(&self) -> PathBuf {
        self.dir.join("index.db")
    }

    /// A connection that reads; none as long as there is no index yet.
    pub(crate) fn reader(&self) -> Result<Option<Connection>, OperatorError> {
        if !self.database().is_file() {
            return Ok(None);
        }
        // Read-only connections can't make the shared memory of a database that nobody has open, so they may write, and don't.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.database(), flags)?;
        prepare(&connection, 8)?;
        connection.execute_batch("PRAGMA query_only = ON")?;
        Ok(is_made(&connection)?.then_some(connection))
    }

    /// The right to write; none while another process has it. What is not of `provenance` is dropped.
    pub(crate) fn writing(&self, provenance: &Provenance) -> Result<Option<Writing>, OperatorError> {
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.dir.join("index.lock"))
            .map_err(|reason| self.unusable(reason))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(reason)) => return Err(self.unusable(reason)),
        }
        let connection = match self.open(provenance) {
            Ok(connection) => connection,
            Err(OperatorError::Index(error)) => {
                warn!(%error, "the index can't be read, and is built anew");
                self.delete()?;
                self.open(provenance)?
            }
            Err(error) => return Err(error),
        };
        Ok(Some(Writing { writer: Writer::new(connection)?, _lock: lock }))
    }

    fn open(&self, provenance: &Provenance) -> Result<Connection, OperatorError> {
        let mut connection = Connection::open(self.database())?;
        prepare(&connection, 96)?;
        if let Some(reason) = distrust(&connection, provenance)? {
            info!(reason, "the index is built from the beginning");
            rebuild(&mut connection, provenance)?;
        }
        Ok(connection)
    }

    fn delete(&self) -> Result<(), OperatorError> {
        for end in ["", "-wal", "-shm"] {
            match std::fs::remove_file(self.dir.join(format!("index.db{end}"))) {
                Err(reason) if reason.kind() != std::io::ErrorKind::NotFound => {
                    return Err(self.unusable(reason));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Settings of each connection. What is lost with the machine's power is read from Kafka again.
fn prepare(connection: &Connection, cache_mib: i64) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "wal_autocheckpoint", 8000)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "cache_size", -cache_mib * 1024)
}

fn is_made(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'search_keys'", [], |row| {
        row.get::<_, i64>(0).map(|tables| tables > 0)
    })
}

/// Why what is there must not be used; none where it may.
fn distrust(connection: &Connection, provenance: &Provenance) -> rusqlite::Result<Option<String>> {
    if !is_made(connection)? {
        return Ok(Some("there is none".to_owned()));
    }
    for (name, expected) in provenance.parts() {
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let found: Option<String> = connection.query_row(sql, [&name], |row| row.get(0)).optional()?;
        match found {
            Some(found) if found == expected => {}
            Some(found) => return Ok(Some(format!("its {name} was {found}, and is {expected}"))),
            None => return Ok(Some(format!("it does not say its {name}"))),
        }
    }
    Ok(None)
}

/// In one transaction, so that those who read see the old index or an empty one.
fn rebuild(connection: &mut Connection, provenance: &Provenance) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut statement = transaction.prepare(
        "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'
         AND (name NOT LIKE 'search_%' OR name IN ('search_aliases', 'search_keys', 'search_words'))
         ORDER BY name DESC",
    )?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found = found.collect::<rusqlite::Result<Vec<(String, String)>>>()?;
    drop(statement);
    for (what, name) in found {
        transaction.execute_batch(&format!("DROP {what} \"{name}\""))?;
    }
    transaction.execute_batch(TABLES)?;
    for (name, value) in provenance.parts() {
        transaction.execute("INSERT INTO meta (name, value) VALUES (?1, ?2)", params![name, value])?;
    }
    transaction.commit()
}
