//! Through PgBouncer in transaction mode, where two transactions of one client
//! may run on two server connections, which others have used.

use super::*;

#[tokio::test]
async fn pgbouncer_in_transaction_mode_changes_nothing() {
    let destination = Destination::bare();
    let bouncer = destination.server.pgbouncer(2);
    let url = bouncer.url(&destination.database);
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(connect(&url).await);
    }
    postgres::install(&clients[0]).await.expect("an empty database");
    clients[0].batch_execute(TABLES).await.expect("an empty database");

    // Each client comes back several times, on whichever connection is free.
    let mut number = 0;
    for _ in 0..5 {
        for client in &mut clients {
            number += 1;
            write(client, number).await.expect("the greatest token");
        }
    }
    let stale = write(&mut clients[0], number - 1).await;
    assert!(
        matches!(stale, Err(FenceError::Stale { mark, .. }) if mark.get() == number),
        "{stale:?}"
    );
    let expected: Vec<u64> = (1..=number).collect();
    assert_eq!(ledger(&clients[1]).await, expected);
    for client in &clients {
        assert_eq!(text(client, "SHOW lock_timeout").await, "0", "no bound has leaked");
    }
}

#[tokio::test]
async fn a_raise_through_pgbouncer_waits_for_a_write_past_its_check() {
    let destination = Destination::new().await;
    let bouncer = destination.server.pgbouncer(2);
    let url = bouncer.url(&destination.database);
    let (mut old, mut new) = (connect(&url).await, connect(&url).await);
    let observer = destination.client().await;
    let writing = postgres::begin(&mut old, &exclusive("job/7", 1), PATIENCE).await;
    let writing = writing.expect("the first owner");
    // The old owner has one server connection; this transaction gets the other.
    let waiting = backend(&new).await;
    let raising =
        tokio::spawn(
            async move { postgres::raise(&mut new, &exclusive("job/7", 2), PATIENCE).await },
        );
    until_blocked(&observer, waiting).await;
    publish(&writing, 1).await.expect("past the check");
    writing.commit().await.expect("past the check");
    raising.await.expect("it ran").expect("nobody writes now");
    let stale = write(&mut old, 1).await;
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
}
