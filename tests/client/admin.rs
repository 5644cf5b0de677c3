//! What administrators do by hand. Section 8 of the contract.

use std::future::IntoFuture;
use std::time::Duration;

use ringfence::client::{Client, ClientError, Loss};
use ringfence::locks::{Note, Token};
use ringfence::wire::reason::Reason;

use crate::authority::{Authority, FOR_EVER, Manner, eventually};
use crate::node::{Node, SOON, client_of, nodes};

const TTL: Duration = Duration::from_millis(900);

async fn one_node() -> (Authority, Vec<Node>, Client) {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    (authority, nodes, client)
}

fn note() -> Note {
    Note::new("ops", "it hangs").expect("a good note")
}

fn token(token: u64) -> Token {
    Token::new(token).expect("a good token")
}

#[tokio::test]
async fn a_revoke_ends_exactly_the_grant_that_is_named_and_says_what_shuts_it_out() {
    let (authority, _nodes, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let set = session.acquire_all(["a", "b"]).await.expect("granted");
    let fences = client.revoke("b", set.token(), note()).await.expect("revoked");
    let names: Vec<_> = fences.iter().map(|fence| fence.resource.to_string()).collect();
    assert_eq!(names, ["a", "b"], "the whole set, a fence for each");
    assert!(fences.iter().all(|fence| fence.token > set.token() && fence.floor == fence.token));
    let loss = tokio::time::timeout(SOON, set.lost()).await.expect("the renewal tells");
    assert_eq!(loss, Loss::GrantEnded);
    // A newer holder is not hit by the stale token.
    let newer = session.acquire("a").await.expect("granted");
    let stale = client.revoke("a", set.token(), note()).await.expect_err("it has ended");
    let ClientError::NotFound { what } = &stale else { panic!("{stale}") };
    assert!(what.contains(&format!("token {} is of no live grant on a", set.token())), "{what}");
    assert_eq!(authority.holder("a"), Some(newer.token().get()));
    let slot = session.acquire_slot("screens", 3).await.expect("granted");
    let fences = client.revoke("screens", slot.token(), note()).await.expect("revoked");
    assert_eq!(fences.iter().map(|fence| fence.slot).collect::<Vec<_>>(), [Some(0)]);
}

#[tokio::test]
async fn a_frozen_resource_is_closed_until_the_thaw_that_names_its_token() {
    let (authority, _nodes, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let held = session.acquire("db").await.expect("granted");
    let set = tokio::spawn(session.acquire_all(["a", "db"]).into_future());
    let waiter = client.session(TTL).await.expect("opened");
    let single = tokio::spawn(waiter.acquire("db").into_future());
    // The session that holds it may not wait for it.
    assert!(matches!(set.await.expect("not aborted"), Err(ClientError::AlreadyHeld { .. })));
    let third = client.session(TTL).await.expect("opened");
    let set = tokio::spawn(third.acquire_all(["a", "db"]).into_future());
    eventually("both wait", || authority.waiting("db") == 2).await;

    let fence = client.freeze("db", note()).await.expect("frozen");
    assert!(fence.token > held.token() && fence.floor == fence.token);
    let frozen = ClientError::Frozen { resource: Some("db".into()), token: Some(fence.token) };
    assert_eq!(set.await.expect("not aborted").expect_err("sets are answered"), frozen);
    assert_eq!(third.try_acquire("db").await.expect_err("closed"), frozen);
    assert!(frozen.to_string().contains(&format!("token {}", fence.token)), "{frozen}");
    assert_eq!(client.freeze("db", note()).await.expect_err("frozen already"), frozen);
    assert!(!single.is_finished(), "a single waiter keeps its place");

    let other = client.thaw("db", token(fence.token.get() + 1), note()).await;
    let error = other.expect_err("another token");
    assert!(matches!(&error, ClientError::NotFound { what } if what.contains("no freeze of db")));
    let thawed = client.thaw("db", fence.token, note()).await.expect("thawed");
    assert!(thawed.index > 0);
    assert!(single.await.expect("not aborted").expect("granted").is_held());
}

#[tokio::test]
async fn a_resize_says_which_slots_are_no_more_and_the_new_number_is_in_force() {
    let (_authority, _nodes, client) = one_node().await;
    let session = client.session(TTL).await.expect("opened");
    let error = client.resize("screens", 2, note()).await.expect_err("nobody uses it");
    assert!(matches!(error, ClientError::NotFound { .. }), "{error}");
    let held = session.acquire_slot("screens", 4).await.expect("granted");
    let resized = client.resize("screens", 2, note()).await.expect("resized");
    assert_eq!((resized.slots, resized.range.clone()), (2, 2..4));
    let slots: Vec<_> = resized.removed.iter().map(|fence| fence.slot).collect();
    assert_eq!(slots, [Some(2), Some(3)]);
    assert!(resized.removed.iter().all(|fence| fence.token == resized.token));
    let other = client.session(TTL).await.expect("opened");
    let error = other.acquire_slot("screens", 4).await.expect_err("the old number");
    assert!(matches!(error, ClientError::CapacityMismatch { slots: Some(2), .. }), "{error}");
    assert_eq!(other.acquire_slot("screens", 2).await.expect("granted").slot(), 1);
    assert!(held.is_held());
}

#[tokio::test]
async fn a_call_that_may_have_taken_effect_is_not_made_again_and_says_so() {
    let (authority, nodes) = nodes(2).await;
    let client = client_of(&nodes);
    authority.rival("job/7");
    let held = token(authority.holder("job/7").expect("it is held"));
    for node in 0..2 {
        // Refusals at the door are followed by another attempt, a lost answer by none.
        authority.behave(node, "revoke", Manner::Refuses(Reason::NoQuorum, vec![]), 1);
        authority.behave(node, "revoke", Manner::LosesReply, FOR_EVER);
        authority.behave(node, "freeze", Manner::Refuses(Reason::OutcomeUnknown, vec![]), FOR_EVER);
    }
    let error = client.revoke("job/7", held, note()).await.expect_err("the answer is lost");
    assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
    assert!(error.outcome_unknown());
    assert!(error.to_string().contains("look at the resource (get, explain)"), "{error}");
    assert_eq!(authority.seen("revoke").len(), 3);
    let error = client.freeze("job/7", note()).await.expect_err("unknown");
    assert!(matches!(error, ClientError::OutcomeUnknown { .. }), "{error}");
    assert_eq!(authority.seen("freeze").len(), 1);
    // Looking says what came of it.
    let explained = client.explain("job/7").await.expect("answered");
    assert!(explained.resource.expect("there").holders.is_empty());
    assert!(!explained.events.is_empty());
}

#[tokio::test]
async fn a_call_that_no_node_took_is_known_to_have_no_effect() {
    let (authority, nodes) = nodes(1).await;
    let client = Client::builder().call_timeout(Duration::from_millis(300));
    let client = client.connect([&nodes[0].address]).expect("a good endpoint");
    authority.behave(0, "freeze", Manner::Refuses(Reason::NoQuorum, vec![]), FOR_EVER);
    let error = client.freeze("job/7", note()).await.expect_err("no quorum");
    assert!(matches!(error, ClientError::Unreachable { outcome_unknown: false, .. }), "{error}");
    let error = client.revoke("", token(1), note()).await.expect_err("no name");
    assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
    let error = client.ask_release("a", token(1), Duration::ZERO, note()).await.expect_err("none");
    assert!(matches!(error, ClientError::Invalid { ref field, .. } if field == "within_ms"));
}
