//! Files that are cut short as by loss of power, or changed as by a bad disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use openraft::storage::RaftLogReader;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use ringfence::raft_types::Entry;
use ringfence::storage::{Storage, StorageError};

use crate::kit::{
    NODE, append_flushed, applied, command, copy_folder, flushed, folder, open, options, put,
};

/// RocksDB's blocks in a write-ahead log.
const BLOCK: u64 = 32 << 10;
/// Checksum, length and type before each part of a record.
const RECORD_HEADER: u64 = 7;

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir.join("db"))
        .expect("a database")
        .map(|file| file.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    files
}

fn newest_wal(dir: &Path) -> PathBuf {
    files(dir, "log").pop().expect("a write-ahead log")
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("within it");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("written");
}

async fn entries(storage: &Storage) -> Vec<Entry> {
    storage.log().try_get_log_entries(..).await.expect("readable")
}

fn refused(dir: &Path, what: &str) {
    let Err(error) = Storage::open(dir, NODE, options()) else { panic!("{what} was accepted") };
    assert!(matches!(error, StorageError::Corrupt { .. }), "{what}: {error}");
    let line = error.to_string();
    assert!(line.contains("remove this node from the cluster") && !line.contains('\n'), "{line}");
}

/// A folder as a killed process leaves it, with one record for each of `count`
/// entries in its write-ahead log, and where each record ends.
async fn killed_folder(dir: &Path, count: u64, len: usize) -> Vec<u64> {
    let live = folder();
    let storage = open(live.path());
    let mut log = storage.log();
    let mut ends = Vec::new();
    for index in 0..count {
        append_flushed(&mut log, vec![command(1, index, len)]).await;
        ends.push(fs::metadata(newest_wal(live.path())).expect("there").len());
    }
    copy_folder(live.path(), dir);
    ends
}

#[tokio::test]
async fn a_torn_last_record_is_accepted_and_costs_nothing_before_it() {
    let killed = folder();
    let ends = killed_folder(killed.path(), 60, 900).await;
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..25 {
        let whole = random.random_range(0..ends.len() - 1);
        let cut = random.random_range(ends[whole]..ends[whole + 1]);
        let dir = folder();
        copy_folder(killed.path(), dir.path());
        let wal = OpenOptions::new().write(true).open(newest_wal(dir.path())).expect("a log");
        wal.set_len(cut).expect("cut");
        let storage = open(dir.path());
        let expected: Vec<Entry> = (0..=whole as u64).map(|i| command(1, i, 900)).collect();
        assert!(entries(&storage).await == expected, "cut at {cut}, after {whole}");
        // And life goes on behind the tear.
        append_flushed(&mut storage.log(), vec![command(2, whole as u64 + 1, 10)]).await;
        storage.close().await;
        assert_eq!(entries(&open(dir.path())).await.len(), whole + 2);
    }
}

/// Flips this byte in a copy of a killed folder, which must then be refused.
fn refuse_flipped(killed: &Path, at: u64) {
    let dir = folder();
    copy_folder(killed, dir.path());
    flip(&newest_wal(dir.path()), at);
    refused(dir.path(), &format!("a flip at {at}"));
}

#[tokio::test]
async fn a_flipped_byte_in_the_write_ahead_log_is_refused() {
    let killed = folder();
    let ends = killed_folder(killed.path(), 150, 900).await;
    let last_record = ends[ends.len() - 2];
    assert!(last_record > 3 * BLOCK, "several blocks: {last_record}");
    let mut random = StdRng::seed_from_u64(6);
    for _ in 0..20 {
        refuse_flipped(killed.path(), random.random_range(0..last_record));
    }
}

#[tokio::test]
async fn a_flipped_byte_in_the_head_of_any_record_but_the_last_is_refused() {
    let killed = folder();
    let ends = killed_folder(killed.path(), 9, 100).await;
    assert!(ends.iter().all(|end| *end < BLOCK), "one block, in which RocksDB sees a tear");
    for begin in ends.iter().take(ends.len() - 2) {
        for at in *begin..begin + RECORD_HEADER {
            refuse_flipped(killed.path(), at);
        }
    }
}

#[tokio::test]
async fn a_flipped_byte_in_a_table_file_is_refused() {
    let closed = folder();
    let storage = open(closed.path());
    let mut log = storage.log();
    for first in (0..3000).step_by(100) {
        append_flushed(&mut log, (first..first + 100).map(|i| command(1, i, 100)).collect()).await;
    }
    let rows = (0..3000).map(|n| put(&format!("row {n}"), &format!("value {n}"))).collect();
    storage.rows().write_behind(rows, applied(1, 2999));
    storage.close().await;
    let tables = files(closed.path(), "sst");
    assert!(tables.len() >= 3, "one of each family: {tables:?}");
    let mut random = StdRng::seed_from_u64(7);
    for table in &tables {
        let len = fs::metadata(table).expect("there").len();
        // The data comes first; what follows it has its own checksums.
        for at in (0..6).map(|_| random.random_range(0..len / 2)) {
            let dir = folder();
            copy_folder(closed.path(), dir.path());
            flip(&dir.path().join("db").join(table.file_name().expect("a name")), at);
            refused(dir.path(), &format!("a flip at {at} of {len} in {}", table.display()));
        }
    }
}

#[tokio::test]
async fn a_missing_file_is_refused() {
    let killed = folder();
    let storage = open(killed.path());
    append_flushed(&mut storage.log(), vec![command(1, 0, 10)]).await;
    storage.close().await;
    let table = files(killed.path(), "sst").pop().expect("a table file");
    fs::remove_file(table).expect("was there");
    let Err(error) = Storage::open(killed.path(), NODE, options()) else { panic!("accepted") };
    assert!(!error.to_string().contains('\n'), "{error}");
}

#[tokio::test]
async fn what_is_in_flight_at_the_copy_is_whole_or_absent() {
    let live = folder();
    let storage = open(live.path());
    let mut log = storage.log();
    let first = crate::kit::append(&mut log, vec![command(1, 0, 10)]).await;
    flushed(first).await.expect("on disk");
    // Rows that nobody waits for are not on disk yet, and so not in the copy.
    storage.rows().write_behind(vec![put("a", "1")], applied(1, 0));
    let dir = folder();
    copy_folder(live.path(), dir.path());
    let copy = open(dir.path());
    assert_eq!(entries(&copy).await, [command(1, 0, 10)]);
    let (state, rows) = copy.rows().load().expect("readable");
    assert_eq!(state.last_applied.is_some(), !rows.is_empty());
}
