//! `lock --fence`: earlier owners are shut out before the command starts. [I9]

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use ringfence::fence::{Fence, FenceError, sqlite};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rusqlite::Connection;

use crate::cluster::Cluster;
use crate::fences::url;
use crate::postgres_server::Postgres;
use crate::redis_server::Redis;
use crate::run::{Lock, done, eventually, finish, json, on, ringfence};

/// A file with marks, as `--fence` names it.
struct File {
    path: PathBuf,
    store: String,
}

impl File {
    fn at(path: &Path) -> Self {
        sqlite::install(&Connection::open(path).unwrap()).unwrap();
        Self { path: path.to_owned(), store: format!("sqlite:{}", path.display()) }
    }

    fn mark(&self) -> Option<u64> {
        let resource = ResourceName::new("job/7").unwrap();
        let connection = Connection::open(&self.path).unwrap();
        sqlite::mark(&connection, &resource, None).unwrap().map(Token::get)
    }

    /// An owner inside its transaction, past its check: until it is dropped nobody raises.
    fn owner_inside(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.pragma_update(None, "synchronous", "EXTRA").unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }
}

fn holder(cluster: &Cluster) -> Option<u64> {
    let shown = json(on(cluster, &["get", "job/7", "-o", "json"]));
    shown["holders"].as_array().unwrap().first().map(|held| held["token"].as_u64().unwrap())
}

#[tokio::test]
async fn every_store_is_raised_before_the_command_starts() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let file = File::at(&folder.path().join("orders.db"));
    let stores = [url(&postgres, "postgres"), redis.url(), file.store.clone()];
    let mut lock = on(&cluster, &["lock", "job/7"]);
    for store in &stores {
        assert_eq!(done(ringfence(&["fence", "install", store])).code, 0);
        lock.args(["--fence", store]);
    }
    let shows = "echo $RINGFENCE_TOKEN; for s in \"$@\"; do \"$R\" fence show \"$s\" job/7; done";
    lock.args(["--", "sh", "-c", shows, "sh"]).args(&stores);
    lock.env("R", env!("CARGO_BIN_EXE_ringfence"));
    let ended = done(lock);
    assert_eq!(ended.code, 0, "{ended:?}");
    let token: u64 = ended.out.lines().next().unwrap().parse().unwrap();
    assert_eq!(ended.out, format!("{token}\n{}", format!("job/7: {token}\n").repeat(3)));
}

#[tokio::test]
async fn while_an_earlier_owner_is_inside_a_store_the_command_does_not_start() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let file = File::at(&folder.path().join("orders.db"));
    let inside = file.owner_inside();
    let lock = |wait: &str| {
        on(&cluster, &["lock", "job/7", "--fence", &file.store, "--fence-wait", wait, "--", "true"])
    };
    let ended = done(lock("2s"));
    assert_eq!(ended.code, 69, "{ended:?}");
    let told = format!("the fence is not raised at sqlite {}", file.path.display());
    assert!(ended.err.contains(&format!("job/7: {told}: ")), "{ended:?}");
    assert!(ended.err.contains("is granted, and is raised at sqlite"), "it says why: {ended:?}");
    assert_eq!(holder(&cluster), None, "nothing is left held");
    // Another that waits gets on when the owner has left.
    let waits = lock("20s").spawn().unwrap();
    eventually("it is granted", || holder(&cluster).is_some());
    let token = holder(&cluster);
    drop(inside);
    let ended = finish(waits);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(file.mark(), token);
}

#[tokio::test]
async fn after_a_new_owner_has_died_between_two_raises_the_next_one_goes_through() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["a.db", "b.db"].map(|name| File::at(&folder.path().join(name)));
    let locked = |options: &[&str], script: &str| {
        let options = [&["job/7", "--ttl", "2s"], options].concat();
        Lock::run(on(&cluster, &["lock"]), &options, script)
    };
    let old = locked(&[], "echo $RINGFENCE_TOKEN > $D/token; echo $RINGFENCE_CLUSTER > $D/cluster");
    let token: u64 = old.wrote("token").trim().parse().unwrap();
    let cluster_id = ClusterId::from_hex(old.wrote("cluster").trim()).unwrap();
    old.done();
    let fences = ["--fence", &first.store, "--fence", &second.store];
    let inside = second.owner_inside();
    let died = locked(&fences, "echo > $D/ran");
    eventually("one of the two is raised", || first.mark().is_some());
    died.signal(Signal::SIGKILL);
    let half = first.mark();
    assert_eq!(second.mark(), None);
    let next = locked(&fences, "echo $RINGFENCE_TOKEN > $D/token");
    eventually("the dead one's session has ended", || {
        holder(&cluster).is_some_and(|t| Some(t) > half)
    });
    drop(inside);
    let new: u64 = next.wrote("token").trim().parse().unwrap();
    assert_eq!((first.mark(), second.mark()), (Some(new), Some(new)));
    assert!(!died.has_written("ran"));
    // The owner from before them all wakes up.
    let token = Token::new(token).unwrap();
    let resource = ResourceName::new("job/7").unwrap();
    let late = Fence { cluster: cluster_id, resource, slot: None, token, floor: token };
    for file in [&first, &second] {
        let mut connection = Connection::open(&file.path).unwrap();
        connection.pragma_update(None, "synchronous", "EXTRA").unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        let write = sqlite::guarded(&mut connection, &late, |_| Ok(()));
        assert!(matches!(write, Err(FenceError::Stale { mark, .. }) if mark.get() == new));
    }
}

#[tokio::test]
async fn a_store_that_refuses_keeps_the_command_from_starting() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bare.db");
    std::fs::write(&path, "").unwrap();
    let bare = format!("sqlite:{}", path.display());
    let lock = |store: &str| done(on(&cluster, &["lock", "job/7", "--fence", store, "--", "true"]));
    let missing = lock(&bare);
    assert_eq!(missing.code, 77, "{missing:?}");
    assert!(missing.err.contains("install the fence schema"), "{missing:?}");
    let file = File::at(&path);
    let resource = ResourceName::new("job/7").unwrap();
    let top = Token::new((1 << 53) - 1).unwrap();
    let fence = Fence {
        cluster: ClusterId::from_hex(&"ab".repeat(16)).unwrap(),
        resource,
        slot: None,
        token: top,
        floor: top,
    };
    let mut connection = Connection::open(&file.path).unwrap();
    connection.pragma_update(None, "synchronous", "EXTRA").unwrap();
    sqlite::raise(&mut connection, &fence).unwrap();
    let foreign = lock(&file.store);
    assert_eq!(foreign.code, 77, "{foreign:?}");
    assert!(foreign.err.contains("fence of another authority"), "{foreign:?}");
    assert_eq!(lock("mysql-like:none").code, 64);
    assert_eq!(holder(&cluster), None);
}
