//! What the handles, the readers and the writer share.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use crate::locks::ClusterId;

use super::db::Db;
use super::options::StorageOptions;
use super::queue::Queue;
use super::rows::ViewHandle;
use super::tail::Tail;
use super::{Counters, Identity};

const CLOSED: &str = "the storage is closed";

pub(super) struct Inner {
    pub path: PathBuf,
    pub identity: Identity,
    pub options: StorageOptions,
    pub queue: Queue,
    /// Locked before the queue, never the other way round.
    pub tail: Mutex<Tail>,
    pub cluster: OnceLock<ClusterId>,
    /// Held while `cluster` is on its way to the disk.
    pub adopting: tokio::sync::Mutex<()>,
    pub counts: Counts,
    /// Taken out when the storage closes; the last one to hold it frees the folder.
    pub db: RwLock<Option<Arc<Db>>>,
    /// Views that may still be open.
    pub views: Mutex<Vec<ViewHandle>>,
    pub fresh: bool,
}

#[derive(Default)]
pub(super) struct Counts {
    pub synced_writes: AtomicU64,
    pub operations: AtomicU64,
    pub entries: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
}

impl Counts {
    pub fn read(&self) -> Counters {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            synced_writes: get(&self.synced_writes),
            operations: get(&self.operations),
            entries: get(&self.entries),
            rows: get(&self.rows),
            bytes: get(&self.bytes),
        }
    }
}

impl Inner {
    /// The open database.
    ///
    /// # Errors
    /// The storage is closed.
    pub fn db(&self) -> io::Result<Arc<Db>> {
        self.db.read().clone().ok_or_else(|| self.stopped())
    }

    /// Why nothing is done any more.
    pub fn stopped(&self) -> io::Error {
        self.queue.stopped().unwrap_or_else(|| io::Error::other(CLOSED))
    }

    /// Waits for the writer's answer.
    pub async fn answered<T>(&self, on_disk: oneshot::Receiver<io::Result<T>>) -> io::Result<T> {
        on_disk.await.unwrap_or_else(|_| Err(self.stopped()))
    }
}

/// Keeps the writer running. When the last one goes, what is queued is written and
/// the folder is freed.
pub(super) struct Handle {
    pub inner: Arc<Inner>,
    pub running: Mutex<Option<Running>>,
}

pub(super) struct Running {
    pub writer: JoinHandle<()>,
    /// Disconnected when the database has been closed.
    pub closed: mpsc::Receiver<()>,
}

impl Handle {
    /// Writes what is queued, then closes the database. Returns when the folder is
    /// free. Later calls return at once.
    pub fn close(&self) {
        let Some(running) = self.running.lock().take() else { return };
        self.inner.queue.close(CLOSED);
        // A writer that panicked has ended the process already, or else the panic has
        // been reported: there is nothing left to write.
        let _ = running.writer.join();
        for view in self.inner.views.lock().drain(..) {
            view.end();
        }
        drop(self.inner.db.write().take());
        let _ = running.closed.recv();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
