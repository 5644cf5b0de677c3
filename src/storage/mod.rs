//! A node's data folder: the Raft log, the vote and the rows of the lock table in one
//! RocksDB, written by one thread.
//!
//! Everything that changes the folder is an operation in one queue. The writer takes
//! all that is queued, puts it in order into one batch, writes the batch with one
//! synced write, and answers in order: so a vote, the entries of its term, a
//! truncation and the rows of what was applied can never reach the disk in another
//! order than they were asked for, and the more is asked at once, the fewer syncs
//! each costs. What nobody waits for (rows, marks, truncation, purge) asks for no
//! write of its own and goes with the next.
//!
//! What may be relied on:
//! - An entry is on disk when its callback is called, a vote when `save_vote` returns.
//! - After a crash, loss of power included, the folder holds what some prefix of the
//!   queue made of it, and that prefix holds everything acknowledged.
//! - A failed write stops the storage for good: every operation in flight and every
//!   later one is answered with the error, and [`StorageOptions::on_fatal`] gets one
//!   line, by default printed before the process ends.
//! - A folder of another node or cluster, of an unknown format, in use, or damaged is
//!   refused at the start. Only damage to the length of the very last record of the
//!   write-ahead log cannot be told from a crash in the middle of writing it.
//!
//! Never seen here: what a command or a row means, who leads, any client.

mod db;
mod error;
mod folder;
pub mod format;
mod inner;
mod log;
mod op;
mod options;
mod queue;
mod rows;
mod tail;
mod wal;
mod writer;

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::locks::ClusterId;

pub use error::StorageError;
pub use format::AppliedState;
pub use log::LogStore;
pub use options::{OnFatal, StorageOptions};
pub use rows::{RowChange, Rows, RowsView, StoredRow};

use inner::{Handle, Inner, Running};
use op::Op;
use queue::Queue;
use tail::Tail;
use writer::Writer;

/// An open data folder. Clones are the same folder; when the last of them and of
/// what they gave out is gone, the folder is closed.
#[derive(Clone)]
pub struct Storage {
    handle: Arc<Handle>,
}

/// Whose folder it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The node it was created for.
    pub node_id: u64,
    /// Random, drawn when the folder was created: a wiped node has another one.
    pub incarnation: [u8; 16],
}

/// What the writer has done since the folder was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Writes, each synced once.
    pub synced_writes: u64,
    /// Operations in them: appends, votes, row batches and so on.
    pub operations: u64,
    /// Log entries.
    pub entries: u64,
    /// Rows written or deleted.
    pub rows: u64,
    /// Bytes of all batches.
    pub bytes: u64,
}

impl Storage {
    /// Opens the data folder of a node, creates it if it does not exist or is empty.
    /// Blocks while it is read through. Everything found is on disk, also what a
    /// killed process had written and not yet synced.
    ///
    /// # Errors
    /// Each in one line that says what to do: not a folder, not writable, in use, no
    /// room, another node's, of an unknown format, damaged.
    pub fn open(dir: &Path, node_id: u64, options: StorageOptions) -> Result<Self, StorageError> {
        let opened = folder::open(dir, node_id, &options)?;
        let db = Arc::new(opened.db);
        let inner = Arc::new(Inner {
            path: dir.to_owned(),
            identity: opened.identity,
            queue: Queue::new(&options),
            tail: Mutex::new(Tail::new(&opened.log, options.tail_bytes)),
            cluster: opened.cluster.map_or_else(OnceLock::new, OnceLock::from),
            adopting: tokio::sync::Mutex::default(),
            counts: inner::Counts::default(),
            db: RwLock::new(Some(Arc::clone(&db))),
            views: Mutex::default(),
            fresh: opened.fresh,
            options,
        });
        let writer = Writer::new(Arc::clone(&inner), db);
        let writer = thread::Builder::new()
            .name("ringfence-disk".into())
            .spawn(move || writer.run())
            .map_err(|error| StorageError::Io {
                path: dir.to_owned(),
                what: format!("no thread to write with ({error})"),
            })?;
        let running = Mutex::new(Some(Running { writer, closed: opened.closed }));
        Ok(Self { handle: Arc::new(Handle { inner, running }) })
    }

    /// Whose folder it is.
    pub fn identity(&self) -> Identity {
        self.handle.inner.identity
    }

    /// The cluster that the node belongs to, once adopted.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.handle.inner.cluster.get().copied()
    }

    /// Makes the node a member of this cluster for as long as the folder lives: on
    /// disk when it returns. Adopting the same again is nothing.
    ///
    /// # Errors
    /// It belongs to another cluster; or the storage has stopped.
    pub async fn adopt_cluster(&self, id: ClusterId) -> Result<(), StorageError> {
        let inner = &self.handle.inner;
        let _one_at_a_time = inner.adopting.lock().await;
        match self.cluster() {
            Some(found) if found == id => return Ok(()),
            Some(found) => return Err(StorageError::OtherCluster { found, wanted: id }),
            None => {}
        }
        let (done, on_disk) = oneshot::channel();
        inner.queue.push(Op::Cluster { id, done }).map_err(StorageError::Stopped)?;
        inner.answered(on_disk).await.map_err(StorageError::Stopped)?;
        inner.cluster.get_or_init(|| id);
        Ok(())
    }

    /// It had no vote and no log when it was opened, as a folder just created.
    pub fn is_fresh(&self) -> bool {
        self.handle.inner.fresh
    }

    /// The Raft log, for openraft.
    pub fn log(&self) -> LogStore {
        LogStore::new(Arc::clone(&self.handle))
    }

    /// The rows of the lock table.
    pub fn rows(&self) -> Rows {
        Rows::new(Arc::clone(&self.handle))
    }

    /// What has been written since the folder was opened.
    pub fn counters(&self) -> Counters {
        self.handle.inner.counts.read()
    }

    /// Writes what is queued and closes the folder, which is free when this returns.
    /// Whatever else still holds it gets errors from then on. Once stopped by an
    /// error it only closes.
    pub async fn close(self) {
        let handle = self.handle;
        // A panic in there has been reported already.
        let _ = tokio::task::spawn_blocking(move || handle.close()).await;
    }
}
