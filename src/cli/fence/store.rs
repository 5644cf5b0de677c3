//! The stores that `ringfence fence` reaches, as an application would.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Conn, Opts};
use redis::aio::MultiplexedConnection;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio_postgres::{Client, NoTls};

use super::super::exit::{Exit, Failure};
use crate::fence::redis::{Durability, Marks};
use crate::fence::{Fence, FenceError, mysql, postgres, sqlite};
use crate::locks::{ResourceName, Token};

/// Where marks are. May hold a password: it is never printed.
#[derive(Clone)]
pub enum Store {
    /// A connection string.
    Postgres(String),
    /// A URL.
    Mysql(String),
    /// A URL.
    Redis(String),
    /// A file that is there.
    Sqlite(PathBuf),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store(…)")
    }
}

/// Reads what stands for a store.
///
/// # Errors
/// Which forms there are.
pub fn parsed(text: &str) -> Result<Store, String> {
    if let Some(path) = text.strip_prefix("sqlite:") {
        return Ok(Store::Sqlite(path.into()));
    }
    match text.split_once("://").map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => Ok(Store::Postgres(text.to_owned())),
        Some("mysql" | "mariadb") => Ok(Store::Mysql(text.to_owned())),
        Some("redis" | "redis+unix" | "unix") => Ok(Store::Redis(text.to_owned())),
        Some(_) | None => Err("say postgres://…, mysql://…, redis://…, redis+unix:///path or \
             sqlite:path"
            .to_owned()),
    }
}

/// Sets up the marks. What it returns is to be told: the store is not as durable as it
/// could be.
///
/// # Errors
/// As the adapters say.
pub async fn install(store: &Store, tag: &str) -> Result<Option<String>, Failure> {
    match store {
        Store::Postgres(url) => postgres::install(&connect(url).await?).await?,
        Store::Mysql(url) => mysql::install(&mut mysql(url).await?).await?,
        Store::Sqlite(path) => sqlite::install(&open(path, Duration::from_secs(10))?)?,
        Store::Redis(url) => {
            let (marks, mut connection) = (Marks::new(tag)?, redis(url).await?);
            marks.install(&mut connection).await?;
            return Ok(warning(marks.durability(&mut connection).await?));
        }
    }
    Ok(None)
}

fn warning(durability: Durability) -> Option<String> {
    let loses = match durability {
        Durability::EveryWrite => return None,
        Durability::Seconds => "a power loss can take the last seconds",
        Durability::Snapshots => "a crash takes everything since the last snapshot",
        Durability::Unknown => "the server does not tell its appendfsync, so a mark may fall",
    };
    Some(format!("{loses}: marks are durable with appendonly yes and appendfsync always only"))
}

/// Raises the marks of all fences, or of none.
///
/// # Errors
/// As the adapters say.
pub async fn raise(
    store: &Store,
    tag: &str,
    fences: &[Fence],
    wait: Duration,
) -> Result<(), Failure> {
    match store {
        Store::Postgres(url) => {
            let mut client = connect(url).await?;
            let transaction = client.transaction().await.map_err(FenceError::from)?;
            postgres::bound(&transaction, wait).await?;
            for fence in fences {
                postgres::check(&transaction, fence).await?;
            }
            transaction.commit().await.map_err(FenceError::from)?;
        }
        Store::Mysql(url) => mysql::raise(&mut mysql(url).await?, fences, wait).await?,
        Store::Sqlite(path) => {
            let mut connection = open(path, wait)?;
            let immediate = TransactionBehavior::Immediate;
            let transaction =
                connection.transaction_with_behavior(immediate).map_err(FenceError::from)?;
            for fence in fences {
                sqlite::check(&transaction, fence)?;
            }
            transaction.commit().map_err(FenceError::from)?;
        }
        Store::Redis(url) => {
            Marks::new(tag)?.raise(&mut redis(url).await?, fences).await?;
        }
    }
    Ok(())
}

/// The mark of a resource or of its slot.
///
/// # Errors
/// As the adapters say.
pub async fn mark(
    store: &Store,
    tag: &str,
    resource: &ResourceName,
    slot: Option<u32>,
) -> Result<Option<Token>, Failure> {
    Ok(match store {
        Store::Postgres(url) => postgres::mark(&connect(url).await?, resource, slot).await?,
        Store::Mysql(url) => mysql::mark(&mut mysql(url).await?, resource, slot).await?,
        Store::Sqlite(path) => sqlite::mark(&open(path, Duration::from_secs(10))?, resource, slot)?,
        Store::Redis(url) => Marks::new(tag)?.mark(&mut redis(url).await?, resource, slot).await?,
    })
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.map_err(|error| unreachable(&error))?;
    // It ends with its client; what failed is seen by the client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

async fn mysql(url: &str) -> Result<Conn, Failure> {
    // The driver knows one of the two names.
    let url =
        url.strip_prefix("mariadb").map_or_else(|| url.to_owned(), |rest| format!("mysql{rest}"));
    let opts = Opts::from_url(&url)
        .map_err(|error| Failure::new(Exit::Usage, format!("the store's address: {error}")))?;
    // This driver's word includes why.
    let unreachable = |error| format!("the store cannot be reached: {error}");
    Conn::new(opts).await.map_err(|error| Failure::new(Exit::Unreachable, unreachable(error)))
}

async fn redis(url: &str) -> Result<MultiplexedConnection, Failure> {
    let client = redis::Client::open(url)
        .map_err(|error| Failure::new(Exit::Usage, format!("the store's address: {error}")))?;
    client.get_multiplexed_async_connection().await.map_err(|error| unreachable(&error))
}

/// A file that is not there would be one that protects nothing.
fn open(path: &PathBuf, wait: Duration) -> Result<Connection, Failure> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|error| unreachable(&error))?;
    // Of this connection only. In each journal mode it is enough.
    let set = connection
        .pragma_update(None, "synchronous", "EXTRA")
        .and_then(|()| connection.busy_timeout(wait));
    set.map_err(|error| unreachable(&error))?;
    Ok(connection)
}

fn unreachable(error: &dyn std::error::Error) -> Failure {
    // The drivers' first word is often no more than that it failed.
    let why = error.source().map_or_else(String::new, |source| format!(": {source}"));
    Failure::new(Exit::Unreachable, format!("the store cannot be reached: {error}{why}"))
}
