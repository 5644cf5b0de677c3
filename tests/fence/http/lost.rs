//! A hold lasts for as long as its holder, and who loses it is told.

use http::StatusCode;
use ringfence::fence::hold::MemoryStore;
use ringfence::fence::{FenceError, postgres, sqlite};

use super::{BRIEFLY, Database, Slow, calling, holding, raising, sqlite_store};
use crate::http::served::{Handler, Server, said};
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
    // Several times as long as the server would have given it; and past the layer, as the
    // command line does.
    let mut client = database.client().await;
    let busy = postgres::raise(&mut client, &exclusive("job/7", 6), BRIEFLY).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    slow.go.send_replace(true);
    slow.says("written").await;
    assert_eq!(held.await.expect("it ran").status, StatusCode::OK);
    postgres::raise(&mut client, &exclusive("job/7", 6), PATIENCE).await.expect("let go");
}

#[tokio::test]
async fn a_raise_past_the_layer_waits_for_the_file_that_a_request_holds() {
    let (dir, store) = sqlite_store();
    let mut slow = Slow::new();
    let server = Server::start(holding(store, PATIENCE), slow.handler.clone());
    let held = calling(&server, exclusive("job/7", 5));
    slow.says("inside").await;
    let mut file = rusqlite::Connection::open(dir.path().join("marks.db")).expect("it is there");
    file.busy_timeout(BRIEFLY).expect("a timeout");
    let busy = sqlite::raise(&mut file, &exclusive("job/7", 6));
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    slow.go.send_replace(true);
    slow.says("written").await;
    assert_eq!(held.await.expect("it ran").status, StatusCode::OK);
    file.busy_timeout(PATIENCE).expect("a timeout");
    sqlite::raise(&mut file, &exclusive("job/7", 6)).expect("let go");
}

#[tokio::test]
async fn a_handler_that_panics_lets_go() {
    let handler = Handler::new(|request| async move {
        assert!(request.uri().path().is_empty(), "a fault of the handler");
        said("")
    });
    let database = Database::new().await;
    let server = Server::start(holding(database.store(), PATIENCE), handler);
    let fails = calling(&server, exclusive("job/7", 5));
    assert!(fails.await.is_err(), "no answer");
    let mut client = database.client().await;
    postgres::raise(&mut client, &exclusive("job/7", 6), PATIENCE).await.expect("let go");
}

#[tokio::test]
async fn a_write_that_a_cut_off_handler_has_sent_elsewhere_is_not_called_back() {
    let (notes, mut said_by) = tokio::sync::mpsc::unbounded_channel();
    let (go, going) = tokio::sync::watch::channel(false);
    let noted = notes.clone();
    let handler = Handler::new(move |_| {
        let (noted, mut going) = (noted.clone(), going.clone());
        // Another system has it.
        let elsewhere = tokio::spawn(async move {
            going.wait_for(|go| *go).await.expect("the test tells");
            noted.send("landed").expect("the test listens");
        });
        async move {
            elsewhere.await.expect("it ran");
            said("written")
        }
    });
    let server = Server::start(holding(MemoryStore::new(), BRIEFLY), handler);
    let cut = calling(&server, exclusive("job/7", 5)).await.expect("it ran");
    assert_eq!(cut.problem(), "cut-off");
    raising(&server, exclusive("job/7", 6), notes).await.expect("it ran").expect("raised");
    go.send_replace(true);
    // In this order: the one thing that a hold cannot do.
    assert_eq!(said_by.recv().await, Some("raised"));
    assert_eq!(said_by.recv().await, Some("landed"));
}
