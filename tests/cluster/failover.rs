//! The leader goes, and nothing that was promised goes with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence::client::{Client, Guard, Session, State};
use ringfence::wire::v1::renewal_answer::Result as Answer;
use ringfence::wire::{Reason, v1};

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Owner, Wire, insist, owner, reason};

/// After which a follower gives its leader up, as [`Cluster`] runs them; twice at most.
const ELECTION: Duration = Duration::from_millis(400);
/// Renewals that a frozen leader finds when it wakes.
const STALE: usize = 20;
const CLIENTS: u64 = 16;
const NAMES: u64 = 4;
/// Sessions that are renewed all the while, each with one grant that is kept.
const HELD: u64 = 8;
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
    let me =
        insist(
            &nodes,
            |node| async move { node.open(owner(number), Duration::from_secs(600)).await },
        );
    let me = me.await.expect("a session");
    let mut told = Vec::new();
    for turn in number.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let resource = format!("job/{}", turn % NAMES);
        let (wait, header) = (Duration::from_secs(5), me.next());
        let taken = insist(&nodes, |node| take(node, header.clone(), resource.clone(), wait)).await;
        let grant = match taken {
            Ok(grant) => grant,
            // An outcome as good as any, and no token was spent on it.
            Err(status) if reason(&status) == Reason::WaitTimeout => continue,
            Err(status) => panic!("acquire {header:?}: {status:?}"),
        };
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
    let all: Vec<u64> = (HELD + 1..=HELD + tokens.len() as u64).collect();
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
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let held = guards(&client, HELD, Duration::from_secs(5)).await;
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
    assert!(count > 5 * KILLS, "hardly any load: {count}");
    check_history(told);
    check_held(&nodes[0], &held).await;
    check_replicas_agree(&cluster, count as u64).await;
}

/// Nothing is held that was given back, and every replica has the same state.
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
            let live = (state.sessions, state.grants, state.waits);
            assert_eq!(live, (CLIENTS + HELD, HELD, 0));
            assert_eq!(state.token, HELD + tokens);
            return;
        }
        assert!(Instant::now() < until, "the replicas differ: {states:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sessions of one client, each with a guard.
async fn guards(client: &Client, count: u64, ttl: Duration) -> Vec<(Session, Guard)> {
    let mut held = Vec::new();
    for number in 0..count {
        let session = client.session(ttl).await.expect("a session");
        let guard = session.try_acquire(format!("held/{number}")).await.expect("free");
        held.push((session, guard));
    }
    held
}

/// Every guard is held, under its token, by the client's word and by the authority's.
async fn check_held(node: &Wire, held: &[(Session, Guard)]) {
    for (session, guard) in held {
        let until = Instant::now() + PATIENCE;
        while guard.state() == State::Suspended && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(guard.state(), State::Held, "{} of session {}", guard.resource(), session.id());
        let (name, token) = (guard.resource().as_str().to_owned(), guard.token().get());
        let current = insist(std::slice::from_ref(node), |node| {
            let name = name.clone();
            async move { node.check(&name, token).await }
        });
        assert_eq!(current.await.ok(), Some(true), "{name} under {token}");
    }
}

/// B15 as well: no guard is even suspended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_with_a_ttl_of_ten_seconds_loses_no_session() {
    let mut cluster = Cluster::start(3).await;
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let held = guards(&client, 12, Duration::from_secs(10)).await;
    let unheld =
        futures::future::select_all(held.iter().map(|(_, guard)| Box::pin(guard.not_held())));
    let restarts = async {
        // The leader last, and then first: leadership moves every time.
        for round in 0..2 {
            let leader = cluster.leader().await;
            let mut ids = cluster.ids();
            ids.sort_by_key(|id| (*id == leader) == (round == 0));
            for id in ids {
                let status = cluster.terminate(id).await;
                assert!(status.success(), "{status}: {}", cluster.log(id));
                cluster.run(id);
                cluster.caught_up(id).await;
            }
        }
    };
    tokio::select! {
        (state, which, _) = unheld => panic!("guard {which}: {state:?}"),
        () = restarts => {}
    }
    check_held(&Wire::to(cluster.address(1)), &held).await;
    for (_, guard) in held {
        guard.release().await.expect("held");
    }
}

/// A moment at which some guard said that it is held, if one does.
fn last_held(held: &[(Session, Guard)]) -> Option<Instant> {
    let mut seen = None;
    for (_, guard) in held {
        let now = Instant::now();
        seen = guard.is_held().then_some(now).or(seen);
    }
    seen
}

/// Without a majority for two ttl. Every guard is suspended at its own deadline, and
/// held again with the same token when the cluster is back.
async fn without_a_majority(
    cluster: &mut Cluster,
    fail: impl AsyncFnOnce(&mut Cluster),
    recover: impl AsyncFnOnce(&mut Cluster),
) {
    let ttl = Duration::from_millis(1_500);
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let held = guards(&client, 6, ttl).await;
    fail(cluster).await;
    let failed = Instant::now();
    while let Some(at) = last_held(&held) {
        let after = at - failed;
        assert!(after < ttl, "held {after:?} after the last acknowledgement");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (_, guard) in &held {
        assert_eq!(guard.not_held().await, State::Suspended);
        assert_eq!(guard.valid_for(), Duration::ZERO);
    }
    tokio::time::sleep((ttl * 2).saturating_sub(failed.elapsed())).await;
    for (_, guard) in &held {
        assert_eq!(guard.state(), State::Suspended);
    }
    recover(cluster).await;
    check_held(&Wire::to(cluster.address(1)), &held).await;
    for (_, guard) in held {
        guard.release().await.expect("held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_b4_sessions_outlive_two_ttl_without_a_majority_under_one_leader() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let signal = |cluster: &Cluster, name: &str| {
        for id in cluster.ids().into_iter().filter(|id| *id != leader) {
            cluster.signal(id, name);
        }
    };
    let fail = async |cluster: &mut Cluster| signal(cluster, "STOP");
    let recover = async |cluster: &mut Cluster| signal(cluster, "CONT");
    without_a_majority(&mut cluster, fail, recover).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_b4_sessions_outlive_two_ttl_after_a_crash_of_all_nodes() {
    let mut cluster = Cluster::start(3).await;
    let fail = async |cluster: &mut Cluster| {
        for id in cluster.ids() {
            cluster.kill(id);
        }
    };
    let recover = async |cluster: &mut Cluster| cluster.run_all();
    without_a_majority(&mut cluster, fail, recover).await;
}

/// Renewals that lie in the old leader's socket while it is frozen. Answers what it
/// says of them when it wakes.
fn stale_renewals(node: &Wire, me: &Owner) -> impl Future<Output = Vec<Answer>> + use<> {
    let message = |sequence| v1::KeepAliveRequest { renewals: vec![me.renewal(sequence)] };
    let stream = tokio_stream::StreamExt::chain(
        tokio_stream::iter((1..=STALE as u64).map(message).collect::<Vec<_>>()),
        tokio_stream::pending(),
    );
    let mut sessions = node.sessions();
    async move {
        let mut told = Vec::new();
        let Ok(answers) = sessions.keep_alive(stream).await else { return told };
        let mut answers = answers.into_inner();
        while told.len() < STALE
            && let Ok(Some(message)) = answers.message().await
        {
            told.extend(message.answers.into_iter().filter_map(|answer| answer.result));
        }
        told
    }
}

/// The old leader's knowledge of deadlines is void when it wakes, and it acknowledges
/// nothing that it could not have confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_b3_a_leader_that_was_frozen_ends_no_session_and_acknowledges_no_renewal() {
    let cluster = Cluster::start(3).await;
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let held = guards(&client, 20, Duration::from_secs(2)).await;
    let old = cluster.leader().await;
    let node = Wire::to(cluster.address(old));
    let me = node.open(owner(1), Duration::from_secs(2)).await.expect("a session");
    let stale = stale_renewals(&node, &me);
    cluster.signal(old, "STOP");
    let frozen = Instant::now();
    let stale = tokio::spawn(stale);
    let next = cluster.leader_but(Some(old)).await;
    let term = cluster.status(next).await.expect("it leads").term;
    // Longer than three election timeouts and than the ttl: to the old leader's clock
    // every session is overdue.
    tokio::time::sleep((ELECTION * 2 * 3).saturating_sub(frozen.elapsed())).await;
    let other = Wire::to(cluster.address(next));
    cluster.signal(old, "CONT");
    cluster.caught_up(old).await;
    let within = Duration::from_secs(3);
    let told = match tokio::time::timeout(within, stale).await {
        Ok(told) => told.expect("no panic"),
        Err(_) => panic!("the old leader keeps renewals that it cannot answer"),
    };
    println!("the old leader said {:?} and so on, {} times", told.first(), told.len());
    assert!(!told.iter().any(|answer| matches!(answer, Answer::Renewed(_))), "{told:?}");
    assert_eq!(cluster.status(next).await.expect("it leads").term, term, "one change only");
    check_held(&other, &held).await;
    for (session, guard) in &held {
        assert!(!matches!(guard.state(), State::Lost(_)), "session {}", session.id());
    }
}
