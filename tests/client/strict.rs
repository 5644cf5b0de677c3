//! A strict acquire raises its fence everywhere before anybody may act under it. [I9]

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringfence::client::{Client, ClientError, HandoffError, Session};
use ringfence::fence::{Fence, FenceError, FenceTarget, MemoryMarks, target};
use ringfence::locks::{ResourceName, Timer, Token};
use tokio::sync::Semaphore;

use crate::authority::{Authority, Manner, eventually};
use crate::node::{Node, SOON, client_of, nodes};

const TTL: Duration = Duration::from_secs(10);

async fn session() -> (Authority, Vec<Node>, Client, Session) {
    let (authority, nodes) = nodes(1).await;
    let client = client_of(&nodes);
    let session = client.session(TTL).await.expect("opened");
    (authority, nodes, client, session)
}

fn name(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a name")
}

/// Raises at `marks` when the gate has let it.
fn gated(marks: &Arc<MemoryMarks>, gate: &Arc<Semaphore>) -> impl FenceTarget + use<> {
    let (marks, gate) = (Arc::clone(marks), Arc::clone(gate));
    target("gated", move |fences: Vec<Fence>, _| {
        let (marks, gate) = (Arc::clone(&marks), Arc::clone(&gate));
        async move {
            gate.acquire().await.expect("open").forget();
            marks.guarded_set(&fences, || ())
        }
    })
}

/// Answers so for so many times, and then raises nothing and says that it did.
fn failing(
    times: u32,
    answer: impl Fn() -> FenceError + Send + Sync + 'static,
) -> (impl FenceTarget, Arc<AtomicU32>) {
    let (asked, answer) = (Arc::new(AtomicU32::new(0)), Arc::new(answer));
    let counted = Arc::clone(&asked);
    let failing = target("orders", move |_, _| {
        let before = counted.fetch_add(1, Ordering::Relaxed);
        let answer = Arc::clone(&answer);
        async move { if before < times { Err(answer()) } else { Ok(()) } }
    });
    (failing, asked)
}

fn down() -> FenceError {
    FenceError::Store("connection refused".into())
}

#[tokio::test]
async fn it_returns_active_when_every_destination_has_raised_and_not_before() {
    let (authority, _nodes, client, session) = session().await;
    let (cache, orders) = (MemoryMarks::new(), Arc::new(MemoryMarks::new()));
    let gate = Arc::new(Semaphore::new(0));
    let late = gated(&orders, &gate);
    let targets: [&dyn FenceTarget; 2] = [&cache, &late];
    // Its confirm's answer is lost twice besides.
    authority.behave(0, "confirm", Manner::LosesReply, 2);
    let acquire = session.acquire_strict("db", &targets).into_future();
    tokio::pin!(acquire);
    let raised =
        eventually("one of the two has raised", || cache.mark(&name("db"), None).is_some());
    tokio::select! {
        _ = &mut acquire => panic!("it returned before the second had raised"),
        () = raised => {}
    }
    let token = Token::new(authority.holder("db").expect("granted")).expect("a token");
    let current = async || client.check_token("db", token).await.expect("answered").current;
    assert!(!current().await, "nobody may act under it yet");
    gate.add_permits(1);
    let guard = acquire.await.expect("raised and confirmed");
    assert!(current().await);
    assert_eq!(guard.token(), token);
    assert_eq!(orders.mark(&name("db"), None), Some(token));
    assert_eq!(cache.mark(&name("db"), None), Some(token));
}

#[tokio::test]
async fn one_destination_that_fails_is_named_and_nothing_stays_active() {
    let (authority, _nodes, _client, session) = session().await;
    let (cache, (orders, asked)) = (MemoryMarks::new(), failing(1, down));
    let targets: [&dyn FenceTarget; 2] = [&cache, &orders];
    let failed = session.acquire_strict("db", &targets).await.expect_err("orders is down");
    let told = "the fence is not raised at orders: the store failed: connection refused";
    assert_eq!(failed.to_string(), told);
    assert_eq!(authority.holder("db"), None, "it is given back before the error is told");
    assert_eq!(authority.seen("confirm").len(), 0);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // The mark that it left behind is in nobody's way: the next token is greater.
    let left = cache.mark(&name("db"), None).expect("raised");
    let guard = session.acquire_strict("db", &targets).await.expect("orders is back");
    assert!(guard.token() > left);
    assert_eq!(cache.mark(&name("db"), None), Some(guard.token()));
}

#[tokio::test]
async fn told_to_keep_trying_it_asks_one_that_is_down_or_busy_again() {
    let (_authority, _nodes, _client, session) = session().await;
    let (orders, asked) = failing(3, down);
    let (cache, busy) = failing(2, || FenceError::Busy("an owner is inside".into()));
    let targets: [&dyn FenceTarget; 2] = [&orders, &cache];
    let guard = session.acquire_strict("db", &targets).keep_trying().await.expect("they come");
    assert!(guard.is_held());
    assert_eq!((asked.load(Ordering::Relaxed), busy.load(Ordering::Relaxed)), (4, 3));
}

#[tokio::test]
async fn a_conflict_is_tried_again_and_a_refusal_never() {
    let (authority, _nodes, _client, session) = session().await;
    let (orders, asked) = failing(2, || FenceError::Conflict("40001".into()));
    let guard = session.acquire_strict("db", &[&orders as &dyn FenceTarget]).await.expect("raised");
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    guard.release().await.expect("released");
    // Marks above every token that this authority can give.
    let ahead = MemoryMarks::new();
    let cluster = session.cluster();
    let top = Token::new((1 << 53) - 1).expect("the greatest");
    let fence = Fence { cluster, resource: name("db"), slot: None, token: top, floor: top };
    ahead.raise(&fence).expect("the first");
    let targets: [&dyn FenceTarget; 1] = [&ahead];
    let stale = session.acquire_strict("db", &targets).keep_trying().await;
    match stale.expect_err("a later owner has been there") {
        HandoffError::NotRaised { destination, error: FenceError::Stale { mark, .. } } => {
            assert_eq!((destination.as_str(), mark), ("memory", top));
        }
        other => panic!("{other}"),
    }
    assert_eq!(authority.holder("db"), None);
}

#[tokio::test]
async fn a_destination_that_never_answers_fails_with_the_barrier() {
    let (authority, _nodes, _client, session) = session().await;
    let (orders, gate) = (Arc::new(MemoryMarks::new()), Arc::new(Semaphore::new(0)));
    let silent = gated(&orders, &gate);
    let targets: [&dyn FenceTarget; 1] = [&silent];
    let strict = session.acquire_strict("db", &targets).barrier(Duration::from_millis(200));
    let failed = strict.await.expect_err("no answer");
    assert!(failed.to_string().contains("not raised at gated"), "{failed}");
    assert_eq!(authority.holder("db"), None);
    // What was still said late raises nothing: its future was dropped.
    gate.add_permits(1);
    assert_eq!(orders.mark(&name("db"), None), None);
}

#[tokio::test]
async fn a_deadline_bounds_all_of_it_also_the_giving_back() {
    let (authority, _nodes, _client, session) = session().await;
    let (orders, _asked) = failing(u32::MAX, down);
    authority.behave(0, "release", Manner::Silent, 1);
    let targets: [&dyn FenceTarget; 1] = [&orders];
    let acquire = session.acquire("db").deadline(Duration::from_millis(300)).raising(&targets);
    let failed = tokio::time::timeout(SOON, acquire.into_future()).await.expect("by its deadline");
    assert!(matches!(failed, Err(HandoffError::NotRaised { .. })), "{failed:?}");
    eventually("given back in the background", || authority.holder("db").is_none()).await;
}

#[tokio::test]
async fn a_confirm_of_unknown_outcome_is_given_back_before_it_is_told() {
    let (authority, _nodes, client, session) = session().await;
    let marks = MemoryMarks::new();
    let targets: [&dyn FenceTarget; 1] = [&marks];
    // It takes effect, and no answer comes before the barrier is over.
    authority.behave(0, "confirm", Manner::LosesReply, usize::MAX);
    let barrier = Duration::from_millis(300);
    let failed = session.acquire_strict("db", &targets).barrier(barrier).await;
    let failed = failed.expect_err("no answer");
    assert!(matches!(failed, HandoffError::Authority(ClientError::Unreachable { .. })), "{failed}");
    assert_eq!(authority.holder("db"), None, "given back");
    let token = marks.mark(&name("db"), None).expect("raised");
    assert!(!client.check_token("db", token).await.expect("answered").current);
}

#[tokio::test]
async fn memory_that_is_being_written_is_busy_and_stops_no_thread() {
    let (authority, _nodes, _client, session) = session().await;
    let (marks, fence) = (Arc::new(MemoryMarks::new()), held_fence(&session));
    let (inside, go) = (Arc::clone(&marks), Arc::new(std::sync::Barrier::new(2)));
    let (entered, left) = (Arc::clone(&go), Arc::clone(&go));
    let writes = std::thread::spawn(move || {
        inside.guarded(&fence, || {
            entered.wait();
            left.wait();
        })
    });
    go.wait();
    let targets: [&dyn FenceTarget; 1] = [&*marks];
    let acquire = session.acquire_strict("db", &targets).barrier(Duration::from_millis(200));
    let busy = acquire.await.expect_err("a write is under way");
    assert!(busy.to_string().contains("not raised at memory"), "{busy}");
    assert_eq!(authority.holder("db"), None);
    go.wait();
    writes.join().expect("no panic").expect("accepted");
}

/// Of an owner from before.
fn held_fence(session: &Session) -> Fence {
    let token = Token::new(1).expect("a token");
    Fence { cluster: session.cluster(), resource: name("db"), slot: None, token, floor: token }
}

#[tokio::test]
async fn a_grant_that_ends_while_it_is_raised_is_lost() {
    let (authority, nodes) = nodes(1).await;
    let session = client_of(&nodes).session(Duration::from_secs(1)).await.expect("opened");
    let (orders, gate) = (Arc::new(MemoryMarks::new()), Arc::new(Semaphore::new(0)));
    let gated = gated(&orders, &gate);
    let targets: [&dyn FenceTarget; 1] = [&gated];
    let acquire = session.acquire_strict("db", &targets).into_future();
    tokio::pin!(acquire);
    tokio::select! {
        _ = &mut acquire => panic!("not raised yet"),
        () = eventually("granted", || authority.holder("db").is_some()) => {}
    }
    authority.run_out(|timer| matches!(timer, Timer::Barrier(_)));
    let lost = tokio::time::timeout(SOON, acquire).await.expect("the renewal tells");
    let lost = lost.expect_err("its deadline has passed");
    assert!(lost.to_string().starts_with("the grant ended while its fence was raised at gated: "));
    assert!(matches!(&lost, HandoffError::Ended { error: ClientError::Lost { .. }, .. }), "{lost}");
    assert_eq!(orders.mark(&name("db"), None), None);
}

#[tokio::test]
async fn dropped_while_it_raises_it_is_given_back() {
    let (authority, _nodes, _client, session) = session().await;
    let (orders, gate) = (Arc::new(MemoryMarks::new()), Arc::new(Semaphore::new(0)));
    let gated = gated(&orders, &gate);
    let targets: [&dyn FenceTarget; 1] = [&gated];
    let mut acquire = session.acquire_strict("db", &targets).into_future();
    tokio::select! {
        _ = &mut acquire => panic!("not raised yet"),
        () = eventually("granted", || authority.holder("db").is_some()) => {}
    }
    drop(acquire);
    eventually("given back", || authority.holder("db").is_none()).await;
    assert_eq!(authority.seen("confirm").len(), 0);
}

#[tokio::test]
async fn every_mode_raises_all_that_it_holds() {
    let (_authority, _nodes, client, session) = session().await;
    let marks = MemoryMarks::new();
    let targets: [&dyn FenceTarget; 1] = [&marks];
    let slot = session.acquire_slot("screens", 3).raising(&targets).await.expect("raised");
    assert_eq!(slot.slot(), 0);
    assert_eq!(marks.mark(&name("screens"), Some(0)), Some(slot.token()));
    let set = session.acquire_all(["b", "a"]).raising(&targets).await.expect("raised");
    for resource in ["a", "b"] {
        assert_eq!(marks.mark(&name(resource), None), Some(set.token()));
    }
    // A second sharer does not shut the first one out.
    let first = session.acquire_shared("pages").raising(&targets).await.expect("raised");
    let other = client.session(TTL).await.expect("opened");
    let second = other.acquire_shared("pages").raising(&targets).await.expect("raised");
    assert!(second.token() > first.token());
    assert_eq!(marks.mark(&name("pages"), None), Some(first.token()));
}

#[tokio::test]
async fn without_a_destination_it_is_refused_and_asks_nobody() {
    let (authority, _nodes, _client, session) = session().await;
    let refused = session.acquire_strict("db", &[]).await.expect_err("nothing to raise");
    assert_eq!(refused.to_string(), "targets must be one destination or more");
    assert_eq!(authority.seen("acquire").len(), 0);
}
