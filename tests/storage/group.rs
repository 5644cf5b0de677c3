//! Groups: few synced writes for many appends, and the order of asking on disk.

use std::time::Duration;

use openraft::storage::{RaftLogReader, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use rand::{Rng, RngExt, SeedableRng};
use ringfence::raft_types::{Entry, LogId, TypeConfig, Vote};
use ringfence::storage::format::log_id;
use ringfence::storage::{LogStore, Storage, StorageOptions};

use crate::kit::{
    NODE, append, append_flushed, applied, command, commands, flushed, folder, ids, open, options,
    put, vote,
};

async fn entries(log: &mut LogStore) -> Vec<Entry> {
    log.try_get_log_entries(..).await.expect("readable")
}

#[tokio::test]
async fn appends_made_at_once_share_synced_writes() {
    const APPENDS: u64 = 4000;
    let dir = folder();
    let storage = open(dir.path());
    let mut log = storage.log();
    let mut flushing = Vec::new();
    for index in 0..APPENDS {
        flushing.push(append(&mut log, vec![command(1, index, 100)]).await);
    }
    for one in flushing {
        flushed(one).await.expect("on disk");
    }
    let counters = storage.counters();
    assert_eq!(counters.entries, APPENDS);
    assert_eq!(counters.operations, APPENDS);
    assert!(counters.synced_writes < APPENDS / 4, "{counters:?}");
    storage.close().await;
    assert_eq!(entries(&mut open(dir.path()).log()).await.len() as u64, APPENDS);
}

#[tokio::test]
async fn what_nobody_waits_for_rides_with_the_next_append() {
    let dir = folder();
    let patient = StorageOptions { linger: Duration::from_secs(3600), ..options() };
    let storage = Storage::open(dir.path(), NODE, patient).expect("a new folder");
    let (mut log, rows) = (storage.log(), storage.rows());
    append_flushed(&mut log, commands(1, 0..=9)).await;
    let before = storage.counters();
    for index in 0..5 {
        log.save_committed(Some(log_id(1, index))).await.expect("queued");
        rows.write_behind(vec![put("row", &index.to_string())], applied(1, index));
    }
    log.truncate_after(Some(log_id(1, 8))).await.expect("queued");
    log.purge(log_id(1, 2)).await.expect("queued");
    append_flushed(&mut log, vec![command(2, 9, 40)]).await;
    let after = storage.counters();
    assert_eq!(after.synced_writes, before.synced_writes + 1);
    assert_eq!(after.operations, before.operations + 5 + 5 + 1 + 1 + 1);
    storage.close().await;

    let storage = open(dir.path());
    let mut log = storage.log();
    assert_eq!(log.read_committed().await.expect("readable"), Some(log_id(1, 4)));
    let state = log.get_log_state().await.expect("readable");
    assert_eq!(state.last_purged_log_id, Some(log_id(1, 2)));
    let expected: Vec<LogId> = (3..9).map(|i| log_id(1, i)).chain([log_id(2, 9)]).collect();
    assert_eq!(ids(&entries(&mut log).await), expected);
    let (state, rows) = storage.rows().load().expect("readable");
    assert_eq!(state, applied(1, 4));
    assert_eq!(rows, [("row".into(), "4".into())]);
}

#[tokio::test]
async fn what_nobody_waits_for_is_written_after_a_while_all_the_same() {
    let dir = folder();
    let hasty = StorageOptions { linger: Duration::from_millis(5), ..options() };
    let storage = Storage::open(dir.path(), NODE, hasty).expect("a new folder");
    storage.rows().write_behind(vec![put("row", "1")], applied(1, 1));
    let written = async {
        while storage.counters().rows == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), written).await.expect("written by then");
}

#[tokio::test]
async fn entries_are_readable_as_soon_as_append_returns() {
    let dir = folder();
    let mut log = open(dir.path()).log();
    let mut reader = log.get_log_reader().await;
    let mut flushing = Vec::new();
    for index in 0..500 {
        flushing.push(append(&mut log, vec![command(1, index, 10)]).await);
        let read = reader.try_get_log_entries(index..=index).await.expect("readable");
        assert_eq!(read, [command(1, index, 10)]);
    }
    for one in flushing {
        flushed(one).await.expect("on disk");
    }
}

#[tokio::test]
async fn reads_go_on_from_disk_to_memory_and_are_capped() {
    const LAST: u64 = 2999;
    let dir = folder();
    let forgetful = StorageOptions { tail_bytes: 50_000, ..options() };
    let storage = Storage::open(dir.path(), NODE, forgetful).expect("a new folder");
    let mut log = storage.log();
    for index in 0..=LAST {
        append_flushed(&mut log, vec![command(1, index, 1000)]).await;
    }
    for (start, end) in [(0, 10), (0, LAST + 1), (2940, LAST + 1), (2990, 2995), (17, 17)] {
        let read = log.try_get_log_entries(start..end).await.expect("readable");
        let expected: Vec<Entry> = (start..end).map(|i| command(1, i, 1000)).collect();
        assert!(read == expected, "entries {start}..{end}");
    }
    // About a megabyte, whether from disk or over the seam into memory.
    for start in [0, 1950, 2100] {
        let some = log.limited_get_log_entries(start, LAST + 1).await.expect("readable");
        assert_eq!(some.first().map(|e| e.log_id.index), Some(start));
        assert!((800..=1050).contains(&some.len()), "{} entries from {start}", some.len());
    }
    append_flushed(&mut log, vec![command(1, LAST + 1, 3 << 20), command(1, LAST + 2, 1)]).await;
    let big = log.limited_get_log_entries(LAST + 1, LAST + 3).await.expect("readable");
    assert_eq!(ids(&big), [log_id(1, LAST + 1)], "one entry, even if it is above the cap");
}

#[tokio::test]
async fn an_append_that_would_leave_a_hole_is_refused_whole() {
    let dir = folder();
    let mut log = open(dir.path()).log();
    append_flushed(&mut log, commands(1, 0..=3)).await;
    for wrong in
        [vec![command(1, 5, 1)], vec![command(1, 4, 1), command(1, 6, 1)], commands(1, 3..=4)]
    {
        let (done, answered) = TypeConfig::oneshot();
        let callback = openraft::storage::IOFlushed::signal(done);
        assert!(log.append(wrong, callback).await.is_err());
        assert!(answered.await.expect("a callback").is_err());
    }
    assert_eq!(entries(&mut log).await, commands(1, 0..=3));
}

/// What the operations of a random story make of the log.
#[derive(Default)]
struct Model {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: Vec<Entry>,
    rows: Option<u64>,
}

impl Model {
    fn last(&self) -> Option<LogId> {
        self.entries.last().map(|e| e.log_id).or(self.purged)
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    /// One operation, asked for and not waited for.
    async fn step(&mut self, random: &mut impl Rng, storage: &Storage, log: &mut LogStore) {
        let term = self.vote.map_or(0, |v| v.leader_id.term);
        match random.random_range(0..10) {
            0 => {
                let vote = vote(term + 1);
                log.save_vote(&vote).await.expect("on disk");
                self.vote = Some(vote);
            }
            1 if !self.entries.is_empty() => {
                let keep = random.random_range(0..=self.entries.len());
                self.entries.truncate(keep);
                log.truncate_after(self.last()).await.expect("queued");
            }
            2 if !self.entries.is_empty() => {
                let gone = random.random_range(0..self.entries.len());
                self.purged = Some(self.entries[gone].log_id);
                self.entries.drain(..=gone);
                log.purge(self.purged.expect("just set")).await.expect("queued");
            }
            3 => {
                let row = random.random_range(0..1000);
                storage.rows().write_behind(vec![put("n", &row.to_string())], applied(0, row));
                self.rows = Some(row);
            }
            _ => {
                let first = self.next_index();
                let more = commands(term, first..=first + random.random_range(0..4));
                self.entries.extend(more.clone());
                // Answered or not: the folder is closed, not lost.
                drop(append(log, more).await);
            }
        }
    }

    async fn check(&self, storage: &Storage) {
        let mut log = storage.log();
        assert_eq!(log.read_vote().await.expect("readable"), self.vote);
        let state = log.get_log_state().await.expect("readable");
        assert_eq!(state.last_purged_log_id, self.purged);
        assert_eq!(state.last_log_id, self.last());
        assert_eq!(entries(&mut log).await, self.entries);
    }
}

#[tokio::test]
async fn random_stories_are_the_same_in_memory_and_after_each_reopening() {
    let dir = folder();
    let mut random = rand::rngs::StdRng::seed_from_u64(1);
    let mut model = Model::default();
    for _ in 0..30 {
        let tight = StorageOptions { tail_bytes: 500, group_operations: 5, ..options() };
        let storage = Storage::open(dir.path(), NODE, tight).expect("this node's folder");
        model.check(&storage).await;
        let mut log = storage.log();
        for _ in 0..random.random_range(1..80) {
            model.step(&mut random, &storage, &mut log).await;
        }
        model.check(&storage).await;
        storage.rows().sync().await.expect("on disk");
        let (state, _) = storage.rows().load().expect("readable");
        assert_eq!(state.last_applied.map(|id| id.index), model.rows);
        storage.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_a_mixture_while_the_end_is_rewritten() {
    let dir = folder();
    let forgetful = StorageOptions { tail_bytes: 2_000, ..options() };
    let storage = Storage::open(dir.path(), NODE, forgetful).expect("a new folder");
    let mut log = storage.log();
    append_flushed(&mut log, commands(0, 0..=199)).await;
    let mut reader = log.get_log_reader().await;
    let reading = tokio::spawn(async move {
        let mut reads = 0_u64;
        loop {
            let read = reader.try_get_log_entries(150..).await.expect("readable");
            let whole = read.windows(2).all(|pair| {
                let (a, b) = (pair[0].log_id, pair[1].log_id);
                a.index + 1 == b.index && a.leader_id <= b.leader_id
            });
            assert!(whole && read.len() >= 20, "{:?}", ids(&read));
            reads += 1;
            if read.last().expect("some").log_id.leader_id.term == 300 {
                return reads;
            }
        }
    });
    // Each term rewrites the end, from a place that moves.
    for term in 1..=300 {
        let keep = 170 + term % 25;
        let before = log.try_get_log_entries(keep..=keep).await.expect("readable");
        let Some(kept) = before.first().map(|e| e.log_id) else { continue };
        log.truncate_after(Some(kept)).await.expect("queued");
        append_flushed(&mut log, commands(term, keep + 1..=199)).await;
    }
    log.truncate_after(Some(log_id(0, 169))).await.expect("queued");
    append_flushed(&mut log, commands(300, 170..=199)).await;
    assert!(reading.await.expect("no panic") > 0);
}
