//! Why something is held, who waits, and what happened to it.

use std::time::Duration;

use ringfence::wire::v1::{Cause, EventKind, Phase};
use ringfence::wire::{Reason, v1};

use crate::cluster::Cluster;
use crate::wire::{Owner, Wire, owner, refused};

const LONG: Duration = Duration::from_secs(60);

/// Queues and does not wait for the grant.
async fn queues(node: &Wire, me: &Owner, claim: v1::AcquireRequest) -> u64 {
    let claim = v1::AcquireRequest { wait_ms: 60_000, answer_queued: true, ..claim };
    let answer = node.ask(me.next(), claim).await.expect("it may wait");
    answer.queued.expect("it waits").ahead
}

fn claim(name: &str) -> v1::AcquireRequest {
    v1::AcquireRequest { resource: name.to_owned(), ..Default::default() }
}

fn by(actor: &str, reason: &str) -> v1::Note {
    v1::Note { actor: actor.to_owned(), reason: reason.to_owned() }
}

#[tokio::test]
async fn explain_tells_who_holds_why_still_who_waits_and_what_happened_on_every_node() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let holder = node.open(owner(1), LONG).await.expect("a session");
    let before = node.try_acquire(&holder, "db").await.expect("free");
    node.release(holder.next(), "db", before.token).await.expect("held");
    let strict = v1::AcquireRequest { barrier_ms: 30_000, lock_delay_ms: 40_000, ..claim("db") };
    let held = node.ask(holder.next(), strict).await.expect("free").grant.expect("granted");
    let first = node.open(owner(2), LONG).await.expect("a session");
    let second = node.open(owner(3), LONG).await.expect("a session");
    assert_eq!(queues(&node, &first, claim("db")).await, 0);
    assert_eq!(queues(&node, &second, claim("db")).await, 1);
    node.try_acquire(&second, "other").await.expect("free");
    for id in cluster.ids() {
        let told = Wire::to(cluster.address(id)).explain("db").await.expect("explained");
        let view = told.resource.expect("a view");
        let tokens: Vec<_> = view.holders.iter().map(|grant| grant.token).collect();
        assert_eq!(tokens, [held.token]);
        let waiters: Vec<_> = view.waiters.iter().map(|waiter| waiter.session).collect();
        assert_eq!((waiters, view.waiting), (vec![first.session, second.session], 2));
        let [lease] = &told.leases[..] else { panic!("{:?}", told.leases) };
        assert_eq!((lease.session, lease.ttl_ms), (holder.session, 60_000));
        assert!(lease.ends_in_ms > 0 && lease.ends_in_ms <= 60_000, "{lease:?}");
        assert!(lease.barrier_left_ms > 0 && lease.barrier_left_ms <= 30_000, "{lease:?}");
        let events: Vec<_> = told.events.iter().map(|event| (event.kind(), event.token)).collect();
        let expected = [
            (EventKind::Granted, before.token),
            (EventKind::Ended, before.token),
            (EventKind::Granted, held.token),
            (EventKind::Queued, 0),
            (EventKind::Queued, 0),
        ];
        assert_eq!(events, expected);
        assert_eq!(told.events[2].phase(), Phase::Barrier);
        assert!(told.events_since.is_some_and(|since| since.index < told.index));
    }
    let fences = node.revoke(&held, by("ops", "moved to B")).await.expect("held");
    let told = node.explain("db").await.expect("explained");
    let ended = told.events.iter().find(|event| event.cause() == Cause::Revoked);
    let ended = ended.expect("told of");
    assert_eq!((ended.token, ended.by), (held.token, fences[0].token));
    assert_eq!(ended.note, Some(by("ops", "moved to B")));
    let view = told.resource.expect("a view");
    assert!(view.holders.is_empty(), "the lock delay keeps it closed: {view:?}");
    assert_eq!((view.waiting, view.closures.len()), (2, 1));
    let [left] = told.closures_left_ms[..] else { panic!("{:?}", told.closures_left_ms) };
    assert!(left > 30_000 && left <= 40_000, "{left}");
}

#[tokio::test]
async fn explain_of_what_nobody_holds_tells_what_happened_and_at_most_64_events() {
    let cluster = Cluster::start_with(1, &["--events-max", "300"]).await;
    let node = Wire::to(cluster.address(1));
    let told = node.explain("db").await.expect("explained");
    assert_eq!((told.events.len(), told.leases.len()), (0, 0));
    assert_eq!(told.resource.map(|view| view.resource), Some("db".into()));
    let me = node.open(owner(1), LONG).await.expect("a session");
    let mut tokens = Vec::new();
    for _ in 0..50 {
        let grant = node.try_acquire(&me, "db").await.expect("free");
        node.release(me.next(), "db", grant.token).await.expect("held");
        tokens.extend([grant.token; 2]);
    }
    let told = node.explain("db").await.expect("explained");
    let last: Vec<_> = told.events.iter().map(|event| event.token).collect();
    assert_eq!(last, tokens[tokens.len() - 64..]);
    for _ in 0..150 {
        let grant = node.try_acquire(&me, "loud").await.expect("free");
        node.release(me.next(), "loud", grant.token).await.expect("held");
    }
    let told = node.explain("db").await.expect("explained");
    assert!(told.events.is_empty(), "what is dropped is not told: {:?}", told.events);
    assert!(told.events_since.is_some_and(|since| since.index > 100));
    assert_eq!(refused(node.explain("").await), Reason::InvalidArgument);
}
