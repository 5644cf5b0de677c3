//! Snapshots on the way: rows as length-delimited `storage.v1.SnapshotRow` messages.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use prost::Message;

use super::snapshot::{IncomingSnapshot, SnapshotTransfer};
use crate::storage::{RowsView, StoredRow};
use crate::wire::storage as stored;

/// About how many bytes of rows are read at once.
const PIECE_BYTES: usize = 256 * 1024;
/// The largest row that is believed; the largest there can be is far below it.
const ROW_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The rows of a snapshot.
pub enum SnapshotRows {
    /// On this node's disk, as of one moment.
    View(RowsView),
    /// Received from the leader, ascending by key.
    Received(Vec<StoredRow>),
}

impl SnapshotRows {
    /// All rows.
    ///
    /// # Errors
    /// The disk's.
    pub async fn into_rows(self) -> io::Result<Vec<StoredRow>> {
        match self {
            Self::Received(rows) => Ok(rows),
            Self::View(mut view) => {
                let mut rows = Vec::new();
                while let Some(piece) = view.next_chunk(PIECE_BYTES).await? {
                    rows.extend(piece);
                }
                Ok(rows)
            }
        }
    }
}

/// How our snapshots travel.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowTransfer;

impl SnapshotTransfer for RowTransfer {
    type Data = SnapshotRows;
    type Incoming = Incoming;

    fn pieces(&self, data: SnapshotRows) -> BoxStream<'static, io::Result<Bytes>> {
        match data {
            SnapshotRows::View(view) => stream::try_unfold(view, |mut view| async move {
                let rows = view.next_chunk(PIECE_BYTES).await?;
                Ok(rows.map(|rows| (encode(&rows), view)))
            })
            .boxed(),
            SnapshotRows::Received(rows) => stream::iter([Ok(encode(&rows))]).boxed(),
        }
    }

    fn receive(&self) -> io::Result<Incoming> {
        Ok(Incoming::default())
    }
}

/// A snapshot that is arriving.
#[derive(Debug, Default)]
pub struct Incoming {
    unread: BytesMut,
    rows: Vec<StoredRow>,
}

impl IncomingSnapshot for Incoming {
    type Data = SnapshotRows;

    async fn push(&mut self, piece: Bytes) -> io::Result<()> {
        self.unread.extend_from_slice(&piece);
        while let Some(row) = next_row(&mut self.unread)? {
            self.rows.push(row);
        }
        Ok(())
    }

    async fn finish(self) -> io::Result<SnapshotRows> {
        if self.unread.is_empty() {
            return Ok(SnapshotRows::Received(self.rows));
        }
        Err(malformed("the snapshot ends inside a row"))
    }
}

fn encode(rows: &[StoredRow]) -> Bytes {
    let mut bytes = BytesMut::new();
    for (key, value) in rows {
        let row = stored::SnapshotRow { key: key.clone(), value: value.clone() };
        row.encode_length_delimited(&mut bytes).expect("BytesMut has room for any message");
    }
    bytes.freeze()
}

/// Cuts the next whole row off; `None` if it has not all arrived.
fn next_row(unread: &mut BytesMut) -> io::Result<Option<StoredRow>> {
    let mut ahead = &unread[..];
    let Ok(length) = prost::decode_length_delimiter(&mut ahead) else {
        // A length takes at most ten bytes.
        return if unread.len() < 10 { Ok(None) } else { Err(malformed("not a row")) };
    };
    if length > ROW_BYTES_MAX {
        return Err(malformed("a row larger than any there can be"));
    }
    let prefix = unread.len() - ahead.len();
    if ahead.len() < length {
        return Ok(None);
    }
    unread.advance(prefix);
    let row = unread.split_to(length).freeze();
    let row = stored::SnapshotRow::decode(row).map_err(|e| malformed(&e.to_string()))?;
    Ok(Some((row.key, row.value)))
}

fn malformed(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_survive_any_cut() {
        let row = |n: u8| (Bytes::from(vec![n; 3]), Bytes::from(vec![n; usize::from(n) * 40]));
        let rows: Vec<StoredRow> = (1..9).map(row).collect();
        let bytes = encode(&rows);
        for size in [1, 2, 7, 100, bytes.len()] {
            let mut incoming = Incoming::default();
            for piece in bytes.chunks(size) {
                incoming.push(Bytes::copy_from_slice(piece)).await.expect("well-formed");
            }
            let told = incoming.finish().await.expect("complete");
            assert_eq!(told.into_rows().await.expect("in memory"), rows);
        }
    }

    #[tokio::test]
    async fn a_cut_off_snapshot_is_refused() {
        let bytes = encode(&[(Bytes::from_static(b"key"), Bytes::from_static(b"value"))]);
        let mut incoming = Incoming::default();
        incoming.push(bytes.slice(..bytes.len() - 1)).await.expect("not all there yet");
        assert!(incoming.finish().await.is_err());
    }
}
