//! What a holder does while it holds: shows a value, is asked for the grant, extends its
//! session. Sections 4 and 8 of the contract.

use std::future::IntoFuture;
use std::time::Duration;

use ringfence::client::ClientError;
use ringfence::locks::Note;
use ringfence::wire::v1::{Cause, EventKind};

use crate::authority::{Manner, eventually};
use crate::node::{SOON, client_of, nodes};

const TTL: Duration = Duration::from_secs(10);
/// Renewals, and with them what happened to grants, come every third of this.
const SHORT: Duration = Duration::from_millis(900);

fn note() -> Note {
    Note::new("ops", "make room").expect("a good note")
}

#[tokio::test]
async fn a_value_is_seen_by_all_and_changed_by_its_holder() {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let session = client.session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").value("10.0.0.7").await.expect("granted");
    let seen = async || {
        let view = client.get("job/7").await.expect("answered").resource.expect("there");
        view.holders[0].value.to_vec()
    };
    assert_eq!(seen().await, b"10.0.0.7");
    guard.set_value(b"10.0.0.8").await.expect("changed");
    assert_eq!(seen().await, b"10.0.0.8");
    let large = guard.set_value(&[0; 4_097]).await.expect_err("too large");
    assert!(matches!(large, ClientError::Invalid { ref field, .. } if field == "value"), "{large}");
    authority.revoke("job/7");
    let token = Some(guard.token());
    let late = guard.set_value(b"10.0.0.9").await.expect_err("it was revoked");
    assert_eq!(late, ClientError::Lost { token });
    assert!(!guard.is_held(), "the guard knows at once");
}

#[tokio::test]
async fn changes_of_a_value_take_effect_in_the_order_in_which_they_were_made() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    let guard = session.acquire("job/7").await.expect("granted");
    let unknown = Manner::Refuses(ringfence::wire::reason::Reason::OutcomeUnknown, vec![]);
    authority.behave(0, "set_value", unknown, 5);
    let first = guard.set_value_within(b"first", Duration::from_millis(50)).await;
    let error = first.expect_err("no answer in time");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    guard.set_value(b"second").await.expect("changed");
    assert_eq!(authority.value(guard.token()).as_deref(), Some(&b"second"[..]));
    let ids: Vec<u64> = authority.seen("set_value").iter().map(|seen| seen.id).collect();
    assert!(ids.is_sorted() && ids.first() < ids.last(), "{ids:?}");
    authority.assert_no_id_was_used_twice();
}

#[tokio::test]
async fn scenario_g6_a_successor_starts_after_the_holder_has_finished_and_released() {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let holder = client.session(SHORT).await.expect("opened");
    let successor = client.session(TTL).await.expect("opened");
    let guard = holder.acquire("job/7").await.expect("granted");
    let token = guard.token();
    let next = tokio::spawn(successor.acquire("job/7").into_future());
    eventually("it waits", || authority.waiting("job/7") == 1).await;
    let within = Duration::from_secs(5);
    client.ask_release("job/7", token, within, note()).await.expect("asked");

    let asked = tokio::time::timeout(SOON, guard.handover_asked()).await.expect("it is told");
    assert_eq!((asked.within, &*asked.actor, &*asked.reason), (within, "ops", "make room"));
    // The write that is open when it is asked takes its time.
    tokio::time::sleep(SHORT * 2).await;
    assert!(guard.is_held() && !next.is_finished(), "asking ends nothing");
    assert_eq!(authority.holder("job/7"), Some(token.get()));
    guard.release().await.expect("released");
    let next = next.await.expect("not aborted").expect("granted");
    assert!(next.token() > token);

    let events = authority.events_on("job/7");
    let order: Vec<_> = events.iter().map(|event| (event.kind(), event.token)).collect();
    let (first, second) = (token.get(), next.token().get());
    assert_eq!(
        order,
        [
            (EventKind::Granted, first),
            (EventKind::Queued, 0),
            (EventKind::Asked, first),
            (EventKind::Ended, first),
            (EventKind::Granted, second),
        ]
    );
    assert_eq!(events[3].cause(), Cause::Released);
}

#[tokio::test]
async fn a_guard_is_told_once_of_each_ask_and_never_of_anothers() {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let session = client.session(SHORT).await.expect("opened");
    let set = session.acquire_all(["a", "b"]).await.expect("granted");
    let other = session.acquire("c").await.expect("granted");
    assert_eq!(set.asked(), None);
    let within = |seconds| Duration::from_secs(seconds);
    client.ask_release("b", set.token(), within(5), note()).await.expect("asked");
    let first = tokio::time::timeout(SOON, set.handover_asked()).await.expect("told");
    assert_eq!((first.within, set.asked()), (within(5), Some(first.clone())));
    // It is not told again, though every list has it still: one that is read shows the
    // grant that nobody awaits.
    authority.stray_grant("d", session.id().0);
    tokio::select! {
        again = set.handover_asked() => panic!("{again:?}"),
        not_mine = other.handover_asked() => panic!("{not_mine:?}"),
        () = eventually("another list is read", || authority.holder("d").is_none()) => {}
    }
    client.ask_release("a", set.token(), within(2), note()).await.expect("asked again");
    let second = tokio::time::timeout(SOON, set.handover_asked()).await.expect("told");
    assert!(second.at > first.at && second.within == within(2), "{second:?}");
    assert_eq!(other.asked(), None);
}

#[tokio::test]
async fn scenario_g9_a_session_is_extended_a_hundred_times_and_the_token_stays() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(TTL).await.expect("opened");
    let guard = session.acquire_slot("screens", 3).await.expect("granted");
    let token = guard.token();
    for round in 0..100 {
        let ttl = TTL + Duration::from_millis(round % 7 * 500);
        assert_eq!(session.set_ttl(ttl).await, Ok(ttl));
        let allowed = ttl - ttl / 100;
        assert!(guard.valid_for() > allowed - Duration::from_secs(5), "{:?}", guard.valid_for());
        assert!(guard.valid_for() <= allowed);
    }
    assert!(guard.is_held());
    assert_eq!((guard.token(), authority.holders("screens")), (token, vec![token.get()]));
    assert_eq!(authority.seen("acquire").len(), 1);
}
