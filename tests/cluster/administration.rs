//! What administrators break, and what those see who are in the midst of it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, State};
use ringfence::locks::{Note, Token};
use ringfence::wire::Reason;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Wire, owner, refused};

const LONG: Duration = Duration::from_secs(600);

fn note(reason: &str) -> Note {
    Note::new("alice", reason).expect("a good note")
}

async fn waiting(node: &Wire, name: &str, count: u64) {
    let until = Instant::now() + PATIENCE;
    while node.get(name).await.expect("a view").waiting != count {
        assert!(Instant::now() < until, "{count} never wait for {name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The scenario expects `REVOKED`; the contract's word for a grant that was made and has
/// ended, whatever the cause, is `GRANT_ENDED`, with the token.
#[tokio::test]
async fn scenario_a4_an_acquire_whose_grant_was_broken_meanwhile_does_not_succeed() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let me = node.open(owner(1), LONG).await.expect("a session");
    // Granted; the answer is on its way to a client that sleeps.
    let header = me.next();
    let grant = node.acquire(header.clone(), "job/7", Duration::ZERO).await.expect("free");
    let token = Token::new(grant.token).expect("a good token");
    let fences = client.revoke("job/7", token, note("stuck")).await.expect("held");
    assert!(fences[0].token > token && fences[0].floor == fences[0].token);
    assert_eq!(fences[0].cluster, client.session(LONG).await.expect("a session").cluster());
    // It wakes up and asks under its id.
    let told = node.acquire(header, "job/7", Duration::ZERO).await;
    assert_eq!(refused(told), Reason::GrantEnded);
    assert_eq!(node.check("job/7", grant.token).await.ok(), Some(false));
    // A break that names the stale token hits nobody.
    let next = node.open(owner(2), LONG).await.expect("a session");
    let newer = node.try_acquire(&next, "job/7").await.expect("free");
    let again = client.revoke("job/7", token, note("stuck")).await;
    assert!(matches!(again, Err(ClientError::NotFound { .. })), "{again:?}");
    assert_eq!(node.check("job/7", newer.token).await.ok(), Some(true));
}

/// A guard of the client library hears of it, and its queue goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_was_revoked_is_lost_and_a_frozen_resource_is_granted_when_thawed() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let session = client.session(Duration::from_secs(3)).await.expect("a session");
    let guard = session.acquire("db/orders").await.expect("free");
    let other = client.session(LONG).await.expect("a session");
    let waits = tokio::spawn(async move {
        let guard = other.acquire("db/orders").wait(LONG).await.expect("thawed");
        (guard, other)
    });
    waiting(&node, "db/orders", 1).await;
    let frozen = client.freeze("db/orders", note("cutover")).await.expect("open");
    assert!(frozen.token > guard.token());
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.expect("it hears of it");
    assert!(matches!(guard.state(), State::Lost(_)), "{lost:?}");
    let tried = session.try_acquire("db/orders").await.map(drop);
    assert!(matches!(tried, Err(ClientError::Frozen { .. })), "{tried:?}");
    let again = client.freeze("db/orders", note("again")).await;
    assert!(matches!(again, Err(ClientError::Frozen { .. })), "{again:?}");
    assert!(!waits.is_finished(), "granted while it is frozen");
    client.thaw("db/orders", frozen.token, note("done")).await.expect("frozen");
    let (guard, _session) = waits.await.expect("it keeps its place");
    assert!(guard.token() > frozen.token);
}

/// The waiter's node is restarted, then the lock is broken by an operator: the waiter is
/// granted long before its own deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_c4_a_waiter_is_granted_though_its_node_was_restarted_and_the_lock_broken() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let restarted = cluster.ids().into_iter().find(|id| *id != leader).expect("a follower");
    let node = Wire::to(cluster.address(leader));
    let holder = node.open(owner(1), LONG).await.expect("a session");
    let held = node.try_acquire(&holder, "job/7").await.expect("free");
    // Its first node is the one that goes; the client goes to the leader by itself.
    let client = Client::connect([cluster.address(restarted)]).expect("a good endpoint");
    let session = client.session(LONG).await.expect("a session");
    let waits = tokio::spawn(async move {
        let guard = session.acquire("job/7").wait(LONG).await.expect("granted");
        (guard, session)
    });
    waiting(&node, "job/7", 1).await;
    for id in [restarted, leader] {
        cluster.kill(id);
        cluster.leader_but(Some(id)).await;
        cluster.run(id);
        cluster.caught_up(id).await;
    }
    let all = Client::connect(cluster.endpoints()).expect("good endpoints");
    let broken = Instant::now();
    let token = Token::new(held.token).expect("a good token");
    all.revoke("job/7", token, note("its holder is gone")).await.expect("held");
    let (guard, _session) = waits.await.expect("granted");
    let after = broken.elapsed();
    assert!(guard.token() > token);
    // One reconnect, and what a busy machine adds.
    let at_most = Duration::from_secs(5) + cluster.stalls().await;
    assert!(after < at_most, "{after:?} of {at_most:?}");
}

/// There is no authentication and no encryption yet: the rest of the scenario holds.
#[tokio::test]
async fn scenario_d2_a_vanished_waiter_is_gone_when_its_session_ends() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let holder = node.open(owner(1), LONG).await.expect("a session");
    node.try_acquire(&holder, "job/7").await.expect("free");
    let mut waiter = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["--endpoints", &cluster.endpoints().join(",")])
        .args(["lock", "-q", "job/7", "--ttl", "2s", "--wait", "10m", "--", "true"])
        .stdin(Stdio::null())
        .spawn()
        .expect("ringfence runs");
    waiting(&node, "job/7", 1).await;
    waiter.kill().expect("it runs");
    let killed = Instant::now();
    waiter.wait().expect("a child can be waited for");
    waiting(&node, "job/7", 0).await;
    let after = killed.elapsed();
    let at_most = Duration::from_secs(2 + 2) + cluster.stalls().await;
    assert!(after < at_most, "{after:?} of {at_most:?}");
    assert_eq!(node.list_sessions().await.expect("a list").len(), 1);
}
