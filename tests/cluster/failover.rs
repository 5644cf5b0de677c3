//! The leader goes, and nothing that was promised goes with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence::wire::v1;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Owner, Wire, insist, owner};

const CLIENTS: u64 = 16;
const NAMES: u64 = 4;
const KILLS: usize = 20;

/// One grant as its client was told of it.
struct Told {
    resource: String,
    token: u64,
    granted_at: (u64, u32),
    released_at: (u64, u32),
}

fn revision(at: v1::Revision) -> (u64, u32) {
    (at.index, at.ordinal)
}

/// Takes, checks and gives back, over and over; every request under one id until it
/// is answered for good.
async fn work(nodes: Vec<Wire>, number: u64, stop: Arc<AtomicBool>) -> Vec<Told> {
    let me = nodes[0].open(owner(number), Duration::from_secs(600)).await.expect("a session");
    let mut told = Vec::new();
    for turn in number.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let resource = format!("job/{}", turn % NAMES);
        let (wait, header) = (Duration::from_secs(5), me.next());
        let taken = insist(&nodes, |node| take(node, header.clone(), resource.clone(), wait)).await;
        let grant = taken.unwrap_or_else(|status| panic!("acquire {header:?}: {status:?}"));
        assert_eq!((grant.session, grant.request), (me.session, header.request_id));
        let (name, token) = (resource.clone(), grant.token);
        let current = insist(&nodes, |node| {
            let name = name.clone();
            async move { node.check(&name, token).await }
        });
        assert_eq!(current.await.ok(), Some(true), "grant {token} of {resource} is gone");
        let released_at = give_back(&nodes, &me, &resource, token).await;
        told.push(Told {
            resource,
            token,
            granted_at: revision(grant.granted_at.expect("a revision")),
            released_at,
        });
    }
    told
}

async fn take(
    node: Wire,
    header: v1::RequestHeader,
    resource: String,
    wait: Duration,
) -> Result<v1::Grant, tonic::Status> {
    node.acquire(header, &resource, wait).await
}

/// An acknowledged grant is there to be released: NOT_HELD would be its loss.
async fn give_back(nodes: &[Wire], me: &Owner, resource: &str, token: u64) -> (u64, u32) {
    let (header, name) = (me.next(), resource.to_owned());
    let released = insist(nodes, |node| {
        let (header, name) = (header.clone(), name.clone());
        async move { node.release(header, &name, token).await }
    });
    match released.await {
        Ok(at) => revision(at),
        Err(status) => panic!("release of {resource} under {token}: {status:?}"),
    }
}

/// Kills whoever leads, waits for the next, and starts the dead one again. Answers how
/// long there was no leader each time.
async fn kill_leaders(cluster: &mut Cluster) -> Vec<Duration> {
    let mut gaps = Vec::new();
    for _ in 0..KILLS {
        let leader = cluster.leader().await;
        cluster.kill(leader);
        let killed = Instant::now();
        cluster.leader_but(Some(leader)).await;
        gaps.push(killed.elapsed());
        cluster.run(leader);
        cluster.caught_up(leader).await;
    }
    gaps.sort_unstable();
    gaps
}

fn check_history(mut told: Vec<Told>) {
    told.sort_by_key(|grant| grant.granted_at);
    let tokens: Vec<u64> = told.iter().map(|grant| grant.token).collect();
    // In the order of the log, none twice, none back, and none that nobody was told of:
    // every acquire was asked for until it was answered.
    let all: Vec<u64> = (1..=tokens.len() as u64).collect();
    assert_eq!(tokens, all);
    let mut last: BTreeMap<&str, &Told> = BTreeMap::new();
    for grant in &told {
        assert!(grant.granted_at < grant.released_at, "token {}", grant.token);
        if let Some(before) = last.insert(&grant.resource, grant) {
            let overlap = format!("{} and {} on {}", before.token, grant.token, grant.resource);
            assert!(before.released_at < grant.granted_at, "{overlap}");
        }
    }
}

/// [I1] [I3] [I7]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_of_the_leader_under_load_lose_no_grant_and_repeat_no_token() {
    let mut cluster = Cluster::start(3).await;
    let nodes: Vec<Wire> = cluster.endpoints().iter().map(|at| Wire::to(at)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut nodes = nodes.clone();
            nodes.rotate_left(usize::try_from(number % 3).expect("below 3"));
            tokio::spawn(work(nodes, number, Arc::clone(&stop)))
        })
        .collect();
    let gaps = kill_leaders(&mut cluster).await;
    stop.store(true, Ordering::Relaxed);
    let mut told = Vec::new();
    for client in clients {
        told.extend(client.await.expect("a client's claims hold"));
    }
    let (count, median, worst) = (told.len(), gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!("{count} grants; without a leader: median {median:?}, worst {worst:?}");
    assert!(count > 20 * KILLS, "hardly any load: {count}");
    check_history(told);
    check_replicas_agree(&cluster, count as u64).await;
}

/// Nothing is held any longer, and every replica has the same state.
async fn check_replicas_agree(cluster: &Cluster, tokens: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut states = Vec::new();
        for id in cluster.ids() {
            states.extend(cluster.status(id).await);
        }
        let same = |a: &v1::StatusResponse, b: &v1::StatusResponse| {
            (a.applied, &a.state_hash) == (b.applied, &b.state_hash)
        };
        if states.len() == 3 && states.iter().all(|state| same(state, &states[0])) {
            let state = &states[0];
            assert_eq!((state.sessions, state.grants, state.waits), (CLIENTS, 0, 0));
            assert_eq!(state.token, tokens);
            return;
        }
        assert!(Instant::now() < until, "the replicas differ: {states:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
