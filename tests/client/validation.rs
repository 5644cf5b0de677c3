//! Asking the authority in a fence's place: what it refuses, and what it lets through.

use std::future::IntoFuture;
use std::time::Duration;

use ringfence::client::{Client, Session};
use ringfence::fence::validation::{NotValidated, Validator};
use ringfence::fence::{Fence, FenceError, MemoryMarks};
use ringfence::locks::{ClusterId, Token};

use crate::authority::{Authority, CLUSTER, FOR_EVER, Manner};
use crate::node::{Node, SOON, client_of, nodes};

const TTL: Duration = Duration::from_secs(10);
const AUTHORITY: ClusterId = ClusterId::new(CLUSTER);

async fn start() -> (Authority, Vec<Node>, Session, Validator<Client>) {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let session = client.session(TTL).await.expect("opened");
    let validator = Validator::new(client, AUTHORITY, SOON);
    (authority, nodes, session, validator)
}

fn not_current(answer: &Result<(), NotValidated>) -> bool {
    matches!(answer, Err(NotValidated::NotCurrent { .. }))
}

#[tokio::test]
async fn only_a_live_and_active_grant_with_this_slot_and_floor_is_validated() {
    let (authority, _nodes, session, validator) = start().await;
    let guard = session.acquire("db").await.expect("granted");
    let fence = guard.fence().clone();
    let validate = async |fence: &Fence| validator.validate(std::slice::from_ref(fence)).await;
    validate(&fence).await.expect("it is current");

    let slot = Fence { slot: Some(0), ..fence.clone() };
    assert!(not_current(&validate(&slot).await));
    let later = Token::new(fence.token.get() + 1).expect("a token");
    assert!(not_current(&validate(&Fence { token: later, ..fence.clone() }).await));
    let other = Fence { cluster: ClusterId::new([8; 16]), ..fence.clone() };
    let foreign = validate(&other).await;
    let Err(NotValidated::Fence(FenceError::ForeignCluster { known, .. })) = foreign else {
        panic!("{foreign:?}")
    };
    assert_eq!(known, AUTHORITY);
    let above = Fence { floor: later, ..fence.clone() };
    assert!(matches!(validate(&above).await, Err(NotValidated::Fence(_))));
    assert!(matches!(validator.validate(&[]).await, Err(NotValidated::Fence(FenceError::Set))));

    // Granted, and not confirmed: not yet.
    let unconfirmed = session.acquire("other").strict(TTL).await.expect("granted");
    assert!(not_current(&validate(&unconfirmed.fences()[0]).await));
    let confirmed = unconfirmed.confirm().await.expect("confirmed");
    validate(confirmed.fence()).await.expect("it is current");
    let both = [fence.clone(), confirmed.fence().clone()];
    validator.validate(&both).await.expect("both are current");

    authority.revoke("db");
    assert!(not_current(&validate(&fence).await));
    assert!(not_current(&validator.validate(&both).await), "one of them is not");
}

#[tokio::test]
async fn an_authority_that_does_not_answer_validates_nothing() {
    let (authority, nodes, session, _) = start().await;
    let guard = session.acquire("db").await.expect("granted");
    authority.behave(0, "check_token", Manner::Silent, FOR_EVER);
    let validator = Validator::new(client_of(&nodes), AUTHORITY, Duration::from_millis(200));
    let answer = tokio::time::timeout(SOON, validator.validate(guard.fences()).into_future());
    let answer = answer.await.expect("it is bounded");
    assert!(matches!(answer, Err(NotValidated::Unanswered(_))), "{answer:?}");
    // Nothing is remembered: the next one is asked for anew.
    authority.recover(0, "check_token");
    validator.validate(guard.fences()).await.expect("it is current");
    assert!(authority.seen("check_token").len() >= 2);
}

#[tokio::test]
async fn a_validated_write_that_is_paused_lands_after_its_lease_and_a_mark_would_refuse_it() {
    let (authority, _nodes, session, validator) = start().await;
    let guard = session.acquire("db").await.expect("granted");
    let old = guard.fence().clone();
    let mut asked = Vec::new();
    let (marks, mut marked) = (MemoryMarks::new(), Vec::new());

    // Both destinations have the old owner's write in their hands.
    validator.validate(std::slice::from_ref(&old)).await.expect("it is current");
    // Here it is paused: its lease ends, and the next owner writes.
    authority.end_session(session.id().0);
    authority.rival("db");
    let token = Token::new(authority.holder("db").expect("it is held")).expect("a token");
    let new = Fence { token, floor: token, ..old.clone() };
    validator.validate(std::slice::from_ref(&new)).await.expect("it is current");
    asked.push(new.token);
    marks.guarded(&new, || marked.push(new.token)).expect("accepted");

    // It goes on. Nobody asks again between the answer and the write.
    asked.push(old.token);
    assert_eq!(asked, [new.token, old.token], "the stale write is there: the window is open");
    let stale = marks.guarded(&old, || marked.push(old.token));
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
    assert_eq!(marked, [new.token]);
    assert!(not_current(&validator.validate(&[old]).await), "asked again, it is refused");
}
