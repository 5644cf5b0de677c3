//! A destination behind HTTP in a process of its own, which is killed or frozen.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use ringfence::fence::http::{FenceLayer, Fences, problem};
use ringfence::fence::{Fence, FenceError, sqlite};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rusqlite::Connection;

use super::{Adopting, Served, Writer, as_json, body_of, open, scope, with_marks, written};
use crate::http::served::{Handler, Server, said};
use crate::stories::{AUTHORITY, exclusive};
use crate::vectors::{
    Client, Crash, Destination, PATIENCE, Vectors, before, last, offer, runtime,
    until_it_may_be_killed,
};

/// How long a request is served where that is bounded.
const BRIEFLY: Duration = Duration::from_millis(300);

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
            awaits("awaiting", stop.as_deref()).await;
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

/// Waits for ever, if it is to be frozen here; but it can be dropped.
async fn awaits(place: &str, stop: Option<&str>) {
    if stop == Some(place) {
        println!("\n> {place}");
        std::io::stdout().flush().expect("somebody listens");
        std::future::pending::<()>().await;
    }
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
            .args(["--exact", "vectors::http::crashes::http_is_as_every_crash_may_leave_it"])
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

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
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
        let bound = if form == "brief" { BRIEFLY } else { PATIENCE };
        Server::start(FenceLayer::holding(with_marks(&dir), bound, scope), handler)
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
    let again = offer(client, crash.last.op, &crash.last.offer, "again").await;
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
        runtime().block_on(async {
            before(&mut process.served.client().await, &crash).await;
        });
        std::thread::scope(|scope| {
            let (crash, served) = (&crash, &process.served);
            scope.spawn(move || runtime().block_on(last(served, crash, &said)));
            until_it_may_be_killed(crash, &heard);
            signal(&process.child, "-KILL");
        });
        process.kill();
        let process = Process::start(dir.path(), "holding", "");
        runtime().block_on(async {
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
    runtime().block_on(write(&process.served, 5)).expect("accepted");
    process.kill();
    let mut process = Process::start(dir.path(), form, place);
    std::thread::scope(|scope| {
        let served = &process.served;
        let cut_off = scope.spawn(move || runtime().block_on(write(served, 6)));
        heard(&mut process.stdout, &format!("> {place}"));
        signal(&process.child, "-KILL");
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
fn a_frozen_destination_keeps_its_marks_and_drops_its_late_handler_when_it_goes_on() {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let mut process = Process::start(dir.path(), "brief", "awaiting");
    let mut marks = open(dir.path(), "marks.db");
    let (old, new) = ([exclusive("job/7", 5)], exclusive("job/7", 6));
    std::thread::scope(|scope| {
        let served = &process.served;
        let late = scope.spawn(|| {
            runtime().block_on(async { served.client().await.write(&old, "line").await })
        });
        heard(&mut process.stdout, "> awaiting");
        signal(&process.child, "-STOP");
        // Long past the bound of the request.
        marks.busy_timeout(3 * BRIEFLY).expect("a timeout");
        let busy = sqlite::raise(&mut marks, &new);
        assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
        signal(&process.child, "-CONT");
        marks.busy_timeout(PATIENCE).expect("a timeout");
        sqlite::raise(&mut marks, &new).expect("let go");
        let answer = late.join().expect("it ran");
        let Err(FenceError::Store(why)) = answer else { panic!("{answer:?}") };
        assert!(why.to_string().contains("504"), "{why}");
    });
    process.kill();
    assert_eq!(lines(&open(dir.path(), "ledger.db")), [""; 0]);
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
    runtime().block_on(async {
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
