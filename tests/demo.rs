//! `ringfence demo` as a newcomer runs it: every claim holds on both destinations, and
//! whatever ends it, nothing of it is left.
#![cfg(feature = "server")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

#[path = "support/leftovers.rs"]
mod leftovers;

use leftovers::{all_end, folder, left, nothing_is_left, ringfence, text};

fn every_claim_holds_on(destination: &str) {
    let folder = folder();
    let mut demo = ringfence(folder.path(), &["demo", "--dest", destination]);
    let output = demo.output().expect("the demo starts");
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

#[test]
fn every_claim_holds_on_mariadb() {
    every_claim_holds_on("mariadb");
}

#[test]
fn every_claim_holds_on_redis() {
    every_claim_holds_on("redis");
}

/// Sends the signal while A is stopped and the leader is dead, and tells the exit code.
fn ended_by(folder: &Path, signal: &str) -> Option<i32> {
    let mut demo = ringfence(folder, &["demo", "--dest", "postgres", "--ttl", "1m"]);
    let mut child = demo.stdout(Stdio::piped()).spawn().expect("the demo starts");
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
    let output = ringfence(folder.path(), &["demo", "--port", &port]).output();
    let output = output.expect("the demo starts");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains(&format!("cannot listen at 127.0.0.1:{port}")), "{errors}");
    assert!(errors.contains("in use"), "{errors}");
    nothing_is_left(folder.path());
}
