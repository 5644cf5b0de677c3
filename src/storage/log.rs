//! The Raft log as openraft sees it. What openraft awaits inline takes microseconds
//! here, but for a vote, which must be on disk first.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use openraft::OptionalSend;
use openraft::storage::{LogState, RaftLogReader, RaftLogStorage};
use tokio::sync::oneshot;

use crate::raft_types::{Entry, Flushed, LogId, TypeConfig, Vote};

use super::db::{Db, scan_options};
use super::format::decode_entry;
use super::inner::{Handle, Inner};
use super::op::{Op, entry_bytes};
use super::tail::Piece;

/// What one read gives at most, about: a quarter of what a gRPC message may carry
/// by default.
const READ_BYTES_MAX: usize = 1 << 20;

/// The log, the vote and the committed mark, for openraft. Clones are readers of
/// the same log; only one of them, openraft's, may write.
///
/// `append` costs one allocation for the operation, and for each entry one reference
/// count: a command's bytes are not copied here. The writer thread copies them twice,
/// without an allocation per entry: into its buffer, encoded, and into the batch;
/// RocksDB then copies the batch to the log file and into the memtable.
#[derive(Clone)]
pub struct LogStore {
    handle: Arc<Handle>,
}

impl LogStore {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// Entries from `start` to before `end` as far as the log has them, from memory
    /// or else from disk; at most about `bytes_max`, but at least one.
    async fn read(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let inner = &self.handle.inner;
        'anew: loop {
            let mut entries: Vec<Entry> = Vec::new();
            let mut bytes = 0;
            let mut began: Option<u64> = None;
            loop {
                let (next, end) = {
                    let tail = inner.tail.lock();
                    // Something was removed on the way: what was read may be gone.
                    if *began.get_or_insert(tail.removals()) != tail.removals() {
                        continue 'anew;
                    }
                    let (first, last_end) = tail.range();
                    let next = entries.last().map_or(start.max(first), |e| e.log_id.index + 1);
                    let end = end.min(last_end);
                    if next >= end || bytes >= bytes_max {
                        return Ok(entries);
                    }
                    match tail.read(next, end, bytes_max - bytes) {
                        Piece::Entries(rest) if entries.is_empty() => return Ok(rest),
                        Piece::Entries(rest) => {
                            entries.extend(rest);
                            return Ok(entries);
                        }
                        Piece::OnDisk(next, end) => (next, end),
                    }
                };
                let budget = bytes_max - bytes;
                let found = read_disk(inner, next, end, budget).await?;
                if found.is_empty() {
                    // Gone between the look and the read, or else a hole.
                    if inner.tail.lock().removals() != began.unwrap_or_default() {
                        continue 'anew;
                    }
                    let what = format!("log entry {next} is missing on disk");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                bytes += found.iter().map(entry_bytes).sum::<usize>();
                entries.extend(found);
            }
        }
    }
}

/// Entries without a gap from `next` on, before `end`. Off the async threads: it may
/// wait for the disk.
async fn read_disk(inner: &Inner, next: u64, end: u64, bytes: usize) -> io::Result<Vec<Entry>> {
    let db = inner.db()?;
    tokio::task::spawn_blocking(move || read_range(&db, next, end, bytes))
        .await
        .map_err(io::Error::other)?
}

fn read_range(db: &Db, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
    let mut options = scan_options();
    options.set_readahead_size(0);
    options.fill_cache(true);
    // Bounded on both sides: never through what was removed.
    options.set_iterate_range(start.to_be_bytes().to_vec()..end.to_be_bytes().to_vec());
    let mut iterator = db.rocks.raw_iterator_cf_opt(db.log(), options);
    iterator.seek_to_first();
    let mut entries: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    while let Some(value) = iterator.value() {
        let entry = decode_entry(value)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("log entry: {e}")))?;
        if entry.log_id.index != start + entries.len() as u64 {
            break;
        }
        bytes += entry_bytes(&entry);
        if bytes > bytes_max && !entries.is_empty() {
            break;
        }
        entries.push(entry);
        iterator.next();
    }
    iterator.status().map_err(io::Error::other)?;
    Ok(entries)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (start, end) = half_open(&range);
        self.read(start, end, usize::MAX).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.handle.inner.tail.lock().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end, READ_BYTES_MAX).await
    }

    /// What apply reads: in pieces, so that catching up holds no more than one of
    /// them.
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = half_open(&range);
        let pieces = stream::unfold(Some(start), move |next| {
            let reader = self.clone();
            async move {
                let next = next.filter(|next| *next < end)?;
                match reader.read(next, end, READ_BYTES_MAX).await {
                    Ok(entries) => {
                        let after = entries.last()?.log_id.index + 1;
                        Some((entries.into_iter().map(Ok).collect::<Vec<_>>(), Some(after)))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Box::pin(pieces.flat_map(stream::iter))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let (last_log_id, last_purged_log_id) = self.handle.inner.tail.lock().bounds();
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let inner = &self.handle.inner;
        let (done, on_disk) = oneshot::channel();
        inner.queue.push(Op::Vote { vote: *vote, done })?;
        inner.answered(on_disk).await?;
        inner.tail.lock().vote = Some(*vote);
        Ok(())
    }

    /// Goes to disk with the next group that somebody waits for.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let inner = &self.handle.inner;
        inner.tail.lock().committed = committed;
        inner.queue.push(Op::Committed(committed))
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.handle.inner.tail.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: Flushed) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let inner = &self.handle.inner;
        inner.queue.room().await;
        // Queued under the lock: the order of numbers is the order on disk.
        let mut tail = inner.tail.lock();
        match tail.append(&entries) {
            Ok(number) => inner.queue.push(Op::Append { entries, number, flushed: callback }),
            Err(error) => {
                let same = io::Error::new(error.kind(), error.to_string());
                callback.io_completed(Err(same));
                Err(error)
            }
        }
    }

    /// Readers see it at once; on disk it comes before whatever is appended next.
    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let inner = &self.handle.inner;
        let mut tail = inner.tail.lock();
        match tail.truncate_after(last_log_id) {
            Some((from, last)) => inner.queue.push(Op::Truncate { from, last }),
            None => Ok(()),
        }
    }

    /// Readers see it at once; on disk it comes after the rows written before it, so
    /// that nothing is purged which the rows do not hold.
    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        let inner = &self.handle.inner;
        let mut tail = inner.tail.lock();
        match tail.purge(log_id) {
            Some(entries) => inner.queue.push(Op::Purge { entries, upto: log_id }),
            None => Ok(()),
        }
    }
}

fn half_open(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}
