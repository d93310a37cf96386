//! How RocksDB is set up: point look-ups that mostly miss, blind writes, and memory that is bounded over all partitions.

use std::time::Duration;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DataBlockIndexType, LogLevel, Options, WriteBufferManager,
    WriteOptions,
};

use crate::entry;
use crate::expiry::{BrokerTime, ForgetExpired, Retention};
use crate::settings::MemoryBudgets;

const MIB: usize = 1 << 20;
const WRITE_BUFFER: usize = 8 * MIB;
const OPEN_FILES: i32 = 256;

/// What all column families share, and what outlives a database that is opened again.
pub(crate) struct Tuning {
    cache: Cache,
    write_buffers: WriteBufferManager,
    pub(crate) retention: Retention,
}

impl Tuning {
    pub(crate) fn new(memory: &MemoryBudgets, retention: Retention) -> Self {
        let cache = Cache::new_hyper_clock_cache(memory.block_cache.max(8 * MIB), 0);
        let buffers = memory.write_buffers.max(MIB);
        // Stalls would stop a shard's thread; past the budget the largest buffer is flushed instead.
        let write_buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(buffers, false, cache.clone());
        Self { cache, write_buffers, retention }
    }

    pub(crate) fn database(&self) -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.set_max_open_files(OPEN_FILES);
        options.set_max_background_jobs(2);
        options.set_write_buffer_manager(&self.write_buffers);
        options.set_bytes_per_sync(MIB as u64);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options.set_max_manifest_file_size(4 * MIB);
        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(2);
        options.set_max_log_file_size(MIB);
        options
    }

    pub(crate) fn family(&self, time: BrokerTime) -> Options {
        let mut options = Options::default();
        options.set_merge_operator_associative(c"tidegate.join-marks", entry::join_values);
        options.set_compaction_filter_factory(ForgetExpired { time });
        options.set_write_buffer_size(WRITE_BUFFER);
        options.set_max_write_buffer_number(3);
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(0.02);
        // What is written at once is bounded by the shards; a restore may pile up files faster than they are compacted. A stall
        // would hold up who settles, and files that wait cost a look-up a few bloom filters.
        options.set_level_zero_slowdown_writes_trigger(i32::MAX);
        options.set_level_zero_stop_writes_trigger(i32::MAX);
        options.set_soft_pending_compaction_bytes_limit(0);
        options.set_hard_pending_compaction_bytes_limit(0);
        options.set_target_file_size_base(16 * MIB as u64);
        options.set_max_bytes_for_level_base(64 * MIB as u64);
        options.set_level_compaction_dynamic_level_bytes(true);
        // Hashes don't compress.
        options.set_compression_type(DBCompressionType::None);
        // When it looks, not what it forgets: a file that no write touches is rewritten after this, so that the disk stays flat.
        let rewrite = rewrite_after(self.retention);
        options.set_periodic_compaction_seconds(rewrite);
        options.set_ttl(rewrite);
        options.set_block_based_table_factory(&self.table());
        options
    }

    fn table(&self) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_bloom_filter(10.0, false);
        table.set_whole_key_filtering(true);
        table.set_optimize_filters_for_memory(true);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table
    }
}

fn rewrite_after(Retention(retention): Retention) -> u64 {
    (retention / 4).clamp(Duration::from_secs(600), Duration::from_secs(7 * 86_400)).as_secs()
}

/// Without RocksDB's own log, because the changelog is the truth: what write buffers hold is lost with the process, and read from
/// the changelog again.
///
/// What is found after a crash is a prefix of the changelog, with exactly its position. A batch goes to one column family, whose
/// write buffer is only ever exchanged between two batches, never within one; the exchanged ones become files in their order. So
/// what is in files is a prefix of the batches, each of them whole and with its own position.
///
/// How much is lost: no more than the budget of the write buffers, and nothing older than the last regular flush.
pub(crate) fn writes() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(false);
    options.disable_wal(true);
    options
}
