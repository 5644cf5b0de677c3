//! Waits: who is granted, who is told no, and by when.

use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, Session};
use ringfence::wire::Reason;

use tokio::task::JoinHandle;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Owner, Wire, owner, reason, refused};

const HOUR: Duration = Duration::from_secs(3_600);

/// H holds, and W waits behind it with a short ttl and does not renew. Answers both
/// and how W's call ended, and after what time.
async fn dead_waiter(node: &Wire) -> (Owner, u64, Reason, Duration) {
    let ttl = Duration::from_secs(1);
    let holder = node.open(owner(1), Duration::from_secs(20)).await.expect("a session");
    let held = node.try_acquire(&holder, "job/7").await.expect("free");
    let opened = Instant::now();
    let waiter = node.open(owner(2), ttl).await.expect("a session");
    let told = node.acquire(waiter.next(), "job/7", HOUR).await;
    (holder, held.token, refused(told), opened.elapsed())
}

#[tokio::test]
async fn scenario_a1_a_waiter_whose_session_ended_is_never_granted_and_costs_no_token() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let (holder, token, told, _) = dead_waiter(&node).await;
    assert_eq!(told, Reason::SessionExpired);
    assert_eq!(node.get("job/7").await.expect("a view").waiting, 0);
    node.release(holder.next(), "job/7", token).await.expect("held");
    let view = node.get("job/7").await.expect("a view");
    assert!(view.holders.is_empty(), "granted to the dead: {view:?}");
    let next = node.try_acquire(&holder, "job/7").await.expect("free");
    assert_eq!(next.token, token + 1, "a token was spent on the dead waiter");
}

#[tokio::test]
async fn scenario_a2_a_waiting_call_ends_with_its_session_and_not_with_the_holder() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(2));
    let (_holder, token, told, after) = dead_waiter(&node).await;
    assert_eq!(told, Reason::SessionExpired);
    let ttl = Duration::from_secs(1);
    let at_most = ttl + cluster.stalls().await + Duration::from_secs(1);
    assert!(after >= ttl && after <= at_most, "{after:?} of {at_most:?}");
    assert_eq!(node.check("job/7", token).await.ok(), Some(true), "the holder is unharmed");
}

/// The deadline counts from when the request was queued, not from the head of the
/// queue; by the authority's clock and by the client's.
#[tokio::test]
async fn scenario_c7_a_wait_behind_a_long_holder_ends_by_its_deadline_and_leaves_the_queue() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(3));
    let holder = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    node.try_acquire(&holder, "job/7").await.expect("free");
    let waiter = node.open(owner(2), Duration::from_secs(60)).await.expect("a session");
    let (asked, second) = (Instant::now(), Duration::from_secs(1));
    let told = node.acquire(waiter.next(), "job/7", second).await;
    let after = asked.elapsed();
    assert_eq!(refused(told), Reason::WaitTimeout);
    let at_most = second * 2 + cluster.stalls().await;
    assert!(after >= second && after < at_most, "{after:?} of {at_most:?}");
    assert_eq!(node.get("job/7").await.expect("a view").waiting, 0);

    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let session = client.session(Duration::from_secs(10)).await.expect("a session");
    let asked = Instant::now();
    let told = session.acquire("job/7").wait(second).await.map(drop);
    let after = asked.elapsed();
    assert_eq!(told, Err(ClientError::Timeout { outcome_unknown: false }));
    let at_most = second * 2 + cluster.stalls().await;
    assert!(after >= second && after < at_most, "{after:?} of {at_most:?}");
    assert_eq!(node.get("job/7").await.expect("a view").waiting, 0);
}

/// So many sessions that wait on one name, and give it back when it is their turn.
fn queue_up(client: &Client, count: usize) -> Vec<JoinHandle<(u64, Session)>> {
    let mut waiters = Vec::new();
    for _ in 0..count {
        let client = client.clone();
        waiters.push(tokio::spawn(async move {
            let session = client.session(Duration::from_secs(60)).await.expect("a session");
            let guard = session.acquire("one/name").wait(HOUR).await.expect("a turn");
            let token = guard.token().get();
            guard.release().await.expect("held");
            // The end of a session would be an entry more.
            (token, session)
        }));
    }
    waiters
}

async fn last_log(cluster: &Cluster) -> u64 {
    let leader = cluster.leader().await;
    cluster.status(leader).await.expect("the leader answers").last_log
}

async fn waiting(node: &Wire, at_most: u64) {
    let until = Instant::now() + PATIENCE;
    while node.get("one/name").await.expect("a view").waiting > at_most {
        assert!(Instant::now() < until, "more than {at_most} wait");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// That a release wakes exactly one call is shown at the rules (tests/stories); here
/// the log tells: one entry a handover, and none by the others that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_c1_a_handover_costs_one_entry_and_a_thousand_waiters_survive_the_leader() {
    const WAITERS: usize = 1_000;
    let mut cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let holder = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    let first = node.try_acquire(&holder, "one/name").await.expect("free").token;
    let clients: Vec<_> =
        (0..4).map(|_| Client::connect(cluster.endpoints()).expect("good endpoints")).collect();
    let mut waiters = Vec::new();
    for client in &clients {
        waiters.extend(queue_up(client, WAITERS / clients.len()));
    }
    let until = Instant::now() + PATIENCE;
    while node.get("one/name").await.expect("a view").waiting < WAITERS as u64 {
        assert!(Instant::now() < until, "not all wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = last_log(&cluster).await;
    node.release(holder.next(), "one/name", first).await.expect("held");
    waiting(&node, WAITERS as u64 / 2).await;
    let (after, left) = (last_log(&cluster).await, node.get("one/name").await.expect("a view"));
    let handovers = WAITERS as u64 - left.waiting;
    let entries = after - before;
    println!("{handovers} handovers, {entries} entries of the log");
    assert!(entries <= handovers + 2, "{entries} entries for {handovers} handovers");
    cluster.kill(cluster.leader().await);
    let mut served = Vec::new();
    for waiter in waiters {
        served.push(waiter.await.expect("every waiter is served"));
    }
    let mut tokens: Vec<u64> = served.iter().map(|(token, _)| *token).collect();
    tokens.sort_unstable();
    let all: Vec<u64> = (first + 1..=first + WAITERS as u64).collect();
    assert_eq!(tokens, all, "each served once");
}

const WITHIN: Duration = Duration::from_millis(1_500);

/// A call with that deadline: it ends then, and says whether it may have taken effect.
async fn ends_by_its_deadline(
    cluster: &Cluster,
    what: &str,
    call: impl Future<Output = Result<(), ClientError>>,
) {
    let asked = Instant::now();
    let told = call.await;
    let after = asked.elapsed();
    let at_most = WITHIN + cluster.stalls().await + Duration::from_millis(500);
    assert!(after < at_most, "{what} took {after:?} of {at_most:?}");
    assert!(after + Duration::from_millis(50) > WITHIN, "{what} gave up at {after:?}");
    match told {
        Err(ClientError::Unreachable { outcome_unknown, last }) => {
            println!("{what}: unknown={outcome_unknown}, {last}");
        }
        // While the session's renewals are not overdue, it may be the queue that is slow.
        Err(ClientError::Timeout { outcome_unknown: true }) if what == "acquire" => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn scenario_c6_without_a_majority_every_call_ends_by_its_own_deadline() {
    let cluster = Cluster::start(3).await;
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let session = client.session(Duration::from_secs(60)).await.expect("a session");
    let guard = session.try_acquire("job/7").await.expect("free");
    let leader = cluster.leader().await;
    for id in cluster.ids().into_iter().filter(|id| *id != leader) {
        cluster.signal(id, "STOP");
    }
    let call = async { session.try_acquire("job/8").deadline(WITHIN).await.map(drop) };
    ends_by_its_deadline(&cluster, "try", call).await;
    let call = async { session.acquire("job/9").deadline(WITHIN).await.map(drop) };
    ends_by_its_deadline(&cluster, "acquire", call).await;
    let call = async { client.session(WITHIN).deadline(WITHIN).await.map(drop) };
    ends_by_its_deadline(&cluster, "open", call).await;
    ends_by_its_deadline(&cluster, "release", guard.release_within(WITHIN)).await;
    ends_by_its_deadline(&cluster, "close", session.close_within(WITHIN)).await;
}

/// A request to a minority, on the bare wire: the leader in it says so, and keeps no
/// call whose fate is open for ever.
#[tokio::test]
async fn a_leader_without_a_majority_says_so_and_keeps_no_call_for_ever() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let node = Wire::to(cluster.address(leader));
    let me = node.open(owner(1), Duration::from_secs(20)).await.expect("a session");
    let node = node.once();
    for id in cluster.ids().into_iter().filter(|id| *id != leader) {
        cluster.signal(id, "STOP");
    }
    let asked = Instant::now();
    let told = node.try_acquire(&me, "job/7").await.expect_err("no majority");
    let first = asked.elapsed();
    assert!([Reason::OutcomeUnknown, Reason::NoQuorum].contains(&reason(&told)), "{told:?}");
    let at_most = Duration::from_secs(8) + cluster.stalls().await;
    assert!(first < at_most, "{first:?} of {at_most:?}");
    // Its lease on the majority is over by now: nothing more is appended.
    let told = node.try_acquire(&me, "job/8").await.expect_err("no majority");
    assert_eq!(reason(&told), Reason::NoQuorum);
    assert_eq!(refused(node.check("job/7", 1).await), Reason::NoQuorum);
    assert_eq!(node.renew(&me).await.expect_err("no majority").0, "NO_QUORUM");
}

/// A request to a minority without its leader: nothing was sent, so nothing is unknown.
#[tokio::test]
async fn the_last_node_that_is_left_says_that_there_is_no_majority() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let mut others = cluster.ids().into_iter().filter(|id| *id != leader);
    let (last, other) = (others.next().expect("one of two"), others.next().expect("two"));
    let node = Wire::to(cluster.address(last));
    let me = node.open(owner(1), Duration::from_secs(20)).await.expect("a session");
    let node = node.once();
    cluster.kill(other);
    cluster.kill(leader);
    // What was under way with the dead leader may have arrived there; the next has not.
    let _breaks_off = node.check("job/7", 1).await;
    let asked = Instant::now();
    assert_eq!(refused(node.try_acquire(&me, "job/7").await), Reason::NoQuorum);
    assert_eq!(refused(node.check("job/7", 1).await), Reason::NoQuorum);
    assert_eq!(node.renew(&me).await.expect_err("no majority").0, "NO_QUORUM");
    let (after, at_most) = (asked.elapsed(), Duration::from_secs(5) + cluster.stalls().await);
    assert!(after < at_most, "{after:?} of {at_most:?}");
}
