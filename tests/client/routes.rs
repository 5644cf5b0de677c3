//! Finding the leader, and what happens when there is none.

use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, State};
use ringfence::locks::Token;
use ringfence::wire::reason::{Reason, key};

use crate::authority::{Authority, FOR_EVER, Manner, eventually};
use crate::node::{Node, SOON};

const CALLS: [&str; 7] = ["open", "acquire", "release", "cancel", "held", "close", "set_ttl"];
const TTL: Duration = Duration::from_secs(2);

async fn three() -> (Authority, Vec<Node>) {
    let authority = Authority::new();
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(Node::start(&authority, number).await);
    }
    (authority, nodes)
}

/// The node refuses everything with this reason.
fn refuse_all(authority: &Authority, node: usize, reason: Reason, leader: Option<&str>) {
    let metadata: Vec<_> = leader.map(|l| (key::LEADER, l.to_owned())).into_iter().collect();
    for call in CALLS.into_iter().chain(["keep_alive", "renew"]) {
        authority.recover(node, call);
        authority.behave(node, call, Manner::Refuses(reason, metadata.clone()), FOR_EVER);
    }
}

fn serve_all(authority: &Authority, node: usize) {
    for call in CALLS.into_iter().chain(["keep_alive", "renew"]) {
        authority.recover(node, call);
    }
}

#[tokio::test]
async fn a_hint_leads_to_a_node_that_was_not_named_and_calls_go_straight_there() {
    let (authority, nodes) = three().await;
    for follower in 0..2 {
        refuse_all(&authority, follower, Reason::NotLeader, Some(&nodes[2].address));
    }
    let client = Client::connect([&nodes[0].address]).expect("a good endpoint");
    let session = client.session(TTL).await.expect("opened");
    for _ in 0..5 {
        session.acquire("job/7").await.expect("granted").release().await.expect("released");
    }
    assert_eq!(authority.seen("open").iter().map(|s| s.node).collect::<Vec<_>>(), [0, 2]);
    assert!(authority.seen("acquire").iter().all(|seen| seen.node == 2 && seen.no_forward));
    eventually("renewed there too", || {
        authority.seen("keep_alive").iter().any(|seen| seen.node == 2)
    })
    .await;
    assert_eq!(client.nodes().len(), 2);
}

#[tokio::test]
async fn hints_that_point_at_each_other_end_by_the_deadline_and_without_a_storm() {
    let (authority, nodes) = three().await;
    refuse_all(&authority, 0, Reason::NotLeader, Some(&nodes[1].address));
    refuse_all(&authority, 1, Reason::NotLeader, Some(&nodes[0].address));
    let client = Client::connect([&nodes[0].address, &nodes[1].address]).expect("endpoints");
    let began = Instant::now();
    let error = client.session(TTL).deadline(Duration::from_secs(1)).await.expect_err("no leader");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < SOON, "{took:?}");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let tries = authority.seen("open");
    assert!(tries.len() < 100, "{}", tries.len());
    assert!(tries[0].no_forward && !tries[2].no_forward, "later rounds may be forwarded");
}

#[tokio::test]
async fn an_overloaded_node_is_asked_again_after_the_delay_it_gave() {
    let (authority, nodes) = three().await;
    let client = Client::connect([&nodes[0].address]).expect("a good endpoint");
    let session = client.session(TTL).await.expect("opened");
    let delay = vec![(key::RETRY_AFTER_MS, "200".to_owned())];
    authority.behave(0, "acquire", Manner::Refuses(Reason::Overloaded, delay), 2);
    let began = Instant::now();
    let guard = session.acquire("job/7").await.expect("granted");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(400) && took < SOON, "{took:?}");
    let seen = authority.seen("acquire");
    assert_eq!(seen.iter().map(|s| (s.node, s.id)).collect::<Vec<_>>(), [(0, 1); 3]);
    assert!(guard.is_held());
}

#[tokio::test]
async fn scenario_c6_without_a_quorum_every_call_ends_by_its_deadline_and_says_what_is_unknown() {
    let (authority, nodes) = three().await;
    let client = Client::connect(nodes.iter().map(|n| &n.address)).expect("good endpoints");
    let session = client.session(Duration::from_secs(60)).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    (0..3).for_each(|node| refuse_all(&authority, node, Reason::NoQuorum, None));
    let deadline = Duration::from_millis(600);
    let ends = |began: Instant| {
        let took = began.elapsed();
        assert!(took + Duration::from_millis(50) >= deadline && took < SOON, "{took:?}");
    };
    let began = Instant::now();
    let error = session.acquire("job/8").deadline(deadline).await.expect_err("no quorum");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    ends(began);
    // As a node that had appended it and lost its quorum would say.
    (0..3).for_each(|node| authority.recover(node, "acquire"));
    let unknown = Manner::Refuses(Reason::OutcomeUnknown, vec![]);
    (0..3).for_each(|node| authority.behave(node, "acquire", unknown.clone(), FOR_EVER));
    let began = Instant::now();
    let error = session.try_acquire("job/9").deadline(deadline).await.expect_err("no quorum");
    assert!(error.outcome_unknown(), "{error}");
    ends(began);
    let began = Instant::now();
    let error = guard.release_within(deadline).await.expect_err("no quorum");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    ends(began);
    let began = Instant::now();
    let error = session.close_within(deadline).await.expect_err("no quorum");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    ends(began);
}

#[tokio::test]
async fn with_all_nodes_gone_calls_end_by_their_deadline() {
    let (_, nodes) = three().await;
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    let client = Client::builder().call_timeout(Duration::from_millis(500));
    let client = client.connect(&addresses).expect("good endpoints");
    let opening = client.session(Duration::from_secs(60)).deadline(SOON);
    let session = opening.await.expect("opened");
    drop(nodes);
    let began = Instant::now();
    // Without any bound of its own it ends when nobody was reached for so long.
    let error = session.acquire("job/7").await.expect_err("nobody is there");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let fresh = client.session(TTL).await.expect_err("nobody is there");
    assert!(matches!(fresh, ClientError::Unreachable { .. }), "{fresh}");
}

#[tokio::test]
async fn scenario_b15_a_session_survives_the_death_of_one_node_after_the_other() {
    let (authority, nodes) = three().await;
    let client = Client::connect(nodes.iter().map(|n| &n.address)).expect("good endpoints");
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    let session = client.session(Duration::from_secs(5)).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    let renewed_at = || authority.seen("renew").last().map(|seen| seen.node);
    for _ in 0..2 {
        eventually("renewed", || renewed_at().is_some_and(|node| nodes[node].is_some())).await;
        // The one that is in use dies.
        let used = renewed_at().expect("it was renewed");
        nodes[used] = None;
        tokio::select! {
            state = guard.not_held() => panic!("{state:?}"),
            () = eventually("renewed elsewhere", || renewed_at() != Some(used)) => {}
        }
    }
    guard.release().await.expect("released at the last node");
}

#[tokio::test]
async fn scenario_b4_without_a_quorum_for_two_ttl_a_session_is_suspended_and_then_held_again() {
    let ttl = Duration::from_millis(800);
    let (authority, nodes) = three().await;
    let client = Client::connect(nodes.iter().map(|n| &n.address)).expect("good endpoints");
    let session = client.session(ttl).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    let token = guard.token();
    (0..3).for_each(|node| refuse_all(&authority, node, Reason::NoQuorum, None));
    let state = tokio::time::timeout(SOON, guard.not_held()).await.expect("by its own deadline");
    assert_eq!(state, State::Suspended);
    tokio::time::sleep(ttl * 2).await;
    let asked = authority.seen("keep_alive").len();
    assert!(asked < 200, "{asked} streams in {:?}: a storm", ttl * 3);
    (0..3).for_each(|node| serve_all(&authority, node));
    eventually("held again", || guard.is_held()).await;
    assert_eq!(guard.token(), token);
}

#[tokio::test]
async fn questions_are_answered_by_the_wire() {
    let (authority, nodes) = three().await;
    let client = Client::connect(nodes.iter().map(|n| &n.address)).expect("good endpoints");
    let session = client.session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    assert!(client.check_token("job/7", guard.token()).await.expect("answered").current);
    let other = Token::new(99).expect("a good token");
    assert!(!client.check_token("job/7", other).await.expect("answered").current);
    for node in 0..3 {
        authority.behave(node, "get", Manner::Refuses(Reason::NoQuorum, vec![]), FOR_EVER);
    }
    let hasty = Client::builder().call_timeout(Duration::from_millis(300));
    let hasty = hasty.connect([&nodes[0].address]).expect("a good endpoint");
    let error = hasty.get("job/7").await.expect_err("this node has no quorum");
    assert!(!error.outcome_unknown(), "{error}");
    let mut numbers: Vec<u64> = Vec::new();
    for (node, status) in client.status().await {
        numbers.push(status.unwrap_or_else(|e| panic!("{node}: {e}")).node_id);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(authority.sessions(), 1);
}
