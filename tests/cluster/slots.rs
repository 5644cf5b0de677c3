//! N at a time: served in order, never more than N, and none lost however holders die.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringfence::client::{Client, Session};
use ringfence::wire::v1::EventKind;
use ringfence::wire::{Reason, v1};

use crate::cluster::{Cluster, PATIENCE};
use crate::watching::{Watching, end_of, resource};
use crate::wire::{Wire, owner, refused};

const LONG: Duration = Duration::from_secs(600);
/// Longer than any of these tests may take.
const HOUR: Duration = Duration::from_secs(3_600);

/// A try at one of `slots`.
fn slot_of(resource: &str, slots: u32) -> v1::AcquireRequest {
    let mode = v1::Mode::Slots.into();
    v1::AcquireRequest { resource: resource.to_owned(), mode, slots, ..Default::default() }
}

/// One waiter: opens a session, stands in the queue, holds its slot for a moment.
async fn be_served(client: Client, name: &'static str, slots: u32) -> (u64, u32, Session) {
    let session = client.session(LONG).await.expect("a session");
    let guard = session.acquire_slot(name, slots).wait(HOUR).await.expect("a turn");
    let (token, slot) = (guard.token().get(), guard.slot());
    guard.release().await.expect("held");
    (token, slot, session)
}

/// What is told of one resource from the beginning until so many grants were made.
async fn events_of(cluster: &Cluster, name: &str, grants: usize) -> Vec<v1::Event> {
    let node = Wire::to(cluster.address(cluster.leader().await));
    let mut watching =
        Watching::after(&node, resource(name), end_of(0)).await.expect("all events are kept");
    let mut events: Vec<v1::Event> = Vec::new();
    while events.iter().filter(|e| e.kind() == EventKind::Granted).count() < grants {
        events.push(watching.event().await.expect("the watch goes on"));
    }
    events
}

/// The order of arrival is that of the log; the events tell both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_c9_five_hundred_waiters_on_ten_slots_are_served_in_arrival_order() {
    const WAITERS: usize = 500;
    const SLOTS: u32 = 10;
    const NAME: &str = "pool";
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    let mut first = Vec::new();
    for number in 0..u64::from(SLOTS) {
        let holder = node.open(owner(100 + number), LONG).await.expect("a session");
        let granted = node.ask(holder.next(), slot_of(NAME, SLOTS)).await.expect("a free slot");
        first.push((holder, granted.grant.expect("granted").token));
    }
    assert_eq!(refused(node.ask(me.next(), slot_of(NAME, SLOTS)).await), Reason::Busy);
    assert_eq!(refused(node.ask(me.next(), slot_of(NAME, 9)).await), Reason::CapacityMismatch);
    let clients: Vec<_> =
        (0..4).map(|_| Client::connect(cluster.endpoints()).expect("good endpoints")).collect();
    let served: Vec<_> = (0..WAITERS)
        .map(|n| tokio::spawn(be_served(clients[n % clients.len()].clone(), NAME, SLOTS)))
        .collect();
    let until = Instant::now() + PATIENCE * 2;
    while node.get(NAME).await.expect("a view").waiting < WAITERS as u64 {
        assert!(Instant::now() < until, "not all wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (holder, token) in &first {
        node.release(holder.next(), NAME, *token).await.expect("held");
    }
    let mut slots = BTreeSet::new();
    for one in served {
        let (_, slot, _) = one.await.expect("served");
        slots.insert(slot);
    }
    assert!(slots.iter().all(|slot| *slot < SLOTS), "{slots:?}");

    let events = events_of(&cluster, NAME, WAITERS + SLOTS as usize).await;
    let who = |kind: EventKind| {
        events.iter().filter(move |e| e.kind() == kind).map(|e| (e.session, e.request))
    };
    let queued: Vec<_> = who(EventKind::Queued).collect();
    let granted: Vec<_> = who(EventKind::Granted).skip(SLOTS as usize).collect();
    assert_eq!((queued.len(), granted.len()), (WAITERS, WAITERS));
    assert_eq!(granted, queued, "somebody overtook");
    held_at_most(&events, SLOTS);
}

/// At every event: distinct slots, all below n, and so at most n.
fn held_at_most(events: &[v1::Event], slots: u32) {
    let mut held = BTreeSet::new();
    for event in events {
        match event.kind() {
            EventKind::Granted => {
                let slot = event.slot.expect("of slots");
                assert!(slot < slots && held.insert(slot), "slot {slot} twice, or none: {event:?}");
            }
            EventKind::Ended => assert!(held.remove(&event.slot.expect("of slots"))),
            _ => {}
        }
    }
}

/// One permit, its holder judged dead, the permit given to another; the dead one comes
/// back and gives it back twice.
#[tokio::test]
async fn scenario_a11_a_stale_finisher_returns_nothing_and_no_permit_is_counted_twice() {
    const NAME: &str = "semaphore";
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let dead = node.open(owner(1), Duration::from_secs(1)).await.expect("a session");
    let old = node.ask(dead.next(), slot_of(NAME, 1)).await.expect("free").grant.expect("granted");
    let next = node.open(owner(2), LONG).await.expect("a session");
    let wait_ms = 60_000;
    let claim = v1::AcquireRequest { wait_ms, ..slot_of(NAME, 1) };
    let new = node.ask(next.next(), claim).await.expect("its turn").grant.expect("granted");
    assert!(new.token > old.token && new.slot == Some(0));
    // The old session is gone; a new one of the same owner holds nothing.
    for _ in 0..2 {
        let late = node.release(dead.next(), NAME, old.token).await;
        assert_eq!(refused(late), Reason::SessionExpired);
    }
    let again = node.open(owner(1), LONG).await.expect("a session");
    for token in [old.token, new.token] {
        let late = node.release(again.next(), NAME, token).await;
        assert_eq!(refused(late), Reason::NotHeld);
    }
    let third = node.open(owner(3), LONG).await.expect("a session");
    assert_eq!(refused(node.ask(third.next(), slot_of(NAME, 1)).await), Reason::Busy);
    let view = node.get(NAME).await.expect("a view");
    assert_eq!(view.holders.iter().map(|g| g.token).collect::<Vec<_>>(), [new.token]);
    held_at_most(&events_of(&cluster, NAME, 2).await, 1);
}

/// A holder in a process of its own.
struct Holder(Child);

impl Holder {
    fn start(cluster: &Cluster, name: &str, slots: u32) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_ringfence"))
            .args(["--endpoints", &cluster.endpoints().join(",")])
            .args(["lock", "-q", name, "--slots", &slots.to_string(), "--ttl", "1s"])
            .args(["--wait", "10m", "--", "sleep", "600"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("ringfence runs"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _gone_already = self.0.kill();
        self.0.wait().expect("a child can be waited for");
    }
}

/// A thousand deaths are shown at the rules (tests/stories); here processes die by
/// SIGKILL, with slots in their hands or in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_d5_no_permit_is_lost_when_holders_are_killed() {
    const NAME: &str = "permits";
    const SLOTS: u32 = 3;
    const KILLS: usize = 24;
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let mut holders: Vec<Holder> = Vec::new();
    for kill in 0..KILLS {
        while holders.len() < SLOTS as usize + 2 {
            holders.push(Holder::start(&cluster, NAME, SLOTS));
        }
        full(&node, NAME, SLOTS).await;
        // Not always the oldest: some die in the queue.
        holders.remove(kill % holders.len());
    }
    drop(holders);
    let until = Instant::now() + PATIENCE;
    while !node.get(NAME).await.expect("a view").holders.is_empty() {
        assert!(Instant::now() < until, "somebody dead holds on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for number in 0..u64::from(SLOTS) {
        let me = node.open(owner(number), LONG).await.expect("a session");
        let granted = node.ask(me.next(), slot_of(NAME, SLOTS)).await.expect("a free slot");
        assert_eq!(granted.grant.expect("granted").slot.map(u64::from), Some(number));
    }
    held_at_most(&events_of(&cluster, NAME, SLOTS as usize).await, SLOTS);
}

async fn full(node: &Wire, name: &str, slots: u32) {
    let until = Instant::now() + PATIENCE;
    loop {
        let view = node.get(name).await.expect("a view");
        assert!(view.holders.len() <= slots as usize, "more than there are: {view:?}");
        if view.holders.len() == slots as usize {
            return;
        }
        assert!(Instant::now() < until, "a permit is lost: {view:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
