//! RocksDB with a column family per partition. The only file that reads and writes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rocksdb::{
    BottommostLevelCompaction, BoundColumnFamily, ColumnFamilyDescriptor, CompactOptions, DBPinnableSlice,
    DBWithThreadMode, IngestExternalFileOptions, MultiThreaded, ReadOptions, WriteBatch, WriteOptions,
};
use tidegate_domain::{CommitPosition, IdempotencyKey, UnixMillis};
use tidegate_pipeline::changelog::{LastRecord, LocalCopy, Opener};
use tidegate_pipeline::ports::MarkEntry;
use tracing::warn;

use crate::entry::{self, LAST_KEY, NEWEST_KEY, OPENER_KEY, POSITION_KEY, Row, Stored};
use crate::error::Fault;
use crate::expiry::BrokerTime;
use crate::options::{self, Tuning};

type Rocks = DBWithThreadMode<MultiThreaded>;

const DEFAULT_FAMILY: &str = rocksdb::DEFAULT_COLUMN_FAMILY_NAME;

/// An open database. Each one that is opened has a number, so that a report about an older one changes nothing.
pub(crate) struct Database {
    rocks: Rocks,
    writes: WriteOptions,
    /// The names of all column families. Held while one is made or dropped.
    families: Mutex<BTreeSet<String>>,
    pub(crate) number: u64,
}

/// What is applied to a partition as a whole.
pub(crate) struct Batch<'a> {
    pub(crate) entries: &'a [MarkEntry],
    pub(crate) progress: Progress,
}

/// How far a partition is with what is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The partition's time: marks are remembered from now on.
    pub(crate) now: UnixMillis,
    /// Up to where the changelog is applied.
    pub(crate) position: CommitPosition,
    /// Who opened the partition last, as of the position.
    pub(crate) opener: Option<Opener>,
    /// The last record below the position.
    pub(crate) last: Option<LastRecord>,
}

impl Progress {
    fn put(&self, family: &Arc<BoundColumnFamily<'_>>, writes: &mut WriteBatch) {
        writes.put_cf(family, NEWEST_KEY, entry::encode_time(self.now));
        writes.put_cf(family, POSITION_KEY, entry::encode_position(self.position));
        writes.put_cf(family, OPENER_KEY, entry::encode_opener(self.opener));
        writes.put_cf(family, LAST_KEY, entry::encode_last(self.last));
    }
}

impl Database {
    /// Opens what is in `path`, or makes it. `time_of` gives the time by which a column family's marks expire.
    pub(crate) fn open(
        path: &Path,
        tuning: &Tuning,
        time_of: impl Fn(&str) -> BrokerTime,
        number: u64,
    ) -> Result<Self, Fault> {
        let options = tuning.database();
        let families = families_in(path, &options)?;
        let descriptors = families.iter().map(|name| {
            let options = tuning.family(time_of(name));
            ColumnFamilyDescriptor::new(name, options)
        });
        let rocks = Rocks::open_cf_descriptors(&options, path, descriptors)?;
        Ok(Self { rocks, writes: options::writes(), families: Mutex::new(families), number })
    }

    /// This one, if it is the one of that number.
    pub(crate) fn numbered(&self, number: u64) -> Result<&Self, Fault> {
        if self.number == number { Ok(self) } else { Err(Fault::NotThere) }
    }

    /// Makes a column family that is missing.
    pub(crate) fn ensure_family(&self, name: &str, tuning: &Tuning, time: BrokerTime) -> Result<(), Fault> {
        let mut families = self.families.lock();
        if self.rocks.cf_handle(name).is_none() {
            self.rocks.create_cf(name, &tuning.family(time))?;
            families.insert(name.to_owned());
        }
        Ok(())
    }

    pub(crate) fn has_family(&self, name: &str) -> bool {
        self.rocks.cf_handle(name).is_some()
    }

    fn family(&self, name: &str) -> Result<Arc<BoundColumnFamily<'_>>, Fault> {
        self.rocks.cf_handle(name).ok_or(Fault::NotThere)
    }

    /// Joins marks into what is stored, all or none.
    pub(crate) fn apply(&self, family: &str, batch: &Batch<'_>) -> Result<(), Fault> {
        let family = self.family(family)?;
        let mut writes = WriteBatch::with_capacity_bytes(batch.entries.len() * 64 + 64);
        let mut value = Vec::with_capacity(64);
        for &MarkEntry { key: IdempotencyKey(key), mark } in batch.entries {
            value.clear();
            Stored { mark, at: batch.progress.now }.encode(&mut value);
            writes.merge_cf(&family, key, &value);
        }
        batch.progress.put(&family, &mut writes);
        Ok(self.rocks.write_opt(writes, &self.writes)?)
    }

    /// Empties a column family: what it holds is gone with the next step of the database's manifest, which is durable at once, so
    /// that no position is ever found beside less than it claims.
    pub(crate) fn empty_family(&self, name: &str, tuning: &Tuning, time: BrokerTime) -> Result<(), Fault> {
        let mut families = self.families.lock();
        if families.remove(name) {
            self.rocks.drop_cf(name)?;
        }
        self.rocks.create_cf(name, &tuning.family(time))?;
        families.insert(name.to_owned());
        Ok(())
    }

    /// Joins marks into what is stored, and moves no position.
    pub(crate) fn join(&self, family: &str, rows: &[Row]) -> Result<(), Fault> {
        let family = self.family(family)?;
        let mut writes = WriteBatch::with_capacity_bytes(rows.len() * 64);
        let mut value = Vec::with_capacity(64);
        for Row { key: IdempotencyKey(key), stored } in rows {
            value.clear();
            stored.encode(&mut value);
            writes.merge_cf(&family, key, &value);
        }
        Ok(self.rocks.write_opt(writes, &self.writes)?)
    }

    /// Joins the marks of a file that was written for it. The file is moved, and durable when this returns.
    pub(crate) fn ingest(&self, family: &str, file: &Path) -> Result<(), Fault> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        Ok(self.rocks.ingest_external_file_cf_opts(&self.family(family)?, &options, vec![file])?)
    }

    /// Stores how far a partition is, once all of it is stored.
    pub(crate) fn conclude(&self, family: &str, progress: &Progress) -> Result<(), Fault> {
        let family = self.family(family)?;
        let mut writes = WriteBatch::default();
        progress.put(&family, &mut writes);
        Ok(self.rocks.write_opt(writes, &self.writes)?)
    }

    /// Whether the files of a column family are compacted by themselves.
    pub(crate) fn compact_by_itself(&self, family: &str, does: bool) -> Result<(), Fault> {
        let not = if does { "false" } else { "true" };
        Ok(self.rocks.set_options_cf(&self.family(family)?, &[("disable_auto_compactions", not)])?)
    }

    #[cfg(test)]
    pub(crate) fn lose_family(&self, name: &str) {
        self.families.lock().remove(name);
        self.rocks.drop_cf(name).unwrap();
    }

    pub(crate) fn flush_family(&self, family: &str) -> Result<(), Fault> {
        Ok(self.rocks.flush_cf(&self.family(family)?)?)
    }

    /// What is stored of each key, expired or not. The keys must be sorted.
    pub(crate) fn get_sorted(
        &self,
        family: &str,
        keys: &[&IdempotencyKey],
    ) -> Result<Vec<Option<Stored>>, Fault> {
        let family = self.family(family)?;
        let keys = keys.iter().map(|IdempotencyKey(key)| key);
        let values = self.rocks.batched_multi_get_cf(&family, keys, true);
        values.into_iter().map(|value| read(value?)).collect()
    }

    /// What is stored of one key, expired or not.
    pub(crate) fn get(
        &self,
        family: &str,
        IdempotencyKey(key): &IdempotencyKey,
    ) -> Result<Option<Stored>, Fault> {
        read(self.rocks.get_pinned_cf(&self.family(family)?, key)?)
    }

    pub(crate) fn newest(&self, family: &str) -> Result<Option<UnixMillis>, Fault> {
        self.reserved(family, NEWEST_KEY, entry::decode_time)
    }

    /// How far the copy goes. Without a position there is none, whatever else is stored.
    pub(crate) fn copy(&self, family: &str) -> Result<LocalCopy, Fault> {
        let Some(position) = self.reserved(family, POSITION_KEY, entry::decode_position)? else {
            return Ok(LocalCopy::default());
        };
        let opener = self.reserved(family, OPENER_KEY, entry::decode_opener)?.flatten();
        let last = self.reserved(family, LAST_KEY, entry::decode_last)?.flatten();
        Ok(LocalCopy { position: Some(position), opener, last })
    }

    fn reserved<T>(
        &self,
        family: &str,
        key: &[u8],
        decode: fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let Some(value) = self.rocks.get_pinned_cf(&self.family(family)?, key)? else { return Ok(None) };
        let unreadable = || Fault::Corrupt(format!("{} can't be read", String::from_utf8_lossy(key)));
        decode(&value).map(Some).ok_or_else(unreadable)
    }

    /// Shows about `limit` keys from `after` on, in order, with their append times. Gives the last one where there may be more.
    pub(crate) fn scan(
        &self,
        family: &str,
        after: Option<IdempotencyKey>,
        limit: usize,
        mut show: impl FnMut(&IdempotencyKey, UnixMillis),
    ) -> Result<Option<IdempotencyKey>, Fault> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(2 << 20);
        let mut rows = self.rocks.raw_iterator_cf_opt(&self.family(family)?, options);
        match after {
            Some(IdempotencyKey(key)) => rows.seek(key),
            None => rows.seek_to_first(),
        }
        let mut shown = 0;
        while let Some((key, value)) = rows.item() {
            if let Some(key) = entry::mark_key(key) {
                let at = Stored::decode(value).map_err(|error| unreadable(&key, error))?.at;
                show(&key, at);
                shown += 1;
                if shown > limit {
                    return Ok(Some(key));
                }
            }
            rows.next();
        }
        rows.status()?;
        Ok(None)
    }

    /// Keys and bytes in files and in memory, as RocksDB estimates them.
    pub(crate) fn size(&self, family: &str) -> Result<(u64, u64), Fault> {
        let family = self.family(family)?;
        let property = |name| self.rocks.property_int_value_cf(&family, name).map(Option::unwrap_or_default);
        let keys = property(rocksdb::properties::ESTIMATE_NUM_KEYS)?;
        let files = property(rocksdb::properties::TOTAL_SST_FILES_SIZE)?;
        Ok((keys, files + property(rocksdb::properties::CUR_SIZE_ALL_MEM_TABLES)?))
    }

    /// Writes to files what is in memory only, of all column families.
    pub(crate) fn flush(&self) -> Result<(), Fault> {
        let families = self.families.lock().clone();
        let flush = |name: &String| match self.rocks.cf_handle(name) {
            Some(family) => self.rocks.flush_cf(&family),
            None => Ok(()),
        };
        // All are tried, whatever becomes of the first.
        let outcomes: Vec<_> = families.iter().map(flush).collect();
        Ok(outcomes.into_iter().collect::<Result<(), _>>()?)
    }

    /// Rewrites a column family, so that what is expired leaves the disk. Twice: what the first pass had to merge, only the
    /// second may drop.
    pub(crate) fn compact(&self, family: &str) -> Result<(), Fault> {
        let family = self.family(family)?;
        self.rocks.flush_cf(&family)?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        for _pass in 0..2 {
            self.rocks.compact_range_cf_opt(&family, None::<&[u8]>, None::<&[u8]>, &options);
        }
        Ok(())
    }
}

impl Drop for Database {
    /// Nothing but the write buffers knows what is not in files yet.
    fn drop(&mut self) {
        if let Err(fault) = self.flush() {
            warn!(error = %fault, "the last marks were not written to the disk: they will be read from the changelog again");
        }
    }
}

fn read(value: Option<DBPinnableSlice<'_>>) -> Result<Option<Stored>, Fault> {
    let decode = |value: DBPinnableSlice<'_>| {
        Stored::decode(&value).map_err(|error| Fault::Corrupt(format!("a mark can't be read: {error}")))
    };
    value.map(decode).transpose()
}

fn unreadable(key: &IdempotencyKey, error: tidegate_domain::mark::MarkFormatError) -> Fault {
    Fault::Corrupt(format!("the mark of {key} can't be read: {error}"))
}

/// The column families that a database has.
fn families_in(path: &Path, options: &rocksdb::Options) -> Result<BTreeSet<String>, Fault> {
    if path.join("CURRENT").exists() {
        return Ok(Rocks::list_cf(options, path)?.into_iter().collect());
    }
    // RocksDB would take the directory for a new one, and delete the data files that it does not know.
    let data = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name.ends_with(".sst") || name.ends_with(".log") || name.starts_with("MANIFEST")
    };
    let left = std::fs::read_dir(path).map(|dir| dir.flatten().any(|file| data(&file.file_name())));
    match left {
        Ok(true) => Err(Fault::Corrupt("the file CURRENT is missing beside data files".to_owned())),
        _ => Ok(BTreeSet::from([DEFAULT_FAMILY.to_owned()])),
    }
}
