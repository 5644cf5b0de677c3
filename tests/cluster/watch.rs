//! Watches: what is so, and then every event, on any node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence::wire::v1::watch_response::Part;
use ringfence::wire::v1::{Cause, EventKind};
use ringfence::wire::{Reason, v1};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, PATIENCE};
use crate::watching::{
    Book, Watching, ascends, at, end_of, no_pair_is_held_in_part, prefix, resource,
};
use crate::wire::{Owner, Wire, insist, owner, reason};

const LONG: Duration = Duration::from_secs(600);
const CLIENTS: u64 = 6;

/// A claim on these names together, in any order.
pub fn set(names: &[&str], wait: Duration) -> v1::AcquireRequest {
    v1::AcquireRequest {
        resource: names[0].to_owned(),
        more: names[1..].iter().map(ToString::to_string).collect(),
        wait_ms: u64::try_from(wait.as_millis()).expect("below an age"),
        ..Default::default()
    }
}

/// Takes two names together, or one, and gives them back, over and over.
async fn take_and_give(nodes: Vec<Wire>, number: u64, stop: Arc<AtomicBool>) {
    let me = insist(&nodes, |node| async move { node.open(owner(number), LONG).await });
    let me = me.await.expect("a session");
    for turn in number.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (low, high) = (format!("a/{}", turn % 3), format!("z/{}", turn % 4));
        let names = match turn % 3 {
            0 => vec![low.as_str(), high.as_str()],
            1 => vec![high.as_str(), low.as_str()],
            _ => vec![high.as_str()],
        };
        let (header, claim) = (me.next(), set(&names, Duration::from_secs(5)));
        let taken = insist(&nodes, |node| {
            let (header, claim) = (header.clone(), claim.clone());
            async move { node.ask(header, claim).await }
        });
        let grant = match taken.await {
            Ok(answer) => answer.grant.expect("granted"),
            Err(status) if reason(&status) == Reason::WaitTimeout => continue,
            Err(status) => panic!("{header:?}: {status:?}"),
        };
        let (header, token) = (me.next(), grant.token);
        let given = insist(&nodes, |node| {
            let (header, name) = (header.clone(), grant.resource.clone());
            async move { node.release(header, &name, token).await }
        });
        given.await.expect("held");
    }
}

struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    nodes: Vec<Wire>,
}

impl Load {
    fn on(cluster: &Cluster) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let nodes: Vec<Wire> = cluster.endpoints().iter().map(|at| Wire::to(at)).collect();
        let client = |number| {
            let mut nodes = nodes.clone();
            let first = usize::try_from(number).expect("few") % nodes.len();
            nodes.rotate_left(first);
            tokio::spawn(take_and_give(nodes, number, Arc::clone(&stop)))
        };
        Self { clients: (0..CLIENTS).map(client).collect(), nodes, stop }
    }

    /// After that, `end` is granted: the last event of interest.
    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("a client's claims hold");
        }
        let nodes = &self.nodes;
        let me = insist(nodes, |node| async move { node.open(owner(999), LONG).await });
        let header = me.await.expect("a session").next();
        let taken = insist(nodes, |node| {
            let header = header.clone();
            async move { node.acquire(header, "end", Duration::ZERO).await }
        });
        taken.await.expect("free");
    }
}

/// Watches everything from the beginning of the log, at one node and, when that goes,
/// at the next one, until `end` is granted.
async fn follow(addresses: Vec<String>) -> Vec<v1::Event> {
    let mut events: Vec<v1::Event> = Vec::new();
    for address in addresses.iter().cycle() {
        let told = events.last().and_then(|event| event.at).unwrap_or_else(|| end_of(0));
        let Ok(mut watching) = Watching::after(&Wire::to(address), None, told).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while let Ok(event) = watching.event().await {
            let ended = event.kind() == EventKind::Granted && event.resources == ["end"];
            events.push(event);
            if ended {
                return events;
            }
        }
    }
    unreachable!("a cycle of nodes does not end")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_tell_the_same_events_through_kills_of_the_leader() {
    let mut cluster = Cluster::start(3).await;
    let endpoints = cluster.endpoints();
    let watchers: Vec<_> = (0..3)
        .map(|first| {
            let mut addresses = endpoints.clone();
            addresses.rotate_left(first);
            tokio::spawn(follow(addresses))
        })
        .collect();
    let load = Load::on(&cluster);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
        cluster.leader_but(Some(leader)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        // It keeps nothing of what was before: watches from the beginning go elsewhere.
        cluster.run(leader);
        cluster.caught_up(leader).await;
    }
    load.end().await;
    let mut told = Vec::new();
    for watcher in watchers {
        told.push(watcher.await.expect("it follows to the end"));
    }
    let count = told[0].len();
    println!("{count} events");
    assert!(count > 200, "hardly any load: {count}");
    assert!(ascends(&told[0]));
    assert!(told[0] == told[1] && told[1] == told[2], "the nodes tell different things");
    no_pair_is_held_in_part(&told[0], 6);
}

/// Parts are read while what they speak of changes: after each of them, all together
/// are the state at its revision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_in_parts_is_brought_forward_from_part_to_part() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1_000), LONG).await.expect("a session");
    for number in 0..700 {
        let resource = format!("m/{number:04}");
        let value = vec![7; 2_000].into(); // so that the parts do not all fit on the way
        let claim = v1::AcquireRequest { resource, value, ..Default::default() };
        node.ask(me.next(), claim).await.expect("free");
    }
    let mut audit = Watching::after(&node, None, end_of(0)).await.expect("all is kept");
    let load = Load::on(&cluster);
    let slow = Wire::to_with_little_room(cluster.address(1));
    let mut watching = Watching::state_of(&slow, None).await.expect("it begins");
    let mut book = Book::default();
    let (mut snapshots, mut between) = (Vec::new(), 0);
    while book.as_far_as(&book).len() < 700 || snapshots.len() < 2 || !complete(&snapshots) {
        match watching.part().await.expect("it goes on") {
            Part::State(state) => {
                book.read_state(&state);
                snapshots.push((at(state.at), book.clone(), state.last));
                has_gone_on(&cluster, at(state.at).0).await;
            }
            Part::Events(events) => {
                between += events.events.len();
                for event in &events.events {
                    assert!(book.knows(event), "of a name that a later part tells: {event:?}");
                    book.read_event(event);
                }
            }
            Part::Progress(at) => panic!("progress {at:?} before the state is complete"),
        }
    }
    load.end().await;
    let rest = watching.events_until_granted("end").await.expect("it goes on");
    rest.iter().for_each(|event| book.read_event(event));
    let told = audit.events_until_granted("end").await.expect("it goes on");
    let mut truth = Book::from_the_beginning();
    let mut of_log = told.iter().peekable();
    let (parts, mut revisions) = (snapshots.len(), BTreeSet::new());
    for (upto, seen, _) in &snapshots {
        while let Some(event) = of_log.next_if(|event| at(event.at) <= *upto) {
            truth.read_event(event);
        }
        revisions.insert(*upto);
        assert_eq!(seen.as_far_as(seen), truth.as_far_as(seen), "after the part at {upto:?}");
    }
    of_log.for_each(|event| truth.read_event(event));
    assert_eq!(book.holders, truth.holders);
    println!("{parts} parts at {} revisions, {between} events between them", revisions.len());
    assert!(parts >= 5 && revisions.len() >= 2 && between > 0, "nothing changed meanwhile");
    let last = snapshots.last().map(|(upto, ..)| *upto);
    let later: Vec<_> = told.iter().filter(|event| Some(at(event.at)) > last).cloned().collect();
    assert_eq!(rest, later, "after the state, every event and each once");
}

/// Waits until more has happened on node 1.
async fn has_gone_on(cluster: &Cluster, since: u64) {
    let until = Instant::now() + PATIENCE;
    while cluster.status(1).await.is_none_or(|status| status.applied < since + 10) {
        assert!(Instant::now() < until, "nothing happens");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn complete(snapshots: &[((u64, u32), Book, bool)]) -> bool {
    snapshots.last().is_some_and(|(_, _, last)| *last)
}

/// The end of one session ends three grants in one entry.
async fn three_ends(node: &Wire, me: &Owner) {
    for name in ["one/1", "one/2", "one/3"] {
        node.try_acquire(me, name).await.expect("free");
    }
    node.close(me).await.expect("live");
}

#[tokio::test]
async fn a_watch_resumes_inside_one_entry_on_another_node() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let mut watching = Watching::state_of(&node, prefix("one/")).await.expect("it begins");
    assert!(matches!(watching.part().await, Ok(Part::State(state)) if state.last));
    let me = node.open(owner(1), LONG).await.expect("a session");
    three_ends(&node, &me).await;
    let mut events = Vec::new();
    while events.len() < 6 {
        events.push(watching.event().await.expect("it goes on"));
    }
    let ends = events.split_off(3);
    assert!(ends.iter().all(|event| event.cause() == Cause::Closed), "{ends:?}");
    assert_eq!(at(ends[0].at).0, at(ends[2].at).0, "one entry");
    let granted: Vec<_> = events.iter().map(|event| (event.kind(), event.session)).collect();
    assert_eq!(granted, [(EventKind::Granted, me.session); 3]);
    for id in cluster.ids() {
        cluster.caught_up(id).await;
        let other = Wire::to(cluster.address(id));
        let from = ends[0].at.expect("a revision");
        let again = Watching::after(&other, prefix("one/"), from).await;
        let mut again = again.expect("it is kept");
        let told = [again.event().await.expect("kept"), again.event().await.expect("kept")];
        assert_eq!(told, ends[1..]);
    }
}

/// As on a node that lags behind the one where the watch was before.
#[tokio::test]
async fn a_watch_from_a_revision_to_come_says_nothing_until_it_has_come() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    let now = cluster.status(1).await.expect("it answers").applied;
    let ahead = end_of(now + 4);
    let mut watching = Watching::after(&node, resource("a"), ahead).await.expect("it begins");
    let mut at_once = Watching::after(&node, resource("a"), end_of(now)).await.expect("kept");
    for _ in 0..3 {
        let grant = node.try_acquire(&me, "a").await.expect("free");
        node.release(me.next(), "a", grant.token).await.expect("held");
    }
    let mut all = Vec::new();
    while all.len() < 6 {
        all.push(at_once.event().await.expect("it goes on"));
    }
    assert_eq!(watching.event().await.expect("it goes on"), all[4]);
    assert_eq!(watching.event().await.expect("it goes on"), all[5]);
    assert_eq!(watching.part_within(Duration::from_millis(100)).await, None);
}

#[tokio::test]
async fn a_watch_tells_what_it_is_asked_for_and_no_more() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(2));
    let me = node.open(owner(1), LONG).await.expect("a session");
    node.try_acquire(&me, "job/1").await.expect("free");
    let mut by_name = Watching::state_of(&node, resource("job/2")).await.expect("it begins");
    let mut by_prefix = Watching::state_of(&node, prefix("job/")).await.expect("it begins");
    let mut all = Watching::state_of(&node, None).await.expect("it begins");
    let mut begun = Vec::new();
    for watching in [&mut by_name, &mut by_prefix, &mut all] {
        let Ok(Part::State(state)) = watching.part().await else { panic!("no state") };
        assert!(state.last);
        begun.push(state.resources.into_iter().map(|view| view.resource).collect::<Vec<_>>());
    }
    assert_eq!(begun, [vec![], vec!["job/1".to_owned()], vec!["job/1".to_owned()]]);
    let other = node.open(owner(2), LONG).await.expect("a session");
    node.try_acquire(&other, "jobs").await.expect("free");
    node.ask(other.next(), set(&["x", "job/2"], Duration::ZERO)).await.expect("free");
    node.try_acquire(&other, "end").await.expect("free");
    let told = |events: Vec<v1::Event>| -> Vec<_> {
        events.into_iter().map(|event| (event.kind(), event.resources.join(" "))).collect()
    };
    let pair = (EventKind::Granted, "job/2 x".to_owned());
    let everything = told(all.events_until_granted("end").await.expect("it goes on"));
    assert_eq!(everything[0], (EventKind::SessionOpened, String::new()));
    assert_eq!((everything.len(), &everything[2]), (4, &pair));
    for watching in [&mut by_name, &mut by_prefix] {
        assert_eq!(told(vec![watching.event().await.expect("told")])[0], pair);
        assert_eq!(watching.part_within(Duration::from_millis(50)).await, None);
    }
}

/// One of them dies with both in its hands; all others are served, and nobody who
/// watches ever sees one of the two without the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_g8_twenty_want_the_same_two_in_either_order_and_one_dies() {
    const WANT: u64 = 20;
    let cluster = Cluster::start(3).await;
    let nodes: Vec<Wire> = cluster.endpoints().iter().map(|at| Wire::to(at)).collect();
    let dead = nodes[0].open(owner(0), Duration::from_secs(2)).await.expect("a session");
    nodes[0].ask(dead.next(), set(&["b", "a"], Duration::ZERO)).await.expect("free");
    let want = |number: u64| {
        let nodes = nodes.clone();
        tokio::spawn(async move {
            let me = insist(&nodes, |node| async move { node.open(owner(number), LONG).await });
            let me = me.await.expect("a session");
            let names = if number.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
            let header = me.next();
            let taken = insist(&nodes, |node| {
                let (header, claim) = (header.clone(), set(&names, LONG));
                async move { node.ask(header, claim).await }
            });
            let grant = taken.await.expect("a turn").grant.expect("granted");
            nodes[0].release(me.next(), "b", grant.token).await.expect("held");
        })
    };
    let all: Vec<_> = (1..WANT).map(want).collect();
    for one in all {
        one.await.expect("it is served");
    }
    let me = nodes[0].open(owner(999), LONG).await.expect("a session");
    nodes[0].try_acquire(&me, "end").await.expect("free");
    let mut watching = Watching::after(&nodes[1], None, end_of(0)).await.expect("all is kept");
    let events = watching.events_until_granted("end").await.expect("it goes on");
    no_pair_is_held_in_part(&events, 1);
    let granted = events.iter().filter(|event| event.kind() == EventKind::Granted).count();
    assert_eq!(granted as u64, WANT + 1);
    let expired = events.iter().find(|event| event.cause() == Cause::Expired);
    assert_eq!(
        expired.map(|event| (event.session, event.resources.len())),
        Some((dead.session, 2))
    );
}
