//! How late a dead owner's session may end, through changes of the leader. [I11]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Wire, insist, owner};

/// The leader goes every third of the ttl: two ttl and a half of changes.
const CHANGES: u32 = 7;
/// One heartbeat, one commit, and a busy machine.
const SLACK: Duration = Duration::from_secs(1);

/// What the formula of the contract counts from.
struct Bound {
    /// The dead owner's last renewal.
    died: Instant,
    /// When the first leader after it had applied the first entry of its term.
    rebased: Option<Instant>,
    restarted: BTreeMap<u64, Instant>,
    /// From when until when there was no leader.
    leaderless: Vec<(Instant, Instant)>,
}

impl Bound {
    /// Until when the session has ended under the leader that ends it.
    fn ends_by(&self, ttl: Duration, leader: u64) -> Instant {
        let restarted = self.restarted.get(&leader).copied();
        let last = [Some(self.died), self.rebased, restarted].into_iter().flatten().max();
        let mut up = last.expect("it died") + ttl;
        for (from, to) in &self.leaderless {
            // A leader that goes before it could commit was none.
            if *from <= up + SLACK / 2 && *to > up {
                up = *to;
            }
        }
        up + SLACK
    }
}

/// Opens a session that is never renewed, changes the leader every third of its ttl,
/// and checks when what it held is granted to one who waits.
async fn dead_holder(ttl: Duration, change: impl AsyncFn(&mut Cluster, u64, &mut Bound)) {
    let mut cluster = Cluster::start(3).await;
    let nodes: Vec<Wire> = cluster.endpoints().iter().map(|at| Wire::to(at)).collect();
    let opening = Instant::now();
    let dead = nodes[0].open(owner(1), ttl).await.expect("a session");
    let first = nodes[0].try_acquire(&dead, "job/7").await.expect("free").token;
    let died = Instant::now();
    let live = nodes[0].open(owner(2), Duration::from_secs(600)).await.expect("a session");
    let (header, asked) = (live.next(), nodes.clone());
    let waiting = tokio::spawn(async move {
        let granted = insist(&asked, |node| {
            let header = header.clone();
            async move { node.acquire(header, "job/7", PATIENCE * 2).await }
        });
        (granted.await.expect("freed").token, Instant::now())
    });
    let (rebased, restarted) = (None, BTreeMap::new());
    let mut bound = Bound { died, rebased, restarted, leaderless: Vec::new() };
    for number in 1..=CHANGES {
        let due = died + ttl / 3 * number;
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
        if waiting.is_finished() {
            break;
        }
        let leader = cluster.leader().await;
        let gone = Instant::now();
        change(&mut cluster, leader, &mut bound).await;
        bound.leaderless.push((gone, Instant::now()));
        bound.rebased.get_or_insert_with(Instant::now);
    }
    let (token, freed) = waiting.await.expect("no panic");
    let leader = cluster.leader().await;
    let until = bound.ends_by(ttl, leader) + cluster.stalls().await;
    let (after, at_most) = (freed - died, until - died);
    println!("ttl {ttl:?}: freed after {after:?}; bound {at_most:?}");
    assert!(token > first);
    assert!(freed - opening >= ttl, "early: {after:?}");
    assert!(freed <= until, "late: {after:?}, bound {at_most:?}");
}

/// Nobody restarts: two ttl and the time without a leader, however many the changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_b1_a_dead_holder_is_freed_within_two_ttl_through_frozen_leaders() {
    // By silence an election takes most of a second: it must leave the leader time.
    dead_holder(Duration::from_secs(6), async |cluster, leader, _bound| {
        cluster.signal(leader, "STOP");
        cluster.leader_but(Some(leader)).await;
        cluster.signal(leader, "CONT");
    })
    .await;
}

/// A node that restarts gives every session its full ttl from then: it counts when
/// such a node leads at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_b1_a_dead_holder_is_freed_within_the_bound_through_killed_leaders() {
    dead_holder(Duration::from_secs(3), async |cluster, leader, bound| {
        cluster.kill(leader);
        cluster.leader_but(Some(leader)).await;
        cluster.run(leader);
        cluster.caught_up(leader).await;
        bound.restarted.insert(leader, Instant::now());
    })
    .await;
}

/// Every restart gives a full ttl and no more: nothing is lost with the third change,
/// and nothing added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_b2_a_dead_holder_is_freed_within_the_bound_through_restarts_of_all_nodes() {
    dead_holder(Duration::from_secs(3), async |cluster, _leader, bound| {
        for id in cluster.ids() {
            cluster.kill(id);
        }
        cluster.run_all();
        let leader = cluster.leader().await;
        cluster.caught_up(leader).await;
        let now = Instant::now();
        bound.restarted.extend(cluster.ids().into_iter().map(|id| (id, now)));
    })
    .await;
}
