//! Marks in the same MySQL or MariaDB database as what they protect.
//!
//! [`check`] calls `ringfence_check_fence` inside the caller's own transaction: it
//! locks the mark until the transaction ends, compares and raises. It holds in READ
//! COMMITTED, REPEATABLE READ and SERIALIZABLE. The tests run on MariaDB; MySQL (8.0.29
//! and later) is given the same statements, save for the names of some settings.
//!
//! **An error ends no transaction here.** Whoever goes on after one commits what was not
//! checked. Where the server rolls back for itself, as in a deadlock, nothing has checked
//! what follows, and in autocommit each statement of it is committed at once. So:
//!
//! - A check that fails rolls back and makes the session `READ ONLY`: a caller in any
//!   language who goes on in spite of it writes nothing. [`check`] takes the transaction,
//!   gives it back only if it may write, and opens the session again.
//! - [`guarded`] commits the transaction that has passed the check or none, whatever
//!   errors the caller kept to itself (in SQL: `autocommit = 0` and
//!   `CALL ringfence_commit()`). With [`check`] and [`begin`] this is up to the caller:
//!   after an error of any statement, drop the transaction.
//! - What shuts a session is the call. If it cannot be called (no such procedure, no
//!   right to it), only `ringfence_commit` and this module stop who goes on.
//!
//! More:
//!
//! - Check before the write, before the first plain `SELECT` (its snapshot would be older
//!   than the wait for the mark) and outside savepoints: rolling back to one takes the
//!   mark back.
//! - A frozen owner inside its transaction holds the mark. [`bound`] lets the server end
//!   such a transaction, in whole seconds.
//! - `innodb_flush_log_at_trx_commit` has to be 1, with a binary log `sync_binlog` too,
//!   and the marks' table InnoDB: else [`FenceError::NotDurable`]. Leave
//!   `innodb_doublewrite` on; nothing here asks for it.
//! - Row locks are those of one server. With several that are written to (Galera, group
//!   replication with many primaries) nothing holds: send all fenced writes to one.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, Params, ServerError, Transaction, TxOpts};

use super::error::FenceError;
use super::rule::{Refusal, check_set};
use super::target::{FenceTarget, Raising, unreached};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The version that [`SCHEMA_SQL`] sets up.
pub const SCHEMA_VERSION: u32 = 1;

/// What [`install`] runs and `ringfence fence sql --mysql` prints, for the clients `mysql`
/// and `mariadb`. Everything begins with `ringfence_`, in the connection's database.
pub const SCHEMA_SQL: &str = include_str!("mysql.sql");

/// A statement that puts back what [`bound`] and [`guarded`] change.
const AS_BEFORE: &str = "SELECT CONCAT(
    'SET SESSION innodb_lock_wait_timeout = ', @@SESSION.innodb_lock_wait_timeout,
    ', SESSION autocommit = ', @@SESSION.autocommit,
    /*M! ', SESSION max_statement_time = ', @@SESSION.max_statement_time,
    ', SESSION idle_transaction_timeout = ', @@SESSION.idle_transaction_timeout,
    ', SESSION tx_read_only = ', @@SESSION.tx_read_only */
    /*!80000 ', SESSION max_execution_time = ', @@SESSION.max_execution_time,
    ', SESSION wait_timeout = ', @@SESSION.wait_timeout,
    ', SESSION transaction_read_only = ', @@SESSION.transaction_read_only */)";

/// Outside an explicit transaction: nothing is written, and nothing commits by itself.
const SHUT: &str = "SET SESSION autocommit = 0,
    SESSION /*M! tx_read_only */ /*!80000 transaction_read_only */ = 1";

/// A commit is not cut short, so that its answer is one.
const UNTIMED: &str = "SET @ringfence_shut = NULL /*M! , SESSION max_statement_time = 0 */";

/// Sets up the marks in the connection's database. Does nothing where they are already.
///
/// # Errors
/// [`FenceError::SchemaNewer`]; [`FenceError::NotDurable`]; and what the server says, as
/// when the user may not create a procedure.
pub async fn install(conn: &mut Conn) -> Result<(), FenceError> {
    match ready(conn).await {
        Err(FenceError::SchemaMissing) => {}
        answer => return answer,
    }
    let (_, statements) = SCHEMA_SQL.split_once("DELIMITER $$").expect("the file says so");
    for statement in statements.split("$$").map(str::trim) {
        if !statement.is_empty() && statement != "DELIMITER ;" {
            conn.query_drop(statement).await?;
        }
    }
    ready(conn).await
}

/// Checks the fences of one grant and raises the marks inside the caller's own
/// transaction, which holds them from here to its end. The fences may be in any order,
/// each of another resource. An error has rolled the transaction back.
///
/// It does not ask for the table's engine: [`ready`] does, once for each connection.
///
/// # Errors
/// [`FenceError::Set`], [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
/// [`FenceError::ForeignCluster`], [`FenceError::NoTransaction`] where an error or a
/// statement has ended the transaction, [`FenceError::NotDurable`],
/// [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`], [`FenceError::Conflict`],
/// [`FenceError::Busy`] when a timeout ended the wait, and what the server says.
pub async fn check<'a>(
    mut transaction: Transaction<'a>,
    fences: &[Fence],
) -> Result<Transaction<'a>, FenceError> {
    match in_order(&mut transaction, fences).await {
        Ok(()) => Ok(transaction),
        Err(refused) => {
            // Rolled back first, in the order that leaves nothing open in between. A
            // connection that fails in this is gone, or stays shut.
            if transaction.query_drop("ROLLBACK").await.is_ok() {
                let _ = reopen(&mut transaction).await;
            }
            let _ = transaction.rollback().await;
            Err(refused)
        }
    }
}

/// Whether marks hold in this database: their version, their table's engine, and the
/// settings that they are as durable by. Outside a transaction.
///
/// # Errors
/// [`FenceError::NotDurable`], [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`],
/// and what the server says.
pub async fn ready(conn: &mut Conn) -> Result<(), FenceError> {
    let call = conn.exec_drop("CALL ringfence_ready(?)", (SCHEMA_VERSION,));
    call.await.map_err(|error| from_call(None, error))
}

/// Bounds how long the transactions of this session hold a mark; it stays when they end.
/// The session's ttl is a good `hold`. In whole seconds, rounded up:
///
/// - a wait for a lock (and on MariaDB every statement, to the millisecond);
/// - the time between two statements: then the server closes the connection, which rolls
///   back. On MariaDB in a transaction, on MySQL always, for it knows `wait_timeout` only.
///
/// # Errors
/// What the server says.
pub async fn bound(session: &mut impl Queryable, hold: Duration) -> Result<(), FenceError> {
    // Neither 0, which would mean none, nor more than a year, which is refused.
    let hold = hold.clamp(Duration::from_millis(1), Duration::from_secs(31_536_000));
    let s = hold.as_secs() + u64::from(hold.subsec_nanos() > 0);
    let settings = format!(
        "SET SESSION innodb_lock_wait_timeout = {s}
         /*M! , SESSION max_statement_time = {}, SESSION idle_transaction_timeout = {s} */
         /*!80000 , SESSION max_execution_time = {}, SESSION wait_timeout = {s} */",
        hold.as_secs_f64(),
        hold.as_millis(),
    );
    Ok(session.query_drop(settings).await?)
}

/// Begins a transaction that is bounded by `hold` and has passed the check: what is left
/// is to write and to commit. The bounds stay with the session, as [`bound`] says. What is
/// open in it is committed, as by any `START TRANSACTION`.
///
/// # Errors
/// As [`ready`], [`bound`] and [`check`].
pub async fn begin<'a>(
    conn: &'a mut Conn,
    fences: &[Fence],
    hold: Duration,
) -> Result<Transaction<'a>, FenceError> {
    ready(conn).await?;
    bounded(conn, fences, hold).await
}

/// Checks the fences, runs `write` in a transaction that is bounded by `hold`, and
/// commits; any error rolls everything back, the raise included. Meanwhile the session has
/// no autocommit and is `READ ONLY` outside that transaction; then it is as it was.
///
/// Dropped before it returns, it leaves a connection that is of no use: drop that as well.
///
/// # Errors
/// As [`begin`], and what `write` or the commit says. [`FenceError::NoTransaction`] if
/// `write` has ended the transaction, by a statement that commits, or by an error that it
/// kept to itself; in the latter case nothing was written.
pub async fn guarded<T>(
    conn: &mut Conn,
    fences: &[Fence],
    hold: Duration,
    write: impl AsyncFnOnce(&mut Transaction<'_>) -> mysql_async::Result<T>,
) -> Result<T, FenceError> {
    let before: Option<String> = conn.query_first(AS_BEFORE).await?;
    let before = before.expect("a CONCAT of settings is a text");
    ready(conn).await?;
    let written = shut(conn, fences, hold, write).await;
    // The fate of what was written is decided. What is open besides must not be committed,
    // as autocommit does when it comes back; a connection that fails in this stays shut.
    if conn.query_drop("ROLLBACK").await.is_ok() {
        let _ = conn.query_drop(before).await;
    }
    written
}

/// Raises the marks without a write: from its return on, no earlier owner's write
/// commits. Waits for writes that are past their check, `wait` for each mark at the most,
/// as precisely as [`bound`] says; the commit takes as long as the disk does. Safe to
/// repeat.
///
/// # Errors
/// As [`guarded`]; [`FenceError::Busy`] after `wait`.
pub async fn raise(conn: &mut Conn, fences: &[Fence], wait: Duration) -> Result<(), FenceError> {
    guarded(conn, fences, wait, async |_: &mut Transaction<'_>| Ok(())).await
}

/// The mark of a resource, or of one of its slots.
///
/// # Errors
/// [`FenceError::SchemaMissing`], and what the server says.
pub async fn mark(
    session: &mut impl Queryable,
    resource: &ResourceName,
    slot: Option<u32>,
) -> Result<Option<Token>, FenceError> {
    let call = session.exec_first("CALL ringfence_mark(?, ?)", (resource.as_str(), slot));
    let mark: Option<u64> = call.await.map_err(|error| from_call(None, error))?;
    mark.map(Token::new).transpose().map_err(|invalid| FenceError::Store(Box::new(invalid)))
}

/// Takes the marks of authority `from` over for authority `to`, as after a restore;
/// returns how many changed hands. No mark falls. For the owner of the tables.
///
/// # Errors
/// [`FenceError::SchemaMissing`], and what the server says.
pub async fn adopt(conn: &mut Conn, from: ClusterId, to: ClusterId) -> Result<u64, FenceError> {
    let mut transaction = start(conn).await?;
    let names = (from.to_string(), to.to_string());
    let call = transaction.exec_first("CALL ringfence_adopt(?, ?)", names);
    let taken: Option<u64> = call.await.map_err(|error| from_call(None, error))?;
    transaction.commit().await?;
    Ok(taken.unwrap_or(0))
}

/// A database as strict handoff sees it: each raise connects for itself.
pub struct Target {
    name: String,
    opts: Opts,
}

impl Target {
    /// `name` is what errors and logs call it: not the URL, which may hold a password.
    pub fn new(name: impl Into<String>, opts: impl Into<Opts>) -> Self {
        Self { name: name.into(), opts: opts.into() }
    }
}

impl FenceTarget for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        let raising = async move {
            let connected = Conn::new(self.opts.clone()).await;
            let mut conn = connected.map_err(|error| unreached(&error))?;
            raise(&mut conn, fences, within).await?;
            // The marks are raised: it is no matter how the connection ends.
            let _ = conn.disconnect().await;
            Ok(())
        };
        // The server's own bounds are in seconds, and for each mark.
        Box::pin(async move {
            let over = |elapsed| FenceError::Busy(Box::new(elapsed));
            tokio::time::timeout(within, raising).await.map_err(over)?
        })
    }
}

/// One call for each fence: in name order, for two sets lock the same marks.
async fn in_order(transaction: &mut Transaction<'_>, fences: &[Fence]) -> Result<(), FenceError> {
    check_set(fences)?;
    let mut fences: Vec<&Fence> = fences.iter().collect();
    fences.sort_by(|one, other| one.resource.cmp(&other.resource));
    for fence in fences {
        let parameters = Params::from((
            fence.cluster.to_string(),
            fence.resource.as_str(),
            fence.slot,
            fence.token.get(),
            fence.floor.get(),
            SCHEMA_VERSION,
        ));
        let call = "CALL ringfence_check_fence(?, ?, ?, ?, ?, ?)";
        let called = transaction.exec_drop(call, parameters).await;
        called.map_err(|error| from_call(Some(fence), error))?;
    }
    Ok(())
}

/// Takes back what a refused check has done to the session, if it has.
async fn reopen(transaction: &mut Transaction<'_>) -> mysql_async::Result<()> {
    if transaction.query_first("SELECT @ringfence_shut").await? == Some(Some(1)) {
        transaction.query_drop("SET SESSION TRANSACTION READ WRITE").await?;
        transaction.query_drop("SET @ringfence_shut = NULL").await?;
    }
    Ok(())
}

/// Of a session that is `READ ONLY` otherwise, as that of a careful application.
async fn start(conn: &mut Conn) -> mysql_async::Result<Transaction<'_>> {
    let mut options = TxOpts::new();
    options.with_readonly(false);
    // Without autocommit one is open already. To begin another commits it, by definition.
    conn.query_drop("COMMIT").await?;
    conn.start_transaction(options).await
}

async fn bounded<'a>(
    conn: &'a mut Conn,
    fences: &[Fence],
    hold: Duration,
) -> Result<Transaction<'a>, FenceError> {
    let mut transaction = start(conn).await?;
    // Last: what is ended by it from here on is the wait for a mark.
    bound(&mut transaction, hold).await?;
    check(transaction, fences).await
}

/// Shuts the session but for a transaction that is checked, and commits that one or none.
async fn shut<T>(
    conn: &mut Conn,
    fences: &[Fence],
    hold: Duration,
    write: impl AsyncFnOnce(&mut Transaction<'_>) -> mysql_async::Result<T>,
) -> Result<T, FenceError> {
    conn.query_drop(SHUT).await?;
    let mut transaction = bounded(conn, fences, hold).await?;
    // Whoever returns early drops the transaction, which the next statement rolls back.
    let written = write(&mut transaction).await?;
    transaction.query_drop(UNTIMED).await?;
    // Set by the check: there for as long as the checked transaction is.
    match transaction.query_drop("RELEASE SAVEPOINT ringfence_checked").await {
        Err(Error::Server(ServerError { code: 1305, .. })) => {
            return Err(FenceError::NoTransaction);
        }
        released => released?,
    }
    transaction.commit().await?;
    Ok(written)
}

/// Reads the answers of `mysql.sql`. Only in answer to our own call do they, and what is
/// said of missing tables and procedures, speak of our schema.
fn from_call(fence: Option<&Fence>, error: Error) -> FenceError {
    let Error::Server(server) = &error else { return error.into() };
    let word = |name: &str| {
        let mut words = server.message.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let refusal = match (server.state.as_str(), server.code) {
        ("RF001", _) => word("mark").and_then(|mark| {
            let mark = Token::new(mark.parse().ok()?).ok()?;
            Some(Refusal::Stale { mark, slot: word("slot").and_then(|slot| slot.parse().ok()) })
        }),
        ("RF002", _) => Some(Refusal::FloorAboveToken),
        ("RF003", _) => word("known").and_then(|known| {
            Some(Refusal::ForeignCluster { known: ClusterId::from_hex(known).ok()? })
        }),
        ("RF005", _) => return version(word("found")),
        ("RF006", _) => return FenceError::NoTransaction,
        ("RF007", _) => return FenceError::NotDurable { setting: server.message.clone() },
        // No such procedure, no such table; a statement that its time has ended.
        (_, 1305 | 1146) => return FenceError::SchemaMissing,
        (_, 1317 | 1969 | 3024) => return FenceError::Busy(Box::new(error)),
        _ => None,
    };
    match fence.zip(refusal) {
        Some((fence, refusal)) => FenceError::refused(fence, refusal),
        None => error.into(),
    }
}

fn version(found: Option<&str>) -> FenceError {
    match found.and_then(|found| found.parse().ok()) {
        Some(found) if found > SCHEMA_VERSION => {
            FenceError::SchemaNewer { found, known: SCHEMA_VERSION }
        }
        Some(_) | None => FenceError::SchemaMissing,
    }
}

impl From<Error> for FenceError {
    fn from(error: Error) -> Self {
        match &error {
            // A deadlock; MariaDB: a row that has changed since the snapshot.
            Error::Server(ServerError { code: 1213 | 1020, .. }) => Self::Conflict(Box::new(error)),
            // Lock wait timeout, also with NOWAIT.
            Error::Server(ServerError { code: 1205 | 3572, .. }) => Self::Busy(Box::new(error)),
            Error::Server(_)
            | Error::Driver(_)
            | Error::Io(_)
            | Error::Other(_)
            | Error::Url(_) => Self::Store(Box::new(error)),
        }
    }
}
