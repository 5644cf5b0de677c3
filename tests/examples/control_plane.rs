//! `examples/control_plane/`, as docs/systems/control-plane.md tells it.

use tokio_postgres::{Client, NoTls};

use crate::postgres_server::Postgres;
use crate::stepwise::{around_the_kill, killing_the_leader_at};

#[tokio::test]
async fn scenario_e6_after_the_raise_no_write_of_the_old_primary_is_accepted() {
    let server = Postgres::start();
    let url = server.url("postgres");
    let scene = "The lease of a runs out";
    let environment = [("DATABASE_URL", url.as_str())];
    let told = killing_the_leader_at(scene, "control_plane", &environment).await;
    let (before, after) = around_the_kill(&told);
    assert!(before.contains("agent-a leads with token 1"), "{told}");
    assert!(before.contains("agent-a (stopped)"), "{told}");
    assert!(!before.contains("agent-b is elected"), "{told}");
    assert!(after.contains("agent-b is elected with token 2"), "{told}");
    let refused = "batch   5 more refused: stale fence: token 1 is below the mark 2 of ";
    assert!(after.contains(refused), "{told}");
    assert!(after.contains("agent-a leads no more (SessionExpired)"), "{told}");
    // Asked to, a primary ends what it does before it resigns: there is no such window.
    assert!(after.contains("agent-b resigns, as alice asks"), "{told}");
    assert!(after.contains("0 writes of epoch 2 accepted in it, 0 after it"), "{told}");
    assert!(after.contains("agent-a leads with token 3"), "{told}");
    assert!(after.contains("late    refused: this is the primary of epoch 3\n"), "{told}");

    let (storage, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it runs");
    let connection = tokio::spawn(connection);
    let search = "SET search_path TO example_control_plane";
    storage.batch_execute(search).await.expect("the example has left it");
    what_was_acknowledged_is_there_once(&storage, &told).await;
    no_epoch_follows_on_a_later_one(&storage).await;
    the_window_is_as_told(&storage, &told).await;
    drop(storage);
    connection.await.expect("it ends").expect("it ends well");
}

async fn numbers(storage: &Client, sql: &str) -> Vec<i64> {
    let rows = storage.query(sql, &[]).await.expect("a good query");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn what_was_acknowledged_is_there_once(storage: &Client, told: &str) {
    for client in ["shop", "batch"] {
        let sql = format!("SELECT number FROM journal WHERE client = '{client}' ORDER BY number");
        let there = numbers(storage, &sql).await;
        assert!(
            there.len() >= 10 && there.iter().copied().eq((1..).take(there.len())),
            "{there:?}"
        );
        let stops = format!("{client:<8}stops: {} acknowledged", there.len());
        assert!(told.contains(&stops), "{told}");
    }
}

async fn no_epoch_follows_on_a_later_one(storage: &Client) {
    let epochs = numbers(storage, "SELECT epoch FROM journal ORDER BY seq").await;
    assert!(epochs.is_sorted(), "{epochs:?}");
    for epoch in 1..=3 {
        assert!(epochs.contains(&epoch), "{epochs:?}");
    }
}

async fn the_window_is_as_told(storage: &Client, told: &str) {
    // Counted another way than the example does: by the clock alone.
    let sql = "SELECT count(*) FROM journal, handoff
               WHERE journal.epoch = 1 AND handoff.epoch = 2 AND at >= elected";
    let inside = numbers(storage, sql).await[0];
    assert!(inside >= 5, "five were waited for, and {inside} are there");
    let window = format!("{inside} writes of epoch 1 accepted in it, 0 after it");
    assert!(told.contains(&window), "{window}: {told}");
    let late = "SELECT count(*) FROM journal, handoff
                WHERE journal.epoch = 1 AND handoff.epoch = 2 AND at > raised";
    assert_eq!(numbers(storage, late).await, [0]);
}
