//! Sending a snapshot: a header, chunks, a checksum; given up when it is
//! cancelled or makes no progress.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use openraft::StorageError;
use openraft::alias::{ErrorSourceOf, SnapshotMetaOf};
use openraft::errors::{ErrorSource, ReplicationClosed, StreamingError};
use openraft::raft::SnapshotResponse;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use xxhash_rust::xxh3::Xxh3;

use super::convert;
use super::link::Link;
use crate::clock;
use crate::raft_types::{TypeConfig, Vote};
use crate::wire::peer::{SnapshotChunk, snapshot_chunk::Part};

/// Data bytes in one message.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Chunks read and not yet taken by the connection.
const AHEAD: usize = 4;
const REPORT_BYTES: u64 = 64 << 20;

type Failure = StreamingError<TypeConfig>;

/// Sends a snapshot and awaits its installation.
pub(super) async fn send(
    link: &Link,
    vote: Vote,
    meta: &SnapshotMetaOf<TypeConfig>,
    pieces: BoxStream<'static, io::Result<Bytes>>,
    cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
) -> Result<SnapshotResponse<TypeConfig>, Failure> {
    let header = Part::Header(convert::snapshot_header(&vote, meta));
    let progress = Arc::new(Progress::new());
    let (to_wire, messages) = mpsc::channel(AHEAD);
    let _pump =
        AbortOnDropHandle::new(tokio::spawn(pump(header, pieces, to_wire, progress.clone())));
    let answer = link.call(ReceiverStream::new(messages), Duration::MAX, {
        |mut client, request| async move { client.install_snapshot(request).await }
    });
    let outcome = tokio::select! {
        answer = answer => answer.map_err(Failure::from),
        closed = cancel => Err(closed.into()),
        () = progress.stalled(link) => Err(link.unreachable("the snapshot is stuck").into()),
    };
    // If our own disk failed, that is the cause, whatever the peer made of it.
    if let Some(error) = progress.failure.lock().take() {
        let source = ErrorSourceOf::<TypeConfig>::from_error(&error);
        return Err(StorageError::read_snapshot(None, source).into());
    }
    let vote = convert::vote_from_wire(outcome?.vote).map_err(|e| link.unreachable(e))?;
    Ok(SnapshotResponse::new(vote))
}

/// Reads, cuts, sums up and sends. It ends without the checksum when reading fails
/// or the connection is gone: the receiver then throws all away.
async fn pump(
    header: Part,
    mut pieces: BoxStream<'static, io::Result<Bytes>>,
    to_wire: mpsc::Sender<SnapshotChunk>,
    progress: Arc<Progress>,
) {
    let mut sum = Xxh3::new();
    if to_wire.send(SnapshotChunk { part: Some(header) }).await.is_err() {
        return;
    }
    while let Some(piece) = pieces.next().await {
        let mut piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                *progress.failure.lock() = Some(error);
                return;
            }
        };
        while !piece.is_empty() {
            let data = piece.split_to(piece.len().min(CHUNK_BYTES_MAX));
            sum.update(&data);
            progress.advance(data.len());
            if to_wire.send(SnapshotChunk { part: Some(Part::Data(data)) }).await.is_err() {
                return;
            }
        }
    }
    let checksum = Bytes::copy_from_slice(&sum.digest128().to_be_bytes());
    if to_wire.send(SnapshotChunk { part: Some(Part::Checksum(checksum)) }).await.is_ok() {
        progress.complete();
    }
}

struct Progress {
    state: Mutex<(Instant, u64, bool)>,
    failure: Mutex<Option<io::Error>>,
}

impl Progress {
    fn new() -> Self {
        Self { state: Mutex::new((clock::timer(), 0, false)), failure: Mutex::default() }
    }

    fn advance(&self, bytes: usize) {
        let mut state = self.state.lock();
        let before = state.1;
        *state = (clock::timer(), before + bytes as u64, false);
        drop(state);
        let after = before + bytes as u64;
        if before / REPORT_BYTES != after / REPORT_BYTES {
            tracing::info!("snapshot: {} MiB sent", after >> 20);
        }
    }

    fn complete(&self) {
        let mut state = self.state.lock();
        *state = (clock::timer(), state.1, true);
    }

    /// Resolves when nothing has moved for too long.
    async fn stalled(&self, link: &Link) {
        let timing = link.timing();
        loop {
            let (since, _, complete) = *self.state.lock();
            let limit = if complete { timing.snapshot_install } else { timing.snapshot_stall };
            if since.elapsed() >= limit {
                return;
            }
            tokio::time::sleep(limit / 4).await;
        }
    }
}
