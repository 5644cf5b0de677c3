//! Clocks: the client's own deadline, tasks that do not run, networks that swallow
//! everything, and wall clocks that jump.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence::client::{Client, Guard, Loss, Session, State};
use ringfence::fence::{FenceError, MemoryMarks};

use crate::cluster::{Cluster, PATIENCE};
use crate::proxy::Proxy;
use crate::wire::{Wire, owner};

/// A client that reaches the cluster over this network only.
async fn behind(cluster: &Cluster) -> (Proxy, Client) {
    let leader = cluster.leader().await;
    // The leader's address alone: no other node names it by its own.
    let proxy = Proxy::before(cluster.address(leader)).await;
    let client = Client::connect([proxy.address()]).expect("a good endpoint");
    (proxy, client)
}

async fn one_held(client: &Client, ttl: Duration) -> (Session, Guard) {
    let session = client.session(ttl).await.expect("a session");
    let guard = session.try_acquire("job/7").await.expect("free");
    (session, guard)
}

/// Packets are swallowed and no connection breaks: nothing but its own clock tells the
/// holder, and it does so before the authority grants to another.
#[tokio::test]
async fn scenario_b10_in_a_silent_network_the_holder_knows_before_anyone_else_is_granted() {
    let cluster = Cluster::start(3).await;
    let ttl = Duration::from_secs(2);
    let (proxy, client) = behind(&cluster).await;
    let (_session, guard) = one_held(&client, ttl).await;
    let guard = Arc::new(guard);
    let node = Wire::to(cluster.address(1));
    let other = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    // Long enough that it lives by its renewals.
    tokio::time::sleep(ttl + ttl / 2).await;
    assert_eq!(guard.state(), State::Held);
    proxy.go_dark();
    let dark = Instant::now();
    let asked = Arc::clone(&guard);
    let waiting = tokio::spawn(async move {
        let token = node.acquire(other.next(), "job/7", PATIENCE).await.expect("freed").token;
        assert_ne!(asked.state(), State::Held, "another was granted it");
        (token, Instant::now())
    });
    assert_eq!(guard.not_held().await, State::Suspended);
    let knew = Instant::now();
    let (token, granted) = waiting.await.expect("the holder knew");
    let (own, authority) = (knew - dark, granted - dark);
    println!(
        "ttl {ttl:?}: the holder knew after {own:?}, the next was granted after {authority:?}"
    );
    assert!(own >= ttl / 4, "no connection broke: {own:?}");
    assert!(token > guard.token().get());
    proxy.heal();
    assert_eq!(guard.lost().await, Loss::SessionExpired);
}

/// The task that acquired is cancelled; the session lives by tasks of its own. The
/// long step after it is five ttl here.
#[tokio::test]
async fn scenario_b12_a_session_outlives_the_task_that_acquired_and_its_end_stops_the_next_write() {
    let cluster = Cluster::start(3).await;
    let ttl = Duration::from_millis(800);
    let (proxy, client) = behind(&cluster).await;
    let (send, receive) = tokio::sync::oneshot::channel();
    let acquiring = tokio::spawn(async move {
        let held = one_held(&client, ttl).await;
        send.send(held).expect("the test waits");
        std::future::pending::<()>().await;
    });
    let (session, guard) = receive.await.expect("acquired");
    acquiring.abort();
    assert!(acquiring.await.expect_err("aborted").is_cancelled());
    let destination = MemoryMarks::new();
    let begun = Instant::now();
    while begun.elapsed() < ttl * 5 {
        assert_eq!(guard.state(), State::Held, "after {:?}", begun.elapsed());
        destination.guarded(guard.fence(), || ()).expect("it holds");
        tokio::time::sleep(ttl / 8).await;
    }
    // Renewals stop; the next holder writes, and the old one's next write is refused.
    proxy.go_dark();
    assert_eq!(guard.not_held().await, State::Suspended);
    let other = Client::connect(cluster.endpoints()).expect("good endpoints");
    let other = other.session(Duration::from_secs(10)).await.expect("a session");
    let successor = other.acquire("job/7").wait(PATIENCE).await.expect("freed");
    destination.guarded(successor.fence(), || ()).expect("it holds");
    let refused = destination.guarded(guard.fence(), || panic!("written")).expect_err("stale");
    let named = matches!(&refused, FenceError::Stale { mark, .. } if *mark == successor.token());
    assert!(named, "{refused:?}");
    assert!(refused.to_string().contains(&guard.token().to_string()), "{refused}");
    proxy.heal();
    assert_eq!(session.lost().await, Loss::SessionExpired);
}

/// The client's only thread is blocked for longer than the ttl. When it runs again it
/// needs no news to know.
#[test]
fn scenario_b13_after_its_thread_was_blocked_a_guard_is_invalid_at_once() {
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let own = own.expect("a runtime");
    let others = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = others.block_on(Cluster::start(3));
    let ttl = Duration::from_secs(1);
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let (session, guard) = own.block_on(one_held(&client, ttl));
    let destination = MemoryMarks::new();
    destination.guarded(guard.fence(), || ()).expect("it holds");
    let successor = own.block_on(async {
        assert!(guard.is_held());
        // Meanwhile another client waits, on threads that run.
        let next = others.spawn(next_in_turn(cluster.endpoints()));
        std::thread::sleep(ttl + Duration::from_secs(1));
        assert!(!guard.is_held(), "valid for {:?}", guard.valid_for());
        assert_eq!(guard.valid_for(), Duration::ZERO);
        next.await.expect("no panic")
    });
    assert!(successor.token() > guard.token());
    destination.guarded(successor.fence(), || ()).expect("it holds");
    let refused = destination.guarded(guard.fence(), || panic!("written"));
    assert!(matches!(refused, Err(FenceError::Stale { .. })), "{refused:?}");
    assert_eq!(own.block_on(session.lost()), Loss::SessionExpired);
    others.block_on(successor.release()).expect("held");
}

async fn next_in_turn(endpoints: Vec<String>) -> Guard {
    let client = Client::connect(endpoints).expect("good endpoints");
    let session = client.session(Duration::from_secs(10)).await.expect("a session");
    session.acquire("job/7").wait(PATIENCE).await.expect("freed")
}

/// The wall clocks of the nodes, which a file each shifts at any moment; no other
/// clock is touched.
struct WallClocks(PathBuf);

impl WallClocks {
    /// Compiles the shim with the C compiler that the server is built with.
    fn new(folder: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/wall_clock.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&folder.join("wall_clock.so"), &source])
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "the C compiler works");
        Self(folder.to_owned())
    }

    fn shift(&self, id: u64, seconds: i64) {
        // Replaced in one step: a node that looks now sees the old shift or the new.
        let (file, fresh) = (self.0.join(format!("shift-{id}")), self.0.join("fresh"));
        let written = std::fs::write(&fresh, seconds.to_string());
        written.and_then(|()| std::fs::rename(&fresh, &file)).expect("the folder is ours");
    }

    fn start(&self, cluster: &mut Cluster, id: u64) {
        let environment = [
            ("LD_PRELOAD", self.0.join("wall_clock.so")),
            ("WALL_CLOCK_SHIFT", self.0.join(format!("shift-{id}"))),
        ];
        cluster.run_with(id, &environment);
    }
}

/// By how many seconds a node's wall clock differed when it started: `RocksDB` stamps
/// what it logs with it.
fn shift_seen(cluster: &Cluster, id: u64) -> i64 {
    let log = cluster.data(id).join("db/LOG");
    let text = std::fs::read_to_string(&log).expect("RocksDB keeps a log");
    let stamp = text.split('.').next().expect("a first piece");
    let stamp = stamp.replacen('/', "-", 2);
    let (day, time) = stamp.split_at("2026-11-30".len());
    let date = |args: &[&str]| {
        let told = Command::new("date").args(args).arg("+%s").output().expect("date runs");
        let told = String::from_utf8(told.stdout).expect("digits");
        told.trim().parse::<i64>().expect("seconds")
    };
    date(&["-d", &format!("{day} {}", &time[1..])]) - date(&[])
}

/// Skewed against each other by minutes, and stepped by hours while they run: nobody
/// expires early and nobody late.
#[tokio::test]
async fn scenario_b5_wall_clocks_that_jump_end_no_session_early_and_keep_none_late() {
    let ttl = Duration::from_secs(2);
    let mut cluster = Cluster::prepare(3, &[]);
    let clocks = WallClocks::new(cluster.folder());
    for (id, skew) in [(1, 0), (2, 180), (3, -180)] {
        clocks.shift(id, skew);
        clocks.start(&mut cluster, id);
    }
    cluster.leader().await;
    for (id, skew) in [(1, 0), (2, 180), (3, -180)] {
        let seen = shift_seen(&cluster, id);
        assert!((seen - skew).abs() < 60, "node {id} sees a shift of {seen} s, not {skew}");
    }
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let session = client.session(ttl).await.expect("a session");
    let live = session.try_acquire("live").await.expect("free");
    let node = Wire::to(cluster.address(1));
    let opened = Instant::now();
    let dead = node.open(owner(1), ttl).await.expect("a session");
    node.try_acquire(&dead, "job/7").await.expect("free");
    let waiting = tokio::spawn(async move {
        let guard = session.acquire("job/7").wait(PATIENCE).await.expect("freed");
        (guard, Instant::now())
    });
    for hour in [3_600, -3_600, 86_400, 0, -3_600, 3_600] {
        for id in cluster.ids() {
            clocks.shift(id, hour * i64::try_from(id).expect("small"));
        }
        tokio::time::sleep(ttl / 2).await;
        assert_eq!(live.state(), State::Held, "at a shift of {hour} s");
    }
    let (_guard, freed) = waiting.await.expect("no panic");
    let after = freed - opened;
    let stalls = cluster.stalls().await;
    println!("ttl {ttl:?}: freed after {after:?}; stalls {stalls:?}");
    assert!(after >= ttl, "early: {after:?}");
    assert!(after < ttl + stalls + Duration::from_secs(1), "late: {after:?}");
    assert!(opened.elapsed() >= ttl * 3 && live.is_held());
}
