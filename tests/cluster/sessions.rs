//! Sessions end when they should, and nothing of one passes to another.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError};
use ringfence::wire::Reason;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Wire, owner, refused};

const TTL: Duration = Duration::from_millis(1_000);
const LONG: Duration = Duration::from_secs(60);

fn nodes(cluster: &Cluster) -> Vec<Wire> {
    cluster.endpoints().iter().map(|at| Wire::to(at)).collect()
}

/// The owner reconnects as another session and asks at a follower that has slept
/// through the end of the old one.
#[tokio::test]
async fn scenario_a8_a_new_session_of_the_same_owner_inherits_nothing_from_a_lagging_follower() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let lagging = cluster.ids().into_iter().find(|id| *id != leader).expect("a follower");
    let node = Wire::to(cluster.address(leader));
    let first = node.open(owner(1), TTL).await.expect("a session");
    let old = node.try_acquire(&first, "job/7").await.expect("free").token;
    cluster.caught_up(lagging).await;
    cluster.signal(lagging, "STOP");
    let other = node.open(owner(2), LONG).await.expect("a session");
    let token = node.acquire(other.next(), "job/7", PATIENCE).await.expect("freed").token;
    let second = node.open(owner(1), LONG).await.expect("a session");
    assert_ne!(first.session, second.session);
    cluster.signal(lagging, "CONT");
    // The first thing that the follower is asked when it wakes.
    let follower = Wire::to(cluster.address(lagging));
    let held = follower.held(&second).await.expect("an answer");
    assert!(held.grants.is_empty(), "inherited: {held:?}");
    assert_eq!(follower.check("job/7", old).await.ok(), Some(false));
    let held = follower.get("job/7").await.expect("a view").holders;
    assert!(matches!(&held[..], [grant] if grant.token == token), "{held:?}");
    assert_eq!(refused(follower.try_acquire(&second, "job/7").await), Reason::Busy);
    assert_eq!(refused(follower.release(second.next(), "job/7", old).await), Reason::NotHeld);
}

#[tokio::test]
async fn scenario_a9_an_old_session_prolongs_nobody() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let old = node.open(owner(1), TTL).await.expect("a session");
    node.try_acquire(&old, "job/7").await.expect("free");
    let next = node.open(owner(2), TTL).await.expect("a session");
    let waiting = node.acquire(next.next(), "job/7", PATIENCE);
    let renewing = async {
        loop {
            tokio::time::sleep(TTL / 5).await;
            node.renew(&next).await.expect("live");
        }
    };
    let token = tokio::select! {
        granted = waiting => granted.expect("freed").token,
        () = renewing => unreachable!("it does not end"),
    };
    let renewed = Instant::now();
    node.renew(&next).await.expect("live");
    // From here on only the old session's renewals come, to every node.
    while node.check("job/7", token).await.expect("an answer") {
        for node in nodes(&cluster) {
            assert_eq!(node.renew(&old).await.expect_err("ended").0, "SESSION_EXPIRED");
        }
        assert!(renewed.elapsed() < TTL * 10, "somebody prolongs the successor's session");
    }
    let after = renewed.elapsed();
    assert!(after >= TTL, "early: {after:?}");
    let at_most = TTL + cluster.stalls().await + Duration::from_secs(1);
    assert!(after < at_most, "late: {after:?} of {at_most:?}");
}

#[tokio::test]
async fn scenario_a10_a_late_release_of_an_expired_holder_leaves_its_successor_alone() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(2));
    let old = node.open(owner(1), TTL).await.expect("a session");
    let first = node.try_acquire(&old, "job/7").await.expect("free").token;
    let next = node.open(owner(2), LONG).await.expect("a session");
    let token = node.acquire(next.next(), "job/7", PATIENCE).await.expect("freed").token;
    for node in nodes(&cluster) {
        let of_the_dead = node.release(old.next(), "job/7", first).await;
        assert_eq!(refused(of_the_dead), Reason::SessionExpired);
        // Nor under a session that lives: the token is not its own.
        let again = node.open(owner(1), LONG).await.expect("a session");
        for wrong in [first, token, token + 1] {
            let told = node.release(again.next(), "job/7", wrong).await;
            assert_eq!(refused(told), Reason::NotHeld);
        }
        assert_eq!(refused(node.release(next.next(), "job/7", first).await), Reason::NotHeld);
        assert_eq!(node.check("job/7", token).await.ok(), Some(true));
        node.close(&again).await.expect("live");
    }
    node.release(next.next(), "job/7", token).await.expect("held");
}

/// The holder is a process of its own, killed without a word; the lease is all that
/// is left of it. No lock delay was asked for. Formula: ttl after its last renewal,
/// the leader's stalls, one heartbeat and one commit.
#[tokio::test]
async fn scenario_b9_a_killed_holder_is_succeeded_within_its_ttl() {
    let cluster = Cluster::start(3).await;
    let (ttl, slack) = (Duration::from_secs(2), Duration::from_millis(500));
    let mut holder = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["--endpoints", &cluster.endpoints().join(",")])
        .args(["lock", "job/7", "--ttl", "2s", "--", "sleep", "600"])
        .stdin(Stdio::null())
        .spawn()
        .expect("ringfence starts");
    let node = Wire::to(cluster.address(1));
    let until = Instant::now() + PATIENCE;
    let first = loop {
        if let [grant] = &node.get("job/7").await.expect("a view").holders[..] {
            break grant.token;
        }
        assert!(Instant::now() < until, "the holder never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let session = client.session(Duration::from_secs(10)).await.expect("a session");
    // Long enough that the session lives by its renewals.
    let waiting = tokio::spawn(async move { session.acquire("job/7").await });
    tokio::time::sleep(ttl + ttl / 2).await;
    assert_eq!(node.check("job/7", first).await.ok(), Some(true), "it was renewed");
    assert_eq!(node.get("job/7").await.expect("a view").waiting, 1);
    holder.kill().expect("it runs");
    let killed = Instant::now();
    let guard = waiting.await.expect("no panic").expect("freed");
    let after = killed.elapsed();
    holder.wait().expect("a killed process ends");
    let stalls = cluster.stalls().await;
    println!("ttl {ttl:?}: succeeded {after:?} after the holder was killed; stalls {stalls:?}");
    assert!(guard.token().get() > first && guard.is_held());
    assert!(after <= ttl + stalls + slack, "{after:?}");
    // It had renewed at most a third of the ttl before, or it was about to.
    assert!(after >= ttl / 2, "{after:?}");
}

/// Ten million names are shown at the rules (tests/stories); here that a node's log,
/// rows and counters go the same way, and stay gone over a restart.
#[tokio::test]
async fn scenario_d1_names_that_were_used_once_leave_nothing_behind() {
    const NAMES: u64 = 2_000;
    let mut cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    let empty = cluster.status(1).await.expect("it runs").state_hash;
    let mut highest = 0;
    for number in 0..NAMES {
        let name = format!("once/{number}");
        let token = node.try_acquire(&me, &name).await.expect("free").token;
        assert!(token > highest, "a token came back");
        highest = token;
        node.release(me.next(), &name, token).await.expect("held");
    }
    node.close(&me).await.expect("live");
    for restarted in [false, true] {
        if restarted {
            cluster.terminate(1).await;
            cluster.run(1);
            cluster.leader().await;
        }
        let state = cluster.status(1).await.expect("it runs");
        assert_eq!((state.sessions, state.grants, state.waits), (0, 0, 0));
        assert_eq!(state.token, NAMES);
        assert_ne!(state.state_hash, empty, "the counter is in it");
        assert!(node.list("").await.expect("a list").is_empty());
        assert!(node.list_sessions().await.expect("a list").is_empty());
    }
    let me = node.open(owner(2), LONG).await.expect("a session");
    let next = node.try_acquire(&me, "once/0").await.expect("free").token;
    assert_eq!(next, NAMES + 1);
}

#[tokio::test]
async fn scenario_d3_acquires_that_fail_leave_no_session_and_nothing_else_behind() {
    const FAILURES: usize = 1_000;
    let cluster = Cluster::start(1).await;
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let ttl = Duration::from_secs(10);
    let holder = client.session(ttl).await.expect("a session");
    let _guard = holder.try_acquire("job/7").await.expect("free");
    let session = client.session(ttl).await.expect("a session");
    for turn in 0..FAILURES {
        let told = match turn % 4 {
            0 => session.acquire("job/7").wait(Duration::from_millis(1)).await,
            1 => session.acquire("job/7").deadline(Duration::from_millis(2)).await,
            2 => session.acquire("").await,
            _ => session.try_acquire("job/7").await,
        };
        let told = told.map(drop).expect_err("it is held");
        let expected = matches!(
            told,
            ClientError::Busy { .. }
                | ClientError::Timeout { .. }
                | ClientError::Unreachable { .. }
                | ClientError::Invalid { .. }
                | ClientError::AlreadyWaiting { .. }
        );
        assert!(expected, "{told:?}");
    }
    let node = Wire::to(cluster.address(1));
    let until = Instant::now() + PATIENCE;
    loop {
        let state = cluster.status(1).await.expect("it runs");
        // Cancels of the last ones may be under way.
        if (state.sessions, state.grants, state.waits) == (2, 1, 0) {
            break;
        }
        assert!(Instant::now() < until, "left behind: {state:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sessions = node.list_sessions().await.expect("a list");
    assert_eq!(sessions.iter().map(|s| (s.grants, s.waits)).collect::<Vec<_>>(), [(1, 0), (0, 0)]);
}

/// Acquired, released, and forgotten by the authority; then acquired again, also
/// behind a restart.
#[tokio::test]
async fn scenario_e3_a_name_that_was_forgotten_comes_back_with_a_greater_token() {
    let mut cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let mut before = 0;
    for turn in 0..4 {
        let me = node.open(owner(turn), LONG).await.expect("a session");
        let token = node.try_acquire(&me, "job/7").await.expect("free").token;
        assert!(token > before, "{token} after {before}");
        before = token;
        node.release(me.next(), "job/7", token).await.expect("held");
        node.close(&me).await.expect("live");
        assert!(node.list("").await.expect("a list").is_empty());
        if turn == 1 {
            cluster.kill(1);
            cluster.run(1);
            cluster.leader().await;
        }
    }
}

/// Over all names, sessions and nodes, and through a change of leader.
#[tokio::test]
async fn scenario_e4_of_any_two_grants_the_greater_token_is_the_later_one() {
    let mut cluster = Cluster::start(3).await;
    let mut told = Vec::new();
    for number in 0..30 {
        if number == 15 {
            let leader = cluster.leader().await;
            cluster.kill(leader);
            cluster.leader_but(Some(leader)).await;
            cluster.run(leader);
            cluster.caught_up(leader).await;
        }
        let node = Wire::to(cluster.address(number % 3 + 1));
        let me = node.open(owner(number), LONG).await.expect("a session");
        let grant = node.try_acquire(&me, &format!("job/{}", number % 7)).await;
        let grant = match grant {
            Ok(grant) => grant,
            // Held by an earlier turn.
            Err(status) => {
                assert_eq!(crate::wire::reason(&status), Reason::Busy);
                continue;
            }
        };
        let at = grant.granted_at.expect("a revision");
        told.push((grant.token, (at.index, at.ordinal)));
    }
    assert_eq!(told.len(), 7);
    assert!(told.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{told:?}");
}
