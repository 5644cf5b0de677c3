//! A disk without room: one clear line, errors for everyone who waits, and nothing
//! acknowledged is lost.

use std::path::Path;
use std::process::Command;

use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use ringfence::raft_types::TypeConfig;
use ringfence::storage::{Storage, StorageOptions};
use tempfile::TempDir;

use crate::kit::{Fatal, NODE, append, applied, command, flushed, open, options_with, put, vote};

/// Entries of this size fill a small disk soon.
const LEN: usize = 64 << 10;

/// A file system of its own, a few MiB, for as long as it lives. Needs root.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn new(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let disk = Self { dir };
        disk.mount(&format!("size={size}")).then_some(disk)
    }

    fn mount(&self, options: &str) -> bool {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(self.dir.path())
            .output();
        mount.is_ok_and(|mount| mount.status.success())
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failed test may still have files open. Not mounted: no harm.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).output();
    }
}

/// Appends until the disk is full; gives the number of entries acknowledged.
async fn fill(storage: &Storage) -> u64 {
    let mut log = storage.log();
    for index in 0..10_000 {
        let (done, answer) = TypeConfig::oneshot();
        let queued = log.append([command(1, index, LEN)], IOFlushed::signal(done)).await;
        let acknowledged = flushed(answer).await;
        if queued.is_err() || acknowledged.is_err() {
            return index;
        }
        storage.rows().write_behind(vec![put("row", &index.to_string())], applied(1, index));
    }
    panic!("the disk never filled");
}

async fn check_stopped(storage: Storage, fatal: &Fatal, words: [&str; 3]) {
    let mut log = storage.log();
    let error = log.save_vote(&vote(2)).await.expect_err("stopped");
    assert!(storage.rows().sync().await.is_err());
    let (done, answer) = TypeConfig::oneshot();
    assert!(log.append([command(1, 10_000, 1)], IOFlushed::signal(done)).await.is_err());
    assert!(answer.await.expect("a callback").is_err());
    storage.close().await;
    let lines = fatal.lines();
    let [line] = &lines[..] else { panic!("one line, not {lines:?}") };
    assert_eq!(&error.to_string(), line);
    assert!(line.starts_with("ringfence: stopping: ") && !line.contains('\n'), "{line}");
    for word in words.iter().chain(&["restart", "nothing acknowledged is lost"]) {
        assert!(line.contains(word), "{word} in: {line}");
    }
}

async fn check_kept(dir: &Path, acknowledged: u64) {
    let storage = open(dir);
    let mut log = storage.log();
    let vote_kept = log.read_vote().await.expect("readable");
    assert_eq!(vote_kept, Some(vote(1)));
    let entries = log.try_get_log_entries(..).await.expect("readable");
    assert!(entries.len() as u64 >= acknowledged);
    for (index, entry) in (0..).zip(&entries) {
        assert!(*entry == command(1, index, LEN), "entry {index}");
    }
    let (state, _) = storage.rows().load().expect("readable");
    assert!(state.last_applied.is_none_or(|id| id.index < entries.len() as u64));
    let next = entries.len() as u64;
    flushed(append(&mut log, vec![command(1, next, 10)]).await).await.expect("there is room");
    storage.close().await;
}

#[tokio::test]
async fn a_full_disk_stops_the_node_with_one_line_and_loses_nothing() {
    let Some(disk) = SmallDisk::new("12m") else {
        // Without the right to mount, a limit on the size of files stands in.
        return limited::stop_where_files_may_not_grow().await;
    };
    let node = disk.path().join("node");
    let fatal = Fatal::default();
    let storage = Storage::open(&node, NODE, options_with(&fatal)).expect("there is room");
    storage.log().save_vote(&vote(1)).await.expect("on disk");
    let acknowledged = fill(&storage).await;
    assert!(acknowledged > 10, "{acknowledged}");
    check_stopped(
        storage,
        &fatal,
        ["disk full while writing", "No space left on device", "free space"],
    )
    .await;
    assert!(disk.mount("remount,size=64m"), "more room");
    check_kept(&node, acknowledged).await;
}

#[tokio::test]
async fn a_disk_below_the_reserve_stops_the_node_before_it_is_full() {
    let Some(disk) = SmallDisk::new("16m") else {
        return limited::stop_where_files_may_not_grow().await;
    };
    let node = disk.path().join("node");
    let fatal = Fatal::default();
    let reserve = 6 << 20;
    let careful = StorageOptions { disk_reserve: reserve, ..options_with(&fatal) };
    let storage = Storage::open(&node, NODE, careful).expect("there is room");
    storage.log().save_vote(&vote(1)).await.expect("on disk");
    let acknowledged = fill(&storage).await;
    assert!(acknowledged > 10, "{acknowledged}");
    check_stopped(
        storage,
        &fatal,
        ["disk almost full", "bytes free, the reserve is", "free space"],
    )
    .await;
    check_kept(&node, acknowledged).await;
}

/// The same by `ulimit -f`, for which no right is needed; and the process as it ends
/// by default.
mod limited {
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};

    use openraft::storage::RaftLogStorage;
    use ringfence::storage::{Storage, StorageOptions};

    use super::{check_kept, check_stopped, fill};
    use crate::kit::{Fatal, NODE, options, options_with, vote};

    const CHILD_DIR: &str = "RINGFENCE_LIMITED_CHILD_DIR";
    const STOPS: &str = "full::limited::a_file_that_may_not_grow_stops_the_node_and_loses_nothing";
    const ENDS: &str = "full::limited::by_default_the_process_ends_with_one_line_and_status_74";

    /// Runs a test of this file in a process whose files may grow to 1 MiB only.
    fn run_limited(test: &str, dir: &Path) -> Output {
        // Blocks of 512 bytes. The signal must not kill it.
        let script = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" --exact \"$1\" --nocapture";
        Command::new("sh")
            .args(["-c", script])
            .arg(std::env::current_exe().expect("this test"))
            .arg(test)
            .env(CHILD_DIR, dir)
            .output()
            .expect("a child process")
    }

    /// This test is also its child's way in.
    #[tokio::test]
    async fn a_file_that_may_not_grow_stops_the_node_and_loses_nothing() {
        match std::env::var(CHILD_DIR) {
            Ok(dir) => fill_under_the_limit(&PathBuf::from(dir)).await,
            Err(_) => stop_where_files_may_not_grow().await,
        }
    }

    pub async fn stop_where_files_may_not_grow() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = run_limited(STOPS, dir.path());
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
        let acknowledged = output.split("acknowledged=").nth(1).expect("a number");
        let acknowledged = acknowledged.split_whitespace().next().expect("a number");
        check_kept(dir.path(), acknowledged.parse().expect("a number")).await;
    }

    async fn fill_under_the_limit(dir: &Path) {
        let fatal = Fatal::default();
        let storage = Storage::open(dir, NODE, options_with(&fatal)).expect("there is room");
        storage.log().save_vote(&vote(1)).await.expect("on disk");
        let acknowledged = fill(&storage).await;
        check_stopped(storage, &fatal, ["cannot write", "File too large", "check the disk"]).await;
        println!("acknowledged={acknowledged} ");
    }

    /// This test is also its child's way in.
    #[tokio::test]
    async fn by_default_the_process_ends_with_one_line_and_status_74() {
        if let Ok(dir) = std::env::var(CHILD_DIR) {
            let on_fatal = StorageOptions::default().on_fatal;
            let plain = StorageOptions { on_fatal, ..options() };
            let storage = Storage::open(Path::new(&dir), NODE, plain).expect("there is room");
            fill(&storage).await;
            std::future::pending::<()>().await;
        }
        let dir = tempfile::tempdir().expect("a temporary folder");
        let child = run_limited(ENDS, dir.path());
        let output = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(74), "{output}");
        let lines: Vec<&str> = output.lines().collect();
        let [line] = lines[..] else { panic!("one line, not {lines:?}") };
        assert!(line.starts_with("ringfence: stopping: cannot write"), "{line}");
    }
}
