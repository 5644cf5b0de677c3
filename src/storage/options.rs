//! What can be set about a node's storage, each with a default that suits a node
//! of some hundred thousand locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Called once, with one line that says what failed and what to do, when the
/// storage has stopped for good. By then every operation in flight has been
/// answered with the error. The default prints the line and ends the process.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

/// Bounds of memory, of one group, and of the disk.
#[derive(Clone)]
pub struct StorageOptions {
    /// Cache for blocks read from disk, bytes.
    pub block_cache_bytes: usize,
    /// Memory for what is in the write-ahead log and not yet in table files, bytes,
    /// over all column families. The write-ahead log grows to about twice as much.
    pub write_buffer_bytes: usize,
    /// Log entries kept in memory behind the last one, bytes; what is older is read
    /// from RocksDB.
    pub tail_bytes: usize,
    /// Bytes of one group, about: what is queued beyond goes into the next.
    pub group_bytes: usize,
    /// Operations of one group.
    pub group_operations: usize,
    /// Bytes queued for the writer beyond which appends and rows wait for it.
    pub queue_bytes: usize,
    /// How long an operation that nobody waits for may stay queued for a group that
    /// is written anyway.
    pub linger: Duration,
    /// Free bytes below which the node stops while it still can; 0 for no reserve.
    pub disk_reserve: u64,
    /// What happens when writing has failed.
    pub on_fatal: OnFatal,
}

/// The exit status after a storage failure: `EX_IOERR` of sysexits.h.
const EXIT_STORAGE: i32 = 74;

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            block_cache_bytes: 32 * MIB,
            write_buffer_bytes: 64 * MIB,
            tail_bytes: 32 * MIB,
            group_bytes: 4 * MIB,
            group_operations: 4096,
            queue_bytes: 64 * MIB,
            linger: Duration::from_millis(100),
            disk_reserve: 64 * MIB as u64,
            on_fatal: Arc::new(|line| {
                eprintln!("{line}");
                std::process::exit(EXIT_STORAGE);
            }),
        }
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageOptions")
            .field("block_cache_bytes", &self.block_cache_bytes)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("tail_bytes", &self.tail_bytes)
            .field("group_bytes", &self.group_bytes)
            .field("group_operations", &self.group_operations)
            .field("queue_bytes", &self.queue_bytes)
            .field("linger", &self.linger)
            .field("disk_reserve", &self.disk_reserve)
            .finish_non_exhaustive()
    }
}
