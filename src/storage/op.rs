//! What is asked of the writer. The order of asking is the order on disk.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::locks::ClusterId;
use crate::raft_types::{Entry, EntryPayload, Flushed, LogId, Vote};

use super::format::AppliedState;
use super::rows::{RowChange, RowsView, StoredRow};

/// Answers one operation when it is on disk or has failed.
pub(super) type Done = oneshot::Sender<io::Result<()>>;

pub(super) enum Op {
    Append {
        entries: Vec<Entry>,
        /// Numbers the appends.
        number: u64,
        flushed: Flushed,
    },
    Vote {
        vote: Vote,
        done: Done,
    },
    Cluster {
        id: ClusterId,
        done: Done,
    },
    /// Entries from `from` to `last`, both gone.
    Truncate {
        from: u64,
        last: u64,
    },
    /// Entries from `from` to `last`, both gone, if there are any; and the mark.
    Purge {
        entries: Option<(u64, u64)>,
        upto: LogId,
    },
    Committed(Option<LogId>),
    Rows {
        changes: Vec<RowChange>,
        applied: AppliedState,
    },
    Replace {
        rows: Vec<StoredRow>,
        applied: AppliedState,
        done: Done,
    },
    Sync(Done),
    View(oneshot::Sender<io::Result<RowsView>>),
}

impl Op {
    /// Somebody waits for it to be on disk. What nobody waits for goes with the
    /// next group that somebody does.
    pub fn is_awaited(&self) -> bool {
        match self {
            Self::Append { .. }
            | Self::Vote { .. }
            | Self::Cluster { .. }
            | Self::Replace { .. }
            | Self::Sync(_)
            | Self::View(_) => true,
            Self::Truncate { .. } | Self::Purge { .. } | Self::Committed(_) | Self::Rows { .. } => {
                false
            }
        }
    }

    /// About its size in memory and in the write-ahead log.
    pub fn bytes(&self) -> usize {
        const SMALL: usize = 64;
        let row = |row: &StoredRow| row.0.len() + row.1.len() + 32;
        match self {
            Self::Append { entries, .. } => SMALL + entries.iter().map(entry_bytes).sum::<usize>(),
            Self::Rows { changes, .. } => {
                SMALL + changes.iter().map(RowChange::bytes).sum::<usize>()
            }
            Self::Replace { rows, .. } => SMALL + rows.iter().map(row).sum::<usize>(),
            Self::Vote { .. }
            | Self::Cluster { .. }
            | Self::Truncate { .. }
            | Self::Purge { .. }
            | Self::Committed(_)
            | Self::Sync(_)
            | Self::View(_) => SMALL,
        }
    }

    /// Answers whoever waits that it will not happen.
    pub fn fail(self, why: &Arc<str>) {
        let error = || Err(stopped(why));
        match self {
            Self::Append { flushed, .. } => flushed.io_completed(error()),
            Self::Vote { done, .. }
            | Self::Cluster { done, .. }
            | Self::Replace { done, .. }
            | Self::Sync(done) => answer(done, error()),
            Self::View(done) => drop(done.send(Err(stopped(why)))),
            Self::Truncate { .. } | Self::Purge { .. } | Self::Committed(_) | Self::Rows { .. } => {
            }
        }
    }
}

/// The error of every operation after the storage has stopped.
pub(super) fn stopped(why: &Arc<str>) -> io::Error {
    io::Error::other(why.to_string())
}

/// Whoever asked may have gone; that is no concern of the writer.
pub(super) fn answer(done: Done, result: io::Result<()>) {
    drop(done.send(result));
}

/// About an entry's size in memory.
pub(super) fn entry_bytes(entry: &Entry) -> usize {
    const FIXED: usize = 96;
    const NODE: usize = 96;
    match &entry.payload {
        EntryPayload::Blank => FIXED,
        EntryPayload::Normal(command) => FIXED + Bytes::len(&command.0),
        EntryPayload::Membership(membership) => FIXED + NODE * membership.nodes().count(),
    }
}
