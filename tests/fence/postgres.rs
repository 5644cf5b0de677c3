//! Marks in a real PostgreSQL.

mod guarded;
mod pooled;
mod races;
mod refusals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence::fence::{Fence, FenceError, postgres};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

use crate::postgres_server::Postgres;
use crate::stories::{assert_answer, exclusive, name, stories};

/// Longer than anything takes: nothing here is decided by it.
const PATIENCE: Duration = Duration::from_secs(60);

const ISOLATIONS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

const TABLES: &str = "
    CREATE TABLE job (id bigint PRIMARY KEY, state text NOT NULL, epoch bigint NOT NULL);
    INSERT INTO job VALUES (7, 'new', 0);
    CREATE TABLE ledger (seq bigserial PRIMARY KEY, token bigint NOT NULL)";

/// A database with marks, a protected row and a ledger of who wrote it.
struct Destination {
    server: Arc<Postgres>,
    database: String,
}

impl Destination {
    async fn new() -> Self {
        let destination = Self::bare();
        let client = destination.client().await;
        postgres::install(&client).await.expect("an empty database");
        client.batch_execute(TABLES).await.expect("an empty database");
        destination
    }

    fn bare() -> Self {
        let server = Postgres::shared();
        let database = server.create_database();
        Self { server, database }
    }

    async fn client(&self) -> Client {
        connect(&self.server.url(&self.database)).await
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it runs");
    // It ends with its client or its server; what failed is seen by the client.
    tokio::spawn(async move { drop(connection.await) });
    client
}

async fn publish(transaction: &Transaction<'_>, number: u64) -> Result<(), tokio_postgres::Error> {
    let number = number.cast_signed();
    let by = format!("by {number}");
    let job = "UPDATE job SET state = $1 WHERE id = 7";
    transaction.execute_typed(job, &[(&by, Type::TEXT)]).await?;
    let ledger = "INSERT INTO ledger (token) VALUES ($1)";
    transaction.execute_typed(ledger, &[(&number, Type::INT8)]).await?;
    Ok(())
}

/// One guarded write of the owner with this token.
async fn write(client: &mut Client, number: u64) -> Result<(), FenceError> {
    let transaction = postgres::begin(client, &exclusive("job/7", number), PATIENCE).await?;
    publish(&transaction, number).await?;
    Ok(transaction.commit().await?)
}

/// The same at another isolation level, run again for as long as it conflicts.
async fn write_at(
    client: &mut Client,
    isolation: IsolationLevel,
    fence: &Fence,
) -> Result<(), FenceError> {
    loop {
        let transaction = client.build_transaction().isolation_level(isolation).start().await?;
        match postgres::check(&transaction, fence).await {
            Ok(()) => {}
            Err(FenceError::Conflict(_)) => continue,
            Err(other) => return Err(other),
        }
        publish(&transaction, fence.token.get()).await?;
        return Ok(transaction.commit().await?);
    }
}

async fn ledger(client: &Client) -> Vec<u64> {
    let sql = "SELECT token FROM ledger ORDER BY seq";
    let rows = client.query_typed(sql, &[]).await.expect("a ledger");
    rows.iter().map(|row| row.get::<_, i64>(0).cast_unsigned()).collect()
}

async fn job_mark(client: &Client) -> Option<u64> {
    let mark = postgres::mark(client, &name("job/7"), None).await.expect("installed");
    mark.map(ringfence::locks::Token::get)
}

async fn text(client: &Client, sql: &str) -> String {
    client.query_typed_one(sql, &[]).await.expect("one row").get(0)
}

async fn backend(client: &Client) -> i32 {
    client.query_typed_one("SELECT pg_backend_pid()", &[]).await.expect("one row").get(0)
}

/// Returns when the server says that this backend waits for a lock.
async fn until_blocked(observer: &Client, backend: i32) {
    let sql =
        "SELECT coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity WHERE pid = $1";
    let deadline = Instant::now() + PATIENCE;
    loop {
        let row = observer.query_typed_one(sql, &[(&backend, Type::INT4)]).await;
        if row.expect("the backend is connected").get(0) {
            return;
        }
        assert!(Instant::now() < deadline, "backend {backend} never waited for a lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn postgres_tells_every_story_at_every_isolation_level() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let mut client = destination.client().await;
        for story in stories() {
            for step in story.steps() {
                let answer = write_at(&mut client, isolation, &step.fence).await;
                assert_answer(story.resource, &step, answer);
            }
        }
    }
}

#[tokio::test]
async fn scenario_e5_postgres_applies_the_write_and_its_check_together_or_not_at_all() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    let mut answers = Vec::new();
    for number in [5, 6, 5, 6, 7, 6] {
        answers.push(match write(&mut client, number).await {
            Ok(()) => None,
            Err(FenceError::Stale { mark, .. }) => Some(mark.get()),
            Err(other) => panic!("{other}"),
        });
    }
    assert_eq!(answers, [None, None, Some(6), None, None, Some(7)]);
    assert_eq!(ledger(&client).await, [5, 6, 6, 7]);
}

#[tokio::test]
async fn the_epoch_in_the_protected_row_itself_refuses_a_stale_owner() {
    const GUARD: &str = "UPDATE job SET state = $2, epoch = $1 WHERE id = 7 AND epoch <= $1";
    let destination = Destination::new().await;
    let (mut old, new) = (destination.client().await, destination.client().await);
    let observer = destination.client().await;
    let writing = old.transaction().await.expect("connected");
    let by = |epoch: i64| (epoch, format!("by {epoch}"));
    let (first, state) = by(1);
    let update = [(&first as _, Type::INT8), (&state as _, Type::TEXT)];
    assert_eq!(writing.execute_typed(GUARD, &update).await.expect("a job"), 1);
    let waiting = backend(&new).await;
    let raising = tokio::spawn(async move {
        let (second, state) = by(2);
        let update = [(&second as _, Type::INT8), (&state as _, Type::TEXT)];
        new.execute_typed(GUARD, &update).await
    });
    until_blocked(&observer, waiting).await;
    writing.commit().await.expect("past the guard");
    assert_eq!(raising.await.expect("it ran").expect("the row is free"), 1);
    assert_eq!(old.execute_typed(GUARD, &update).await.expect("a job"), 0, "refused");
    assert_eq!(text(&observer, "SELECT state FROM job").await, "by 2");
}
