//! Over HTTP, on real sockets: a ledger behind the layer that holds marks, and one whose
//! handler checks in its own transaction.

mod crashes;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ringfence::fence::hold::{PostgresStore, SqliteStore};
use ringfence::fence::http::{FenceLayer, Scope, WELL_KNOWN, headers, insert, read_problem};
use ringfence::fence::{Fence, FenceError, postgres, sqlite};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{Client, Destination, PATIENCE};
use crate::http::served::{Answer, Caller, Handler, Server, said};
use crate::postgres_server::Postgres;
use crate::stories::exclusive;

/// Says, as JSON, which resources a request writes.
const WRITES: &str = "x-writes";

fn scope(parts: &Parts) -> Scope {
    match (&parts.method, parts.uri.path()) {
        (&Method::GET, "/ledger") => Scope::Open,
        (&Method::POST, "/write") => Scope::Writes(written(&parts.headers)),
        _ => Scope::Unknown,
    }
}

fn written(headers: &HeaderMap) -> Vec<ResourceName> {
    let names: Vec<String> =
        serde_json::from_slice(headers[WRITES].as_bytes()).expect("names, as JSON");
    names.iter().map(|name| ResourceName::new(name).expect("a name")).collect()
}

async fn body_of(request: Request<Incoming>) -> String {
    let bytes = request.into_body().collect().await.expect("it is sent").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn as_json(lines: &[String]) -> Answer {
    said(serde_json::to_vec(lines).expect("text"))
}

/// How marks are taken over, past the destination.
type Adopting = Box<dyn Fn(ClusterId, ClusterId) + Send + Sync>;

struct Served {
    address: SocketAddr,
    adopt: Arc<Adopting>,
    /// Whichever of them there is, for as long as it is needed.
    _server: Option<Server>,
    _dir: Option<TempDir>,
}

struct Writer {
    caller: Caller,
    adopt: Arc<Adopting>,
}

impl Destination for Served {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer { caller: Caller::to(self.address).await, adopt: Arc::clone(&self.adopt) }
    }
}

impl Writer {
    /// Posts; an answer that is cut off is an unknown outcome.
    async fn post(
        &mut self,
        path: &str,
        mut more: HeaderMap,
        fences: &[Fence],
        line: &str,
    ) -> Result<(), FenceError> {
        insert(&mut more, fences)?;
        let heard = self.caller.call(Method::POST, path, more, line).await;
        let heard = heard.map_err(|error| FenceError::Store(Box::new(error)))?;
        read_problem(heard.status, &heard.bytes, fences).map_or(Ok(()), Err)
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let names: Vec<&str> = fences.iter().map(|fence| fence.resource.as_str()).collect();
        let names = serde_json::to_vec(&names).expect("text");
        let names = HeaderValue::from_bytes(&names).expect("JSON has no control characters");
        let more = HeaderMap::from_iter([(WRITES.parse().expect("a name"), names)]);
        self.post("/write", more, fences, line).await
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        self.post(WELL_KNOWN, HeaderMap::new(), fences, "").await
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        let asked = Fence { resource: resource.clone(), slot, ..exclusive("x", 1) };
        let heard = self.caller.call(Method::GET, WELL_KNOWN, headers(&asked), "").await;
        let said = heard.expect("it is served").json();
        assert_eq!(
            (said["resource"].as_str(), &said["slot"]),
            (Some(resource.as_str()), &slot.into())
        );
        said["mark"].as_u64().map(|mark| Token::new(mark).expect("a mark is a token"))
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        (self.adopt)(from, to);
    }

    async fn ledger(&mut self) -> Vec<String> {
        let heard = self.caller.call(Method::GET, "/ledger", HeaderMap::new(), "").await;
        serde_json::from_value(heard.expect("it is served").json()).expect("lines")
    }
}

/// Lines in memory: their order is that in which the handlers wrote.
fn ledger_in_memory() -> Handler {
    let lines = Arc::<Mutex<Vec<String>>>::default();
    Handler::new(move |request| {
        let lines = Arc::clone(&lines);
        async move {
            if request.method() == Method::GET {
                return as_json(&lines.lock().expect("no handler panics"));
            }
            let line = body_of(request).await;
            // Others run between the check and the write.
            tokio::task::yield_now().await;
            lines.lock().expect("no handler panics").push(line);
            said("written")
        }
    })
}

fn open(dir: &Path, file: &str) -> Connection {
    let connection = Connection::open(dir.join(file)).expect("the folder is ours");
    connection.pragma_update(None, "journal_mode", "WAL").expect("any file can use WAL");
    connection.busy_timeout(PATIENCE).expect("a timeout");
    connection
}

fn with_marks(dir: &Path) -> SqliteStore {
    sqlite::install(&open(dir, "marks.db")).expect("a file");
    SqliteStore::open(dir.join("marks.db")).expect("a file")
}

fn holding_in_sqlite() -> Served {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let layer = FenceLayer::holding(with_marks(dir.path()), PATIENCE, scope).wait(PATIENCE);
    let server = Server::start(layer, ledger_in_memory());
    let path = dir.path().to_owned();
    let adopt: Adopting = Box::new(move |from, to| {
        sqlite::adopt(&open(&path, "marks.db"), from, to).expect("installed");
    });
    let (address, adopt) = (server.address, Arc::new(adopt));
    Served { address, adopt, _server: Some(server), _dir: Some(dir) }
}

fn holding_in_postgres(server: &Postgres) -> Served {
    let url = server.url(&server.create_database());
    let config = url.parse().expect("a URL");
    let owner = Arc::new(tokio::runtime::Runtime::new().expect("a runtime"));
    let (client, connection) =
        owner.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)).expect("it runs");
    owner.spawn(async move { drop(connection.await) });
    owner.block_on(postgres::install(&client)).expect("an empty database");
    let layer = FenceLayer::holding(PostgresStore::new(config, 8), PATIENCE, scope).wait(PATIENCE);
    let server = Server::start(layer, ledger_in_memory());
    let adopt: Adopting = Box::new(move |from, to| {
        // On a thread that drives no runtime, for the caller's is one.
        std::thread::scope(|scope| {
            let adopted = scope.spawn(|| owner.block_on(postgres::adopt(&client, from, to)));
            adopted.join().expect("it ran").expect("installed, and the schema is ours");
        });
    });
    let (address, adopt) = (server.address, Arc::new(adopt));
    Served { address, adopt, _server: Some(server), _dir: None }
}

#[test]
fn http_holding_marks_in_sqlite_passes_every_vector() {
    super::tells_every_case(&holding_in_sqlite());
}

#[test]
fn http_holding_marks_in_postgres_passes_every_vector() {
    super::tells_every_case(&holding_in_postgres(&Postgres::shared()));
}

#[test]
fn sixteen_writers_never_take_http_over_sqlite_back() {
    super::sixteen_writers_never_take_it_back(&holding_in_sqlite());
}

#[test]
fn sixteen_writers_never_take_http_over_postgres_back() {
    super::sixteen_writers_never_take_it_back(&holding_in_postgres(&Postgres::shared()));
}
