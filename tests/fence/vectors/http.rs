//! Over HTTP, on real sockets: a ledger behind the layer that holds marks, and one whose
//! handler checks in its own transaction.

use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use ringfence::fence::hold::{PostgresStore, SqliteStore};
use ringfence::fence::http::{
    FenceLayer, Fences, Scope, WELL_KNOWN, headers, insert, problem, read_problem,
};
use ringfence::fence::{Fence, FenceError, postgres, sqlite};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rusqlite::Connection;
use tempfile::TempDir;

use super::{Client, Crash, Destination, PATIENCE, Vectors};
use crate::http::served::{Answer, Caller, Handler, Server, said};
use crate::postgres_server::Postgres;
use crate::stories::{AUTHORITY, exclusive};

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

/// The handler's own store, with its ledger; and, where it checks itself, its marks.
fn ledger_in_a_file(dir: PathBuf, checks: bool, stop: Option<String>) -> Handler {
    let table = "CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, line TEXT)";
    open(&dir, "ledger.db").execute_batch(table).expect("a file");
    Handler::new(move |request| {
        let (dir, stop) = (dir.clone(), stop.clone());
        async move {
            if request.method() == Method::GET {
                return as_json(&lines(&open(&dir, "ledger.db")));
            }
            let fences = request.extensions().get::<Fences>().expect("the layer's").clone();
            let names = written(request.headers());
            let line = body_of(request).await;
            at("inside", stop.as_deref());
            let write = move || append(&dir, checks, &fences, &names, &line);
            let wrote = tokio::task::spawn_blocking(write).await.expect("it does not panic");
            at("written", stop.as_deref());
            match wrote {
                Ok(()) => said("written"),
                Err(error) => problem(error).map(BodyExt::boxed),
            }
        }
    })
}

/// Waits to be killed, if it is to be killed here.
fn at(place: &str, stop: Option<&str>) {
    if stop == Some(place) {
        println!("\n> {place}");
        std::io::stdout().flush().expect("somebody listens");
        std::thread::park();
    }
}

fn append(
    dir: &Path,
    checks: bool,
    fences: &Fences,
    names: &[ResourceName],
    line: &str,
) -> Result<(), FenceError> {
    let mut connection = open(dir, "ledger.db");
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(behavior)?;
    for name in names.iter().filter(|_| checks) {
        sqlite::check(&transaction, fences.of(name).expect("the layer compared"))?;
    }
    transaction.execute("INSERT INTO ledger (line) VALUES (?1)", [line])?;
    Ok(transaction.commit()?)
}

fn lines(connection: &Connection) -> Vec<String> {
    let mut select = connection.prepare("SELECT line FROM ledger ORDER BY seq").expect("a ledger");
    let lines = select.query_map([], |row| row.get(0)).expect("a ledger");
    lines.map(|line| line.expect("text")).collect()
}

/// A destination in a process of its own: this binary again.
struct Process {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    served: Served,
}

impl Process {
    fn start(dir: &Path, form: &str, stop: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", "vectors::http::http_is_as_every_crash_may_leave_it"])
            .args(["--nocapture", "--test-threads=1"])
            .env("RINGFENCE_TEST_FORM", form)
            .env("RINGFENCE_TEST_STOP", stop)
            .env("RINGFENCE_TEST_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let address = heard(&mut stdout, "> at ").parse().expect("an address");
        let adopt: Adopting = Box::new(|_, _| panic!("no crash adopts"));
        let served = Served { address, adopt: Arc::new(adopt), _server: None, _dir: None };
        Self { child, stdout, served }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is a child of ours");
    }
}

/// The rest of the next line that begins so.
fn heard(stdout: &mut impl BufRead, begins: &str) -> String {
    let mut lines = stdout.lines().map_while(Result::ok);
    let found = lines.find_map(|line| line.strip_prefix(begins).map(str::to_owned));
    found.expect("it says so before it ends")
}

/// In the process that is killed.
fn serve_until_killed(form: &str) {
    let dir = PathBuf::from(std::env::var_os("RINGFENCE_TEST_DIR").expect("it is told"));
    let stop = std::env::var("RINGFENCE_TEST_STOP").ok();
    let handler = ledger_in_a_file(dir.clone(), form == "parsing", stop);
    let server = if form == "parsing" {
        sqlite::install(&open(&dir, "ledger.db")).expect("a file");
        Server::start(FenceLayer::parsing(scope), handler)
    } else {
        Server::start(FenceLayer::holding(with_marks(&dir), PATIENCE, scope), handler)
    };
    println!("\n> at {}", server.address);
    std::io::stdout().flush().expect("somebody listens");
    // Waits to be killed.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A crash between the raise and the write leaves a mark without its write, which the
/// vectors know of no store with one transaction. A write without its mark is never left.
async fn is_as_the_crash_may_leave_a_hold(client: &mut Writer, crash: &Crash) {
    let ledger = client.ledger().await;
    let written: Vec<usize> = ledger.iter().filter_map(|line| crash.number(line)).collect();
    let at = crash.may_be.iter().position(|state| state.writes == written);
    let at = at.unwrap_or_else(|| panic!("{}: {written:?}", crash.name));
    let mut possible = false;
    for state in &crash.may_be[at..] {
        let mut holds = true;
        for mark in &state.marks {
            holds &= mark.kept(client).await == mark.mark;
        }
        possible |= holds;
    }
    assert!(possible, "{}: {written:?}, and its marks are of none of these states", crash.name);
    let again = super::offer(client, crash.last.op, &crash.last.offer, "again").await;
    assert_eq!(Some(again), crash.last.verdict, "{}: offered again", crash.name);
}

#[test]
fn http_is_as_every_crash_may_leave_it() {
    if let Ok(form) = std::env::var("RINGFENCE_TEST_FORM") {
        return serve_until_killed(&form);
    }
    for crash in Vectors::read().crash {
        let dir = tempfile::tempdir().expect("the temporary folder is writable");
        let process = Process::start(dir.path(), "holding", "");
        let (said, heard) = std::sync::mpsc::channel();
        super::runtime().block_on(async {
            super::before(&mut process.served.client().await, &crash).await;
        });
        std::thread::scope(|scope| {
            let (crash, served) = (&crash, &process.served);
            scope.spawn(move || super::runtime().block_on(super::last(served, crash, &said)));
            super::until_it_may_be_killed(crash, &heard);
            Command::new("kill")
                .args(["-KILL", &process.child.id().to_string()])
                .status()
                .expect("kill runs");
        });
        process.kill();
        let process = Process::start(dir.path(), "holding", "");
        super::runtime().block_on(async {
            let mut client = process.served.client().await;
            is_as_the_crash_may_leave_a_hold(&mut client, &crash).await;
        });
        process.kill();
    }
}

/// Kills a destination in the middle of the write of token 6, after one of token 5, and
/// returns how many lines there are, and the mark.
fn killed(form: &str, place: &str) -> (usize, Option<u64>) {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let process = Process::start(dir.path(), form, "");
    let write = async |served: &Served, number| {
        served.client().await.write(&[exclusive("job/7", number)], "line").await
    };
    super::runtime().block_on(write(&process.served, 5)).expect("accepted");
    process.kill();
    let mut process = Process::start(dir.path(), form, place);
    std::thread::scope(|scope| {
        let served = &process.served;
        let cut_off = scope.spawn(move || super::runtime().block_on(write(served, 6)));
        heard(&mut process.stdout, &format!("> {place}"));
        Command::new("kill")
            .args(["-KILL", &process.child.id().to_string()])
            .status()
            .expect("kill runs");
        let answer = cut_off.join().expect("it ran");
        assert!(matches!(answer, Err(FenceError::Store(_))), "{answer:?}");
    });
    process.kill();
    let marks = open(dir.path(), if form == "parsing" { "ledger.db" } else { "marks.db" });
    let name = ResourceName::new("job/7").expect("a name");
    let mark = sqlite::mark(&marks, &name, None).expect("installed").map(Token::get);
    (lines(&open(dir.path(), "ledger.db")).len(), mark)
}

#[test]
fn killed_at_any_step_http_leaves_no_write_without_its_mark() {
    // Two stores: the mark is there first.
    assert_eq!(killed("holding", "inside"), (1, Some(6)));
    assert_eq!(killed("holding", "written"), (2, Some(6)));
    // One transaction: both or neither.
    assert_eq!(killed("parsing", "inside"), (1, Some(5)));
    assert_eq!(killed("parsing", "written"), (2, Some(6)));
}

#[test]
fn a_handler_that_checks_in_its_own_transaction_answers_as_the_rule_does() {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let handler = ledger_in_a_file(dir.path().to_owned(), true, None);
    sqlite::install(&open(dir.path(), "ledger.db")).expect("a file");
    let server = Server::start(FenceLayer::parsing(scope), handler);
    let adopt: Adopting = Box::new(|_, _| panic!("nobody adopts"));
    let (address, adopt) = (server.address, Arc::new(adopt));
    let served = Served { address, adopt, _server: Some(server), _dir: Some(dir) };
    super::runtime().block_on(async {
        let mut client = served.client().await;
        for story in crate::stories::stories() {
            for step in story.steps() {
                let answer = client.write(std::slice::from_ref(&step.fence), "line").await;
                crate::stories::assert_answer(story.resource, &step, answer);
            }
        }
        let foreign = Fence { cluster: ClusterId::new([8; 16]), ..exclusive("x", 9) };
        client.write(&[exclusive("x", 3)], "line").await.expect("accepted");
        let answer = client.write(&[foreign], "line").await;
        let Err(FenceError::ForeignCluster { known, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(known, AUTHORITY);
        // Bytes are told apart from text by nobody on the way.
        let odd = [exclusive("ключ \"a\",;%", 4), exclusive("b", 4)];
        client.write(&odd, "odd").await.expect("accepted");
        assert_eq!(client.ledger().await.last().map(String::as_str), Some("odd"));
    });
}
