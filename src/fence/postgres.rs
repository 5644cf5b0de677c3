//! Marks in the same PostgreSQL database as what they protect.
//!
//! [`check`] calls `ringfence.check_fence` inside the caller's own transaction:
//! it compares, raises and locks the mark until the transaction ends, or raises
//! an SQL error, so that a caller who ignores the answer still cannot commit.
//! It holds in READ COMMITTED, REPEATABLE READ and SERIALIZABLE; in the latter
//! two a raise since the transaction's snapshot is [`FenceError::Conflict`]: run
//! the whole transaction again, it will then be refused or go through.
//!
//! - Check before the write, and outside savepoints: rolling one back gives the
//!   mark's lock back. Several resources: in name order.
//! - A check in autocommit protects nothing, and PostgreSQL cannot tell: that is
//!   why [`check`] takes a transaction.
//! - A frozen owner inside its transaction holds the mark. [`begin`] and
//!   [`bound`] let the server end such a transaction. They do not end one that
//!   blocks while it is sent a large result: fetch those before the check.
//! - PgBouncer in transaction mode works as it is: nothing here is session state,
//!   and statements are unnamed. Let the caller's own statements be unnamed too
//!   (`query_typed`), or set its `max_prepared_statements` (1.21 and later).
//! - A statement that forgets the check is refused where a trigger asks for it:
//!   [`guard_table`].
//! - Leave `fsync` and `full_page_writes` on: no setting of a session can make
//!   up for them.

mod guard;

use std::time::Duration;

use tokio_postgres::config::Host;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, GenericClient, IsolationLevel, NoTls, Transaction};

use super::error::FenceError;
use super::rule::check_set;
use super::target::{FenceTarget, Raising, unreached};
use crate::locks::{ClusterId, Fence, ResourceName, Token};
pub use guard::{guard_table, unguard_table};

/// The version that [`SCHEMA_SQL`] sets up.
pub const SCHEMA_VERSION: u32 = 1;

/// What [`install`] runs and `ringfence fence sql` prints: idempotent, one
/// transaction. Everything is in the schema `ringfence`, whatever `search_path`.
pub const SCHEMA_SQL: &str = include_str!("postgres.sql");

/// Sets up the marks. Does nothing where they are already.
///
/// # Errors
/// [`FenceError::SchemaNewer`]; and what PostgreSQL says, as when the role may
/// not create a schema.
pub async fn install(client: &Client) -> Result<(), FenceError> {
    let Err(error) = client.batch_execute(SCHEMA_SQL).await else { return Ok(()) };
    // The script's own transaction is still open, and aborted. If the connection
    // is gone, the first error says so.
    let _ = client.batch_execute("ROLLBACK").await;
    Err(error.into())
}

const CHECK: &str = "ringfence.check_fence($1::uuid, $2, $3, $4, $5, $6)";

/// Checks the fence and raises the marks inside the caller's own transaction,
/// which holds them from here to its end. Call it before the write. An error has
/// aborted the transaction.
///
/// # Errors
/// [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
/// [`FenceError::ForeignCluster`], [`FenceError::SchemaMissing`],
/// [`FenceError::SchemaNewer`], [`FenceError::Conflict`], [`FenceError::Busy`]
/// when a timeout of the transaction ended the wait, and what PostgreSQL says.
pub async fn check(transaction: &Transaction<'_>, fence: &Fence) -> Result<(), FenceError> {
    check_in(transaction, fence).await
}

/// The same in a transaction that was begun by hand.
pub(super) async fn check_in(
    transaction: &(impl GenericClient + Sync),
    fence: &Fence,
) -> Result<(), FenceError> {
    checked_by(transaction, &format!("SELECT {CHECK}"), fence).await
}

async fn checked_by(
    transaction: &(impl GenericClient + Sync),
    call: &str,
    fence: &Fence,
) -> Result<(), FenceError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 6] = [
        (&fence.cluster.to_string(), Type::TEXT),
        (&fence.resource.as_str(), Type::TEXT),
        (&fence.slot.map(i64::from), Type::INT8),
        (&fence.token.get().cast_signed(), Type::INT8),
        (&fence.floor.get().cast_signed(), Type::INT8),
        (&SCHEMA_VERSION.cast_signed(), Type::INT4),
    ];
    transaction.query_typed(call, &parameters).await.map(drop).map_err(from_call)
}

/// Bounds the rest of this transaction: a wait for a lock, a statement, and the
/// time between two statements last at most `hold` each; then PostgreSQL aborts
/// the transaction and others get the mark. The session's ttl is a good `hold`.
/// Settings of other transactions are not touched.
///
/// # Errors
/// What PostgreSQL says.
pub async fn bound(transaction: &Transaction<'_>, hold: Duration) -> Result<(), FenceError> {
    Ok(transaction.batch_execute(&format!("SELECT {}", bounds(hold))).await?)
}

fn bounds(hold: Duration) -> String {
    // 0 would mean no bound, and more than an integer of milliseconds is refused.
    let ms = hold.as_millis().clamp(1, 2_147_483_647);
    format!(
        "set_config('lock_timeout', '{ms}', true), set_config('statement_timeout', '{ms}', true), \
         set_config('idle_in_transaction_session_timeout', '{ms}', true)"
    )
}

/// Begins a transaction that is bounded by `hold` and has passed the check: what
/// is left is to write and to commit.
///
/// # Errors
/// As [`bound`] and [`check`].
pub async fn begin<'a>(
    client: &'a mut Client,
    fence: &Fence,
    hold: Duration,
) -> Result<Transaction<'a>, FenceError> {
    let transaction = client.transaction().await?;
    // One statement: the lists of a SELECT are evaluated in order, and a wait for a lock looks
    // at its bound when it begins.
    let call = format!("SELECT {}, {CHECK}", bounds(hold));
    checked_by(&transaction, &call, fence).await?;
    Ok(transaction)
}

/// Raises the marks without a write: from its return on, no earlier owner's
/// write commits. Waits up to `wait` for writes that are past their check; the
/// commit takes as long as the disk (and the synchronous standby) does. Safe to
/// repeat.
///
/// # Errors
/// As [`check`]; [`FenceError::Busy`] after `wait`.
pub async fn raise(client: &mut Client, fence: &Fence, wait: Duration) -> Result<(), FenceError> {
    raise_set(client, std::slice::from_ref(fence), wait).await
}

/// As [`raise`], for all resources of a set: their marks are raised, or none.
///
/// # Errors
/// As [`raise`]; [`FenceError::Set`] for none, or a resource that is named twice.
pub async fn raise_set(
    client: &mut Client,
    fences: &[Fence],
    wait: Duration,
) -> Result<(), FenceError> {
    check_set(fences)?;
    let mut fences: Vec<&Fence> = fences.iter().collect();
    fences.sort_by(|one, other| one.resource.cmp(&other.resource));
    // Of its own: there is nothing to see in an older snapshot but a conflict.
    let isolation = IsolationLevel::ReadCommitted;
    let transaction = client.build_transaction().isolation_level(isolation).start().await?;
    bound(&transaction, wait).await?;
    for fence in fences {
        check(&transaction, fence).await?;
    }
    Ok(transaction.commit().await?)
}

/// A database as strict handoff raises it: over a connection of its own each time, without
/// TLS. For other ways to connect there is [`target`](super::target::target).
#[derive(Debug, Clone)]
pub struct Target {
    config: Config,
    name: String,
}

impl Target {
    /// Called by its hosts and its database.
    pub fn new(config: Config) -> Self {
        let hosts = config.get_hosts().iter().map(|host| match host {
            Host::Tcp(host) => host.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        Self { name: format!("postgres {hosts}/{database}"), config }
    }
}

impl FenceTarget for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        Box::pin(async move {
            let connected = self.config.connect(NoTls).await;
            let (mut client, connection) = connected.map_err(|error| unreached(&error))?;
            // It ends with its client; what failed is seen by the client.
            tokio::spawn(async move { drop(connection.await) });
            raise_set(&mut client, fences, within).await
        })
    }
}

/// The mark of a resource, or of one of its slots.
///
/// # Errors
/// [`FenceError::SchemaMissing`], and what PostgreSQL says.
pub async fn mark(
    client: &(impl GenericClient + Sync),
    resource: &ResourceName,
    slot: Option<u32>,
) -> Result<Option<Token>, FenceError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&resource.as_str(), Type::TEXT), (&slot.map(i64::from), Type::INT8)];
    let row = client
        .query_typed_one("SELECT ringfence.mark($1, $2)", &parameters)
        .await
        .map_err(from_call)?;
    let mark: Option<i64> = row.try_get(0)?;
    mark.map(|mark| Token::new(mark.cast_unsigned())).transpose().map_err(store)
}

/// Takes the marks of authority `from` over for authority `to`, as after a
/// restore; returns how many changed hands. No mark falls. For the owner of the
/// schema.
///
/// # Errors
/// [`FenceError::SchemaMissing`], and what PostgreSQL says.
pub async fn adopt(client: &Client, from: ClusterId, to: ClusterId) -> Result<u64, FenceError> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&from.to_string(), Type::TEXT), (&to.to_string(), Type::TEXT)];
    let row = client
        .query_typed_one("SELECT ringfence.adopt($1::uuid, $2::uuid)", &parameters)
        .await
        .map_err(from_call)?;
    Ok(row.try_get::<_, i64>(0)?.cast_unsigned())
}

/// Only in answer to our own call do these codes speak of our schema.
fn from_call(error: tokio_postgres::Error) -> FenceError {
    match error.code() {
        Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION) => {
            FenceError::SchemaMissing
        }
        Some(&SqlState::QUERY_CANCELED) => FenceError::Busy(Box::new(error)),
        Some(_) | None => error.into(),
    }
}

/// Knows the fence's SQLSTATEs wherever they surface, such as from a stored
/// procedure that checks.
impl From<tokio_postgres::Error> for FenceError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refused) = error.as_db_error().and_then(refused) {
            return refused;
        }
        match error.code() {
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
                Self::Conflict(Box::new(error))
            }
            Some(&SqlState::LOCK_NOT_AVAILABLE) => Self::Busy(Box::new(error)),
            Some(_) | None => store(error),
        }
    }
}

fn store(error: impl std::error::Error + Send + Sync + 'static) -> FenceError {
    FenceError::Store(Box::new(error))
}

/// Reads the answers RF001, RF002, RF003, RF005 and RF006 of `postgres.sql`.
fn refused(error: &DbError) -> Option<FenceError> {
    let detail = Detail::of(error)?;
    match error.code().code() {
        "RF001" => Some(FenceError::Stale {
            resource: detail.resource()?,
            token: detail.token("token")?,
            mark: detail.token("mark")?,
            slot: detail.word("slot").and_then(|slot| slot.parse().ok()),
        }),
        "RF002" => Some(FenceError::FloorAboveToken {
            resource: detail.resource()?,
            token: detail.token("token")?,
            floor: detail.token("floor")?,
        }),
        "RF003" => Some(FenceError::ForeignCluster {
            resource: detail.resource()?,
            known: detail.cluster("known")?,
            offered: detail.cluster("offered")?,
        }),
        "RF006" => Some(FenceError::Unchecked { resource: detail.resource()? }),
        "RF005" => {
            let found = detail.word("found")?.parse().ok()?;
            let newer = found > SCHEMA_VERSION;
            let newer = newer.then_some(FenceError::SchemaNewer { found, known: SCHEMA_VERSION });
            Some(newer.unwrap_or(FenceError::SchemaMissing))
        }
        _ => None,
    }
}

/// `token=6 mark=7 slot=none resource=job/7`: the name last, for it may hold
/// spaces.
struct Detail<'a> {
    words: &'a str,
    resource: Option<&'a str>,
}

impl<'a> Detail<'a> {
    fn of(error: &'a DbError) -> Option<Self> {
        let detail = error.detail()?;
        Some(match detail.split_once("resource=") {
            Some((words, resource)) => Self { words, resource: Some(resource) },
            None => Self { words: detail, resource: None },
        })
    }

    fn word(&self, name: &str) -> Option<&'a str> {
        let mut words = self.words.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    fn token(&self, name: &str) -> Option<Token> {
        Token::new(self.word(name)?.parse().ok()?).ok()
    }

    fn cluster(&self, name: &str) -> Option<ClusterId> {
        ClusterId::from_hex(&self.word(name)?.replace('-', "")).ok()
    }

    fn resource(&self) -> Option<ResourceName> {
        ResourceName::new(self.resource?).ok()
    }
}
