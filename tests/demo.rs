//! `ringfence demo` as a newcomer runs it: every claim holds on both destinations, and
//! whatever ends it, nothing of it is left.
#![cfg(feature = "server")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

const PATIENCE: Duration = Duration::from_secs(30);
/// In the environment of everything that the demo starts.
const MARK: &str = "DEMO_STARTED_BY";

/// The demo, with a temporary folder and a mark that are this test's own.
fn demo(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.arg("demo").args(flags).env_remove("DEST");
    command.env("TMPDIR", folder).env(MARK, folder).stdin(Stdio::null());
    command
}

/// What it started and has left running; a zombie runs no more.
fn left(folder: &Path) -> Vec<String> {
    let mark = format!("{MARK}={}\0", folder.display());
    let processes = fs::read_dir("/proc").expect("Linux lists its processes").flatten();
    let ours = processes.filter(|process| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let marked = String::from_utf8_lossy(&environment).contains(&mark);
        // PostgreSQL writes over its environment.
        let inside = fs::read_link(process.path().join("cwd"));
        let inside = inside.is_ok_and(|cwd| cwd.starts_with(folder));
        (marked || inside) && process.path() != Path::new("/proc/self")
    });
    let line = |path: &Path| fs::read_to_string(path.join("cmdline")).unwrap_or_default();
    ours.map(|process| line(&process.path()).replace('\0', " ")).collect()
}

/// Nothing is left running, though not necessarily this very moment.
fn all_end(folder: &Path) {
    let until = Instant::now() + PATIENCE;
    while !left(folder).is_empty() {
        assert!(Instant::now() < until, "left running: {:#?}", left(folder));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn nothing_is_left(folder: &Path) {
    assert_eq!(left(folder), [""; 0], "processes");
    let files: Vec<_> = fs::read_dir(folder).expect("ours").flatten().collect();
    assert!(files.is_empty(), "files: {files:?}");
}

/// A folder that a server running as another user can get to.
fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("ours");
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn every_claim_holds_on(destination: &str) {
    let folder = folder();
    let output: Output =
        demo(folder.path(), &["--dest", destination]).output().expect("the demo starts");
    let (told, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{told}\n{errors}");
    let verdicts: Vec<&str> = told.lines().filter(|line| line.starts_with("ok ")).collect();
    assert_eq!(verdicts.len(), 7, "{told}");
    assert!(!told.contains("FAILED") && told.ends_with("\nevery claim held\n"), "{told}");
    let refused = "the destination: stale fence: token 1 is below the mark 2 of job/7";
    assert!(told.contains(refused), "{told}");
    nothing_is_left(folder.path());
}

#[test]
fn every_claim_holds_on_sqlite() {
    every_claim_holds_on("sqlite");
}

#[test]
fn every_claim_holds_on_postgresql() {
    every_claim_holds_on("postgres");
}

/// Sends the signal while A is stopped and the leader is dead, and tells the exit code.
fn ended_by(folder: &Path, signal: &str) -> Option<i32> {
    let mut command = demo(folder, &["--dest", "postgres", "--ttl", "1m"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the demo starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let killed = lines.by_ref().map_while(Result::ok).find(|line| line.contains("SIGKILL"));
    assert!(killed.is_some(), "the demo came to the kill");
    assert!(left(folder).len() >= 5, "two nodes, two workers, a server: {:?}", left(folder));
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    child.wait().expect("the demo is our child").code()
}

#[test]
fn a_signal_ends_the_demo_and_all_that_it_started() {
    let folder = folder();
    assert_eq!(ended_by(folder.path(), "TERM"), Some(128 + 15));
    nothing_is_left(folder.path());
}

#[test]
fn a_demo_that_is_killed_leaves_no_process() {
    let folder = folder();
    assert_eq!(ended_by(folder.path(), "KILL"), None);
    all_end(folder.path());
}

#[test]
fn a_busy_port_is_named_in_one_line() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it listens").port().to_string();
    let output = demo(folder.path(), &["--port", &port]).output().expect("the demo starts");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains(&format!("cannot listen at 127.0.0.1:{port}")), "{errors}");
    assert!(errors.contains("in use"), "{errors}");
    nothing_is_left(folder.path());
}
