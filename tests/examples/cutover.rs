//! `examples/cutover.rs`, as docs/systems/migration-cutover.md tells it.

use ringfence::fence::{postgres, sqlite};
use ringfence::locks::{ResourceName, Token};
use rusqlite::Connection;
use tokio_postgres::NoTls;

use crate::postgres_server::Postgres;
use crate::stepwise::{around_the_kill, killing_the_leader_at};

#[tokio::test]
async fn cutover_a_frozen_writer_that_wakes_up_is_refused_by_the_old_store_and_the_new_one() {
    let server = Postgres::start();
    let url = server.url("postgres");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let old = folder.path().join("old.db");
    let old = old.to_str().expect("a plain name");
    let environment = [("DATABASE_URL", url.as_str()), ("OLD_DATABASE", old)];
    // The freeze is the last thing that the leader does.
    let scene = "The old one wakes up";
    let told = killing_the_leader_at(scene, "cutover", &environment).await;
    let (before, after) = around_the_kill(&told);
    assert!(before.contains("old     may write, with token 1\n"), "{told}");
    assert!(before.contains(" with token 2\n"), "{told}");
    assert!(before.contains("new     waits\n"), "{told}");
    assert!(!before.contains("refused"), "{told}");
    let (late, copied) =
        after.split_once("copies what the new store lacks: 1 of 3\n").expect("it is copied");
    assert!(late.contains("old     refused: stale fence: token 1 is below the mark 2"), "{told}");
    assert!(copied.contains("new     is let in, with token 3\n"), "{told}");
    assert!(copied.contains("old     refused: stale fence: token 1 is below the mark 3"), "{told}");
    assert!(copied.contains("alice   refused: stale fence: token 2 is below the mark 3"), "{told}");
    what_is_stored(&url, old).await;
}

/// Every order that was confirmed is in the new store once, and the old one has none that
/// was written after the copy. Both refuse who comes before the new writer.
async fn what_is_stored(url: &str, old: &str) {
    let old = Connection::open(old).expect("the example has kept it");
    let sql = "SELECT group_concat(number || ' by ' || by, ', ' ORDER BY number) FROM orders";
    let left: String = old.query_row(sql, [], |row| row.get(0)).expect("orders");
    assert_eq!(left, "1 by old, 2 by old, 3 by old");

    let (new, connection) = tokio_postgres::connect(url, NoTls).await.expect("it runs");
    let connection = tokio::spawn(connection);
    let orders = "SELECT number || ' by ' || by FROM example_cutover.orders ORDER BY number";
    let orders = new.query(orders, &[]).await.expect("the example has left it");
    let orders: Vec<String> = orders.iter().map(|row| row.get(0)).collect();
    assert_eq!(orders, ["1 by old", "2 by old", "3 by old", "4 by new", "5 by new"]);

    let marked: String = old
        .query_row("SELECT resource FROM ringfence_marks", [], |row| row.get(0))
        .expect("one resource");
    let marked = ResourceName::new(&marked).expect("a good name");
    let marks = [
        sqlite::mark(&old, &marked, None).expect("a mark"),
        postgres::mark(&new, &marked, None).await.expect("a mark"),
    ];
    assert_eq!(marks.map(|mark| mark.map(Token::get)), [Some(3), Some(3)]);
    drop(new);
    connection.await.expect("it ends").expect("it ends well");
}
