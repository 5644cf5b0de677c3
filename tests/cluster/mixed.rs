//! All of the lock model at once, through deaths of the leader: replicas agree. [I10]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::RngExt;
use ringfence::client::{Client, ClientError};
use ringfence::locks::Note;

use crate::cluster::{Cluster, PATIENCE};

const TTL: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_millis(300);

/// What was acknowledged, by kind.
#[derive(Default)]
struct Counts([AtomicU64; KINDS.len()]);

const KINDS: [&str; 7] = ["exclusive", "shared", "slot", "set", "strict", "value", "broken"];

impl Counts {
    fn add(&self, kind: &str) {
        let at = KINDS.iter().position(|known| *known == kind).expect("a known kind");
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    fn told(&self) -> BTreeMap<&'static str, u64> {
        KINDS.into_iter().zip(self.0.iter().map(|n| n.load(Ordering::Relaxed))).collect()
    }
}

/// Asks for this and that until told to stop. Refusals and lost sessions are part of it.
async fn work(client: Client, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(session) = client.session(TTL).await else { continue };
        for _ in 0..20 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (what, name) = { (rand::rng().random_range(0..6), rand::rng().random_range(0..4)) };
            let name = format!("mixed/{name}");
            let done = match what {
                0 => exclusive(&session, &name).await.map(|()| "exclusive"),
                1 => {
                    let guard = session.acquire_shared(&name).wait(WAIT).lock_delay(WAIT).await;
                    let shared = guard.map(drop); // given back in the background
                    shared.map(|()| "shared")
                }
                2 => session
                    .acquire_slot("mixed/slots", 3)
                    .wait(WAIT)
                    .await
                    .map(drop)
                    .map(|()| "slot"),
                3 => {
                    let names = ["mixed/3", "mixed/1", "mixed/0"];
                    session.acquire_all(names).wait(WAIT).await.map(drop).map(|()| "set")
                }
                4 => strict(&session, &name).await.map(|()| "strict"),
                _ => break_one(&client, &name, &counts).await.map(|()| "value"),
            };
            if let Ok(kind) = done {
                counts.add(kind);
            }
        }
        let _ended_or_lost = session.close().await;
    }
}

async fn exclusive(session: &ringfence::client::Session, name: &str) -> Result<(), ClientError> {
    let guard = session.acquire(name).value("first").wait(WAIT).await?;
    guard.set_value(b"second").await?;
    guard.release().await
}

async fn strict(session: &ringfence::client::Session, name: &str) -> Result<(), ClientError> {
    let unconfirmed = session.acquire(name).strict(TTL).wait(WAIT).await?;
    match unconfirmed.confirm().await {
        Ok(guard) => guard.release().await,
        Err(_lost_or_unknown) => Ok(()),
    }
}

/// Breaks whoever holds it, or freezes and thaws it.
async fn break_one(client: &Client, name: &str, counts: &Counts) -> Result<(), ClientError> {
    let note = || Note::new("mixed", "to see what happens").expect("a good note");
    let view = client.get(name).await?.resource.unwrap_or_default();
    let Some(holder) = view.holders.first() else {
        let frozen = client.freeze(name, note()).await?;
        client.thaw(name, frozen.token, note()).await?;
        return Ok(());
    };
    let token = ringfence::locks::Token::new(holder.token).expect("a good token");
    client.revoke(name, token, note()).await?;
    counts.add("broken");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_is_the_same_on_all_nodes_after_a_mixed_load_with_leader_kills() {
    let mut cluster = Cluster::start(3).await;
    let (counts, stop) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
    let load: Vec<_> = (0..8)
        .map(|_| {
            let client = Client::connect(cluster.endpoints()).expect("good endpoints");
            tokio::spawn(work(client, counts.clone(), stop.clone()))
        })
        .collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let leader = cluster.leader().await;
        cluster.kill(leader);
        cluster.leader_but(Some(leader)).await;
        cluster.run(leader);
        cluster.caught_up(leader).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.expect("no panic");
    }
    let told = counts.told();
    println!("acknowledged: {told:?}");
    assert!(told.values().all(|count| *count > 0), "not all of it happened: {told:?}");
    // The leader's own entries go on until all is over; at one index all are the same.
    let until = Instant::now() + PATIENCE;
    loop {
        let mut states = Vec::new();
        for id in cluster.ids() {
            let status = cluster.status(id).await.expect("it runs");
            states.push((status.state_hash_index, status.state_hash));
        }
        if states.windows(2).all(|pair| pair[0].0 == pair[1].0) {
            assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "they differ: {states:?}");
            return;
        }
        assert!(Instant::now() < until, "they never stand at one index: {states:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
