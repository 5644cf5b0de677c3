//! RocksDB as this node uses it: three column families over one write-ahead log.

use std::io;
use std::path::Path;
use std::sync::mpsc;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBRecoveryMode, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};

use super::options::StorageOptions;

/// Identity, vote, marks. RocksDB opens this family in any case.
const META: &str = rocksdb::DEFAULT_COLUMN_FAMILY_NAME;
const LOG: &str = "log";
const ROWS: &str = "rows";

/// The column families this release knows.
pub(super) const FAMILIES: [&str; 3] = [META, LOG, ROWS];

/// Keys of the meta family.
pub(super) mod key {
    pub const FORMAT: &[u8] = b"format";
    pub const NODE: &[u8] = b"node";
    pub const CLUSTER: &[u8] = b"cluster";
    pub const VOTE: &[u8] = b"vote";
    pub const PURGED: &[u8] = b"purged";
    pub const COMMITTED: &[u8] = b"committed";
    pub const APPLIED: &[u8] = b"applied";
}

/// An open database. Whoever holds it keeps the folder's lock.
pub(super) struct Db {
    pub rocks: DB,
    /// Dropped after `rocks`, which tells whoever closes the storage that the
    /// folder is free.
    _closed: mpsc::Sender<()>,
}

impl Db {
    /// Opens what is in `path`. Creates a database, or the column families that one
    /// misses, only if told to.
    pub fn open(
        path: &Path,
        create: bool,
        complete: bool,
        options: &StorageOptions,
    ) -> Result<(Self, mpsc::Receiver<()>), rocksdb::Error> {
        let cache = Cache::new_lru_cache(options.block_cache_bytes);
        let mut settings = database_options(options);
        settings.create_if_missing(create);
        settings.create_missing_column_families(create || complete);
        let buffer = options.write_buffer_bytes;
        let families = [
            family(META, buffer / 8, DBCompressionType::None, &cache),
            family(LOG, buffer / 2, DBCompressionType::Lz4, &cache),
            family(ROWS, buffer / 8 * 3, DBCompressionType::Lz4, &cache),
        ];
        let rocks = DB::open_cf_descriptors(&settings, path, families)?;
        let (sender, closed) = mpsc::channel();
        Ok((Self { rocks, _closed: sender }, closed))
    }

    pub fn meta(&self) -> &ColumnFamily {
        self.rocks.cf_handle(META).expect("opened with this family")
    }

    pub fn log(&self) -> &ColumnFamily {
        self.rocks.cf_handle(LOG).expect("opened with this family")
    }

    pub fn rows(&self) -> &ColumnFamily {
        self.rocks.cf_handle(ROWS).expect("opened with this family")
    }

    /// Writes all of it or nothing, and returns when it is on disk.
    pub fn write_synced(&self, batch: WriteBatch) -> Result<(), rocksdb::Error> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.rocks.write_opt(batch, &options)
    }

    /// Moves everything into table files, so that the next open replays nothing.
    pub fn flush(&self) -> Result<(), rocksdb::Error> {
        self.rocks.flush_cfs_opt(&[self.meta(), self.log(), self.rows()], &Default::default())
    }
}

/// For reading a whole family once, in order: leaves the cache alone.
pub(super) fn scan_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options.set_readahead_size(2 << 20);
    options
}

/// Bytes that this process may still write at `path`.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)?;
    #[allow(clippy::useless_conversion, reason = "narrower on other platforms")]
    Ok(u64::from(stat.blocks_available()) * u64::from(stat.fragment_size()))
}

fn database_options(options: &StorageOptions) -> Options {
    let mut settings = Options::default();
    settings.set_paranoid_checks(true);
    // A torn record at the end was never acknowledged; any other damage is refused.
    settings.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    // A log file that is missing or cut short before the newest is damage too.
    settings.set_track_and_verify_wals_in_manifest(true);
    settings.set_max_total_wal_size(2 * options.write_buffer_bytes as u64);
    // One thread writes.
    settings.set_allow_concurrent_memtable_write(false);
    settings.set_max_background_jobs(2);
    settings.set_bytes_per_sync(1 << 20);
    settings.set_log_level(LogLevel::Warn);
    settings.set_keep_log_file_num(4);
    settings.set_max_log_file_size(1 << 20);
    settings.set_stats_dump_period_sec(0);
    settings.set_stats_persist_period_sec(0);
    settings
}

fn family(
    name: &str,
    buffer: usize,
    compression: DBCompressionType,
    cache: &Cache,
) -> ColumnFamilyDescriptor {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(16 << 10);
    let mut settings = Options::default();
    settings.set_block_based_table_factory(&table);
    settings.set_write_buffer_size(buffer);
    settings.set_compression_type(compression);
    ColumnFamilyDescriptor::new(name, settings)
}
