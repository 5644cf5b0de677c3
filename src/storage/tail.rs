//! What is known of the log in memory: its bounds, the vote, and its last entries,
//! which replication and apply read from here.

use std::collections::VecDeque;
use std::io;

use crate::raft_types::{Entry, LogId, Vote};

use super::op::entry_bytes;

/// The log as it stands when everything queued has been written.
///
/// Its entries are `first..=last`, without a hole. Those from `tail_start` on are in
/// `tail`; those before it are on disk, unchanged until they are purged or
/// truncated. So an entry leaves the tail only when it has been written.
pub(super) struct Tail {
    first: u64,
    last: Option<LogId>,
    purged: Option<LogId>,
    tail: VecDeque<Kept>,
    bytes: usize,
    bytes_max: usize,
    /// The number of the newest append, and of the newest that has been written.
    appended: u64,
    written: u64,
    /// Counts removals: a reader on its way through the disk sees that it must begin
    /// again.
    removals: u64,
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
}

struct Kept {
    entry: Entry,
    bytes: usize,
    append: u64,
}

/// What was found on disk.
#[derive(Default)]
pub(super) struct Recovered {
    pub vote: Option<Vote>,
    pub committed: Option<LogId>,
    pub purged: Option<LogId>,
    /// Index of the first entry, log id of the last.
    pub entries: Option<(u64, LogId)>,
}

/// Part of a read.
pub(super) enum Piece {
    /// The rest of it.
    Entries(Vec<Entry>),
    /// These are on disk, the range not empty.
    OnDisk(u64, u64),
}

impl Tail {
    pub fn new(found: &Recovered, bytes_max: usize) -> Self {
        let after_purged = found.purged.map_or(0, |id| id.index + 1);
        Self {
            first: found.entries.map_or(after_purged, |(first, _)| first),
            last: found.entries.map(|(_, last)| last).or(found.purged),
            purged: found.purged,
            tail: VecDeque::new(),
            bytes: 0,
            bytes_max,
            appended: 0,
            written: 0,
            removals: 0,
            vote: found.vote,
            committed: found.committed,
        }
    }

    /// The last entry, or the last purged one if there is none; and the last purged.
    pub const fn bounds(&self) -> (Option<LogId>, Option<LogId>) {
        (self.last, self.purged)
    }

    pub const fn removals(&self) -> u64 {
        self.removals
    }

    /// Index of the first entry, and the one after the last.
    pub fn range(&self) -> (u64, u64) {
        (self.first, self.end())
    }

    /// Takes the entries behind the last one and numbers the append.
    ///
    /// # Errors
    /// They would leave a hole or overwrite an entry; nothing was taken.
    pub fn append(&mut self, entries: &[Entry]) -> io::Result<u64> {
        let begin =
            self.last.map_or(entries.first().map_or(0, |e| e.log_id.index), |l| l.index + 1);
        for (expected, entry) in (begin..).zip(entries) {
            if entry.log_id.index != expected {
                let what = format!("append of {} where {expected} is due", entry.log_id);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        }
        if self.last.is_none() {
            self.first = begin;
        }
        self.appended += 1;
        for entry in entries {
            let kept =
                Kept { entry: entry.clone(), bytes: entry_bytes(entry), append: self.appended };
            self.bytes += kept.bytes;
            self.last = Some(kept.entry.log_id);
            self.tail.push_back(kept);
        }
        self.evict();
        Ok(self.appended)
    }

    /// Forgets what is behind `keep`. Gives the indexes, first and last, that must go
    /// from the disk too.
    pub fn truncate_after(&mut self, keep: Option<LogId>) -> Option<(u64, u64)> {
        let keep = keep.filter(|id| self.purged.is_none_or(|purged| id.index > purged.index));
        let from = keep.map_or(self.first, |id| id.index + 1).max(self.first);
        let last = self.end().checked_sub(1).filter(|last| from <= *last)?;
        while self.tail.back().is_some_and(|kept| kept.entry.log_id.index >= from) {
            let kept = self.tail.pop_back().expect("just looked at");
            self.bytes -= kept.bytes;
        }
        self.last = keep.or(self.purged);
        self.removals += 1;
        Some((from, last))
    }

    /// Forgets what is up to `upto`, inclusive; the log continues behind it even if
    /// it ended before. Gives the indexes, first and last, that must go from the
    /// disk too; `None` if `upto` was purged before.
    #[allow(clippy::option_option, reason = "nothing to do, or only the mark to write")]
    pub fn purge(&mut self, upto: LogId) -> Option<Option<(u64, u64)>> {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return None;
        }
        let (first, end) = self.range();
        let gone = (first < end && first <= upto.index).then(|| (first, upto.index.min(end - 1)));
        while self.tail.front().is_some_and(|kept| kept.entry.log_id.index <= upto.index) {
            let kept = self.tail.pop_front().expect("just looked at");
            self.bytes -= kept.bytes;
        }
        self.purged = Some(upto);
        self.first = self.first.max(upto.index + 1);
        if self.last.is_none_or(|last| last.index <= upto.index) {
            self.last = Some(upto);
        }
        self.removals += 1;
        Some(gone)
    }

    /// All appends up to this number are on disk.
    pub fn written(&mut self, number: u64) {
        self.written = number;
        self.evict();
    }

    /// Entries from `next` to before `end`, at most about `bytes_max` but at least
    /// one; as far as they are in memory. Both bounds lie within [`Self::range`].
    pub fn read(&self, next: u64, end: u64, bytes_max: usize) -> Piece {
        let tail_start = self.end() - self.tail.len() as u64;
        if next < tail_start {
            return Piece::OnDisk(next, end.min(tail_start));
        }
        let skip = usize::try_from(next - tail_start).expect("a place in memory");
        let count =
            usize::try_from(end.saturating_sub(next)).expect("a number of things in memory");
        let mut bytes = 0;
        let mut entries = Vec::with_capacity(count.min(self.tail.len()));
        for kept in self.tail.range(skip..).take(count) {
            bytes += kept.bytes;
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(kept.entry.clone());
        }
        Piece::Entries(entries)
    }

    fn end(&self) -> u64 {
        self.last.map_or(self.first, |last| last.index + 1)
    }

    fn evict(&mut self) {
        while self.bytes > self.bytes_max
            && self.tail.front().is_some_and(|kept| kept.append <= self.written)
        {
            let kept = self.tail.pop_front().expect("just looked at");
            self.bytes -= kept.bytes;
        }
    }
}
