//! The layer over HTTP on real sockets: what it refuses, what it holds, and for how long.

mod holds;
mod lost;
mod refusals;
pub mod served;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use ringfence::fence::hold::{MarkStore, MemoryStore, PostgresStore, SqliteStore};
use ringfence::fence::http::{FenceLayer, Holding, Scope, Target};
use ringfence::fence::{Fence, FenceError, FenceTarget, postgres, sqlite};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::postgres_server::Postgres;
use crate::vectors::PATIENCE;
use served::{Caller, Handler, Heard, Server, said};

/// Too short for a request that never ends, and long enough for one that is free.
const BRIEFLY: Duration = Duration::from_millis(300);

/// `/job/7` writes the resource `job/7`.
fn scope(parts: &Parts) -> Scope {
    match parts.uri.path().strip_prefix('/') {
        Some("open") => Scope::Open,
        Some(name) if name.starts_with("job/") => Scope::writes(name),
        _ => Scope::Unknown,
    }
}

/// A handler that says what becomes of it, and goes on when it is told.
struct Slow {
    handler: Handler,
    said: UnboundedReceiver<&'static str>,
    notes: UnboundedSender<&'static str>,
    go: watch::Sender<bool>,
}

struct Noted(UnboundedSender<&'static str>);

impl Drop for Noted {
    fn drop(&mut self) {
        // Nobody may be left to hear it.
        let _ = self.0.send("dropped");
    }
}

impl Slow {
    fn new() -> Self {
        let (notes, said_by) = unbounded_channel();
        let (go, going) = watch::channel(false);
        let told = notes.clone();
        let handler = Handler::new(move |_| {
            let (told, mut going) = (told.clone(), going.clone());
            async move {
                told.send("inside").expect("the test listens");
                let dropped = Noted(told.clone());
                going.wait_for(|go| *go).await.expect("the test tells");
                told.send("written").expect("the test listens");
                std::mem::forget(dropped);
                said("written")
            }
        });
        Self { handler, said: said_by, notes, go }
    }

    async fn says(&mut self, expected: &str) {
        let said = tokio::time::timeout(PATIENCE, self.said.recv()).await;
        assert_eq!(said.expect("it says something"), Some(expected));
    }
}

/// Calls `/job/7` under one fence, on a connection of its own.
fn calling(server: &Server, fence: Fence) -> tokio::task::JoinHandle<Heard> {
    let address = server.address;
    tokio::spawn(async move { Caller::to(address).await.write("/job/7", &[fence]).await })
}

/// Raises over HTTP, and notes that it has.
fn raising(
    server: &Server,
    fence: Fence,
    notes: UnboundedSender<&'static str>,
) -> tokio::task::JoinHandle<Result<(), FenceError>> {
    let target = Target::new(&server.url()).expect("a URL");
    tokio::spawn(async move {
        let raised = target.raise(&[fence], PATIENCE).await;
        notes.send("raised").expect("the test listens");
        raised
    })
}

async fn raise_briefly(server: &Server, fence: Fence) -> Result<(), FenceError> {
    let target = Target::new(&server.url()).expect("a URL");
    target.raise(&[fence], BRIEFLY).await
}

fn holding<S: MarkStore>(store: S, bound: Duration) -> FenceLayer<Holding<S>, fn(&Parts) -> Scope> {
    FenceLayer::holding(store, bound, scope as fn(&Parts) -> Scope).wait(PATIENCE)
}

/// A file with marks.
pub fn sqlite_store() -> (TempDir, SqliteStore) {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let path = dir.path().join("marks.db");
    let connection = rusqlite::Connection::open(&path).expect("the folder is ours");
    sqlite::install(&connection).expect("an empty file");
    (dir, SqliteStore::open(path).expect("a file"))
}

/// A database with marks.
struct Database {
    server: Arc<Postgres>,
    name: String,
}

impl Database {
    async fn new() -> Self {
        let server = Postgres::shared();
        let name = server.create_database();
        let database = Self { server, name };
        postgres::install(&database.client().await).await.expect("an empty database");
        database
    }

    fn store(&self) -> PostgresStore {
        PostgresStore::new(self.server.url(&self.name).parse().expect("a URL"), 8)
    }

    async fn client(&self) -> tokio_postgres::Client {
        let url = self.server.url(&self.name);
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("it runs");
        // It ends with its client or its server.
        tokio::spawn(async move { drop(connection.await) });
        client
    }
}

/// A body that is sent piece by piece, as the test has it.
fn piecemeal(pieces: UnboundedReceiver<&'static str>) -> BoxBody<Bytes, Infallible> {
    struct Pieces(UnboundedReceiver<&'static str>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            let piece = self.0.poll_recv(cx);
            piece.map(|piece| piece.map(|piece| Ok(http_body::Frame::data(piece.into()))))
        }
    }

    Pieces(pieces).boxed()
}

/// Runs the same claim against each store that can hold.
async fn in_every_store(claim: impl AsyncFn(Server, Slow), bound: Duration) {
    let slow = Slow::new();
    claim(Server::start(holding(MemoryStore::new(), bound), slow.handler.clone()), slow).await;
    let (slow, (_dir, store)) = (Slow::new(), sqlite_store());
    claim(Server::start(holding(store, bound), slow.handler.clone()), slow).await;
    let (slow, database) = (Slow::new(), Database::new().await);
    claim(Server::start(holding(database.store(), bound), slow.handler.clone()), slow).await;
}
