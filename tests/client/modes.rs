//! Shared grants, slots and sets. Section 4 of the contract.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use ringfence::client::{ClientError, Session, State};
use ringfence::locks::{Fence, Mode};

use crate::authority::{Authority, Manner, eventually};
use crate::node::{Node, SOON, client_of, nodes};

const TTL: Duration = Duration::from_secs(10);

async fn three_sessions() -> (Authority, Vec<Node>, [Session; 3]) {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let open = async || client.session(TTL).await.expect("opened");
    let sessions = [open().await, open().await, open().await];
    (authority, nodes, sessions)
}

#[tokio::test]
async fn readers_share_and_behind_a_waiting_writer_a_reader_waits() {
    let (authority, _nodes, [one, two, three]) = three_sessions().await;
    let first = one.acquire_shared("book").await.expect("granted");
    let second = two.acquire_shared("book").await.expect("granted beside it");
    assert_eq!((first.mode(), second.mode()), (Mode::Shared, Mode::Shared));
    assert_eq!(
        second.fence().floor,
        first.token(),
        "concurrent holders do not shut each other out"
    );
    let writing = tokio::spawn(three.acquire("book").into_future());
    eventually("the writer waits", || authority.waiting("book") == 1).await;
    first.release().await.expect("released");
    let reading = tokio::spawn(one.acquire_shared("book").into_future());
    eventually("the reader waits", || authority.waiting("book") == 2).await;
    drop(second);
    let writer = writing.await.expect("not aborted").expect("granted after the last reader");
    assert_eq!((writer.mode(), authority.waiting("book")), (Mode::Exclusive, 1));
    writer.release().await.expect("released");
    let reader = reading.await.expect("not aborted").expect("granted");
    assert!(reader.is_held());
}

#[tokio::test]
async fn slots_are_numbered_from_zero_and_a_freed_one_is_granted_with_its_number() {
    let (authority, _nodes, [one, two, three]) = three_sessions().await;
    let first = one.acquire_slot("screens", 2).await.expect("granted");
    let second = two.acquire_slot("screens", 2).await.expect("granted");
    assert_eq!((first.slot(), second.slot()), (0, 1));
    assert_eq!(first.fence().slot, Some(0));
    assert_eq!(second.mode(), Mode::Slots { of: 2 });
    let full = three.acquire_slot("screens", 2).wait(Duration::ZERO).await.expect_err("full");
    assert!(matches!(full, ClientError::Busy { .. }), "{full}");
    let waiting = tokio::spawn(three.acquire_slot("screens", 2).into_future());
    eventually("it waits", || authority.waiting("screens") == 1).await;
    drop(first);
    let third = waiting.await.expect("not aborted").expect("granted");
    assert_eq!((third.slot(), third.fence().slot), (0, Some(0)));
    third.release().await.expect("released");
    assert_eq!(authority.holders("screens"), [second.token().get()]);
}

#[tokio::test]
async fn another_number_of_slots_is_refused_with_the_one_in_force() {
    let (_authority, _nodes, [one, two, _]) = three_sessions().await;
    let _held = one.acquire_slot("screens", 2).await.expect("granted");
    let error = two.acquire_slot("screens", 3).await.expect_err("another number");
    let resource = Some("screens".to_owned());
    assert_eq!(error, ClientError::CapacityMismatch { resource, slots: Some(2) });
    assert!(error.to_string().contains("in use with 2 slots: ask for as many"), "{error}");
}

#[tokio::test]
async fn a_set_is_granted_and_released_whole_under_one_token() {
    let (authority, _nodes, [one, two, _]) = three_sessions().await;
    let held = two.acquire("b").await.expect("granted");
    let waiting = tokio::spawn(one.acquire_all(["b", "a"]).into_future());
    eventually("it waits for both", || authority.waiting("a") == 1).await;
    assert_eq!(authority.holder("a"), None, "nothing of it is held before all of it is");
    held.release().await.expect("released");
    let set = waiting.await.expect("not aborted").expect("granted");
    let names: Vec<_> = set.resources().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b"]);
    let token = set.token();
    assert!(set.fences().iter().all(|fence: &Fence| fence.token == token));
    assert_eq!(
        (authority.holder("a"), authority.holder("b")),
        (Some(token.get()), Some(token.get()))
    );
    set.release().await.expect("released");
    assert_eq!((authority.holder("a"), authority.holder("b")), (None, None));
}

#[tokio::test]
async fn a_set_that_is_dropped_or_revoked_is_gone_whole() {
    let (authority, _nodes, [one, two, _]) = three_sessions().await;
    drop(one.acquire_all(["a", "b"]).await.expect("granted"));
    let set = two.acquire_all(["a", "b"]).await.expect("granted when the other is released");
    let lowered = two.set_ttl(Duration::from_secs(1)).await.expect("renewed more often");
    assert_eq!(lowered, Duration::from_secs(1));
    authority.revoke("b");
    let loss = tokio::time::timeout(SOON, set.lost()).await.expect("the renewal tells");
    assert_eq!(set.state(), State::Lost(loss));
    assert_eq!((authority.holder("a"), authority.holder("b")), (None, None));
}

#[tokio::test]
async fn what_the_session_holds_already_is_named_also_in_a_set() {
    let (_authority, _nodes, [one, two, _]) = three_sessions().await;
    let held = one.acquire("b").await.expect("granted");
    let error = one.acquire_all(["a", "b"]).await.expect_err("held by the session itself");
    let resource = Some("b".to_owned());
    assert_eq!(error, ClientError::AlreadyHeld { resource, token: Some(held.token()) });
    let _waiting = tokio::spawn(two.acquire("b").into_future());
    let waiting = loop {
        // Until the other call stands in the queue this one does, and times out.
        let soon = Duration::from_millis(50);
        match two.acquire_all(["b", "c"]).wait(soon).deadline(soon).await {
            Err(ClientError::AlreadyWaiting { resource }) => break resource,
            other => drop(other),
        }
    };
    assert_eq!(waiting, Some("b".to_owned()));
}

#[tokio::test]
async fn a_deadlock_names_who_waits_for_what() {
    let (authority, _nodes, [one, two, _]) = three_sessions().await;
    let _a = one.acquire("a").await.expect("granted");
    let _b = two.acquire("b").await.expect("granted");
    let _waiting = tokio::spawn(two.acquire("a").into_future());
    eventually("the second waits for the first", || authority.waiting("a") == 1).await;
    let error = one.acquire("b").await.expect_err("they would wait for each other");
    let ClientError::Deadlock { sessions, resources } = &error else { panic!("{error}") };
    assert_eq!(*sessions, [one.id(), two.id()], "each waits for the next");
    assert_eq!(*resources, ["b", "a"]);
    let said = error.to_string();
    assert!(said.contains(&format!("{} waits for b", one.id())), "{said}");
    assert!(said.contains("ask again in one order"), "{said}");
}

#[tokio::test]
async fn bad_claims_are_refused_here_and_name_the_field() {
    let (authority, _nodes, [one, ..]) = three_sessions().await;
    let field = |error: ClientError| match error {
        ClientError::Invalid { field, .. } => field,
        other => panic!("{other}"),
    };
    let none: [&str; 0] = [];
    assert_eq!(field(one.acquire_all(none).await.expect_err("no name")), "resources");
    assert_eq!(field(one.acquire_all(["a", "a"]).await.expect_err("twice")), "resources");
    assert_eq!(field(one.acquire_slot("a", 0).await.expect_err("no slot")), "slots");
    let long = one.acquire("a").lock_delay(Duration::from_secs(61)).await;
    assert_eq!(field(long.expect_err("too long")), "lock_delay_ms");
    let never = one.acquire("a").strict(Duration::ZERO).await;
    assert_eq!(field(never.expect_err("no time")), "barrier_ms");
    let large = one.acquire("a").value(vec![0; 4_097]).await;
    assert_eq!(field(large.expect_err("too large")), "value");
    assert!(authority.seen("acquire").is_empty());
}

#[tokio::test]
async fn a_lock_delay_closes_the_resource_after_a_revoke_and_not_after_a_release() {
    let (authority, _nodes, [one, two, _]) = three_sessions().await;
    let delay = Duration::from_secs(30);
    let released = one.acquire("job/7").lock_delay(delay).await.expect("granted");
    released.release().await.expect("released");
    let revoked = two.acquire("job/7").lock_delay(delay).await.expect("open at once");
    authority.revoke("job/7");
    let closed = one.try_acquire("job/7").await.expect_err("closed by the delay");
    assert!(matches!(closed, ClientError::Busy { .. }), "{closed}");
    authority.run_out(|_| true);
    assert!(one.try_acquire("job/7").await.expect("open again").is_held());
    drop(revoked);
}

/// The answer never comes; the caller is told so at its deadline, and treats it as not
/// acquired. What the authority granted is given back by the library itself.
async fn times_out<T: Send + 'static>(
    authority: &Authority,
    acquire: impl IntoFuture<Output = Result<T, ClientError>>,
) {
    authority.behave(0, "acquire", Manner::SwallowsReply, 1);
    match acquire.await {
        Err(error) => assert!(error.outcome_unknown(), "{error}"),
        Ok(_) => panic!("the reply is swallowed"),
    }
}

#[tokio::test]
async fn scenario_a7_what_timed_out_in_any_mode_is_given_back_and_others_get_it() {
    let (authority, _nodes, [one, two, _]) = three_sessions().await;
    let soon = Duration::from_millis(200);
    // How long one attempt may take: others get it within that, whatever the ttl.
    let retry_period = Duration::from_secs(10);
    let within = |began: Instant| {
        assert!(began.elapsed() < retry_period, "{:?}", began.elapsed());
    };

    times_out(&authority, one.acquire_slot("screens", 1).deadline(soon)).await;
    let began = Instant::now();
    let slot = two.acquire_slot("screens", 1).await.expect("the slot comes free");
    within(began);
    assert_eq!(authority.holders("screens"), [slot.token().get()]);

    times_out(&authority, one.acquire_all(["a", "b"]).deadline(soon)).await;
    let began = Instant::now();
    let set = two.acquire_all(["b", "a"]).await.expect("the set comes free");
    within(began);
    assert_eq!(authority.held_by(two.id().0).len(), 3);

    times_out(&authority, one.acquire_shared("book").deadline(soon)).await;
    let began = Instant::now();
    let writer = two.acquire("book").await.expect("the share is given back");
    within(began);
    assert_eq!(authority.held_by(one.id().0).len(), 0);
    assert!(slot.is_held() && set.is_held() && writer.is_held());
    assert_eq!(one.state(), State::Held, "the session goes on");
    authority.assert_no_id_was_used_twice();
}

#[tokio::test]
async fn a_slot_or_a_set_that_is_dropped_while_it_waits_leaves_every_queue() {
    let (authority, _nodes, [one, two, _]) = three_sessions().await;
    let _slot = two.acquire_slot("screens", 1).await.expect("granted");
    let _held = two.acquire("b").await.expect("granted");
    let for_slot = tokio::spawn(one.acquire_slot("screens", 1).into_future());
    let for_set = tokio::spawn(one.acquire_all(["a", "b", "c"]).into_future());
    eventually("both wait", || authority.waits_of(one.id().0) == 2).await;
    for_slot.abort();
    for_set.abort();
    eventually("both have left", || authority.waits_of(one.id().0) == 0).await;
    assert_eq!((authority.waiting("a"), authority.waiting("screens")), (0, 0));
}
