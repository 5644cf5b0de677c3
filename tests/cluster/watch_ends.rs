//! How watches end, and what they cost others.

use std::time::{Duration, Instant};

use ringfence::authority::Authority;
use ringfence::config::Layer;
use ringfence::leases::Moment;
use ringfence::locks::Position;
use ringfence::server::{Server, StorageOptions};
use ringfence::wire::v1::watch_response::Part;
use ringfence::wire::{Reason, Told, v1};

use crate::cluster::{Cluster, PATIENCE, free_address};
use crate::proxy::Proxy;
use crate::watching::{Watching, at, end_of, prefix, resource};
use crate::wire::{Wire, owner, reason, refused};

const LONG: Duration = Duration::from_secs(600);

async fn watchers(cluster: &Cluster, id: u64, are: u64) {
    let until = Instant::now() + PATIENCE;
    while cluster.status(id).await.is_none_or(|status| status.watchers != are) {
        assert!(Instant::now() < until, "not {are} watchers: {:?}", cluster.status(id).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_node_that_was_restarted_keeps_nothing_from_before() {
    let mut cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    node.try_acquire(&me, "a").await.expect("free");
    let mut watching = Watching::after(&node, resource("a"), end_of(0)).await.expect("kept");
    let granted = watching.event().await.expect("kept").at;
    cluster.kill(1);
    cluster.run(1);
    cluster.leader().await;
    let told = Watching::after(&node, resource("a"), end_of(0)).await.map(drop);
    let told = Told::of(&told.expect_err("not kept")).expect("a refusal of ours");
    assert_eq!(told.reason, Some(Reason::Compacted));
    let since = told.text("since").expect("it says from where on");
    assert!(since != "0.4294967295", "{since}");
    // And the state says what became of it.
    let mut anew = Watching::state_of(&node, resource("a")).await.expect("it begins");
    let Ok(Part::State(state)) = anew.part().await else { panic!("no state") };
    assert_eq!(state.resources[0].holders.len(), 1);
    assert!(at(state.at) > at(granted));
}

/// Two watch: one reads, the other does not. The first is told everything, nobody who
/// takes or gives is held up, and the second is told that it was too slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_read_is_cut_and_holds_nobody_up() {
    const CHANGES: usize = 600;
    let cluster = Cluster::start_with(1, &["--events-max", "200"]).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    let grant = node.try_acquire(&me, "a").await.expect("free");
    let now = end_of(cluster.status(1).await.expect("it answers").applied);
    let at_rest = Wire::to_with_little_room(cluster.address(1));
    let at_work = Wire::to(cluster.address(1));
    let mut unread = Watching::after(&at_rest, None, now).await.expect("kept");
    let mut read = Watching::after(&at_work, None, now).await.expect("kept");
    let reading = tokio::spawn(async move {
        let mut events = Vec::new();
        while events.len() < CHANGES {
            events.push(read.event().await.expect("it keeps up"));
        }
        (events, read)
    });
    let started = Instant::now();
    for _ in 0..CHANGES {
        node.set_value(me.next(), &grant, vec![7; 4_000]).await.expect("held");
    }
    println!("{:?} for each change", started.elapsed() / u32::try_from(CHANGES).expect("few"));
    let (events, _read) = reading.await.expect("it is told all");
    assert!(events.windows(2).all(|pair| at(pair[0].at).0 + 1 == at(pair[1].at).0));
    watchers(&cluster, 1, 1).await; // its place is free before it reads
    let (told, status) = read_until_cut(&mut unread, &events).await;
    assert_eq!(reason(&status), Reason::Compacted, "{status:?}");
    println!("cut after {told} of {CHANGES} events: {}", status.message());
    assert!(told > 0 && told < CHANGES, "{told}");
}

/// Reads until it is cut; what it is told until then has no gap.
async fn read_until_cut(unread: &mut Watching, all: &[v1::Event]) -> (usize, tonic::Status) {
    let mut told = 0;
    loop {
        match unread.event().await {
            Ok(event) => assert_eq!(event, all[told]),
            Err(status) => return (told, status),
        }
        told += 1;
    }
}

/// Of what it watches nothing happens, of other things more than the node keeps: it is
/// not cut, it is told how far it has come, and can go on from there.
#[tokio::test]
async fn an_idle_watch_moves_on_and_resumes_from_there() {
    let cluster = Cluster::start_with(1, &["--events-max", "20"]).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    let mut watching = Watching::state_of(&node, prefix("quiet/")).await.expect("it begins");
    let Ok(Part::State(begun)) = watching.part().await else { panic!("no state") };
    for _ in 0..50 {
        let grant = node.try_acquire(&me, "loud").await.expect("free");
        node.release(me.next(), "loud", grant.token).await.expect("held");
    }
    let applied = cluster.status(1).await.expect("it answers").applied;
    let mut progress = begun.at;
    while at(progress).0 < applied {
        let Ok(Part::Progress(now)) = watching.part().await else { panic!("no progress") };
        assert!(at(Some(now)) > at(progress));
        progress = Some(now);
    }
    let told = Watching::after(&node, prefix("quiet/"), begun.at.expect("set")).await;
    assert_eq!(refused(told.map(drop)), Reason::Compacted);
    let from = progress.expect("set");
    let mut again = Watching::after(&node, prefix("quiet/"), from).await.expect("kept");
    node.try_acquire(&me, "quiet/1").await.expect("free");
    let event = again.event().await.expect("told");
    assert_eq!(event, watching.event().await.expect("told"));
    assert_eq!(event.resources, ["quiet/1"]);
}

#[tokio::test]
async fn a_client_that_is_gone_frees_its_place_and_there_are_so_many() {
    let cluster = Cluster::start_with(1, &["--watchers-max", "3"]).await;
    let mut watching = Vec::new();
    for name in ["a", "b", "c"] {
        let node = Wire::to(cluster.address(1));
        watching.push(Watching::state_of(&node, resource(name)).await.expect("there is room"));
    }
    let node = Wire::to(cluster.address(1));
    let full = Watching::state_of(&node, None).await.map(drop).expect_err("no room");
    let told = Told::of(&full).expect("a refusal of ours");
    assert_eq!((told.reason, told.text("limit")), (Some(Reason::LimitReached), Some("watchers")));
    assert_eq!(told.number("bound"), Some(3));
    drop(watching.pop());
    watchers(&cluster, 1, 2).await;
    watching.push(Watching::state_of(&node, None).await.expect("there is room"));
    drop(watching);
    watchers(&cluster, 1, 0).await;
}

#[tokio::test]
async fn a_node_that_stops_tells_its_watchers() {
    let mut cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let mut watching = Watching::state_of(&node, None).await.expect("it begins");
    assert!(matches!(watching.part().await, Ok(Part::State(_))));
    let stopped = cluster.terminate(1);
    let told = async {
        loop {
            if let Err(status) = watching.event().await {
                return status;
            }
        }
    };
    let (status, told) = tokio::join!(stopped, told);
    assert!(status.success(), "{status:?}");
    assert_eq!(reason(&told), Reason::NoQuorum, "{told:?}");
}

/// Until its watch ends; only the way it has come is told before.
async fn end_of_watch(mut watching: Watching) -> Reason {
    loop {
        match watching.part().await {
            Ok(Part::Progress(_)) => {}
            Ok(part) => panic!("nothing can have happened: {part:?}"),
            Err(status) => return reason(&status),
        }
    }
}

/// So many of the nodes stand still, and the others are too few to know what happens:
/// if it is they who have the leader, they hear each other and no majority.
async fn too_few_are_left(size: u64, stopped: impl Fn(u64, &[u64]) -> Vec<u64>) {
    let cluster = Cluster::start(size).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), LONG).await.expect("a session");
    node.try_acquire(&me, "a").await.expect("free");
    let leader = cluster.leader().await;
    let stopped = stopped(leader, &cluster.ids());
    let left: Vec<u64> = cluster.ids().into_iter().filter(|id| !stopped.contains(id)).collect();
    let mut watching = Vec::new();
    for id in &left {
        cluster.caught_up(*id).await;
        let node = Wire::to(cluster.address(*id));
        let mut begun = Watching::state_of(&node, resource("a")).await.expect("it begins");
        let Ok(Part::State(state)) = begun.part().await else { panic!("no state") };
        watching.push((*id, begun, state.at.expect("set")));
    }
    stopped.iter().for_each(|id| cluster.signal(*id, "STOP"));
    let mut places = Vec::new();
    for (id, watching, at) in watching {
        assert_eq!(end_of_watch(watching).await, Reason::NoQuorum, "node {id} led by {leader}");
        let node = Wire::to(cluster.address(id));
        let refused_now = refused(Watching::state_of(&node, None).await.map(drop));
        assert_eq!(refused_now, Reason::NoQuorum, "node {id} led by {leader}");
        places.push((node, at));
    }
    stopped.iter().for_each(|id| cluster.signal(*id, "CONT"));
    node.try_acquire(&me, "b").await.expect("free");
    for (node, at) in places {
        let until = Instant::now() + PATIENCE;
        let mut again = loop {
            match Watching::after(&node, resource("b"), at).await {
                Ok(watching) => break watching,
                Err(status) => assert_eq!(reason(&status), Reason::NoQuorum, "{status:?}"),
            }
            assert!(Instant::now() < until, "it does not hear of the others");
        };
        assert_eq!(again.event().await.expect("told").resources, ["b"]);
    }
}

#[tokio::test]
async fn a_follower_that_has_lost_the_others_ends_its_watches_and_refuses_new_ones() {
    too_few_are_left(3, |leader, ids| {
        let other = ids.iter().copied().find(|id| *id != leader).expect("there are three");
        vec![leader, other]
    })
    .await;
}

#[tokio::test]
async fn those_who_are_too_few_with_their_leader_end_their_watches_and_refuse_new_ones() {
    too_few_are_left(5, |leader, ids| {
        ids.iter().copied().filter(|id| *id != leader).take(3).collect()
    })
    .await;
}

/// It may have been set up anew, and be behind what the watcher saw of the one before:
/// it would say nothing for long, and then leave a gap.
#[tokio::test]
async fn a_watch_of_another_cluster_is_not_resumed() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let mut watching = Watching::state_of(&node, None).await.expect("it begins");
    let Ok(Part::State(state)) = watching.part().await else { panic!("no state") };
    let me = node.open(owner(1), LONG).await.expect("a session");
    node.try_acquire(&me, "a").await.expect("free");
    watching.event().await.expect("told");
    let this = cluster.status(1).await.expect("it answers").cluster_id;
    assert_eq!(watching.clusters[0], this, "the first answer says who answers");
    assert!(watching.clusters[1..].iter().all(bytes::Bytes::is_empty));
    let from = state.at.expect("set");
    let mut resumed = Watching::after_in(&node, this, from).await.expect("kept");
    assert_eq!(resumed.event().await.expect("kept").session, me.session);
    let other = vec![1; 16].into();
    let told = Watching::after_in(&node, other, from).await.map(drop).expect_err("another");
    let told = Told::of(&told).expect("a refusal of ours");
    let field = (told.reason, told.text("field"));
    assert_eq!(field, (Some(Reason::InvalidArgument), Some("cluster_id")));
}

#[tokio::test]
async fn a_node_that_is_in_no_cluster_yet_has_nothing_to_tell() {
    let mut cluster = Cluster::prepare(3, &[]);
    cluster.run(1);
    let until = Instant::now() + PATIENCE;
    while cluster.status(1).await.is_none() {
        assert!(Instant::now() < until, "it does not answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let node = Wire::to(cluster.address(1));
    let told = Watching::state_of(&node, None).await.map(drop);
    assert_eq!(refused(told), Reason::NoQuorum);
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused_by_field() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    for (what, field) in [(prefix(""), "prefix"), (resource("a\n"), "resource")] {
        let told = Watching::state_of(&node, what).await.map(drop).expect_err("refused");
        let told = Told::of(&told).expect("a refusal of ours");
        assert_eq!((told.reason, told.text("field")), (Some(Reason::InvalidArgument), Some(field)));
    }
}

/// The network is gone without a word: the place is free when the node has noticed.
#[tokio::test]
async fn a_client_that_vanished_frees_its_place() {
    let cluster = Cluster::start(1).await;
    let proxy = Proxy::before(cluster.address(1)).await;
    let node = Wire::to(proxy.address());
    let mut watching = Watching::state_of(&node, None).await.expect("it begins");
    assert!(matches!(watching.part().await, Ok(Part::State(_))));
    watchers(&cluster, 1, 1).await;
    proxy.go_dark();
    watchers(&cluster, 1, 0).await;
}

/// A node that is so far behind that it is sent a snapshot never sees what happened
/// meanwhile. (A table takes the place of the node's own, as an install does it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_taken_up_ends_the_watches_that_it_leaves_a_gap_in() {
    const SKIPPED: u64 = 1_000;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (listen, data) = (free_address(), folder.path().join("node"));
    let layer =
        Layer { node_id: Some(1), listen: Some(listen), data: Some(data), ..Layer::default() };
    let config = layer.resolve().expect("settings that fit");
    let started = Server::start(config, StorageOptions::default()).await;
    let mut server = started.expect("it starts");
    server.formed().await.expect("alone, it needs nobody");
    let node = Wire::to(&server.address().to_string());
    let me = node.open(owner(1), LONG).await.expect("a session");
    node.try_acquire(&me, "a").await.expect("free");
    let position = server.authority().lock().table.position();
    let now = end_of(position.index);
    let mut busy = Watching::after(&node, None, now).await.expect("kept");
    let mut idle = Watching::after(&node, resource("b"), now).await.expect("kept");
    let to = end_of(position.index + SKIPPED);
    let mut ahead = Watching::after(&node, None, to).await.expect("it waits");
    install(server.authority(), position, SKIPPED);
    for watching in [&mut busy, &mut idle] {
        let told = watching.event().await.expect_err("a gap");
        let told = Told::of(&told).expect("a refusal of ours");
        assert_eq!(told.reason, Some(Reason::Compacted));
        let since = format!("{}.{}", to.index, to.ordinal);
        assert_eq!(told.text("since"), Some(since.as_str()));
    }
    assert_eq!(ahead.part_within(Duration::from_millis(100)).await, None, "no gap for this one");
    let mut anew = Watching::state_of(&node, None).await.expect("it begins");
    let Ok(Part::State(state)) = anew.part().await else { panic!("no state") };
    assert_eq!((state.at, state.resources.len()), (Some(to), 1));
    server.stop().await;
}

fn install(authority: &Authority, position: Position, skipped: u64) {
    let mut state = authority.lock();
    let mut table = state.table.clone();
    for index in position.index + 1..=position.index + skipped {
        table.pass(Position { index, ..position });
    }
    state.install(table, Moment::now());
    drop(state);
    authority.watchers().applied();
}
