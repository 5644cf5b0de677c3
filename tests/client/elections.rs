//! Elections: campaign, proclaim, observe, resign.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, Leader, Observer};
use ringfence::wire::reason::Reason;

use crate::authority::{Authority, FOR_EVER, Manner, eventually};
use crate::node::{Node, SOON, client_of, nodes};

const NAME: &str = "db/primary";
const TTL: Duration = Duration::from_secs(10);

async fn two_nodes() -> (Authority, Vec<Node>, Client) {
    let (authority, nodes) = nodes(2).await;
    let client = client_of(&nodes);
    (authority, nodes, client)
}

async fn next(observer: &mut Observer) -> Option<Leader> {
    tokio::time::timeout(SOON, observer.next()).await.expect("soon").expect("observed")
}

fn value(leader: Option<&Leader>) -> Option<String> {
    leader.map(|leader| String::from_utf8_lossy(&leader.value).into_owned())
}

#[tokio::test]
async fn an_observer_sees_no_leader_the_leader_its_proclamations_and_its_end() {
    let (_authority, _nodes, client) = two_nodes().await;
    let mut observer = client.observe(NAME);
    assert_eq!(next(&mut observer).await, None, "nobody leads, and it says so");
    let session = client.session(TTL).label("rack", "7").await.expect("opened");
    let election = session.election(NAME);
    assert_eq!(election.name(), NAME);
    let leadership = election.campaign("10.0.0.7:5432").await.expect("elected");
    let leader = next(&mut observer).await.expect("there is one");
    assert_eq!((leader.token, leader.session), (leadership.token(), session.id()));
    assert_eq!(value(Some(&leader)).as_deref(), Some("10.0.0.7:5432"));
    assert_eq!(leader.labels["rack"], "7");
    leadership.proclaim("10.0.0.7:6432").await.expect("proclaimed");
    let changed = next(&mut observer).await;
    assert_eq!(value(changed.as_ref()).as_deref(), Some("10.0.0.7:6432"));
    assert_eq!(changed.map(|leader| leader.token), Some(leadership.token()));
    leadership.resign().await.expect("resigned");
    assert_eq!(next(&mut observer).await, None);
}

#[tokio::test]
async fn candidates_are_elected_in_the_order_in_which_they_came() {
    let (authority, _nodes, client) = two_nodes().await;
    let mut sessions = Vec::new();
    let mut campaigns = Vec::new();
    for number in 0..3 {
        let session = client.session(TTL).await.expect("opened");
        let campaign = session.election(NAME).campaign(format!("candidate {number}"));
        campaigns.push(tokio::spawn(campaign.into_future()));
        eventually("it stands", || {
            authority.holder(NAME).is_some() && authority.waiting(NAME) == number
        })
        .await;
        sessions.push(session);
    }
    let mut observer = client.observe(NAME);
    for (number, campaign) in campaigns.into_iter().enumerate() {
        let leadership = campaign.await.expect("not aborted").expect("elected");
        let leader = next(&mut observer).await;
        assert_eq!(value(leader.as_ref()), Some(format!("candidate {number}")));
        leadership.resign().await.expect("resigned");
    }
    assert_eq!(next(&mut observer).await, None);
}

#[tokio::test]
async fn a_leader_that_has_not_confirmed_does_not_lead_yet() {
    let (_authority, _nodes, client) = two_nodes().await;
    let session = client.session(TTL).await.expect("opened");
    let mut observer = client.observe(NAME);
    assert_eq!(next(&mut observer).await, None);
    let campaign = session.election(NAME).campaign("new").strict(TTL);
    let unconfirmed = campaign.await.expect("granted");
    let early = tokio::time::timeout(Duration::from_millis(300), observer.next()).await;
    assert!(early.is_err(), "{early:?}");
    let leadership = unconfirmed.confirm().await.expect("the old primary is fenced");
    let leader = next(&mut observer).await.expect("it leads");
    assert_eq!(leader.token, leadership.token());
}

#[tokio::test]
async fn an_observer_goes_on_over_dead_nodes_and_lost_events_and_tells_changes_only() {
    let (authority, nodes, client) = two_nodes().await;
    let session = client.session(TTL).await.expect("opened");
    let election = session.election(NAME);
    let first = election.campaign("first").await.expect("elected");
    let mut observer = client.observe(NAME);
    assert_eq!(value(next(&mut observer).await.as_ref()).as_deref(), Some("first"));
    // Nothing has changed, whatever becomes of the watch behind it.
    for round in 0..5 {
        if round % 2 == 0 {
            (0..2).for_each(|node| authority.compact(node));
        }
        authority.behave(0, "get", Manner::LosesReply, 1);
        authority.cut_watches();
        let silent = tokio::time::timeout(Duration::from_millis(100), observer.next()).await;
        assert!(silent.is_err(), "{silent:?}");
    }
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    nodes[0] = None;
    first.proclaim("still first").await.expect("proclaimed");
    assert_eq!(value(next(&mut observer).await.as_ref()).as_deref(), Some("still first"));
    authority.cut_watches();
    authority.compact(1);
    first.resign().await.expect("resigned");
    authority.compact(1);
    assert_eq!(next(&mut observer).await, None);
    let _second = election.campaign("second").await.expect("elected");
    assert_eq!(value(next(&mut observer).await.as_ref()).as_deref(), Some("second"));
}

#[tokio::test]
async fn an_observer_says_nothing_before_a_confirmed_round() {
    let (authority, nodes, client) = two_nodes().await;
    let session = client.session(TTL).await.expect("opened");
    let leadership = session.election(NAME).campaign("first").await.expect("elected");
    // The nodes let themselves be watched, as one does that is cut off from the others.
    for node in 0..2 {
        authority.behave(node, "get", Manner::Refuses(Reason::NoQuorum, vec![]), FOR_EVER);
    }
    let hasty = Client::builder().call_timeout(Duration::from_millis(300));
    let hasty = hasty.connect(nodes.iter().map(|node| &node.address)).expect("good endpoints");
    let mut observer = hasty.observe(NAME);
    let error = observer.next().await.expect_err("no round is confirmed");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    authority.recover_all();
    let leader = next(&mut observer).await.expect("there is one");
    assert_eq!(leader.token, leadership.token());
}

#[tokio::test]
async fn an_observer_goes_on_when_the_nodes_have_room_for_it_again() {
    let (authority, _nodes, client) = two_nodes().await;
    for node in 0..2 {
        authority.behave(node, "watch", Manner::Refuses(Reason::LimitReached, vec![]), FOR_EVER);
    }
    let mut observer = client.observe(NAME);
    assert_eq!(next(&mut observer).await, None);
    let began = Instant::now();
    let mut refused = 0;
    while began.elapsed() < Duration::from_secs(1) {
        let error = observer.next().await.expect_err("no node has room");
        assert!(matches!(error, ClientError::Refused { .. }), "{error}");
        refused += 1;
    }
    assert!((2..100).contains(&refused), "refused {refused} times in a second");
    authority.recover_all();
    let session = client.session(TTL).await.expect("opened");
    let leadership = session.election(NAME).campaign("first").await.expect("elected");
    let leader = next(&mut observer).await.expect("there is one");
    assert_eq!(leader.token, leadership.token());
}
