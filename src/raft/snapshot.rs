//! What the transport needs to know of a snapshot: bytes out, bytes in.

use std::io;

use bytes::Bytes;
use futures::stream::BoxStream;

/// Turns snapshots into bytes and back.
pub trait SnapshotTransfer: Send + Sync + 'static {
    /// What the state machine calls a snapshot's data.
    type Data: Send + 'static;
    /// A snapshot that is arriving.
    type Incoming: IncomingSnapshot<Data = Self::Data>;

    /// The bytes of a snapshot from first to last, in pieces of any size.
    fn pieces(&self, data: Self::Data) -> BoxStream<'static, io::Result<Bytes>>;

    /// Room for a snapshot that is about to arrive.
    ///
    /// # Errors
    /// The disk's.
    fn receive(&self) -> io::Result<Self::Incoming>;
}

/// A snapshot that is arriving; dropped unfinished, it leaves nothing behind.
pub trait IncomingSnapshot: Send + 'static {
    /// What it becomes.
    type Data: Send + 'static;

    /// Takes the next bytes, in order. Pieces are cut anew on the way.
    ///
    /// # Errors
    /// The disk's; `InvalidData` for bytes that make no sense.
    fn push(&mut self, piece: Bytes) -> impl Future<Output = io::Result<()>> + Send;

    /// All bytes have come, and their checksum is right.
    ///
    /// # Errors
    /// The disk's; `InvalidData` when the snapshot is incomplete.
    fn finish(self) -> impl Future<Output = io::Result<Self::Data>> + Send;
}
