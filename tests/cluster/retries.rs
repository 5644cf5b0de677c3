//! Requests that are sent again, come late, or lose their reply.

use std::time::{Duration, Instant};

use ringfence::wire::{Reason, v1};

use crate::cluster::{Cluster, PATIENCE};
use crate::proxy::Proxy;
use crate::wire::{Wire, insist, owner, reason, refused};

const TRY: Duration = Duration::ZERO;

async fn holders(node: &Wire, resource: &str) -> Vec<v1::Grant> {
    node.get(resource).await.expect("a view").holders
}

/// Sends an acquire through a network that swallows the reply, and waits until it has
/// taken effect all the same.
async fn acquire_without_reply(cluster: &Cluster, leader: u64, header: v1::RequestHeader) -> u64 {
    let proxy = Proxy::before(cluster.address(leader)).await;
    let dark = Wire::to(proxy.address()).once();
    dark.get("job/7").await.expect("connected");
    proxy.hold_replies();
    let asked = tokio::spawn(async move { dark.acquire(header, "job/7", TRY).await });
    let node = Wire::to(cluster.address(leader));
    let until = Instant::now() + PATIENCE;
    let token = loop {
        if let [grant] = &holders(&node, "job/7").await[..] {
            break grant.token;
        }
        assert!(Instant::now() < until, "the request never arrived");
    };
    proxy.cut();
    let lost = asked.await.expect("it ends").expect_err("the reply is lost");
    assert_eq!(Reason::of(&lost), None, "it came from the network: {lost:?}");
    token
}

#[tokio::test]
async fn scenario_a6_after_a_lost_reply_a_retry_on_another_node_brings_the_same_token() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let me = Wire::to(cluster.address(leader)).open(owner(1), Duration::from_secs(30)).await;
    let me = me.expect("a session");
    let header = me.next();
    let token = acquire_without_reply(&cluster, leader, header.clone()).await;
    cluster.kill(leader);
    let next = cluster.leader_but(Some(leader)).await;
    for id in cluster.ids().into_iter().filter(|id| *id != leader) {
        let nodes = [Wire::to(cluster.address(id))];
        let header = &header;
        let again =
            insist(&nodes, |node| async move { node.acquire(header.clone(), "job/7", TRY).await });
        assert_eq!(again.await.expect("the same grant").token, token, "node {id}");
    }
    let nodes = [Wire::to(cluster.address(next))];
    let held = holders(&nodes[0], "job/7").await;
    assert!(matches!(&held[..], [grant] if grant.token == token), "{held:?}");
    let other = nodes[0].open(owner(2), Duration::from_secs(30)).await.expect("a session");
    nodes[0].release(me.next(), "job/7", token).await.expect("held");
    let grant = nodes[0].try_acquire(&other, "job/7").await.expect("free");
    assert_eq!(grant.token, token + 1, "one grant, one token");
}

#[tokio::test]
async fn scenario_a6_a_grant_that_nobody_claims_is_freed_when_its_session_ends() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let node = Wire::to(cluster.address(leader));
    let ttl = Duration::from_millis(1_500);
    let opened = Instant::now();
    let me = node.open(owner(1), ttl).await.expect("a session");
    let other = node.open(owner(2), Duration::from_secs(30)).await.expect("a session");
    let token = acquire_without_reply(&cluster, leader, me.next()).await;
    let next = node.acquire(other.next(), "job/7", PATIENCE).await.expect("freed");
    let after = opened.elapsed();
    assert!(next.token > token);
    assert!(after >= ttl, "early: {after:?}");
    let at_most = ttl + cluster.stalls().await + Duration::from_secs(1);
    assert!(after < at_most, "late: {after:?} of {at_most:?}");
}

/// Counterexample 8 of the contract, over the network and a change of leader.
#[tokio::test]
async fn a_late_duplicate_of_an_acquire_after_its_release_grants_nothing() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let node = Wire::to(cluster.address(leader));
    let me = node.open(owner(1), Duration::from_secs(30)).await.expect("a session");
    let acquire = me.header(1, 1);
    let token = node.acquire(acquire.clone(), "job/7", TRY).await.expect("free").token;
    // Released while the acquire's answer counts as awaited, so that it is kept.
    node.release(me.header(2, 1), "job/7", token).await.expect("held");
    let late = node.acquire(acquire.clone(), "job/7", TRY).await;
    assert_eq!(refused(late), Reason::GrantEnded);
    let other = node.open(owner(2), Duration::from_secs(30)).await.expect("a session");
    let successor = node.try_acquire(&other, "job/7").await.expect("free").token;
    // From here on it is settled and forgotten.
    node.check("job/7", token).await.expect("an answer");
    let busy = node.acquire(me.header(3, 3), "job/7", TRY).await;
    assert_eq!(refused(busy), Reason::Busy);
    cluster.kill(leader);
    cluster.leader_but(Some(leader)).await;
    let nodes: Vec<Wire> = cluster.endpoints().iter().map(|at| Wire::to(at)).collect();
    let late = insist(&nodes, |node| {
        let acquire = acquire.clone();
        async move { node.acquire(acquire, "job/7", TRY).await }
    });
    assert_eq!(refused(late.await), Reason::StaleRequest);
    let current = insist(&nodes, |node| async move { node.check("job/7", successor).await });
    assert_eq!(current.await.ok(), Some(true));
}

/// The same id with other contents is another request, and refused as such.
#[tokio::test]
async fn a_request_id_with_other_contents_is_refused_and_changes_nothing() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), Duration::from_secs(30)).await.expect("a session");
    let first = node.acquire(me.header(1, 1), "job/7", TRY).await.expect("free");
    let told = node.acquire(me.header(1, 1), "job/8", TRY).await.expect_err("another request");
    assert_eq!(reason(&told), Reason::InvalidArgument);
    assert!(told.message().contains("request_id"), "{told:?}");
    assert!(holders(&node, "job/8").await.is_empty());
    assert_eq!(node.check("job/7", first.token).await.ok(), Some(true));
}

/// Requests carry no time of the client's: what is built and sent much later means
/// what it says, and the authority's own clock decides whether the session lives.
#[tokio::test]
async fn scenario_a13_a_request_that_is_sent_long_after_it_was_built_decides_by_no_client_clock() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let ttl = Duration::from_millis(800);
    let paused = node.open(owner(1), ttl).await.expect("a session");
    let live = node.open(owner(2), Duration::from_secs(30)).await.expect("a session");
    let old = node.try_acquire(&paused, "job/7").await.expect("free").token;
    // Built while all was well …
    let (acquire, release) = (paused.next(), paused.next());
    let of_the_live = live.next();
    // … and sent when the session has ended.
    let token = node.acquire(live.next(), "job/7", PATIENCE).await.expect("freed").token;
    tokio::time::sleep(ttl).await;
    assert_eq!(refused(node.acquire(acquire, "job/8", TRY).await), Reason::SessionExpired);
    assert_eq!(refused(node.release(release, "job/7", old).await), Reason::SessionExpired);
    assert_eq!(node.renew(&paused).await.expect_err("ended").0, "SESSION_EXPIRED");
    // An old message of a live session is as good as a new one.
    let refusal = node.acquire(of_the_live, "job/8", TRY).await;
    assert_eq!(refused(refusal), Reason::StaleRequest);
    assert_eq!(node.check("job/7", token).await.ok(), Some(true));
    assert!(holders(&node, "job/8").await.is_empty());
}
