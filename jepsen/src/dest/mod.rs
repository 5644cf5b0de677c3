//! The protected destination: a process of its own that keeps a counter and a set of elements
//! per resource in SQLite, with the marks of [`ringfence::fence::sqlite`] in the same file, and
//! writes down in an append-only ledger what it was asked and what it did.
//!
//! Requests and answers are one JSON object a line. `raise` raises the mark and reads the
//! counter in one transaction; `write` checks the fence, adds the element and stores the
//! counter in one. With `--unchecked` it looks at no fence, as most storage does.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use ringfence::fence::{FenceError, sqlite};
use ringfence::locks::{ClusterId, Fence, ResourceName, Token};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::worker::unhex;

/// Where it listens and writes.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The address to listen at.
    #[arg(long)]
    listen: SocketAddr,
    /// The SQLite file.
    #[arg(long)]
    file: PathBuf,
    /// The ledger.
    #[arg(long)]
    ledger: PathBuf,
    /// Accept whatever comes: the control that must be convicted.
    #[arg(long)]
    unchecked: bool,
}

/// The data, and what was done to it; one request at a time.
struct Store {
    data: Connection,
    ledger: File,
    seq: u64,
    unchecked: bool,
}

#[derive(Debug, Deserialize)]
struct Asked {
    op: String,
    resource: String,
    token: u64,
    floor: u64,
    #[serde(default)]
    slot: Option<u32>,
    #[serde(default)]
    session: u64,
    cluster_id: String,
    #[serde(default)]
    element: Option<String>,
    #[serde(default)]
    counter: Option<u64>,
}

/// Serves until it is killed.
///
/// # Errors
/// It cannot listen, or its files cannot be made.
pub fn serve(options: &Options) -> Result<()> {
    let data = Connection::open(&options.file).context("cannot open the SQLite file")?;
    data.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE IF NOT EXISTS counters (resource TEXT PRIMARY KEY, counter INTEGER) STRICT;
         CREATE TABLE IF NOT EXISTS elements (element TEXT PRIMARY KEY, token INTEGER) STRICT;",
    )?;
    sqlite::install(&data)?;
    let ledger = File::options().append(true).create(true).open(&options.ledger);
    let ledger = ledger.context("cannot open the ledger")?;
    let store = Store { data, ledger, seq: 0, unchecked: options.unchecked };
    let store = Arc::new(Mutex::new(store));
    let listener = TcpListener::bind(options.listen).context("cannot listen")?;
    for stream in listener.incoming().flatten() {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            // Whoever breaks off is gone; the next connection is another thread's.
            drop(answer(&stream, &store));
        });
    }
    Ok(())
}

fn answer(stream: &TcpStream, store: &Mutex<Store>) -> Result<()> {
    stream.set_nodelay(true)?;
    for line in BufReader::new(stream).lines() {
        let asked: Asked = serde_json::from_str(&line?)?;
        let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = store.serve(&asked)?;
        drop(store);
        writeln!(&mut &*stream, "{answer}")?;
    }
    Ok(())
}

impl Store {
    /// Does it, and writes it down before anybody is told.
    fn serve(&mut self, asked: &Asked) -> Result<Value> {
        let done = self.apply(asked);
        let (accepted, reason, counter) = match done {
            Ok(counter) => (true, None, counter),
            Err(FenceError::Stale { .. }) => (false, Some("FENCED".to_owned()), None),
            Err(other) => (false, Some(format!("{other}")), None),
        };
        self.seq += 1;
        let stored = asked.counter.filter(|_| asked.op == "write");
        let line = json!({
            "seq": self.seq, "dest": "d1", "resource": asked.resource, "token": asked.token,
            "floor": asked.floor, "slot": asked.slot, "session": asked.session,
            "element": asked.element.as_ref().filter(|_| asked.op == "write"),
            "accepted": accepted, "reason": reason, "counter": stored,
        });
        self.ledger.write_all(format!("{line}\n").as_bytes())?;
        self.ledger.sync_data()?;
        Ok(json!({"accepted": accepted, "reason": reason, "counter": counter}))
    }

    fn apply(&mut self, asked: &Asked) -> Result<Option<u64>, FenceError> {
        let transaction = self.data.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !self.unchecked {
            sqlite::check(&transaction, &fence(asked)?)?;
        }
        let counter = change(&transaction, asked)?;
        transaction.commit()?;
        Ok(counter)
    }
}

fn change(data: &Transaction<'_>, asked: &Asked) -> rusqlite::Result<Option<u64>> {
    if asked.op == "write" {
        if let Some(counter) = asked.counter {
            let sql = "INSERT OR REPLACE INTO counters VALUES (?1, ?2)";
            data.execute(sql, (&asked.resource, counter.cast_signed()))?;
        }
        let sql = "INSERT INTO elements VALUES (?1, ?2)";
        data.execute(sql, (&asked.element, asked.token.cast_signed()))?;
    }
    let sql = "SELECT counter FROM counters WHERE resource = ?1";
    let counter: Option<i64> =
        data.query_row(sql, [&asked.resource], |row| row.get(0)).optional()?;
    Ok(Some(counter.unwrap_or(0).cast_unsigned()))
}

fn fence(asked: &Asked) -> Result<Fence, FenceError> {
    let read = || {
        Ok::<_, ringfence::locks::Invalid>(Fence {
            cluster: ClusterId::from_slice(&unhex(&asked.cluster_id))?,
            resource: ResourceName::new(&asked.resource)?,
            slot: asked.slot,
            token: Token::new(asked.token)?,
            floor: Token::new(asked.floor)?,
        })
    };
    read().map_err(|invalid| FenceError::Store(Box::new(invalid)))
}
