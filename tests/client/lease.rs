//! Held, suspended, lost. Section 3 of the contract.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, Guard, Loss, State};
use ringfence::wire::reason::Reason;

use crate::authority::{Authority, FOR_EVER, Manner, eventually};
use crate::node::{Link, Node, SOON};

/// For sessions that are to run out of time.
const TTL: Duration = Duration::from_millis(900);
/// For sessions that must not, on a machine that has other things to do.
const LONG: Duration = Duration::from_secs(4);

fn client(address: &str) -> Client {
    Client::connect([address]).expect("a good endpoint")
}

#[tokio::test]
async fn scenario_b10_in_the_dark_a_guard_is_suspended_at_its_own_deadline_and_before_the_ttl() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let link = Link::to(&node).await;
    let session = client(&link.address).session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    let token = guard.token();
    link.goes_dark();
    let left = guard.valid_for();
    // Whatever was sent last was sent before now, and the allowance is off.
    assert!(left > Duration::ZERO && left <= TTL - Duration::from_millis(10), "{left:?}");
    let began = Instant::now();
    assert_eq!(guard.not_held().await, State::Suspended);
    let took = began.elapsed();
    assert!(took + Duration::from_millis(5) >= left && took < SOON, "{took:?} of {left:?}");
    assert_eq!((guard.is_held(), guard.valid_for()), (false, Duration::ZERO));
    assert_eq!(session.state(), State::Suspended);
    // A late renewal brings it back under the same token.
    link.is_lit();
    eventually("held again", || guard.is_held()).await;
    assert_eq!(guard.token(), token);
    assert_eq!(authority.holder("job/7"), Some(token.get()));
}

#[tokio::test]
async fn the_ttl_counts_from_before_the_opening_was_sent() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let link = Link::to(&node).await;
    let client = Client::builder().attempt_timeout(SOON).call_timeout(SOON);
    let client = client.connect([&link.address]).expect("a good endpoint");
    link.goes_dark();
    let opening = tokio::spawn(client.session(TTL).into_future());
    eventually("the attempt has begun", || link.taken() > 0).await;
    let dark = Duration::from_millis(300);
    tokio::time::sleep(dark).await;
    assert_eq!(authority.sessions(), 0, "the opening has not arrived");
    link.is_lit();
    let session = opening.await.expect("not aborted").expect("opened");
    // A renewal cannot be due before a quarter of the ttl has passed.
    let left = session.valid_for();
    assert!(left <= TTL - dark, "{left:?}");
}

/// Fails if the guard is not held all the way to the condition.
async fn held_until(guard: &Guard, what: &str, condition: impl FnMut() -> bool) {
    tokio::select! {
        state = guard.not_held() => panic!("{state:?} before {what}"),
        () = eventually(what, condition) => {}
    }
}

#[tokio::test]
async fn renewals_keep_a_guard_held_well_beyond_its_ttl() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(LONG).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    let began = Instant::now();
    held_until(&guard, "beyond the ttl", || began.elapsed() > LONG * 5 / 4).await;
    assert!(authority.seen("renew").len() >= 3);
}

#[tokio::test]
async fn a_session_that_the_authority_ended_is_lost_with_its_guards_and_waits() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    authority.rival("held");
    // Scenarios A1 and A2: the wait ends with its session, not with the holder.
    authority.behave(0, "acquire", Manner::Silent, 1);
    let waiting = tokio::spawn(session.acquire("held").into_future());
    eventually("asked", || authority.seen("acquire").len() == 2).await;
    authority.end_session(session.id().0);
    let loss = tokio::time::timeout(SOON, guard.lost()).await.expect("the renewal tells");
    assert_eq!(loss, Loss::SessionExpired);
    assert_eq!(session.state(), State::Lost(Loss::SessionExpired));
    let error = waiting.await.expect("not aborted").expect_err("no session");
    assert_eq!(error, ClientError::SessionExpired);
    let error = session.acquire("job/8").await.expect_err("no session");
    assert_eq!(error, ClientError::SessionExpired);
    let error = guard.release().await.expect_err("no session");
    assert_eq!(error, ClientError::SessionExpired);
}

#[tokio::test]
async fn a_call_that_is_told_of_the_end_ends_the_session_at_once() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(Duration::from_secs(60)).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    authority.end_session(session.id().0);
    let error = session.try_acquire("job/8").await.expect_err("no session");
    assert_eq!(error, ClientError::SessionExpired);
    assert_eq!(guard.state(), State::Lost(Loss::SessionExpired));
}

#[tokio::test]
async fn a_grant_that_was_revoked_is_lost_and_the_other_stays() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(TTL).await.expect("opened");
    let revoked = session.acquire("job/7").await.expect("granted");
    let kept = session.acquire("job/8").await.expect("granted");
    authority.revoke("job/7");
    let loss = tokio::time::timeout(SOON, revoked.lost()).await.expect("the renewal tells");
    assert_eq!(loss, Loss::GrantEnded);
    assert!(kept.is_held());
    let error = revoked.release().await.expect_err("it is lost");
    assert!(matches!(error, ClientError::Lost { token: Some(_) }));
}

#[tokio::test]
async fn a_change_that_cannot_be_read_does_not_count_as_renewal() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    authority.behave(0, "held", Manner::Refuses(Reason::NoQuorum, vec![]), FOR_EVER);
    authority.revoke("job/7");
    let state = tokio::time::timeout(SOON, guard.not_held()).await.expect("by its own deadline");
    assert_eq!(state, State::Suspended);
    authority.recover(0, "held");
    let loss = tokio::time::timeout(SOON, guard.lost()).await.expect("read at last");
    assert_eq!(loss, Loss::GrantEnded);
    eventually("the session is held", || session.state() == State::Held).await;
}

#[tokio::test]
async fn a_grant_that_nobody_awaits_is_released() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(TTL).await.expect("opened");
    let kept = session.acquire("job/7").await.expect("granted");
    authority.stray_grant("job/8", session.id().0);
    eventually("released", || authority.holder("job/8").is_none()).await;
    assert!(kept.is_held());
    assert_eq!(authority.holder("job/7"), Some(kept.token().get()));
}

#[test]
fn scenario_b13_a_guard_knows_its_time_is_up_though_no_task_of_the_client_ran() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        // The node lives on a thread of its own and goes on.
        let authority = Authority::new();
        let node = Node::start(&authority, 0).await;
        let session = client(&node.address).session(TTL).await.expect("opened");
        let guard = session.acquire("job/7").await.expect("granted");
        assert!(guard.is_held());
        std::thread::sleep(TTL + Duration::from_millis(100));
        assert_eq!((guard.is_held(), guard.state()), (false, State::Suspended));
        eventually("renewed and held again", || guard.is_held()).await;
    });
}

#[tokio::test]
async fn scenario_b12_renewals_go_on_when_the_task_that_acquired_is_cancelled() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let session = client(&node.address).session(LONG).await.expect("opened");
    let (send, receive) = tokio::sync::oneshot::channel();
    let acquiring = session.acquire("job/7").into_future();
    let task = tokio::spawn(async move {
        let _ = send.send(acquiring.await.expect("granted"));
        std::future::pending::<()>().await;
    });
    let guard = receive.await.expect("granted");
    task.abort();
    let before = authority.seen("renew").len();
    held_until(&guard, "three renewals", || authority.seen("renew").len() >= before + 3).await;
}

#[tokio::test]
async fn a_lower_ttl_counts_from_its_sending_and_a_higher_one_from_its_answer() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let (long, short) = (Duration::from_secs(60), Duration::from_secs(6));
    let session = client(&node.address).session(long).await.expect("opened");
    authority.behave(0, "set_ttl", Manner::Refuses(Reason::NoQuorum, vec![]), FOR_EVER);
    let soon = Duration::from_millis(200);
    let error = session.set_ttl_within(short, soon).await.expect_err("no quorum");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert_eq!(session.ttl(), short, "the change may come yet");
    authority.recover(0, "set_ttl");
    // The next change waits until the one before is settled.
    assert_eq!(session.set_ttl(long).await, Ok(long));
    assert_eq!(session.ttl(), long);
    let ids: BTreeSet<u64> = authority.seen("set_ttl").iter().map(|seen| seen.id).collect();
    assert_eq!(ids.len(), 2);
    let valid = session.valid_for();
    assert!(valid > short && valid <= long - long / 100, "{valid:?}");
}

#[tokio::test]
async fn many_sessions_of_one_client_share_one_stream() {
    let authority = Authority::new();
    let node = Node::start(&authority, 0).await;
    let client = client(&node.address);
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(client.session(LONG).await.expect("opened"));
    }
    let renewed = || authority.seen("renew").iter().map(|seen| seen.id).collect::<BTreeSet<_>>();
    eventually("all are renewed", || renewed().len() == 20).await;
    assert_eq!(authority.streams(), 1);
    assert!(sessions.iter().all(|session| session.state() == State::Held));
    drop(sessions);
    eventually("all closed", || authority.sessions() == 0).await;
}

#[test]
fn a_session_goes_on_without_the_runtime_that_another_one_of_its_client_was_opened_in() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (first, second) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    let authority = Authority::new();
    let node = first.block_on(Node::start(&authority, 0));
    let client = client(&node.address);
    let ending = first.block_on(client.session(LONG).into_future()).expect("opened");
    let session = second.block_on(client.session(LONG).into_future()).expect("opened");
    let guard = second.block_on(session.acquire("job/7").into_future()).expect("granted");
    let renewed = || authority.seen("renew").iter().map(|seen| seen.id).collect::<BTreeSet<_>>();
    second.block_on(eventually("both are renewed", || renewed().len() == 2));
    drop(first);
    second.block_on(async {
        let loss = tokio::time::timeout(SOON, ending.lost()).await.expect("nobody renews it");
        assert_eq!(loss, Loss::SessionClosed);
        let began = Instant::now();
        held_until(&guard, "beyond the ttl", || began.elapsed() > LONG * 5 / 4).await;
        guard.release().await.expect("released");
    });
}
