//! Standing in the queue: the place, the wait's end, grants that are lost on the way, and
//! names that are asked for again at once. Section 4 of the contract.

use std::future::IntoFuture;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError};
use ringfence::locks::Timer;

use crate::authority::{FOR_EVER, Manner, eventually};
use crate::node::{SOON, client_of, nodes};

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_wait_is_told_its_place_once_and_granted_under_the_same_id() {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    authority.rival("job/7");
    let (tell, told) = mpsc::channel();
    let mut waits = Vec::new();
    let mut sessions = Vec::new();
    for number in 0..3_usize {
        let session = client.session(TTL).await.expect("opened");
        let tell = tell.clone();
        let acquire = session.acquire("job/7").value([7; 3]).lock_delay(Duration::from_secs(1));
        let acquire = acquire.on_queued(move |ahead| tell.send((number, ahead)).expect("heard"));
        waits.push(tokio::spawn(acquire.into_future()));
        eventually("it waits for its grant", || {
            authority.seen("acquire").len() == 2 * (number + 1)
        })
        .await;
        sessions.push(session);
    }
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2)]);
    authority.free("job/7");
    for waiting in waits {
        let guard = waiting.await.expect("not aborted").expect("granted in turn");
        guard.release().await.expect("released");
    }
    assert_eq!(told.try_iter().count(), 0, "told once");
    // The same contents, twice under one id each.
    authority.assert_no_id_was_used_twice();
    assert!(authority.seen("acquire").iter().all(|seen| seen.id == 1));
}

#[tokio::test]
async fn what_is_granted_or_refused_at_once_is_told_no_place() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    let never = |_| panic!("it has not to wait");
    let guard = session.acquire("job/7").on_queued(never).await.expect("granted");
    authority.rival("job/8");
    let busy = session.try_acquire("job/8").on_queued(never).await.expect_err("held");
    assert!(matches!(busy, ClientError::Busy { .. }), "{busy}");
    assert!(guard.is_held());
    assert_eq!(authority.seen("acquire").len(), 2);
}

#[tokio::test]
async fn an_answer_that_is_lost_between_place_and_grant_loses_no_place() {
    let (authority, nodes) = nodes(2).await;
    let client = client_of(&nodes);
    let (one, two) =
        (client.session(TTL).await.expect("opened"), client.session(TTL).await.expect("opened"));
    authority.rival("job/7");
    for node in 0..2 {
        // The answer with the place is lost, then the wait is, and then the grant.
        authority.behave(node, "acquire", Manner::LosesReply, 1);
        authority.behave(node, "acquire", Manner::BreaksOff, 2);
        authority.behave(node, "acquire", Manner::LosesReply, 1);
    }
    let (tell, told) = mpsc::channel();
    let acquire = one.acquire("job/7").on_queued(move |ahead| tell.send(ahead).expect("heard"));
    let first = tokio::spawn(acquire.into_future());
    eventually("it has come back to wait", || authority.seen("acquire").len() >= 6).await;
    assert_eq!((told.recv(), authority.waiting("job/7")), (Ok(0), 1));
    let second = tokio::spawn(two.acquire("job/7").into_future());
    eventually("the other stands behind", || authority.waiting("job/7") == 2).await;
    authority.free("job/7");
    let first = first.await.expect("not aborted").expect("granted first");
    assert_eq!(authority.waiting("job/7"), 1);
    assert!(told.try_recv().is_err(), "told once");
    first.release().await.expect("released");
    assert!(second.await.expect("not aborted").expect("granted").is_held());
    authority.assert_no_id_was_used_twice();
}

#[tokio::test]
async fn one_that_is_dropped_after_it_was_told_its_place_leaves_the_queue() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    authority.rival("job/7");
    // Between the place and the return nothing is open that may have taken effect.
    authority.behave(0, "acquire", Manner::Well, 1);
    authority.behave(
        0,
        "acquire",
        Manner::Refuses(ringfence::wire::reason::Reason::NoQuorum, vec![]),
        FOR_EVER,
    );
    let (tell, told) = tokio::sync::oneshot::channel();
    let acquire = session.acquire("job/7").on_queued(move |ahead| tell.send(ahead).expect("heard"));
    let waiting = tokio::spawn(acquire.into_future());
    assert_eq!(told.await, Ok(0));
    eventually("it was refused since", || authority.seen("acquire").len() >= 2).await;
    waiting.abort();
    eventually("it has left the queue", || authority.waiting("job/7") == 0).await;
    authority.free("job/7");
    assert_eq!(authority.holder("job/7"), None);
}

#[tokio::test]
async fn scenario_c3_fifty_wake_ups_do_not_shorten_a_wait() {
    let (authority, nodes) = nodes(5).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    authority.rival("job/7");
    (0..5).for_each(|node| authority.behave(node, "acquire", Manner::BreaksOff, FOR_EVER));
    let wait = Duration::from_secs(5);
    let began = Instant::now();
    let error = session.acquire("job/7").deadline(wait).await.expect_err("it is held");
    let took = began.elapsed();
    assert!(took >= wait && took < wait + Duration::from_secs(2), "{took:?}");
    assert!(error.outcome_unknown(), "{error}");
    let woken = authority.seen("acquire");
    assert!(woken.len() >= 50, "woken {} times", woken.len());
    assert!(woken.iter().all(|seen| seen.id == 1 && seen.contents == woken[0].contents));
    eventually("the queue is left", || authority.waiting("job/7") == 0).await;
}

#[tokio::test]
async fn a_wait_that_the_authority_ended_is_a_timeout_and_settled() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    authority.rival("b");
    let waiting = tokio::spawn(session.acquire_all(["a", "b"]).into_future());
    eventually("it waits", || authority.waiting("b") == 1).await;
    authority.run_out(|timer| matches!(timer, Timer::Wait(_)));
    let error = waiting.await.expect("not aborted").expect_err("its time is over");
    assert_eq!(error, ClientError::Timeout { outcome_unknown: false });
    assert_eq!(authority.seen("cancel").len(), 0);
}

#[tokio::test]
async fn scenario_c4_a_grant_that_is_lost_on_the_way_is_fetched_with_the_next_connection() {
    let (authority, nodes) = nodes(2).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    authority.rival("job/7");
    (0..2).for_each(|node| authority.behave(node, "acquire", Manner::LosesReply, 1));
    let waiting = tokio::spawn(session.acquire("job/7").into_future());
    eventually("it waits", || authority.waiting("job/7") == 1).await;
    let began = Instant::now();
    authority.free("job/7");
    let guard = waiting.await.expect("not aborted").expect("granted");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(authority.holder("job/7"), Some(guard.token().get()));
    assert_eq!(guard.token().get(), 2, "one grant, one token");
}

#[tokio::test]
async fn scenario_c4_a_waiter_whose_node_is_gone_waits_on_at_another_one() {
    let (authority, nodes) = nodes(2).await;
    let client = client_of(&nodes);
    let session = client.session(TTL).await.expect("opened");
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    let held = session.acquire_slot("screens", 1).await.expect("granted");
    let other = client.session(TTL).await.expect("opened");
    let waiting = tokio::spawn(other.acquire_slot("screens", 1).into_future());
    eventually("it waits", || authority.waiting("screens") == 1).await;
    let at = authority.seen("acquire").last().expect("it was asked for").node;
    nodes[at] = None;
    eventually("it came back at the other", || {
        authority.seen("acquire").last().is_some_and(|seen| seen.node != at)
    })
    .await;
    assert_eq!(authority.waiting("screens"), 1, "it kept its place");
    drop(held);
    let slot = tokio::time::timeout(SOON, waiting).await.expect("soon");
    assert_eq!(slot.expect("not aborted").expect("granted").slot(), 0);
}

#[tokio::test]
async fn scenario_c4_when_an_operator_breaks_the_lock_the_next_waiter_gets_it() {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let session = client.session(TTL).await.expect("opened");
    authority.rival("a");
    let waiting = tokio::spawn(session.acquire_all(["a", "b"]).into_future());
    eventually("it waits", || authority.waiting("a") == 1).await;
    authority.revoke("a");
    let set = tokio::time::timeout(SOON, waiting).await.expect("soon");
    assert!(set.expect("not aborted").expect("granted").is_held());
}

#[tokio::test]
async fn a_name_can_be_asked_for_again_as_soon_as_its_guard_is_dropped() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    for _ in 0..20 {
        authority.behave(0, "release", Manner::LosesReply, 1);
        drop(session.acquire_all(["a", "b"]).await.expect("granted"));
        let guard = session.try_acquire("b").await.expect("the release was first");
        let released = guard.release_within(Duration::ZERO).await;
        assert!(released.is_err(), "there was no time for it");
        drop(session.acquire_shared("b").await.expect("the release was first"));
    }
    assert_eq!(authority.seen("cancel").len(), 0);
    authority.assert_no_id_was_used_twice();
}

#[tokio::test]
async fn a_name_can_be_asked_for_again_as_soon_as_a_wait_for_it_is_given_up() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    authority.rival("job/7");
    for _ in 0..20 {
        authority.behave(0, "cancel", Manner::LosesReply, 1);
        let soon = Duration::from_millis(20);
        let error = session.acquire("job/7").deadline(soon).await.expect_err("it is held");
        assert!(!matches!(error, ClientError::AlreadyWaiting { .. }), "{error}");
        let waiting = session.acquire("job/7").into_future();
        let dropped = tokio::time::timeout(soon, waiting).await;
        assert!(dropped.is_err(), "{dropped:?}");
        let busy = session.try_acquire("job/7").await.expect_err("it is held");
        assert!(matches!(busy, ClientError::Busy { .. }), "{busy}");
    }
    assert_eq!(authority.waiting("job/7"), 0);
}

#[tokio::test]
async fn an_acquire_behind_a_release_that_gets_no_answer_ends_by_its_own_deadline() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    authority.behave(0, "release", Manner::Silent, 1);
    drop(guard);
    let wait = Duration::from_millis(300);
    let began = Instant::now();
    let error = session.acquire("job/7").deadline(wait).await.expect_err("not released yet");
    assert!(matches!(error, ClientError::Unreachable { outcome_unknown: false, .. }), "{error}");
    assert!(began.elapsed() >= wait && began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(authority.seen("acquire").len(), 1, "nothing was sent");
    // Other names have nothing to wait for.
    assert!(session.try_acquire("job/8").await.expect("granted").is_held());
}

/// More than one session may have under way.
const MANY: usize = 450;

#[tokio::test]
async fn acquires_that_a_name_holds_back_do_not_hold_up_those_of_other_names() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    authority.behave(0, "release", Manner::Silent, FOR_EVER);
    drop(guard);
    let mut held_back = tokio::task::JoinSet::new();
    for _ in 0..MANY {
        held_back.spawn(session.acquire("job/7").deadline(SOON).into_future());
    }
    // Each has come so far as it can.
    for _ in 0..MANY {
        tokio::task::yield_now().await;
    }
    let other = session.acquire("job/8").deadline(Duration::from_secs(5)).await;
    assert!(other.expect("granted").is_held());
    assert_eq!(authority.seen("acquire").len(), 2, "none of the others was sent");
}

#[tokio::test]
async fn an_acquire_that_finds_no_place_ends_when_nobody_is_reached() {
    let (authority, nodes) = nodes(1).await;
    let client = Client::builder().call_timeout(Duration::from_secs(1));
    let client = client.connect([&nodes[0].address]).expect("a good endpoint");
    let session = client.session(Duration::from_secs(600)).await.expect("opened");
    for call in ["acquire", "cancel"] {
        authority.behave(0, call, Manner::Silent, FOR_EVER);
    }
    let mut given_up = tokio::task::JoinSet::new();
    for number in 0..MANY {
        let acquire = session.acquire(format!("n/{number}")).deadline(Duration::from_secs(1));
        given_up.spawn(acquire.into_future());
    }
    given_up.join_all().await;
    // Their cancels have all the places.
    let began = Instant::now();
    let acquire = tokio::time::timeout(SOON, session.acquire("job/7").into_future()).await;
    let error = acquire.expect("it ends").expect_err("nobody is reached");
    assert!(matches!(error, ClientError::Unreachable { outcome_unknown: false, .. }), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    authority.recover_all();
    assert!(session.acquire("job/7").deadline(SOON).await.expect("granted").is_held());
}
