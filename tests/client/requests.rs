//! Request ids, retries, cancels and releases. Section 5 of the contract.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, Loss, State};
use ringfence::wire::reason::Reason;

use crate::authority::{Authority, FOR_EVER, Manner, eventually};
use crate::node::{Node, SOON};

const TTL: Duration = Duration::from_secs(10);

async fn one_node() -> (Authority, Node, Client) {
    node_with_attempts_of(Duration::from_secs(10)).await
}

async fn node_with_attempts_of(attempt: Duration) -> (Authority, Node, Client) {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let client = Client::builder().attempt_timeout(attempt).connect([&node.address]);
    (authority, node, client.expect("a good endpoint"))
}

#[tokio::test]
async fn scenario_a6_a_lost_reply_is_asked_for_again_under_its_id_and_brings_the_same_token() {
    let authority = Authority::new();
    let (first, second) = (Node::start(&authority, 0).await, Node::start(&authority, 1).await);
    for node in 0..2 {
        authority.behave(node, "acquire", Manner::LosesReply, 1);
    }
    let client = Client::connect([&first.address, &second.address]).expect("good endpoints");
    let session = client.session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    assert_eq!(authority.holder("job/7"), Some(guard.token().get()));
    assert_eq!(guard.token().get(), 1, "one grant, one token");
    let seen = authority.seen("acquire");
    assert_eq!(seen.iter().map(|seen| seen.id).collect::<Vec<_>>(), [1, 1, 1]);
    assert_ne!(seen[0].node, seen[1].node, "the retry goes to the other node");
    assert_eq!(guard.fence().token, guard.token());
    guard.release().await.expect("released");
    assert_eq!(authority.holder("job/7"), None);
}

#[tokio::test]
async fn scenario_a7_an_acquire_that_is_dropped_gives_back_the_grant_it_never_heard_of() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    authority.behave(0, "acquire", Manner::SwallowsReply, FOR_EVER);
    let acquire = session.acquire("job/7").into_future();
    let dropped = tokio::time::timeout(Duration::from_millis(200), acquire).await;
    assert!(dropped.is_err(), "the reply is swallowed");
    eventually("the grant is given back", || {
        authority.seen("release").len() == 1 && authority.holder("job/7").is_none()
    })
    .await;
    assert_eq!(authority.seen("cancel").len(), 1);
    // While the cancel was open the acquire's id was outstanding; then it is not.
    assert_eq!(authority.seen("cancel")[0].oldest, 1);
    assert_eq!(authority.seen("release")[0].oldest, 3);
    assert_eq!(session.state(), State::Held, "the session goes on");
}

#[tokio::test]
async fn an_acquire_that_is_dropped_leaves_the_queue() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    authority.rival("job/7");
    let waiting = tokio::spawn(session.acquire("job/7").into_future());
    eventually("it stands in the queue", || authority.waiting("job/7") == 1).await;
    waiting.abort();
    eventually("it has left the queue", || authority.waiting("job/7") == 0).await;
    authority.free("job/7");
    assert_eq!(authority.holder("job/7"), None, "nothing was granted to nobody");
}

#[tokio::test]
async fn a_cancel_is_repeated_until_it_is_answered_and_then_the_late_grant_is_released() {
    let (authority, _node, client) = node_with_attempts_of(Duration::from_millis(300)).await;
    let session = client.session(TTL).await.expect("opened");
    authority.behave(0, "acquire", Manner::SwallowsReply, FOR_EVER);
    authority.behave(0, "cancel", Manner::Silent, 1);
    authority.behave(0, "cancel", Manner::Refuses(Reason::NoQuorum, vec![]), 3);
    authority.behave(0, "cancel", Manner::LosesReply, 1);
    let tried = session.try_acquire("job/7").deadline(Duration::from_millis(100)).await;
    let error = tried.expect_err("no reply");
    assert!(matches!(error, ClientError::Unreachable { outcome_unknown: true, .. }), "{error}");
    eventually("given back", || {
        authority.seen("release").len() == 1 && authority.holder("job/7").is_none()
    })
    .await;
    let cancels = authority.seen("cancel");
    assert!(cancels.len() >= 6, "{cancels:?}");
    assert!(cancels.iter().all(|cancel| cancel.id == 2 && cancel.oldest == 1), "{cancels:?}");
}

#[tokio::test]
async fn scenario_c7_a_deadline_behind_a_holder_is_kept_and_the_queue_left() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    authority.rival("job/7");
    let began = Instant::now();
    let wait = Duration::from_millis(700);
    let error = session.acquire("job/7").deadline(wait).await.expect_err("it is held");
    assert!(began.elapsed() >= wait && began.elapsed() < wait + SOON, "{:?}", began.elapsed());
    assert_eq!(error, ClientError::Timeout { outcome_unknown: true });
    eventually("the queue is left", || authority.waiting("job/7") == 0).await;
}

#[tokio::test]
async fn scenario_d3_failed_acquires_leave_one_session_and_no_outstanding_id() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    authority.rival("job/7");
    for _ in 0..200 {
        let busy = session.try_acquire("job/7").await.expect_err("it is held");
        assert!(matches!(busy, ClientError::Busy { holder: Some(_), waiting: 0 }), "{busy}");
    }
    assert_eq!((authority.sessions(), authority.owners()), (1, 1));
    let last = authority.seen("acquire").pop().expect("there were some");
    assert_eq!((last.id, last.oldest), (200, 200));
    assert_eq!(authority.seen("cancel").len(), 0, "a refusal settles its id");
}

#[tokio::test]
async fn hundreds_of_waits_hold_up_neither_each_other_nor_a_release() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let held = session.acquire("job/7").await.expect("granted");
    let mut waits = tokio::task::JoinSet::new();
    for i in 0..300 {
        let name = format!("held/{i}");
        authority.rival(&name);
        waits.spawn(session.acquire(name).into_future());
    }
    let queued = || (0..300).map(|i| authority.waiting(&format!("held/{i}"))).sum::<usize>();
    eventually("all stand in their queues", || queued() == 300).await;
    held.release().await.expect("released");
    waits.shutdown().await;
    eventually("all have left", || queued() == 0).await;
}

#[tokio::test]
async fn answers_above_a_long_wait_are_told_to_the_authority() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    authority.rival("held");
    let waiting = tokio::spawn(session.acquire("held").into_future());
    eventually("queued", || authority.waiting("held") == 1).await;
    for _ in 0..3 {
        session.acquire("job/7").await.expect("granted").release().await.expect("released");
    }
    let requests = authority.seen("acquire").into_iter().chain(authority.seen("release"));
    let mut headers: Vec<_> = requests.map(|r| (r.id, r.oldest, r.answered)).collect();
    headers.sort();
    let expected = (1..=7).map(|id| (id, 1, if id < 3 { vec![] } else { vec![id - 1] }));
    assert_eq!(headers, expected.collect::<Vec<_>>());
    authority.free("held");
    assert!(waiting.await.expect("not aborted").expect("granted").is_held());
}

#[tokio::test]
async fn a_guard_that_is_dropped_is_released_and_a_session_that_is_dropped_is_closed() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    drop(session.acquire("job/7").await.expect("granted"));
    eventually("released", || authority.holder("job/7").is_none()).await;
    let guard = session.acquire("job/8").await.expect("granted");
    drop(session);
    assert!(guard.is_held(), "a guard keeps its session open");
    drop(guard);
    eventually("closed", || authority.sessions() == 0).await;
    assert_eq!(authority.holder("job/8"), None);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_is_repeated_and_one_that_comes_too_late_says_lost() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    authority.behave(0, "release", Manner::LosesReply, 2);
    guard.release().await.expect("the first one took effect");
    let releases = authority.seen("release");
    assert_eq!(releases.iter().map(|r| r.id).collect::<Vec<_>>(), [2, 2, 2]);
    let guard = session.acquire("job/7").await.expect("granted");
    let token = guard.token();
    authority.revoke("job/7");
    let late = guard.release().await.expect_err("it was revoked");
    assert_eq!(late, ClientError::Lost { token: Some(token) });
}

#[tokio::test]
async fn a_denial_after_an_unknown_attempt_leaves_the_outcome_unknown() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let denied = || Manner::Refuses(Reason::PermissionDenied, vec![]);
    authority.behave(0, "acquire", denied(), 1);
    let error = session.acquire("job/7").await.expect_err("denied");
    assert!(matches!(error, ClientError::Refused { outcome_unknown: false, .. }), "{error}");
    authority.behave(0, "acquire", Manner::LosesReply, 1);
    authority.behave(0, "acquire", denied(), 1);
    let error = session.acquire("job/7").await.expect_err("denied");
    assert!(matches!(error, ClientError::Refused { outcome_unknown: true, .. }), "{error}");
    eventually("what was granted is given back", || {
        authority.seen("release").len() == 1 && authority.holder("job/7").is_none()
    })
    .await;
}

#[tokio::test]
async fn closing_loses_the_guards_first_and_a_closed_session_refuses() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    session.clone().close().await.expect("closed");
    assert_eq!(guard.state(), State::Lost(Loss::SessionClosed));
    assert_eq!(authority.sessions(), 0);
    let late = session.acquire("job/8").await.expect_err("closed");
    assert_eq!(late, ClientError::SessionClosed);
    session.close().await.expect("closing again is no error");
}

#[tokio::test]
async fn a_close_goes_on_in_the_background_when_nobody_waits_for_it_any_longer() {
    let (authority, _node, client) = one_node().await;
    let refused = || Manner::Refuses(Reason::NoQuorum, vec![]);
    authority.behave(0, "close", refused(), FOR_EVER);
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(client.session(TTL).await.expect("opened"));
    }
    let soon = Duration::from_millis(100);
    let late = sessions.pop().expect("one of three").close_within(soon).await;
    let error = late.expect_err("no quorum");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let closing = sessions.pop().expect("one of three").close();
    let dropped = tokio::time::timeout(soon, closing).await;
    assert!(dropped.is_err(), "{dropped:?}");
    drop(sessions);
    // An outage that is longer than a dropped session may take to say so by itself.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(authority.sessions(), 3);
    authority.recover_all();
    eventually("all are closed", || authority.sessions() == 0).await;
}

#[tokio::test]
async fn bad_input_is_refused_here_and_names_the_field() {
    let (authority, _node, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let field = |error: ClientError| match error {
        ClientError::Invalid { field, .. } => field,
        other => panic!("{other}"),
    };
    let long = "x".repeat(513);
    for name in ["", "a\nb", &long] {
        let error = session.acquire(name).await.expect_err("a bad name");
        assert_eq!(field(error), "resource");
    }
    let day = Duration::from_secs(25 * 60 * 60);
    let error = session.acquire("job/7").wait(day).await.expect_err("too long");
    assert_eq!(field(error), "wait_ms");
    let error = client.session(Duration::ZERO).await.expect_err("no ttl");
    assert_eq!(field(error), "ttl_ms");
    let error = client.session(TTL).label("", "x").await.expect_err("no key");
    assert_eq!(field(error), "labels");
    assert_eq!(field(Client::connect(["nowhere"]).expect_err("no port")), "endpoint");
    assert_eq!(authority.seen("acquire").len(), 0);
}

#[tokio::test]
async fn every_session_object_has_an_owner_of_its_own() {
    let (authority, _node, client) = one_node().await;
    let first = client.session(TTL).await.expect("opened");
    let guard = first.acquire("job/7").await.expect("granted");
    let second = client.session(TTL).await.expect("opened");
    assert_ne!(first.id(), second.id());
    assert_eq!((authority.sessions(), authority.owners()), (2, 2));
    // Scenario A8: a session never inherits another's grant.
    authority.end_session(first.id().0);
    let taken = second.try_acquire("job/7").await.expect("the old grant ended");
    assert!(taken.token() > guard.token());
}
