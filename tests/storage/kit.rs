//! What the storage tests share: a folder, entries, and waiting for the disk.

#![allow(dead_code, reason = "each test target uses its part")]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use ringfence::raft_types::{
    EncodedCommand, Entry, EntryPayload, LogId, StoredMembership, TypeConfig, Vote,
};
use ringfence::storage::format::log_id;
use ringfence::storage::{AppliedState, LogStore, RowChange, Storage, StorageOptions};
use tempfile::TempDir;

/// The node of most tests.
pub const NODE: u64 = 7;

/// A temporary folder, in memory where the system has room there: these tests are
/// about what is written, and a busy disk would only slow them down.
pub fn folder() -> TempDir {
    const ROOM: u64 = 256 << 20;
    let memory = Path::new("/dev/shm");
    let free = nix::sys::statvfs::statvfs(memory)
        .map_or(0, |stat| stat.blocks_available() * stat.fragment_size());
    let in_memory = if free >= ROOM { TempDir::new_in(memory).ok() } else { None };
    in_memory.unwrap_or_else(|| TempDir::new().expect("a temporary folder"))
}

/// The lines that a storage stopped with.
#[derive(Clone, Default)]
pub struct Fatal(Arc<Mutex<Vec<String>>>);

impl Fatal {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic under it").clone()
    }

    fn hook(&self) -> ringfence::storage::OnFatal {
        let lines = Arc::clone(&self.0);
        Arc::new(move |line: &str| lines.lock().expect("no panic under it").push(line.to_owned()))
    }
}

/// Small bounds, no reserve, and a fatal error that ends the test, not the process.
pub fn options() -> StorageOptions {
    StorageOptions {
        block_cache_bytes: 1 << 20,
        write_buffer_bytes: 2 << 20,
        disk_reserve: 0,
        on_fatal: Arc::new(|line| panic!("{line}")),
        ..StorageOptions::default()
    }
}

/// As [`options`], with the fatal lines kept.
pub fn options_with(fatal: &Fatal) -> StorageOptions {
    StorageOptions { on_fatal: fatal.hook(), ..options() }
}

pub fn open(dir: &Path) -> Storage {
    Storage::open(dir, NODE, options()).expect("a folder of this node")
}

pub fn blank(term: u64, index: u64) -> Entry {
    Entry { log_id: log_id(term, index), payload: EntryPayload::Blank }
}

/// An entry whose content can be told from its place, and does not compress.
pub fn command(term: u64, index: u64, len: usize) -> Entry {
    let mut state = term << 32 | index;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes.extend_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
    }
    bytes.truncate(len);
    let payload = EntryPayload::Normal(EncodedCommand(Bytes::from(bytes)));
    Entry { log_id: log_id(term, index), payload }
}

pub fn commands(term: u64, indexes: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    indexes.map(|index| command(term, index, 40)).collect()
}

pub fn vote(term: u64) -> Vote {
    Vote::new(term, NODE)
}

pub type Flushing = openraft::alias::OneshotReceiverOf<TypeConfig, std::io::Result<()>>;

/// Appends without waiting for the disk.
pub async fn append(log: &mut LogStore, entries: Vec<Entry>) -> Flushing {
    let (done, flushed) = TypeConfig::oneshot();
    log.append(entries, IOFlushed::signal(done)).await.expect("entries that follow the last");
    flushed
}

/// Waits for the callback, which must come.
pub async fn flushed(flushing: Flushing) -> std::io::Result<()> {
    tokio::time::timeout(Duration::from_secs(30), flushing)
        .await
        .expect("a callback within half a minute")
        .expect("a callback that is called, not dropped")
}

pub async fn append_flushed(log: &mut LogStore, entries: Vec<Entry>) {
    let flushing = append(log, entries).await;
    flushed(flushing).await.expect("on disk");
}

pub fn applied(term: u64, index: u64) -> AppliedState {
    AppliedState {
        last_applied: Some(log_id(term, index)),
        membership: StoredMembership::default(),
    }
}

pub fn put(key: &str, value: &str) -> RowChange {
    RowChange {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    }
}

pub fn delete(key: &str) -> RowChange {
    RowChange { key: Bytes::copy_from_slice(key.as_bytes()), value: None }
}

pub fn ids(entries: &[Entry]) -> Vec<LogId> {
    entries.iter().map(|entry| entry.log_id).collect()
}

/// Copies a folder in which nothing is being written: what a killed process leaves.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder to copy to");
    for file in std::fs::read_dir(from).expect("a folder to copy") {
        let file = file.expect("an entry of it");
        let target = to.join(file.file_name());
        if file.file_type().expect("a file or a folder").is_dir() {
            copy_folder(&file.path(), &target);
        } else {
            std::fs::copy(file.path(), target).expect("a copy");
        }
    }
}
