//! RocksDB in this process; the process that is killed is the destination.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ringfence::fence::{Fence, FenceError, rocksdb::Marks};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rocksdb::{IteratorMode, WriteBatch};
use tempfile::TempDir;

use super::{Client, Destination, Op, Vectors, Verdict};
use crate::rocksdb::open;
use crate::steps::{Another, Shim, role};

struct Database(Writer, #[allow(dead_code, reason = "removed last")] TempDir);

#[derive(Clone)]
struct Writer(Arc<rocksdb::DB>, Marks);

impl Database {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        Self(Writer::open(folder.path()), folder)
    }
}

impl Writer {
    fn open(folder: &Path) -> Self {
        let db = open(folder);
        let marks = Marks::new(Arc::clone(&db));
        marks.install().expect("its column family is there");
        Self(db, marks)
    }
}

impl Destination for Database {
    type Client = Writer;

    /// Marks of its own for each, over the one handle that RocksDB allows.
    async fn client(&self) -> Writer {
        let db = Arc::clone(&self.0.0);
        Writer(Arc::clone(&db), Marks::new(db))
    }
}

impl Client for Writer {
    /// The number that the database gives to each write is what tells their order.
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let mut batch = WriteBatch::default();
        let family = self.0.cf_handle("ledger").expect("opened with it");
        batch.merge_cf(&family, "lines", format!("{line}\n"));
        self.1.guarded(fences, batch)
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        self.1.raise(fences)
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        self.1.mark(resource, slot).expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        assert!(self.1.adopt(from, to).expect("installed") > 0);
    }

    async fn ledger(&mut self) -> Vec<String> {
        let family = self.0.cf_handle("ledger").expect("opened with it");
        let mut rows = self.0.iterator_cf(&family, IteratorMode::Start);
        let Some(row) = rows.next() else { return Vec::new() };
        let lines = String::from_utf8(row.expect("readable").1.into()).expect("text");
        lines.lines().map(str::to_owned).collect()
    }
}

#[test]
fn rocksdb_passes_every_vector() {
    super::tells_every_case(&Database::new());
}

#[test]
fn sixteen_writers_never_take_rocksdb_back() {
    super::sixteen_writers_never_take_it_back(&Database::new());
}

#[test]
fn rocksdb_is_as_every_crash_may_leave_it_killed_at_every_step() {
    if let Some((role, folder)) = role() {
        let (case, first) = role.split_once(' ').expect("two words");
        let crash = &Vectors::read().crash[case.parse::<usize>().expect("a case")];
        let mut writer = Writer::open(&folder);
        // The file is not there: what matters is that the shim is told.
        let _ = fs::remove_file(first);
        let line = crash.line(crash.before.len());
        let offered = super::offer(&mut writer, crash.last.op, &crash.last.offer, &line);
        super::runtime().block_on(offered);
        println!("\n> answered");
        // Waits to be killed.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let shim = Shim::new();
    let test = "vectors::rocksdb::rocksdb_is_as_every_crash_may_leave_it_killed_at_every_step";
    for (case, crash) in Vectors::read().crash.iter().enumerate() {
        for step in 1.. {
            let folder = tempfile::tempdir().expect("the temporary folder is writable");
            super::runtime().block_on(super::before(&mut Writer::open(folder.path()), crash));
            let role = format!("{case} kill-at/{step}");
            let mut process = Another::start(test, &role, folder.path(), Some(&shim));
            let answered = process.said().is_some();
            process.kill();
            if answered || !crash.answered {
                let mut writer = Writer::open(folder.path());
                if answered && crash.last.op == Op::Write {
                    let there = super::runtime().block_on(writer.ledger());
                    let there = there.contains(&crash.line(crash.before.len()));
                    let accepted = crash.last.verdict == Some(Verdict::Accept);
                    assert_eq!(there, accepted, "{}", crash.name);
                }
                super::runtime().block_on(super::is_as_the_crash_may_leave_it(&mut writer, crash));
            }
            if answered {
                let accepted = crash.last.verdict == Some(Verdict::Accept);
                assert!(step > 2 || !accepted, "{}: {step} steps only", crash.name);
                break;
            }
        }
    }
}
