//! Marks held in an SQLite file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::{Held, MarkStore, bounded, in_order};
use crate::fence::{FenceError, sqlite};
use crate::locks::{Fence, ResourceName, Token};

/// A [`MarkStore`] in an SQLite file, durable as the file is.
///
/// SQLite has one writer per file, so a hold is of **the whole file**: requests for all
/// resources pass one after another, and what stands behind it must not write to this
/// file, or it waits for itself. (A handler that does writes its marks in its own
/// transaction: [`sqlite::guarded`].) For destinations with few writes; others take a
/// server. A process that is frozen while it holds the file holds it until it goes on or
/// dies; others are answered [`FenceError::Busy`].
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    writer: Arc<Turn<Connection>>,
}

/// The file of a [`SqliteStore`], held by an open transaction.
#[derive(Debug)]
pub struct HeldInSqlite(OwnedMutexGuard<Connection>);

impl SqliteStore {
    /// Opens a file whose marks are installed ([`sqlite::install`]) and sets it to WAL.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FenceError> {
        let path = path.as_ref().to_owned();
        let connection = Connection::open(&path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(Self { path, writer: Arc::new(Turn::new(connection)) })
    }

    /// Waits for the turn, then for other processes, off the runtime's threads.
    async fn in_turn<T: Send + 'static>(
        &self,
        fences: &[Fence],
        within: Duration,
        then: impl FnOnce(OwnedMutexGuard<Connection>, &[Fence]) -> Result<T, FenceError>
        + Send
        + 'static,
    ) -> Result<T, FenceError> {
        let fences = in_order(fences)?;
        bounded(within, async {
            let mut writer = Arc::clone(&self.writer).lock_owned().await;
            blocking(move || {
                writer.busy_timeout(within)?;
                if !writer.is_autocommit() {
                    writer.execute_batch("ROLLBACK")?;
                }
                raise(&mut writer, &fences)?;
                then(writer, &fences)
            })
            .await
        })
        .await
    }
}

impl MarkStore for SqliteStore {
    type Held = HeldInSqlite;

    async fn hold(&self, fences: &[Fence], within: Duration) -> Result<HeldInSqlite, FenceError> {
        let lock = |writer: OwnedMutexGuard<Connection>, fences: &[Fence]| {
            writer.execute_batch("BEGIN IMMEDIATE")?;
            let held = HeldInSqlite(writer);
            fences.iter().try_for_each(|fence| sqlite::check(&held.0, fence))?;
            Ok(held)
        };
        self.in_turn(fences, within, lock).await
    }

    async fn raise(&self, fences: &[Fence], within: Duration) -> Result<(), FenceError> {
        self.in_turn(fences, within, |_, _| Ok(())).await
    }

    /// Through a connection of its own: in WAL mode readers wait for no writer.
    async fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
        within: Duration,
    ) -> Result<Option<Token>, FenceError> {
        let (path, resource) = (self.path.clone(), resource.clone());
        let read = move || {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(within)?;
            sqlite::mark(&connection, &resource, slot)
        };
        bounded(within, blocking(read)).await
    }
}

impl Held for HeldInSqlite {
    fn poll_lost(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for HeldInSqlite {
    /// Nothing of it is to be kept: the marks were committed before. If it fails, the next
    /// one in turn does it again, and the file stays locked until then.
    fn drop(&mut self) {
        if let Err(error) = self.0.execute_batch("ROLLBACK") {
            tracing::error!(%error, "a held SQLite file was not let go");
        }
    }
}

fn raise(writer: &mut Connection, fences: &[Fence]) -> Result<(), FenceError> {
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    fences.iter().try_for_each(|fence| sqlite::check(&transaction, fence))?;
    Ok(transaction.commit()?)
}

async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, FenceError> + Send + 'static,
) -> Result<T, FenceError> {
    let ran = tokio::task::spawn_blocking(call).await;
    ran.unwrap_or_else(|ended| Err(FenceError::Store(Box::new(ended))))
}
