//! Rows of the lock table, opaque bytes here: written behind the log, read at the
//! start, and seen as of one moment for a snapshot.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rocksdb::{DB, DBRawIteratorWithThreadMode, SnapshotWithThreadMode};
use tokio::sync::{mpsc, oneshot};

use super::db::{Db, key, scan_options};
use super::error::StorageError;
use super::format::{AppliedState, decode_applied};
use super::inner::Handle;
use super::op::Op;

/// Row keys are below this: their first byte is not 0xff, and they are not empty.
pub(super) const KEYS_END: [u8; 1] = [0xff];

/// Bytes of the pieces in which all rows are read at the start.
const LOAD_BYTES: usize = 1 << 20;

/// A row: key and content.
pub type StoredRow = (Bytes, Bytes);

/// One row written or, without a value, deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// Not empty; the first byte is not 0xff.
    pub key: Bytes,
    /// The content from now on; `None`: the row is gone.
    pub value: Option<Bytes>,
}

impl RowChange {
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len) + 32
    }
}

/// The rows and how far they are. Clones are the same rows.
#[derive(Clone)]
pub struct Rows {
    handle: Arc<Handle>,
}

impl Rows {
    pub(super) const fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// Queues the changes and the state they lead to, in one piece, behind everything
    /// queued before: they reach the disk after the log entries they come from, or in
    /// the same write. Does not wait for the disk, and asks for no write of its own:
    /// they go with the next write that somebody waits for. Blocks only while the
    /// writer is further behind than [`super::StorageOptions::queue_bytes`].
    ///
    /// After a crash the rows are those of some `write_behind`, with its `applied`.
    /// Once the storage has stopped this does nothing.
    ///
    /// # Panics
    /// A key is empty or begins with 0xff.
    pub fn write_behind(&self, changes: Vec<RowChange>, applied: AppliedState) {
        changes.iter().for_each(|change| check_key(&change.key));
        let queue = &self.handle.inner.queue;
        queue.room_blocking();
        // Stopped: the process is on its way out and has said why.
        let _ = queue.push(Op::Rows { changes, applied });
    }

    /// All rows on disk, ascending by key, and the state they belong to. What was
    /// queued and not yet written is not among them: for the start, or after
    /// [`Self::sync`].
    ///
    /// # Errors
    /// Not readable.
    pub fn load(&self) -> Result<(AppliedState, Vec<StoredRow>), StorageError> {
        let inner = &self.handle.inner;
        let db = inner.db().map_err(StorageError::Stopped)?;
        let io = |e: io::Error| StorageError::Io { path: inner.path.clone(), what: e.to_string() };
        let mut reading = Reading::begin(&db).map_err(io)?;
        let mut rows = Vec::new();
        while let Some(piece) = reading.next_chunk(LOAD_BYTES).map_err(io)? {
            rows.extend(piece);
        }
        Ok((reading.applied, rows))
    }

    /// Returns when everything queued so far is on disk.
    ///
    /// # Errors
    /// The storage has stopped.
    pub async fn sync(&self) -> io::Result<()> {
        let inner = &self.handle.inner;
        let (done, on_disk) = oneshot::channel();
        inner.queue.push(Op::Sync(done))?;
        inner.answered(on_disk).await
    }

    /// Rows and applied state as they are when everything queued before this call has
    /// been written, whatever is written afterwards. An open view keeps deleted rows
    /// on disk.
    ///
    /// # Errors
    /// The storage has stopped.
    pub async fn view(&self) -> io::Result<RowsView> {
        let inner = &self.handle.inner;
        let (done, begun) = oneshot::channel();
        inner.queue.push(Op::View(done))?;
        inner.answered(begun).await
    }

    /// Puts these rows in the place of all there are: on disk when it returns, and
    /// after a crash either all old or all new, with their applied state.
    ///
    /// # Errors
    /// The storage has stopped.
    ///
    /// # Panics
    /// A key is empty or begins with 0xff.
    pub async fn replace(&self, rows: Vec<StoredRow>, applied: AppliedState) -> io::Result<()> {
        rows.iter().for_each(|(key, _)| check_key(key));
        let inner = &self.handle.inner;
        let (done, on_disk) = oneshot::channel();
        inner.queue.push(Op::Replace { rows, applied, done })?;
        inner.answered(on_disk).await
    }
}

fn check_key(key: &Bytes) {
    let inside = key.first().is_some_and(|first| *first < KEYS_END[0]);
    assert!(inside, "a row key is not empty and does not begin with 0xff");
}

/// All rows as of one moment. A thread of its own holds RocksDB's snapshot and reads
/// on demand, until the view is dropped: then disk and memory are free again.
pub struct RowsView {
    applied: AppliedState,
    ask: mpsc::UnboundedSender<Ask>,
}

impl RowsView {
    /// Begins one at this moment of the writer's work.
    pub(super) fn begin(db: Arc<Db>) -> io::Result<Self> {
        let (ask, asked) = mpsc::unbounded_channel();
        let (begun, begins) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("ringfence-view".into())
            .spawn(move || serve_view(&db, asked, &begun))?;
        let applied = begins.recv().map_err(io::Error::other)??;
        Ok(Self { applied, ask })
    }

    /// What the rows are the result of.
    pub const fn applied(&self) -> &AppliedState {
        &self.applied
    }

    /// The next rows, ascending by key: about `max_bytes` of them, at least one;
    /// `None` after the last.
    ///
    /// # Errors
    /// Not readable, or the storage was closed.
    pub async fn next_chunk(&mut self, max_bytes: usize) -> io::Result<Option<Vec<StoredRow>>> {
        let closed = || io::Error::other("the storage is closed");
        let (reply, answer) = oneshot::channel();
        self.ask.send(Ask::Next { max_bytes, reply }).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    pub(super) fn handle(&self) -> ViewHandle {
        ViewHandle(self.ask.downgrade())
    }
}

/// Reaches the thread of a view, and does not keep it.
pub(super) struct ViewHandle(mpsc::WeakUnboundedSender<Ask>);

impl ViewHandle {
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|ask| ask.is_closed())
    }

    pub fn end(self) {
        if let Some(ask) = self.0.upgrade() {
            let _ = ask.send(Ask::End);
        }
    }
}

enum Ask {
    Next { max_bytes: usize, reply: oneshot::Sender<io::Result<Option<Vec<StoredRow>>>> },
    End,
}

fn serve_view(
    db: &Db,
    mut asked: mpsc::UnboundedReceiver<Ask>,
    begun: &std::sync::mpsc::SyncSender<io::Result<AppliedState>>,
) {
    let mut reading = match Reading::begin(db) {
        Ok(reading) => reading,
        Err(error) => {
            let _ = begun.send(Err(error));
            return;
        }
    };
    let _ = begun.send(Ok(reading.applied.clone()));
    while let Some(Ask::Next { max_bytes, reply }) = asked.blocking_recv() {
        let _ = reply.send(reading.next_chunk(max_bytes));
    }
}

/// On its way through all rows, as of the moment it began.
struct Reading<'a> {
    applied: AppliedState,
    /// Before the snapshot that it reads in: fields are dropped in order.
    iterator: DBRawIteratorWithThreadMode<'a, DB>,
    _snapshot: SnapshotWithThreadMode<'a, DB>,
}

impl<'a> Reading<'a> {
    fn begin(db: &'a Db) -> io::Result<Self> {
        let snapshot = db.rocks.snapshot();
        let applied = snapshot.get_cf(db.meta(), key::APPLIED).map_err(io::Error::other)?;
        let applied = match applied {
            Some(bytes) => decode_applied(&bytes[..]).map_err(io::Error::other)?,
            None => AppliedState::default(),
        };
        let mut options = scan_options();
        options.set_snapshot(&snapshot);
        let mut iterator = db.rocks.raw_iterator_cf_opt(db.rows(), options);
        iterator.seek_to_first();
        Ok(Self { applied, iterator, _snapshot: snapshot })
    }

    /// One allocation for all keys and contents of the piece.
    fn next_chunk(&mut self, max_bytes: usize) -> io::Result<Option<Vec<StoredRow>>> {
        let mut buffer = BytesMut::with_capacity(max_bytes.min(LOAD_BYTES));
        let mut ends = Vec::new();
        while let Some((key, value)) = self.iterator.item() {
            if !ends.is_empty() && buffer.len() + key.len() + value.len() > max_bytes {
                break;
            }
            buffer.extend_from_slice(key);
            ends.push((buffer.len(), buffer.len() + value.len()));
            buffer.extend_from_slice(value);
            self.iterator.next();
        }
        self.iterator.status().map_err(io::Error::other)?;
        let buffer = buffer.freeze();
        let mut start = 0;
        let mut cut = |(key_end, end): (usize, usize)| {
            let row = (buffer.slice(start..key_end), buffer.slice(key_end..end));
            start = end;
            row
        };
        Ok((!ends.is_empty()).then(|| ends.into_iter().map(&mut cut).collect()))
    }
}
