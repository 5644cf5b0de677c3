//! PostgreSQL keeps a hold for as long as its holder lives, and tells when it could not.

use http::StatusCode;
use ringfence::fence::FenceError;

use super::{Database, Slow, calling, holding, raise_briefly, raising};
use crate::http::served::Server;
use crate::stories::exclusive;
use crate::vectors::PATIENCE;

#[tokio::test]
async fn a_handler_whose_hold_is_ended_by_the_server_is_dropped_at_once() {
    let (database, mut slow) = (Database::new().await, Slow::new());
    let server = Server::start(holding(database.store(), PATIENCE), slow.handler.clone());
    let held = calling(&server, exclusive("job/7", 5));
    slow.says("inside").await;
    let observer = database.client().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND state = 'idle in transaction'";
    let ended = observer.query_typed(end, &[]).await.expect("we may");
    assert_eq!(ended.len(), 1, "one transaction is the hold");
    slow.says("dropped").await;
    let heard = held.await.expect("it ran");
    assert_eq!((heard.status, &*heard.problem()), (StatusCode::GATEWAY_TIMEOUT, "cut-off"));
    let raise = raising(&server, exclusive("job/7", 6), slow.notes.clone());
    slow.says("raised").await;
    raise.await.expect("it ran").expect("raised, over another connection");
}

#[tokio::test]
async fn the_servers_own_timeouts_do_not_end_a_hold() {
    let (database, mut slow) = (Database::new().await, Slow::new());
    let sql = format!(
        "ALTER DATABASE {0} SET idle_in_transaction_session_timeout = 50;
         ALTER DATABASE {0} SET statement_timeout = 50",
        database.name
    );
    database.client().await.batch_execute(&sql).await.expect("it is ours");
    let server = Server::start(holding(database.store(), PATIENCE), slow.handler.clone());
    let held = calling(&server, exclusive("job/7", 5));
    slow.says("inside").await;
    // Several times as long as the server would have given it.
    let busy = raise_briefly(&server, exclusive("job/7", 6)).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    slow.go.send_replace(true);
    slow.says("written").await;
    assert_eq!(held.await.expect("it ran").status, StatusCode::OK);
}
