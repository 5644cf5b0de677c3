//! A database: it has a store of its own, and commits through the storage.

use std::sync::Arc;

use ringfence::fence::{Fence, FenceError};
use ringfence::locks::{ClusterId, Invalid, ResourceName, Token};
use rusqlite::{Connection, params};
use tokio::sync::Mutex;
use tokio_postgres::Client;

use crate::play::{self, Told};
use crate::{line, storage};

/// A write without a place is prepared: it may or may not have been committed.
const TABLE: &str = "CREATE TABLE own (
    client TEXT, number INTEGER, seq INTEGER, PRIMARY KEY (client, number))";

pub async fn run(file: &str) -> Told<()> {
    let own = play::database(file)?;
    own.execute_batch(TABLE)?;
    let database = Database { own, storage: storage::connect().await?, primary: None };
    let database = Arc::new(Mutex::new(database));
    line::serve(move |asked| {
        let database = Arc::clone(&database);
        async move { database.lock().await.answer(&asked).await }
    })
    .await
}

/// One line at a time is answered, so that whoever has it stand down waits for the write
/// under way.
struct Database {
    own: Connection,
    storage: Client,
    /// The fence of its agent's leadership. It does not look whether that is still held:
    /// no look could help a process that is paused after it.
    primary: Option<Fence>,
}

impl Database {
    async fn answer(&mut self, asked: &str) -> String {
        let words: Vec<&str> = asked.split(' ').collect();
        let answer = match words.as_slice() {
            ["lead", cluster, token, resource] => match fence(cluster, token, resource) {
                Ok(fence) => self.lead(fence).await,
                Err(bad) => Ok(format!("refused: {bad}")),
            },
            ["stand-down"] => self.stand_down(),
            ["write", client, number] => self.write(client, number, None).await,
            ["write", client, number, epoch] => self.write(client, number, Some(epoch)).await,
            _ => Ok("refused: not understood".to_owned()),
        };
        answer.unwrap_or_else(|refused| format!("refused: {refused}"))
    }

    /// Becomes the primary under a fence that the storage has raised: its own store becomes
    /// what the storage holds. (One that holds more would fetch the difference.)
    async fn lead(&mut self, fence: Fence) -> Result<String, FenceError> {
        let journal = storage::journal(&self.storage).await?;
        let transaction = self.own.transaction()?;
        transaction.execute("DELETE FROM own", [])?;
        for (seq, client, number, _) in &journal {
            transaction.execute("INSERT INTO own VALUES (?1, ?2, ?3)", (client, number, seq))?;
        }
        transaction.commit()?;
        self.primary = Some(fence);
        Ok(format!("knows {} writes", journal.len()))
    }

    /// What was prepared and not committed nobody was told of.
    fn stand_down(&mut self) -> Result<String, FenceError> {
        self.primary = None;
        let dropped = self.own.execute("DELETE FROM own WHERE seq IS NULL", [])?;
        Ok(format!("threw away {dropped} prepared writes"))
    }

    /// Prepares it in its own store, commits it in the storage, and only then says so. A
    /// client that came through the proxy brings the epoch that it was led here by.
    async fn write(
        &mut self,
        client: &str,
        number: &str,
        epoch: Option<&str>,
    ) -> Result<String, FenceError> {
        let Ok(number) = number.parse() else { return Ok("refused: no number".to_owned()) };
        let Some(fence) = &self.primary else { return Ok("refused: not the primary".to_owned()) };
        if epoch.is_some_and(|epoch| epoch != fence.token.to_string()) {
            return Ok(format!("refused: this is the primary of epoch {}", fence.token));
        }
        let prepared = "INSERT OR IGNORE INTO own (client, number) VALUES (?1, ?2)";
        self.own.execute(prepared, params![client, number])?;
        let seq = storage::commit(&mut self.storage, fence, client, number).await?;
        let committed = "UPDATE own SET seq = ?3 WHERE client = ?1 AND number = ?2";
        self.own.execute(committed, params![client, number, seq])?;
        Ok("acknowledged".to_owned())
    }
}

fn fence(cluster: &str, token: &str, resource: &str) -> Result<Fence, Invalid> {
    let token = Token::new(token.parse().unwrap_or(0))?;
    Ok(Fence {
        cluster: ClusterId::from_hex(cluster)?,
        resource: ResourceName::new(resource)?,
        slot: None,
        token,
        floor: token,
    })
}

/// The places of what is in a database's own store, in order; -1 for what is prepared.
pub fn places(file: &str) -> Told<Vec<i64>> {
    let own = play::database(file)?;
    let mut places = own.prepare("SELECT coalesce(seq, -1) FROM own ORDER BY 1")?;
    Ok(places.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}
