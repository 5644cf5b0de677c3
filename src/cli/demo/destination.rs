//! What the workers write to: two tables alike, one behind the fence and one, for
//! comparison, without.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use rusqlite::{Connection, OptionalExtension, params};
use tokio_postgres::NoTls;

use crate::fence::{FenceError, postgres, sqlite};
use crate::locks::{Fence, ResourceName, Token};

/// How long a write may hold the mark, and a raise may wait for it.
const HOLD: Duration = Duration::from_secs(10);

/// A store, opened by its name: `sqlite:<file>` or `postgres:<connection>`.
pub enum Destination {
    /// A file.
    Sqlite(Connection),
    /// A server.
    Postgres(tokio_postgres::Client),
}

/// One of the two tables.
#[derive(Debug, Clone, Copy)]
pub enum Table {
    /// Every write passes the check.
    Guarded,
    /// No write does.
    Unguarded,
}

/// A job's result, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Who wrote it.
    pub worker: String,
    /// Under which token.
    pub token: u64,
    /// What.
    pub result: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { worker, token, result } = self;
        write!(f, "\"{result}\", by {worker} under token {token}")
    }
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Guarded => "results",
            Self::Unguarded => "results_unguarded",
        }
    }

    fn create(self) -> String {
        let name = self.name();
        format!(
            "CREATE TABLE {name} (job TEXT PRIMARY KEY, worker TEXT NOT NULL, \
             token BIGINT NOT NULL, result TEXT NOT NULL);"
        )
    }

    fn put(self) -> String {
        let name = self.name();
        format!(
            "INSERT INTO {name} (job, worker, token, result) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (job) DO UPDATE SET worker = excluded.worker, token = excluded.token, \
             result = excluded.result"
        )
    }

    fn get(self) -> String {
        format!("SELECT worker, token, result FROM {} WHERE job = $1", self.name())
    }
}

impl Destination {
    /// Connects.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open(name: &str) -> anyhow::Result<Self> {
        let (kind, at) = name.split_once(':').context("a destination is sqlite:… or postgres:…")?;
        match kind {
            "sqlite" => {
                let connection = Connection::open(at).with_context(|| format!("open {at}"))?;
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                connection.busy_timeout(HOLD)?;
                Ok(Self::Sqlite(connection))
            }
            "postgres" => {
                let (client, connection) = tokio_postgres::connect(at, NoTls).await?;
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        eprintln!("PostgreSQL: {error}");
                    }
                });
                Ok(Self::Postgres(client))
            }
            _ => anyhow::bail!("no destination is called {kind}"),
        }
    }

    /// Makes the marks and the two tables.
    ///
    /// # Errors
    /// What the store says.
    pub async fn set_up(&mut self) -> anyhow::Result<()> {
        let tables = Table::Guarded.create() + &Table::Unguarded.create();
        match self {
            Self::Sqlite(connection) => {
                sqlite::install(connection)?;
                connection.execute_batch(&tables)?;
            }
            Self::Postgres(client) => {
                postgres::install(client).await?;
                client.batch_execute(&tables).await?;
            }
        }
        Ok(())
    }

    /// Raises the mark: from its return on, no earlier owner's write is applied.
    ///
    /// # Errors
    /// See [`FenceError`].
    pub async fn raise(&mut self, fence: &Fence) -> Result<(), FenceError> {
        match self {
            Self::Sqlite(connection) => sqlite::raise(connection, fence),
            Self::Postgres(client) => postgres::raise(client, fence, HOLD).await,
        }
    }

    /// Checks the fence and writes the row, in one transaction.
    ///
    /// # Errors
    /// See [`FenceError`].
    pub async fn publish(&mut self, fence: &Fence, row: &Row) -> Result<(), FenceError> {
        let put = Table::Guarded.put();
        let job = fence.resource.as_str();
        let token = row.token.cast_signed();
        match self {
            Self::Sqlite(connection) => sqlite::guarded(connection, fence, |transaction| {
                transaction.execute(&put, params![job, row.worker, token, row.result]).map(drop)
            }),
            Self::Postgres(client) => {
                let transaction = postgres::begin(client, fence, HOLD).await?;
                transaction.execute(&put, &[&job, &row.worker, &token, &row.result]).await?;
                Ok(transaction.commit().await?)
            }
        }
    }

    /// Writes the row to the table that has no fence: what the fence is for.
    ///
    /// # Errors
    /// What the store says.
    pub async fn publish_unguarded(&mut self, job: &str, row: &Row) -> anyhow::Result<()> {
        let put = Table::Unguarded.put();
        let token = row.token.cast_signed();
        match self {
            Self::Sqlite(connection) => {
                connection.execute(&put, params![job, row.worker, token, row.result])?;
            }
            Self::Postgres(client) => {
                client.execute(&put, &[&job, &row.worker, &token, &row.result]).await?;
            }
        }
        Ok(())
    }

    /// A job's row.
    ///
    /// # Errors
    /// What the store says.
    pub async fn row(&self, table: Table, job: &str) -> anyhow::Result<Option<Row>> {
        let get = table.get();
        let found: Option<(String, i64, String)> = match self {
            Self::Sqlite(connection) => connection
                .query_row(&get, [job], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?,
            Self::Postgres(client) => match client.query_opt(&get, &[&job]).await? {
                Some(row) => Some((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)),
                None => None,
            },
        };
        Ok(found.map(|(worker, token, result)| Row {
            worker,
            token: token.cast_unsigned(),
            result,
        }))
    }

    /// A resource's mark.
    ///
    /// # Errors
    /// See [`FenceError`].
    pub async fn mark(&self, resource: &ResourceName) -> Result<Option<Token>, FenceError> {
        match self {
            Self::Sqlite(connection) => sqlite::mark(connection, resource, None),
            Self::Postgres(client) => postgres::mark(client, resource, None).await,
        }
    }
}
