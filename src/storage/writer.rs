//! The one thread that writes. It takes everything queued, puts it in order into one
//! batch, writes the batch with one sync, and answers in order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocksdb::WriteBatch;

use crate::raft_types::{Entry, LogId, Vote};

use super::db::{Db, free_bytes, key};
use super::format::{AppliedState, encode_applied, encode_entry_into, encode_log_id, encode_vote};
use super::inner::Inner;
use super::op::{Op, answer};
use super::rows::{KEYS_END, RowChange, RowsView, StoredRow};

pub(super) struct Writer {
    inner: Arc<Inner>,
    db: Arc<Db>,
    /// For encoding, so that entries cost no allocation.
    scratch: Vec<u8>,
}

impl Writer {
    pub const fn new(inner: Arc<Inner>, db: Arc<Db>) -> Self {
        Self { inner, db, scratch: Vec::new() }
    }

    /// Writes group after group until the storage is closed or a write fails.
    pub fn run(mut self) {
        let mut group = Vec::new();
        while self.inner.queue.take(&mut group) {
            match self.write(&group) {
                Ok(()) => self.finish(&mut group),
                Err(why) => return self.stop(group, &why),
            }
        }
        // For a fast next start only: everything is in the write-ahead log.
        if let Err(error) = self.db.flush() {
            self.stop(group, &self.describe(&error));
        }
    }

    /// One batch, one synced write. So every write is synced, and the log file has no
    /// part that a crash could keep while it loses one before. The error is the one
    /// line to stop with.
    fn write(&mut self, group: &[Op]) -> Result<(), String> {
        self.check_room()?;
        let bytes = group.iter().map(Op::bytes).sum();
        let mut batch = Batch {
            db: &self.db,
            batch: WriteBatch::with_capacity_bytes(bytes),
            scratch: &mut self.scratch,
            entries: 0,
            rows: 0,
        };
        batch.put_all(group);
        let Batch { batch, entries, rows, .. } = batch;
        let counts = &self.inner.counts;
        counts.operations.fetch_add(group.len() as u64, Ordering::Relaxed);
        if batch.is_empty() {
            return Ok(());
        }
        let bytes = batch.size_in_bytes() as u64;
        self.db.write_synced(batch).map_err(|error| self.describe(&error))?;
        counts.synced_writes.fetch_add(1, Ordering::Relaxed);
        counts.entries.fetch_add(entries, Ordering::Relaxed);
        counts.rows.fetch_add(rows, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn finish(&self, group: &mut Vec<Op>) {
        let number =
            |op: &Op| if let Op::Append { number, .. } = op { Some(*number) } else { None };
        if let Some(number) = group.iter().rev().find_map(number) {
            self.inner.tail.lock().written(number);
        }
        for op in group.drain(..) {
            match op {
                Op::Append { flushed, .. } => flushed.io_completed(Ok(())),
                Op::Vote { done, .. }
                | Op::Cluster { done, .. }
                | Op::Replace { done, .. }
                | Op::Sync(done) => answer(done, Ok(())),
                Op::View(done) => drop(done.send(self.begin_view())),
                Op::Truncate { .. } | Op::Purge { .. } | Op::Committed(_) | Op::Rows { .. } => {}
            }
        }
    }

    fn begin_view(&self) -> io::Result<RowsView> {
        let view = RowsView::begin(Arc::clone(&self.db))?;
        let mut views = self.inner.views.lock();
        views.retain(|view| !view.is_over());
        views.push(view.handle());
        Ok(view)
    }

    /// RocksDB stalls on a full disk and retries; better to leave while others lead.
    fn check_room(&self) -> Result<(), String> {
        let reserve = self.inner.options.disk_reserve;
        if reserve == 0 {
            return Ok(());
        }
        let path = self.inner.path.display();
        match free_bytes(&self.inner.path) {
            Ok(free) if free < reserve => Err(format!(
                "ringfence: stopping: disk almost full at {path} ({free} bytes free, the reserve \
                 is {reserve}); free space and restart; nothing acknowledged is lost"
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "ringfence: stopping: cannot see how full the disk at {path} is ({error}); check \
                 the disk and restart; nothing acknowledged is lost"
            )),
        }
    }

    fn describe(&self, error: &rocksdb::Error) -> String {
        let path = self.inner.path.display();
        let text: &str = error.as_ref();
        let (what, then) = if text.contains("No space left on device") {
            ("disk full while writing", "free space")
        } else {
            ("cannot write", "check the disk")
        };
        // RocksDB may quote several lines; the promise is one.
        let text = text.replace(['\n', '\r'], " ");
        format!(
            "ringfence: stopping: {what} {path} ({text}); {then} and restart; nothing \
             acknowledged is lost"
        )
    }

    /// Nothing is written after a failed write: what the disk holds is no longer
    /// known until it is opened anew.
    fn stop(&self, group: Vec<Op>, line: &str) {
        let why: Arc<str> = line.into();
        for op in group {
            op.fail(&why);
        }
        self.inner.queue.fail(&why);
        (self.inner.options.on_fatal)(line);
    }
}

/// A group on its way into one RocksDB batch.
struct Batch<'a> {
    db: &'a Db,
    batch: WriteBatch,
    scratch: &'a mut Vec<u8>,
    entries: u64,
    rows: u64,
}

impl Batch<'_> {
    fn put_all(&mut self, group: &[Op]) {
        // Of a group, all or nothing is seen after a crash: of what has one place,
        // only the last counts.
        let (mut vote, mut committed, mut applied) = (None, None, None);
        for op in group {
            match op {
                Op::Append { entries, .. } => entries.iter().for_each(|e| self.put_entry(e)),
                Op::Vote { vote: newer, .. } => vote = Some(newer),
                Op::Cluster { id, .. } => self.put_meta(key::CLUSTER, id.as_bytes()),
                Op::Truncate { from, last } => self.delete_entries(*from, *last),
                Op::Purge { entries, upto } => {
                    if let Some((from, last)) = entries {
                        self.delete_entries(*from, *last);
                    }
                    self.put_meta(key::PURGED, &encode_log_id(upto));
                }
                Op::Committed(newer) => committed = Some(newer),
                Op::Rows { changes, applied: newer } => {
                    changes.iter().for_each(|change| self.put_change(change));
                    applied = Some(newer);
                }
                Op::Replace { rows, applied: newer, .. } => {
                    self.replace_rows(rows);
                    applied = Some(newer);
                }
                Op::Sync(_) | Op::View(_) => {}
            }
        }
        self.put_last(vote, committed, applied);
    }

    fn put_last(
        &mut self,
        vote: Option<&Vote>,
        committed: Option<&Option<LogId>>,
        applied: Option<&AppliedState>,
    ) {
        if let Some(vote) = vote {
            self.put_meta(key::VOTE, &encode_vote(vote));
        }
        match committed {
            Some(Some(id)) => self.put_meta(key::COMMITTED, &encode_log_id(id)),
            Some(None) => self.batch.delete_cf(self.db.meta(), key::COMMITTED),
            None => {}
        }
        if let Some(applied) = applied {
            self.put_meta(key::APPLIED, &encode_applied(applied));
        }
    }

    fn put_meta(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put_cf(self.db.meta(), key, value);
    }

    fn put_entry(&mut self, entry: &Entry) {
        self.scratch.clear();
        encode_entry_into(entry, self.scratch);
        self.batch.put_cf(self.db.log(), entry.log_id.index.to_be_bytes(), &self.scratch);
        self.entries += 1;
    }

    fn delete_entries(&mut self, from: u64, last: u64) {
        let end = last.saturating_add(1);
        self.batch.delete_range_cf(self.db.log(), from.to_be_bytes(), end.to_be_bytes());
    }

    fn put_change(&mut self, change: &RowChange) {
        match &change.value {
            Some(value) => self.batch.put_cf(self.db.rows(), &change.key, value),
            None => self.batch.delete_cf(self.db.rows(), &change.key),
        }
        self.rows += 1;
    }

    fn replace_rows(&mut self, rows: &[StoredRow]) {
        self.batch.delete_range_cf(self.db.rows(), &[][..], &KEYS_END[..]);
        for (key, value) in rows {
            self.batch.put_cf(self.db.rows(), key, value);
        }
        self.rows += rows.len() as u64;
    }
}
