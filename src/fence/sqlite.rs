//! Marks in the same SQLite file as what they protect.
//!
//! A write and its check are one `BEGIN IMMEDIATE` transaction: [`guarded`] runs
//! it, [`check`] is for those who hold one already. SQLite has one writer per
//! file, so a raise waits for the writes that are past their check.
//!
//! - Keep the protected tables in the main file, beside the marks: a commit over
//!   attached files is not atomic in WAL mode.
//! - Check first and outside savepoints: rolling one back takes the raise back.
//! - Waiting for the writer is bounded by the connection's `busy_timeout`
//!   (rusqlite sets 5 s). Set it to the session's ttl or less. A process that is
//!   frozen inside its transaction holds the file until it goes on or dies;
//!   others get [`FenceError::Busy`], and nothing in SQLite can take the lock
//!   from it: keep transactions short and let no owner await anything in one.
//! - A commit has to reach the disk ((I8)): `synchronous = FULL` in WAL mode,
//!   `EXTRA` with a rollback journal that is deleted. Less is refused.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, ffi, params,
};

use super::error::FenceError;
use super::rule::{Refusal, check_set};
use super::target::{FenceTarget, Raising, unreached};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The version that [`install`] sets up.
pub const SCHEMA_VERSION: u32 = 1;

/// What [`install`] runs, for those who install by other means. Slot -1 stands for
/// the resource itself.
pub const SCHEMA_SQL: &str = "
    CREATE TABLE main.ringfence_schema (version INTEGER NOT NULL);
    INSERT INTO main.ringfence_schema VALUES (1);
    CREATE TABLE main.ringfence_marks (
        resource TEXT NOT NULL,
        slot INTEGER NOT NULL CHECK (slot >= -1),
        cluster BLOB NOT NULL CHECK (length(cluster) = 16),
        mark INTEGER NOT NULL CHECK (mark BETWEEN 1 AND 9007199254740991),
        PRIMARY KEY (resource, slot)
    ) STRICT, WITHOUT ROWID;";

const WHOLE_RESOURCE: i64 = -1;

/// SQLite counts a wait in an int of milliseconds.
const WAIT_MAX: Duration = Duration::from_millis(i32::MAX as u64);

/// Sets up the marks in the connection's main file. Does nothing where they
/// are already.
///
/// # Errors
/// [`FenceError::SchemaNewer`]; and what SQLite says, as when the connection is
/// inside a transaction.
pub fn install(connection: &Connection) -> Result<(), FenceError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    match known_schema(&transaction) {
        Ok(()) => return Ok(()),
        Err(FenceError::SchemaMissing) => transaction.execute_batch(SCHEMA_SQL)?,
        Err(other) => return Err(other),
    }
    Ok(transaction.commit()?)
}

/// Checks the fence and raises the marks inside the caller's own transaction,
/// which holds the file's write lock from here to its end. Call it before the
/// write; after an error roll the transaction back.
///
/// # Errors
/// [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
/// [`FenceError::ForeignCluster`]; [`FenceError::NoTransaction`] in autocommit;
/// [`FenceError::NotDurable`]; [`FenceError::SchemaMissing`] and
/// [`FenceError::SchemaNewer`]; [`FenceError::Busy`], and
/// [`FenceError::Conflict`] in a deferred transaction that read before others
/// wrote.
pub fn check(transaction: &Connection, fence: &Fence) -> Result<(), FenceError> {
    if transaction.is_autocommit() {
        return Err(FenceError::NoTransaction);
    }
    durable(transaction)?;
    known_schema(transaction)?;
    if fence.floor > fence.token {
        return Err(FenceError::refused(fence, Refusal::FloorAboveToken));
    }
    raise_mark(transaction, fence, WHOLE_RESOURCE, fence.floor)?;
    match fence.slot {
        Some(slot) => raise_mark(transaction, fence, i64::from(slot), fence.token),
        None => Ok(()),
    }
}

/// Opens an immediate transaction, checks the fence, runs `write` in it and
/// commits; any error rolls everything back, the raise included.
///
/// # Errors
/// As [`check`], and what `write` or the commit says.
pub fn guarded<T>(
    connection: &mut Connection,
    fence: &Fence,
    write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<T, FenceError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check(&transaction, fence)?;
    let written = write(&transaction)?;
    transaction.commit()?;
    Ok(written)
}

/// Raises the marks without a write: from its return on, no earlier owner's
/// write commits.
///
/// # Errors
/// As [`check`].
pub fn raise(connection: &mut Connection, fence: &Fence) -> Result<(), FenceError> {
    guarded(connection, fence, |_| Ok(()))
}

/// As [`raise`], for all resources of a set: their marks are raised, or none.
///
/// # Errors
/// As [`check`]; [`FenceError::Set`] for none, or a resource that is named twice.
pub fn raise_set(connection: &mut Connection, fences: &[Fence]) -> Result<(), FenceError> {
    check_set(fences)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for fence in fences {
        check(&transaction, fence)?;
    }
    Ok(transaction.commit()?)
}

/// A file as strict handoff raises it: over a connection of its own each time, which syncs
/// whatever others have set.
#[derive(Debug, Clone)]
pub struct Target {
    path: PathBuf,
    name: String,
}

impl Target {
    /// The file must be there when it is raised: one that is made anew protects nothing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { name: format!("sqlite {}", path.display()), path }
    }

    fn connect(&self, wait: Duration) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        // Of this connection only. In each journal mode it is enough.
        connection.pragma_update(None, "synchronous", "EXTRA")?;
        connection.busy_timeout(wait.min(WAIT_MAX))?;
        Ok(connection)
    }
}

impl FenceTarget for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        let (target, fences) = (self.clone(), fences.to_vec());
        Box::pin(async move {
            let raised = tokio::task::spawn_blocking(move || {
                let connected = target.connect(within);
                raise_set(&mut connected.map_err(|error| unreached(&error))?, &fences)
            });
            raised.await.map_err(|gone| FenceError::Store(Box::new(gone)))?
        })
    }
}

/// The mark of a resource, or of one of its slots.
///
/// # Errors
/// [`FenceError::SchemaMissing`] and [`FenceError::SchemaNewer`].
pub fn mark(
    connection: &Connection,
    resource: &ResourceName,
    slot: Option<u32>,
) -> Result<Option<Token>, FenceError> {
    known_schema(connection)?;
    let slot = slot.map_or(WHOLE_RESOURCE, i64::from);
    Ok(stored(connection, resource, slot)?.map(|(_, mark)| mark))
}

/// Takes the marks of authority `from` over for authority `to`, as after a
/// restore; returns how many changed hands. No mark falls.
///
/// # Errors
/// [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`] and
/// [`FenceError::Busy`].
pub fn adopt(connection: &Connection, from: ClusterId, to: ClusterId) -> Result<usize, FenceError> {
    known_schema(connection)?;
    let sql = "UPDATE main.ringfence_marks SET cluster = ?2 WHERE cluster = ?1";
    Ok(connection.execute(sql, params![from.as_bytes(), to.as_bytes()])?)
}

/// The guard: one statement that compares, raises and takes the write lock.
fn raise_mark(
    transaction: &Connection,
    fence: &Fence,
    slot: i64,
    to: Token,
) -> Result<(), FenceError> {
    let mut guard = transaction.prepare_cached(
        "INSERT INTO main.ringfence_marks (resource, slot, cluster, mark) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (resource, slot) DO UPDATE SET mark = max(mark, excluded.mark)
         WHERE cluster = excluded.cluster AND mark <= ?5",
    )?;
    let raised = guard.execute(params![
        fence.resource.as_str(),
        slot,
        fence.cluster.as_bytes(),
        to.get().cast_signed(),
        fence.token.get().cast_signed(),
    ])?;
    if raised == 1 {
        return Ok(());
    }
    let (known, mark) = stored(transaction, &fence.resource, slot)?
        .expect("a guard that inserted nothing met a row, and the write lock keeps it");
    Err(FenceError::refused(
        fence,
        if known == fence.cluster {
            Refusal::Stale { mark, slot: u32::try_from(slot).ok() }
        } else {
            Refusal::ForeignCluster { known }
        },
    ))
}

fn stored(
    connection: &Connection,
    resource: &ResourceName,
    slot: i64,
) -> Result<Option<(ClusterId, Token)>, FenceError> {
    let mut select = connection.prepare_cached(
        "SELECT cluster, mark FROM main.ringfence_marks WHERE resource = ?1 AND slot = ?2",
    )?;
    let row: Option<([u8; 16], i64)> = select
        .query_row(params![resource.as_str(), slot], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(cluster, mark)| match Token::new(mark.cast_unsigned()) {
        Ok(mark) => Ok((ClusterId::new(cluster), mark)),
        Err(invalid) => Err(FenceError::Store(Box::new(invalid))),
    })
    .transpose()
}

/// Refuses marks that are missing or of another version.
fn known_schema(connection: &Connection) -> Result<(), FenceError> {
    let found = connection
        .prepare_cached("SELECT version FROM main.ringfence_schema")
        .and_then(|mut select| select.query_row([], |row| row.get(0)));
    match found {
        Ok(SCHEMA_VERSION) => Ok(()),
        Ok(found) if found > SCHEMA_VERSION => {
            Err(FenceError::SchemaNewer { found, known: SCHEMA_VERSION })
        }
        Ok(_) => Err(FenceError::SchemaMissing),
        Err(error) if error.to_string().contains("no such table: main.ringfence_schema") => {
            Err(FenceError::SchemaMissing)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses settings under which a commit that was answered can be lost with the
/// power. They cannot be changed inside a transaction.
/// Source: <https://sqlite.org/pragma.html#pragma_synchronous>.
fn durable(connection: &Connection) -> Result<(), FenceError> {
    const FULL: u32 = 2;
    const EXTRA: u32 = 3;
    let synchronous: u32 = setting(connection, "PRAGMA main.synchronous")?;
    let journal: String = setting(connection, "PRAGMA main.journal_mode")?;
    let needed = match journal.as_str() {
        "wal" | "truncate" | "persist" => FULL,
        // The deletion of the journal is the commit, and only EXTRA syncs it.
        "delete" => EXTRA,
        _ => {
            let setting = format!("journal_mode is {journal}; use WAL and a file");
            return Err(FenceError::NotDurable { setting });
        }
    };
    if synchronous >= needed {
        return Ok(());
    }
    let name = if needed == FULL { "FULL" } else { "EXTRA" };
    let setting = format!("PRAGMA synchronous is {synchronous}; {journal} mode needs {name}");
    Err(FenceError::NotDurable { setting })
}

fn setting<T: rusqlite::types::FromSql>(
    connection: &Connection,
    pragma: &str,
) -> rusqlite::Result<T> {
    connection.prepare_cached(pragma)?.query_row([], |row| row.get(0))
}

impl From<rusqlite::Error> for FenceError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error() {
            // Waiting cannot help a transaction whose snapshot is behind.
            Some(sqlite) if sqlite.extended_code == ffi::SQLITE_BUSY_SNAPSHOT => {
                Self::Conflict(Box::new(error))
            }
            Some(sqlite)
                if matches!(
                    sqlite.code,
                    rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked
                ) =>
            {
                Self::Busy(Box::new(error))
            }
            Some(_) | None => Self::Store(Box::new(error)),
        }
    }
}
