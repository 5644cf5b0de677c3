//! Orders move from an old store, SQLite, to a new one, PostgreSQL, and the service that
//! writes them is replaced. The old one is paused with a write in its hand, and wakes up in
//! the middle of the cutover: both stores refuse it.
//!
//! ```sh
//! ringfence dev                              # in another terminal, or any cluster:
//! export RINGFENCE_ENDPOINTS=10.0.0.1:7411
//! DATABASE_URL="host=/tmp/pg user=postgres" cargo run --example cutover
//! ```
//!
//! The page: docs/systems/migration-cutover.md.

#[path = "play/postgres.rs"]
mod destination;
mod play;

use std::time::Duration;

use destination::{connect, of_this_run, prepare};
use play::{Actor, Told, client, orders, scene};
use ringfence::client::{Client, ClientError};
use ringfence::fence::{Fence, FenceError, postgres, sqlite};
use ringfence::locks::{Note, Token};
use rusqlite::Connection;
use tokio_postgres::types::{ToSql, Type};

const TTL: Duration = Duration::from_secs(2);
const SCHEMA: &str = "example_cutover";
const TABLE: &str = "CREATE TABLE orders (number BIGINT PRIMARY KEY, by TEXT NOT NULL)";
/// An order that is there already is the same order, or one of a service that asks again.
const INSERT: &str = "INSERT INTO orders (number, by) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// The number of an order, and who wrote it.
type Row = (i64, String);

#[tokio::main]
async fn main() -> Told<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => story().await,
        ["old", writer, file] => old_service(writer, file).await,
        ["new", writer, file] => new_service(writer, file).await,
        _ => Err("this program takes no arguments".into()),
    }
}

async fn story() -> Told<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("old.db");
    // Kept if a place is named.
    let file = std::env::var("OLD_DATABASE").or(file.into_os_string().into_string());
    let file = file.map_err(|_| "a folder with a strange name")?;
    let writer = of_this_run("example/orders/writer")?;
    let mut old_store = play::database(&file)?;
    old_store.execute_batch(TABLE)?;
    sqlite::install(&old_store)?;
    let mut new_store = prepare(SCHEMA, TABLE).await?;
    let administrator = client()?;

    scene("The old service writes orders to the old store, and copies them to the new one.");
    let mut old = Actor::start("old", &[&writer, &file])?;
    old.expect("may write").await?;
    for order in ["write 1", "write 2"] {
        old.ask(order, "ready").await?;
        old.ask("go", "written").await?;
    }
    old.ask("copy", "copied").await?;
    old.ask("write 3", "ready").await?;
    old.ask("go", "written").await?;

    scene("It has order 4 in its hand, and is paused just before it writes.");
    old.ask("write 4", "ready").await?;
    old.pause().await?;

    scene("An administrator freezes the writer, and raises the fence of that at the old store.");
    let note = Note::new("alice", "orders move to PostgreSQL")?;
    let frozen = administrator.freeze(&writer, note).await?;
    println!("  alice   freezes {writer} with token {}", frozen.token);
    sqlite::raise(&mut old_store, &frozen)?;
    println!("  alice   has raised the fence at the old store");

    scene("The new service asks to be the writer, and waits.");
    let mut new = Actor::start("new", &[&writer, &file])?;
    new.expect("waits").await?;

    scene("The old one wakes up and writes. The old store refuses it.");
    old.go_on().await?;
    old.ask("go", "refused").await?;
    old.ask("look", "may write no more").await?;

    scene("The old store stands still from here on. What is left of it is copied.");
    let frozen_rows = rows(&old_store)?;
    let rest = copy(&old_store, &mut new_store, &frozen).await?;
    println!("  alice   copies what the new store lacks: {rest} of {}", frozen_rows.len());
    thaw(&administrator, &writer, frozen.token).await?;

    scene("The new one is let in. Order 4, which nobody had confirmed, is asked of it again.");
    new.expect("is let in").await?;
    new.expect("may write").await?;
    for order in ["write 4", "write 5"] {
        new.ask(order, "ready").await?;
        new.ask("go", "written").await?;
    }

    scene("Whoever comes late with a copy is refused by the new store.");
    old.ask("copy", "refused").await?;
    let late = copy(&old_store, &mut new_store, &frozen).await;
    let late = late.err().ok_or("the administrator's second copy was let through")?;
    println!("  alice   refused: {late}");

    check(&old_store, &frozen_rows, &new_store).await
}

/// What there is in the end: in the old store what was copied and no more; in the new one
/// every order that was confirmed, once.
async fn check(old: &Connection, copied: &[Row], new: &tokio_postgres::Client) -> Told<()> {
    let left = rows(old)?;
    let moved = new.query("SELECT number, by FROM orders ORDER BY number", &[]).await?;
    let moved: Vec<Row> = moved.iter().map(|row| (row.get(0), row.get(1))).collect();
    println!("In the old store: {left:?}\nIn the new store: {moved:?}");
    let expected = [(1, "old"), (2, "old"), (3, "old"), (4, "new"), (5, "new")];
    let expected = expected.map(|(number, by)| (number, by.to_owned()));
    if left != copied || left != expected[..3] || moved != expected {
        return Err("that is not what was confirmed".into());
    }
    Ok(())
}

/// The service of before, in a process of its own.
async fn old_service(writer: &str, file: &str) -> Told<()> {
    let (mut store, mut new_store) = (play::database(file)?, connect(SCHEMA).await?);
    let session = client()?.session(TTL).purpose("old").await?;
    let writer = session.acquire(writer).await?;
    println!("may write, with token {}", writer.token());
    let mut orders = orders();
    while let Some(order) = orders.next_line().await? {
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("copy", _) => match copy(&store, &mut new_store, writer.fence()).await {
                Ok(copied) => println!("copied {copied} orders"),
                Err(refused) => println!("refused: {refused}"),
            },
            ("look", _) => println!("may write no more: {:?}", writer.lost().await),
            (_, number) => {
                println!("ready");
                orders.next_line().await?;
                let order: (i64, &str) = (number.parse()?, "old");
                let write = sqlite::guarded(&mut store, writer.fence(), |transaction| {
                    transaction.execute(INSERT, order)
                });
                match write {
                    Ok(_) => println!("written, with token {}", writer.token()),
                    Err(refused) => println!("refused: {refused}"),
                }
            }
        }
    }
    Ok(())
}

/// The service that takes over, in a process of its own. It writes nothing before no
/// earlier owner can write at either store.
async fn new_service(writer: &str, file: &str) -> Told<()> {
    let mut store = connect(SCHEMA).await?;
    let session = client()?.session(TTL).purpose("new").await?;
    let asked = session.acquire(writer).on_queued(|_| println!("waits"));
    let old_store = sqlite::Target::new(file);
    let new_store = postgres::Target::new(std::env::var("DATABASE_URL")?.parse()?);
    let granted = |token| println!("is let in, with token {token}");
    let writer = asked.raising(&[&old_store, &new_store]).on_granted(granted).await?;
    println!("may write: both stores have raised the fence");
    let mut orders = orders();
    while let Some(order) = orders.next_line().await? {
        let Some(number) = order.strip_prefix("write ") else { break };
        println!("ready");
        orders.next_line().await?;
        let orders = [(number.parse()?, "new".to_owned())];
        match insert(&mut store, &orders, writer.fence()).await {
            Ok(_) => println!("written, with token {}", writer.token()),
            Err(refused) => println!("refused: {refused}"),
        }
    }
    Ok(())
}

/// Copies what the new store has not; how many there are. A copy is a write as any other:
/// it brings a fence, and one that comes late is refused.
async fn copy(
    old: &Connection,
    new: &mut tokio_postgres::Client,
    fence: &Fence,
) -> Result<u64, FenceError> {
    let rows = rows(old)?;
    insert(new, &rows, fence).await
}

/// How many of these were not there yet.
async fn insert(
    store: &mut tokio_postgres::Client,
    orders: &[Row],
    fence: &Fence,
) -> Result<u64, FenceError> {
    let transaction = postgres::begin(store, fence, TTL).await?;
    let mut inserted = 0;
    for (number, by) in orders {
        let row: [(&(dyn ToSql + Sync), Type); 2] = [(number, Type::INT8), (by, Type::TEXT)];
        inserted += transaction.execute_typed(INSERT, &row).await?;
    }
    transaction.commit().await?;
    Ok(inserted)
}

fn rows(old: &Connection) -> rusqlite::Result<Vec<Row>> {
    let mut rows = old.prepare("SELECT number, by FROM orders ORDER BY number")?;
    rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Opens what this freeze keeps closed. An administrator's call has no request id: when its
/// outcome is unknown it is made again, which does nothing if it was done, for it names
/// exactly this freeze.
async fn thaw(administrator: &Client, resource: &str, freeze: Token) -> Told<()> {
    let mut unknown = false;
    loop {
        let note = Note::new("alice", "orders have moved")?;
        match administrator.thaw(resource, freeze, note).await {
            Err(ClientError::NotFound { .. }) if unknown => break,
            Err(error) if error.outcome_unknown() => unknown = true,
            thawed => {
                thawed?;
                break;
            }
        }
    }
    println!("  alice   thaws it");
    Ok(())
}
