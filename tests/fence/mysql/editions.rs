//! A database that an earlier or a later release has set up.

use std::sync::atomic::{AtomicBool, Ordering};

use mysql_async::OptsBuilder;

use super::ignored::{call, sent};
use super::*;

/// The script as it first was: without `ringfence_commit`, and with a check that it refuses.
const FIRST: &str = include_str!("edition1.sql");

const EDITION: &str = "SELECT routine_comment FROM information_schema.routines
    WHERE routine_schema = DATABASE() AND routine_name = 'ringfence_ready'";

async fn first_edition() -> Destination {
    let destination = Destination::bare();
    destination.server.client(&destination.database, FIRST);
    let mut conn = destination.client().await;
    conn.query_drop(TABLES).await.expect("an empty database");
    assert_eq!(sent(&mut conn, "START TRANSACTION").await, None);
    assert_eq!(sent(&mut conn, &call(5)).await, None, "the check as it was");
    assert_eq!(sent(&mut conn, "COMMIT").await, None);
    destination
}

async fn edition(conn: &mut Conn) -> String {
    conn.query_first(EDITION).await.expect("connected").expect("there")
}

#[tokio::test]
async fn the_script_and_install_bring_an_earlier_edition_up_to_date() {
    for script in [true, false] {
        let destination = first_edition().await;
        let mut conn = destination.client().await;
        assert!(matches!(write(&mut conn, 6).await, Err(FenceError::NoTransaction)));
        if script {
            destination.server.client(&destination.database, mysql::SCHEMA_SQL);
        } else {
            mysql::install(&mut conn).await.expect("an earlier edition");
        }
        assert_eq!(job_mark(&mut conn).await, Some(5), "marks stay");
        write(&mut conn, 6).await.expect("a later owner");
        for sql in ["SET autocommit = 0", &call(6), "CALL ringfence_commit()"] {
            assert_eq!(sent(&mut conn, sql).await, None, "{sql}");
        }
        let stale = write(&mut conn, 5).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
    }
}

#[tokio::test]
async fn installs_at_once_bring_it_up_to_date_while_a_checked_transaction_is_open() {
    let destination = first_edition().await;
    let mut old = destination.client().await;
    assert_eq!(sent(&mut old, "START TRANSACTION").await, None);
    assert_eq!(sent(&mut old, &call(5)).await, None, "by the check as it was");
    let (mut a, mut b) = (destination.client().await, destination.client().await);
    // Does not wait for the transaction, which waits for this.
    let installed = tokio::join!(mysql::install(&mut a), mysql::install(&mut b));
    assert!(matches!(installed, (Ok(()), Ok(()))), "{installed:?}");
    assert_eq!(edition(&mut a).await, "edition 2");
    let busy = mysql::raise(&mut a, &[exclusive("job/7", 6)], Duration::from_millis(50)).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "the mark is held: {busy:?}");
    assert_eq!(sent(&mut old, "INSERT INTO ledger (token) VALUES (5)").await, None);
    assert_eq!(sent(&mut old, "COMMIT").await, None);
    assert_eq!(ledger(&mut a).await, [5]);
}

/// With no right but those that the script's head grants it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_writes_on_with_its_rights_while_procedures_are_replaced() {
    let destination = Destination::new().await;
    let mut owner = destination.client().await;
    let user = format!("app_{}", destination.database);
    owner.query_drop(format!("CREATE USER {user}")).await.expect("root");
    for procedure in ["ready", "check_fence", "commit", "mark"] {
        let grant = format!("GRANT EXECUTE ON PROCEDURE ringfence_{procedure} TO {user}");
        owner.query_drop(grant).await.expect("root");
    }
    for table in ["job", "ledger"] {
        let grant = format!("GRANT ALL ON {}.{table} TO {user}", destination.database);
        owner.query_drop(grant).await.expect("root");
    }
    let url = destination.server.url(&destination.database);
    let mut app =
        Conn::new(OptsBuilder::from_opts(opts(&url)).user(Some(user))).await.expect("it runs");
    mysql::install(&mut app).await.expect("nothing to do, and no right to do it");
    let replaced = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&replaced);
    let writing = tokio::spawn(async move {
        let mut last = 1;
        while !until.load(Ordering::SeqCst) {
            last += 1;
            write(&mut app, last).await.expect("the owner");
            let stale = write(&mut app, last - 1).await;
            assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
        }
        last
    });
    for _ in 0..10 {
        destination.server.client(&destination.database, mysql::SCHEMA_SQL);
    }
    replaced.store(true, Ordering::SeqCst);
    let last = writing.await.expect("MariaDB replaces in one step");
    assert_eq!(ledger(&mut owner).await, (2..=last).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_later_edition_is_left_alone_and_of_use() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let later = "ALTER PROCEDURE ringfence_ready COMMENT 'edition 1000'";
    conn.query_drop(later).await.expect("ours");
    mysql::install(&mut conn).await.expect("it is there");
    let refused = destination.server.try_client(&destination.database, mysql::SCHEMA_SQL);
    assert!(refused.is_err_and(|said| said.contains("RF005")));
    assert_eq!(edition(&mut conn).await, "edition 1000");
    write(&mut conn, 5).await.expect("the same version");
}

#[tokio::test]
async fn a_set_up_that_was_cut_off_is_done_again() {
    let destination = first_edition().await;
    let mut conn = destination.client().await;
    // All but the last procedure.
    let (begun, _) =
        mysql::SCHEMA_SQL.split_once("-- Whether marks hold here").expect("it is there");
    destination.server.client(&destination.database, begun);
    write(&mut conn, 6).await.expect("the check is the new one");
    mysql::install(&mut conn).await.expect("not the whole of it");
    assert_eq!(edition(&mut conn).await, "edition 2");
}
