//! Strict handoff: granted, raised everywhere, confirmed. Section 7 of the contract.

use std::future::IntoFuture;
use std::time::Duration;

use ringfence::client::{Client, ClientError, Loss, Session, SetGuard, SlotGuard, State};
use ringfence::locks::Timer;

use crate::authority::{Authority, Manner, eventually};
use crate::node::{Node, SOON, client_of, nodes};

const BARRIER: Duration = Duration::from_secs(30);

async fn session(ttl: Duration) -> (Authority, Vec<Node>, Client, Session) {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let session = client.session(ttl).await.expect("opened");
    (authority, nodes, client, session)
}

#[tokio::test]
async fn a_strict_grant_keeps_others_out_but_is_not_current_until_it_is_confirmed() {
    let (authority, _nodes, client, session) = session(Duration::from_secs(10)).await;
    let unconfirmed = session.acquire("db").strict(BARRIER).await.expect("granted");
    let token = unconfirmed.token();
    assert_eq!(unconfirmed.fences().len(), 1);
    assert_eq!(unconfirmed.fences()[0].token, token);
    assert_eq!(unconfirmed.state(), State::Held);
    let current = async || client.check_token("db", token).await.expect("answered").current;
    assert!(!current().await);
    let other = client.session(BARRIER).await.expect("opened");
    let busy = other.try_acquire("db").await.expect_err("kept out");
    assert!(matches!(busy, ClientError::Busy { .. }), "{busy}");
    // The confirm's answer is lost twice: it is asked for again under its id.
    authority.behave(0, "confirm", Manner::LosesReply, 2);
    let guard = unconfirmed.confirm().await.expect("confirmed");
    assert!(current().await);
    assert_eq!(guard.token(), token);
    let confirms = authority.seen("confirm");
    assert_eq!(confirms.iter().map(|seen| seen.id).collect::<Vec<_>>(), [2, 2, 2]);
    guard.release().await.expect("released");
    assert_eq!(authority.holder("db"), None);
}

#[tokio::test]
async fn every_mode_can_be_handed_off_strictly_and_keeps_its_form() {
    let (authority, _nodes, _client, session) = session(Duration::from_secs(10)).await;
    let slot = session.acquire_slot("screens", 3).strict(BARRIER).await.expect("granted");
    let slot: SlotGuard = slot.confirm().await.expect("confirmed");
    assert_eq!(slot.slot(), 0);
    let set = session.acquire_all(["b", "a"]).strict(BARRIER).await.expect("granted");
    let raised: Vec<_> = set.fences().iter().map(|fence| fence.resource.to_string()).collect();
    assert_eq!(raised, ["a", "b"], "one to raise for each resource");
    let set: SetGuard = set.confirm().await.expect("confirmed");
    assert!(set.is_held());
    let told = set.handover_asked();
    drop(told);
    drop(set);
    eventually("released whole", || authority.holder("a").is_none()).await;
}

#[tokio::test]
async fn one_that_is_dropped_unconfirmed_or_while_it_is_confirmed_is_released() {
    let (authority, _nodes, _client, session) = session(Duration::from_secs(10)).await;
    drop(session.acquire("db").strict(BARRIER).await.expect("granted"));
    eventually("released", || authority.holder("db").is_none()).await;
    let unconfirmed = session.acquire("db").strict(BARRIER).await.expect("granted");
    authority.behave(0, "confirm", Manner::Silent, 1);
    let confirming = tokio::time::timeout(Duration::from_millis(100), unconfirmed.confirm());
    assert!(confirming.await.is_err(), "no answer yet");
    eventually("released", || authority.holder("db").is_none()).await;
}

#[tokio::test]
async fn past_its_deadline_an_unconfirmed_grant_is_lost_and_cannot_be_confirmed() {
    let (authority, _nodes, _client, session) = session(Duration::from_secs(1)).await;
    let heard = session.acquire("heard").strict(BARRIER).await.expect("granted");
    let expire = || authority.run_out(|timer| matches!(timer, Timer::Barrier(_)));
    expire();
    let loss = tokio::time::timeout(SOON, heard.lost()).await.expect("the renewal tells");
    assert_eq!(loss, Loss::GrantEnded);
    // Also before the renewal has told.
    let unheard = session.acquire("unheard").strict(BARRIER).await.expect("granted");
    let token = unheard.token();
    expire();
    let failed = unheard.confirm().await.expect_err("too late");
    assert_eq!(failed.error, ClientError::Lost { token: Some(token) });
    assert!(failed.grant.is_none(), "there is nothing to try again with");
    assert_eq!(ClientError::from(failed), ClientError::Lost { token: Some(token) });
}

#[tokio::test]
async fn a_confirm_of_unknown_outcome_hands_the_grant_back_to_try_again() {
    let (authority, _nodes, client, session) = session(Duration::from_secs(10)).await;
    let unconfirmed = session.acquire("db").strict(BARRIER).await.expect("granted");
    let token = unconfirmed.token();
    authority.behave(0, "confirm", Manner::Silent, 1);
    let failed = unconfirmed.confirm_within(Duration::from_millis(200)).await;
    let failed = failed.expect_err("no answer");
    assert!(failed.error.outcome_unknown(), "{failed}");
    let again = failed.grant.expect("it may still be there");
    assert_eq!(authority.holder("db"), Some(token.get()), "it is not released meanwhile");
    let guard = again.confirm().await.expect("confirmed");
    assert!(client.check_token("db", token).await.expect("answered").current);
    assert!(guard.is_held());
}

#[tokio::test]
async fn one_that_waited_arrives_unconfirmed_and_the_next_waits_behind_it() {
    let (authority, _nodes, client, session) = session(Duration::from_secs(10)).await;
    authority.rival("db");
    let first = tokio::spawn(session.acquire("db").strict(BARRIER).into_future());
    eventually("it waits", || authority.waiting("db") == 1).await;
    let other = client.session(BARRIER).await.expect("opened");
    let second = tokio::spawn(other.acquire("db").into_future());
    eventually("both wait", || authority.waiting("db") == 2).await;
    authority.free("db");
    let first = first.await.expect("not aborted").expect("granted");
    assert_eq!(authority.waiting("db"), 1, "nobody passes the barrier");
    first.release().await.expect("released unconfirmed");
    assert!(second.await.expect("not aborted").expect("granted").is_held());
}
