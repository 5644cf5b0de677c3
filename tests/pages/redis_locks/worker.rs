//! A worker in a process of its own: takes the lock, looks whether it has it, is stopped by
//! SIGSTOP right then, and writes when it wakes up.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use ringfence::fence::FenceError;
use ringfence::fence::redis::Write;
use tokio::sync::mpsc;

use super::key::{self, Key};
use super::redlock::Redlock;
use super::{LEDGER, ask, connect, fence, marks, until};

/// Of the lock of the worker that is paused.
pub const TTL: Duration = Duration::from_secs(1);

const LOCKS: &str = "RINGFENCE_TEST_LOCKS";
const DESTINATION: &str = "RINGFENCE_TEST_DESTINATION";
const TOKEN: &str = "RINGFENCE_TEST_TOKEN";

/// The process; killed, and reaped, when dropped.
pub struct Worker {
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Runs the test of this name in another process, where it is the worker. One server is
    /// the lock's own, several make a Redlock; with a token, the worker shows its fence.
    pub fn start(test: &str, locks: &[String], destination: &str, token: Option<u64>) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(LOCKS, locks.join(" "))
            .env(DESTINATION, destination)
            .env(TOKEN, token.map(|token| token.to_string()).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let stdout = process.stdout.take().expect("it is piped");
        Self { process, says: BufReader::new(stdout).lines() }
    }

    /// What it says next.
    pub fn says(&mut self) -> String {
        let mut lines = self.says.by_ref().map_while(Result::ok);
        let line = lines.find_map(|line| line.strip_prefix("> ").map(str::to_owned));
        line.expect("it says something before it ends")
    }

    /// Returns when it has said that it holds the lock, and is stopped.
    pub async fn stopped(&mut self) {
        assert_eq!(self.says(), "holds");
        let tasks = format!("/proc/{}/task", self.process.id());
        let stopped = async || {
            let threads = std::fs::read_dir(&tasks).expect("it is a child of ours").flatten();
            let state = |thread: std::fs::DirEntry| {
                // The state follows the name, which stands in parentheses.
                let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
            };
            threads.into_iter().all(state).then_some(())
        };
        until("all its threads are stopped", stopped).await;
    }

    /// It goes on where it was stopped.
    pub fn wakes(&self) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", "CONT", &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "it is a child of ours");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Whether this process is a worker; then it has done its work.
pub async fn is_this() -> bool {
    let Ok(locks) = std::env::var(LOCKS) else { return false };
    let locks: Vec<String> = locks.split(' ').map(str::to_owned).collect();
    let destination = std::env::var(DESTINATION).expect("it is set with the other");
    let token = std::env::var(TOKEN).expect("it is set with the other").parse().ok();
    let mut destination = connect(&destination).await;
    match locks.as_slice() {
        [one] => with_one_server(&mut connect(one).await, &mut destination, token).await,
        several => with_redlock(several, &mut destination, token).await,
    }
    true
}

async fn with_one_server(
    server: &mut MultiplexedConnection,
    destination: &mut MultiplexedConnection,
    token: Option<u64>,
) {
    let held = async || {
        let key = key::acquire(server, TTL).await?;
        let mut prolonged = prolongs(key.clone(), server.clone());
        // It has lived longer than its first ttl: the watchdog works.
        for _ in 0..4 {
            prolonged.recv().await?;
        }
        key.holds(server).await.then_some((key, prolonged))
    };
    let (key, _prolonged) = until("it has the lock", held).await;
    say("holds");
    stop_here();
    say(&write(destination, "A", token).await);
    let freed = key.release(server).await;
    say(if freed { "freed its lock" } else { "had no lock to free" });
}

/// The watchdog: a task of its own that prolongs the lock as long as it is there and somebody
/// listens, and tells each time.
fn prolongs(key: Key, mut server: MultiplexedConnection) -> mpsc::UnboundedReceiver<()> {
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TTL / 3).await;
            if !key.prolong(&mut server, TTL).await || tell.send(()).is_err() {
                return;
            }
        }
    });
    told
}

async fn with_redlock(
    servers: &[String],
    destination: &mut MultiplexedConnection,
    token: Option<u64>,
) {
    let redlock = Redlock::of(servers.iter().cloned());
    let valid = async || redlock.acquire(TTL).await.filter(|held| !held.validity().is_zero());
    let held = until("it has the lock, and time", valid).await;
    say("holds");
    stop_here();
    say(&write(destination, "A", token).await);
    let freed = redlock.release(&held).await;
    say(if freed > 0 { "freed its lock" } else { "had no lock to free" });
}

/// One write to the destination, and what that answers. Without a token it is unguarded.
pub async fn write(
    destination: &mut MultiplexedConnection,
    who: &str,
    token: Option<u64>,
) -> String {
    let Some(token) = token else {
        let _: u64 = ask(destination, &["RPUSH", LEDGER, who]).await;
        return "accepted".into();
    };
    let mut push = cmd("RPUSH");
    push.arg(LEDGER).arg(who);
    let write = Write::commands(&[push]).key(LEDGER);
    let answer: Result<Vec<u64>, FenceError> =
        marks().guarded(destination, &[fence(token)], &write).await;
    answer.map_or_else(|refused| refused.to_string(), |_| "accepted".into())
}

/// Where a garbage collector, a hypervisor or a laptop's lid would stop it. The thread that
/// asks waits for a shell that ends only when all threads here are stopped, this one included:
/// a thread runs on for a while after its process was sent the signal.
fn stop_here() {
    let script = "kill -s STOP $PPID
        while cat /proc/$PPID/task/*/stat | sed 's/.*) //' | grep -qv '^T'; do :; done";
    let stopped = Command::new("sh").args(["-c", script]).status();
    assert!(stopped.is_ok_and(|status| status.success()), "a shell can stop its parent");
}

fn say(what: &str) {
    println!("\n> {what}");
}
