//! The stores that `ringfence fence` reaches, as an application would.

use std::path::PathBuf;
use std::time::Duration;

use mysql_async::{Conn, Opts};
use redis::aio::MultiplexedConnection;
use rusqlite::{Connection, OpenFlags};
use tokio_postgres::{Client, NoTls};

use super::super::exit::{Exit, Failure};
use crate::fence::redis::{Durability, Marks};
use crate::fence::{Fence, FenceError, FenceTarget, mysql, postgres, sqlite};
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
    Ok(target(store, tag)?.raise(fences, wait).await?)
}

/// The store as strict handoff raises it.
///
/// # Errors
/// An address or a tag of another form.
pub fn target(store: &Store, tag: &str) -> Result<Box<dyn FenceTarget>, Failure> {
    let usage = |error: &dyn std::error::Error| {
        Failure::new(Exit::Usage, format!("the store's address: {error}"))
    };
    Ok(match store {
        Store::Postgres(url) => {
            Box::new(postgres::Target::new(url.parse().map_err(|error| usage(&error))?))
        }
        Store::Mysql(url) => {
            let opts = mysql_opts(url)?;
            let at = opts.socket().map_or_else(
                || format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port()),
                str::to_owned,
            );
            let database = opts.db_name().unwrap_or_default();
            Box::new(mysql::Target::new(format!("mysql {at}/{database}"), opts))
        }
        Store::Sqlite(path) => Box::new(sqlite::Target::new(path)),
        Store::Redis(url) => {
            let client = redis::Client::open(&**url).map_err(|error| usage(&error))?;
            Box::new(Marks::new(tag)?.target(client))
        }
    })
}

/// Guards a table by the resource of its rows and an epoch column; without them, takes the
/// guard off.
///
/// # Errors
/// [`Exit::Usage`] for a store that cannot, and for what makes no sense to it.
pub async fn guard(
    store: &Store,
    table: &str,
    terms: Option<(&str, Option<&str>)>,
) -> Result<(), Failure> {
    let Store::Postgres(url) = store else {
        return Err(Failure::new(Exit::Usage, "only tables of PostgreSQL can be guarded"));
    };
    let client = connect(url).await?;
    let done = match terms {
        Some((resource, epoch)) => postgres::guard_table(&client, table, resource, epoch).await,
        None => postgres::unguard_table(&client, table).await,
    };
    done.map_err(|error| match &error {
        // What the server itself said: of a table, a column or a right.
        FenceError::Store(source) if !client.is_closed() => {
            let said = source.downcast_ref::<tokio_postgres::Error>();
            let said = said.and_then(|error| error.as_db_error());
            let said = said.map_or_else(|| error.to_string(), |said| said.message().to_owned());
            Failure::new(Exit::Usage, said)
        }
        _ => error.into(),
    })
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

/// Whether it is the server that has said no, such as for want of a right: nothing was done.
pub fn refuses(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let postgres = error.downcast_ref::<tokio_postgres::Error>().and_then(|e| e.as_db_error());
    // Not that it shuts down (57), or lost a connection (08).
    let code = |error: &tokio_postgres::error::DbError| error.code().code()[..2].to_owned();
    let postgres = postgres.is_some_and(|error| !["57", "08"].contains(&&*code(error)));
    let redis = error.downcast_ref::<redis::RedisError>().is_some_and(|error| {
        use redis::{ErrorKind, ServerErrorKind};
        match error.kind() {
            ErrorKind::Extension => true,
            ErrorKind::Server(kind) => kind != ServerErrorKind::BusyLoading,
            _ => false,
        }
    });
    let mysql = error.downcast_ref::<mysql_async::Error>();
    let mysql = mysql.is_some_and(|error| matches!(error, mysql_async::Error::Server(_)));
    postgres || redis || mysql
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.map_err(|error| unreachable(&error))?;
    // It ends with its client; what failed is seen by the client.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

fn mysql_opts(url: &str) -> Result<Opts, Failure> {
    // The driver knows one of the two names.
    let url =
        url.strip_prefix("mariadb").map_or_else(|| url.to_owned(), |rest| format!("mysql{rest}"));
    Opts::from_url(&url)
        .map_err(|error| Failure::new(Exit::Usage, format!("the store's address: {error}")))
}

async fn mysql(url: &str) -> Result<Conn, Failure> {
    let opts = mysql_opts(url)?;
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
