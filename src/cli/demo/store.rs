//! What the workers write to: two tables alike, one behind the fence and one, for
//! comparison, without.

mod mariadb;
mod postgres;
mod redis;
mod sqlite;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context;

use crate::fence::FenceError;
use crate::locks::{Fence, ResourceName, Token};

/// How long a write may hold the mark, and a raise may wait for it.
const HOLD: Duration = Duration::from_secs(10);

/// A call under way.
pub type Call<'a, T, E = anyhow::Error> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// A store.
pub trait Store: Send {
    /// Makes the marks and the two tables.
    ///
    /// # Errors
    /// What the store says.
    fn set_up(&mut self) -> Call<'_, ()>;

    /// Raises the mark: from its return on, no earlier owner's write is applied.
    ///
    /// # Errors
    /// See [`FenceError`].
    fn raise<'a>(&'a mut self, fence: &'a Fence) -> Call<'a, (), FenceError>;

    /// Checks the fence and writes the row, in one step.
    ///
    /// # Errors
    /// See [`FenceError`].
    fn publish<'a>(&'a mut self, fence: &'a Fence, row: &'a Row) -> Call<'a, (), FenceError>;

    /// Writes the row to the table that has no fence: what the fence is for.
    ///
    /// # Errors
    /// What the store says.
    fn publish_unguarded<'a>(&'a mut self, job: &'a str, row: &'a Row) -> Call<'a, ()>;

    /// A job's row.
    ///
    /// # Errors
    /// What the store says.
    fn row<'a>(&'a mut self, table: Table, job: &'a str) -> Call<'a, Option<Row>>;

    /// A resource's mark.
    ///
    /// # Errors
    /// See [`FenceError`].
    fn mark<'a>(&'a mut self, resource: &'a ResourceName) -> Call<'a, Option<Token>, FenceError>;
}

/// Opens a store by its name: `<kind>:<where>`.
///
/// # Errors
/// What the store says.
pub async fn open(name: &str) -> anyhow::Result<Box<dyn Store>> {
    let (kind, at) = name.split_once(':').context("a destination is <kind>:<where>")?;
    Ok(match kind {
        "sqlite" => Box::new(sqlite::File::open(at)?),
        "postgres" => Box::new(postgres::Database::open(at).await?),
        "mariadb" => Box::new(mariadb::Database::open(at).await?),
        "redis" => Box::new(redis::Server::open(at).await?),
        _ => anyhow::bail!("no destination is called {kind}"),
    })
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

impl Row {
    /// As the SQL stores hold it.
    fn of((worker, token, result): (String, i64, String)) -> Self {
        Self { worker, token: token.cast_unsigned(), result }
    }
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Guarded => "results",
            Self::Unguarded => "results_unguarded",
        }
    }

    /// In every SQL.
    fn create(self) -> String {
        let name = self.name();
        format!(
            "CREATE TABLE {name} (job VARCHAR(500) PRIMARY KEY, worker TEXT NOT NULL, \
             token BIGINT NOT NULL, result TEXT NOT NULL);"
        )
    }

    /// In PostgreSQL's and SQLite's.
    fn put(self) -> String {
        let name = self.name();
        format!(
            "INSERT INTO {name} (job, worker, token, result) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (job) DO UPDATE SET worker = excluded.worker, token = excluded.token, \
             result = excluded.result"
        )
    }

    fn get(self, job: &str) -> String {
        format!("SELECT worker, token, result FROM {} WHERE job = {job}", self.name())
    }
}
