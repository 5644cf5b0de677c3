//! Marks in a real MariaDB.

mod ignored;
mod races;
mod refusals;

use std::slice::from_ref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, IsolationLevel, Opts, Transaction, TxOpts};
use ringfence::fence::{Fence, FenceError, mysql};

use crate::mariadb_server::Mariadb;
use crate::stories::{assert_answer, exclusive, name, stories};

/// Longer than anything takes: nothing here is decided by it.
const PATIENCE: Duration = Duration::from_secs(60);

const ISOLATIONS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

const TABLES: &str = "
    CREATE TABLE job (id BIGINT PRIMARY KEY, state TEXT NOT NULL, epoch BIGINT NOT NULL);
    INSERT INTO job VALUES (7, 'new', 0);
    CREATE TABLE ledger (seq BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL)";

/// A database with marks, a protected row and a ledger of who wrote it.
struct Destination {
    server: Arc<Mariadb>,
    database: String,
}

impl Destination {
    async fn new() -> Self {
        let destination = Self::bare();
        let mut conn = destination.client().await;
        mysql::install(&mut conn).await.expect("an empty database");
        conn.query_drop(TABLES).await.expect("an empty database");
        destination
    }

    fn bare() -> Self {
        let server = Mariadb::shared();
        let database = server.create_database();
        Self { server, database }
    }

    async fn client(&self) -> Conn {
        connect(&self.server.url(&self.database)).await
    }
}

fn opts(url: &str) -> Opts {
    Opts::from_url(url).expect("a URL")
}

async fn connect(url: &str) -> Conn {
    Conn::new(opts(url)).await.expect("it runs")
}

async fn start(conn: &mut Conn, isolation: IsolationLevel) -> Transaction<'_> {
    let mut options = TxOpts::new();
    options.with_isolation_level(isolation);
    conn.start_transaction(options).await.expect("connected")
}

async fn publish(transaction: &mut Transaction<'_>, number: u64) -> mysql_async::Result<()> {
    let job = "UPDATE job SET state = ? WHERE id = 7";
    transaction.exec_drop(job, (format!("by {number}"),)).await?;
    transaction.exec_drop("INSERT INTO ledger (token) VALUES (?)", (number,)).await
}

/// One guarded write of the owner with this token.
async fn write(conn: &mut Conn, number: u64) -> Result<(), FenceError> {
    let fence = exclusive("job/7", number);
    let publish = async |transaction: &mut Transaction<'_>| publish(transaction, number).await;
    mysql::guarded(conn, from_ref(&fence), PATIENCE, publish).await
}

/// The same in a transaction of the caller's own, at another isolation level.
async fn write_at(
    conn: &mut Conn,
    isolation: IsolationLevel,
    fence: &Fence,
) -> Result<(), FenceError> {
    let begun = start(conn, isolation).await;
    let mut transaction = mysql::check(begun, from_ref(fence)).await?;
    publish(&mut transaction, fence.token.get()).await?;
    Ok(transaction.commit().await?)
}

async fn ledger(conn: &mut Conn) -> Vec<u64> {
    conn.query("SELECT token FROM ledger ORDER BY seq").await.expect("a ledger")
}

async fn job_mark(conn: &mut Conn) -> Option<u64> {
    let mark = mysql::mark(conn, &name("job/7"), None).await.expect("installed");
    mark.map(ringfence::locks::Token::get)
}

async fn state(session: &mut impl Queryable) -> String {
    let first = session.query_first("SELECT state FROM job WHERE id = 7").await;
    first.expect("a job").expect("one row")
}

/// Returns when the server says that this connection waits for a row's lock. (The table
/// innodb_trx is a copy that is not renewed for whoever asks often.)
async fn until_blocked(observer: &mut Conn, waiting: u32) {
    let whose = format!("thread id {waiting},");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = observer.query_first("SHOW ENGINE INNODB STATUS").await.expect("connected");
        let (_, _, told): (String, String, String) = status.expect("one row");
        let mut all = told.split("---TRANSACTION");
        if all.any(|one| one.contains(&whose) && one.contains("LOCK WAIT")) {
            return;
        }
        assert!(Instant::now() < deadline, "connection {waiting} never waited for a lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn mysql_tells_every_story_at_every_isolation_level() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let mut conn = destination.client().await;
        for story in stories() {
            for step in story.steps() {
                let answer = write_at(&mut conn, isolation, &step.fence).await;
                assert_answer(story.resource, &step, answer);
            }
        }
    }
}

#[tokio::test]
async fn scenario_e5_mysql_applies_the_write_and_its_check_together_or_not_at_all() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let mut answers = Vec::new();
    for number in [5, 6, 5, 6, 7, 6] {
        answers.push(match write(&mut conn, number).await {
            Ok(()) => None,
            Err(FenceError::Stale { mark, .. }) => Some(mark.get()),
            Err(other) => panic!("{other}"),
        });
    }
    assert_eq!(answers, [None, None, Some(6), None, None, Some(7)]);
    assert_eq!(ledger(&mut conn).await, [5, 6, 6, 7]);
}

#[tokio::test]
async fn a_guarded_write_leaves_the_session_as_it_was_and_runs_in_any_task() {
    const SESSION: &str = "SELECT CONCAT_WS(' ', @@innodb_lock_wait_timeout, @@max_statement_time,
        @@idle_transaction_timeout, @@tx_read_only, @@autocommit)";
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    for set in ["max_statement_time = 7.5", "tx_read_only = 1", "autocommit = 0"] {
        conn.query_drop(format!("SET SESSION {set}")).await.expect("connected");
        let before: Option<String> = conn.query_first(SESSION).await.expect("connected");
        let task = tokio::spawn(async move {
            let answers = (write(&mut conn, 6).await, write(&mut conn, 5).await);
            (conn, answers)
        });
        let answers;
        (conn, answers) = task.await.expect("it ran");
        assert!(matches!(answers, (Ok(()), Err(FenceError::Stale { .. }))), "{answers:?}");
        let after: Option<String> = conn.query_first(SESSION).await.expect("connected");
        assert_eq!(before, after);
    }
}

#[tokio::test]
async fn the_epoch_in_the_protected_row_itself_refuses_a_stale_owner() {
    const GUARD: &str = "UPDATE job SET state = ?, epoch = ? WHERE id = 7 AND epoch <= ?";
    const ASK: &str = "SELECT epoch FROM job WHERE id = 7 AND epoch <= ? FOR UPDATE";
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let mut observer = destination.client().await;
    let mut writing = start(&mut old, IsolationLevel::RepeatableRead).await;
    writing.exec_drop(GUARD, ("by 1", 1, 1)).await.expect("a job");
    assert_eq!(writing.affected_rows(), 1);
    // Rows affected are rows changed: none where the owner writes the same again. It has to ask.
    writing.exec_drop(GUARD, ("by 1", 1, 1)).await.expect("a job");
    assert_eq!(writing.affected_rows(), 0, "accepted all the same");
    assert_eq!(writing.exec_first(ASK, (1,)).await.expect("a job"), Some(1));
    let waiting = new.id();
    let raising = tokio::spawn(async move {
        new.exec_drop(GUARD, ("by 2", 2, 2)).await.expect("the row is free");
        new.affected_rows()
    });
    until_blocked(&mut observer, waiting).await;
    writing.commit().await.expect("past the guard");
    assert_eq!(raising.await.expect("it ran"), 1);
    old.exec_drop(GUARD, ("by 1", 1, 1)).await.expect("a job");
    assert_eq!(old.exec_first::<u64, _, _>(ASK, (1,)).await.expect("a job"), None, "refused");
    assert_eq!(state(&mut observer).await, "by 2");
}
